"""``npu-choose-tiles``: how window operations are cut into tiles, and which tensors never leave the tile buffer.

Before::

    %1 = npu.conv %0 kernel [3, 3] … : tensor<1x112x112x32x…> -> tensor<1x112x112x64x…>

After: the same with ``{npu.tiling = #npu.tiling<rows = 4, cols = 56, group = 64, …>}``, chosen by the simulator's cost
formulas. Element-wise operations, reductions and softmax have one way to be cut and get no tiling. An operation whose
result stays in the tile buffer for the layers that read it has ``npu.resident = #npu.resident<address = 0, …>``.

Refuses windows of which not one result pixel fits in the local memories.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.passes import ModulePass

from odc_mlir.dialects.npu_isa import TilingAttr
from odc_mlir.errors import CompileError
from odc_mlir.support.deadline import checkpoint, in_time
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.npu.schedule.instruction_ir import sites
from odc_mlir.transforms.npu.schedule.residence_ir import read_graph, resident_attribute
from odc_mlir.transforms.npu.schedule.residence_plan import Planner
from odc_mlir.transforms.npu.schedule.tensor_ir import RESIDENT
from odc_mlir.transforms.npu.schedule.window_tiling import WindowTiling

TILING = "npu.tiling"
_FIELDS = {f.name: f for f in dataclasses.fields(WindowTiling)}


@dataclass(frozen=True)
class NpuChooseTilesPass(ModulePass):
    """Choose tilings; see the module's text."""

    name = "npu-choose-tiles"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for site in in_time(ctx, sites(op, self.name)):
            graph = read_graph(site.block, site.target)
            residents = [candidate.resident for candidate in graph.candidates]
            planner = Planner(graph.nodes, residents, graph.constant_bytes, site.target, site.memory)
            plan = planner.plan(lambda: checkpoint(ctx))
            for item, choice in zip(graph.ops, plan.balance.choices, strict=True):
                if choice.tiling is not None:
                    item.attributes[TILING] = tiling_attribute(choice.tiling)
            for number, resident in plan.residents.items():
                candidate = graph.candidates[number]
                candidate.op.attributes[RESIDENT] = resident_attribute(candidate, resident)


def tiling_attribute(tiling: WindowTiling) -> TilingAttr:
    """The fields that have another value than their default."""
    entries: list[tuple[str, str | int]] = []
    for name, field in _FIELDS.items():
        value = getattr(tiling, name)
        if value != field.default:
            entries.append((name, int(value) if isinstance(value, bool) else value))
    return TilingAttr(tuple(entries))


def tiling_of(op: Operation) -> WindowTiling:
    """The tiling that the attribute of ``op`` holds; raises CompileError where it is missing or malformed."""
    attribute = op.attributes.get(TILING)
    if not isinstance(attribute, TilingAttr):
        raise CompileError(
            "the operation has no tiling", op=op.name, tensor=op_name(op), hint="run npu-choose-tiles first"
        )
    values = dict(attribute.data)
    if unknown := sorted(values.keys() - _FIELDS.keys()):
        raise CompileError(f"a tiling has no field {unknown[0]!r}", op=op.name, tensor=op_name(op))
    flags = {name: bool(value) for name, value in values.items() if _FIELDS[name].type == "bool"}
    try:
        return WindowTiling(**(values | flags))  # type: ignore[arg-type]
    except TypeError as error:
        raise CompileError(f"the tiling is not complete: {error}", op=op.name, tensor=op_name(op)) from None
