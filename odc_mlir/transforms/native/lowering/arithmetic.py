"""Arithmetic of convolutions by element type: packing of weights, multiplication, addition, and results.

The attribute ``kernels`` of a class is the suffix of kernel names, as in ``convolve_wide`` for 16-bit values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.numerics.fixed import Requantizer, WideRequantizer, real_bounds
from odc_mlir.numerics.reduction import mean_params, sum_params
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.spec import Node
from odc_mlir.processors import CpuTarget
from odc_mlir.runtime.kernels.common import activation_codes, fused_activation, scale_of
from odc_mlir.runtime.kernels.matrix import code_parameters
from odc_mlir.runtime.kernels.sums import Hybrid, accumulation
from odc_mlir.transforms.native.kernels.registry import LANES
from odc_mlir.transforms.native.kernels.windows import FIELDS, WIDE_FIELDS
from odc_mlir.transforms.native.lowering.moves import Windows, padded_input, repeated_channels
from odc_mlir.transforms.native.lowering.segment_writer import (
    BIAS,
    Argument,
    Array,
    EmitCalls,
    SegmentFunction,
    count,
    refusal,
    sign_offset,
)

Finish = Requantizer | WideRequantizer
Arguments = Mapping[str, Argument]

_SUM_BITS = 31
_LARGEST_SUM = 1 << _SUM_BITS
_LARGEST_CODE = 255
_LARGEST_WIDE = 1 << 15
_LARGEST_ROW = 8  # limit on vectors per pixel, so that sums stay in registers


@dataclass(frozen=True)
class Tiles:
    """Tiles of sums that a kernel keeps in registers: ``rows`` pixels by ``vectors`` of 16 channels."""

    rows: int
    vectors: int
    pixels: int
    channels: int

    @staticmethod
    def of(pixels: int, channels: int, machine: CpuTarget) -> Tiles:
        """Return the tiles of a convolution or product of matrices.

        A tile of one pixel needs several independent vectors of sums to hide the latency of multiplications. The number
        of vectors is from the upper half of the possible numbers, and leaves the fewest vectors unused.
        """
        rows = tile_rows(pixels, machine)
        wanted = -(-channels // LANES)
        if rows > 1:
            return Tiles(rows, min(wanted, machine.tile_vectors), pixels, channels)
        most = min(wanted, machine.tile_rows * machine.tile_vectors // 2 or 1, _LARGEST_ROW)
        vectors = min(range(most, most // 2, -1), key=lambda vectors: -(-wanted // vectors) * vectors)
        return Tiles(rows, vectors, pixels, channels)

    @property
    def width(self) -> int:
        """Channels of a tile."""
        return LANES * self.vectors

    @property
    def blocks(self) -> int:
        """Number of tiles that cover all channels."""
        return -(-self.channels // self.width)

    @property
    def padded(self) -> int:
        """Channels of all blocks, including padding."""
        return self.blocks * self.width

    @property
    def arguments(self) -> dict[str, int]:
        """Sizes as arguments of kernels."""
        return {"pixels": self.pixels, "channels": self.channels, "blocks": self.blocks}


def tile_rows(pixels: int, machine: CpuTarget) -> int:
    """Return the rows of a tile: the machine's maximum, halved until ``pixels`` fill a tile."""
    rows = machine.tile_rows
    while rows > pixels:
        rows //= 2
    return max(rows, 1)


def padded_columns(array: Array, size: int, dtype: Any = np.float32) -> Array:
    """Return ``array`` with zeros along the last axis, up to ``size``."""
    result = np.zeros((*array.shape[:-1], size), dtype)
    result[..., : array.shape[-1]] = array
    return result


