"""Quantisation schemes, and the scales, zero points and codes that follow from ranges and contents.

Schemes belong to a family: ``one`` is the family of ONE: asymmetric uint8, and int16 throughout. ``tflite`` is the
family of TensorFlow Lite: int8 with symmetric weights, and int16 activations with int8 weights. The families differ in
:data:`FIXED` parameters. Arithmetic uses float64. Codes are computed with the stored scale, which is a float32, and
halves are rounded away from zero. The smallest code of a symmetric signed type stays unused. Scales are at least the
smallest normal float32: smaller numbers lose digits, and some processors flush these to zero.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, OptionError
from odc_mlir.isa.fields import ACCUMULATOR_BITS, LARGEST_WIDE_FACTOR
from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.quantizer.policy.declarations import CPU
from odc_mlir.quantizer.policy.declarations import FLOAT as FLOAT  # the precision of operators that are not quantised
from odc_mlir.quantizer.policy.readers import NPU

GRANULARITIES = ("channel", "tensor")
WEIGHT_FORMS = ("symmetric", "asymmetric")
TFLITE = "tflite"


@dataclass(frozen=True, slots=True)
class Scheme:
    """Element types and parameters of a quantised model or operator."""

    name: str
    family: str
    activations: str | None  # None, like the bias, in weight-only schemes
    weights: str
    bias: str | None
    symmetric_activations: bool
    symmetric_weights: bool
    granularity: str = "channel"  # of the scales of weights
    reader: str = ""  # runtime whose kernels have to accept the codes, "" for ours

    @property
    def weights_only(self) -> bool:
        return self.activations is None

    @property
    def largest_bias(self) -> int:
        """Return the largest code that a bias may have. Raises KeyError if the scheme has no biases."""
        # NPUs add 32-bit biases, also to sums of 16-bit codes. Half of this range leaves room for corrections.
        largest_bias_of_npus = 1 << 30
        largest = DTYPES[self.bias or ""].range[1]
        return min(largest, largest_bias_of_npus) if self._has_wide_sums_on_npu else largest

    @property
    def largest_sum(self) -> int | None:
        """Largest sum of products before adding the bias, or None if there is no limit."""
        largest_sum_of_npus = (1 << ACCUMULATOR_BITS - 1) - (1 << 31)
        return largest_sum_of_npus if self._has_wide_sums_on_npu else None

    @property
    def most_steps(self) -> int | None:
        """Largest number of steps of a result for one step of a sum, or None if there is no limit."""
        # The largest factor with which an NPU can rescale such a sum is just below this.
        most_steps_of_npus = LARGEST_WIDE_FACTOR - 1
        return most_steps_of_npus if self._has_wide_sums_on_npu else None

    @property
    def _has_wide_sums_on_npu(self) -> bool:
        return self.reader == NPU and self.bias == "int64"

    def fixed(self, table: str) -> QuantParams | None:
        """Return the parameters of a result that the operator fixes, or None if parameters follow from the range."""
        if self.activations is None:
            return None
        by_family = FIXED.get((table, self.activations), {})
        return by_family.get(self.family) or by_family.get("")

    def read_by(self, reader: str) -> Scheme:
        """Return the scheme for files of ``reader``, with TensorFlow Lite's fixed parameters if it is not a CPU."""
        return replace(self, reader=reader, family=self.family if reader == CPU else TFLITE) if reader else self

    def with_options(self, *, granularity: str | None = None, weights: str | None = None) -> Scheme:
        """Return the scheme with another granularity or form of weights. Raises OptionError if this is impossible."""
        granularity = granularity or self.granularity
        if granularity not in GRANULARITIES:
            raise OptionError(f"unknown granularity {granularity!r}", hint=f"use one of {', '.join(GRANULARITIES)}")
        if weights is not None and weights not in WEIGHT_FORMS:
            raise OptionError(f"unknown weight form {weights!r}", hint=f"use one of {', '.join(WEIGHT_FORMS)}")
        if granularity == "tensor" and (self.weights_only or self.weights == "int16"):
            raise OptionError(
                f"scheme {self.name!r} has one scale per channel; granularity 'tensor' is not possible",
                hint="omit the granularity",
            )
        symmetric = self.symmetric_weights if weights is None else weights == "symmetric"
        if not symmetric and self.weights != "uint8":
            raise OptionError(
                f"weights of scheme {self.name!r} are symmetric; only uint8 ones can be asymmetric",
                hint="use the scheme 'uint8'",
            )
        return replace(self, granularity=granularity, symmetric_weights=symmetric)


