"""What operators cost on the NPU, without scheduling anything.

An operator costs what its layers do by the formulas that tilings are chosen with, each layer for itself with the whole
tile buffer. A copy of the graph is lowered for that, operator by operator, so what an operator becomes (and whether it
can be lowered at all) is not described twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import OdcError
from odc_mlir.support.deadline import in_time
from odc_mlir.support.locations import names_loc, op_name
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.common.defects import Defect, defect_of
from odc_mlir.transforms.common.placement import NPU, main_function, operators, placed
from odc_mlir.transforms.npu.convert_circle_to_npu import lower
from odc_mlir.transforms.npu.npu_fuse_padding import NpuFusePaddingPass
from odc_mlir.transforms.npu.schedule.balance import EXPOSED
from odc_mlir.transforms.npu.schedule.constants import stored_bytes
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.resident_graph import layer_choices
from odc_mlir.transforms.npu.schedule.tensor_ir import NOTHING_COMPUTED
from odc_mlir.transforms.npu.schedule.tilings import Tilings, tilings_of
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
    width = ports(target, memory).constants.bytes_per_cycle
    choice = target_of(module)
    tilings = tilings_of(ctx, target, quick=choice is not None and choice.prefer == "compile-time")
    for layer in in_time(ctx, main_function(scratch).body.block.ops):
        if not isinstance(layer, npu.NpuTensorOp) or isinstance(layer, NOTHING_COMPUTED):
            continue
        index = int(op_name(layer))
        work = found[index]
        if isinstance(work, Work):
            kind, name = labels[index]
            found[index] = _guarded(kind, name, partial(_with_layer, work, layer, tilings, width))
    return found


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


def _with_layer(work: Work, layer: npu.NpuTensorOp, tilings: Tilings, width: int) -> Work:
    return _added(work, _layer_work(layer, tilings, width))


def _layer_work(layer: npu.NpuTensorOp, tilings: Tilings, width: int) -> Work:
    resident = tuple(False for _ in layer.operands)
    choices = layer_choices(layer, tilings, tilings.target.local.tile_bytes, resident, False)
    best = min(choices, key=lambda choice: choice.cycles + choice.program_bytes / width)
    constants = float(stored_bytes(layer))
    for operand in layer.operands:
        if isinstance(operand.owner, npu.ConstantOp):
            constants += npu.size_bytes(operand)
    return Work(best.cycles, best.program_bytes, constants)


def _added(first: Work, second: Work) -> Work:
    return Work(*(a + b for a, b in zip(first, second, strict=True)))
