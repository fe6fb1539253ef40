"""Slots of the local memories, and loads and stores of parts of images and other tensors.

A layer declares slots and fills the slots in turn. A later pass assigns the addresses.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple, Self

from odc_mlir.isa.fields import Space
from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import ConstantPool
from odc_mlir.transforms.npu.schedule.geometry import Clip, Tile, WindowGeometry, clip
from odc_mlir.transforms.npu.schedule.layers import LayerTensor
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, command, placed, shaped


class Slot(NamedTuple):
    """Range of a local memory for part of a tensor or for constants."""

    name: str
    shape: tuple[int, ...]
    element: str = "i8"


class LocalMemories:
    """Slots of the layers of a program, and the constants that are loaded to slots."""

    def __init__(self, target: Target) -> None:
        self.target, self.pool = target, ConstantPool()
        self._accumulators: Buffer | None = None
        self._table: tuple[Buffer, Buffer] | None = None  # the look-up table loaded last, and its slot
        self.declared: list[Buffer] = []  # buffers of the current layer
        self.tile_room = 0  # bytes of the tile buffer for all slots of the current layer

    def enter(self, tile_room: int) -> None:
        """Start the next layer."""
        self.tile_room = tile_room
        self.declared = []

    @property
    def accumulators(self) -> Buffer:
        """Accumulator buffer, which all layers share."""
        if self._accumulators is None:
            self._accumulators = Buffer("accumulators", Space.ACCUMULATOR, self.target.local.accumulators)
            self.declared.append(self._accumulators)
        return self._accumulators

    def table(self, data: bytes) -> tuple[Buffer, list[Command]]:
        """Return the slot with a look-up table, and the load, unless this table was loaded last."""
        constant, known = self.pool.get("table", data), self._table
        if known is not None and known[0] is constant:
            return known[1], []
        (slot,) = self.take(Space.TABLE, [Slot("table", (constant.size,))])
        self._table = constant, slot
        return slot, [command("table", source=(constant, 0), target=(slot, 0), bytes=constant.size)]

    def take(self, space: Space, slots: Sequence[Slot]) -> list[Buffer]:
        """Return buffers for ``slots``, adjacent in memory ``space``."""
        made = [shaped(slot.name, space, slot.shape, slot.element) for slot in slots]
        self.declared += made
        return made


class TilePart(NamedTuple):
    """Address of the first of several pixels in the tile buffer, and byte strides between pixels and rows."""

    place: Place
    stride_x: int
    stride_y: int

    @classmethod
    def dense(cls, place: Place, pixel_bytes: int, columns: int) -> Self:
        """Return rows of ``columns`` adjacent pixels."""
        return cls(place, pixel_bytes, columns * pixel_bytes)

    @classmethod
    def resident(cls, tensor: LayerTensor, row: int, column: int, channel: int) -> Self:
        """Return part of an image that stays in the tile buffer."""
        layout = tensor.layout
        assert layout is not None, "only resident tensors have plans without slots"
        first = layout.offset(row, column) + channel * layout.item_bytes
        return cls((tensor.buffer, first), layout.pixel_bytes, layout.pitch)


def image_fields(source: TilePart, result: TilePart, rows: int, cols: int, channels: int) -> dict[str, int]:
    """Return the fields for the sizes of a result image, and for the strides of source and result."""
    strides = {"in_stride_x": source.stride_x, "in_stride_y": source.stride_y}
    strides |= {"out_stride_x": result.stride_x, "out_stride_y": result.stride_y}
    return strides | {"out_width": cols, "out_height": rows, "channels": channels}


class Slots:
    """Buffers used in turn. A record of the contents avoids repeated loads."""

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers = buffers
        self._keys: list[object] = [None] * len(buffers)
        self._next = 0

    def get(self, key: object) -> tuple[Buffer, bool]:
        """Return the slot with content ``key``, and whether it must be filled first."""
        if key in self._keys:
            return self.buffers[self._keys.index(key)], False
        index = self._next
        self._keys[index] = key
        self._next = (index + 1) % len(self.buffers)
        return self.buffers[index], True

    def take(self) -> Buffer:
        """Return the next slot, regardless of its contents."""
        return self.get(object())[0]


class ImagePart(NamedTuple):
    """Some channels of some rows and columns of an image, padding included."""

    image: int
    row: int
    rows: int
    col: int
    cols: int
    channel: int
    channels: int


def load_region(source: LayerTensor, window: WindowGeometry, region: ImagePart, target: Place, zero: int) -> Command:
    """Return the load of ``region``, dense in the tile buffer. Pixels outside of the image are filled with ``zero``."""
    rows = clip(region.row, region.rows, window.in_height)
    cols = clip(region.col, region.cols, window.in_width)
    pixel = region.channels * window.item_bytes
    if not rows.length or not cols.length:
        size = region.rows * region.cols * pixel
        return command("fill", target=target, bytes=size, value=zero, type=source.type)
    offset = region.image * window.image_bytes + rows.first * window.row_bytes + cols.first * window.pixel_bytes
    place = source.at(offset + region.channel * window.item_bytes)
    down, across = (rows.before, rows.length, rows.after), (cols.before, cols.length, cols.after)
    fields = _padded_load(down, across, pixel, window.pixel_bytes, window.row_bytes, zero)
    return placed(fields, {"source": place, "target": target})


def overlaps(tensor: LayerTensor, first: int, count: int) -> Iterator[tuple[LayerTensor, Clip]]:
    """Yield (part, rows of the part) for each part of ``tensor`` that overlaps ``count`` rows from ``first``."""
    for start, part in tensor.parts:
        rows = clip(first - start, count, part.shape[-2])
        if rows.length:
            yield part, rows


def load_parts(source: LayerTensor, window: WindowGeometry, region: ImagePart, target: Place) -> Iterator[Command]:
    """Yield the loads of a region without padding. The image has one row. Each tensor holds a part of the columns."""
    buffer, offset = target
    size, pixel = region.channels * window.item_bytes, window.pixel_bytes
    for part, cols in overlaps(source, region.col, region.cols):
        first = (region.image * part.shape[-2] + cols.first) * pixel + region.channel * window.item_bytes
        place = buffer, offset + cols.before * size
        yield transfer("load", part.at(first), place, (size, cols.length, 1), (pixel, 0))


def loop_fields(size: int, *loops: tuple[int, int, int]) -> dict[str, int]:
    """Return the fields of a transfer of runs of ``size`` bytes in loops, innermost first.

    ``loops``: count, stride in memory and stride in the tile buffer.
    """
    fields = {"size0": size}
    for level, (count, memory, tile) in enumerate(loops, 1):
        fields |= {f"size{level}": count, f"memory_stride{level}": memory, f"tile_stride{level}": tile}
    return fields


@lru_cache(maxsize=4096)
def _padded_load(
    down: tuple[int, int, int], across: tuple[int, int, int], pixel: int, pixel_stride: int, row_stride: int, zero: int
) -> Immediates:
    above, rows, below = down
    left, cols, right = across
    line = (cols, pixel_stride if cols > 1 else 0, pixel)
    image = (rows, row_stride if rows > 1 else 0, (left + cols + right) * pixel)
    pads = {"pad_before1": left, "pad_after1": right, "pad_before2": above, "pad_after2": below, "pad_value": zero}
    return shared("load", loop_fields(pixel, line, image) | pads)


def transfer_tile(
    mnemonic: str, tensor: LayerTensor, window: WindowGeometry, tile: Tile, channel: int, channels: int, place: Place
) -> Command:
    """Return the load or store of channels ``[channel, channel + channels)`` of a tile, dense at ``place``.

    ``tensor`` has the shape of the window's result.
    """
    first = (tile.image * window.out_height + tile.y) * window.out_width + tile.x
    pixel, size = window.out_channels * window.item_bytes, channels * window.item_bytes
    memory = tensor.at(first * pixel + channel * window.item_bytes)
    return transfer(mnemonic, memory, place, (size, tile.cols, tile.rows), (pixel, window.out_width * pixel))


def transfer(
    mnemonic: str, memory: Place, tile: Place, sizes: tuple[int, int, int], strides: tuple[int, int] = (0, 0)
) -> Command:
    """Return the load or store of groups of runs of bytes, dense in the tile buffer.

    ``sizes``: bytes of a run, runs of a group, groups. ``strides``: bytes from run to run and group to group in memory.
    """
    places = {"source": memory, "target": tile} if mnemonic == "load" else {"target": memory, "source": tile}
    return placed(_dense_runs(mnemonic, sizes, strides), places)


@lru_cache(maxsize=4096)
def _dense_runs(mnemonic: str, sizes: tuple[int, int, int], strides: tuple[int, int]) -> Immediates:
    size, runs, groups = sizes
    group = (runs, strides[0] if runs > 1 else 0, size)
    return shared(mnemonic, loop_fields(size, group, (groups, strides[1] if groups > 1 else 0, size * runs)))


def flat(mnemonic: str, memory: Place, tile: Place, size: int) -> Command:
    """Return the load or store of contiguous bytes."""
    return transfer(mnemonic, memory, tile, (size, 1, 1))
