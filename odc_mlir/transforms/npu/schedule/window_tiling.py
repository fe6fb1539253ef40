"""Tilings of window operations, footprints in the local memories, and divisions of channels.

A plan divides the channels and determines which weights stay in the weight buffer. Plans have no tile sizes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from typing import NamedTuple

from odc_mlir.dialects.npu_tiling import Outer, Tiling
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry, parts, ring_rows

TILE_ALIGNMENT = 16


def tile_channels(window: WindowGeometry, tiling: Tiling) -> int:
    """Return the number of input channels of a tile in the tile buffer."""
    if window.depthwise:
        return tiling.group // window.multiplier
    return tiling.k_slice if tiling.sliced else window.in_channels


class Footprint(NamedTuple):
    """Local memory of a tiling: slot sizes and slot counts."""

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
        """Return whether the tiling fits in ``tile_bytes`` of the tile buffer and in all other local memories."""
        local = target.local
        return (
            self.tile_bytes <= tile_bytes
            and self.weight_bytes * self.weight_slots <= local.weight_bytes
            and self.params * self.param_slots <= local.param_entries
            and self.accumulators <= local.accumulators
        )


def aligned(size: int) -> int:
    """Return ``size`` rounded up to the alignment of tile-buffer slots."""
    return -(-size // TILE_ALIGNMENT) * TILE_ALIGNMENT


def footprint(
    window: WindowGeometry, tiling: Tiling, cut: tuple[int, int] | None = None, *, weighted: bool = True
) -> Footprint:
    """Return the footprint of ``tiling``, with the rows and columns ``cut`` if given.

    ``weighted``: whether there are weights and parameters, unlike pooling.
    """
    rows, cols = cut or (tiling.rows, tiling.cols)
    in_rows = ring_rows(window, rows) if tiling.ring else window.in_rows(rows)
    in_bytes = aligned(in_rows * window.in_cols(cols) * tile_channels(window, tiling) * window.item_bytes)
    in_slots = min(1, tiling.in_slots) if tiling.ring else tiling.in_slots
    out_bytes = aligned(rows * cols * tiling.group * window.item_bytes)
    pixels = rows * cols
    if not weighted:
        return Footprint(in_bytes, in_slots, out_bytes, tiling.out_slots, 0, 0, 0, 0, 0, 0)
    depth = window.taps * (1 if window.depthwise else tiling.k_slice)
    if not tiling.keeps_weights:
        weights = depth * tiling.block * window.weight_item_bytes
    elif tiling.outer is Outer.GROUPS:
        weights = window.depth * tiling.group * window.weight_item_bytes
    else:
        weights = window.weight_bytes
    if not tiling.keeps_params:
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
    """One compute instruction of a tile.

    It computes result channels ``[first, first + channels)`` from input channels ``[k_first, k_first + k_count)``.
    ``is_first``, ``is_last``: whether it is the first or the last instruction of an accumulation.
    """

    first: int
    channels: int
    k_first: int
    k_count: int
    is_first: bool
    is_last: bool


def group_steps(window: WindowGeometry, tiling: Tiling, first: int, channels: int) -> Iterator[ComputeStep]:
    """Yield the compute instructions of one tile and one group of result channels, in order."""
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


def group_sizes(window: WindowGeometry, tiling: Tiling) -> list[tuple[int, int]]:
    """Return (result channels, occurrences) of the groups of a tile. The last group may be smaller."""
    full, rest = divmod(window.out_channels, tiling.group)
    return [(size, times) for size, times in ((tiling.group, full), (rest, 1)) if size and times]


def step_kinds(window: WindowGeometry, tiling: Tiling) -> list[tuple[StepKind, int]]:
    """Return the compute instructions of one tile over all result channels, as (kind, occurrences)."""
    return kinds_of_groups(window, tiling, group_sizes(window, tiling))


def kinds_of_groups(
    window: WindowGeometry, tiling: Tiling, groups: Sequence[tuple[int, int]]
) -> list[tuple[StepKind, int]]:
    """Return the compute instructions of one tile for ``groups`` of (result channels, occurrences)."""
    channels: Counter[int] = Counter()
    for size, times in groups:
        channels[tiling.block] += size // tiling.block * times
        channels[size % tiling.block] += times
    if window.depthwise:
        return [(StepKind(c, c // window.multiplier, True, True), n) for c, n in channels.items() if c and n]
    slices = _slice_kinds(window.in_channels, tiling.k_slice)
    return [(StepKind(c, *kind), n * times) for c, n in channels.items() if c and n for kind, times in slices]


def _slice_kinds(total: int, size: int) -> list[tuple[tuple[int, bool, bool], int]]:
    """Return ((input channels, is first, is last), occurrences) of the slices of ``total`` input channels."""
    if size >= total:
        return [((total, True, True), 1)]
    count = -(-total // size)
    last = total - (count - 1) * size
    kinds = [((size, True, False), 1), ((size, False, False), count - 2), ((last, False, True), 1)]
    return [(kind, times) for kind, times in kinds if times]


CHANNEL_COUNTS = (512, 256, 192, 160, 128, 96, 80, 64, 48, 32, 16, 8, 4, 2, 1)
STORE_GROUPS = (256, 128, 64, 32)  # channels stored together: whole SRAM bursts
K_SLICES = (256, 192, 128, 64, 16, 4, 1)


def pool_plans(window: WindowGeometry) -> Iterator[Tiling]:
    """Yield channel slices of a pooling operation."""
    for group in _channel_counts(window.out_channels, 1):
        yield Tiling(1, 1, group, group, group, outer=Outer.GROUPS)


def depthwise_plans(window: WindowGeometry, target: Target) -> Iterator[Tiling]:
    """Yield plans with all channels at once, or with slices that have separate weights and parameters."""
    entries, cap = target.local.param_entries, _most_weights(window, target)
    for group in _channel_counts(window.out_channels, window.multiplier):
        slots = 1 if group == window.out_channels else 2
        if group * slots <= entries and window.taps * group * slots <= cap:
            yield Tiling(1, 1, group, group, 1, outer=Outer.GROUPS, weight_slots=slots)


def conv_plans(window: WindowGeometry, target: Target) -> Iterator[Tiling]:
    """Yield tilings that keep all weights, keep them per group of channels, or stream them per tile."""
    local, channels = target.local, window.out_channels
    if window.weight_bytes <= local.weight_bytes:
        fits = channels <= local.param_entries
        block = channels if fits else local.param_entries // 2
        most = min(2 if window.weights_per_image else 1, local.weight_bytes // window.weight_bytes)
        for group, buffered in product((channels, *_groups(channels)), range(1, most + 1)):
            yield Tiling(1, 1, group, min(group, block), window.in_channels, keeps_params=fits, weight_slots=buffered)
        if fills_weight_buffer(window, target) and not window.weights_per_image:
            for block in _blocks(channels, target):
                yield from _by_groups(window, target, block, (2,))
        return
    for block in _blocks(channels, target):
        yield from _streamed(window, target, block)
        yield from _by_groups(window, target, block, (1, 2))


def fills_weight_buffer(window: WindowGeometry, target: Target) -> bool:
    """Return whether all weights of a layer fit, but leave no room for loads while the layer uses the weights."""
    return window.weight_bytes <= target.local.weight_bytes < 2 * window.weight_bytes


def _by_groups(window: WindowGeometry, target: Target, block: int, weight_slots: Iterable[int]) -> Iterator[Tiling]:
    """Yield plans with the weights of ``block`` channels at a time. A second slot holds the next group."""
    most, entries = _most_weights(window, target), target.local.param_entries
    for slots in weight_slots:
        fits = window.depth * block * slots <= most and block * slots <= entries
        if block < window.out_channels and fits:
            yield Tiling(1, 1, block, block, window.in_channels, outer=Outer.GROUPS, weight_slots=slots)


def _streamed(window: WindowGeometry, target: Target, block: int) -> Iterator[Tiling]:
    cap, half = _most_weights(window, target), target.local.param_entries // 2
    channels = window.out_channels
    k_slice, slots = window.in_channels, min(4, cap // (window.depth * block))
    if slots < 2:
        k_slice, slots = cap // (2 * window.taps * block), 2
        k_slice -= k_slice % 16 if k_slice > 16 else 0
    if not k_slice or block > half:
        return
    for group in (channels, *_groups(channels)):
        yield _reloading(group, block, k_slice, slots, keeps_params=channels <= half)


def sliced_plans(window: WindowGeometry, target: Target) -> Iterator[Tiling]:
    """Yield plans for inputs with more channels than a tile can hold."""
    cap, half = _most_weights(window, target), target.local.param_entries // 2
    channels = window.out_channels
    for block in _blocks(channels, target):
        for k_slice in K_SLICES:
            slots = min(4, cap // (window.taps * k_slice * block))
            if block > half or k_slice >= window.in_channels or slots < 2:
                continue
            for group in (channels, *_groups(channels), block):
                yield _reloading(group, block, k_slice, slots, keeps_params=channels <= half, sliced=True)


def _reloading(group: int, block: int, k_slice: int, slots: int, *, keeps_params: bool, sliced: bool = False) -> Tiling:
    """Return a tiling that loads weights for every tile."""
    sizes = group, min(block, group), k_slice
    return Tiling(1, 1, *sizes, sliced, keeps_weights=False, keeps_params=keeps_params, weight_slots=slots)


def _most_weights(window: WindowGeometry, target: Target) -> int:
    return target.local.weight_bytes // window.weight_item_bytes


def _blocks(channels: int, target: Target) -> list[int]:
    widths = sorted({columns for _, columns in target.array.shapes})
    sizes = {width * factor for width in widths for factor in (1, 3)} | {2 * widths[-1], channels}
    return sorted(size for size in sizes if size <= channels) or [channels]


def _groups(channels: int) -> Iterator[int]:
    for size in STORE_GROUPS:
        if size < channels:
            yield size


def _channel_counts(channels: int, multiplier: int) -> Iterator[int]:
    yield channels
    for size in CHANNEL_COUNTS:
        if size < channels and size % multiplier == 0:
            yield size
    if 1 < multiplier < channels:
        yield multiplier