def pack(matrix: Array, runs: int, unit: int, width: int) -> Array:
    """Return weights ``[O, runs * length]`` as ``[block of width channels][run][unit inputs][channel][unit]``."""
    outputs = len(matrix)
    columns = matrix.reshape(outputs, runs, -1)
    blocks, steps = -(-outputs // width), -(-columns.shape[2] // unit)
    packed = np.zeros((blocks * width, runs, steps * unit), matrix.dtype)
    packed[:outputs, :, : columns.shape[2]] = columns
    return packed.reshape(blocks, width, runs, steps, unit).transpose(0, 2, 3, 1, 4)


def split_weights(weights: Array, low: int, high: int) -> list[Array]:
    """Return terms within limits with the sum ``weights``. Usually there is one term."""
    parts: list[Array] = []
    rest = weights
    while rest.any() or not parts:
        parts.append(np.clip(rest, low, high))
        rest = rest - parts[-1]
    return parts


def scaling_fields(q: Any, e: Any) -> Sequence[Array]:
    """Return the columns ``q``, ``round``, ``half`` and ``shift`` of multipliers of at most 1."""
    shift = np.maximum(-np.asarray(e, np.int64), 0)
    return np.asarray(q, np.int64), -(shift > 0).astype(np.int64), (np.int64(1) << shift) >> 1, shift


def _raised(weights: Array, bias: Array, finish: Finish) -> tuple[Array, Array, Finish]:
    """Move factors above 1 from requantisation to ``weights [..., C]`` of single channels, if 16 bits hold these."""
    if not isinstance(finish, Requantizer) or (np.abs(weights) << np.clip(finish.e, 0, 32)).max() >= _LARGEST_WIDE:
        return weights, bias, finish
    left, limits = np.maximum(finish.e, 0), (finish.zero_point, finish.low, finish.high)
    return weights << left, bias << left, Requantizer(finish.q, finish.e - left, *limits, finish.dtype)


def check_sums(node: Node, matrix: Array, bias: Array, finish: Requantizer, largest: int = _LARGEST_CODE) -> None:
    """Refuse weights ``matrix [O, K]`` if rounded sums over inputs up to ``largest`` could exceed 32 bits."""
    most = np.abs(matrix.astype(np.int64)).sum(axis=1) * largest + np.abs(bias)
    scaled = most.astype(np.float64) * np.abs(finish.q) / 2.0**31
    half = 2.0 ** np.maximum(-finish.e, 0) / 2
    if int(most.max()) >= _LARGEST_SUM or float((scaled + half).max()) >= _LARGEST_SUM - 1:
        raise too_large(node)


def too_large(node: Node) -> Exception:
    """Return the error for sums of more than 32 bits."""
    return refusal(node, "sums are too large for the native kernel, which has 32 bits")


@dataclass(frozen=True)
class Packing:
    """Weights ``[O, runs * length]`` in the order that the kernel reads, and the offsets of the runs."""

    matrix: Array
    runs: Array
    options: Mapping[str, int] = field(default_factory=dict)
    arguments: Arguments = field(default_factory=dict)
    narrow: bool = False  # whether to halve the rows of a tile, because sums need twice the registers


@dataclass(frozen=True)
class Arithmetic(ABC):
    """Operator that multiplies its first operand by constant ``weights``, and adds a ``bias`` by output channel."""

    node: Node
    weights: Array
    bias: Array

    kernels: ClassVar[str]  # suffix of the names of kernels
    unit: ClassVar[int]  # inputs that one instruction multiplies
    packed: ClassVar[type[np.generic]]  # element type of packed weights; ``taps`` is that of depthwise weights
    taps: ClassVar[type[np.generic]] = np.int16

    def packing(self, matrix: Array, runs: Array, length: int) -> Packing:
        """Pack weights ``[O, runs * length]``. Raises OdcError if sums do not fit into registers."""
        self.tap_options(matrix)
        return signed_bytes(matrix, runs, length)

    @abstractmethod
    def tap_options(self, matrix: Array) -> Mapping[str, int]:
        """Return the options of depthwise kernels. Raises OdcError if sums over weights ``[O, K]`` do not fit."""

    @abstractmethod
    def inputs(self, segment: SegmentFunction, windows: Windows, times: int) -> dict[str, Argument]:
        """Emit the padded input with every channel repeated ``times`` and return the arguments of the kernel."""

    @abstractmethod
    def finish(self, totals: Array, padded: int) -> Arguments:
        """Return the arguments that convert sums to results. ``totals``: sum of weights per channel."""

    def convolve(self, windows: Windows, matrix: Array) -> EmitCalls:
        """Plan sums over whole windows with weights ``[O, K]``."""
        packing = self.packing(matrix, *windows.runs())
        outputs, run_count = len(matrix), len(packing.runs)
        length = -(-packing.matrix.shape[1] // run_count // self.unit) * self.unit

        def emit(segment: SegmentFunction) -> None:
            tiles = Tiles.of(windows.pixels, outputs, segment.machine)
            if packing.narrow:
                tiles = replace(tiles, rows=min(tiles.rows, max(1, segment.machine.tile_rows // 2)))
            weights = pack(packing.matrix.astype(self.packed), run_count, self.unit, tiles.width)
            segment.call(
                f"convolve{self.kernels}",
                {"rows": tiles.rows, "vectors": tiles.vectors, **packing.options},
                **self.inputs(segment, windows, 1),
                weights=weights,
                starts=windows.starts(),
                runs=packing.runs,
                run_count=run_count,
                run_length=length,
                output=self.node.results[0],
                **tiles.arguments,
                **packing.arguments,
                **self.finish(matrix.sum(axis=1), tiles.padded),
            )

        return emit

    def by_channel(self, windows: Windows, matrix: Array, times: int = 1) -> EmitCalls:
        """Plan separate sums over each channel of the windows, with weights ``[taps, channels]``."""
        options, channels = self.tap_options(matrix.T), matrix.shape[1]

        def emit(segment: SegmentFunction) -> None:
            tiles = Tiles(tile_rows(windows.pixels, segment.machine), 1, windows.pixels, channels)
            segment.call(
                f"depthwise{self.kernels.removesuffix('_wide')}",
                {"rows": tiles.rows, **options},
                **self.inputs(segment, windows, times),
                weights=padded_columns(matrix, tiles.padded, self.taps),
                starts=windows.starts(),
                taps=windows.taps(),
                tap_count=len(matrix),
                output=self.node.results[0],
                **tiles.arguments,
                **self.finish(matrix.sum(axis=0), tiles.padded),
            )

        return emit


@dataclass(frozen=True)
class Codes(Arithmetic):
    """Requantised integer sums. The bias includes ``-zero * totals``, so ``zero`` is not subtracted from the inputs."""

    zero: int  # zero point of the stored input
    requantizer: Requantizer | WideRequantizer

    kernels, unit = "", 4
    packed: ClassVar[type[np.generic]] = np.int8

    @staticmethod
    def of(node: Node, outputs: int, axis: int) -> Codes:
        """Return the arithmetic of a convolution. Raises OdcError with the reason if it has no kernel."""
        x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
        if x.dtype not in CODE_DTYPES:
            raise refusal(node, f"an input of {x.dtype} has no native kernel")
        wide = x.dtype == "int16"
        if not weights.is_const or (weights.info.bits > 8 and not wide):
            kind = "constant" if weights.is_const else "computed"
            raise refusal(node, f"weights of {weights.dtype} that are {kind} have no native kernel")
        if bias is not None and not bias.is_const:
            raise refusal(node, "a computed bias has no native kernel")
        how = accumulation(node, x, weights, bias, outputs)
        finish = how.rescale
        known = isinstance(finish, Requantizer | WideRequantizer) if wide else isinstance(finish, Requantizer)
        if not known or node.results[0].dtype != x.dtype or (how.sums != "int32" and not wide):
            raise refusal(node, f"a result of {node.results[0].dtype} has no native kernel")
        assert isinstance(finish, Requantizer | WideRequantizer)
        row = None if bias is None else how.bias_row(bias.array())
        numbers = np.zeros(outputs, np.int64) if row is None else row.astype(np.int64)
        values = np.asarray(how.weights(weights.array(), axis), np.int64)
        if node.spec.name == "DEPTHWISE_CONV_2D":
            values, numbers, finish = _raised(values, numbers, finish)
        return (WideCodes if wide else Codes)(node, values, numbers, how.in_zero + sign_offset(x), finish)

    @staticmethod
    def of_mean(node: Node, taken: int, channels: int) -> Codes:
        """Return the arithmetic of means or sums of ``taken`` elements, with all weights one."""
        x, out = node.operand(0), node.results[0]
        if x.dtype not in CODE_DTYPES or out.dtype != x.dtype:
            raise refusal(node, f"an input of {x.dtype} with a result of {out.dtype} has no native kernel")
        (scale, zero), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
        q, e = sum_params(scale, out_scale) if node.spec.name == "SUM" else mean_params(scale, out_scale, taken)
        requantizer = Requantizer(q, e, out_zero, *out.info.range, out.info.numpy)
        ones, bias, finish = _raised(np.ones((taken, channels), np.int64), np.zeros(channels, np.int64), requantizer)
        kind = WideCodes if x.dtype == "int16" else Codes
        return kind(node, ones, bias, zero + sign_offset(x), finish)

    def __post_init__(self) -> None:
        if isinstance(self.requantizer, Requantizer) and int(self.requantizer.e.max()) > 0:
            raise refusal(self.node, "a scale ratio above 1 has no native kernel")

    def tap_options(self, matrix: Array) -> Mapping[str, int]:
        assert isinstance(self.requantizer, Requantizer)
        if not 0 <= self.zero <= _LARGEST_CODE:
            raise refusal(self.node, f"the zero point {self.zero} is not a value that can fill the padding")
        check_sums(self.node, matrix, self.bias - self.zero * matrix.sum(axis=1), self.requantizer)
        return {}

    def inputs(self, segment: SegmentFunction, windows: Windows, times: int) -> dict[str, Argument]:
        size = self.node.operand(0).info.numpy.itemsize
        source = repeated_channels(segment, segment.operand(0), windows.shape, times, size)
        return {"input": padded_input(segment, source, windows, self.zero, size)}

    def finish(self, totals: Array, padded: int) -> Arguments:
        finish, bias, up = self.requantizer, self.bias - self.zero * totals, sign_offset(self.node.results[0])
        table: Array
        if isinstance(finish, WideRequantizer):
            table = np.zeros((len(WIDE_FIELDS), padded), np.int64)
            fields: Sequence[Any] = finish.fields
        else:
            table = np.zeros((len(FIELDS), padded), np.int32)
            fields = scaling_fields(finish.q, finish.e)
        for row, values in zip(table, (bias, *fields), strict=True):
            row[: len(bias)] = values
        return {"table": table, "zero": finish.zero_point + up, "low": finish.low + up, "high": finish.high + up}


class WideCodes(Codes):
    """Arithmetic of 16-bit values. Sums of a run have 32 bits. Sums of all runs have the operator's width."""

    kernels, unit, packed = "_wide", 2, np.int16

    def _fit(self, matrix: Array) -> bool:
        """Return whether 32 bits hold all sums. Refuse larger sums if the operator adds in 32 bits."""
        finish = self.requantizer
        if isinstance(finish, Requantizer):
            check_sums(self.node, matrix, self.bias - self.zero * matrix.sum(axis=1), finish, _LARGEST_WIDE)
        return bool(np.abs(matrix).sum(axis=1).max() * _LARGEST_WIDE < _LARGEST_SUM)

    @property
    def _options(self) -> dict[str, int]:
        return {"long": int(isinstance(self.requantizer, WideRequantizer))}

    def tap_options(self, matrix: Array) -> Mapping[str, int]:
        if not self._fit(matrix):
            raise too_large(self.node)
        return self._options

    def packing(self, matrix: Array, runs: Array, length: int) -> Packing:
        split = not self._fit(matrix)
        parts = split_weights(matrix.reshape(len(matrix), len(runs), length), -_LARGEST_WIDE, _LARGEST_WIDE - 1)
        columns, runs = np.concatenate(parts, axis=1), np.tile(runs, len(parts))
        taken = _inputs_of_a_sum(columns) if split else length
        divided = _divided(columns, taken)
        starts = (runs[:, None] + np.arange(divided.shape[2]) * taken).reshape(-1).astype(np.int32)
        options = {**self._options, "split": int(split)}
        return Packing(divided.reshape(len(matrix), -1), starts, options, narrow=split)


def _divided(columns: Array, taken: int) -> Array:
    outputs, runs, length = columns.shape
    parts = -(-length // taken)
    return padded_columns(columns, parts * taken, np.int64).reshape(outputs, runs, parts, taken)


def _inputs_of_a_sum(columns: Array) -> int:
    """Return the number of inputs of a run that 32 bits can sum: an even number that divides the run, or one."""
    length = int(columns.shape[2])
    for parts in range(1, -(-length // 2) + 1):
        taken = -(-length // (2 * parts)) * 2
        if int(np.abs(_divided(columns, taken)).sum(axis=3).max()) * _LARGEST_WIDE < _LARGEST_SUM:
            return taken
    return 1


def signed_bytes(matrix: Array, runs: Array, length: int) -> Packing:
    """Pack weights ``[O, runs * length]`` as signed bytes plus an offset, or as several runs over the same inputs.

    The kernel multiplies the offset by the sum of the inputs: a sum with the weights ``ones`` (0 after a run's end).
    """
    low, high = int(matrix.min()), int(matrix.max())
    ones = np.zeros(-(-length // 4) * 4, np.int8)
    ones[:length] = 1
    offset = 0
    if high - low > _LARGEST_CODE:
        parts = split_weights(matrix, -128, 127)
        matrix, runs = np.concatenate(parts, axis=1), np.tile(runs, len(parts))
    elif low < -128 or high > 127:
        offset = high - 127
    return Packing(matrix - offset, runs, {"offset": int(bool(offset))}, {"ones": ones, "offset": offset})


def multiply_codes(node: Node, windows: Windows, depth: int, columns: int, *, turned: bool) -> Callable[..., None]:
    """Plan products of 8-bit codes with right matrices ``[depth, columns]`` (``turned``: transposed), packed first."""
    x, weights, out = node.operand(0), node.operand(1), node.results[0]
    zero, zeros, q, e = code_parameters(node)
    if (zeros != zeros[0]).any():
        raise refusal(node, "a right matrix with several zero points has no native kernel")
    requantizer = Requantizer(q, e, scale_of(node, out)[1], *out.info.range, out.info.numpy)
    check_sums(node, np.full((1, depth), _LARGEST_CODE), np.zeros(1), requantizer)
    codes = Codes(node, np.zeros(0), np.zeros(columns, np.int64), zero + sign_offset(x), requantizer)
    offset = BIAS - sign_offset(weights) - int(zeros[0])  # minus the zero point of packed weights
    ones = padded_columns(np.ones(depth), -(-depth // codes.unit) * codes.unit, np.int8)

    def emit(segment: SegmentFunction, left: SSAValue, right: SSAValue, first: tuple[int, int, int]) -> None:
        tiles = Tiles.of(windows.pixels, columns, segment.machine)
        finish = dict(codes.finish(codes.bias, tiles.padded))
        table = finish.pop("table")
        assert isinstance(table, np.ndarray)
        packed, sums = segment.allocate(len(ones) * tiles.padded), segment.allocate(table.nbytes)
        segment.call("copy", {}, input=table.view(np.uint8), output=sums, count=table.nbytes)
        sizes = {"first": first[1], "depth": depth, "columns": columns, "width": tiles.width, "blocks": tiles.blocks}
        sizes |= {"factor": -codes.zero, "bias": -codes.zero * depth * offset}
        segment.call("pack_codes", {"turned": int(turned)}, input=right, output=packed, ones=ones, table=sums, **sizes)
        buffers = {"input": left, "weights": packed, "table": sums, "output": segment.result(out)}
        numbers = {"offset": offset, "run_count": 1, "run_length": len(ones), "first_result": first[2]}
        tables = {"ones": ones, "starts": windows.starts() + np.int32(first[0]), "runs": np.zeros(1, np.int32)}
        options = {"rows": tiles.rows, "vectors": tiles.vectors, "offset": int(bool(offset)), "matrix": 1}
        segment.call("convolve", options, **buffers, **tables, **numbers, **tiles.arguments, **finish)

    return emit


@dataclass(frozen=True)
class Floats(Arithmetic):
    """Arithmetic of float32 values, limited by the fused activation."""

    low: float
    high: float

    kernels, unit, packed, taps = "_reals", 1, np.float32, np.float32

    @staticmethod
    def of(node: Node, axis: int) -> Floats | HybridCodes:
        """Return the arithmetic of constant weights. Raises OdcError with the reason if it has no kernel."""
        x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
        if not weights.is_const or weights.info.kind not in ("float", "int", "uint"):
            kind = "constant" if weights.is_const else "computed"
            raise refusal(node, f"{kind} weights of {weights.dtype} have no native kernel in float")
        if bias is not None and not (bias.is_const and bias.dtype == "float32"):
            raise refusal(node, "this bias has no native kernel")
        outputs = weights.static_shape[axis]
        how = accumulation(node, x, weights, bias, outputs)
        values, numbers, bounds = (
            np.asarray(how.weights(weights.array(), axis)),
            float_bias(node, outputs),
            bounds_of(node),
        )
        if how.hybrid is not None:
            return HybridCodes(node, values.astype(np.int32), numbers, how.hybrid, *bounds)
        return Floats(node, values, numbers, *bounds)

    def packing(self, matrix: Array, runs: Array, length: int) -> Packing:
        return Packing(matrix, runs)

    def tap_options(self, matrix: Array) -> Mapping[str, int]:
        return {"clamp": 1}

    def inputs(self, segment: SegmentFunction, windows: Windows, times: int) -> dict[str, Argument]:
        source = repeated_channels(segment, segment.operand(0), windows.shape, times, 4)
        return {"input": padded_input(segment, source, windows, 0, 4)}

    def finish(self, totals: Array, padded: int) -> Arguments:
        return {"bias": padded_columns(self.bias, padded), "low": self.low, "high": self.high}

    def convolve(self, windows: Windows, matrix: Array) -> EmitCalls:
        def emit(segment: SegmentFunction) -> None:
            multiply_floats(
                segment,
                windows,
                len(matrix),
                weights=matrix,
                bias=self.bias,
                output=segment.result(self.node.results[0]),
                bounds=(self.low, self.high),
            )

        return emit


def multiply_floats(
    segment: SegmentFunction,
    windows: Windows,
    outputs: int,
    *,
    weights: Array | SSAValue,
    bias: Array | SSAValue,
    output: SSAValue,
    source: SSAValue | None = None,
    bounds: tuple[float, float] | None = None,
    first: tuple[int, int, int] = (0, 0, 0),
) -> None:
    """Emit the product of windows over ``source`` (default: the first operand) and ``outputs`` columns of weights.

    ``weights``: a constant ``[O, K]``, which the pattern packs, or a buffer ``[K, O]``. ``first``: indices of the first
    element of the input, the weights and the result.
    """
    tiles = Tiles.of(windows.pixels, outputs, segment.machine)
    runs, length = windows.runs()
    depth = len(runs) * length
    low, high = bounds or (0.0, 0.0)
    if isinstance(weights, np.ndarray):
        weights, steps = pack(weights, 1, 1, tiles.width), (tiles.width, depth * tiles.width)
    else:
        steps = outputs, tiles.width
    source = padded_input(segment, segment.operand(0) if source is None else source, windows, 0, 4)
    bias = padded_columns(bias, tiles.padded) if isinstance(bias, np.ndarray) else bias
    buffers = {"input": source, "weights": weights, "bias": bias, "output": output}
    numbers = {"run_count": len(runs), "run_length": length, "weight_step": steps[0], "block_step": steps[1]}
    numbers |= {"first_weight": first[1], "first_result": first[2], **tiles.arguments}
    options = {"rows": tiles.rows, "vectors": tiles.vectors, "clamp": int(bounds is not None)}
    starts = windows.starts() + np.int32(first[0])
    segment.call("convolve_reals", options, **buffers, starts=starts, runs=runs, low=low, high=high, **numbers)


def float_bias(node: Node, outputs: int) -> Array:
    """Return the constant bias per output channel, or zeros."""
    info = node.optional(2)
    return np.zeros(outputs, np.float32) if info is None else info.array().reshape(-1)


def bounds_of(node: Node) -> tuple[float, float]:
    """Return the limits of stored results. Refuse fused activations that do not clamp."""
    out = node.results[0]
    if out.dtype != "float32":
        low, high = activation_codes(node, out)
        return low + sign_offset(out), high + sign_offset(out)
    if fused_activation(node) in ("tanh", "sign_bit"):
        raise refusal(node, f"a fused {fused_activation(node)} has no native kernel")
    return real_bounds(fused_activation(node))


@dataclass(frozen=True)
class HybridCodes(Arithmetic):
    """Arithmetic of integer weights and float32 activations, quantised to 8 bits per image at run time."""

    hybrid: Hybrid
    low: float
    high: float

    kernels, unit, packed = "_hybrid", 4, np.int8

    @property
    def asymmetric(self) -> bool:
        """Whether activations have a zero point. Convolutions with one weight scale have none."""
        if self.node.spec.name == "FULLY_CONNECTED":
            return bool(self.node.options.get("asymmetric_quantize_inputs", False))
        return self.node.spec.name in ("DEPTHWISE_CONV_2D", "TRANSPOSE_CONV") or self.hybrid.per_channel

    def tap_options(self, matrix: Array) -> Mapping[str, int]:
        if int(np.abs(matrix).sum(axis=1).max()) * _LARGEST_CODE >= _LARGEST_SUM:
            raise too_large(self.node)
        return {}

    def inputs(self, segment: SegmentFunction, windows: Windows, times: int) -> dict[str, Argument]:
        x, images = self.node.operand(0), windows.shape[0]
        codes, scales, zeros = segment.allocate(count(x)), segment.allocate(4 * images), segment.allocate(4 * images)
        buffers = {"input": segment.operand(0), "output": codes, "scales": scales, "zeros": zeros}
        options = {"asymmetric": int(self.asymmetric)}
        segment.call("quantize_rows", options, **buffers, rows=images, depth=count(x) // images)
        repeated = repeated_channels(segment, codes, windows.shape, times, 1)
        owners = np.repeat(np.arange(images, dtype=np.int32), windows.pixels // images)
        padded = padded_input(segment, repeated, windows, zeros, 1)
        return {"input": padded, "scales": scales, "zeros": zeros, "owners": owners}

    def finish(self, totals: Array, padded: int) -> Arguments:
        factors = np.broadcast_to(self.hybrid.scales, totals.shape).astype(np.float32)
        return {
            "totals": padded_columns(totals, padded, np.int32),
            "factors": padded_columns(factors, padded),
            "bias": padded_columns(self.bias, padded),
            "low": self.low,
            "high": self.high,
        }