def _one(scale: float, zero_point: int) -> QuantParams:
    return QuantParams((scale,), (zero_point,))


# (table of an operator, element type) -> family -> fixed parameters; the family "" means any. Scales are float32.
FIXED: Mapping[tuple[str, str], Mapping[str, QuantParams]] = {
    ("logistic", "uint8"): {"": _one(1 / 256, 0)},
    ("logistic", "int8"): {"": _one(1 / 256, -128)},
    ("logistic", "int16"): {"": _one(1 / 32768, 0)},
    ("tanh", "uint8"): {"": _one(1 / 128, 128)},
    ("tanh", "int8"): {"": _one(1 / 128, 0)},
    ("tanh", "int16"): {"": _one(1 / 32768, 0)},
    ("softmax", "uint8"): {"one": _one(0.003921568859368563, 0), "": _one(1 / 256, 0)},  # 1/255
    ("softmax", "int8"): {"": _one(1 / 256, -128)},
    ("softmax", "int16"): {"one": _one(3.0518509447574615e-05, 0), "": _one(1 / 32768, 0)},  # 1/32767
    ("log_softmax", "uint8"): {"": _one(1 / 16, 255)},
    ("log_softmax", "int8"): {"": _one(1 / 16, 127)},
    ("l2_normalization", "uint8"): {"": _one(1 / 128, 128)},
    ("l2_normalization", "int8"): {"": _one(1 / 128, 0)},
}

_SCHEMES = (
    Scheme("uint8", "one", "uint8", "uint8", "int32", symmetric_activations=False, symmetric_weights=False),
    Scheme("int8", "tflite", "int8", "int8", "int32", symmetric_activations=False, symmetric_weights=True),
    Scheme("int8x4", "tflite", "int8", "int4", "int32", symmetric_activations=False, symmetric_weights=True),
    Scheme("int16", "one", "int16", "int16", "int64", symmetric_activations=True, symmetric_weights=True),
    Scheme("int16x8", "tflite", "int16", "int8", "int64", symmetric_activations=True, symmetric_weights=True),
    *(
        Scheme(f"{dtype}_wo", "one", None, dtype, None, symmetric_activations=True, symmetric_weights=True)
        for dtype in ("int8", "int16", "int4")
    ),
)
SCHEMES: Mapping[str, Scheme] = {scheme.name: scheme for scheme in _SCHEMES}
PRECISIONS = (*(scheme.name for scheme in _SCHEMES if not scheme.weights_only), FLOAT)


def scheme(name: str) -> Scheme:
    """Return the scheme called ``name``. Raises OptionError for an unknown name."""
    try:
        return SCHEMES[name]
    except KeyError:
        raise OptionError(f"unknown quantisation scheme {name!r}", hint=f"use one of {', '.join(SCHEMES)}") from None


NARROW = "int8"  # the scheme in which targets run most operators
WIDE_VALUES = "int16x8"  # values of 16 bits, with weights of 8 bits
WIDE_WEIGHTS, WIDE_WEIGHTS_ALONE = "int16", "int16_wo"  # 16-bit weights, with 16-bit or real values

# Wider schemes to try for single layers, in order. They belong to the model's family, which every reader knows.
LADDERS: Mapping[str, tuple[str, ...]] = {
    "int8": ("int16x8", FLOAT),
    "int8x4": ("int8", "int16x8", FLOAT),
    "uint8": ("int16", FLOAT),
    "int16": (FLOAT,),
    "int16x8": (FLOAT,),
    "int4_wo": ("int8_wo", WIDE_WEIGHTS_ALONE, FLOAT),
    "int8_wo": (WIDE_WEIGHTS_ALONE, FLOAT),
}

NARROWER: Mapping[str, str] = {"int8": "int8x4", "int8_wo": "int4_wo"}
"""Narrower schemes to try for single layers within a budget: weights of half the bits."""


def ladder_of(scheme: str) -> tuple[str, ...]:
    """Return the precisions to try for layers of ``scheme``, cheapest first, or none if no precision is better."""
    return LADDERS.get(scheme, ())


def wider_values(scheme: str) -> str:
    """Return the first precision on the ladder of ``scheme`` with more bits for values."""
    return next(step for step in ladder_of(scheme) if step == FLOAT or values_of(step) != values_of(scheme))


