"""Commands of element-wise operations, reductions and softmax, in plain order."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import ConstantPool
from odc_mlir.transforms.npu.schedule.geometry import MAX_RUNS, parts
from odc_mlir.transforms.npu.schedule.layers import Layer, LayerTensor
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot, Slots
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, command
from odc_mlir.transforms.npu.schedule.tensor_ir import output_fields, scale_fields
from odc_mlir.transforms.npu.schedule.transfers import flat_load, flat_store
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT, aligned

SMALLEST_TILE = 512  # elements: below, latencies cost more than overlap gains
OVERLAPPED_TILES = 4  # tiles that small tensors are cut into, so that loads, arithmetic and stores overlap
LARGEST_RUN = 65_535
BUFFERS = 2  # slots per operand
Elementwise = npu.ElementwiseOp | npu.ScaleOp | npu.LutOp | npu.SigmoidOp


@dataclass(frozen=True, slots=True)
class Dims:
    """Result dimensions after merging neighbours that broadcast alike; ``a``, ``b``: element strides, 0 broadcasts."""

    sizes: tuple[int, ...]
    a: tuple[int, ...]
    b: tuple[int, ...]

    @property
    def result(self) -> tuple[int, ...]:
        """Element strides of the result in memory."""
        strides = [1]
        for size in reversed(self.sizes[1:]):
            strides.insert(0, strides[0] * size)
        return tuple(strides)


def merged_dims(shape: Sequence[int], a: Sequence[int], b: Sequence[int]) -> Dims:
    """Return the dimensions of a broadcast operation, outermost first, at least three."""
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


def tile_sizes(dims: Dims, capacity: int, wanted: int) -> tuple[int, ...]:
    """Return the elements of a tile along each dimension: whole inner ones, one cut, single elements outside.

    As many as ``wanted`` and ``capacity`` allow.
    """
    most = min(capacity, wanted)
    sizes: list[int] = []
    for position, size in enumerate(reversed(dims.sizes)):
        limit = LARGEST_RUN if position == 0 else MAX_RUNS if position < 3 else 1
        room = max(1, min(most // math.prod(sizes), limit))
        sizes.insert(0, size if size <= room else -(-size // -(-size // room)))
    return tuple(sizes)


class _Operand:
    """A tensor of an element-wise operation: moved block by block through slots, or resident in the tile buffer."""

    def __init__(self, name: str, tensor: LayerTensor, strides: tuple[int, ...], slots: list[Buffer]) -> None:
        self.name, self.tensor, self.strides = name, tensor, strides
        self.item = tensor.item_bytes
        self.slots = Slots(slots)

    def block(self, first: tuple[int, ...], count: tuple[int, ...]) -> tuple[Place, dict[str, int]]:
        """Return the place of a block of a resident tensor, and its stride fields."""
        layout = self.tensor.layout
        assert layout is not None, "asked of resident tensors only"
        if layout.is_dense:
            strides, origin = tuple(stride * self.item for stride in self.strides), 0
        else:  # dimensions are [1, rows, elements of a row] here
            strides, origin = (0, layout.pitch, self.item), layout.origin
        offset = origin + sum(f * s for f, s in zip(first, strides, strict=True))
        fields = {f"{self.name}_stride{level}": strides[-1 - level] if count[-1 - level] > 1 else 0 for level in (1, 2)}
        return (self.tensor.buffer, offset), {**fields, f"{self.name}_stride0": int(strides[-1] != 0)}

    def load(self, first: tuple[int, ...], count: tuple[int, ...]) -> tuple[Place, dict[str, int], list[Command]]:
        """Return the place of a block of the operand, its stride fields, and the loads that bring it there."""
        if self.tensor.layout is not None:
            return *self.block(first, count), []
        offset = sum(f * s for f, s in zip(first, self.strides, strict=True))
        shape = tuple(c if s else 1 for c, s in zip(count, self.strides, strict=True))
        slot, empty = self.slots.get((offset, shape))
        fields = _block_strides(self.name, self.strides, count, self.item)
        source = self.tensor.at(offset * self.item)
        load = _block_load(source, (slot, 0), self.strides, shape, self.item)
        return (slot, 0), fields, [load] if empty else []


def elementwise_commands(layer: Layer[Elementwise], memories: LocalMemories, pool: ConstantPool) -> Iterator[Command]:
    """Yield the commands of an element-wise operation."""
    tensors = [*layer.sources, layer.result]
    names = ("a", "output") if len(layer.sources) == 1 else ("a", "b", "output")
    dims = _dims(layer)
    moved = [name for name, tensor in zip(names, tensors, strict=True) if tensor.layout is None]
    item = sum(tensor.item_bytes for tensor in tensors if tensor.layout is None)
    sizes = elementwise_sizes(dims, item, memories.tile_room)
    types = {name: tensor.type for name, tensor in zip(names, tensors, strict=True)}
    slots = memories.take(Space.TILE, [Slot(name, sizes, types[name]) for name in moved for _ in range(BUFFERS)])
    by_name = {name: slots[BUFFERS * i : BUFFERS * (i + 1)] for i, name in enumerate(moved)}
    strides = {"a": dims.a, "b": dims.b}
    inputs = [_Operand(n, t, strides[n], by_name.get(n, [])) for n, t in zip(names[:-1], tensors, strict=False)]
    output = _Operand("out", layer.result, dims.result, by_name.get("output", []))
    fields, table = vop_fields(layer), None
    if isinstance(layer.op, npu.LutOp | npu.SigmoidOp):
        load, table = _table_load(layer.op.table, memories, pool)
        yield load
    for first in product(*(range(0, size, step) for size, step in zip(dims.sizes, sizes, strict=True))):
        count = tuple(min(s, n - f) for s, n, f in zip(sizes, dims.sizes, first, strict=True))
        strides_of: dict[str, int] = {}
        places: dict[str, Place] = {}
        for operand in inputs:
            places[operand.name], steps, loads = operand.load(first, count)
            strides_of |= steps
            yield from loads
        stores: list[Command] = []
        if layer.result.layout is not None:
            places["output"], steps = output.block(first, count)
            del steps["out_stride0"]
        else:
            slot = output.slots.take()
            places["output"] = (slot, 0)
            run = count[-1] * output.item
            steps = {"out_stride1": run, "out_stride2": run * count[-2]}
            stores.append(_store_block(layer, dims, first, count, slot))
        strides_of |= steps
        if table is not None:
            places["table"] = (table, 0)
        sizes_of = {"size0": count[-1], "size1": count[-2], "size2": count[-3]}
        yield command("vop", **fields, **sizes_of, **strides_of, **places)
        yield from stores


def _table_load(table: BlobAttr, memories: LocalMemories, pool: ConstantPool) -> tuple[Command, Buffer]:
    """Return the load of a table, and the buffer that it fills."""
    data = pool.get("table", bytes(table.bytes))
    (slot,) = memories.take(Space.TABLE, [Slot("table", (data.size,))])
    return command("table", source=(data, 0), target=(slot, 0), bytes=data.size), slot


def _dims(layer: Layer[Elementwise]) -> Dims:
    """Return the dimensions to loop over; rows stay apart if a border lies between them."""
    shape = layer.result.shape
    layouts = [t.layout for t in (*layer.sources, layer.result)]
    bordered = next((layout for layout in layouts if layout is not None and not layout.is_dense), None)
    if bordered is None:
        return merged_dims(shape, layer.source.shape, layer.sources[-1].shape)
    row = bordered.width * bordered.channels
    return Dims((1, bordered.height, row), (0, row, 1), (0, row, 1))


def elementwise_sizes(dims: Dims, moved: int, room: int) -> tuple[int, ...]:
    """Return tile sizes if ``moved`` bytes of each element go through slots in ``room`` bytes."""
    total = math.prod(dims.sizes)
    if not moved:
        return tile_sizes(dims, total, total)
    capacity = room // (BUFFERS * moved) // TILE_ALIGNMENT * TILE_ALIGNMENT
    return tile_sizes(dims, capacity, max(SMALLEST_TILE, -(-total // OVERLAPPED_TILES)))


def vop_fields(layer: Layer[Elementwise]) -> dict[str, int | str]:
    """Return the fields of a ``vop`` that do not depend on the tile."""
    op = layer.op
    fields: dict[str, int | str] = {
        "a_type": layer.source.type,
        "b_type": layer.sources[-1].type,
        "out_type": layer.result.type,
    }
    if isinstance(op, npu.LutOp):
        low, high = npu.code_range(npu.dtype_of(op.output))
        return fields | {"kind": "lut", "act_min": low, "act_max": high}
    if isinstance(op, npu.SigmoidOp):
        position = {"a_multiplier": op.multiplier.value.data, "a_exponent": -op.shift.value.data}
        return fields | {"kind": op.kind.data.value, **position}
    fields |= output_fields(op)
    if isinstance(op, npu.ScaleOp):
        return fields | {"kind": "scale", "a_zero": op.in_zero.value.data, **scale_fields("out", op.scale)}
    for name, scale in (("a", op.a_scale), ("b", op.b_scale), ("out", op.out_scale)):
        fields |= scale_fields(name, scale)
    zeros = {"a_zero": op.a_zero.value.data, "b_zero": op.b_zero.value.data}
    return fields | zeros | {"kind": op.kind.data.value, "left_shift": op.left_shift.value.data}


def _block_strides(name: str, strides: tuple[int, ...], count: tuple[int, ...], item: int) -> dict[str, int]:
    """Return stride fields of a densely loaded block along the three innermost dimensions."""
    step, fields = item, {}
    for level in range(3):
        here = strides[-1 - level] != 0
        fields[f"{name}_stride{level}"] = (step if level else 1) if here else 0
        step *= count[-1 - level] if here else 1
    return fields


def _block_load(source: Place, target: Place, strides: tuple[int, ...], shape: tuple[int, ...], item: int) -> Command:
    """Return the load of a block; ``strides`` and ``shape`` count elements of ``item`` bytes."""
    size0, size1, size2 = shape[-1] * item, shape[-2], shape[-3]
    return command(
        "load",
        source=source,
        target=target,
        size0=size0,
        size1=size1,
        size2=size2,
        memory_stride1=strides[-2] * item if size1 > 1 else 0,
        memory_stride2=strides[-3] * item if size2 > 1 else 0,
        tile_stride1=size0,
        tile_stride2=size0 * size1,
    )


def _store_block(
    layer: Layer[Elementwise], dims: Dims, first: tuple[int, ...], count: tuple[int, ...], output: Buffer
) -> Command:
    item = layer.result.item_bytes
    strides = tuple(stride * item for stride in dims.result)
    offset = sum(f * s for f, s in zip(first, strides, strict=True))
    size0 = count[-1] * item
    return command(
        "store",
        target=layer.result.at(offset),
        source=(output, 0),
        size0=size0,
        size1=count[-2],
        size2=count[-3],
        memory_stride1=strides[-2] if count[-2] > 1 else 0,
        memory_stride2=strides[-3] if count[-3] > 1 else 0,
        tile_stride1=size0,
        tile_stride2=size0 * count[-2],
    )


class _ReducedPart(NamedTuple):
    """Some pixels and channels of one image: their place and layout, and the loads that bring them there."""

    place: Place
    width: int
    height: int
    stride_x: int
    stride_y: int
    loads: list[Command]


def _reduced_parts(
    layer: Layer[npu.ReduceOp], image: int, channel: int, count: int, pixels: int, slots: Slots
) -> Iterator[_ReducedPart]:
    """Yield the pixels of an image in parts; all at once if the source is resident."""
    _, height, width, channels = layer.source.shape
    layout, item = layer.source.layout, layer.source.item_bytes
    if layout is not None:
        place = (layer.source.buffer, layout.origin + channel * item)
        yield _ReducedPart(place, width, height, layout.pixel_bytes, layout.pitch, [])
        return
    for start, length in parts(height * width, pixels):
        slot = slots.take()
        source = layer.source.at(((image * height * width + start) * channels + channel) * item)
        load = _block_load(source, (slot, 0), (0, channels, 1), (1, length, count), item)
        yield _ReducedPart((slot, 0), length, 1, count * item, count * length * item, [load])


def reduced_slice(shape: Sequence[int], item: int, target: Target, room: int, *, resident: bool) -> tuple[int, int]:
    """Return (channels, pixels) of an image that one instruction reduces, with ``room`` bytes of the tile buffer."""
    _, height, width, channels = shape
    slot = room // (2 * BUFFERS * item) // TILE_ALIGNMENT * TILE_ALIGNMENT  # elements
    channels = min(channels, target.local.accumulators)
    if not resident:
        channels = min(channels, slot)
    pixels = max(1, min(height * width, MAX_RUNS, slot // channels))
    return channels, -(-height * width // -(-height * width // pixels))


def softmax_rows(rows: int, columns: int, item: int, room: int) -> tuple[int, int]:
    """Return (rows of a tile, slots) of a softmax with ``room`` bytes of the tile buffer; 0 rows if none fits."""
    row_bytes = columns * item
    buffers = BUFFERS if BUFFERS * aligned(row_bytes) <= room else 1
    room //= buffers
    if row_bytes > room:
        return 0, buffers
    wanted = -(-rows // OVERLAPPED_TILES) if rows * columns > OVERLAPPED_TILES * SMALLEST_TILE else rows
    return max(1, min(wanted, LARGEST_RUN, (room - TILE_ALIGNMENT) // row_bytes)), buffers


def reduce_commands(layer: Layer[npu.ReduceOp], target: Target, memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of a reduction over the pixels of each image: channel slices, pixels in parts."""
    batch, height, width, channels = layer.source.shape
    item = layer.source.item_bytes
    resident = layer.source.layout is not None
    slice_channels, pixels = reduced_slice(layer.source.shape, item, target, memories.tile_room, resident=resident)
    source = Slot("input", (pixels, slice_channels), layer.source.type)
    result = Slot("output", (slice_channels,), layer.result.type)
    inputs_needed = 0 if layer.source.layout else BUFFERS
    slots = memories.take(Space.TILE, [source] * inputs_needed + [result] * (0 if layer.result.layout else BUFFERS))
    inputs, outputs = Slots(slots[:inputs_needed]), Slots(slots[inputs_needed:])
    for image in range(batch):
        for channel, count in parts(channels, slice_channels):
            output: Place = (layer.result.buffer, channel * item) if layer.result.layout else (outputs.take(), 0)
            divided = list(_reduced_parts(layer, image, channel, count, pixels, inputs))
            for number, part in enumerate(divided):
                yield from part.loads
                yield _reduce_command(layer, part, count, number, len(divided), output, memories)
            if layer.result.layout is None:
                place = layer.result.at((image * channels + channel) * item)
                yield flat_store(place, output, count * item)


