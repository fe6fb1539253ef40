"""Commands of convolutions, matrix products and pooling in plain order, with transfers just before uses.

``npu-hoist-transfers`` moves transfers up afterwards. A product of two computed matrices is a convolution whose weights
are a plain matrix in SRAM. An element-wise operation may be computed with each tile of a convolution. The tile then
stays in the tile buffer, the other operand is loaded to a slot, and the result overwrites the tile.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import groupby, pairwise
from operator import attrgetter
from typing import Generic, TypeVar

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_tiling import Outer, Tiling
from odc_mlir.isa.fields import Space
from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.transforms.npu.schedule.constants import packed_params, packed_weights
from odc_mlir.transforms.npu.schedule.geometry import Tile, WindowGeometry, clip, parts, ring_rows, tiles
from odc_mlir.transforms.npu.schedule.layers import Layer, LayerTensor, WindowLayer
from odc_mlir.transforms.npu.schedule.local import (
    ImagePart,
    LocalMemories,
    Slot,
    Slots,
    TilePart,
    image_fields,
    load_parts,
    load_region,
    overlaps,
    transfer_tile,
)
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, command, placed
from odc_mlir.transforms.npu.schedule.tensor_ir import output_fields, scale_fields
from odc_mlir.transforms.npu.schedule.vector_stream import vop_fields
from odc_mlir.transforms.npu.schedule.window_tiling import ComputeStep, footprint, group_steps, tile_channels

Convolution = WindowLayer[npu.ConvOp]
Pooling = WindowLayer[npu.PoolOp]
AnyWindow = WindowLayer[npu.ConvOp | npu.MatmulOp | npu.PoolOp]
Product = TypeVar("Product", npu.ConvOp, npu.MatmulOp)


class WeightLoads(ABC, Generic[Product]):
    """Weight and parameter loads of a convolution or matrix product. ``element``: type of weight codes."""

    layer: WindowLayer[Product]

    def __init__(self, layer: WindowLayer[Product], tiling: Tiling, memories: LocalMemories, element: str) -> None:
        size = footprint(layer.window, tiling)
        self.layer, self.tiling, self.pool = layer, tiling, memories.pool
        self.columns = memories.target.array.shapes[tiling.shape][1]
        self._units: dict[tuple[int, int], dict[tuple[int, int], tuple[ComputeStep, int]]] = {}
        self._packed: dict[tuple[int, ...], Buffer] = {}  # weights by their channels
        weights = Slot("weights", (size.weight_bytes // layer.window.weight_item_bytes,), element)
        self.weights = Slots(memories.take(Space.WEIGHT, [weights] * size.weight_slots))
        self.params = Slots(memories.take(Space.PARAM, [Slot("params", (size.params,), "record")] * size.param_slots))

    @abstractmethod
    def owner(self, tile: Tile) -> int:
        """Return the number of a tile's weights. Tiles with the same number share weights."""

    @abstractmethod
    def load(self, tile: Tile, step: ComputeStep, target: Place) -> list[Command]:
        """Return the commands that load the weights of ``step`` to ``target``."""

    @abstractmethod
    def parameters(self, first: int, count: int, target: Place) -> Command:
        """Return the command that loads the parameters of ``count`` result channels to ``target``."""

    def unit(self, group: tuple[int, int]) -> tuple[int, int]:
        """Return the result channels (first, count) whose weights are loaded together."""
        return group if self.tiling.outer is Outer.GROUPS else (0, self.layer.window.out_channels)

    def weights_for(self, tile: Tile, step: ComputeStep, group: tuple[int, int]) -> tuple[Place, list[Command]]:
        """Return the address of the weights of ``step``, and the loads that fill it."""
        owner = self.owner(tile)
        if not self.tiling.keeps_weights:
            slot, empty = self.weights.get((owner, step.first, step.k_first))
            return (slot, 0), self.load(tile, step, (slot, 0)) if empty else []
        unit = self.unit(group)
        slot, empty = self.weights.get((owner, unit))
        steps = self._unit_steps(unit)
        filling = steps.values() if empty else ()
        loads = [load for other, offset in filling for load in self.load(tile, other, (slot, offset))]
        return (slot, steps[step.first, step.k_first][1]), loads

    def _unit_steps(self, unit: tuple[int, int]) -> dict[tuple[int, int], tuple[ComputeStep, int]]:
        found = self._units.get(unit)
        if found is None:
            found, offset = self._units.setdefault(unit, {}), 0
            for start, count in parts(unit[1], self.tiling.group):
                for step in group_steps(self.layer.window, self.tiling, unit[0] + start, count):
                    found[step.first, step.k_first] = step, offset
                    offset += self._bytes(step)
        return found

    def _bytes(self, step: ComputeStep) -> int:
        window = self.layer.window
        return window.taps * step.channels * (1 if window.depthwise else step.k_count) * window.weight_item_bytes

    def params_for(self, step: ComputeStep, group: tuple[int, int]) -> tuple[Place, list[Command]]:
        """Return the address of the parameter records of ``step``, and the load that fills it."""
        first, count = self.unit(group) if self.tiling.keeps_params else (step.first, step.channels)
        slot, empty = self.params.get((first, count))
        return (slot, step.first - first), [self.parameters(first, count, (slot, 0))] if empty else []


