"""Functions of real numbers as vector arithmetic, to a few units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, llvm
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation as IrOperation
from xdsl.ir import SSAValue

from odc_mlir.transforms.native.lowering.loops import Loops, i32, lanes

Write = Callable[..., SSAValue]

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the first has few bits, so that products with integers are exact
_ROUNDING = 12582912.0  # 1.5 * 2^23: what is added to it is rounded to an integer, in the low bits
_ROUNDING_BITS = 0x4B400000
_INFINITY_BITS = 0x7F800000
# Between them exponentials are normal numbers; from the first down they are 0, from the second up infinite.
_LEAST, _MOST = -87.33655, 88.72284
# e^r = 1 + r + r^2 * polynomial for |r| <= ln 2 / 2 (the coefficients of Cephes' expf).
_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def _type(x: SSAValue) -> VectorType:
    assert isinstance(x.type, VectorType)
    return x.type


def exponential(w: Loops, x: SSAValue) -> SSAValue:
    """``e^x``, 0 where that is no normal number: products of those below take many times as long."""
    type = _type(x)
    limited = w.emit(arith.MinimumfOp(w.emit(arith.MaximumfOp(x, w.constant(_LEAST, type))), w.constant(_MOST, type)))
    shifted = w.fused(limited, w.constant(_LOG2_E, type), w.constant(_ROUNDING, type))
    whole = w.emit(arith.SubfOp(shifted, w.constant(_ROUNDING, type)))
    rest = w.fused(whole, w.constant(-_LN2_HIGH, type), limited)
    rest = w.fused(whole, w.constant(-_LN2_LOW, type), rest)
    value = w.constant(_POLYNOMIAL[0], type)
    for coefficient in _POLYNOMIAL[1:]:
        value = w.fused(value, rest, w.constant(coefficient, type))
    square = w.emit(arith.MulfOp(rest, rest))
    value = w.emit(arith.AddfOp(w.fused(value, square, rest), w.constant(1.0, type)))
    bits = lanes(type.get_shape()[0], i32)
    exponent = w.shift_left(w.sub(w.bitcast(shifted, bits), _ROUNDING_BITS), 23)
    found = w.add(w.bitcast(value, bits), exponent)
    found = _unless_equal(w, limited, _LEAST, found, 0)
    return w.bitcast(_unless_equal(w, limited, _MOST, found, _INFINITY_BITS), type)


def _unless_equal(w: Loops, x: SSAValue, number: float, bits: SSAValue, other: int) -> SSAValue:
    """``bits``, ``other`` where ``x`` is ``number``; xDSL's comparisons take no vectors."""
    distance = w.sub(w.bitcast(x, bits.type), w.bitcast(w.constant(number, x.type), bits.type))
    differs = w.shift_right(w.emit(arith.OrIOp(distance, w.sub(w.constant(0, bits.type), distance))), 31)
    fill = w.constant(other, bits.type)
    return w.xor(fill, w.logical_and(w.xor(bits, fill), differs))


def small_integers(w: Loops, x: SSAValue) -> SSAValue:
    """Integral reals of less than 2^22 as integers, by their bits beside a large number."""
    type = _type(x)
    shifted = w.emit(arith.AddfOp(x, w.constant(_ROUNDING, type)))
    return w.sub(w.bitcast(shifted, lanes(type.get_shape()[0], i32)), _ROUNDING_BITS)


def _intrinsic(name: str) -> Write:
    def write(w: Loops, *operands: SSAValue) -> SSAValue:
        type = _type(operands[0])
        return w.intrinsic(f"llvm.{name}.v{type.get_shape()[0]}f32", operands, type)

    return write


def _negative(w: Loops, x: SSAValue) -> SSAValue:
    bits = lanes(_type(x).get_shape()[0], i32)
    return w.bitcast(w.xor(w.bitcast(x, bits), -(1 << 31)), _type(x))


def _logistic(w: Loops, x: SSAValue) -> SSAValue:
    one = w.constant(1.0, _type(x))
    return w.emit(arith.DivfOp(one, w.emit(arith.AddfOp(one, exponential(w, _negative(w, x))))))


def _reciprocal_root(w: Loops, x: SSAValue) -> SSAValue:
    return w.emit(arith.DivfOp(w.constant(1.0, _type(x)), _intrinsic("sqrt")(w, x)))


def _relu(w: Loops, x: SSAValue) -> SSAValue:
    return w.emit(arith.MaximumfOp(x, w.constant(0.0, _type(x))))


def _relu6(w: Loops, x: SSAValue) -> SSAValue:
    return w.emit(arith.MinimumfOp(_relu(w, x), w.constant(6.0, _type(x))))


def _hard_swish(w: Loops, x: SSAValue) -> SSAValue:
    type = _type(x)
    gate = _relu6(w, w.emit(arith.AddfOp(x, w.constant(3.0, type))))
    return w.emit(arith.DivfOp(w.emit(arith.MulfOp(x, gate)), w.constant(6.0, type)))


