"""Slots of the local memories: declared by the layer that uses them, and filled in turn. Addresses come later."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Self

from odc_mlir.isa.fields import Space
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import ConstantPool
from odc_mlir.transforms.npu.schedule.layers import LayerTensor
from odc_mlir.transforms.npu.schedule.program import Buffer, Place, shaped


class Slot(NamedTuple):
    """A range of a local memory for part of a tensor or for constants."""

    name: str
    shape: tuple[int, ...]
    element: str = "i8"


class LocalMemories:
    """Slots of the layers of a program, without addresses, and the constants that they are filled with."""

    def __init__(self, target: Target) -> None:
        self.target, self.pool = target, ConstantPool()
        self._accumulators: Buffer | None = None
        self.declared: list[Buffer] = []  # buffers of the present layer
        self.tile_room = 0  # bytes of the tile buffer that slots of the present layer may take together

    def enter(self, tile_room: int) -> None:
        """Start the next layer."""
        self.tile_room = tile_room
        self.declared = []

    @property
    def accumulators(self) -> Buffer:
        """The accumulator buffer, which all layers share."""
        if self._accumulators is None:
            self._accumulators = Buffer("accumulators", Space.ACCUMULATOR, self.target.local.accumulators)
            self.declared.append(self._accumulators)
        return self._accumulators

    def take(self, space: Space, slots: Sequence[Slot]) -> list[Buffer]:
        """Return buffers for ``slots``, adjacent in memory ``space``."""
        made = [shaped(slot.name, space, slot.shape, slot.element) for slot in slots]
        self.declared += made
        return made


class TilePart(NamedTuple):
    """Pixels in the tile buffer: the first one, and the bytes from pixel to pixel and from row to row."""

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
        assert layout is not None, "plans without slots are made for resident tensors"
        first = layout.offset(row, column) + channel * layout.item_bytes
        return cls((tensor.buffer, first), layout.pixel_bytes, layout.pitch)


class Slots:
    """Buffers used in turn, with their contents, so that nothing is loaded twice in a row."""

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers = buffers
        self._keys: list[object] = [None] * len(buffers)
        self._next = 0

    def get(self, key: object) -> tuple[Buffer, bool]:
        """Return the slot that holds ``key``, and whether it has to be filled first."""
        if key in self._keys:
            return self.buffers[self._keys.index(key)], False
        index = self._next
        self._keys[index] = key
        self._next = (index + 1) % len(self.buffers)
        return self.buffers[index], True

    def take(self) -> Buffer:
        """Return the next slot, regardless of its contents."""
        return self.get(object())[0]
