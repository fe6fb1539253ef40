"""Tiling of a window operation: the record, and what it occupies in the local memories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from odc_mlir.dialects.npu_tiling import Outer, Tiling
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry, parts, ring_rows

TILE_ALIGNMENT = 16


@dataclass(frozen=True, slots=True)
class WindowTiling(Tiling):
    """A tiling that is asked about windows."""

    def tile_channels(self, window: WindowGeometry) -> int:
        """Input channels of a tile in the tile buffer."""
        if window.depthwise:
            return self.group // window.multiplier
        return self.k_slice if self.sliced else window.in_channels


class Footprint(NamedTuple):
    """Local memory of a tiling: sizes of one slot, and how many there are."""

    input_bytes: int
    input_slots: int
    output_bytes: int
    output_slots: int
    operand_slots: int
    weight_bytes: int
    weight_slots: int
    params: int
    param_slots: int
    accumulators: int

    @property
    def tile_bytes(self) -> int:
        return self.input_bytes * self.input_slots + self.output_bytes * (self.output_slots + self.operand_slots)

    def fits(self, target: Target, tile_bytes: int) -> bool:
        """Whether ``tile_bytes`` of the tile buffer and all other local memories are enough."""
        local = target.local
        return (
            self.tile_bytes <= tile_bytes
            and self.weight_bytes * self.weight_slots <= local.weight_bytes
            and self.params * self.param_slots <= local.param_entries
            and self.accumulators <= local.accumulators
        )


def aligned(size: int) -> int:
    """``size`` rounded up to the alignment of tile-buffer slots."""
    return -(-size // TILE_ALIGNMENT) * TILE_ALIGNMENT


def footprint(
    window: WindowGeometry, tiling: WindowTiling, cut: tuple[int, int] | None = None, *, weighted: bool = True
) -> Footprint:
    """What ``tiling`` occupies, or would with tiles of the rows and columns of ``cut``.

    Without ``weighted`` (pooling) there are no weights and parameters.
    """
    rows, cols = cut or (tiling.rows, tiling.cols)
    in_rows = ring_rows(window, rows) if tiling.ring else window.in_rows(rows)
    in_bytes = aligned(in_rows * window.in_cols(cols) * tiling.tile_channels(window) * window.item_bytes)
    in_slots = min(1, tiling.in_slots) if tiling.ring else tiling.in_slots
    out_bytes = aligned(rows * cols * tiling.group * window.item_bytes)
    pixels = rows * cols
    if not weighted:
        return Footprint(in_bytes, in_slots, out_bytes, tiling.out_slots, 0, 0, 0, 0, 0, 0)
    depth = window.taps * (1 if window.depthwise else tiling.k_slice)
    if not tiling.resident:
        weights = depth * tiling.block * window.weight_item_bytes
    elif tiling.outer is Outer.GROUPS:
        weights = window.depth * tiling.group * window.weight_item_bytes
    else:
        weights = window.weight_bytes
    if not tiling.params_resident:
        params, param_slots = tiling.block, 2
    elif tiling.outer is Outer.GROUPS:
        params, param_slots = tiling.group, tiling.weight_slots
    else:
        params, param_slots = window.out_channels, 1
    accumulators = 0
    if not window.depthwise and tiling.k_slice < window.in_channels:
        accumulators = pixels * (tiling.group if tiling.sliced else tiling.block)
    return Footprint(
        in_bytes,
        in_slots,
        out_bytes,
        tiling.out_slots,
        tiling.operand_slots,
        weights,
        tiling.weight_slots,
        params,
        param_slots,
        accumulators,
    )


class ComputeStep(NamedTuple):
    """One compute instruction of a tile: result channels ``[first, first + channels)``, input channels
    ``[k_first, k_first + k_count)``, the first and the last of its accumulation."""

    first: int
    channels: int
    k_first: int
    k_count: int
    is_first: bool
    is_last: bool


def group_steps(window: WindowGeometry, tiling: WindowTiling, first: int, channels: int) -> Iterator[ComputeStep]:
    """The compute instructions of one tile and one group of result channels, in order."""
    blocks = list(parts(channels, tiling.block))
    if window.depthwise:
        for start, count in blocks:
            base = (first + start) // window.multiplier
            yield ComputeStep(first + start, count, base, count // window.multiplier, True, True)
        return
    slices = list(parts(window.in_channels, tiling.k_slice))
    order = [(b, k) for k in slices for b in blocks] if tiling.sliced else [(b, k) for b in blocks for k in slices]
    for (start, count), (k_first, k_count) in order:
        last = k_first + k_count == window.in_channels
        yield ComputeStep(first + start, count, k_first, k_count, k_first == 0, last)


class StepKind(NamedTuple):
    """Compute instructions of equal cost."""

    channels: int
    k_count: int
    is_first: bool
    is_last: bool


def group_sizes(window: WindowGeometry, tiling: WindowTiling) -> list[tuple[int, int]]:
    """(result channels, occurrences) of the groups of a tile: the last one has what is left."""
    full, rest = divmod(window.out_channels, tiling.group)
    return [(size, times) for size, times in ((tiling.group, full), (rest, 1)) if size and times]


def step_kinds(window: WindowGeometry, tiling: WindowTiling) -> list[tuple[StepKind, int]]:
    """The compute instructions of one tile over all result channels, as (kind, occurrences)."""
    return _kinds_of_groups(window, tiling, group_sizes(window, tiling))


def kinds_of_group(window: WindowGeometry, tiling: WindowTiling, size: int) -> list[tuple[StepKind, int]]:
    """The compute instructions of one tile for a group of ``size`` result channels, as (kind, occurrences)."""
    return _kinds_of_groups(window, tiling, [(size, 1)])


def _kinds_of_groups(
    window: WindowGeometry, tiling: WindowTiling, groups: Sequence[tuple[int, int]]
) -> list[tuple[StepKind, int]]:
    channels: Counter[int] = Counter()
    for size, times in groups:
        channels[tiling.block] += size // tiling.block * times
        channels[size % tiling.block] += times
    if window.depthwise:
        return [(StepKind(c, c // window.multiplier, True, True), n) for c, n in channels.items() if c and n]
    slices = _slice_kinds(window.in_channels, tiling.k_slice)
    return [(StepKind(c, *kind), n * times) for c, n in channels.items() if c and n for kind, times in slices]


def _slice_kinds(total: int, size: int) -> list[tuple[tuple[int, bool, bool], int]]:
    """((input channels, is first, is last), occurrences) of the slices of ``total`` input channels."""
    if size >= total:
        return [((total, True, True), 1)]
    count = -(-total // size)
    last = total - (count - 1) * size
    kinds = [((size, True, False), 1), ((size, False, False), count - 2), ((last, False, True), 1)]
    return [(kind, times) for kind, times in kinds if times]
