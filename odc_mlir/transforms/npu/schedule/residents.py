"""Residents of the tile buffer: small tensors that are neither stored to SRAM nor loaded between layers.

A resident keeps the address to which the first layer writes. The padding that readers need surrounds the resident.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from odc_mlir.transforms.npu.schedule.arena import lowest_gap
from odc_mlir.transforms.npu.schedule.window_tiling import aligned


class PaddingBorder(NamedTuple):
    """Padding pixels around an image."""

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0

    def union(self, other: PaddingBorder) -> PaddingBorder:
        """Return the larger border on every side."""
        return PaddingBorder(*map(max, self, other))


@dataclass(frozen=True, slots=True)
class Layout:
    """Layout of the pixels of a resident ``[1, H, W, C]`` tensor, in bytes from the start of the buffer."""

    height: int
    width: int
    channels: int
    border: PaddingBorder
    item_bytes: int = 1

    @property
    def pixel_bytes(self) -> int:
        """Bytes between adjacent pixels."""
        return self.channels * self.item_bytes

    @property
    def pitch(self) -> int:
        """Bytes between adjacent rows."""
        return (self.border.left + self.width + self.border.right) * self.pixel_bytes

    @property
    def origin(self) -> int:
        """Offset of the first pixel of the image."""
        return self.offset(0, 0)

    def offset(self, row: int, col: int) -> int:
        """Return the offset of a pixel, which may be in the border."""
        return (self.border.top + row) * self.pitch + (self.border.left + col) * self.pixel_bytes

    @property
    def shape(self) -> tuple[int, int, int]:
        """Rows, pixels and channels with the border."""
        border = self.border
        return border.top + self.height + border.bottom, border.left + self.width + border.right, self.channels

    @property
    def size(self) -> int:
        """Bytes with the border."""
        return (self.border.top + self.height + self.border.bottom) * self.pitch

    @property
    def is_dense(self) -> bool:
        return not any(self.border)


@dataclass(eq=False, slots=True)
class Resident:
    """Tensor that may stay in the tile buffer from layer ``first``, which computes it, to layer ``last``."""

    layout: Layout
    first: int
    last: int
    address: int | None = None
    size: int = field(init=False)  # reserved bytes, read in every trial of a plan

    def __post_init__(self) -> None:
        self.size = aligned(self.layout.size)

    def lives_at(self, layer: int) -> bool:
        return self.first <= layer <= self.last


class Placed(Protocol):
    """Tensor or slot in the tile buffer from layer ``first`` to layer ``last``."""

    first: int
    last: int
    address: int | None

    @property
    def size(self) -> int:
        """Reserved bytes."""


def place_residents(residents: Sequence[Placed]) -> int:
    """Assign addresses without overlap of tensors that are alive together, and return the bytes used.

    First fit in order of falling size works well for chains, because only neighbours overlap in time.
    """
    used = 0
    placed: dict[int, list[Placed]] = defaultdict(list)  # by layer
    for resident in sorted(residents, key=lambda r: (-r.size, r.first)):
        layers = range(resident.first, resident.last + 1)
        rivals = {id(rival): rival for layer in layers for rival in placed[layer]}
        taken = sorted((rival.address or 0, (rival.address or 0) + rival.size) for rival in rivals.values())
        address = resident.address = lowest_gap(taken, resident.size)
        for layer in layers:
            placed[layer].append(resident)
        used = max(used, address + resident.size)
    return used


def largest_gap(residents: Sequence[Placed], layer: int, total: int) -> int:
    """Return the size of the largest free range at ``layer`` in a tile buffer of ``total`` bytes."""
    return max((end - start for start, end in gaps(residents, layer, total)), default=0)


def gaps(residents: Sequence[Placed], layer: int, total: int) -> list[tuple[int, int]]:
    """Return the free (start, end) ranges at ``layer`` in a tile buffer of ``total`` bytes, in order."""
    free: list[tuple[int, int]] = []
    start = 0
    for resident in sorted((r for r in residents if r.first <= layer <= r.last), key=lambda r: r.address or 0):
        address = resident.address or 0
        if address > start:
            free.append((start, address))
        start = max(start, address + resident.size)
    if start < total:
        free.append((start, total))
    return free
