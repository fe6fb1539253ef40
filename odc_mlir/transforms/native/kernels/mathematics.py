"""Functions of floats as vector arithmetic, precise to a few units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith, llvm
from xdsl.dialects.builtin import VectorType
from xdsl.ir import Operation as IrOperation
from xdsl.ir import SSAValue

from odc_mlir.dialects.native_attributes import CHOOSE
from odc_mlir.transforms.native.kernels.loops import Loops, i32, lanes

Write = Callable[..., SSAValue]

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the first has few bits, so that products with integers are exact
_ROUNDING = 12582912.0  # 1.5 * 2^23: what is added to it is rounded to an integer, in the low bits
_ROUNDING_BITS = 0x4B400000
_INFINITY = float("inf")
# Between them exponentials are normal numbers; from the first down they are 0, from the second up infinite.
_LEAST, _MOST = -87.33655, 88.72284
# e^r = 1 + r + r^2 * polynomial for |r| <= ln 2 / 2 (the coefficients of Cephes' expf).
_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def _type(x: SSAValue) -> VectorType:
    assert isinstance(x.type, VectorType)
    return x.type


def choose(w: Loops, predicate: str, a: SSAValue, b: SSAValue, x: SSAValue, y: SSAValue) -> SSAValue:
    """Return ``x`` where ``a`` and ``b`` compare as ``predicate`` (``eq``, ``gt``, ``ge``), else ``y``.

    NaN never compares. Works on floats and vectors of floats.
    """
    if isinstance(a.type, VectorType):
        return w.intrinsic(f"{CHOOSE}{predicate}.v{a.type.get_shape()[0]}f32", [a, b, x, y], x.type)
    return w.select(w.emit(arith.CmpfOp(a, b, f"o{predicate}")), x, y)


def larger(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return ``a`` where it is greater, else ``b``, also if either is NaN: one instruction on x86."""
    return choose(w, "gt", a, b, a, b)


