"""Commands in plain order, and cost estimates, of vector-engine operations. Such an operation has a single tiling."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from xdsl.ir import Operation

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.isa.instructions import field_range
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.cost import instruction_bytes, instruction_cycles
from odc_mlir.transforms.npu.schedule.geometry import MAX_RUNS, parts
from odc_mlir.transforms.npu.schedule.layers import Layer, LayerTensor, code_type
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot, Slots, flat, transfer
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, command
from odc_mlir.transforms.npu.schedule.tensor_ir import Elementwise, output_fields, scale_fields
from odc_mlir.transforms.npu.schedule.window_search import ROLLED_TILES, TilingChoice
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT, aligned

SMALLEST_TILE = 512  # elements per tile; latencies of smaller tiles cost more than overlap saves
OVERLAPPED_TILES = 4  # tiles per small tensor, so that loads, arithmetic and stores overlap
LARGEST_RUN = 65_535
BUFFERS = 2  # slots per operand
_WORD = 4  # bytes of a word; the upper word of a 64-bit index is 0


@dataclass(frozen=True, slots=True)
class Dims:
    """Result dimensions, merged if adjacent and broadcast alike. ``a``, ``b``: operand strides, 0 to broadcast."""

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
    """Return the dimensions of a broadcast operation, outermost first. The result has at least three."""
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
    """Return the tile sizes, outermost first: sizes of 1, the size of a divided dimension, then full dimensions.

    A tile has as many elements as ``wanted`` and ``capacity`` allow.
    """
    most = min(capacity, wanted)
    sizes: list[int] = []
    for position, size in enumerate(reversed(dims.sizes)):
        limit = LARGEST_RUN if position == 0 else MAX_RUNS if position < 3 else 1
        room = max(1, min(most // math.prod(sizes), limit))
        sizes.insert(0, size if size <= room else -(-size // -(-size // room)))
    return tuple(sizes)


class _Operand:
    """Tensor of an element-wise operation, moved block by block through slots, or resident in the tile buffer."""

    def __init__(self, name: str, tensor: LayerTensor, strides: tuple[int, ...], slots: list[Buffer]) -> None:
        self.name, self.tensor, self.strides = name, tensor, strides
        self.item = tensor.item_bytes
        self.slots = Slots(slots)

    def block(self, first: tuple[int, ...], count: tuple[int, ...]) -> tuple[Place, dict[str, int]]:
        """Return the address of a block of a resident tensor, and its stride fields."""
        layout = self.tensor.layout
        assert layout is not None, "only resident tensors have blocks in place"
        if layout.is_dense:
            strides, origin = tuple(stride * self.item for stride in self.strides), 0
        else:  # dimensions are [1, rows, elements of a row] here
            strides, origin = (0, layout.pitch, self.item), layout.origin
        offset = origin + sum(f * s for f, s in zip(first, strides, strict=True))
        fields = {f"{self.name}_stride{level}": strides[-1 - level] if count[-1 - level] > 1 else 0 for level in (1, 2)}
        return (self.tensor.buffer, offset), {**fields, f"{self.name}_stride0": int(strides[-1] != 0)}

    def transfer(self, mnemonic: str, first: tuple[int, ...], shape: tuple[int, ...], place: Place) -> Command:
        item, strides = self.item, self.strides
        offset = sum(f * s for f, s in zip(first, strides, strict=True)) * item
        sizes = (shape[-1] * item, shape[-2], shape[-3])
        return transfer(mnemonic, self.tensor.at(offset), place, sizes, (strides[-2] * item, strides[-3] * item))

    def load(self, first: tuple[int, ...], count: tuple[int, ...]) -> tuple[Place, dict[str, int], list[Command]]:
        """Return the address of a block of the operand, its stride fields, and the loads that fill it."""
        if self.tensor.layout is not None:
            return *self.block(first, count), []
        offset = sum(f * s for f, s in zip(first, self.strides, strict=True))
        shape = tuple(c if s else 1 for c, s in zip(count, self.strides, strict=True))
        slot, empty = self.slots.get((offset, shape))
        fields = _block_strides(self.name, self.strides, count, self.item)
        return (slot, 0), fields, [self.transfer("load", first, shape, (slot, 0))] if empty else []


def elementwise_commands(layer: Layer[Elementwise], memories: LocalMemories) -> Iterator[Command]:
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
        table, loads = memories.table(bytes(layer.op.table.bytes))
        yield from loads
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
            stores.append(output.transfer("store", first, count, (slot, 0)))
        strides_of |= steps
        if table is not None:
            places["table"] = (table, 0)
        sizes_of = {"size0": count[-1], "size1": count[-2], "size2": count[-3]}
        yield command("vop", **fields, **sizes_of, **strides_of, **places)
        yield from stores


def _dims(layer: Layer[Elementwise]) -> Dims:
    """Return the loop dimensions. A border between rows prevents merging."""
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
    step, fields = item, {}
    for level in range(3):
        here = strides[-1 - level] != 0
        fields[f"{name}_stride{level}"] = (step if level else 1) if here else 0
        step *= count[-1 - level] if here else 1
    return fields


class _ReducedPart(NamedTuple):
    place: Place
    width: int
    height: int
    stride_x: int
    stride_y: int
    loads: list[Command]


def _reduced_parts(
    layer: Layer[npu.ReduceOp], image: int, channel: int, count: int, pixels: int, slots: Slots
) -> Iterator[_ReducedPart]:
    """Yield the pixels of an image in parts, or all at once if the source is resident."""
    _, height, width, channels = layer.source.shape
    layout, item = layer.source.layout, layer.source.item_bytes
    if layout is not None:
        place = (layer.source.buffer, layout.origin + channel * item)
        yield _ReducedPart(place, width, height, layout.pixel_bytes, layout.pitch, [])
        return
    for start, length in parts(height * width, pixels):
        slot = slots.take()
        source = layer.source.at(((image * height * width + start) * channels + channel) * item)
        load = transfer("load", source, (slot, 0), (count * item, length, 1), (channels * item, 0))
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
    """Return (rows per tile, slots) of a softmax with ``room`` bytes of the tile buffer, or 0 rows if none fits."""
    row_bytes = columns * item
    buffers = BUFFERS if BUFFERS * aligned(row_bytes) <= room else 1
    room //= buffers
    if row_bytes > room:
        return 0, buffers
    wanted = -(-rows // OVERLAPPED_TILES) if rows * columns > OVERLAPPED_TILES * SMALLEST_TILE else rows
    return max(1, min(wanted, LARGEST_RUN, (room - TILE_ALIGNMENT) // row_bytes)), buffers


def reduce_commands(layer: Layer[npu.ReduceOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of a reduction over the pixels of each image, by channel slices and pixel parts."""
    batch, _, _, channels = layer.source.shape
    item = layer.source.item_bytes
    resident = layer.source.layout is not None
    shape, room = layer.source.shape, memories.tile_room
    slice_channels, pixels = reduced_slice(shape, item, memories.target, room, resident=resident)
    source = Slot("input", (pixels, slice_channels), layer.source.type)
    result = Slot("output", (slice_channels,), layer.result.type)
    inputs_needed = 0 if layer.source.layout else BUFFERS
    slots = memories.take(Space.TILE, [source] * inputs_needed + [result] * (0 if layer.result.layout else BUFFERS))
    inputs, outputs = Slots(slots[:inputs_needed]), Slots(slots[inputs_needed:])
    constant = {**scale_fields("out", layer.op.scale), **output_fields(layer.op)}
    for image, (channel, count) in product(range(batch), parts(channels, slice_channels)):
        output: Place = (layer.result.buffer, channel * item) if layer.result.layout else (outputs.take(), 0)
        divided = list(_reduced_parts(layer, image, channel, count, pixels, inputs))
        for number, part in enumerate(divided):
            is_last = number == len(divided) - 1
            places: dict[str, Place] = {"input": part.place}
            if len(divided) > 1:
                places["accumulators"] = (memories.accumulators, 0)
            if is_last:
                places["output"] = output
            yield from part.loads
            yield command(
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
                **constant,
                **places,
            )
        if layer.result.layout is None:
            yield flat("store", layer.result.at((image * channels + channel) * item), output, count * item)


