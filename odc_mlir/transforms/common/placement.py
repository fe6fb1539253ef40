"""Attributes for the placement of operators, and helpers of partitioning passes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from xdsl.dialects.builtin import ModuleOp, StringAttr
from xdsl.dialects.func import FuncOp
from xdsl.ir import Block, Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, is_known
from odc_mlir.errors import ModelError
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.common.rewriting import apply_patterns_to

PLACED = "odc.placed"  # "npu", "cpu" (native code), "external" (a target of a plugin) or "host"
REASON = "odc.reason"  # reason for the host
PLACE = "odc.place"  # "npu" or "host", as requested by the user
GROUP = "odc.group"  # number of the pattern group; operators of a group are placed together
SEGMENT = "odc.segment"  # number of the segment to create
PARTITION = "odc.partition"  # on the module: the chosen plan and its alternatives, for reports
DEFECTS = "odc.defects"  # on the module: operators that failed by a defect of the compiler, for reports
NPU, CPU, EXTERNAL, HOST = "npu", "cpu", "external", "host"


def functions(module: ModuleOp) -> Iterator[FuncOp]:
    """Yield the functions of a module, one per subgraph, the model's main function first."""
    return (op for op in module.body.block.ops if isinstance(op, FuncOp))


def main_function(module: ModuleOp) -> FuncOp:
    """Return the function of the first subgraph. Raises ModelError for a module without functions."""
    found = next(functions(module), None)
    if found is None or not found.body.blocks:
        raise ModelError("the module has no function")
    return found


def operators(root: Operation | Block) -> Iterator[CircleOp]:
    """Yield the operators below ``root`` in program order, except constants and operators with ``odc.known`` values."""
    return (op for op in root.walk() if isinstance(op, CircleOp) and not is_known(op))


def placed(op: Operation) -> str | None:
    """Return the target of ``op`` in ``odc.placed``, or None before placement."""
    attribute = op.attributes.get(PLACED)
    return attribute.data if isinstance(attribute, StringAttr) else None


def wanted_place(op: Operation) -> str | None:
    """Return the target that the user requests for ``op``: ``npu``, ``host`` or None."""
    attribute = op.attributes.get(PLACE)
    return attribute.data if isinstance(attribute, StringAttr) else None


def place_on(op: Operation, place: str) -> None:
    """Place ``op`` on a target: ``npu``, ``cpu`` or ``external``."""
    op.attributes[PLACED] = StringAttr(place)
    op.attributes.pop(REASON, None)


def place_on_host(op: Operation, reason: str) -> None:
    """Place ``op`` on the host and remove it from its group. ``reason``: the rule and the offending value."""
    op.attributes.pop(GROUP, None)
    op.attributes[PLACED] = StringAttr(HOST)
    op.attributes[REASON] = StringAttr(reason)


def reason_of(op: Operation) -> str:
    """Return the reason for the placement of ``op`` on the host, or ""."""
    attribute = op.attributes.get(REASON)
    return attribute.data if isinstance(attribute, StringAttr) else ""


def is_view(op: CircleOp) -> bool:
    """Return whether the result has the same bytes as the operand, in another shape."""
    return Trait.VIEW in op.SPEC.traits


class PlacePattern(RewritePattern):
    """Pattern that places an operator on the target or, with the reason of :meth:`host_reason`, on the host."""

    place: ClassVar[str]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not isinstance(op, CircleOp):
            return
        reason = "annotation: placed by the user" if wanted_place(op) == HOST else None
        if op.unverified is not None:
            reason = f"operator: {op.unverified}"
        reason = reason or self.host_reason(op)
        if reason is None:
            place_on(op, self.place)
        else:
            place_on_host(op, reason)
        rewriter.notify_op_modified(op)

    def host_reason(self, op: CircleOp, /) -> str | None:
        """Return the reason why the target cannot run ``op``, or None if it can."""
        raise NotImplementedError


def mark_places(module: ModuleOp, pattern: PlacePattern) -> None:
    """Place the operators of the main function. Operators of other functions stay on the host."""
    main, *others = functions(module)
    apply_patterns_to([pattern], list(operators(main)))
    for function in others:
        for item in operators(function):
            place_on_host(item, f"function: @{function.sym_name.data} is not the main function")
