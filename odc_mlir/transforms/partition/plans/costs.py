"""Costs of operators on the NPU, estimated without scheduling.

The patterns of stage ``npu`` lower a copy of the graph operator by operator. The cost of an operator is the sum of the
costs of its layers, by the formulas for the choice of tilings. The plan of the layers assumes that all neighbours run
on the NPU, so tensors between layers may stay in the tile buffer. Otherwise, each layer gets the whole tile buffer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp, freeze_known
from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_tiling import Outer, Tiling
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import CompileError, OdcError
from odc_mlir.isa.fields import FULL_RECORD_BYTES, Runs
from odc_mlir.support.cloning import clone_module
from odc_mlir.support.deadline import checkpoint
from odc_mlir.support.locations import names_loc, op_name
from odc_mlir.targets import MemoryMode, MemoryPort, Target
from odc_mlir.transforms.common.defects import Defect, defect_of
from odc_mlir.transforms.common.placement import NPU, main_function, operators, placed
from odc_mlir.transforms.common.rewriting import ByKind
from odc_mlir.transforms.npu.convert_circle_to_npu import ConvertCircleToNpuPass
from odc_mlir.transforms.npu.npu_alias_moves import mark_views
from odc_mlir.transforms.npu.npu_fuse_padding import NpuFusePaddingPass
from odc_mlir.transforms.npu.npu_swap_axes import NpuSwapAxesPass
from odc_mlir.transforms.npu.schedule.constants import record_bytes, stored_bytes
from odc_mlir.transforms.npu.schedule.cost import ports, transfer_bytes
from odc_mlir.transforms.npu.schedule.layer_plan import layer_choices, planned_layers
from odc_mlir.transforms.npu.schedule.move_stream import gathered_bytes
from odc_mlir.transforms.npu.schedule.prefetch import SMALLEST_CHUNK
from odc_mlir.transforms.npu.schedule.tensor_ir import becomes_instructions, viewed, window_of
from odc_mlir.transforms.npu.schedule.window_search import TilingChoice, Tilings, tilings_of
from odc_mlir.transforms.npu.schedule.window_tiling import step_kinds, tile_channels
from odc_mlir.transforms.partition.plans.plans import OperatorCost
from odc_mlir.transforms.partition.rules.islands import is_inside

FIRST_BYTES = 64  # bytes of a program outside of its layers: header, end, first instructions of each kind
ISSUED_BYTES = 8  # bytes of a compact program that leave the fetch buffer per cycle
GROWTH = 1.25  # program bytes relative to the estimates of tilings, due to reordering and prefetching
LEADING_SHARE = 0.5  # share of its program, and of constants without a tiling, that delays a layer
_REWRITES = (NpuFusePaddingPass, NpuSwapAxesPass)  # passes of stage ``npu`` that change costs
CROWDING = 0.5  # share of the cycles of prefetching in which other transfers need the SRAM port


def segment_cycles(target: Target, memory: MemoryMode) -> Callable[[Sequence[OperatorCost]], float]:
    """Return a function that computes the cycles of a segment from the costs of its operators in order.

    Program and constants pass the port in order. A layer starts when its data have arrived and the previous layer has
    ended. If constants use the SRAM port, the cycles of a layer include the transfer of constants.
    """
    port, sram = ports(target, memory).constants, target.sram
    staged, width = port is not sram, port.bytes_per_cycle
    request = max(port.burst_bytes, target.fetch.buffer_bytes // 2 // port.burst_bytes * port.burst_bytes)
    start = port.read_latency_cycles + request / width
    rate = min(float(width), 2 * request / (start + request / ISSUED_BYTES))  # two requests are in flight
    latency = port.read_latency_cycles + sram.write_latency_cycles

    def cycles(works: Sequence[OperatorCost]) -> float:
        now = fetched = start
        copied = [_in_bursts(work.constant_bytes, port.burst_bytes) for work in works]
        copies = _Copies(width, start, sum(copied) + GROWTH * sum(work.program_bytes for work in works))
        unread, before, held = float(request - FIRST_BYTES), 0.0, float(target.local.weight_bytes)
        for work, constants in zip(works, copied, strict=True):
            program = max(0.0, GROWTH * work.program_bytes - max(0.0, unread))
            unread -= GROWTH * work.program_bytes
            begun = max(fetched, copies.arrived())
            ready, fetched = begun + LEADING_SHARE * program / rate, begun + program / rate
            took, rest, there = work.cycles, fetched, 0.0
            copies.add(program)
            if staged and constants:
                first = max(work.first_bytes, min(work.constant_bytes, SMALLEST_CHUNK))
                there = copies.arrived() + -(-first // port.burst_bytes) * port.burst_bytes / width + latency
                copies.add(constants)
                took += CROWDING * work.constant_bytes / sram.bytes_per_cycle
                rest = max(rest, copies.arrived() + latency + work.left)
            if staged and work.picked_bytes:
                took = max(took, latency + copies.beside(work.picked_bytes, max(now, ready, there)))
            alone = held + work.weight_bytes > target.local.weight_bytes
            waits = work.lead if alone else max(0.0, work.lead - before)
            now = max(max(now, ready) + work.ahead, there) + waits + took - work.ahead
            now, before, held = max(now, rest), took, work.weight_bytes
        return now

    return cycles


def _in_bursts(size: float, burst: int) -> float:
    """Return the bytes that a copy of ``size`` transfers: whole bursts, unless it is small enough to share a chunk."""
    return size if size < SMALLEST_CHUNK else -(-size // burst) * burst


class _Copies:
    """Copies of ``left`` bytes through the port of constants, in order and as early as possible."""

    def __init__(self, width: int, start: float, left: float) -> None:
        self.width, self.copied, self.left = width, start, left
        self.delays: list[tuple[float, float]] = []

    def add(self, size: float) -> None:
        self.copied += size / self.width
        self.left -= size

    def arrived(self) -> float:
        """Return the cycle at which all added bytes have arrived."""
        return self.copied + sum(min(most, max(0.0, self.copied - since)) for since, most in self.delays)

    def beside(self, size: float, now: float) -> float:
        """Return the cycles of reading ``size`` bytes from cycle ``now``. Copies use every other turn of the port."""
        alone, others = size / self.width, self.left / self.width - max(0.0, now - self.copied)
        self.delays.append((now, alone))
        return alone + min(alone, max(0.0, others))


def npu_works(
    ctx: Context, module: ModuleOp, target: Target, memory: MemoryMode, *, alone: bool = False
) -> list[OperatorCost | str | Defect | None]:
    """Return each operator's cost in a segment, the reason why it cannot be lowered, or None for the host.

    ``alone``: every layer gets the whole tile buffer, without a plan of all layers, which takes longer.
    """
    scratch = clone_module(module)
    freeze_known(main_function(scratch).body.block)
    found: list[OperatorCost | str | Defect | None] = []
    labels: list[tuple[str, str]] = []
    patterns = ByKind([kind() for kind in ConvertCircleToNpuPass.patterns()])
    for index, op in enumerate(list(operators(main_function(scratch)))):
        found.append(None)
        labels.append((op.SPEC.name, op_name(op)))
        if placed(op) == NPU and is_inside(op):  # the last operator of its island has the cost
            found[index] = OperatorCost()
        elif placed(op) == NPU:
            found[index] = _guarded(*labels[index], partial(_lower, op, index, patterns))
    for kind in _REWRITES:
        kind().apply(ctx, scratch)
    mark_views(main_function(scratch).body.block)
    choice = target_of(module)
    quick = choice is not None and choice.prefer == "compile-time"
    layers = _LayerCosts(tilings_of(ctx, target, quick=quick), memory, partial(checkpoint, ctx), quick=quick)
    for run in _runs(main_function(scratch).body.block.ops):
        planned = {} if alone else layers.planned(run)
        for layer in run:
            index = int(op_name(layer))
            work = found[index]
            if isinstance(work, OperatorCost):
                found[index] = _guarded(*labels[index], partial(layers.added, work, layer, planned.get(layer)))
    return found


def _runs(ops: Iterable[Operation]) -> Iterator[list[npu.NpuTensorOp]]:
    run: list[npu.NpuTensorOp] = []
    for op in ops:
        if isinstance(op, npu.NpuTensorOp):
            if becomes_instructions(op):
                run.append(op)
        elif isinstance(op, CircleOp) and run:
            yield run
            run = []
    yield run


def _guarded(op: str, tensor: str, call: Callable[[], OperatorCost]) -> OperatorCost | str | Defect:
    try:
        return call()
    except OdcError as error:
        return error.message
    except Exception as error:
        return defect_of(op, tensor, error)


def _lower(op: CircleOp, index: int, patterns: ByKind) -> OperatorCost:
    op.location = names_loc([str(index)] * max(1, len(op.results)))
    rewriter = PatternRewriter(op)
    patterns.match_and_rewrite(op, rewriter)
    if not rewriter.has_done_action:
        raise CompileError("no pattern lowers this operator")
    return OperatorCost()


class _LayerCosts:
    def __init__(self, tilings: Tilings, memory: MemoryMode, check: Callable[[], None], *, quick: bool) -> None:
        self.tilings, self.memory, self.check, self.quick = tilings, memory, check, quick
        self.port = ports(tilings.target, memory).constants
        self.stored = set[bytes]()  # weights and tables of earlier layers, which a segment stores once

    def planned(self, run: Sequence[npu.NpuTensorOp]) -> dict[npu.NpuTensorOp, TilingChoice]:
        """Return the tilings of the layers in ``run``, planned as one program, or {} if any layer does not fit."""
        try:
            _, plan = planned_layers(run, self.tilings, self.memory, self.check, quick=self.quick)
            return dict(zip(run, plan.choices, strict=True))
        except Exception:  # `added` later tries each layer alone and finds the failing layer
            self.check()
            return {}

    def added(self, work: OperatorCost, layer: npu.NpuTensorOp, planned: TilingChoice | None) -> OperatorCost:
        """Return ``work`` with the cost of ``layer``. Without a plan, the layer gets the whole tile buffer."""
        self.check()
        best = planned or _alone(layer, self.tilings, self.port.bytes_per_cycle)
        stored, (copied, picked) = stored_bytes(layer), _constant_bytes(layer, self.port)
        blob = layer.weights if isinstance(layer, npu.ConvOp) else getattr(layer, "table", None)
        if isinstance(blob, BlobAttr):
            if (content := bytes(blob.data.data)) in self.stored:
                stored = record_bytes(layer) if isinstance(layer, npu.ConvOp) else 0
            self.stored.add(content)
        constants = float(stored + copied)
        cycles, lead, held = best.cycles, best.lead, 0.0
        first, ahead, left = LEADING_SHARE * constants, 0.0, 0.0
        if isinstance(layer, npu.ConvOp):
            cycles -= self._coded_cycles(layer, best, stored)
            held = min(layer.weights.data.size, self.tilings.target.local.weight_bytes)
            if best.tiling is not None:
                begun, ahead, ended = self._shares(layer, best.tiling)
                first, left = begun * constants, (1 - ended) * max(0.0, cycles - ahead)
        elif isinstance(layer, npu.GatherOp):
            first = constants  # indices may select any row
        elif not isinstance(layer, npu.LstmOp):
            first = max(first, float(stored))
        return OperatorCost(
            work.cycles + cycles,
            work.program_bytes + best.program_bytes,
            work.constant_bytes + constants,
            work.lead or lead,
            max(work.weight_bytes, held),
            work.first_bytes or first,
            work.ahead if work.constant_bytes else work.cycles + min(ahead, cycles),
            left if constants else work.left + cycles,
            work.picked_bytes + picked,
        )

    def _shares(self, layer: npu.ConvOp, tiling: Tiling) -> tuple[float, float, float]:
        """Return the times at which ``layer`` needs constants.

        Times are the share of constants that the first instruction needs, the cycles for loading the input, and the
        share of cycles before the last constants are needed.
        """
        sram = self.tilings.target.sram
        window = window_of(layer, source_resident=not tiling.in_slots, result_resident=not tiling.out_slots)
        tiles = window.batch * -(-window.out_height // tiling.rows) * -(-window.out_width // tiling.cols)
        pixel = tile_channels(window, tiling) * window.item_bytes
        rows, cols = window.in_rows(tiling.rows), window.in_cols(tiling.cols)
        loaded = transfer_bytes(Runs(pixel, cols, window.pixel_bytes, rows, window.row_bytes), sram.burst_bytes)
        ahead = loaded / sram.bytes_per_cycle + sram.read_latency_cycles if tiling.in_slots else 0.0
        if tiling.keeps_weights:
            parts = -(-window.out_channels // tiling.group) if tiling.outer is Outer.GROUPS else 1
            return 1 / parts, ahead, 1 - 1 / parts
        steps = sum(times for _, times in step_kinds(window, tiling))
        return 1 / steps, ahead, (1 - 1 / steps) / tiles

    def _coded_cycles(self, layer: npu.ConvOp, choice: TilingChoice, stored: float) -> float:
        """Return the cycles by which ``choice``, which assumes raw weights, overestimates the wait for weights.

        ``stored``: bytes of the coded weights and of records.
        """
        size, target = layer.weights.data.size, self.tilings.target
        decoded = size / target.decoder.symbols_per_cycle
        plain = size + FULL_RECORD_BYTES * len(layer.bias)
        saved = plain / target.sram.bytes_per_cycle - max(stored / target.sram.bytes_per_cycle, decoded)
        busy = max(decoded, layer.macs / target.array.macs_per_cycle)
        return saved if choice.cycles - busy >= saved > 0 else 0.0


def _constant_bytes(layer: npu.NpuTensorOp, port: MemoryPort) -> tuple[int, int]:
    """Return the bytes of constant operands to copy, and of table rows to read through ``port`` instead.

    A table is copied as a whole if that takes no more bytes than reading its rows.
    """
    sizes = {
        value: npu.size_bytes(value) for value in layer.operands if isinstance(viewed(value).owner, npu.ConstantOp)
    }
    picked = 0
    if isinstance(layer, npu.GatherOp) and gathered_bytes(layer, port) < sizes.get(layer.table, 0):
        picked = gathered_bytes(layer, port)
        del sizes[layer.table]
    return sum(sizes.values()), picked


def _alone(layer: npu.NpuTensorOp, tilings: Tilings, width: int) -> TilingChoice:
    resident = tuple(False for _ in layer.operands)
    choices = layer_choices(layer, tilings, tilings.target.local.tile_bytes, resident, False)
    return min(choices, key=lambda choice: choice.cycles + choice.program_bytes / width)
