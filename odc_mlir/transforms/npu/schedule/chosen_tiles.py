"""The choice of tilings and residents for one program, as its target asks for it."""

from __future__ import annotations

from xdsl.context import Context

from odc_mlir.support.deadline import checkpoint
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.transforms.npu.schedule.resident_graph import Graph, read_graph
from odc_mlir.transforms.npu.schedule.resident_plan import Plan, Planner
from odc_mlir.transforms.npu.schedule.tilings import tilings_of


def chosen_tiles(ctx: Context, job: TargetedProgram) -> tuple[Graph, Plan]:
    """The tensor operations of a program and the best plan found; CompileError where a layer fits in no way.

    Where the target was chosen with ``prefer = compile-time`` few plans are looked at.
    """
    quick = job.choice.prefer == "compile-time"
    graph = read_graph(job.block, tilings_of(ctx, job.target, quick=quick))
    residents = [candidate.resident for candidate in graph.candidates]
    planner = Planner(graph.nodes, residents, graph.constant_bytes, job.target, job.memory)
    return graph, planner.plan(lambda: checkpoint(ctx), improve=not quick)
