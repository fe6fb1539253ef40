"""Commands of element-wise operations, reductions and softmax, in plain order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

from odc_mlir.errors import CompileError
from odc_mlir.targets import Target
from odc_mlir.transforms.schedule.accesses import LUT_ENTRIES
from odc_mlir.transforms.schedule.constants import ConstantPool
from odc_mlir.transforms.schedule.geometry import MAX_RUNS, parts
from odc_mlir.transforms.schedule.layers import ElementwiseLayer, ReduceLayer, Scale, SoftmaxLayer, Tensor
from odc_mlir.transforms.schedule.local import LocalMemories
from odc_mlir.transforms.schedule.program import Buffer, Command, Place, Space, command
from odc_mlir.transforms.schedule.slots import Slots
from odc_mlir.transforms.schedule.transfers import flat_load, flat_store
from odc_mlir.transforms.schedule.window_tiling import TILE_ALIGNMENT, aligned

SMALLEST_TILE = 512  # elements: below, latencies cost more than overlap gains
OVERLAPPED_TILES = 4  # tiles that small tensors are cut into, so that loads, arithmetic and stores overlap
LARGEST_RUN = 65_535
BUFFERS = 2  # slots per operand
BINARY = ("add", "sub", "mul", "max", "min")


@dataclass(frozen=True, slots=True)
class Dims:
    """Result dimensions after merging neighbours that broadcast alike; ``a``, ``b``: element strides, 0 broadcasts."""

    sizes: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]


def merged_dims(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> Dims:
    """Dimensions of a broadcast operation, outermost first, at least three."""
    rank = len(shape)
    operands = [(1,) * (rank - len(s)) + tuple(s) for s in (a, b)]
    groups: list[tuple[int, tuple[bool, ...]]] = []
    for axis, size in enumerate(shape):
        if size == 1:
            continue
        kind = tuple(operand[axis] == 1 for operand in operands)
        if groups and groups[-1][1] == kind:
            groups[-1] = (groups[-1][0] * size, kind)
        else:
            groups.append((size, kind))
    groups = [(1, (True, True))] * (3 - len(groups)) + groups
    strides: list[list[int]] = [[], []]
    for which in range(2):
        step = 1
        for size, kind in reversed(groups):
            strides[which].insert(0, 0 if kind[which] else step)
            step *= 1 if kind[which] else size
    return Dims(tuple(size for size, _ in groups), tuple(strides[0]), tuple(strides[1]))


def tile_sizes(dims: Dims, capacity: int) -> tuple[int, ...]:
    """Result elements of a tile along each dimension: whole inner dimensions, one cut, single elements outside."""
    total = math.prod(dims.sizes)
    wanted = min(capacity, max(SMALLEST_TILE, -(-total // OVERLAPPED_TILES)))
    sizes: list[int] = []
    for position, size in enumerate(reversed(dims.sizes)):
        limit = LARGEST_RUN if position == 0 else MAX_RUNS if position < 3 else 1
        room = max(1, min(wanted // math.prod(sizes), limit))
        sizes.insert(0, size if size <= room else -(-size // -(-size // room)))
    return tuple(sizes)


def elementwise_commands(
    layer: ElementwiseLayer, target: Target, memories: LocalMemories, pool: ConstantPool
) -> Iterator[Command]:
    """The commands of an element-wise operation."""
    operands = [layer.a] if layer.b is None else [layer.a, layer.b]
    shapes = [tensor.shape for tensor in operands]
    dims = merged_dims(layer.result.shape, shapes[0], shapes[-1])
    capacity = target.local.tile_bytes // (BUFFERS * (len(operands) + 1)) // TILE_ALIGNMENT * TILE_ALIGNMENT
    sizes = tile_sizes(dims, capacity)
    slot_bytes = aligned(math.prod(sizes))
    names = ("a", "b")[: len(operands)]
    slots = memories.take_mixed(Space.TILE, [(slot_bytes, name) for name in (*names, "output") for _ in range(BUFFERS)])
    inputs = [Slots(slots[BUFFERS * i : BUFFERS * (i + 1)]) for i in range(len(operands))]
    outputs = Slots(slots[BUFFERS * len(operands) :])
    fields, table = _vop_fields(layer), None
    if layer.table:
        data = pool.get("table", layer.table)
        (table,) = memories.take(Space.TABLE, LUT_ENTRIES, 1, "table")
        yield command("table", layer.index, source=(data, 0), target=(table, 0), bytes=LUT_ENTRIES)
    for first in product(*(range(0, size, step) for size, step in zip(dims.sizes, sizes, strict=True))):
        count = tuple(min(s, n - f) for s, n, f in zip(sizes, dims.sizes, first, strict=True))
        made = command("vop", layer.index, **fields, size0=count[-1], size1=count[-2], size2=count[-3])
        for name, tensor, strides, slot in zip(names, operands, (dims.a, dims.b), inputs, strict=False):
            made.places[name], loads = _load_operand(layer.index, tensor, strides, first, count, slot)
            yield from loads
            made.values |= _operand_strides(name, strides, count)
        output = outputs.take()
        made.places["output"] = (output, 0)
        made.values |= {"out_stride1": count[-1], "out_stride2": count[-1] * count[-2]}
        if table is not None:
            made.places["table"] = (table, 0)
        yield made
        yield from _store_block(layer, dims, first, count, output)


def _vop_fields(layer: ElementwiseLayer) -> dict[str, int | str]:
    fields: dict[str, int | str] = {
        "kind": layer.kind,
        "a_type": layer.a.type,
        "b_type": layer.b.type if layer.b is not None else layer.a.type,
        "out_type": layer.result.type,
        "left_shift": layer.left_shift,
        "a_zero": layer.a_zero,
        "b_zero": layer.b_zero,
        **layer.output.fields,
    }
    for name, scale in (("a", layer.a_scale), ("b", layer.b_scale), ("out", layer.out_scale)):
        fields |= scale_fields(name, scale)
    return fields


def scale_fields(name: str, scale: Scale) -> dict[str, int]:
    """A scale as the two fields of an instruction."""
    return {f"{name}_multiplier": scale.multiplier, f"{name}_exponent": scale.exponent}


def _operand_strides(name: str, strides: tuple[int, ...], count: tuple[int, ...]) -> dict[str, int]:
    """Strides of a densely loaded operand block along the three innermost dimensions."""
    step, fields = 1, {}
    for level in range(3):
        here = strides[-1 - level] != 0
        fields[f"{name}_stride{level}"] = (step if level else 1) if here else 0
        step *= count[-1 - level] if here else 1
    return fields


def _load_operand(
    layer: int, tensor: Tensor, strides: tuple[int, ...], first: tuple[int, ...], count: tuple[int, ...], slots: Slots
) -> tuple[Place, list[Command]]:
    """Where the part of ``tensor`` that a block needs lies, and the loads that bring it there."""
    offset = sum(f * s for f, s in zip(first, strides, strict=True))
    shape = tuple(c if s else 1 for c, s in zip(count, strides, strict=True))
    slot, empty = slots.get((offset, shape))
    return (slot, 0), [_block_load(layer, (tensor.buffer, offset), (slot, 0), strides, shape)] if empty else []


def _block_load(layer: int, source: Place, target: Place, strides: tuple[int, ...], shape: tuple[int, ...]) -> Command:
    size0, size1, size2 = shape[-1], shape[-2], shape[-3]
    return command(
        "load",
        layer,
        source=source,
        target=target,
        size0=size0,
        size1=size1,
        size2=size2,
        memory_stride1=strides[-2] if size1 > 1 else 0,
        memory_stride2=strides[-3] if size2 > 1 else 0,
        tile_stride1=size0,
        tile_stride2=size0 * size1,
    )


def _store_block(
    layer: ElementwiseLayer, dims: Dims, first: tuple[int, ...], count: tuple[int, ...], output: Buffer
) -> Iterator[Command]:
    strides = [1]
    for size in reversed(dims.sizes[1:]):
        strides.insert(0, strides[0] * size)
    offset = sum(f * s for f, s in zip(first, strides, strict=True))
    yield command(
        "store",
        layer.index,
        target=(layer.result.buffer, offset),
        source=(output, 0),
        size0=count[-1],
        size1=count[-2],
        size2=count[-3],
        memory_stride1=strides[-2] if count[-2] > 1 else 0,
        memory_stride2=strides[-3] if count[-3] > 1 else 0,
        tile_stride1=count[-1],
        tile_stride2=count[-1] * count[-2],
    )


def reduce_commands(layer: ReduceLayer, target: Target, memories: LocalMemories) -> Iterator[Command]:
    """The commands of a reduction over the pixels of each image: channel slices, pixels in pieces."""
    batch, height, width, channels = layer.source.shape
    room = target.local.tile_bytes // (2 * BUFFERS) // TILE_ALIGNMENT * TILE_ALIGNMENT
    slice_channels = min(channels, target.local.accumulators, room)
    pixels = min(height * width, MAX_RUNS, room // slice_channels)
    pixels = -(-height * width // -(-height * width // pixels))
    sizes = [(aligned(pixels * slice_channels), "input")] * BUFFERS + [(aligned(slice_channels), "output")] * BUFFERS
    slots = memories.take_mixed(Space.TILE, sizes)
    inputs, outputs = Slots(slots[:BUFFERS]), Slots(slots[BUFFERS:])
    for image in range(batch):
        for channel, count in parts(channels, slice_channels):
            output = outputs.take()
            for start, length in parts(height * width, pixels):
                slot = inputs.take()
                source = (layer.source.buffer, (image * height * width + start) * channels + channel)
                yield _block_load(layer.index, source, (slot, 0), (0, channels, 1), (1, length, count))
                is_last = start + length == height * width
                made = command(
                    "reduce",
                    layer.index,
                    kind=layer.kind,
                    init="keep" if start else "zero",
                    emit=int(is_last),
                    in_type=layer.source.type,
                    out_type=layer.result.type,
                    input=(slot, 0),
                    in_stride_x=count,
                    in_stride_y=count * length,
                    width=length,
                    height=1,
                    channels=count,
                    in_zero=layer.in_zero,
                    **scale_fields("out", layer.scale),
                    **layer.output.fields,
                )
                if start or not is_last:
                    made.places["accumulators"] = (memories.accumulators, 0)
                if is_last:
                    made.places["output"] = (output, 0)
                yield made
            yield flat_store(layer.index, (layer.result.buffer, image * channels + channel), (output, 0), count)


def softmax_commands(layer: SoftmaxLayer, target: Target, memories: LocalMemories) -> Iterator[Command]:
    """The commands of a softmax: some rows at a time, computed in place; CompileError for a row that does not fit."""
    columns = layer.source.shape[-1]
    rows = layer.source.elements // columns
    buffers = BUFFERS if BUFFERS * columns <= target.local.tile_bytes else 1
    room = target.local.tile_bytes // buffers
    if columns > room:
        raise CompileError(
            f"softmax over {columns} elements, the tile buffer of {target.name} holds {room}", op="SOFTMAX"
        )
    wanted = -(-rows // OVERLAPPED_TILES) if rows * columns > OVERLAPPED_TILES * SMALLEST_TILE else rows
    piece = max(1, min(wanted, LARGEST_RUN, (room - TILE_ALIGNMENT) // columns))
    size = min(aligned(piece * columns), room)
    slots = Slots(memories.take(Space.TILE, size, buffers, "rows"))
    for first, count in parts(rows, piece):
        slot = slots.take()
        yield flat_load(layer.index, (layer.source.buffer, first * columns), (slot, 0), count * columns)
        yield command(
            "softmax",
            layer.index,
            in_type=layer.source.type,
            out_type=layer.result.type,
            input=(slot, 0),
            in_stride=columns,
            output=(slot, 0),
            out_stride=columns,
            rows=count,
            columns=columns,
            **scale_fields("beta", layer.scale),
            diff_min=layer.diff_min,
        )
        yield flat_store(layer.index, (layer.result.buffer, first * columns), (slot, 0), count * columns)
