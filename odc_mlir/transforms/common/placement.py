"""Attributes that say where an operator runs and why, and helpers that several partitioning passes need."""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation

from odc_mlir.dialects.circle import CircleOp, is_known
from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Trait

PLACED = "odc.placed"  # "npu", "cpu" (native code) or "host"
REASON = "odc.reason"  # why on the host
PLACE = "odc.place"  # "npu" or "host": where the user wants it
GROUP = "odc.group"  # number of the pattern group: operators that are placed together
SEGMENT = "odc.segment"  # number of the segment to be made
PARTITION = "odc.partition"  # of the module: the plan chosen and the others, for reports
DEFECTS = "odc.defects"  # of the module: what failed by defects of the compiler, for reports
NPU, CPU, HOST = "npu", "cpu", "host"


def functions(module: ModuleOp) -> Iterator[FuncOp]:
    """The functions of a module: one per subgraph, the model's main one first."""
    return (op for op in module.body.block.ops if isinstance(op, FuncOp))


def main_function(module: ModuleOp) -> FuncOp:
    """The function of the first subgraph; raises ModelError for a module without functions."""
    found = next(functions(module), None)
    if found is None or not found.body.blocks:
        raise ModelError("the module has no function")
    return found


def operators(root: Operation | Block) -> Iterator[CircleOp]:
    """Every operator below ``root`` in program order, without constants and what counts as such (``odc.known``)."""
    return (op for op in root.walk() if isinstance(op, CircleOp) and not is_known(op))


def placed(op: Operation) -> str | None:
    """``npu``, ``host`` or None before ``npu-mark-supported``."""
    attribute = op.attributes.get(PLACED)
    return attribute.data if isinstance(attribute, StringAttr) else None


def wanted_place(op: Operation) -> str | None:
    """Return the place that the user wants for ``op``: ``npu``, ``host`` or None."""
    attribute = op.attributes.get(PLACE)
    return attribute.data if isinstance(attribute, StringAttr) else None


def place_on_npu(op: Operation) -> None:
    """Run ``op`` on the NPU."""
    op.attributes[PLACED] = StringAttr(NPU)
    op.attributes.pop(REASON, None)


def place_on_host(op: Operation, reason: str) -> None:
    """Place ``op`` on the host, outside of groups; ``reason`` names the rule and the offending value."""
    op.attributes.pop(GROUP, None)
    op.attributes[PLACED] = StringAttr(HOST)
    op.attributes[REASON] = StringAttr(reason)


def reason_of(op: Operation) -> str:
    """Return why ``op`` stays on the host; empty without a reason."""
    attribute = op.attributes.get(REASON)
    return attribute.data if isinstance(attribute, StringAttr) else ""


def is_view(op: CircleOp) -> bool:
    """Return whether the result is the operand's bytes with another shape."""
    return Trait.VIEW in op.SPEC.traits
