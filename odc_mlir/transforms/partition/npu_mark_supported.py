"""``npu-mark-supported``: decide for every operator whether the target can run it, and write down why not.

Before::

    %1 = circle.floor %0 : (tensor<1x8xf32>) -> tensor<1x8xf32>

After::

    %1 = circle.floor %0 {odc.placed = "host", odc.reason = "operator: FLOOR has no NPU form"} : …

The rules are those of :mod:`odc_mlir.transforms.partition.rules.table`. An operator that the user wants on the host
(``odc.place = "host"``) is not asked about. Only the main function is divided into segments; operators
of functions that control flow calls stay on the host.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import SSAValue
from xdsl.passes import ModulePass

from odc_mlir import targets
from odc_mlir.dialects.circle import CircleOp, info_of, node_of
from odc_mlir.dialects.odc import target_of
from odc_mlir.errors import CompileError
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.targets import ELEMENT_TYPES
from odc_mlir.transforms.common.placement import (
    HOST,
    NPU,
    functions,
    main_function,
    operators,
    place_on_host,
    place_on_npu,
    wanted_place,
)
from odc_mlir.transforms.partition.rules.checks import Limits
from odc_mlir.transforms.partition.rules.table import verdict


@dataclass(frozen=True)
class NpuMarkSupportedPass(ModulePass):
    """Mark every operator with its place and, where that is the host, the reason."""

    name = "npu-mark-supported"

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        choice = target_of(op)
        if choice is None:
            raise CompileError("no target is chosen", hint="run odc-set-target first")
        target = targets.load(choice.target)
        limits = Limits(target, choice.sram_limit or target.sram.capacity_bytes, choice.numerics)
        boundary = _boundary(op)
        for index, function in enumerate(functions(op)):
            for item in operators(function):
                if index > 0:
                    place_on_host(item, f"function: @{function.sym_name.data} is called by control flow")
                    continue
                if isinstance(item, CircleOp) and item.unverified is not None:
                    place_on_host(item, f"operator: {item.unverified}")
                    continue
                if (wanted := wanted_place(item)) == HOST:
                    place_on_host(item, "annotation: placed by the user")
                    continue
                own = {*item.operands, *item.results}
                held = sum(size for value, size in boundary.items() if value not in own)
                result = verdict(node_of(item), replace(limits, held_bytes=held))
                if result.supported:
                    place_on_npu(item)
                else:
                    although = "; wanted on the NPU" if wanted == NPU else ""
                    place_on_host(item, f"{result.reason}{although}")


def _boundary(module: ModuleOp) -> dict[SSAValue, int]:
    """Bytes of the model's inputs and outputs that can be in the NPU's memory."""
    block = main_function(module).body.block
    last = block.last_op
    values = [*block.args, *(last.operands if last is not None else ())]
    found = {value: info_of(value) for value in values if isinstance(value.type, TensorType)}
    return {value: tensor_bytes(info) for value, info in found.items() if info.dtype in ELEMENT_TYPES}
