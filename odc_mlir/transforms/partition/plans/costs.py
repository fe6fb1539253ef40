"""What operators cost on the NPU, without scheduling anything.

An operator costs what its layers do by the formulas that tilings are chosen with, in the plan that they would get if
all neighbours ran on the NPU too: tensors between them may stay in the tile buffer. Where there is no such plan each
layer is taken for itself with the whole tile buffer. A copy of the graph is lowered for that, operator by operator, so
what an operator becomes (and whether it can be lowered at all) is not described twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import OdcError
from odc_mlir.isa.fields import FULL_RECORD_BYTES
from odc_mlir.support.deadline import checkpoint
from odc_mlir.support.locations import names_loc, op_name
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.common.defects import Defect, defect_of
from odc_mlir.transforms.common.placement import NPU, main_function, operators, placed
from odc_mlir.transforms.npu.convert_circle_to_npu import lower
from odc_mlir.transforms.npu.npu_fuse_padding import NpuFusePaddingPass
from odc_mlir.transforms.npu.npu_swap_axes import NpuSwapAxesPass
from odc_mlir.transforms.npu.schedule.balance import EXPOSED
from odc_mlir.transforms.npu.schedule.chosen_tiles import planned_layers
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.resident_graph import layer_choices
from odc_mlir.transforms.npu.schedule.tensor_ir import NOTHING_COMPUTED
from odc_mlir.transforms.npu.schedule.tilings import Tilings, tilings_of
from odc_mlir.transforms.npu.schedule.window_search import Choice
from odc_mlir.transforms.partition.plans.plans import Work

START_BURSTS = 2  # of program, before the first instruction can be issued


def segment_cycles(target: Target, memory: MemoryMode) -> Callable[[Sequence[Work]], float]:
    """The function that gives the cycles of a segment with these works: as the tiler balances them."""
    port = ports(target, memory)
    width = port.constants.bytes_per_cycle
    start = port.constants.read_latency_cycles + START_BURSTS * port.constants.burst_bytes / width

    def cycles(works: Sequence[Work]) -> float:
        layers = sum(work.cycles for work in works)
        program = sum(work.program_bytes for work in works) / width
        if not port.staged:
            return start + layers + program
        fetched = program + sum(work.constant_bytes for work in works) / width
        return start + max(layers, fetched) + EXPOSED * min(layers, fetched)

    return cycles


def npu_works(ctx: Context, module: ModuleOp, target: Target, memory: MemoryMode) -> list[Work | str | Defect | None]:
    """For each operator of the main function its work in a segment, why it has no lowering, or None on the host."""
    scratch = module.clone()
    found: list[Work | str | Defect | None] = []
    labels: list[tuple[str, str]] = []
    for index, op in enumerate(list(operators(main_function(scratch)))):
        found.append(None)
        labels.append((op.SPEC.name, op_name(op)))
        if placed(op) == NPU:
            found[index] = _guarded(*labels[index], partial(_lower, op, index))
    NpuFusePaddingPass().apply(ctx, scratch)
    NpuSwapAxesPass().apply(ctx, scratch)
    choice = target_of(module)
    quick = choice is not None and choice.prefer == "compile-time"
    layers = _Layers(tilings_of(ctx, target, quick=quick), memory, partial(checkpoint, ctx), quick=quick)
    for run in _runs(main_function(scratch).body.block.ops):
        planned = layers.planned(run)
        for layer in run:
            index = int(op_name(layer))
            work = found[index]
            if isinstance(work, Work):
                found[index] = _guarded(*labels[index], partial(layers.added, work, layer, planned.get(layer)))
    return found


def _runs(ops: Iterable[Operation]) -> Iterator[list[npu.NpuTensorOp]]:
    """Layers in order that no operator of the host stands between."""
    run: list[npu.NpuTensorOp] = []
    for op in ops:
        if isinstance(op, npu.NpuTensorOp) and not isinstance(op, NOTHING_COMPUTED):
            run.append(op)
        elif isinstance(op, CircleOp) and run:
            yield run
            run = []
    yield run


def _guarded(op: str, tensor: str, call: Callable[[], Work]) -> Work | str | Defect:
    """The result of ``call()``, or why there is none. A defect is no reason to fail: operators have host kernels."""
    try:
        return call()
    except OdcError as error:
        return error.message
    except Exception as error:
        return defect_of(op, tensor, error)


def _lower(op: CircleOp, index: int) -> Work:
    """Replace ``op`` by its layers, which are called ``index``; no work yet."""
    op.location = names_loc([str(index)] * max(1, len(op.results)))
    lower(op)
    return Work()


class _Layers:
    """What layers of one target and memory mode take."""

    def __init__(self, tilings: Tilings, memory: MemoryMode, check: Callable[[], None], *, quick: bool) -> None:
        self.tilings, self.memory, self.check, self.quick = tilings, memory, check, quick
        self.width = ports(tilings.target, memory).constants.bytes_per_cycle

    def planned(self, run: Sequence[npu.NpuTensorOp]) -> dict[npu.NpuTensorOp, Choice]:
        """How each layer of a program of ``run`` would be cut; empty where one of them fits in no way."""
        try:
            _, plan = planned_layers(run, self.tilings, self.memory, self.check, quick=self.quick)
            return dict(zip(run, plan.balance.choices, strict=True))
        except Exception:  # of which layer it is, and whether it is a defect, is found out when each is taken alone
            self.check()
            return {}

    def added(self, work: Work, layer: npu.NpuTensorOp, planned: Choice | None) -> Work:
        """``work`` and that of ``layer``, alone with the whole tile buffer where nothing is planned."""
        self.check()
        best = planned or _alone(layer, self.tilings, self.width)
        stored = stored_bytes(layer)
        cycles, constants = best.cycles - self._coded_cycles(layer, best, stored), float(stored)
        for operand in layer.operands:
            if isinstance(operand.owner, npu.ConstantOp):
                constants += npu.size_bytes(operand)
        return Work(work.cycles + cycles, work.program_bytes + best.program_bytes, work.constant_bytes + constants)

    def _coded_cycles(self, layer: npu.NpuTensorOp, choice: Choice, stored: float) -> float:
        """What ``choice``, which knows no values, charges too much for weights that wait for their port.

        Coded they are ``stored`` bytes with their records. Where constants have a port of their own, its bytes count.
        """
        if not isinstance(layer, npu.ConvOp) or self.memory == "flash":
            return 0.0
        size, target = layer.weights.data.size, self.tilings.target
        saved = (size + FULL_RECORD_BYTES * len(layer.bias) - stored) / self.width
        busy = max(size / target.decoder.symbols_per_cycle, layer.macs / target.array.macs_per_cycle)
        return saved if choice.cycles - busy >= saved else 0.0


def _alone(layer: npu.NpuTensorOp, tilings: Tilings, width: int) -> Choice:
    """The best way to cut a layer that shares the tile buffer with no other."""
    resident = tuple(False for _ in layer.operands)
    choices = layer_choices(layer, tilings, tilings.target.local.tile_bytes, resident, False)
    return min(choices, key=lambda choice: choice.cycles + choice.program_bytes / width)
