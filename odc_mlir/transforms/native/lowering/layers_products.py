"""Convolutions and fully connected layers: packing weights, and the tables that requantise their sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue

from odc_mlir.numerics.fixed import Requantizer
from odc_mlir.ops.infer.geometry import window_options
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.sums import Accumulation, accumulation
from odc_mlir.targets.cpu import CpuTarget
from odc_mlir.transforms.native.kernels.convolution import FIELDS
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.lowering.moving import box, move
from odc_mlir.transforms.native.lowering.segment_writer import (
    CallPlanner,
    SegmentFunction,
    Write,
    count,
    raised,
    refusal,
)
from odc_mlir.transforms.native.lowering.windows import Windows

_LARGEST_SUM = 1 << 31
_BYTE = 128
_LARGEST_ROW = 8  # vectors of one pixel: more registers would hold nothing


def conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[O, kh, kw, C]``."""
    x, weights = node.operand(0), node.operand(1)
    shape = weights.static_shape
    windows = Windows.of(node, x.static_shape, (shape[1], shape[2]), window_options(node))
    return _product(node, windows, shape[0], machine)


def fully_connected(node: Node, machine: CpuTarget) -> Write:
    """``x [..., K]``, weights ``[O, K]``: a convolution of one pixel per row."""
    x, weights = node.operand(0), node.operand(1)
    if node.options.get("weights_format", "default") != "default":
        raise refusal(node, f"weights in the format {node.options['weights_format']} have no native kernel")
    outputs, depth = weights.static_shape
    rows = int(np.prod(x.static_shape)) // depth
    if rows * depth != int(np.prod(x.static_shape)):
        raise refusal(node, f"the input has {int(np.prod(x.static_shape))} elements, not a multiple of {depth}")
    windows = Windows((rows, 1, 1, depth), (1, 1), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))
    return _product(node, windows, outputs, machine)


