"""Choice of a tiling for convolutions, depthwise convolutions and pooling.

The simulator's formulas estimate the cost of all candidates that fit, and the cheapest wins. The time of a layer is the
sum of the first load, the busiest resource (SRAM port, DMA latencies, compute), and the last store.

Layers repeat within a model, so results are cached by geometry and room. If the context asks for a persistent cache,
later runs reuse them. Its key consists of the target's text, the compiler's version, and the sources that affect
results.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from functools import cache, lru_cache, partial
from importlib import resources
from operator import itemgetter
from typing import Any, NamedTuple

from xdsl.context import Context

from odc_mlir._version import __version__
from odc_mlir.dialects.npu_tiling import Outer, Tiling
from odc_mlir.errors import CompileError
from odc_mlir.formats.private import Memo
from odc_mlir.isa.fields import Runs
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule import cost
from odc_mlir.transforms.npu.schedule.cost import instruction_cycles, transfer_bytes
from odc_mlir.transforms.npu.schedule.geometry import MAX_PAD, MAX_RUNS, WindowGeometry, clip, even_splits
from odc_mlir.transforms.npu.schedule.program import MOST_LAYER_COMMANDS
from odc_mlir.transforms.npu.schedule.window_tiling import (
    K_SLICES,
    StepKind,
    conv_plans,
    depthwise_plans,
    fills_weight_buffer,
    footprint,
    group_sizes,
    kinds_of_groups,
    pool_plans,
    sliced_plans,
    step_kinds,
    tile_channels,
)

ROLLED_TILES = 6  # tiles of a layer in the program after loop rolling: fill, two bodies, drain
COMPUTE_BYTES = cost.instruction_bytes("conv")
# Share of time lost to waits if computing and weight streaming take equally long, because blocks differ.
UNEVEN = 0.1
VECTOR_BYTES = cost.instruction_bytes("vop")
TRANSFER_BYTES = cost.instruction_bytes("load")
WEIGHT_BYTES = cost.instruction_bytes("wload")
_CODES = {1: "i8", 2: "i16"}  # types of codes, by bytes


class TilingChoice(NamedTuple):
    """Tiling with the estimated cycles of the layer and bytes of its program.

    ``tiling``: None if the layer has only one tiling. ``lead``: extra cycles if the previous layer does not hide the
    load of the first weights.
    """

    tiling: Tiling | None
    cycles: float
    program_bytes: float
    lead: float = 0.0


class Room(NamedTuple):
    """Tile-buffer bytes of a layer, and its resident tensors.

    ``quick``: whether to try only few, large tile sizes. ``fused``: whether an element-wise operation with two operands
    is computed with each tile. The tile then loads the second operand. ``uncopied_bytes``: bytes of weights without
    room in SRAM. Each use reads these weights through the off-chip port.
    """

    tile_bytes: int
    source_resident: bool = False
    result_resident: bool = False
    quick: bool = False
    fused: bool = False
    uncopied_bytes: int = 0


@lru_cache(maxsize=4096)
def window_choices(window: WindowGeometry, target: Target, room: Room, *, weighted: bool) -> tuple[TilingChoice, ...]:
    """Return the Pareto front of tilings by cycles and program bytes, fastest first.

    ``weighted``: whether the window has weights, unlike pooling. Raises CompileError if none fits.
    """
    search = TilingSearch(window, target, room, weighted=weighted)
    if not weighted:
        found = search.choices(pool_plans(window))
    elif window.depthwise:
        found = search.choices(depthwise_plans(window, target))
    else:
        sliced = [] if room.source_resident else [*sliced_plans(window, target)]
        # If weights are loaded for every tile, slices of the input make room for larger tiles.
        results, local = window.out_height * window.out_width * window.out_channels, target.local
        reloads = window.weight_bytes > local.weight_bytes and results > local.accumulators
        more = sliced if reloads and window.in_channels > K_SLICES[0] else []
        found = search.choices([*conv_plans(window, target), *more]) or search.choices(sliced)
    if not found:
        raise too_large(window, target)
    return found


class NotResidentError(CompileError):
    """Error for a given tiling that needs a tensor outside of the tile buffer."""


def given_choices(
    window: WindowGeometry, target: Target, room: Room, tiling: Tiling, *, weighted: bool
) -> tuple[TilingChoice]:
    """Return a given tiling with its estimates.

    Raises NotResidentError if the tiling has no slots for a tensor in memory, and CompileError if it does not fit.
    """
    for name, slots, stays in (
        ("in_slots", tiling.in_slots, room.source_resident),
        ("out_slots", tiling.out_slots, room.result_resident),
    ):
        if not slots and not stays:
            raise NotResidentError(
                f"{name} of the given tiling is 0, but that tensor is not in the tile buffer", hint="give 1 or 2"
            )
    size = footprint(window, tiling, weighted=weighted)
    found = TilingSearch(window, target, room, weighted=weighted).estimate(tiling)
    if found is None or not size.fits(target, room.tile_bytes):
        local, weights = target.local, size.weight_bytes * size.weight_slots
        raise CompileError(
            f"the given tiling needs {size.tile_bytes} bytes of the tile buffer, {weights} of the weight buffer, "
            f"{size.params * size.param_slots} parameters and {size.accumulators} accumulators; allowed are "
            f"{room.tile_bytes}, {local.weight_bytes}, {local.param_entries} and {local.accumulators}, and "
            f"{MOST_LAYER_COMMANDS} instructions",
            hint="give other sizes, or leave the tiling out",
        )
    cycles, program, _, _, lead = found
    return (TilingChoice(tiling, cycles, program, lead),)


def too_large(window: WindowGeometry, target: Target) -> CompileError:
    """Return the error for a layer that no tiling fits."""
    return CompileError(
        f"no tile of a {window.kernel_height}x{window.kernel_width} window with dilation {window.dilation_y}x"
        f"{window.dilation_x} fits in the local memories of {target.name}, or too many tiles would be needed"
    )


class _Cut(NamedTuple):
    """Tile size in result pixels, added to a tiling only when the tiling is chosen."""

    rows: int
    cols: int


Estimate = tuple[float, float, tuple[int, _Cut], Tiling, float]
"""Cycles of the layer, program bytes, (array shape, tile size), rest of the tiling, lead as in TilingChoice."""

_cost = itemgetter(0, 1)


class _AxisTile(NamedTuple):
    """Tiles of equal size along one axis: result pixels, input pixels loaded, occurrences."""

    size: int
    loaded: int
    times: int


@dataclass(slots=True)
class _Traffic:
    tiles: int
    load_bytes: float
    store_bytes: float
    first_load_bytes: float
    sizes: dict[tuple[int, int], int]


class TilingSearch:
    def __init__(self, window: WindowGeometry, target: Target, room: Room, *, weighted: bool) -> None:
        self.window, self.target, self.room, self.weighted = window, target, room, weighted
        shapes = range(len(target.array.shapes))
        self.shapes = shapes if weighted and not window.depthwise else range(1)
        self._axis = cache(partial(_axis_tiles, window))
        self._steps: dict[tuple[int, int, int], list[tuple[StepKind, int]]] = {}
        self._traffics: dict[tuple[Hashable, int, float], _Traffic] = {}
        self._computes: dict[tuple[int, ...], float] = {}
        self._instructions: dict[tuple[StepKind, Hashable, int], float] = {}
        self._front: list[Estimate] = []  # Pareto front of the tilings found so far

    def choices(self, plans: Iterable[Tiling]) -> tuple[TilingChoice, ...]:
        """Return the Pareto front of ``plans`` with all tile sizes, by cycles and program bytes, fastest first."""
        front = self._front = []
        for plan in plans:
            for tiling, cut in self._sized(plan):
                for found in self._estimates(tiling, cut):
                    cycles, program = _cost(found)
                    if not self._is_beaten(cycles, program):
                        front[:] = [known for known in front if known[0] < cycles or known[1] < program]
                        front.append(found)
        front.sort(key=_cost)
        return tuple(
            TilingChoice(replace(tiling, rows=cut.rows, cols=cut.cols, shape=shape), cycles, program, lead)
            for cycles, program, (shape, cut), tiling, lead in front
        )

    def estimate(self, tiling: Tiling) -> Estimate | None:
        """Return the estimate of a tiling, or None if the tiling has too many instructions."""
        self.shapes = range(tiling.shape, tiling.shape + 1)
        return next(self._estimates(tiling, _Cut(tiling.rows, tiling.cols)), None)

    def _is_beaten(self, cycles: float, program: float) -> bool:
        return any(found[0] <= cycles and found[1] <= program for found in self._front)

    def _sized(self, plan: Tiling) -> Iterator[tuple[Tiling, _Cut]]:
        window, used = self.window, 0
        widest = 1 if self.room.quick else 12 if window.out_height == 1 else 3
        if max(window.pad_left, window.span_x) > MAX_PAD or max(window.pad_top, window.span_y) > MAX_PAD:
            return
        variants = list(self._variants(plan))
        for cols in even_splits(window.out_width, window.out_width, 64):
            if window.in_cols(cols) > MAX_RUNS:
                continue
            found = False
            for variant in variants:
                rows = self._most_rows(variant, cols)
                found |= rows > 0
                few = variant.in_slots == 1 and not variant.ring
                heights = 1 if self.room.quick else 2 if few else 6
                for size in even_splits(window.out_height, rows, heights) if rows else ():
                    yield variant, _Cut(size, cols)
            used += found
            if used >= widest:
                return

    def _variants(self, plan: Tiling) -> Iterator[Tiling]:
        window = self.window
        if self.room.result_resident:
            plan = replace(plan, out_slots=0)
        if self.room.fused:
            plan = replace(plan, operand_slots=plan.out_slots)
        if self.room.source_resident:
            yield replace(plan, in_slots=0)
            return
        yield plan
        yield replace(plan, in_slots=1)
        if plan.out_slots:
            yield replace(plan, in_slots=1, out_slots=1, operand_slots=min(1, plan.operand_slots))
        one_group = plan.outer is Outer.GROUPS or plan.group == window.out_channels
        if self.weighted and window.overlap_y and window.out_height > 1 and one_group and not plan.sliced:
            yield replace(plan, ring=True)

    def _most_rows(self, plan: Tiling, cols: int) -> int:
        def exceeds(rows: int) -> bool:
            size = footprint(self.window, plan, (rows, cols), weighted=self.weighted)
            return not size.fits(self.target, self.room.tile_bytes)

        return bisect_left(range(1, self.window.out_height + 1), True, key=exceeds)

    def _traffic(self, tiling: Tiling, cut: _Cut) -> _Traffic:
        window = self.window
        channels = tile_channels(window, tiling)
        passes = 1.0  # number of reads of the input
        if tiling.sliced:
            passes = window.in_channels / channels * -(-window.out_channels // tiling.group)
        elif tiling.outer is Outer.GROUPS:
            groups = -(-window.out_channels // tiling.group)
            passes = window.in_channels / channels if window.depthwise else groups
        slots = (tiling.in_slots > 0, tiling.out_slots > 0, tiling.operand_slots > 0)
        key = (*cut, tiling.group, tiling.ring, *slots)
        if (key, channels, passes) not in self._traffics:
            self._traffics[key, channels, passes] = self._count_traffic(tiling, cut, channels, passes)
        return self._traffics[key, channels, passes]

    def _count_traffic(self, tiling: Tiling, cut: _Cut, channels: int, passes: float) -> _Traffic:
        window, burst, item = self.window, self.target.sram.burst_bytes, self.window.item_bytes
        total = _Traffic(0, 0.0, 0.0, 0.0, {})
        for row in self._axis(cut.rows, vertical=True, ring=tiling.ring):
            for col in self._axis(cut.cols, vertical=False, ring=False):
                count = window.batch * row.times * col.times
                total.tiles += count
                size = (row.size, col.size)
                total.sizes[size] = total.sizes.get(size, 0) + count
                load = transfer_bytes(
                    Runs(channels * item, col.loaded, window.pixel_bytes, row.loaded, window.row_bytes), burst
                )
                store = sum(
                    times * self._store_bytes(row.size, col.size, group) for group, times in group_sizes(window, tiling)
                )
                if tiling.in_slots:
                    total.load_bytes += count * load * passes
                    total.first_load_bytes = total.first_load_bytes or load
                if tiling.out_slots:
                    total.store_bytes += count * store
                if tiling.operand_slots:
                    total.load_bytes += count * store
        return total

    def _store_bytes(self, rows: int, cols: int, channels: int) -> float:
        window, item = self.window, self.window.item_bytes
        pixel = window.out_channels * item
        return transfer_bytes(
            Runs(channels * item, cols, pixel, rows, window.out_width * pixel), self.target.sram.burst_bytes
        )

    def _estimates(self, tiling: Tiling, cut: _Cut) -> Iterator[Estimate]:
        """Yield the cost of the layer with each shape of the array.

        Yields nothing if there are too many instructions, or if the transfers alone exceed a known tiling. Tile sizes
        come from ``cut``, not from ``tiling``.
        """
        window, target, traffic = self.window, self.target, self._traffic(tiling, cut)
        kinds = self._kinds(tiling)
        steps = sum(times for _, times in kinds)
        latency, width = target.sram.read_latency_cycles, target.sram.bytes_per_cycle
        groups = -(-window.out_channels // tiling.group)
        by_groups = tiling.outer is Outer.GROUPS
        jobs = traffic.tiles * (groups if by_groups else 1)
        slices = -(-window.in_channels // tiling.k_slice) * groups if tiling.sliced else 1
        loads = inputs = jobs * slices if tiling.in_slots else 0
        stores = traffic.tiles * groups if tiling.out_slots else 0
        fused = stores if tiling.operand_slots else 0
        loads += fused
        weights, weight_loads, decode = self._weights(tiling, traffic.tiles, steps)
        if traffic.tiles * steps + loads + stores + weight_loads > MOST_LAYER_COMMANDS:
            return
        load, store, moved_weights = traffic.load_bytes / width, traffic.store_bytes / width, weights / width
        moved = load + store + moved_weights
        dma = (moved + (loads + stores + weight_loads) * latency) / target.dma.descriptors_in_flight
        edge = traffic.first_load_bytes / width + store / max(1, stores)
        uses = 1 if tiling.keeps_weights else traffic.tiles  # reads of weights that have no copy in SRAM
        again = (uses - 1) * self.room.uncopied_bytes / target.offchip.bytes_per_cycle
        first_weights = moved_weights / weight_loads + latency + target.decoder.start_cycles if weight_loads else 0.0
        waits_in_line = inputs > 1 and tiling.in_slots == 1 and not tiling.ring
        waits_to_store = stores > 1 and tiling.out_slots == 1
        several = (groups if by_groups else 1) * (window.batch if window.weights_per_image else 1)
        waits_for_weights = self.weighted and tiling.keeps_weights and tiling.weight_slots == 1 and several > 1
        full = self.weighted and fills_weight_buffer(window, target)
        computes_last = full and tiling.keeps_weights and several == 1
        moves = (min(loads, 1) + min(stores, 1)) * TRANSFER_BYTES
        if fused:
            moves += VECTOR_BYTES + TRANSFER_BYTES
        program = (COMPUTE_BYTES + moves) * min(jobs, ROLLED_TILES)
        more = max(0, steps - (groups if by_groups else 1))
        program += (COMPUTE_BYTES + WEIGHT_BYTES) * more * min(traffic.tiles, ROLLED_TILES)
        if by_groups and full:
            program += 2 * WEIGHT_BYTES * (groups - 1)
        vector, lanes = self._fused_cycles(fused)
        ends = latency * (min(loads, 1) + min(stores, 1)) + jobs * cost.step_cycles(target)
        if self._is_beaten(max(moved, dma, decode, again, lanes) + ends, program):
            return
        anew = self._ring_starts(tiling, cut, groups if by_groups else 1)
        for shape in self.shapes:
            compute = self._compute(tiling, cut, traffic, kinds, shape)
            tail = compute / (traffic.tiles * (steps if not tiling.keeps_weights or by_groups else 1))
            if fused:
                tail += vector / fused
            cycles = max(moved + tail, dma + tail, decode + tail, again + tail, compute + edge, lanes)
            if not tiling.keeps_weights:
                streamed = max(decode, moved_weights)
                cycles += UNEVEN * min(compute, streamed) ** 2 / max(compute, streamed)
            serial = compute + anew
            if waits_in_line:
                serial += load + inputs * 2 * latency
            if waits_to_store:
                serial += store + stores * 2 * latency + vector
            if waits_for_weights:
                serial += moved_weights + several * 2 * latency
            elif computes_last:
                serial += moved_weights + latency
            cycles = max(cycles, serial, self._in_turns(tiling, traffic, shape))
            lead = min(first_weights, max(0.0, compute + edge + first_weights - cycles))
            cycles += ends
            yield cycles, program, (shape, cut), tiling, lead

    def _ring_starts(self, tiling: Tiling, cut: _Cut, turns: int) -> float:
        """Return the cycles of loading the first rows of all strips but one into the ring.

        ``turns``: number of passes over all strips.
        """
        if not tiling.ring:
            return 0.0
        window, sram = self.window, self.target.sram
        starts = turns * window.batch * -(-window.out_width // cut.cols) - 1
        rows = clip(-window.pad_top, window.in_rows(cut.rows), window.in_height).length
        size = tile_channels(window, tiling) * window.item_bytes
        loaded = Runs(size, window.in_cols(cut.cols), window.pixel_bytes, rows, window.row_bytes)
        return starts * (transfer_bytes(loaded, sram.burst_bytes) / sram.bytes_per_cycle + 2 * sram.read_latency_cycles)

    def _in_turns(self, tiling: Tiling, traffic: _Traffic, shape: int) -> float:
        """Return the cycles of all tiles if the last group of result channels is smaller than earlier groups, else 0.0.

        The array computes a group into one of two slots while the second slot is stored. Idle time in one turn does not
        shorten the next turn.
        """
        sizes = group_sizes(self.window, tiling)
        if len(sizes) == 1 or tiling.out_slots != 2 or tiling.outer is Outer.GROUPS:
            return 0.0
        (full, times), (rest, _) = sizes
        kinds = [(size, kinds_of_groups(self.window, tiling, [(size, 1)])) for size in (full, rest)]
        width, latency = self.target.sram.bytes_per_cycle, self.target.sram.write_latency_cycles
        total = 0.0
        for (rows, cols), count in traffic.sizes.items():
            (computed, stored), (last_computed, last_stored) = (
                (
                    sum(number * self.cycles(kind, rows, cols, shape) for kind, number in steps),
                    self._store_bytes(rows, cols, size) / width + latency,
                )
                for size, steps in kinds
            )
            between = (times - 1) * max(computed, stored)
            total += count * (between + max(last_computed, stored) + max(computed, last_stored))
        return total

    def _fused_cycles(self, instructions: int) -> tuple[float, float]:
        if not instructions:
            return 0.0, 0.0
        vector, window = self.target.vector, self.window
        results = window.batch * window.out_height * window.out_width * window.out_channels / vector.requant_lanes
        return results + instructions * vector.start_cycles, 2 * results

    def _kinds(self, tiling: Tiling) -> list[tuple[StepKind, int]]:
        key = (tiling.group, tiling.block, tiling.k_slice)
        if key not in self._steps:
            self._steps[key] = step_kinds(self.window, tiling)
        return self._steps[key]

    def _compute(
        self, tiling: Tiling, cut: _Cut, traffic: _Traffic, kinds: Sequence[tuple[StepKind, int]], shape: int
    ) -> float:
        key = (*cut, tiling.group, tiling.block, tiling.k_slice, shape)
        if key not in self._computes:
            self._computes[key] = sum(
                count * times * self.cycles(kind, rows, cols, shape)
                for (rows, cols), count in traffic.sizes.items()
                for kind, times in kinds
            )
        return self._computes[key]

    def _weights(self, tiling: Tiling, tiles: int, steps: int) -> tuple[float, int, float]:
        """Return (bytes, transfers) of weights and parameters, and cycles of the decoder."""
        if not self.weighted:
            return 0.0, 0, 0.0
        uses = (self.window.batch if self.window.weights_per_image else 1) if tiling.keeps_weights else tiles
        param_uses = 1 if tiling.keeps_params else tiles
        params = self.window.out_channels * self.target.local.param_entry_bytes
        moved = self.window.weight_bytes * uses + params * param_uses
        weight_loads = uses * (1 if tiling.keeps_weights else steps)
        loads = weight_loads + param_uses * (1 if tiling.keeps_params else steps)
        decoder, symbols = self.target.decoder, self.window.weight_bytes // self.window.weight_item_bytes
        decode = uses * symbols / decoder.symbols_per_cycle
        return float(moved), loads, decode

    def cycles(self, kind: StepKind, rows: int, cols: int, shape: int) -> float:
        is_array = self.weighted and not self.window.depthwise
        key = (kind, rows * cols if is_array else (rows, cols), shape)
        if key not in self._instructions:
            self._instructions[key] = self._count_cycles(kind, rows, cols, shape)
        return self._instructions[key]

    def _count_cycles(self, kind: StepKind, rows: int, cols: int, shape: int) -> float:
        window, item = self.window, _CODES[self.window.item_bytes]
        sizes = {"out_height": rows, "out_width": cols, "channels": kind.channels}
        if not self.weighted:
            return instruction_cycles("pool", self.target, type=item, **sizes, **window.kernel_fields)
        return instruction_cycles(
            "conv",
            self.target,
            depthwise=int(window.depthwise),
            init="bias" if kind.is_first else "keep",
            emit=int(kind.is_last),
            in_type=item,
            weight_type=_CODES[window.weight_item_bytes],
            out_type=item,
            shape=shape,
            in_stride_x=window.in_channels * window.item_bytes,
            in_channels=kind.k_count,
            dilation_y=window.dilation_y,
            dilation_x=window.dilation_x,
            **sizes,
            **window.kernel_fields,
        )


def _axis_tiles(window: WindowGeometry, step: int, *, vertical: bool, ring: bool) -> list[_AxisTile]:
    if vertical:
        total, size, pad = window.out_height, window.in_height, window.pad_top
        stride, span = window.stride_y, window.span_y
    else:
        total, size, pad = window.out_width, window.in_width, window.pad_left
        stride, span = window.stride_x, window.span_x
    found: Counter[tuple[int, int]] = Counter()
    loaded = 0
    for start in range(0, total, step):
        count = min(step, total - start)
        part = clip(start * stride - pad, (count - 1) * stride + span, size)
        fresh = part.length
        if ring:
            end = part.first + part.length
            fresh, loaded = max(0, end - max(loaded, part.first)), max(loaded, end)
        found[count, fresh] += 1
    return [_AxisTile(*sizes, times) for sizes, times in found.most_common()]


KIND = "tilings"
_SOURCES = (
    "odc_mlir.transforms.npu",
    "odc_mlir.transforms.npu.schedule",
    "odc_mlir.dialects",
    "odc_mlir.isa",
    "odc_mlir.emitter",
    "odc_mlir.simulator",
    "odc_mlir.simulator.engines",
)


class Tilings:
    """Cache of tilings for one target. ``quick``: whether to try only few tile sizes.

    ``memo``: persistent results of tilings and of other searches for the target.
    """

    def __init__(self, target: Target, memo: Memo | None = None, *, quick: bool = False) -> None:
        self.target, self.quick = target, quick
        self.memo = Memo() if memo is None else memo
        self._found: dict[tuple[WindowGeometry, Room, bool], tuple[TilingChoice, ...]] = {}

    def choices(self, window: WindowGeometry, room: Room, *, weighted: bool) -> tuple[TilingChoice, ...]:
        """Return the tilings of a window, like :func:`window_choices`."""
        key = (window, room, weighted)
        if key not in self._found:
            self._found[key] = self._looked_up(*key)
        if not self._found[key]:
            raise too_large(window, self.target)
        return self._found[key]

    def _looked_up(self, window: WindowGeometry, room: Room, weighted: bool) -> tuple[TilingChoice, ...]:
        key = ",".join(str(int(value)) for value in (*astuple(window), *room, weighted))
        if (known := _decoded(self.memo.get(key))) is not None:
            return known
        try:
            found = window_choices(window, self.target, room, weighted=weighted)
        except CompileError:
            found = ()
        self.memo.put(key, [[c.cycles, c.program_bytes, c.lead, c.tiling and asdict(c.tiling)] for c in found])
        return found

    def save(self) -> None:
        self.memo.save()


def _decoded(kept: Any) -> tuple[TilingChoice, ...] | None:
    try:
        return tuple(
            TilingChoice(fields and Tiling(**{**fields, "outer": Outer(fields["outer"])}), *estimates)
            for *estimates, fields in kept
        )
    except (KeyError, TypeError, ValueError):
        return None


def tilings_of(context: Context, target: Target, *, quick: bool = False) -> Tilings:
    """Return the tilings of ``context`` for ``target``. All passes of the context share them."""
    held: Tilings | None = getattr(context, "tilings", None)
    if held is not None and (held.target, held.quick) == (target, quick):
        return held
    kept = getattr(context, "remember", False)
    memo = Memo.open(KIND, f"{target.canonical}\0{__version__}\0{sources_digest()}") if kept else None
    made = Tilings(target, memo, quick=quick)
    if hasattr(context, "tilings"):
        context.tilings = made
    return made


@cache
def sources_digest() -> str:
    """Return a digest of all sources that affect the results. Sources may change without a new version."""
    digest = hashlib.sha256()
    for package in _SOURCES:
        for file in sorted(resources.files(package).iterdir(), key=lambda item: item.name):
            if file.name.endswith(".py"):
                digest.update(f"{package}/{file.name}\0".encode() + file.read_bytes())
    return digest.hexdigest()