def softmax_commands(layer: Layer[npu.SoftmaxOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of a softmax in place, some rows at a time.

    If one side is resident, one command computes all rows. Raises CompileError if a row does not fit.
    """
    source, result, op = layer.source, layer.result, layer.op
    columns, item = source.shape[-1], source.item_bytes
    rows, row_bytes = source.elements // columns, columns * item
    table: dict[str, Place] = {}
    if op.table is not None:
        buffer, loads = memories.table(bytes(op.table.bytes))
        table["table"] = (buffer, 0)
        yield from loads
    most, buffers = rows, 1
    if source.layout is None and result.layout is None:
        most, buffers = softmax_rows(rows, columns, item, memories.tile_room)
    if not most:
        held = memories.tile_room // buffers // item
        raise CompileError(f"softmax over {columns} elements, the tile buffer of {memories.target.name} holds {held}")
    needed = source.layout is None or result.layout is None
    slots = Slots(memories.take(Space.TILE, [Slot("rows", (most, columns), source.type)] * (buffers if needed else 0)))
    for first, count in parts(rows, most):
        slot: Place = (slots.take(), 0) if needed else source.at(0)
        taken, made = (slot if tensor.layout is None else tensor.at(0) for tensor in (source, result))
        if source.layout is None:
            yield flat("load", source.at(first * row_bytes), slot, count * row_bytes)
        yield command(
            "softmax",
            in_type=source.type,
            out_type=result.type,
            input=taken,
            in_stride=row_bytes,
            output=made,
            out_stride=columns * result.item_bytes,
            rows=count,
            columns=columns,
            **scale_fields("beta", op.scale),
            diff_min=op.diff_min.value.data,
            **table,
        )
        if result.layout is None:
            yield flat("store", result.at(first * row_bytes), slot, count * row_bytes)


_MOST_ROWS = field_range("reduce", "width")[1]


def argmax_rows(rows: int, row_bytes: int, number: int, room: int) -> tuple[int, int]:
    """Return (rows per tile, slots) with ``room`` bytes of the tile buffer. Raises CompileError if no row fits.

    ``row_bytes``: bytes of a row, 0 if the rows are resident. ``number``: bytes of a result.
    """
    each, least = row_bytes + number + (_WORD if number > _WORD else 0), aligned(row_bytes) + 2 * aligned(2 * _WORD)
    buffers = BUFFERS if BUFFERS * least <= room else 1
    if buffers * least > room:
        raise CompileError(f"rows of {row_bytes} bytes, the tile buffer has {room}")
    most = max(1, min(rows, _MOST_ROWS, (room // buffers - least + row_bytes) // each))
    return -(-rows // -(-rows // most)), buffers


def argmax_commands(layer: Layer[npu.ArgMaxOp], memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of an ARG_MAX, some rows at a time. Raises CompileError if a row does not fit."""
    columns, item, number = layer.source.shape[-1], layer.source.item_bytes, npu.item_bytes(layer.op.output)
    rows, row_bytes, words = layer.source.elements // columns, columns * item, number // _WORD
    stays = layer.source.layout is not None
    most, buffers = argmax_rows(rows, 0 if stays else row_bytes, number, memories.tile_room)
    slot = Slot("rows", (most, columns), layer.source.type)
    inputs = Slots(memories.take(Space.TILE, [] if stays else [slot] * buffers))
    results = Slots(memories.take(Space.TILE, [Slot("output", (most * words,), "i32")] * buffers))
    halves = memories.take(Space.TILE, [Slot("places", (most,), "i32")] * (buffers if words > 1 else 0))
    lower = Slots(halves) if halves else results
    for first, count in parts(rows, most):
        output = results.take()
        found = output if words == 1 else lower.take()
        source: Place = (layer.source.buffer, first * row_bytes) if stays else (inputs.take(), 0)
        if not stays:
            yield flat("load", layer.source.at(first * row_bytes), source, count * row_bytes)
        yield command(
            "reduce",
            kind="argmax",
            init="zero",
            emit=1,
            in_type=layer.source.type,
            out_type="i32",
            input=source,
            in_stride_x=row_bytes,
            in_stride_y=count * row_bytes,
            width=count,
            height=1,
            channels=columns,
            output=(found, 0),
        )
        if words > 1:
            yield command("fill", target=(output, 0), bytes=count * number, value=0, type="i32")
            sizes = {"size0": 1, "size1": count, "size2": 1, "a_stride0": 1, "a_stride1": _WORD, "out_stride1": number}
            types = dict.fromkeys(("a_type", "b_type", "out_type"), "i32")
            yield command("vop", kind="copy", **types, **sizes, a=(found, 0), output=(output, 0))
        yield flat("store", layer.result.at(first * number), (output, 0), count * number)


def vector_choice(
    mnemonic: str, target: Target, tiles: int, sizes: tuple[float, float], transfers: int, cycles: float, table: int = 0
) -> TilingChoice:
    """Return the only tiling of an operation in ``tiles`` equal parts. Only the ends of the work do not overlap.

    ``sizes``: total bytes loaded and stored. ``transfers``: transfers per tile. ``cycles``: cycles of one instruction.
    ``table``: bytes read before the first instruction.
    """
    port, issue = target.sram, target.fetch.issue_cycles + target.fetch.semaphore_cycles
    width, latency = port.bytes_per_cycle, port.read_latency_cycles
    moved, (load, store) = sum(sizes) / width, (size / tiles / width for size in sizes)
    begin = load + latency if load else 0.0
    end = store + port.write_latency_cycles if store else 0.0
    if table:
        begin = max(begin, latency) + table / width
    computing = tiles * (cycles + issue) + begin + end
    moving = moved + latency + max(0.0, cycles + end - 2 * store) if moved else 0.0
    turns = tiles * transfers * latency + moved
    # With two slots, a load waits for the store of the tile before the previous one. Transfers run in order.
    waiting = (turns + tiles * (cycles + issue)) / BUFFERS + cycles if tiles > BUFFERS else 0.0
    size = instruction_bytes(mnemonic) + transfers * instruction_bytes("load")
    return TilingChoice(None, max(computing, moving, waiting), size * min(tiles, ROLLED_TILES))


def choice_of(op: Operation, target: Target, room: int, sources: Sequence[bool], *, result: bool) -> TilingChoice:
    """Return the only tiling of an operation of the vector engine.

    ``sources``, ``result``: flags of resident operands and of a resident result. Raises CompileError if ``room`` bytes
    of the tile buffer are too few.
    """
    shape, item = npu.shape_of(op.operands[0]), npu.item_bytes(op.operands[0])
    count, row = math.prod(shape), math.prod(shape[-1:])
    loaded = [npu.size_bytes(value) for value, stays in zip(op.operands, sources, strict=True) if not stays]
    stored = [] if result else [npu.size_bytes(op.results[0])]
    transfers, least = len(loaded) + len(stored), 4 * TILE_ALIGNMENT * max(1, len(loaded) + len(stored))
    if isinstance(op, npu.SoftmaxOp):
        least = (count if result or any(sources) else row) * item + TILE_ALIGNMENT if transfers else 0
    if transfers and room < min(least, target.local.tile_bytes):
        raise CompileError(f"{room} bytes of the tile buffer are too few")
    mnemonic = "reduce"
    fields: dict[str, int | str] = {"in_type": code_type(op.operands[0]), "height": 1, "channels": 1}
    if isinstance(op, npu.ReduceOp):
        channels, pixels = reduced_slice(shape, item, target, room, resident=sources[0])
        tiles = shape[0] * -(-shape[3] // channels) * (1 if sources[0] else -(-shape[1] * shape[2] // pixels))
        fields["width"] = count // tiles
    elif isinstance(op, npu.ArgMaxOp):
        rows, _ = argmax_rows(count // row, 0 if sources[0] else row * item, npu.item_bytes(op.output), room)
        tiles = -(-count // row // rows)
        fields["width"] = count // tiles
    elif isinstance(op, npu.SoftmaxOp):
        rows = count // row if result or sources[0] else softmax_rows(count // row, row, item, room)[0]
        tiles = -(-count // row // max(1, rows))
        mnemonic, fields = "softmax", {"in_type": code_type(op.input), "rows": 1, "columns": count // tiles}
    else:
        tiles, fields = _elementwise_work(op, room, sources, result=result)
        mnemonic = "vop"
    cycles = instruction_cycles(mnemonic, target, **fields)
    return vector_choice(mnemonic, target, tiles, (sum(loaded), sum(stored)), transfers, cycles, stored_bytes(op))


def _elementwise_work(
    op: Operation, room: int, sources: Sequence[bool], *, result: bool
) -> tuple[int, dict[str, int | str]]:
    shapes = [npu.shape_of(value) for value in op.operands]
    dims = merged_dims(npu.shape_of(op.results[0]), shapes[0], shapes[-1])
    values = zip((*op.operands, *op.results), (*sources, result), strict=True)
    sizes = elementwise_sizes(dims, sum(npu.item_bytes(value) for value, stays in values if not stays), room)
    tiles = math.prod(-(-size // step) for size, step in zip(dims.sizes, sizes, strict=True))
    kind = "lut" if isinstance(op, npu.LutOp | npu.SigmoidOp) else "scale" if len(op.operands) == 1 else "add"
    types = {"kind": kind, "a_type": code_type(op.operands[0]), "b_type": code_type(op.operands[-1])}
    elements = -(-math.prod(dims.sizes) // tiles)
    return tiles, {**types, "size0": elements, "size1": 1, "size2": 1, "a_stride0": 1, "b_stride0": 1}
