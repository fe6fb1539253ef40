"""Lowering of operators that move elements, and windows over images.

A move maps positions of the result to positions of the source. An affine map becomes nested loops. Any other map
becomes a table.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.ops.indexing import gather_axes
from odc_mlir.ops.infer.common import WindowOptions, axis_window
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import quantised_zero
from odc_mlir.transforms.native.kernels.loops import STORED
from odc_mlir.transforms.native.kernels.moves import DIMENSIONS, FEW, SQUARE
from odc_mlir.transforms.native.kernels.registry import LANES
from odc_mlir.transforms.native.lowering.segment_writer import (
    Array,
    EmitCalls,
    KernelPattern,
    SegmentFunction,
    count,
    refusal,
    repeated_word,
    require_same_codes,
    sign_offset,
    size_bytes,
)

_VECTORS = 4  # rows of a tile from which processors have vector registers for transpositions
_FEW_BYTES = 32  # length below which runs are moved element by element


@dataclass(frozen=True)
class AffineCopy:
    """Affine map of runs of neighbours, with steps of source and result in every dimension, in elements."""

    sizes: tuple[int, ...]
    steps: tuple[int, ...]
    output_steps: tuple[int, ...]
    start: int
    output_start: int
    run: int


@dataclass(frozen=True)
class RunTable:
    """Table of the first source element of each run of neighbours, or -1 to skip the run."""

    starts: Array
    run: int


Move = AffineCopy | RunTable


def strides(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the distance of neighbours in each dimension, in elements."""
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


def box(
    sizes: Sequence[int],
    steps: Sequence[int],
    output_steps: Sequence[int] | None = None,
    start: int = 0,
    output_start: int = 0,
) -> AffineCopy | None:
    """Return the affine copy with merged dimensions, or None if the kernel has too few dimensions."""
    kept: list[tuple[int, int, int]] = []
    for size, step, output in zip(sizes, steps, output_steps or strides(sizes), strict=True):
        if size == 1:
            continue
        if kept and kept[-1][1:] == (size * step, size * output):
            kept[-1] = kept[-1][0] * size, step, output
        else:
            kept.append((size, step, output))
    run = kept.pop()[0] if kept and kept[-1][1:] == (1, 1) else 1
    if len(kept) > DIMENSIONS:
        return None
    columns = tuple(zip(*kept, strict=True)) or ((), (), ())
    return AffineCopy(columns[0], columns[1], columns[2], start, output_start, run)


def move_of(places: Array) -> Move:
    """Return the move that copies source element ``places[i]`` to result element ``i`` and skips negative indices."""
    flat = places.reshape(-1)
    if flat.size and int(flat.min()) >= 0:
        steps = [
            int(np.take(places, 1, axis).flat[0]) - int(flat[0]) if size > 1 else 0
            for axis, size in enumerate(places.shape)
        ]
        found = box(places.shape, steps, start=int(flat[0]))
        indices = np.ix_(*map(np.arange, places.shape))
        affine = sum((index * step for index, step in zip(indices, steps, strict=True)), int(flat[0]))
        if found is not None and np.array_equal(places, affine):
            return found
    run = 1
    for split in range(places.ndim):
        length = math.prod(places.shape[split:])
        rows = flat.reshape(-1, length)
        wanted = np.where(rows[:, :1] < 0, rows[:, :1], rows[:, :1] + np.arange(length))
        if np.array_equal(rows, wanted):
            run = length
            break
    return RunTable(flat[::run].astype(np.int32), run)


def places_of(node: Node, data: int) -> list[Array]:
    """Return the source index of every result element in operand ``data``, or -1, for all results.

    The host kernel, which defines masks and modes, runs on element numbers.
    """
    x = node.operand(data)
    numbers = np.arange(1, math.prod(x.static_shape) + 1, dtype=np.int32).reshape(x.static_shape)
    operands = tuple(
        replace(info, dtype="int32", quant=None) if index == data and info is not None else info
        for index, info in enumerate(node.operands)
    )
    results = tuple(replace(info, dtype="int32", quant=None) for info in node.results)
    counted = replace(node, operands=operands, results=results)
    given = [numbers if index == data else None for index in range(len(operands))]
    return [np.asarray(found) - 1 for found in counted.spec.kernel_function(counted)(given)]


