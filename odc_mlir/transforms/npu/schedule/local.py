"""Buffers of the local memories: declared by the layer that uses them, placed when the program is whole."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from odc_mlir.isa.fields import Space
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.program import Buffer, local_sizes, shaped


class Slot(NamedTuple):
    """Room for part of a tensor, or of constants."""

    name: str
    shape: tuple[int, ...]
    element: str = "i8"


class LocalMemories:
    """Makes the slots of one layer after another; none has an address yet."""

    def __init__(self, target: Target) -> None:
        self._sizes = local_sizes(target)
        self._accumulators: Buffer | None = None
        self._declared: list[Buffer] = []
        self.tile_room = 0  # bytes of the tile buffer that slots of the present layer may take together

    def enter(self, tile_room: int) -> None:
        """The slots taken from now on are those of the next layer."""
        self.tile_room = tile_room
        self._declared = []

    def declare(self, buffer: Buffer) -> None:
        """Add ``buffer``, a result that stays, to the present layer."""
        self._declared.append(buffer)

    @property
    def declared(self) -> list[Buffer]:
        """The buffers that the present layer has added."""
        return self._declared

    @property
    def accumulators(self) -> Buffer:
        """The accumulator buffer, which all layers share."""
        if self._accumulators is None:
            self._accumulators = Buffer("accumulators", Space.ACCUMULATOR, self._sizes[Space.ACCUMULATOR])
            self._declared.append(self._accumulators)
        return self._accumulators

    def take(self, space: Space, slots: Sequence[Slot]) -> list[Buffer]:
        """``slots``, adjacent in memory ``space``."""
        made = [shaped(slot.name, space, slot.shape, slot.element) for slot in slots]
        self._declared += made
        return made