def smaller(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return ``a`` where it is less, else ``b``, also if either is NaN."""
    return choose(w, "gt", b, a, a, b)


def clamped(w: Loops, x: SSAValue, low: SSAValue, high: SSAValue) -> SSAValue:
    """Limit ``x`` to ``[low, high]``. NaN stays NaN, and a zero keeps its sign."""
    return smaller(w, high, larger(w, low, x))


def largest_lane(w: Loops, x: SSAValue) -> SSAValue:
    """Return the largest element of a vector without NaN, as a vector of one element."""
    count = _type(x).get_shape()[0]
    while count > 1:
        count //= 2
        x = larger(w, w.shuffle(x, x, range(count)), w.shuffle(x, x, range(count, 2 * count)))
    return x


def _reduced(w: Loops, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Split ``e^x = 2^n * (1 + p)`` for limited ``x``: return the integers ``n``, moved to the exponent, and ``p``."""
    type = _type(x)
    shifted = w.fused(x, w.constant(_LOG2_E, type), w.constant(_ROUNDING, type))
    whole = w.emit(arith.SubfOp(shifted, w.constant(_ROUNDING, type)))
    rest = w.fused(whole, w.constant(-_LN2_HIGH, type), x)
    rest = w.fused(whole, w.constant(-_LN2_LOW, type), rest)
    value = _polynomial(w, _POLYNOMIAL, rest)
    bits = lanes(type.get_shape()[0], i32)
    exponent = w.shift_left(w.sub(w.bitcast(shifted, bits), _ROUNDING_BITS), 23)
    return exponent, w.fused(value, w.emit(arith.MulfOp(rest, rest)), rest)


def exponential(w: Loops, x: SSAValue) -> SSAValue:
    """``e^x``, 0 if smaller than the normal numbers: products with subnormal numbers take many times as long."""
    type = _type(x)
    least, most = w.constant(_LEAST, type), w.constant(_MOST, type)
    exponent, value = _reduced(w, clamped(w, x, least, most))
    value = w.emit(arith.AddfOp(value, w.constant(1.0, type)))
    found = w.bitcast(w.add(w.bitcast(value, exponent.type), exponent), type)
    found = choose(w, "ge", x, most, w.constant(_INFINITY, type), found)
    found = choose(w, "ge", least, x, w.constant(0.0, type), found)
    return choose(w, "eq", x, x, found, x)


def _minus_one(w: Loops, x: SSAValue) -> SSAValue:
    """``e^x - 1`` for ``x`` up to 0, precise around 0."""
    type = _type(x)
    exponent, value = _reduced(w, clamped(w, x, w.constant(_LEAST, type), w.constant(0.0, type)))
    one = w.constant(1.0, type)
    scale = w.bitcast(w.add(w.bitcast(one, exponent.type), exponent), type)
    return w.fused(value, scale, w.emit(arith.SubfOp(scale, one)))


def small_integers(w: Loops, x: SSAValue) -> SSAValue:
    """Return whole floats below 2^22 as integers, by the bits of their sum with a large number."""
    type = _type(x)
    shifted = w.emit(arith.AddfOp(x, w.constant(_ROUNDING, type)))
    return w.sub(w.bitcast(shifted, lanes(type.get_shape()[0], i32)), _ROUNDING_BITS)


def _intrinsic(name: str) -> Write:
    def write(w: Loops, *operands: SSAValue) -> SSAValue:
        type = operands[0].type
        suffix = f"v{type.get_shape()[0]}{type.element_type}" if isinstance(type, VectorType) else str(type)
        return w.intrinsic(f"llvm.{name}.{suffix}", operands, type)

    return write


def size_of(w: Loops, x: SSAValue) -> SSAValue:
    """Return ``|x|``."""
    return _intrinsic("fabs")(w, x)


def rounded(w: Loops, x: SSAValue) -> SSAValue:
    """Return the nearest integer, halves away from zero, of a float or a vector of floats."""
    whole = _intrinsic("trunc")(w, x)
    rest = size_of(w, w.emit(arith.SubfOp(x, whole)))
    # 1 where the rest is half and more: twice the rest is exact, the rest plus a half is not
    up = _intrinsic("trunc")(w, w.emit(arith.AddfOp(rest, rest)))
    return w.emit(arith.AddfOp(whole, _intrinsic("copysign")(w, up, x)))


def _negative(w: Loops, x: SSAValue) -> SSAValue:
    bits = lanes(_type(x).get_shape()[0], i32)
    return w.bitcast(w.xor(w.bitcast(x, bits), -(1 << 31)), _type(x))


def _logistic(w: Loops, x: SSAValue) -> SSAValue:
    one = w.constant(1.0, _type(x))
    return w.emit(arith.DivfOp(one, w.emit(arith.AddfOp(one, exponential(w, _negative(w, x))))))


def _reciprocal_root(w: Loops, x: SSAValue) -> SSAValue:
    return w.emit(arith.DivfOp(w.constant(1.0, _type(x)), _intrinsic("sqrt")(w, x)))


def _relu(w: Loops, x: SSAValue) -> SSAValue:
    return larger(w, w.constant(0.0, _type(x)), x)


def _hard_swish(w: Loops, x: SSAValue) -> SSAValue:
    type = _type(x)
    gate = _within(0.0, 6.0)(w, w.emit(arith.AddfOp(x, w.constant(3.0, type))))
    return w.emit(arith.DivfOp(w.emit(arith.MulfOp(x, gate)), w.constant(6.0, type)))


def _operation(kind: Callable[[SSAValue, SSAValue], IrOperation]) -> Write:
    return lambda w, a, b: w.emit(kind(a, b))


def _leaky(predicate: str) -> Write:
    """``x`` where it compares with zero as ``predicate``, else ``x * slope``."""

    def write(w: Loops, x: SSAValue, slope: SSAValue) -> SSAValue:
        return choose(w, predicate, x, w.constant(0.0, _type(x)), x, w.emit(arith.MulfOp(x, slope)))

    return write


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
_ROOT_HALF_BITS, _NAN_BITS = 0x3F3504F3, 0x7FC00000
_LEAST_NORMAL = 2.0**-126


def _polynomial(w: Loops, coefficients: Sequence[float], x: SSAValue) -> SSAValue:
    value = w.constant(coefficients[0], x.type)
    for coefficient in coefficients[1:]:
        value = w.fused(value, x, w.constant(coefficient, x.type))
    return value


def _tanh(w: Loops, x: SSAValue) -> SSAValue:
    type = _type(x)
    limited = clamped(w, x, w.constant(-_TANH_BOUND, type), w.constant(_TANH_BOUND, type))
    square = w.emit(arith.MulfOp(limited, limited))
    top = w.emit(arith.MulfOp(limited, _polynomial(w, _TANH_TOP, square)))
    return w.emit(arith.DivfOp(top, _polynomial(w, _TANH_BOTTOM, square)))


def logarithm(w: Loops, x: SSAValue) -> SSAValue:
    """The natural logarithm; subnormal numbers are scaled up first."""
    type = _type(x)
    bits = lanes(type.get_shape()[0], i32)
    zero, infinity, least = (w.constant(value, type) for value in (0.0, _INFINITY, _LEAST_NORMAL))
    large = w.emit(arith.MulfOp(x, w.constant(2.0**23, type)))
    above = w.sub(w.bitcast(choose(w, "gt", least, x, large, x), bits), _ROOT_HALF_BITS)
    exponent = w.emit(llvm.SIToFPOp(w.shift_right(above, 23), type))
    exponent = w.emit(arith.AddfOp(exponent, choose(w, "gt", least, x, w.constant(-23.0, type), zero)))
    rest = w.bitcast(w.add(w.logical_and(above, 0x7FFFFF), _ROOT_HALF_BITS), type)
    rest = w.emit(arith.SubfOp(rest, w.constant(1.0, type)))
    square = w.emit(arith.MulfOp(rest, rest))
    value = w.emit(arith.MulfOp(_polynomial(w, _LOG_POLYNOMIAL, rest), w.emit(arith.MulfOp(square, rest))))
    value = w.fused(exponent, w.constant(_LN2_LOW, type), value)
    value = w.fused(square, w.constant(-0.5, type), value)
    value = w.fused(exponent, w.constant(_LN2_HIGH, type), w.emit(arith.AddfOp(rest, value)))
    none = w.bitcast(w.constant(_NAN_BITS, bits), type)
    other = choose(w, "eq", x, zero, w.constant(-_INFINITY, type), none)
    return choose(w, "gt", infinity, x, choose(w, "gt", x, zero, value, other), x)


def _elu(w: Loops, x: SSAValue) -> SSAValue:
    return choose(w, "ge", x, w.constant(0.0, _type(x)), x, _minus_one(w, x))


def _within(low: float, high: float) -> Write:
    return lambda w, x: clamped(w, x, w.constant(low, _type(x)), w.constant(high, _type(x)))


def _root(w: Loops, x: SSAValue) -> SSAValue:
    """``x`` to the power of 1/2, which for -0 and minus infinity is not the square root."""
    type = _type(x)
    root = w.emit(arith.AddfOp(_intrinsic("sqrt")(w, x), w.constant(0.0, type)))
    return choose(w, "eq", x, w.constant(-_INFINITY, type), w.constant(_INFINITY, type), root)


def _inverse_root(w: Loops, x: SSAValue) -> SSAValue:
    return w.emit(arith.DivfOp(w.constant(1.0, _type(x)), _root(w, x)))


def _sign(w: Loops, x: SSAValue) -> SSAValue:
    large = w.constant(2.0**127, _type(x))  # twice, so that the smallest number is beyond 1 as well
    limited = _within(-1.0, 1.0)(w, w.emit(arith.MulfOp(w.emit(arith.MulfOp(x, large)), large)))
    return w.emit(arith.AddfOp(limited, w.constant(0.0, _type(x))))  # of -0 it is 0


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
    Operation("MAXIMUM", larger),
    Operation("MINIMUM", smaller),
    Operation("SQUARED_DIFFERENCE", _squared_difference),
    Operation("NEG", _negative),
    Operation("ABS", _intrinsic("fabs")),
    Operation("SQRT", _intrinsic("sqrt")),
    Operation("RSQRT", _reciprocal_root),
    Operation("LOGISTIC", _logistic),
    Operation("RELU", _relu),
    Operation("RELU6", _within(0.0, 6.0)),
    Operation("HARD_SWISH", _hard_swish),
    Operation("EXP", exponential),
    Operation("LEAKY_RELU", _leaky("gt")),
    Operation("PRELU", _leaky("ge")),
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
    Operation("POW_1/2", _root),
    Operation("POW_-1/2", _inverse_root),
)