def move(segment: SegmentFunction, plan: Move, source: SSAValue, target: SSAValue, item_bytes: int) -> None:
    """Emit the kernel call that performs ``plan``."""
    options = {"size": item_bytes, "single": int(plan.run * item_bytes < _FEW_BYTES)}
    buffers = {"input": source, "output": target}
    if isinstance(plan, RunTable):
        segment.call("copy_runs", options, **buffers, table=plan.starts, rows=len(plan.starts), run=plan.run)
        return
    kernel = "copy_box"
    if segment.machine.tile_rows >= _VECTORS and (turned := _turned(plan)) is not None:
        plan, kernel, others = turned
        options = {"size": item_bytes, **others}
    rows = (("size", 1, plan.sizes), ("input_step", 0, plan.steps), ("output_step", 0, plan.output_steps))
    numbers = {
        f"{name}{i}": value
        for name, fill, row in rows
        for i, value in enumerate((*(fill,) * (DIMENSIONS - len(row)), *row))
    }
    starts = {"input_first": plan.start, "output_first": plan.output_start}
    segment.call(kernel, options, **buffers, **starts, run=plan.run, **numbers)


def _turned(plan: AffineCopy) -> tuple[AffineCopy, str, dict[str, int]] | None:
    """Return a copy with the dimensions of a transposition last, its kernel and options, or None for other copies."""
    rows = list(zip(plan.sizes, plan.steps, plan.output_steps, strict=True))
    pair = [max(found) for way in (1, 2) if (found := [row for row in rows if row[way] == 1])]
    if plan.run > 1 or len(pair) < 2:
        return None
    (size, _, step), (planes, _, _) = pair
    kernel, options = "transpose_box", {}
    if size >= LANES and step == planes <= FEW:
        kernel, options = "interleave_box", {"planes": planes}
    elif min(size, planes) < SQUARE:
        return None
    sizes, steps, output_steps = zip(*(row for row in rows if row not in pair), *pair, strict=True)
    return replace(plan, sizes=sizes, steps=steps, output_steps=output_steps), kernel, options


def _moved(segment: SegmentFunction, source: SSAValue, info: TensorInfo, places: Array) -> SSAValue:
    target = segment.allocate(places.size * info.info.numpy.itemsize)
    move(segment, move_of(places), source, target, info.info.numpy.itemsize)
    return target


def expanded(segment: SegmentFunction, source: SSAValue, info: TensorInfo, shape: Sequence[int]) -> SSAValue:
    """Return a buffer with an operand repeated to ``shape``."""
    own = (1,) * (len(shape) - len(info.static_shape)) + info.static_shape
    return _moved(segment, source, info, np.broadcast_to(np.arange(math.prod(own), dtype=np.int32).reshape(own), shape))


def transposed(segment: SegmentFunction, source: SSAValue, info: TensorInfo, order: Sequence[int]) -> SSAValue:
    """Return a buffer with the dimensions of an operand in another order."""
    if list(order) == sorted(order):
        return source
    places = np.arange(count(info), dtype=np.int32).reshape(info.static_shape)
    return _moved(segment, source, info, places.transpose(order))


def fill_bits(info: TensorInfo, value: Any) -> int:
    """Return an element for :meth:`SegmentFunction.fill`: the bits of a float, or a stored quantised value."""
    array = np.asarray(value)
    return int(array.astype(np.float32).view(np.int32)) if info.info.kind == "float" else int(array) + sign_offset(info)


def _held(node: Node, info: TensorInfo) -> TensorInfo:
    if info.dtype not in STORED or info.is_const:
        kind = "a constant" if info.is_const else "an"
        raise refusal(node, f"{kind} input of {info.dtype} has no native kernel")
    return info