def _operation(kind: Callable[[SSAValue, SSAValue], IrOperation]) -> Write:
    return lambda w, a, b: w.emit(kind(a, b))


def _leaky(w: Loops, x: SSAValue, slope: SSAValue) -> SSAValue:
    zero = w.constant(0.0, _type(x))
    below, above = w.emit(arith.MinimumfOp(x, zero)), w.emit(arith.MaximumfOp(x, zero))
    return w.fused(below, slope, above)


# Abramowitz and Stegun 7.1.26: erf(z) = 1 - polynomial(1 / (1 + p z)) * e^(-z^2), to 1.5e-7.
_ERROR_STEP = 0.3275911
_ERROR_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _error_function(w: Loops, x: SSAValue) -> SSAValue:
    type = _type(x)
    one = w.constant(1.0, type)
    size = _intrinsic("fabs")(w, x)
    t = w.emit(arith.DivfOp(one, w.fused(size, w.constant(_ERROR_STEP, type), one)))
    value = w.constant(_ERROR_POLYNOMIAL[0], type)
    for coefficient in _ERROR_POLYNOMIAL[1:]:
        value = w.fused(value, t, w.constant(coefficient, type))
    power = exponential(w, _negative(w, w.emit(arith.MulfOp(size, size))))
    tail = w.emit(arith.MulfOp(w.emit(arith.MulfOp(value, t)), power))
    return _intrinsic("copysign")(w, w.emit(arith.SubfOp(one, tail)), x)


def _gelu(w: Loops, x: SSAValue) -> SSAValue:
    """``x * (1 + erf(x / sqrt 2)) / 2``."""
    type = _type(x)
    error = _error_function(w, w.emit(arith.MulfOp(x, w.constant(0.7071067811865476, type))))
    above = w.emit(arith.AddfOp(w.constant(1.0, type), error))
    return w.emit(arith.MulfOp(w.emit(arith.MulfOp(x, w.constant(0.5, type))), above))


def _gelu_tanh(w: Loops, x: SSAValue) -> SSAValue:
    """``x * (1 + tanh(u)) / 2``, which is ``x * logistic(2u)``, for ``u = sqrt(2/pi) * (x + 0.044715 x^3)``."""
    type = _type(x)
    cube = w.emit(arith.MulfOp(w.emit(arith.MulfOp(x, x)), x))
    u = w.fused(cube, w.constant(0.044715, type), x)
    return w.emit(arith.MulfOp(x, _logistic(w, w.emit(arith.MulfOp(u, w.constant(1.5957691216057308, type))))))


