"""Ways to cut the channels of a window operation: what :mod:`window_search` costs, before tile sizes are chosen."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import product

from odc_mlir.dialects.npu_tiling import Outer
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.geometry import WindowGeometry
from odc_mlir.transforms.npu.schedule.window_tiling import WindowTiling

CHANNEL_COUNTS = (512, 256, 192, 160, 128, 96, 80, 64, 48, 32, 16, 8, 4, 2, 1)
STORE_GROUPS = (256, 128, 64, 32)  # whole SRAM bursts
K_SLICES = (256, 64, 16, 4, 1)


def pool_plans(window: WindowGeometry) -> Iterator[WindowTiling]:
    """Channel slices of a pooling operation."""
    for group in _channel_counts(window.out_channels, 1):
        yield WindowTiling(1, 1, group, group, group, outer=Outer.GROUPS)


def depthwise_plans(window: WindowGeometry, target: Target) -> Iterator[WindowTiling]:
    """All channels at once, or slices with their own weights and parameters."""
    entries, cap = target.local.param_entries, _most_weights(window, target)
    for group in _channel_counts(window.out_channels, window.multiplier):
        single = group == window.out_channels
        slots = 1 if single else 2
        if group * slots <= entries and window.taps * group * slots <= cap:
            yield WindowTiling(1, 1, group, group, 1, outer=Outer.GROUPS, weight_slots=slots)
        elif single:
            yield from _depthwise_blocks(window, target)


def _depthwise_blocks(window: WindowGeometry, target: Target) -> Iterator[WindowTiling]:
    """All channels of a tile at once although weights or parameters come in blocks."""
    cap = _most_weights(window, target)
    resident = window.weight_bytes <= target.local.weight_bytes
    block = target.local.param_entries // 2 // window.multiplier * window.multiplier
    while block > 0 and not resident and block * window.taps * 2 > cap:
        block = block // 2 // window.multiplier * window.multiplier
    if block:
        yield WindowTiling(
            1,
            1,
            window.out_channels,
            block,
            1,
            outer=Outer.GROUPS,
            resident=resident,
            params_resident=False,
            weight_slots=1 if resident else 2,
        )


def conv_plans(window: WindowGeometry, target: Target) -> Iterator[WindowTiling]:
    """Weights resident where they fit, else streamed per tile or kept per group of result channels."""
    local, channels = target.local, window.out_channels
    if window.weight_bytes <= local.weight_bytes:
        fits = channels <= local.param_entries
        block = channels if fits else local.param_entries // 2
        most = min(2 if window.weights_per_image else 1, local.weight_bytes // window.weight_bytes)
        for group, buffered in product((channels, *_groups(channels)), range(1, most + 1)):
            yield WindowTiling(
                1,
                1,
                group,
                min(group, block),
                window.in_channels,
                params_resident=fits,
                weight_slots=buffered,
            )
        if fills_weight_buffer(window, target) and not window.weights_per_image:
            for block in _blocks(channels, target):
                yield from _by_groups(window, target, block, (2,))
        return
    for block in _blocks(channels, target):
        yield from _streamed(window, target, block)
        yield from _by_groups(window, target, block, (1, 2))


def fills_weight_buffer(window: WindowGeometry, target: Target) -> bool:
    """Whether all weights of a layer fit, but nothing can be loaded beside them while they are used."""
    return window.weight_bytes <= target.local.weight_bytes < 2 * window.weight_bytes


def _by_groups(
    window: WindowGeometry, target: Target, block: int, weight_slots: Iterable[int]
) -> Iterator[WindowTiling]:
    """Weights of ``block`` result channels at a time, those of the next group meanwhile if there are two slots."""
    most, entries = _most_weights(window, target), target.local.param_entries
    for slots in weight_slots:
        fits = window.depth * block * slots <= most and block * slots <= entries
        if block < window.out_channels and fits:
            yield WindowTiling(1, 1, block, block, window.in_channels, outer=Outer.GROUPS, weight_slots=slots)


def _streamed(window: WindowGeometry, target: Target, block: int) -> Iterator[WindowTiling]:
    """Weights of ``block`` result channels at a time, all of them for each tile."""
    cap, half = _most_weights(window, target), target.local.param_entries // 2
    channels = window.out_channels
    k_slice, slots = window.in_channels, min(4, cap // (window.depth * block))
    if slots < 2:
        k_slice, slots = cap // (2 * window.taps * block), 2
        k_slice -= k_slice % 16 if k_slice > 16 else 0
    if not k_slice or block > half:
        return
    for group in (channels, *_groups(channels)):
        yield WindowTiling(
            1,
            1,
            group,
            min(block, group),
            k_slice,
            resident=False,
            params_resident=channels <= half,
            weight_slots=slots,
        )


def sliced_plans(window: WindowGeometry, target: Target) -> Iterator[WindowTiling]:
    """For inputs of which not one tile holds all channels."""
    cap, half = _most_weights(window, target), target.local.param_entries // 2
    channels = window.out_channels
    for block in _blocks(channels, target):
        for k_slice in K_SLICES:
            slots = min(4, cap // (window.taps * k_slice * block))
            if block > half or k_slice >= window.in_channels or slots < 2:
                continue
            for group in (channels, *_groups(channels), block):
                yield WindowTiling(
                    1,
                    1,
                    group,
                    min(block, group),
                    k_slice,
                    sliced=True,
                    resident=False,
                    params_resident=channels <= half,
                    weight_slots=slots,
                )


def _most_weights(window: WindowGeometry, target: Target) -> int:
    """How many weights the weight buffer holds."""
    return target.local.weight_bytes // window.weight_item_bytes


def _blocks(channels: int, target: Target) -> list[int]:
    """Result channels of one instruction worth trying: array widths, some multiples, all."""
    widths = sorted({columns for _, columns in target.array.shapes})
    sizes = {width * factor for width in widths for factor in (1, 3)} | {2 * widths[-1], channels}
    return sorted(size for size in sizes if size <= channels) or [channels]


def _groups(channels: int) -> Iterator[int]:
    """Channel groups that are stored separately."""
    for size in STORE_GROUPS:
        if size < channels:
            yield size


def _channel_counts(channels: int, multiplier: int) -> Iterator[int]:
    """Channel counts worth handling at a time: all, then bursts and array widths."""
    yield channels
    for size in CHANNEL_COUNTS:
        if size < channels and size % multiplier == 0:
            yield size
    if 1 < multiplier < channels:
        yield multiplier