class LowerViewToKernels(KernelPattern):
    """Lower RESHAPE, SQUEEZE and EXPAND_DIMS to the buffer of the operand."""

    operators = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x = _held(node, node.operand(0))
        require_same_codes(node, x, node.results[0])
        return lambda segment: segment.forward(segment.operand(0))


class LowerConcatenationToKernels(KernelPattern):
    """Lower CONCATENATION and PACK to a copy of rows per operand."""

    operators = ("CONCATENATION", "PACK")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        out = node.results[0]
        infos = [node.operand(i) for i in range(len(node.operands))]
        _held(node, out)
        require_same_codes(node, *infos, out)
        if node.options.get("fused_activation_function", "none") not in ("none", None):
            raise refusal(node, "a fused activation has no native kernel")
        axis = int(node.options["axis"]) % len(out.static_shape)  # PACK's axis is the new dimension
        rows = math.prod(out.static_shape[:axis])
        sizes = [size_bytes(info) // rows for info in infos]

        def emit(segment: SegmentFunction) -> None:
            target = segment.result(out)
            for index, size in enumerate(sizes):
                numbers = {"row_bytes": size, "input_pitch": size, "first": sum(sizes[:index]), "pitch": sum(sizes)}
                segment.call("copy_rows", {}, input=segment.operand(index), output=target, rows=rows, **numbers)

        return emit


class LowerMoveToKernels(KernelPattern):
    """Lower an operator that only moves elements of the first operand. Each result becomes a copy."""

    operators: ClassVar[Sequence[str]] = (
        "TRANSPOSE", "STRIDED_SLICE", "SLICE", "SPLIT_V", "UNPACK", "TILE", "BROADCAST_TO", "SPACE_TO_DEPTH",
        "DEPTH_TO_SPACE", "BATCH_TO_SPACE_ND", "REVERSE_V2", "REVERSE_SEQUENCE", "MIRROR_PAD", "GATHER_ND",
        "RESIZE_NEAREST_NEIGHBOR",
    )  # fmt: skip
    data: ClassVar[int] = 0  # operand whose elements move
    fills: ClassVar[bool] = False  # whether the other elements of the result are zeros

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x = _held(node, node.operand(cls.data))
        require_same_codes(node, x, *node.results)
        for index, info in enumerate(node.operands):
            if index != cls.data and info is not None and not info.is_const:
                raise refusal(node, f"a computed {info.name!r} has no native kernel")
        moves = [move_of(places) for places in places_of(node, cls.data)]

        def emit(segment: SegmentFunction) -> None:
            for index, (out, found) in enumerate(zip(node.results, moves, strict=True)):
                target = segment.result(out, index)
                if cls.fills:
                    segment.fill(target, out, fill_bits(out, quantised_zero(node, out)))
                move(segment, found, segment.operand(cls.data), target, x.info.numpy.itemsize)

        return emit


class LowerSplitToKernels(LowerMoveToKernels):
    """Lower SPLIT, whose first operand is the axis."""

    operators = ("SPLIT",)
    data = 1


class LowerMoveIntoZerosToKernels(LowerMoveToKernels):
    """Lower SPACE_TO_BATCH_ND and MATRIX_DIAG to a fill and a copy."""

    operators = ("SPACE_TO_BATCH_ND", "MATRIX_DIAG")
    fills = True


class LowerPadToKernels(KernelPattern):
    """Lower PAD and PADV2 to a fill and a copy."""

    operators = ("PAD", "PADV2")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, out = _held(node, node.operand(0)), node.results[0]
        require_same_codes(node, x, out)
        value = fill_bits(out, quantised_zero(node, out))
        if len(node.operands) > 2:
            if not node.operand(2).is_const:
                raise refusal(node, "computed padding has no native kernel")
            value = fill_bits(out, node.const(2).reshape(-1)[0])
        if not node.operand(1).is_const:
            raise refusal(node, "a computed padding size has no native kernel")
        before = node.operand(1).array().reshape(-1, 2)[:, 0]
        steps = strides(out.static_shape)
        first = int(sum(int(b) * step for b, step in zip(before, steps, strict=True)))
        found = box(x.static_shape, strides(x.static_shape), steps, output_start=first)
        if found is None:
            raise refusal(node, f"{len(x.static_shape)} dimensions have no native kernel")

        def emit(segment: SegmentFunction) -> None:
            result = segment.result(out)
            segment.fill(result, out, value)
            move(segment, found, segment.operand(0), result, x.info.numpy.itemsize)

        return emit


class LowerGatherToKernels(KernelPattern):
    """Lower GATHER with constant indices to a copy by a table, else to a kernel that checks the indices."""

    operators = ("GATHER",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, indices, out = node.operand(0), node.operand(1), node.results[0]
        if indices.is_const and not x.is_const:
            return LowerMoveToKernels.plan(node)
        if x.dtype not in STORED:
            raise refusal(node, f"an input of {x.dtype} has no native kernel")
        require_same_codes(node, x, out)
        axis, batch = gather_axes(node, len(x.static_shape), len(indices.static_shape))
        if batch or indices.dtype not in ("int32", "int64") or indices.is_const:
            raise refusal(node, "batches of indices have no native kernel")
        run, size = math.prod(x.static_shape[axis + 1 :]), x.info.numpy.itemsize
        options = {"size": size, "index": indices.info.numpy.itemsize, "single": int(run * size < _FEW_BYTES)}
        sizes = {"outer": math.prod(x.static_shape[:axis]), "taken": count(indices), "axis": x.static_shape[axis]}

        def emit(segment: SegmentFunction) -> None:
            buffers = {"input": segment.operand(0), "indices": segment.operand(1), "output": segment.result(out)}
            segment.call("gather", options, **buffers, status=segment.status, run=run, **sizes)

        return emit


class LowerDynamicUpdateSliceToKernels(KernelPattern):
    """Lower DYNAMIC_UPDATE_SLICE along one axis: copy the operand, then copy the update to the clamped position."""

    operators = ("DYNAMIC_UPDATE_SLICE",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        x, rows, places = (node.operand(index) for index in range(3))
        out = _held(node, node.results[0])
        require_same_codes(node, x, rows, out)
        room = [size - taken for size, taken in zip(x.static_shape, rows.static_shape, strict=True)]
        axis = max(range(len(room)), key=room.__getitem__)
        if places.dtype != "int32" or room.count(0) < len(room) - 1:
            raise refusal(node, "a position along several axes or of other integers has no native kernel")
        outer = math.prod(x.static_shape[:axis])
        pitch, run = size_bytes(x) // outer, size_bytes(rows) // outer

        numbers = {"rows": outer, "row_bytes": run, "input_pitch": run, "pitch": pitch}
        numbers |= {"at": axis, "room": room[axis], "step": pitch // x.static_shape[axis]}

        def emit(segment: SegmentFunction) -> None:
            target = segment.result(out)
            segment.call("copy", {}, input=segment.operand(0), output=target, count=size_bytes(out))
            buffers = {"input": segment.operand(1), "places": segment.operand(2), "output": target}
            segment.call("update_rows", {}, **buffers, **numbers)

        return emit


class LowerFillToKernels(KernelPattern):
    """Lower FILL and ZEROS_LIKE to a fill with one value."""

    operators = ("FILL", "ZEROS_LIKE")

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        out = _held(node, node.results[0])
        if (node.spec.name == "FILL" and not node.operand(1).is_const) or out.dtype == "int64":
            raise refusal(node, "a computed value has no native kernel")
        value = node.const(1).reshape(-1)[0] if node.spec.name == "FILL" else quantised_zero(node, out)
        return lambda segment: segment.fill(segment.result(out), out, fill_bits(out, value))


@dataclass(frozen=True)
class Windows:
    """Window that slides over ``[N, H, W, C]``, padded by (top, bottom) rows and (left, right) columns."""

    shape: tuple[int, int, int, int]
    kernel: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    output: tuple[int, int]
    rows: tuple[int, int]
    columns: tuple[int, int]

    @staticmethod
    def of(node: Node, shape: tuple[int, ...], kernel: tuple[int, int], options: WindowOptions) -> Windows:
        """Return the windows of a convolution or pool over an input of ``shape``."""
        axes = [
            axis_window(node, name, shape[1 + i], kernel[i], options.stride[i], options.dilation[i], options.padding)
            for i, name in enumerate(("height", "width"))
        ]
        rows, columns = axes
        return Windows(
            (shape[0], shape[1], shape[2], shape[3]),
            kernel,
            options.stride,
            options.dilation,
            (rows.output or 0, columns.output or 0),
            (rows.before, rows.after),
            (columns.before, columns.after),
        )

    @staticmethod
    def of_rows(rows: int, length: int, channels: int = 1) -> Windows:
        """Return windows that cover one row of ``[rows, length, channels]`` each."""
        return Windows((rows, 1, length, channels), (1, length), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0))

    @property
    def is_padded(self) -> bool:
        return any((*self.rows, *self.columns))

    @property
    def padded(self) -> tuple[int, int]:
        """Height and width with the padding."""
        return self.shape[1] + sum(self.rows), self.shape[2] + sum(self.columns)

    @property
    def pixels(self) -> int:
        """Number of windows."""
        return self.shape[0] * self.output[0] * self.output[1]

    def starts(self) -> Array:
        """Return the offset of the first element of each window in the padded input."""
        height, width = self.padded
        images = np.arange(self.shape[0])[:, None, None] * height
        rows = np.arange(self.output[0])[:, None] * self.stride[0]
        columns = np.arange(self.output[1]) * self.stride[1]
        return (((images + rows) * width + columns) * self.shape[3]).astype(np.int32).reshape(-1)

    def taps(self) -> Array:
        """Return the offset of each tap from the first element of a window, row by row."""
        rows = np.arange(self.kernel[0])[:, None] * self.dilation[0] * self.padded[1]
        columns = np.arange(self.kernel[1]) * self.dilation[1]
        return ((rows + columns) * self.shape[3]).astype(np.int32).reshape(-1)

    def runs(self) -> tuple[Array, int]:
        """Return the offsets of the runs of neighbouring elements of a window, and the length of a run."""
        taps, channels = self.taps(), self.shape[3]
        taps_of_run = 1
        if self.dilation[1] == 1 or self.kernel[1] == 1:
            taps_of_run = self.kernel[1]
            if self.kernel[1] == self.padded[1] and (self.dilation[0] == 1 or self.kernel[0] == 1):
                taps_of_run *= self.kernel[0]
        return taps[::taps_of_run], taps_of_run * channels


def repeated_channels(
    segment: SegmentFunction, source: SSAValue, shape: tuple[int, ...], times: int, item_bytes: int
) -> SSAValue:
    """Return a buffer with every channel of ``source`` repeated ``times``. ``shape`` includes the repeated channels."""
    if times == 1:
        return source
    channels = shape[3] // times
    pixels = shape[0] * shape[1] * shape[2]
    target = segment.allocate(pixels * shape[3] * item_bytes)
    place = box((pixels, channels, times), (channels, 1, 0))
    assert place is not None, "three dimensions are not too many"
    move(segment, place, source, target, item_bytes)
    return target


def padded_input(
    segment: SegmentFunction, source: SSAValue, windows: Windows, zero: int | SSAValue, item_bytes: int
) -> SSAValue:
    """Return a buffer of ``source`` with the padding of ``windows``, filled with one stored value, or one per image."""
    if not windows.is_padded:
        return source
    images, rows, columns, channels = windows.shape
    channels *= item_bytes
    height, width = windows.padded
    target = segment.allocate(images * height * width * channels)
    first, pitch = (windows.rows[0] * width + windows.columns[0]) * channels, width * channels
    sizes = {"images": images, "rows": rows, "row_bytes": columns * channels, "image_bytes": height * pitch}
    numbers = {"first": first, "pitch": pitch, **sizes}
    if isinstance(zero, SSAValue):
        segment.call("pad_images", {}, input=source, output=target, fills=zero, **numbers)
    else:
        segment.call("pad_image", {}, input=source, output=target, fill=repeated_word(zero, item_bytes), **numbers)
    return target