def values_of(precision: str) -> str | None:
    """Return the element type of values in this precision, or None if values are real."""
    return None if precision == FLOAT else SCHEMES[precision].activations


def with_wide_weights(scheme: str) -> tuple[str, ...]:
    """Return the ladder of ``scheme`` with a step for 16-bit weights, which only a target can price."""
    ladder = ladder_of(scheme)
    if WIDE_VALUES not in (scheme, *ladder):
        return ladder
    place = (scheme, *ladder).index(WIDE_VALUES)
    return (*ladder[:place], WIDE_WEIGHTS, *ladder[place:])


SMALLEST_SCALE = float(np.finfo(np.float32).tiny)
# Scale of a tensor of zeros, for which any scale would do.
SCALE_OF_ZEROS = 1e-10
_LARGEST = float(np.finfo(np.float32).max)

Reals = NDArray[Any]


def activation_params(least: float, most: float, dtype: str, *, symmetric: bool) -> QuantParams:
    """Return parameters of values in a range, with a code for zero. Raises ModelError for an invalid range."""
    if not (np.isfinite(least) and np.isfinite(most)) or least > most:
        raise ModelError(f"the range [{least:g}, {most:g}] is not a range of finite numbers")
    return _params(np.array([least]), np.array([most]), dtype, symmetric, np.zeros(1))


def cell_state_params(least: float, most: float) -> QuantParams:
    """Return parameters of an int16 cell state with these final extremes: a power of two, zero point 0."""
    from odc_mlir.numerics.lstm import CELL_EXPONENTS

    magnitude = 2 * max(abs(least), abs(most))  # the state may have been larger within a run
    exponent = math.ceil(math.log2(magnitude)) - 15 if magnitude else CELL_EXPONENTS[0]
    return QuantParams((math.ldexp(1.0, min(max(exponent, CELL_EXPONENTS[0]), CELL_EXPONENTS[-1])),), (0,))


def weight_params(
    array: Reals, axis: int | None, dtype: str, *, symmetric: bool, least_scales: Reals | None = None, name: str = ""
) -> QuantParams:
    """Return parameters of a constant by the contents: a scale per index of ``axis``, or one scale if ``axis`` is None.

    ``least_scales``: lower bounds by channel (:func:`least_weight_scales`). Raises ModelError for values that are not
    finite or reach the limit of float32.
    """
    magnitude = np.abs(array, dtype=np.float64).max(initial=0.0)
    if not magnitude < np.finfo(np.float32).max:
        raise ModelError(
            f"the constant has an element of magnitude {magnitude:g}; only finite ones have codes",
            tensor=name or None,
            hint="keep its operator in float",
        )
    rows = array.reshape(1, -1) if axis is None else np.moveaxis(array, axis, 0).reshape(array.shape[axis], -1)
    least = rows.min(axis=1, initial=0.0).astype(np.float64)
    most = rows.max(axis=1, initial=0.0).astype(np.float64)
    bounds = np.zeros(len(rows)) if least_scales is None else least_scales
    if len(bounds) != len(rows):
        bounds = np.full(len(rows), bounds.max(initial=0.0))
    return _params(least, most, dtype, symmetric, bounds, axis or 0)


def _params(least: Reals, most: Reals, dtype: str, symmetric: bool, bounds: Reals, axis: int = 0) -> QuantParams:
    low, high = DTYPES[dtype].range
    least, most = np.minimum(least, 0.0), np.maximum(most, 0.0)
    middle = 0 if low < 0 else (high + 1) // 2
    steps = np.maximum(-least, most) / (high - middle) if symmetric else (most - least) / (high - low)
    # Channels of zeros get the smallest scale of all other channels. Sums of these channels then fit as well.
    is_zero = least == most
    of_zeros = steps[~is_zero].min(initial=np.inf) if not is_zero.all() else SCALE_OF_ZEROS
    scales = np.maximum(np.where(is_zero, of_zeros, steps), np.maximum(bounds, SMALLEST_SCALE))
    if symmetric:
        zeros = np.full(len(scales), middle)
    else:
        zeros = np.clip(round_half_away(-least / scales), 0, high - low).astype(np.int64) + low
    stored = np.clip(scales, SMALLEST_SCALE, _LARGEST).astype(np.float32)
    return QuantParams(tuple(stored.tolist()), tuple(zeros.tolist()), axis)


