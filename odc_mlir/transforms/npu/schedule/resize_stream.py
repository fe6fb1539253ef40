"""Plan and commands of image resizing by tiles. One load fetches the source pixels of a tile."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Runs, Space
from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics.resize import BLEND_BITS, NEAREST_BITS, Line, nearest, neighbours
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.cost import transfer_bytes
from odc_mlir.transforms.npu.schedule.geometry import parts
from odc_mlir.transforms.npu.schedule.layers import Layer, LayerTensor
from odc_mlir.transforms.npu.schedule.local import (
    ImagePart,
    LocalMemories,
    Slot,
    Slots,
    TilePart,
    image_fields,
    transfer,
)
from odc_mlir.transforms.npu.schedule.program import Command, Place, command
from odc_mlir.transforms.npu.schedule.vector_stream import vector_choice
from odc_mlir.transforms.npu.schedule.window_tiling import aligned

BUFFERS = 2  # slots of input and of result
OVERLAPPED_TILES = 8  # tiles per image, so that loads, arithmetic and stores overlap
SMALLEST_TILE = 512  # results per tile; latencies of smaller tiles cost more than overlap saves
_LARGEST_RUN = field_range("load", "size0")[1]
_LARGEST_COUNT = field_range("resize", "in_height")[1]
_BITS = {npu.ResizeKind.NEAREST: NEAREST_BITS, npu.ResizeKind.BILINEAR: BLEND_BITS}
_LANE_TURNS = {npu.ResizeKind.NEAREST: 1, npu.ResizeKind.BILINEAR: 3}


def lane_turns(op: npu.ResizeOp) -> int:
    """Return the vector-lane turns per result."""
    return _LANE_TURNS[op.kind.data]


class PixelSpan(NamedTuple):
    """Part of an axis: ``results`` results from ``first``, computed from ``pixels`` pixels from ``pixel``."""

    first: int
    results: int
    pixel: int
    pixels: int


class ResizeAxis:
    """An axis of a resized image, with the source pixels of every result."""

    def __init__(self, op: npu.ResizeOp, axis: int) -> None:
        self.line: Line = op.lines[axis]
        self.bits = _BITS[op.kind.data]
        self.size, self.results = npu.shape_of(op.input)[axis + 1], npu.shape_of(op.output)[axis + 1]
        if op.kind.data is npu.ResizeKind.NEAREST:
            self.low = self.high = nearest(self.line, self.results, self.size)
        else:
            self.low, self.high, _ = neighbours(self.line, self.results, self.size)

    def moved(self, first: int, pixel: int) -> Line:
        """Return the source positions of results from ``first``, relative to ``pixel``."""
        return self.line.moved(first, pixel, self.bits)

    def spans(self, most: int) -> list[PixelSpan]:
        """Return parts of the axis with at most ``most`` results each."""
        found = []
        for first, count in parts(self.results, most):
            low, high = int(self.low[first]), int(self.high[first + count - 1])
            found.append(PixelSpan(first, count, low, high - low + 1))
        return found

    def longest(self, most: int) -> int:
        """Return the largest number of pixels that ``most`` results need."""
        return max(span.pixels for span in self.spans(most))


@dataclass(frozen=True, slots=True)
class ResizePlan:
    """Tile size in results and channels, slots per operand, and estimated cycles and program bytes."""

    rows: int
    columns: int
    channels: int
    buffers: int
    cycles: float
    program_bytes: float


def plan_resize(
    op: npu.ResizeOp, target: Target, room: int, *, source_stays: bool = False, result_stays: bool = False
) -> ResizePlan:
    """Return the plan of ``op`` with ``room`` bytes of the tile buffer. Raises CompileError if one pixel does not fit.

    ``source_stays``, ``result_stays``: whether the image is resident and needs no slots.
    """
    batch, height, width, channels = npu.shape_of(op.output)
    axes, item = (ResizeAxis(op, 0), ResizeAxis(op, 1)), npu.item_bytes(op.input)

    def tile_bytes(rows: int, columns: int, pixel: int) -> int:
        """Return the slot bytes of the largest tile of ``rows`` x ``columns`` results and of its source."""
        source = 0 if source_stays else axes[0].longest(rows) * axes[1].longest(columns)
        return aligned(source * pixel) + (0 if result_stays else aligned(rows * columns * pixel))

    for buffers in (BUFFERS, 1):
        half = room // buffers
        wide = max(1, min(channels, _LARGEST_RUN // item))
        while wide > 1 and tile_bytes(1, 1, wide * item) > half:
            wide = -(-wide // 2)
        if tile_bytes(1, 1, wide * item) <= half:
            break
    else:
        raise CompileError(f"{room} bytes of the tile buffer are too few to resize an image in, on {target.name}")
    columns = _most(axes[1], width, lambda count: tile_bytes(1, count, wide * item) <= half)
    wanted = max(1, -(-SMALLEST_TILE // (columns * wide)), -(-height // OVERLAPPED_TILES))
    rows = _most(axes[0], min(height, wanted), lambda count: tile_bytes(count, columns, wide * item) <= half)
    tiles = batch * -(-channels // wide) * -(-height // rows) * -(-width // columns)
    down, across = axes[0].spans(rows), axes[1].spans(columns)
    made = Counter(span.results for span in down), Counter(span.results for span in across)
    needed = Counter(span.pixels for span in down), Counter(span.pixels for span in across)
    pixel, times = (wide * item, channels * item), batch * -(-channels // wide)
    burst = target.sram.burst_bytes
    stored = 0.0 if result_stays else times * _moved(*made, width, pixel, burst)
    loaded = 0.0 if source_stays else times * _moved(*needed, axes[1].size, pixel, burst)
    turns = lane_turns(op) * batch * height * width * channels / target.vector.requant_lanes
    transfers = 2 - source_stays - result_stays
    cycles = target.vector.start_cycles + turns / tiles
    choice = vector_choice("resize", target, tiles, (loaded, stored), transfers, cycles)
    waiting = 0.0 if buffers > 1 else min((loaded + stored) / target.sram.bytes_per_cycle, turns)
    return ResizePlan(rows, columns, wide, buffers, choice.cycles + waiting, choice.program_bytes)


def _moved(heights: Counter[int], widths: Counter[int], width: int, pixel: tuple[int, int], burst: int) -> float:
    """Return the port bytes of the tiles of an image of ``width`` pixels.

    ``heights``, ``widths``: occurrences by tile size. ``pixel``: bytes moved per pixel, and bytes between pixels.
    """
    size, stride = pixel
    moved = 0.0
    for columns, across in widths.items():
        run, runs = (columns * size, 1) if size == stride else (size, columns)
        for rows, down in heights.items():
            moved += across * down * transfer_bytes(Runs(run, runs, stride, rows, width * stride), burst)
    return moved


def _most(axis: ResizeAxis, limit: int, fits: Callable[[int], bool]) -> int:
    def exceeds(count: int) -> bool:
        return not fits(count) or axis.longest(count) > _LARGEST_COUNT

    most = 1 + bisect_left(range(2, min(limit, _LARGEST_COUNT) + 1), True, key=exceeds)
    return -(-axis.results // -(-axis.results // most))


def resize_commands(layer: Layer[npu.ResizeOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of a resized image, tile by tile."""
    op, stays = layer.op, (layer.source.layout is not None, layer.result.layout is not None)
    plan = plan_resize(op, memories.target, memories.tile_room, source_stays=stays[0], result_stays=stays[1])
    rows, columns = ResizeAxis(op, 0), ResizeAxis(op, 1)
    source = Slot("input", (rows.longest(plan.rows), columns.longest(plan.columns), plan.channels), layer.source.type)
    result = Slot("output", (plan.rows, plan.columns, plan.channels), layer.result.type)
    counts = [0 if resident else plan.buffers for resident in stays]
    slots = memories.take(Space.TILE, [source] * counts[0] + [result] * counts[1])
    inputs, outputs = Slots(slots[: counts[0]]), Slots(slots[counts[0] :])
    batch, _, _, channels = layer.source.shape
    tiles = product(range(batch), parts(channels, plan.channels), rows.spans(plan.rows), columns.spans(plan.columns))
    for image, group, down, across in tiles:
        taken = ImagePart(image, down.pixel, down.pixels, across.pixel, across.pixels, *group)
        made = ImagePart(image, down.first, down.results, across.first, across.results, *group)
        if layer.source.layout is not None:
            given = TilePart.resident(layer.source, taken.row, taken.col, taken.channel)
        else:
            slot, empty = inputs.get(taken)
            given = TilePart.dense((slot, 0), taken.channels * layer.source.item_bytes, taken.cols)
            if empty:
                yield _transfer("load", taken, layer.source, given.place)
        if layer.result.layout is not None:
            found = TilePart.resident(layer.result, made.row, made.col, made.channel)
        else:
            found = TilePart.dense((outputs.take(), 0), made.channels * layer.result.item_bytes, made.cols)
        yield command(
            "resize",
            kind=op.kind.data.value,
            type=layer.source.type,
            **image_fields(given, found, made.rows, made.cols, made.channels),
            input=given.place,
            in_width=taken.cols,
            in_height=taken.rows,
            **_line_fields("x", columns, made.col, taken.col),
            **_line_fields("y", rows, made.row, taken.row),
            output=found.place,
        )
        if layer.result.layout is None:
            yield _transfer("store", made, layer.result, found.place)


def _line_fields(name: str, axis: ResizeAxis, first: int, pixel: int) -> dict[str, int]:
    line = axis.moved(first, pixel)
    return {f"start_{name}": line.start, f"step_{name}": line.step}


def _transfer(mnemonic: str, part: ImagePart, tensor: LayerTensor, place: Place) -> Command:
    _, height, width, channels = tensor.shape
    item = tensor.item_bytes
    pixel = (part.image * height + part.row) * width + part.col
    memory = tensor.at((pixel * channels + part.channel) * item)
    sizes, strides = (part.channels * item, part.cols, part.rows), (channels * item, width * channels * item)
    return transfer(mnemonic, memory, place, sizes, strides)