def _reduce_command(
    layer: Layer[npu.ReduceOp],
    part: _ReducedPart,
    count: int,
    number: int,
    total: int,
    output: Place,
    memories: LocalMemories,
) -> Command:
    is_last = number == total - 1
    places: dict[str, Place] = {"input": part.place}
    if total > 1:
        places["accumulators"] = (memories.accumulators, 0)
    if is_last:
        places["output"] = output
    return command(
        "reduce",
        kind=layer.op.kind.data.value,
        init="keep" if number else "zero",
        emit=int(is_last),
        in_type=layer.source.type,
        out_type=layer.result.type,
        in_stride_x=part.stride_x,
        in_stride_y=part.stride_y,
        width=part.width,
        height=part.height,
        channels=count,
        in_zero=layer.op.in_zero.value.data,
        **scale_fields("out", layer.op.scale),
        **output_fields(layer.op),
        **places,
    )


def softmax_commands(
    layer: Layer[npu.SoftmaxOp], target: Target, memories: LocalMemories, pool: ConstantPool
) -> Iterator[Command]:
    """Yield the commands of a softmax, some rows at a time in place; raise CompileError if a row does not fit."""
    columns, item = layer.source.shape[-1], layer.source.item_bytes
    rows, row_bytes = layer.source.elements // columns, columns * item
    in_place, table = layer.source.layout is None and layer.result.layout is None, None
    if layer.op.table is not None:
        load, table = _table_load(layer.op.table, memories, pool)
        yield load
    if not in_place:
        yield from _resident_softmax(layer, memories, rows, columns, table)
        return
    most, buffers = softmax_rows(rows, columns, item, memories.tile_room)
    if not most:
        held = memories.tile_room // buffers // item
        raise CompileError(f"softmax over {columns} elements, the tile buffer of {target.name} holds {held}")
    slots = Slots(memories.take(Space.TILE, [Slot("rows", (most, columns), layer.source.type)] * buffers))
    for first, count in parts(rows, most):
        slot = slots.take()
        yield flat_load(layer.source.at(first * row_bytes), (slot, 0), count * row_bytes)
        yield _softmax_command(layer, (slot, 0), (slot, 0), count, columns, table)
        yield flat_store(layer.result.at(first * row_bytes), (slot, 0), count * row_bytes)