def depthwise_conv_2d(node: Node, machine: CpuTarget) -> Write:
    """``x [N, H, W, C]``, filter ``[1, kh, kw, C]``."""
    x, weights = node.operand(0), node.operand(1)
    _, kernel_height, kernel_width, channels = weights.static_shape
    kernel = (kernel_height, kernel_width)
    if x.static_shape[3] == 1:
        windows = Windows.of(node, x.static_shape, kernel, window_options(node))
        return _product(node, windows, channels, machine, depthwise=True)
    times = channels // x.static_shape[3]
    windows = Windows.of(node, (*x.static_shape[:3], channels), kernel, window_options(node))
    how, finish = _accumulation(node, channels)
    taps = _weights(how, node.operand(1), 3).reshape(-1, channels)
    in_zero = _held_zero(node, how, windows)
    bias = _bias(how, node, channels) - in_zero * taps.sum(axis=0)
    check_sums(node, taps.reshape(-1, channels).T, bias, finish)

    def write(segment: SegmentFunction, op: Operation) -> None:
        blocks = -(-channels // LANES)
        packed = np.zeros((taps.shape[0], blocks * LANES), np.int16)
        packed[:, :channels] = taps
        rows = tile_rows(windows.pixels, machine.tile_rows)
        zero, low, high = _limits(finish, node.results[0])
        segment.call(
            "depthwise",
            {"rows": rows},
            input=padded_input(segment, repeated_input(segment, op.operands[0], x, times), windows, in_zero),
            weights=segment.constant(packed),
            table=segment.constant(_table(bias, finish, channels, blocks * LANES)),
            places=segment.constant(windows.places()),
            taps=segment.constant(windows.taps()),
            output=segment.result(op.results[0], node.results[0]),
            pixels=windows.pixels,
            channels=channels,
            blocks=blocks,
            tap_count=taps.shape[0],
            zero=zero,
            low=low,
            high=high,
        )

    return write


PLANS: dict[str, CallPlanner] = {
    "CONV_2D": conv_2d,
    "FULLY_CONNECTED": fully_connected,
    "DEPTHWISE_CONV_2D": depthwise_conv_2d,
}


def repeated_input(segment: SegmentFunction, value: SSAValue, info: TensorInfo, times: int) -> SSAValue:
    """The buffer of an operand ``[N, H, W, C]`` with every channel repeated: what a depth multiplier reads."""
    return repeated_codes(segment, segment.tensor(value), info, times, info.info.numpy.itemsize)


def repeated_codes(
    segment: SegmentFunction, source: SSAValue, info: TensorInfo, times: int, item_bytes: int
) -> SSAValue:
    """The same of a buffer that holds as many elements as ``info``."""
    if times == 1:
        return source
    channels = info.static_shape[3]
    target = segment.allocate(count(info) * item_bytes * times)
    place = box((count(info) // channels, channels, times), (channels, 1, 0))
    assert place is not None, "three dimensions are few"
    move(segment, place, source, target, item_bytes)
    return target


def padded_input(
    segment: SegmentFunction, source: SSAValue, windows: Windows, zero: int | SSAValue, item_bytes: int = 1
) -> SSAValue:
    """A buffer with the border that windows need, filled with the code ``zero`` as it is held, or one per image."""
    if not windows.is_padded:
        return source
    images, rows, columns, channels = windows.shape
    channels *= item_bytes
    height, width = windows.padded
    target = segment.allocate(images * height * width * channels)
    computed = isinstance(zero, SSAValue)
    filling: dict[str, Any] = {"fills": zero} if isinstance(zero, SSAValue) else {"fill": _signed(zero)}
    segment.call(
        "pad_images" if computed else "pad_image",
        {},
        input=source,
        output=target,
        images=images,
        rows=rows,
        row_bytes=columns * channels,
        first=(windows.rows[0] * width + windows.columns[0]) * channels,
        pitch=width * channels,
        image_bytes=height * width * channels,
        **filling,
    )
    return target


def _signed(code: int) -> int:
    """An unsigned byte as the signed one with the same bits."""
    return code - 256 if code > 127 else code


def _product(node: Node, windows: Windows, outputs: int, machine: CpuTarget, *, depthwise: bool = False) -> Write:
    """Sums over whole windows. ``depthwise``: the filter is ``[1, kh, kw, O]`` over an input of one channel."""
    how, finish = _accumulation(node, outputs)
    centred = _weights(how, node.operand(1), 3 if depthwise else 0)
    matrix = centred.reshape(-1, outputs).T if depthwise else centred.reshape(outputs, -1)
    in_zero = _held_zero(node, how, windows)
    bias = _bias(how, node, outputs) - in_zero * matrix.sum(axis=1)
    check_sums(node, matrix, bias, finish)
    runs, run_bytes = windows.runs()
    matrix, runs, offset = bytes_of(matrix, runs)

    def write(segment: SegmentFunction, op: Operation) -> None:
        rows, vectors = tile_of(windows.pixels, outputs, machine)
        packed, blocks = pack(matrix, len(runs), run_bytes, LANES * vectors)
        steps = -(-run_bytes // 4) * 4
        ones = np.zeros(steps, np.int8)
        ones[:run_bytes] = 1
        zero, low, high = _limits(finish, node.results[0])
        segment.call(
            "convolve",
            {"rows": rows, "vectors": vectors, "offset": int(bool(offset))},
            input=padded_input(segment, segment.tensor(op.operands[0]), windows, in_zero),
            weights=segment.constant(packed),
            table=segment.constant(_table(bias, finish, outputs, blocks * LANES * vectors)),
            places=segment.constant(windows.places()),
            runs=segment.constant(runs),
            ones=segment.constant(ones),
            output=segment.result(op.results[0], node.results[0]),
            pixels=windows.pixels,
            channels=outputs,
            blocks=blocks,
            run_count=len(runs),
            run_bytes=steps,
            offset=offset,
            zero=zero,
            low=low,
            high=high,
        )

    return write


def tile_of(pixels: int, channels: int, machine: CpuTarget) -> tuple[int, int]:
    """Pixels and vectors of channels of a tile of sums.

    One pixel has as many vectors as keep the machine busy while a product takes its time: sums must not wait for each
    other. Among the larger half of their numbers, the one is taken that leaves the fewest empty.
    """
    rows = tile_rows(pixels, machine.tile_rows)
    wanted = -(-channels // LANES)
    if rows > 1:
        return rows, min(wanted, machine.tile_vectors)
    most = min(wanted, machine.tile_rows * machine.tile_vectors // 2 or 1, _LARGEST_ROW)
    return rows, min(range(most, most // 2, -1), key=lambda vectors: -(-wanted // vectors) * vectors)


def tile_rows(pixels: int, most: int) -> int:
    """The largest power of two up to ``most`` that ``pixels`` fill."""
    rows = most
    while rows > pixels:
        rows //= 2
    return max(rows, 1)


def pack(matrix: NDArray[Any], runs: int, run_bytes: int, width: int) -> tuple[NDArray[np.int8], int]:
    """Weights ``[O, runs * run_bytes]`` as ``[block][run][four bytes][channel][4]``, and the number of blocks."""
    outputs = matrix.shape[0]
    blocks, steps = -(-outputs // width), -(-run_bytes // 4)
    packed = np.zeros((blocks * width, runs, steps * 4), np.int8)
    packed[:outputs, :, :run_bytes] = matrix.reshape(outputs, runs, run_bytes)
    return packed.reshape(blocks, width, runs, steps, 4).transpose(0, 2, 3, 1, 4), blocks


def bytes_of(matrix: NDArray[Any], runs: NDArray[np.int32]) -> tuple[NDArray[Any], NDArray[np.int32], int]:
    """Weights ``[O, runs * run]`` as signed bytes: with the offset that they lack, or in parts over the same inputs."""
    offset = common_offset(matrix)
    if offset is not None:
        return matrix - offset, runs, offset
    parts = split_weights(matrix, -_BYTE, _BYTE - 1)
    return np.concatenate(parts, axis=1), np.tile(runs, len(parts)), 0


def split_weights(weights: NDArray[Any], low: int, high: int) -> list[NDArray[Any]]:
    """Weights as a sum of some that are within limits; most are so at once."""
    parts: list[NDArray[Any]] = []
    rest = weights
    while rest.any() or not parts:
        parts.append(np.clip(rest, low, high))
        rest = rest - parts[-1]
    return parts


def common_offset(matrix: NDArray[Any]) -> int | None:
    """What to take off all weights so that they are signed bytes: 0 where they are; None where nothing helps."""
    low, high = int(matrix.min()), int(matrix.max())
    if low >= -_BYTE and high < _BYTE:
        return 0
    return None if high - low > 255 else high - (_BYTE - 1)


def _accumulation(node: Node, outputs: int) -> tuple[Accumulation, Requantizer]:
    """How the host kernel adds up and requantises, which is what the native one does; raises for anything else."""
    x, weights, bias = node.operand(0), node.operand(1), node.optional(2)
    if x.dtype not in ("int8", "uint8"):
        raise refusal(node, f"an input of {x.dtype} has no native kernel")
    if weights.dtype not in ("int8", "uint8") or not weights.is_const:
        raise refusal(
            node,
            f"weights of {weights.dtype} that are {'constant' if weights.is_const else 'computed'} "
            "have no native kernel",
        )
    if bias is not None and not bias.is_const:
        raise refusal(node, "a computed bias has no native kernel")
    how = accumulation(node, x, weights, bias, outputs)
    if not isinstance(how.rescale, Requantizer) or how.sums != "int32" or node.results[0].dtype != x.dtype:
        raise refusal(node, f"a result of {node.results[0].dtype} has no native kernel")
    if int(how.rescale.e.max()) > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")
    return how, how.rescale


def _held_zero(node: Node, how: Accumulation, windows: Windows) -> int:
    """The zero point of the input as it is held."""
    zero = how.in_zero + raised(node.operand(0))
    if windows.is_padded and not 0 <= zero <= 255:
        raise refusal(node, f"the zero point {how.in_zero} is not a value that can fill the padding")
    return zero


def _weights(how: Accumulation, info: TensorInfo, axis: int) -> NDArray[Any]:
    return how.weights(info.array(), axis).astype(np.int32)


def _bias(how: Accumulation, node: Node, outputs: int) -> NDArray[np.int64]:
    """The bias in units of sums, whatever it is stored in."""
    info = node.optional(2)
    row = None if info is None else how.bias_row(info.array())
    return np.zeros(outputs, np.int64) if row is None else row.astype(np.int64)


def check_sums(node: Node, matrix: NDArray[Any], bias: NDArray[np.int64], finish: Requantizer) -> None:
    """Refuse sums of ``matrix [O, K]`` that do not leave room for rounding."""
    most = np.abs(matrix.astype(np.int64)).sum(axis=1) * 255 + np.abs(bias)
    scaled = most.astype(np.float64) * np.abs(finish.q) / 2.0**31
    half = 2.0 ** np.maximum(-finish.e, 0) / 2
    if int(most.max()) >= _LARGEST_SUM or float((scaled + half).max()) >= _LARGEST_SUM - 1:
        raise refusal(node, "sums are too large for the native kernel, which has 32 bits")


def _limits(finish: Requantizer, out: TensorInfo) -> tuple[int, int, int]:
    """Zero point and range of result codes as they are held."""
    up = raised(out)
    return finish.zero_point + up, finish.low + up, finish.high + up


def _table(bias: NDArray[np.int64], finish: Requantizer, outputs: int, padded: int) -> NDArray[np.int32]:
    """``FIELDS`` of every result channel."""
    table = np.zeros((len(FIELDS), padded), np.int32)
    for row, values in zip(table, (bias, *scaling_fields(finish.q, finish.e)), strict=True):
        row[:outputs] = values
    return table


def scaling_fields(q: Any, e: Any) -> Sequence[NDArray[np.int64]]:
    """``q``, ``round``, ``half`` and ``shift`` of multipliers of at most 1."""
    shift = np.maximum(-np.asarray(e, np.int64), 0)
    return np.asarray(q, np.int64), -(shift > 0).astype(np.int64), (np.int64(1) << shift) >> 1, shift
