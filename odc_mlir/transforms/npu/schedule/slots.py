"""Buffers of a local memory that are filled in turn."""

from __future__ import annotations

from typing import NamedTuple, Self

from odc_mlir.transforms.npu.schedule.layers import LayerTensor
from odc_mlir.transforms.npu.schedule.program import Buffer, Place


class TilePart(NamedTuple):
    """Pixels in the tile buffer: the first one, and the bytes from pixel to pixel and from row to row."""

    place: Place
    stride_x: int
    stride_y: int

    @classmethod
    def dense(cls, place: Place, pixel_bytes: int, columns: int) -> Self:
        """Rows of ``columns`` pixels without anything between them."""
        return cls(place, pixel_bytes, columns * pixel_bytes)

    @classmethod
    def resident(cls, tensor: LayerTensor, row: int, column: int, channel: int) -> Self:
        """Part of an image that stays in the tile buffer."""
        layout = tensor.layout
        assert layout is not None, "plans without slots are made for resident tensors"
        first = layout.offset(row, column) + channel * layout.item_bytes
        return cls((tensor.buffer, first), layout.pixel_bytes, layout.pitch)


class Slots:
    """Buffers used in turn. What a slot holds is remembered, so that nothing is loaded twice in a row."""

    def __init__(self, buffers: list[Buffer]) -> None:
        self.buffers = buffers
        self._keys: list[object] = [None] * len(buffers)
        self._next = 0

    def get(self, key: object) -> tuple[Buffer, bool]:
        """The slot that holds ``key``, and whether it has to be filled first."""
        if key in self._keys:
            return self.buffers[self._keys.index(key)], False
        index = self._next
        self._keys[index] = key
        self._next = (index + 1) % len(self.buffers)
        return self.buffers[index], True

    def take(self) -> Buffer:
        """The next slot, whatever it holds."""
        return self.get(object())[0]