def _resident_softmax(
    layer: Layer[npu.SoftmaxOp], memories: LocalMemories, rows: int, columns: int, table: Buffer | None
) -> Iterator[Command]:
    """Yield commands for all rows at once, with source, result or both in the tile buffer."""
    source, result = layer.source, layer.result
    slot = Slot("rows", (rows, columns), source.type)
    slots = memories.take(Space.TILE, [slot] if source.layout is None or result.layout is None else [])
    source_place: Place = (source.buffer, 0) if source.layout else (slots[0], 0)
    result_place: Place = (result.buffer, 0) if result.layout else (slots[0], 0)
    if source.layout is None:
        yield flat_load(source.at(0), source_place, rows * columns * source.item_bytes)
    yield _softmax_command(layer, source_place, result_place, rows, columns, table)
    if result.layout is None:
        yield flat_store(result.at(0), result_place, rows * columns * result.item_bytes)


def _softmax_command(
    layer: Layer[npu.SoftmaxOp], source: Place, result: Place, rows: int, columns: int, table: Buffer | None
) -> Command:
    places: dict[str, Place] = {} if table is None else {"table": (table, 0)}
    return command(
        "softmax",
        in_type=layer.source.type,
        out_type=layer.result.type,
        input=source,
        in_stride=columns * layer.source.item_bytes,
        output=result,
        out_stride=columns * layer.result.item_bytes,
        rows=rows,
        columns=columns,
        **scale_fields("beta", layer.op.scale),
        diff_min=layer.op.diff_min.value.data,
        **places,
    )