class _ConstantWeights(WeightLoads[npu.ConvOp]):
    def owner(self, tile: Tile) -> int:
        return 0

    def load(self, tile: Tile, step: ComputeStep, target: Place) -> list[Command]:
        data = self._packed.get(step[:4])
        if data is None:
            packed = packed_weights(self.layer.op, step, self.columns)
            data = self._packed[step[:4]] = self.pool.get("weights", packed)
        size = data.size
        return [command("wload", source=(data, 0), target=target, coded_bytes=size, bytes=size, coding="raw")]

    def parameters(self, first: int, count: int, target: Place) -> Command:
        records, form = packed_params(self.layer.op, first, count)
        return command("param", source=(self.pool.get("params", records), 0), target=target, count=count, form=form)


class _Inputs:
    """Input tiles of a window operation in the tile buffer: tiles in turn, a ring of rows, or the whole tensor."""

    def __init__(self, layer: AnyWindow, tiling: Tiling, slots: list[Buffer], zero: int) -> None:
        self.layer, self.tiling, self.zero = layer, tiling, zero
        self.slots = Slots(slots)
        self.window: WindowGeometry = layer.window
        self.next_row = 0  # in a ring: next input row of the strip to load

    def load(self, tile: Tile, channel: int, channels: int) -> tuple[TilePart, list[Command]]:
        """Return the address of input channels ``[channel, channel + channels)`` of a tile, and the loads."""
        window = self.window
        top, left = tile.y * window.stride_y - window.pad_top, tile.x * window.stride_x - window.pad_left
        tile = tile._replace(image=tile.image * self.layer.source.shape[0] // window.batch)
        if not self.tiling.in_slots:
            return TilePart.resident(self.layer.source, top, left, channel), []
        rows, cols = window.in_rows(tile.rows), window.in_cols(tile.cols)
        region = ImagePart(tile.image, top, rows, left, cols, channel, channels)
        if self.tiling.ring:
            place, loads = self._load_ring(tile, region)
        else:
            slot, empty = self.slots.get((tile, channel))
            place, loads = (slot, 0), self._region(region, (slot, 0)) if empty else []
        return TilePart.dense(place, channels * window.item_bytes, cols), loads

    def _region(self, region: ImagePart, target: Place) -> list[Command]:
        source = self.layer.source
        if source.parts:
            return list(load_parts(source, self.window, region, target))
        return [load_region(source, self.window, region, target, self.zero)]

    def _load_ring(self, tile: Tile, region: ImagePart) -> tuple[Place, list[Command]]:
        """Return the address of a tile's input rows in the ring, and the loads of its new rows.

        Input row ``r`` of a strip is at ``(r - overlap) mod ring``. The size of the ring is a multiple of the number of
        new rows in a tile. The new rows of a tile are therefore adjacent, except in the first tile.
        """
        ring, overlap = self.slots.buffers[0], self.window.overlap_y
        total = ring_rows(self.window, self.tiling.rows)
        row_bytes = region.cols * region.channels * self.window.item_bytes
        first = tile.y * self.window.stride_y  # first input row of the tile, from the top of the strip
        place = (ring, (first - overlap) % total * row_bytes)
        if tile.fresh:
            self.next_row = 0
        last = first + region.rows
        if self.next_row >= last:
            return place, []
        loads = []
        edges = [self.next_row, overlap, last] if self.next_row < overlap < last else [self.next_row, last]
        for start, end in pairwise(edges):
            part = region._replace(row=region.row + start - first, rows=end - start)
            loads += self._region(part, (ring, (start - overlap) % total * row_bytes))
        self.next_row = last
        return place, loads


class _Outputs:
    """Result tiles in the tile buffer, stored when complete, or parts of a resident tensor."""

    def __init__(self, layer: AnyWindow, slots: list[Buffer]) -> None:
        self.layer = layer
        self.slots = Slots(slots)

    def take(self, tile: Tile, group: tuple[int, int]) -> tuple[TilePart, list[Command]]:
        tensor = self.layer.result
        if tensor.layout is not None:
            return TilePart.resident(tensor, tile.y, tile.x, group[0]), []
        slot = self.slots.take()
        store = transfer_tile("store", tensor, self.layer.window, tile, *group, (slot, 0))
        return TilePart.dense((slot, 0), group[1] * self.layer.window.item_bytes, tile.cols), [store]


def _tile_slots(
    layer: AnyWindow, tiling: Tiling, memories: LocalMemories, zero: int, *, weighted: bool
) -> tuple[_Inputs, _Outputs]:
    size = footprint(layer.window, tiling, weighted=weighted)
    window = layer.window
    rows = ring_rows(window, tiling.rows) if tiling.ring else window.in_rows(tiling.rows)
    source = Slot("input", (rows, window.in_cols(tiling.cols), tile_channels(window, tiling)), layer.source.type)
    result = Slot("output", (tiling.rows, tiling.cols, tiling.group), layer.result.type)
    slots = memories.take(Space.TILE, [source] * size.input_slots + [result] * size.output_slots)
    return _Inputs(layer, tiling, slots[: size.input_slots], zero), _Outputs(layer, slots[size.input_slots :])


def _jobs(window: WindowGeometry, tiling: Tiling) -> Iterator[tuple[Tile, tuple[int, int]]]:
    groups = list(parts(window.out_channels, tiling.group))
    grid = list(tiles(window, tiling.rows, tiling.cols, strips=tiling.ring))
    if tiling.outer is Outer.TILES:
        yield from ((tile, group) for tile in grid for group in groups)
    elif window.weights_per_image:
        for _, image in groupby(grid, attrgetter("image")):
            tiles_of_image = list(image)
            yield from ((tile, group) for group in groups for tile in tiles_of_image)
    else:
        yield from ((tile, group) for group in groups for tile in grid)


def _input_channels(
    window: WindowGeometry, tiling: Tiling, step: ComputeStep, group: tuple[int, int]
) -> tuple[int, int]:
    """Return (first, count) of the input channels in the tile buffer during ``step``."""
    if window.depthwise:
        return group[0] // window.multiplier, group[1] // window.multiplier
    return (step.k_first, step.k_count) if tiling.sliced else (0, window.in_channels)


def conv_commands(
    layer: Convolution, tiling: Tiling, memories: LocalMemories, follower: Layer[npu.ElementwiseOp] | None = None
) -> Iterator[Command]:
    """Return the commands of a convolution in plain order.

    ``follower``: layer that is computed with each tile. Its commands have layer 1, all other commands layer 0.
    """
    op, element = layer.op, layer.op.weight_type.data.value
    constant: dict[str, int | str] = {
        "weight_type": element,
        "wide": int(op.wide is not None),
        "in_zero": op.in_zero.value.data,
        "weight_zero": op.weight_zero.value.data,
        **output_fields(op),
    }
    weights = _ConstantWeights(layer, tiling, memories, element)
    return product_commands(layer, tiling, memories, weights, constant, follower)


def product_commands(
    layer: WindowLayer[Product],
    tiling: Tiling,
    memories: LocalMemories,
    weights: WeightLoads[Product],
    integers: Mapping[str, int | str],
    follower: Layer[npu.ElementwiseOp] | None = None,
) -> Iterator[Command]:
    """Yield the commands of a convolution or matrix product in plain order.

    ``weights`` already has slots. ``integers``: fields of all instructions. ``follower``: see :func:`conv_commands`.
    """
    window = layer.window
    zero = integers["in_zero"]
    assert isinstance(zero, int), "zero points are integers"
    inputs, outputs = _tile_slots(layer, tiling, memories, zero, weighted=True)
    fused = None if follower is None else _FusedElementwise(follower, layer, tiling, memories)
    constant = _conv_fields(layer, tiling) | dict(integers)
    known: dict[tuple[object, ...], Immediates] = {}  # fields by all sizes that they depend on
    for tile, group in _jobs(window, tiling):
        output, stores = outputs.take(tile, group)
        for step in group_steps(window, tiling, *group):
            channels = _input_channels(window, tiling, step, group)
            source, loads = inputs.load(tile, *channels)
            yield from loads
            places = {
                "input": _moved(source.place, (step.k_first - channels[0]) * window.item_bytes),
                "output": _moved(output.place, (step.first - group[0]) * window.item_bytes),
            }
            places["weights"], loads = weights.weights_for(tile, step, group)
            yield from loads
            if step.is_first or step.is_last:
                places["param"], loads = weights.params_for(step, group)
                yield from loads
            if not (step.is_first and step.is_last):
                sums = tile.rows * tile.cols * (step.first - group[0]) if tiling.sliced else 0
                places["accumulators"] = (memories.accumulators, sums)
            ring_bytes = 0
            if tiling.ring:
                places["ring_base"] = (source.place[0], 0)
                ring_bytes = ring_rows(window, tiling.rows) * source.stride_y
            key = (tile.rows, tile.cols, step[1], step[3:], source[1:], output[1:], ring_bytes)
            fields = known.get(key)
            if fields is None:
                varying = {**_tile_fields(tile, step, source, output), "ring_bytes": ring_bytes}
                fields = known[key] = shared("conv", constant | varying)
            yield placed(fields, places)
        yield from stores if fused is None else fused.commands(tile, group, output.place)


def _moved(place: Place, units: int) -> Place:
    return place[0], place[1] + units


def _conv_fields(layer: WindowLayer[Product], tiling: Tiling) -> dict[str, int | str]:
    window = layer.window
    return {
        "depthwise": int(window.depthwise),
        "in_type": layer.source.type,
        "out_type": layer.result.type,
        "shape": tiling.shape,
        "multiplier": window.multiplier,
        **window.kernel_fields,
        "dilation_y": window.dilation_y,
        "dilation_x": window.dilation_x,
    }


def _tile_fields(tile: Tile, step: ComputeStep, source: TilePart, output: TilePart) -> dict[str, int | str]:
    return {
        "init": "bias" if step.is_first else "keep",
        "emit": int(step.is_last),
        "in_channels": step.k_count,
        **image_fields(source, output, tile.rows, tile.cols, step.channels),
    }


def pool_commands(layer: Pooling, tiling: Tiling, memories: LocalMemories) -> Iterator[Command]:
    """Yield the commands of a pooling operation in plain order."""
    window = layer.window
    inputs, outputs = _tile_slots(layer, tiling, memories, 0, weighted=False)
    constant: dict[str, int | str] = {
        "kind": layer.op.kind.data.value,
        "type": layer.source.type,
        **window.kernel_fields,
        **output_fields(layer.op),
    }
    for tile, group in _jobs(window, tiling):
        output, stores = outputs.take(tile, group)
        source, loads = inputs.load(tile, *group)
        yield from loads
        rows = clip(tile.y * window.stride_y - window.pad_top, window.in_rows(tile.rows), window.in_height)
        cols = clip(tile.x * window.stride_x - window.pad_left, window.in_cols(tile.cols), window.in_width)
        yield command(
            "pool",
            **constant,
            **image_fields(source, output, tile.rows, tile.cols, group[1]),
            input=source.place,
            valid_x=cols.before,
            valid_y=rows.before,
            valid_width=cols.length,
            valid_height=rows.length,
            output=output.place,
        )
        yield from stores


Matmul = WindowLayer[npu.MatmulOp]


class _Matrix(WeightLoads[npu.MatmulOp]):
    """Loads of right-hand matrices. Several images may share a matrix."""

    def owner(self, tile: Tile) -> int:
        return tile.image * self.layer.sources[1].shape[0] // self.layer.window.batch

    def load(self, tile: Tile, step: ComputeStep, target: Place) -> list[Command]:
        matrix = self.layer.sources[1]
        if not matrix.parts:
            return [self._load(matrix, tile, (step.k_first, step.k_count), (step.first, step.channels), target)]
        loads, item = [], self.layer.window.weight_item_bytes
        for start, count in parts(step.channels, self.columns):  # the channels of one array width are adjacent
            for joined, rows in overlaps(matrix, step.k_first, step.k_count):
                offset = (start * step.k_count + rows.before * count) * item
                columns = step.first + start, count
                loads.append(self._load(joined, tile, (rows.first, rows.length), columns, _moved(target, offset)))
        return loads

    def _load(
        self, matrix: LayerTensor, tile: Tile, rows: tuple[int, int], channels: tuple[int, int], target: Place
    ) -> Command:
        """Return the load of ``rows`` (first, count) and ``channels`` (first, count) of ``matrix``."""
        item, (depth, columns) = self.layer.window.weight_item_bytes, matrix.shape[-2:]
        first = (self.owner(tile) * depth + rows[0]) * columns + channels[0]
        return command(
            "mload",
            source=matrix.at(first * item),
            target=target,
            rows=rows[1],
            columns=channels[1] * item,
            row_stride=columns * item,
            group=self.columns * item,
        )

    def parameters(self, first: int, count: int, target: Place) -> Command:
        return command("pfill", target=target, count=count, **scale_fields("out", self.layer.op.scale))


def matmul_commands(layer: Matmul, tiling: Tiling, memories: LocalMemories) -> Iterator[Command]:
    """Return the commands of a matrix product in plain order."""
    op, weights = layer.op, layer.sources[1].type
    constant: dict[str, int | str] = {
        "weight_type": weights,
        "wide": int(layer.window.item_bytes > 1),
        "in_zero": op.a_zero.value.data,
        "weight_zero": op.b_zero.value.data,
        **output_fields(op),
    }
    return product_commands(layer, tiling, memories, _Matrix(layer, tiling, memories, weights), constant)


class _FusedElementwise:
    """Element-wise layer on the result of ``conv`` and a tensor of the same shape. Its commands have layer 1."""

    def __init__(
        self, layer: Layer[npu.ElementwiseOp], conv: WindowLayer[Product], tiling: Tiling, memories: LocalMemories
    ) -> None:
        first = layer.op.a is conv.op.output
        self.layer, self.window = layer, conv.window
        self.other = layer.sources[1 if first else 0]
        self.names = ("a", "b") if first else ("b", "a")
        slot = Slot("operand", (tiling.rows, tiling.cols, tiling.group), self.other.type)
        self.slots = Slots(memories.take(Space.TILE, [slot] * tiling.operand_slots))
        self.fields = vop_fields(layer)

    def commands(self, tile: Tile, group: tuple[int, int], output: Place) -> Iterator[Command]:
        """Yield load, computation and store for result channels ``group`` (first, count) of a tile at ``output``."""
        slot = self.slots.take()
        elements = tile.rows * tile.cols * group[1]
        sizes = {"size0": elements, "size1": 1, "size2": 1, "a_stride0": 1, "b_stride0": 1}
        run = elements * self.layer.result.item_bytes
        strides = {f"{name}_stride{level}": run for name in ("a", "b", "out") for level in (1, 2)}
        places = {self.names[0]: output, self.names[1]: (slot, 0), "output": output}
        load = transfer_tile("load", self.other, self.window, tile, *group, (slot, 0))
        vop = command("vop", **self.fields, **sizes, **strides, **places)
        for made in (load, vop, transfer_tile("store", self.layer.result, self.window, tile, *group, output)):
            made.layer = 1
            yield made