def least_weight_scales(bias: Reals, input_scale: float, largest: int) -> Reals:
    """Return the least weight scales with which biases fit the code ``largest``, and scales of sums fit float32.

    A channel that training has switched off may have a bias and weights near zero.
    """
    # Room of half a step for rounding, and for the rounding of scales to float32.
    room = 1 - 2.0**-20
    by_codes = np.abs(bias, dtype=np.float64).reshape(-1) / largest
    return np.maximum(by_codes, SMALLEST_SCALE) / (input_scale * room)


def bias_params(input: QuantParams, weights: QuantParams) -> QuantParams:
    """Return the parameters of sums of products: a scale for each channel, and zero point 0."""
    products = np.asarray(weights.scales, np.float64) * input.scale
    stored = np.clip(products, SMALLEST_SCALE, _LARGEST).astype(np.float32)
    return QuantParams(tuple(stored.tolist()), (0,) * len(stored))


def quantize_bias(bias: Reals, params: QuantParams, dtype: str) -> tuple[Reals, tuple[int, ...]]:
    """Return saturated codes of a bias, and the channels in which codes saturate."""
    low, high = DTYPES[dtype].range
    codes = round_half_away(bias.astype(np.float64).reshape(-1) / np.asarray(params.scales, np.float64))
    outside = (codes < low) | (codes > high)
    inside = np.where(outside, 0, codes).astype(DTYPES[dtype].numpy)
    saturated = np.where(outside, np.where(codes < 0, low, high), inside).astype(DTYPES[dtype].numpy)
    return saturated.reshape(bias.shape), tuple(np.flatnonzero(outside).tolist())


def quantize_constant(array: Reals, params: QuantParams, dtype: str) -> Reals:
    """Return codes of a constant, clamped to the type."""
    info = DTYPES[dtype]
    low, high = info.range
    scales, zeros = (_along(values, params, array.ndim) for values in (params.scales, params.zero_points))
    reals = np.clip(array.astype(np.float64), -_LARGEST, _LARGEST)
    steps = np.nan_to_num(reals, nan=0.0) / scales
    # As in ONE, unsigned codes are rounded after the zero point is added. This matters only for negative halves.
    codes = round_half_away(np.clip(steps + zeros, low, high)) if low == 0 else round_half_away(steps) + zeros
    limited: Reals = np.clip(codes, low, high).astype(info.numpy)
    return limited


def dequantize_constant(codes: Reals, params: QuantParams) -> NDArray[np.float32]:
    """Return the real values of codes."""
    scales, zeros = (_along(values, params, codes.ndim) for values in (params.scales, params.zero_points))
    return ((codes.astype(np.float64) - zeros) * scales).astype(np.float32)


def _along(values: tuple[float, ...], params: QuantParams, rank: int) -> Reals:
    array = np.asarray(values, np.float64)
    return array if params.per_tensor else array.reshape([-1 if i == params.axis else 1 for i in range(rank)])


def represented_range(params: QuantParams, dtype: str) -> tuple[float, float]:
    """Return the least and the largest real values that have a code."""
    low, high = DTYPES[dtype].range
    return (low - params.zero_point) * params.scale, (high - params.zero_point) * params.scale


# Largest distance from the grid due to float32 rounding (2^-24), in steps of up to 2^6 and relative to the weight.
_NEAR, _NEAR_PART = 2.0**-18, 2.0**-20
# Bits -> scales to try, relative to the range's scale. Half or twice as many change five networks by 0.03 dB (mean).
_FACTORS = {4: np.linspace(0.4, 1.1, 36), 8: np.linspace(0.84, 1.16, 33)}


