"""The choice of tilings and residents for the layers of a program."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from xdsl.context import Context
from xdsl.ir import Operation

from odc_mlir.support.deadline import checkpoint
from odc_mlir.targets import MemoryMode
from odc_mlir.transforms.npu.schedule.fusion import fused
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.transforms.npu.schedule.resident_graph import LayerGraph, read_graph
from odc_mlir.transforms.npu.schedule.resident_plan import ResidencyPlan, ResidentPlanner
from odc_mlir.transforms.npu.schedule.tensor_ir import layer_ops
from odc_mlir.transforms.npu.schedule.tilings import Tilings, tilings_of
from odc_mlir.transforms.npu.schedule.weight_room import uncopied_weights


def chosen_tiles(ctx: Context, job: TargetedProgram) -> tuple[LayerGraph, ResidencyPlan]:
    """The tensor operations of a program and the best plan found; CompileError where a layer fits in no way.

    Where the target was chosen with ``prefer = compile-time`` few plans are looked at.
    """
    quick = job.choice.prefer == "compile-time"
    tilings = tilings_of(ctx, job.target, quick=quick)
    check, uncopied = partial(checkpoint, ctx), uncopied_weights(job)
    return planned_layers(layer_ops(job.block), tilings, job.memory, check, quick=quick, uncopied=uncopied)


def planned_layers(
    layers: Sequence[Operation],
    tilings: Tilings,
    memory: MemoryMode,
    check: Callable[[], None],
    *,
    quick: bool = False,
    uncopied: Mapping[Operation, int] = MappingProxyType({}),
) -> tuple[LayerGraph, ResidencyPlan]:
    """``layers`` of one program, in order, and the best plan found; errors as above, and those of ``check``.

    ``uncopied``: bytes of weights for which SRAM has no room, by layer.
    """
    graph, target = read_graph(layers, tilings, uncopied), tilings.target
    residents = [candidate.resident for candidate in graph.candidates]
    planner = ResidentPlanner(graph.nodes, residents, graph.constant_bytes, target, memory)
    return graph, fused(graph, planner.plan(check, improve=not quick), tilings, memory)
