"""``npu-cut-stripes``: divide chains of operations into stripes of a few rows that fit in SRAM.

Before, if the SRAM limit leaves no room for the tensor between the two::

    %1 = npu.conv %0 kernel [1, 1] … : tensor<1x56x56x24x…> -> tensor<1x56x56x144x…>
    %2 = npu.conv depthwise %1 kernel [3, 3] pads [1, 1, 1, 1] … : tensor<1x56x56x144x…> -> tensor<1x56x56x144x…>

After, for every stripe of 14 rows, before a move that joins the stripes::

    %3 = npu.move %0 copies [array<i32: 0, 17472, 0, 21504, 1, 1>] : tensor<1x56x56x24x…> -> tensor<1x16x56x24x…>
    %4 = npu.conv %3 kernel [1, 1] … : tensor<1x16x56x24x…> -> tensor<1x16x56x144x…>
    %5 = npu.conv depthwise %4 kernel [3, 3] pads [0, 1, 0, 1] … : tensor<1x16x56x144x…> -> tensor<1x14x56x144x…>

Applies to operations on one image: convolutions, pooling, resizing, element-wise operations, and softmax and arg-max
along the channels. Rows that two stripes need are computed twice: the program's ``npu.recomputed_macs`` gives the extra
multiply-accumulates. A program that fits without stripes is not cut. Otherwise, the plan with the best estimate among
all plans that fit is chosen. The estimate covers the work of operations, but no waiting for constants.
``npu-search-plans`` sets ``npu.chains`` to the chains to cut: (first layer, last layer, rows of a stripe).

If no plan fits, the plan with the least memory is used. This is not an error yet, because instructions can need less
memory than operations: a result may reuse the bytes of a loaded operand. ``npu-allocate-memory`` reports the error.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import starmap

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, DictionaryAttr, IntegerAttr, i64
from xdsl.ir import Attribute, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.dialects.npu_program import CHAINS, RECOMPUTED_MACS
from odc_mlir.support.locations import op_name
from odc_mlir.targets import scaled
from odc_mlir.transforms.npu.lowering.site import tensor_of
from odc_mlir.transforms.npu.schedule import stripe_plan
from odc_mlir.transforms.npu.schedule.cost import ports
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.layer_plan import chosen_tiles
from odc_mlir.transforms.npu.schedule.resize_stream import ResizeAxis
from odc_mlir.transforms.npu.schedule.tensor_ir import has_tilings


class NpuCutStripesPass(ProgramPass):
    """Cut chains into stripes."""

    name = "npu-cut-stripes"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        if has_tilings(job.block):
            return
        graph = stripe_plan.read_rows(job.block, job.target, job.memory)
        given = job.program.attributes.pop(CHAINS, None)
        chains = _chosen(ctx, job, graph).chains if given is None else read_chains(given)
        again: Counter[str] = Counter()
        for chain in chains:
            if chain.rows:
                again += _Cut(graph, chain).apply()
        if again:
            counts: dict[str, Attribute] = {name: IntegerAttr(macs, i64) for name, macs in sorted(again.items())}
            job.program.attributes[RECOMPUTED_MACS] = DictionaryAttr(counts)


def chains_attribute(chains: Sequence[stripe_plan.Chain]) -> DenseArrayBase:
    """Return the attribute ``npu.chains`` for ``chains``."""
    return DenseArrayBase.from_list(i64, [number for chain in chains for number in chain])


def read_chains(attribute: Attribute) -> tuple[stripe_plan.Chain, ...]:
    """Return the chains of the attribute ``npu.chains``."""
    assert isinstance(attribute, DenseArrayBase)
    numbers = iter(map(int, attribute.get_values()))
    return tuple(starmap(stripe_plan.Chain, zip(numbers, numbers, numbers, strict=True)))


def trial_planner(ctx: Context, job: TargetedProgram) -> tuple[stripe_plan.StripePlanner, int] | None:
    """Return the stripe planner of a program and the bytes for tensors, or None if no trials are needed.

    Trials are needed if the SRAM is limited or too small, or if memory is preferred. Only later passes determine the
    cycles and bytes of a plan.
    """
    graph = stripe_plan.read_rows(job.block, job.target, job.memory)
    room, burst = job.sram_bytes - graph.apart_bytes, job.target.sram.burst_bytes
    fits = stripe_plan.StripePlanner(graph, burst).plain.arena_bytes <= room
    is_free = job.sram_bytes == job.target.sram.capacity_bytes or job.memory == "sram"
    if fits and is_free and job.choice.prefer != "memory":
        return None
    return stripe_plan.StripePlanner(graph, burst, resident_results(ctx, job)), room


_PORTS = ("sram.bytes_per_cycle", "tile_ports.read_bytes_per_cycle")


def fused_plans(ctx: Context, job: TargetedProgram, *, poorer: bool) -> list[stripe_plan.StripePlan]:
    """Return plans of stripes that keep results in the tile buffer and would save time.

    ``poorer``: whether to return plans for machines with half of a port, too. A better machine may need those.
    """
    graph, residents = stripe_plan.read_rows(job.block, job.target, job.memory), resident_results(ctx, job)
    weights = sum(layer.op.weights.data.size for layer in graph.layers if isinstance(layer.op, npu.ConvOp))
    least = weights / ports(job.target, job.memory).constants.bytes_per_cycle
    machines = [job.target, *(scaled(job.target, {port: 50}) for port in _PORTS if poorer)]
    found = (stripe_plan.FusedPlanner(graph, machine, residents).fastest(least) for machine in machines)
    return list(dict.fromkeys(plan for plan in found if plan is not None))


def _chosen(ctx: Context, job: TargetedProgram, graph: stripe_plan.RowGraph) -> stripe_plan.StripePlan:
    """Return the plan without stripes if it fits, else the fastest plan estimated to fit, else the smallest."""
    planner, room = stripe_plan.StripePlanner(graph, job.target.sram.burst_bytes), job.sram_bytes - graph.apart_bytes
    if planner.plain.arena_bytes <= room:
        return planner.plain
    planner = stripe_plan.StripePlanner(graph, job.target.sram.burst_bytes, resident_results(ctx, job))
    if planner.plain.arena_bytes <= room:
        return planner.plain
    return planner.within(room) or planner.smallest


def resident_results(ctx: Context, job: TargetedProgram) -> list[SSAValue]:
    """Return the results that ``npu-choose-tiles`` keeps in the tile buffer if nothing is cut."""
    graph, plan = chosen_tiles(ctx, job)
    return [graph.candidates[number].op.results[0] for number in plan.residents]


@dataclass
class _Cut:
    graph: stripe_plan.RowGraph
    chain: stripe_plan.Chain
    slices: dict[tuple[SSAValue, stripe_plan.Rows], SSAValue] = field(default_factory=dict)

    def apply(self) -> Counter[str]:
        """Replace the chain by stripes, and return the repeated multiply-accumulates of each operation."""
        graph, chain = self.graph, self.chain
        layers = range(chain.first, chain.last + 1)
        made: list[SSAValue] = []
        computed: Counter[int] = Counter()
        for needed in stripe_plan.stripes(graph, chain):
            results: dict[int, tuple[SSAValue, stripe_plan.Rows]] = {}
            for number in layers:
                if number in needed:
                    results[number] = self._stripe(graph.layers[number], needed[number], results), needed[number]
                    computed[number] += needed[number].count
            made.append(results[chain.last][0])
        last = graph.layers[chain.last].op
        sizes = [math.prod(npu.shape_of(value)) for value in made]
        copies = [StridedCopy(number, 0, sum(sizes[:number]), (size,), (1,), (1,)) for number, size in enumerate(sizes)]
        joined = npu.MoveOp(made, last.results[0].type, copies=copies)
        joined.location = last.location
        Rewriter.insert_op(joined, InsertPoint.before(last))
        Rewriter.replace_op(last, [], [joined.output])
        for number in reversed(layers[:-1]):
            Rewriter.erase_op(graph.layers[number].op)
        again: Counter[str] = Counter()
        for number, rows in computed.items():
            op = graph.layers[number].op
            if isinstance(op, npu.ConvOp) and rows > graph.layers[number].rows:
                again[op_name(op)] += op.macs // graph.layers[number].rows * (rows - graph.layers[number].rows)
        return again

    def _stripe(
        self, layer: stripe_plan.RowLayer, rows: stripe_plan.Rows, results: dict[int, tuple[SSAValue, stripe_plan.Rows]]
    ) -> SSAValue:
        op, operands = layer.op, list[SSAValue]()
        for source, value in zip(layer.sources, op.operands, strict=True):  # ``value``: new if an earlier chain was cut
            wanted, there = source.needed(rows), stripe_plan.Rows(0, source.rows)
            if source.layer in results:
                value, there = results[source.layer]
            if source.stride:
                value = self._slice(value, stripe_plan.Rows(wanted.first - there.first, wanted.end - there.first), op)
            operands.append(value)
        properties = dict(op.properties)
        if isinstance(op, npu.ConvOp | npu.PoolOp):
            source = layer.sources[0]
            _, left, _, right = op.pads.get_values()
            top = max(0, source.before - rows.first * source.stride)
            bottom = max(0, (rows.end - 1) * source.stride - source.before + source.span - source.rows)
            properties["pads"] = npu.ints((top, left, bottom, right))
        elif isinstance(op, npu.ResizeOp):
            axis, (_, left) = ResizeAxis(op, 0), op.start.get_values()
            line = axis.moved(rows.first, layer.sources[0].needed(rows).first)
            properties["start"] = npu.ints((line.start, left))
        result = tensor_of(op.results[0])
        _, _, *pixels = result.get_shape()
        made = type(op).create(
            operands=operands, properties=properties, result_types=[with_shape(result, (1, rows.count, *pixels))]
        )
        return self._insert(made, op)

    def _slice(self, value: SSAValue, rows: stripe_plan.Rows, reader: Operation) -> SSAValue:
        kind = tensor_of(value)
        _, height, *pixels = kind.get_shape()
        if rows.count == height:
            return value
        if (value, rows) not in self.slices:
            row = math.prod(pixels)
            copy = StridedCopy(0, rows.first * row, 0, (rows.count * row,), (1,), (1,))
            part = npu.MoveOp([value], with_shape(kind, (1, rows.count, *pixels)), copies=[copy])
            self.slices[value, rows] = self._insert(part, reader)
        return self.slices[value, rows]

    def _insert(self, made: Operation, origin: Operation) -> SSAValue:
        last = self.graph.layers[self.chain.last].op
        made.location = origin.location
        Rewriter.insert_op(made, InsertPoint.before(last))
        return made.results[0]