def _squared_difference(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    difference = w.emit(arith.SubfOp(a, b))
    return w.emit(arith.MulfOp(difference, difference))


# tanh(x) = x * P(x^2) / Q(x^2) within the bound, beyond which it is 1 (the coefficients of Eigen's ptanh).
_TANH_BOUND = 7.90531110763549805
_TANH_TOP = (-2.76076847742355e-16, 2.00018790482477e-13, -8.60467152213735e-11, 5.12229709037114e-08,
             1.48572235717979e-05, 6.37261928875436e-04, 4.89352455891786e-03)  # fmt: skip
_TANH_BOTTOM = (1.19825839466702e-06, 1.18534705686654e-04, 2.26843463243900e-03, 4.89352518554385e-03)
# log(1 + x) = x - x^2 / 2 + x^3 * polynomial for sqrt(1/2) <= 1 + x < sqrt(2) (the coefficients of Cephes' logf).
_LOG_POLYNOMIAL = (7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1,
                   -1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1)  # fmt: skip
_ROOT_HALF_BITS, _LARGEST_BITS, _NAN_BITS = 0x3F3504F3, 0x7F7FFFFF, 0x7FC00000
_MINUS_INFINITY_BITS = -(1 << 23)


def _polynomial(w: Loops, coefficients: Sequence[float], x: SSAValue) -> SSAValue:
    value = w.constant(coefficients[0], x.type)
    for coefficient in coefficients[1:]:
        value = w.fused(value, x, w.constant(coefficient, x.type))
    return value


def _tanh(w: Loops, x: SSAValue) -> SSAValue:
    type = _type(x)
    low, high = w.constant(-_TANH_BOUND, type), w.constant(_TANH_BOUND, type)
    limited = w.emit(arith.MinimumfOp(w.emit(arith.MaximumfOp(x, low)), high))
    square = w.emit(arith.MulfOp(limited, limited))
    top = w.emit(arith.MulfOp(limited, _polynomial(w, _TANH_TOP, square)))
    return w.emit(arith.DivfOp(top, _polynomial(w, _TANH_BOTTOM, square)))


def _chosen(w: Loops, number: SSAValue, below_zero: SSAValue, other: SSAValue) -> SSAValue:
    """``below_zero`` where an integer is, else ``other``; all of them integers."""
    mask = w.shift_right(number, 31)
    return w.xor(other, w.logical_and(w.xor(below_zero, other), mask))


def logarithm(w: Loops, x: SSAValue) -> SSAValue:
    """The natural logarithm."""
    type = _type(x)
    bits = lanes(type.get_shape()[0], i32)
    raw = w.bitcast(x, bits)
    above = w.sub(raw, _ROOT_HALF_BITS)
    exponent = w.emit(llvm.SIToFPOp(w.shift_right(above, 23), type))
    rest = w.bitcast(w.add(w.logical_and(above, 0x7FFFFF), _ROOT_HALF_BITS), type)
    rest = w.emit(arith.SubfOp(rest, w.constant(1.0, type)))
    square = w.emit(arith.MulfOp(rest, rest))
    value = w.emit(arith.MulfOp(_polynomial(w, _LOG_POLYNOMIAL, rest), w.emit(arith.MulfOp(square, rest))))
    value = w.fused(exponent, w.constant(_LN2_LOW, type), value)
    value = w.fused(square, w.constant(-0.5, type), value)
    value = w.fused(exponent, w.constant(_LN2_HIGH, type), w.emit(arith.AddfOp(rest, value)))
    found = _chosen(w, raw, w.constant(_NAN_BITS, bits), w.bitcast(value, bits))
    infinite = w.sub(w.constant(_LARGEST_BITS, bits), w.logical_and(raw, 0x7FFFFFFF))
    found = _chosen(w, w.logical_and(infinite, w.xor(raw, -1)), raw, found)  # infinity, and what is not a number
    is_zero = w.sub(w.logical_and(raw, 0x7FFFFFFF), 1)
    return w.bitcast(_chosen(w, is_zero, w.constant(_MINUS_INFINITY_BITS, bits), found), type)


def _elu(w: Loops, x: SSAValue) -> SSAValue:
    zero, one = w.constant(0.0, _type(x)), w.constant(1.0, _type(x))
    below = exponential(w, w.emit(arith.MinimumfOp(x, zero)))
    return w.emit(arith.AddfOp(w.emit(arith.MaximumfOp(x, zero)), w.emit(arith.SubfOp(below, one))))


def _within(low: float, high: float) -> Write:
    def write(w: Loops, x: SSAValue) -> SSAValue:
        raised = w.emit(arith.MaximumfOp(x, w.constant(low, _type(x))))
        return w.emit(arith.MinimumfOp(raised, w.constant(high, _type(x))))

    return write


def _sign(w: Loops, x: SSAValue) -> SSAValue:
    large = w.constant(2.0**127, _type(x))  # twice, so that the smallest number is beyond 1 as well
    return _within(-1.0, 1.0)(w, w.emit(arith.MulfOp(w.emit(arith.MulfOp(x, large)), large)))


@dataclass(frozen=True)
class Operation:
    """An element-wise operator; ``write(loops, *operands)`` gives its value."""

    name: str
    write: Write


# Kernels name operations by their place here: put new ones at the end.
OPERATIONS = (
    Operation("ADD", _operation(arith.AddfOp)),
    Operation("SUB", _operation(arith.SubfOp)),
    Operation("MUL", _operation(arith.MulfOp)),
    Operation("DIV", _operation(arith.DivfOp)),
    Operation("MAXIMUM", _operation(arith.MaximumfOp)),
    Operation("MINIMUM", _operation(arith.MinimumfOp)),
    Operation("SQUARED_DIFFERENCE", _squared_difference),
    Operation("NEG", _negative),
    Operation("ABS", _intrinsic("fabs")),
    Operation("SQRT", _intrinsic("sqrt")),
    Operation("RSQRT", _reciprocal_root),
    Operation("LOGISTIC", _logistic),
    Operation("RELU", _relu),
    Operation("RELU6", _relu6),
    Operation("HARD_SWISH", _hard_swish),
    Operation("EXP", exponential),
    Operation("LEAKY_RELU", _leaky),
    Operation("PRELU", _leaky),
    Operation("GELU", _gelu),
    Operation("GELU_TANH", _gelu_tanh),
    Operation("TANH", _tanh),
    Operation("LOG", logarithm),
    Operation("FLOOR", _intrinsic("floor")),
    Operation("CEIL", _intrinsic("ceil")),
    Operation("ROUND", _intrinsic("roundeven")),
    Operation("RELU_N1_TO_1", _within(-1.0, 1.0)),
    Operation("RELU_0_TO_1", _within(0.0, 1.0)),
    Operation("ELU", _elu),
    Operation("SIGN", _sign),
    Operation("SIN", _intrinsic("sin")),
    Operation("COS", _intrinsic("cos")),
    Operation("CUSTOM(Erf)", _error_function),
    Operation("POW", _intrinsic("pow")),
    Operation("SQUARE", lambda w, x: w.emit(arith.MulfOp(x, x))),
)
