"""Real functions that numpy lacks, or that need care in float32: GELU, error function, ELU, hard swish."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import by_pieces, in_pieces, limit, pieces

Array = NDArray[Any]

# Upper tail of the normal distribution: Q(z) = 1/2 / (1 + C1 z + C2 z^2 …)^16. With our fitted coefficients, z * Q(z)
# has an error of 4e-9, and a relative error of 5e-7 for z <= 3. For large z, the power overflows, and Q(z) is zero.
_ROOT = np.array(
    [
        0.0498679359,
        0.0211363144,
        0.00328896549,
        2.77120294e-05,
        5.08750173e-05,
        7.45003045e-06,
        -1.12848432e-06,
        1.58679364e-07,
    ],
    np.float32,
)
_ROOT_END = np.float32(16)
_LEAST_NORMAL = np.finfo(np.float32).smallest_normal
_INFINITY, _MINUS_INFINITY = np.float32(np.inf), np.float32(-np.inf)
_MINUS_ROOT_HALF = np.float32(-math.sqrt(0.5))
_FEW = 64  # largest number of elements for which the C library is faster than numpy
_HALF, _ONE = np.float32(0.5), np.float32(1)
_ROOT_2_OVER_PI, _CUBIC = np.float32(math.sqrt(2 / math.pi)), np.float32(0.044715)


def exp(x: Array, out: Array | None = None) -> Array:
    """Return ``e^x`` of float32, or 0 for subnormal results, because products with subnormal numbers are slow."""
    powers = np.exp(x, out)
    if not powers.min(initial=1) >= _LEAST_NORMAL:
        powers[powers < _LEAST_NORMAL] = 0
    return powers


def gelu(x: Array) -> NDArray[np.float32]:
    """Return ``x`` times the standard normal distribution function at ``x`` in float32. ``-inf`` gives NaN."""
    if x.size <= _FEW:
        return gelu_exact(x)
    return in_pieces(_gelu, x, np.float32)


def _gelu(x: Array) -> Array:
    """Return ``max(x, 0) - z * Q(z)`` with ``z = |x|``, without cancellation for negative ``x``."""
    z = np.abs(limit(x, _MINUS_INFINITY, _ROOT_END))
    power = z * _ROOT[-1]
    with np.errstate(over="ignore", invalid="ignore"):
        for coefficient in _ROOT[-2::-1]:
            power += coefficient
            power *= z
        power += _ONE
        for _ in range(4):
            np.square(power, out=power)
        z *= _HALF
        z /= power
    np.subtract(limit(x, np.float32(0), _INFINITY), z, out=power)
    return np.asarray(np.copysign(power, x, out=power))


@by_pieces(np.float32)
def erf(x: Array) -> NDArray[np.float32]:
    """Return the error function of float32, rounded once."""
    return np.array([math.erf(v) for v in x.ravel().tolist()], np.float32).reshape(x.shape)


def gelu_exact(x: Array) -> NDArray[np.float32]:
    """Return GELU of a few float32 values for tables, which must be exact, by the C library's erfc."""
    scaled = x * _MINUS_ROOT_HALF
    tails = np.array([math.erfc(v) for v in scaled.ravel().tolist()], np.float32).reshape(x.shape)
    return np.asarray(_HALF * x * tails)


def exp_exact(x: Array) -> NDArray[np.float32]:
    """Return ``e^x`` of a few float32 values for tables, rounded once."""
    with np.errstate(over="ignore"):
        return np.asarray(np.exp(x.astype(np.float64)), np.float32)


def gelu_tanh_exact(x: Array) -> NDArray[np.float32]:
    """Return :func:`gelu_tanh` of a few float32 values for tables. The tangent is rounded once."""
    inner = _ROOT_2_OVER_PI * (x + _CUBIC * x * x * x)
    tangent = np.tanh(inner.astype(np.float64)).astype(np.float32)
    return np.asarray(_HALF * x * (_ONE + tangent))


@by_pieces(np.float32)
def gelu_tanh(x: Array) -> NDArray[np.float32]:
    """Return the approximation of GELU by a hyperbolic tangent, for float32."""
    inner = x * x
    inner *= x
    inner *= _CUBIC
    inner += x
    inner *= _ROOT_2_OVER_PI
    np.tanh(inner, out=inner)
    inner += _ONE
    inner *= _HALF  # first, because the product with a large number overflows
    inner *= x
    return inner


def elu(x: Array) -> Array:
    """Return non-negative ``x``, else ``e^x - 1``, as ``2 t / (1 - t)`` with ``t = tanh(x / 2)``."""
    kind = x.dtype.type
    zero, low = kind(0), kind(-np.inf)

    def compute(x: Array) -> Array:
        t = limit(x, low, zero)
        t *= kind(0.5)
        np.tanh(t, out=t)
        below = t + t
        np.subtract(kind(1), t, out=t)
        below /= t
        np.copyto(below, x, where=x >= 0)
        return below

    return in_pieces(compute, x, x.dtype)


def hard_swish(x: Array) -> Array:
    """Return ``x * clamp(x + 3, 0, 6) / 6``, rounded after each step as in TensorFlow Lite."""
    kind = x.dtype.type
    three, zero, six = kind(3), kind(0), kind(6)
    result = np.empty(x.shape, x.dtype)
    for part, target in pieces(x, result):
        np.add(part, three, out=target)
        limit(target, zero, six, out=target)
        target *= part
        target /= six
    return result
