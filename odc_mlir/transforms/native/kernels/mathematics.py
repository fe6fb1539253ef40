"""Functions of floats as vector arithmetic, precise to a few units in the last place."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import VectorType, f64, i1, i32, i64
from xdsl.ir import SSAValue

from odc_mlir.dialects.native_attributes import CHOOSE
from odc_mlir.transforms.native.kernels.loops import Loops, Number, lanes, scalar_of

EmitValue = Callable[..., SSAValue]

_LOG2_E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440e-4  # the first has few bits, so that products with integers are exact
_ROUNDING = 12582912.0  # 1.5 * 2^23: its addition rounds a float to an integer in the low bits
_ROUNDING_BITS = 0x4B400000
_INFINITY = float("inf")
# Limits of operands of exponentials. Results are 0 below, normal numbers between, and infinite above the limits.
_LEAST, _MOST = -87.33655, 88.72284
# e^r = 1 + r + r^2 * polynomial for |r| <= ln 2 / 2 (the coefficients of Cephes' expf).
_POLYNOMIAL = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)


def choose(w: Loops, predicate: str, a: Number, b: Number, x: Number, y: Number) -> SSAValue:
    """Return ``x`` if the comparison ``predicate`` (``eq``, ``gt``, ``ge``) of ``a`` and ``b`` is true, else ``y``.

    Comparisons with NaN are false. Operands are floats or vectors of floats. At least one operand is an SSA value.
    """
    type = next(value.type for value in (a, b, x, y) if isinstance(value, SSAValue))
    operands = [w.number(value, type) for value in (a, b, x, y)]
    if isinstance(type, VectorType):
        return w.intrinsic(f"{CHOOSE}{predicate}.v{type.get_shape()[0]}f32", operands, type)
    return w.select(w.emit(arith.CmpfOp(operands[0], operands[1], f"o{predicate}")), *operands[2:])


def larger(w: Loops, a: Number, b: Number) -> SSAValue:
    """Return ``a`` if ``a > b``, else ``b``, also for NaN. On x86, this is one instruction."""
    return choose(w, "gt", a, b, a, b)


def smaller(w: Loops, a: Number, b: Number) -> SSAValue:
    """Return ``a`` if ``a < b``, else ``b``, also for NaN."""
    return choose(w, "gt", b, a, a, b)


def clamped(w: Loops, x: SSAValue, low: Number, high: Number) -> SSAValue:
    """Limit ``x`` to ``[low, high]``. NaN stays NaN, and a zero keeps its sign."""
    return smaller(w, high, larger(w, low, x))


def first_lanes(w: Loops, count: SSAValue, new: SSAValue, old: SSAValue) -> SSAValue:
    """Return the first ``count`` elements of vector ``new`` of floats, and the others of ``old``."""
    size, element = _lane_count(new), i64 if scalar_of(new.type) == f64 else i32
    bounds = [w.constant(0, i64), w.emit(arith.IndexCastOp(count, i64))]
    mask = w.intrinsic(f"llvm.get.active.lane.mask.v{size}i1.i64", bounds, lanes(size, i1))
    before, after = (w.bitcast(value, lanes(size, element)) for value in (old, new))
    kept = w.logical_and(w.xor(before, after), w.widen(mask, lanes(size, element)))
    return w.bitcast(w.xor(before, kept), new.type)


def _lane_count(x: SSAValue) -> int:
    assert isinstance(x.type, VectorType)
    return x.type.get_shape()[0]


def _bits(w: Loops, x: SSAValue) -> SSAValue:
    return w.bitcast(x, lanes(_lane_count(x), i32))


def folded(w: Loops, x: SSAValue, combine: Callable[[SSAValue, SSAValue], SSAValue]) -> SSAValue:
    """Combine the elements of a vector, half with half, to a vector of one element."""
    count = _lane_count(x)
    while count > 1:
        count //= 2
        x = combine(w.shuffle(x, x, range(count)), w.shuffle(x, x, range(count, 2 * count)))
    return x


def _polynomial(w: Loops, coefficients: Sequence[float], x: SSAValue) -> SSAValue:
    value = w.constant(coefficients[0], x.type)
    for coefficient in coefficients[1:]:
        value = w.fused(value, x, coefficient)
    return value


def _reduced(w: Loops, x: SSAValue) -> tuple[SSAValue, SSAValue]:
    """Split ``e^x = 2^n * (1 + p)`` for limited ``x`` into ``p`` and ``n``, shifted to the bits of the exponent."""
    shifted = w.fused(x, w.constant(_LOG2_E, x.type), _ROUNDING)
    whole = w.sub(shifted, _ROUNDING)
    rest = w.fused(whole, -_LN2_HIGH, x)
    rest = w.fused(whole, -_LN2_LOW, rest)
    value = _polynomial(w, _POLYNOMIAL, rest)
    exponent = w.shift_left(w.sub(_bits(w, shifted), _ROUNDING_BITS), 23)
    return exponent, w.fused(value, w.mul(rest, rest), rest)


def exponential(w: Loops, x: SSAValue) -> SSAValue:
    """Return ``e^x``. Subnormal results become 0, because subnormal numbers are many times slower to multiply."""
    exponent, value = _reduced(w, clamped(w, x, _LEAST, _MOST))
    found = w.bitcast(w.add(_bits(w, w.add(value, 1.0)), exponent), x.type)
    found = choose(w, "ge", x, _MOST, _INFINITY, found)
    found = choose(w, "ge", _LEAST, x, 0.0, found)
    return choose(w, "eq", x, x, found, x)


def _minus_one(w: Loops, x: SSAValue) -> SSAValue:
    exponent, value = _reduced(w, clamped(w, x, _LEAST, 0.0))
    one = w.constant(1.0, x.type)
    scale = w.bitcast(w.add(_bits(w, one), exponent), x.type)
    return w.fused(value, scale, w.sub(scale, one))


def small_integers(w: Loops, x: SSAValue) -> SSAValue:
    """Convert whole floats below 2^22 to integers: add a large number, and use the low bits of the sum."""
    return w.sub(_bits(w, w.add(x, _ROUNDING)), _ROUNDING_BITS)


def _intrinsic(name: str) -> EmitValue:
    return lambda w, *operands: w.function(name, *operands)


def rounded(w: Loops, x: SSAValue) -> SSAValue:
    """Round a float or a vector of floats to the nearest integer, halves away from zero."""
    whole = w.function("trunc", x)
    rest = w.function("fabs", w.sub(x, whole))
    # 1 if the rest is at least a half; doubling the rest is exact, but adding a half is not
    up = w.function("trunc", w.add(rest, rest))
    return w.add(whole, w.function("copysign", up, x))


def _negative(w: Loops, x: SSAValue) -> SSAValue:
    return w.bitcast(w.xor(_bits(w, x), -(1 << 31)), x.type)


def logistic(w: Loops, x: SSAValue) -> SSAValue:
    """Return ``1 / (1 + e^-x)``."""
    one = w.constant(1.0, x.type)
    return w.div(one, w.add(one, exponential(w, _negative(w, x))))


def _hard_swish(w: Loops, x: SSAValue) -> SSAValue:
    return w.div(w.mul(x, clamped(w, w.add(x, 3.0), 0.0, 6.0)), 6.0)


def _leaky(predicate: str) -> EmitValue:
    """Return ``x`` if the comparison ``predicate`` of ``x`` with zero is true, else ``x * slope``."""
    return lambda w, x, slope: choose(w, predicate, x, 0.0, x, w.mul(x, slope))


# Abramowitz and Stegun 7.1.26: erf(z) = 1 - polynomial(1 / (1 + p z)) * e^(-z^2), to 1.5e-7.
_ERROR_STEP = 0.3275911
_ERROR_POLYNOMIAL = (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592)


def _error_function(w: Loops, x: SSAValue) -> SSAValue:
    one = w.constant(1.0, x.type)
    size = w.function("fabs", x)
    t = w.div(one, w.fused(size, _ERROR_STEP, one))
    value = _polynomial(w, _ERROR_POLYNOMIAL, t)
    power = exponential(w, _negative(w, w.mul(size, size)))
    return w.function("copysign", w.sub(one, w.mul(w.mul(value, t), power)), x)


def _gelu(w: Loops, x: SSAValue) -> SSAValue:
    """Return ``x * (1 + erf(x / sqrt 2)) / 2``."""
    error = _error_function(w, w.mul(x, 0.7071067811865476))
    above = w.add(w.constant(1.0, x.type), error)
    return w.mul(w.mul(x, 0.5), above)


def _gelu_tanh(w: Loops, x: SSAValue) -> SSAValue:
    """Return ``x * (1 + tanh(u)) / 2 = x * logistic(2u)`` for ``u = sqrt(2/pi) * (x + 0.044715 x^3)``."""
    u = w.fused(w.mul(w.mul(x, x), x), 0.044715, x)
    return w.mul(x, logistic(w, w.mul(u, 1.5957691216057308)))


def squared_difference(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    """Return ``(a - b)^2`` of floats or integers."""
    difference = w.sub(a, b)
    return w.mul(difference, difference)


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


def tanh(w: Loops, x: SSAValue) -> SSAValue:
    """Return the hyperbolic tangent."""
    limited = clamped(w, x, -_TANH_BOUND, _TANH_BOUND)
    square = w.mul(limited, limited)
    top = w.mul(limited, _polynomial(w, _TANH_TOP, square))
    return w.div(top, _polynomial(w, _TANH_BOTTOM, square))


def logarithm(w: Loops, x: SSAValue) -> SSAValue:
    """Return the natural logarithm. Subnormal numbers are scaled up first."""
    type = x.type
    zero, infinity, least = (w.constant(value, type) for value in (0.0, _INFINITY, _LEAST_NORMAL))
    large = w.mul(x, 2.0**23)
    above = w.sub(_bits(w, choose(w, "gt", least, x, large, x)), _ROOT_HALF_BITS)
    exponent = w.to_real(w.shift_right(above, 23))
    exponent = w.add(exponent, choose(w, "gt", least, x, -23.0, zero))
    rest = w.bitcast(w.add(w.logical_and(above, 0x7FFFFF), _ROOT_HALF_BITS), type)
    rest = w.sub(rest, 1.0)
    square = w.mul(rest, rest)
    value = w.mul(_polynomial(w, _LOG_POLYNOMIAL, rest), w.mul(square, rest))
    value = w.fused(exponent, _LN2_LOW, value)
    value = w.fused(square, -0.5, value)
    value = w.fused(exponent, _LN2_HIGH, w.add(rest, value))
    none = w.bitcast(w.constant(_NAN_BITS, above.type), type)
    other = choose(w, "eq", x, zero, -_INFINITY, none)
    return choose(w, "gt", infinity, x, choose(w, "gt", x, zero, value, other), x)


def _within(low: float, high: float) -> EmitValue:
    return lambda w, x: clamped(w, x, low, high)


def _root(w: Loops, x: SSAValue) -> SSAValue:
    """Return ``x`` to the power of 1/2. It differs from the square root at -0 and minus infinity."""
    return choose(w, "eq", x, -_INFINITY, _INFINITY, w.add(w.function("sqrt", x), 0.0))


def _sign(w: Loops, x: SSAValue) -> SSAValue:
    large = 2.0**127  # two products with this factor raise even the smallest number above 1
    return w.add(clamped(w, w.mul(w.mul(x, large), large), -1.0, 1.0), 0.0)  # adding 0 turns -0 into 0


# Append new operations at the end: kernels refer to operations by the index in this table.
OPERATIONS: dict[str, EmitValue] = {
    "ADD": Loops.add,
    "SUB": Loops.sub,
    "MUL": Loops.mul,
    "DIV": Loops.div,
    "MAXIMUM": larger,
    "MINIMUM": smaller,
    "SQUARED_DIFFERENCE": squared_difference,
    "NEG": _negative,
    "ABS": _intrinsic("fabs"),
    "SQRT": _intrinsic("sqrt"),
    "RSQRT": lambda w, x: w.div(w.constant(1.0, x.type), w.function("sqrt", x)),
    "LOGISTIC": logistic,
    "RELU": lambda w, x: larger(w, 0.0, x),
    "RELU6": _within(0.0, 6.0),
    "HARD_SWISH": _hard_swish,
    "EXP": exponential,
    "LEAKY_RELU": _leaky("gt"),
    "PRELU": _leaky("ge"),
    "GELU": _gelu,
    "GELU_TANH": _gelu_tanh,
    "TANH": tanh,
    "LOG": logarithm,
    "FLOOR": _intrinsic("floor"),
    "CEIL": _intrinsic("ceil"),
    "ROUND": _intrinsic("roundeven"),
    "RELU_N1_TO_1": _within(-1.0, 1.0),
    "RELU_0_TO_1": _within(0.0, 1.0),
    "ELU": lambda w, x: choose(w, "ge", x, 0.0, x, _minus_one(w, x)),
    "SIGN": _sign,
    "SIN": _intrinsic("sin"),
    "COS": _intrinsic("cos"),
    "CUSTOM(Erf)": _error_function,
    "POW": _intrinsic("pow"),
    "SQUARE": lambda w, x: w.mul(x, x),
    "POW_1/2": _root,
    "POW_-1/2": lambda w, x: w.div(w.constant(1.0, x.type), _root(w, x)),
}