def on_grid(array: Reals, params: QuantParams, dtype: str) -> QuantParams:
    """Return ``params`` with the scale of the grid for channels with weights on a grid. Coarser scales stay."""
    # Number of steps of the finest grid to search for. Steps of 16-bit codes can divide the steps of this grid.
    most_steps = 255
    rows, (low, high) = _rows(array, params), DTYPES[dtype].range
    least, most = rows.min(axis=1, initial=0.0), rows.max(axis=1, initial=0.0)
    zeros = np.asarray(params.zero_points)
    symmetric = low < 0 or bool((zeros == (high + 1) // 2).all())
    steps = high if low < 0 else high // 2 if symmetric else high
    reach = np.maximum(-least, most) if symmetric else most - least
    multiple = max(1, steps // most_steps)
    found = _grids(rows, reach, min(steps, most_steps)) / multiple
    old = np.asarray(params.scales, np.float64)
    taken = np.isfinite(found) & (found > old * (1 - _NEAR_PART))
    if not taken.any():
        return params
    scales = np.where(taken, found, old).astype(np.float32)
    if not symmetric:
        zeros = np.where(taken, np.clip(round_half_away(-least / scales), low, high).astype(np.int64), zeros)
    return replace(params, scales=tuple(scales.tolist()), zero_points=tuple(zeros.tolist()))


def fitted(array: Reals, params: QuantParams, dtype: str) -> QuantParams:
    """Return symmetric ``params``. A channel gets the scale with the least error of the results.

    Inputs count as uniform in [0, 1]. Errors of weights add up. No channel's squared error of weights grows. 16-bit
    scales stay.
    """
    factors = _FACTORS.get(DTYPES[dtype].bits)
    if factors is None:
        return params
    rows, most = _rows(array, params), DTYPES[dtype].range[1]
    scales = np.asarray(params.scales, np.float32)
    allowed, sums = _errors(rows, scales, most)
    least = allowed / 12 + sums**2 / 4
    for factor in factors:
        tried = (np.asarray(params.scales) * factor).astype(np.float32)
        squares, sums = _errors(rows, tried, most)
        losses = squares / 12 + sums**2 / 4
        better = (losses < least) & (squares <= allowed) & (tried > 0)
        scales, least = np.where(better, tried, scales), np.where(better, losses, least)
    return replace(params, scales=tuple(scales.tolist()))


def _rows(array: Reals, params: QuantParams) -> NDArray[np.float64]:
    if params.per_tensor:
        return array.reshape(1, -1).astype(np.float64)
    return np.moveaxis(array, params.axis, 0).reshape(array.shape[params.axis], -1).astype(np.float64)


def _errors(
    rows: NDArray[np.float64], scales: NDArray[np.float32], most: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the sums of squared errors and of errors of each row's weights."""
    steps = scales.astype(np.float64)[:, np.newaxis]
    lost = np.clip(np.rint(rows / steps), -most, most) * steps - rows
    return np.asarray(np.einsum("rk,rk->r", lost, lost)), lost.sum(axis=1)


def _grids(rows: NDArray[np.float64], reach: NDArray[np.float64], steps: int) -> NDArray[np.float64]:
    """Return for each row the scale with weights as multiples, and at most ``steps`` in ``reach``, else NaN.

    Grids of rows with few nonzero weights count only if all other rows lie on grids.
    """
    # By chance, this number of nonzero weights lies on a grid in one of 10^7 channels: the largest weight fixes 128
    # scales, and each other weight is near a multiple of such a scale in at most one of 2000 cases.
    least_weights, first_weights, rows_at_once = 4, 16, 64
    found = np.full(len(rows), np.nan)
    is_telling = np.count_nonzero(rows, axis=1) >= least_weights
    some = np.linspace(0, rows.shape[1] - 1, min(rows.shape[1], first_weights)).astype(int)
    counts = np.arange(steps, steps // 2, -1)
    for wanted in (is_telling, ~is_telling):
        left = np.flatnonzero(wanted & (reach > 0))
        for start in range(0, len(left), rows_at_once):
            part = left[start : start + rows_at_once]
            scales = reach[part, np.newaxis] / counts
            # Test a few weights first: a few weights seldom lie on a grid if not all weights of the row do.
            for place, number in zip(*np.nonzero(_divides(rows[np.ix_(part, some)], scales)), strict=True):
                row, scale = part[place], scales[place, number]
                if np.isnan(found[row]) and _divides(rows[row : row + 1], np.array([[scale]])).all():
                    found[row] = scale
        if not is_telling.any() or not np.isfinite(found[is_telling]).all():
            break
    return found


def _divides(rows: NDArray[np.float64], scales: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Return by row whether all weights are multiples of the ``scales [rows, N]`` in float32."""
    steps = rows[:, np.newaxis] / scales[:, :, np.newaxis]
    return np.asarray((np.abs(steps - np.rint(steps)) <= _NEAR + _NEAR_PART * np.abs(steps)).all(axis=2))


def bits_of(precision: str, of_weights: bool) -> int:
    """Return the bits of values or weights in this precision, 0 for float."""
    scheme: Scheme | None = SCHEMES.get(precision)
    dtype = None if scheme is None else scheme.weights if of_weights else scheme.activations
    return 0 if dtype is None else int("".join(filter(str.isdigit, dtype)))
