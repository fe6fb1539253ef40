"""Operators that run other subgraphs."""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.ops.infer.common import check_single, option, shape_text
from odc_mlir.ops.spec import STATEFUL, Callee, Node, OperatorFamily, TensorInfo, Trait, real_only

RUN_MODEL_CALLEE = 0
"""Key of the callee of RUN_MODEL."""


def verify_if(node: Node) -> None:
    """Check that both branches accept the arguments and return the results."""
    check_single(node, 0)
    for field in ("then_subgraph_index", "else_subgraph_index"):
        _check_call(node, field, node.operands[1:], node.results)


def verify_while(node: Node) -> None:
    """Check that the condition maps the state to a bool, and the body to the next state."""
    check_pairs(node, "operands and results", node.operands, node.results)
    condition = _check_call(node, "cond_subgraph_index", node.operands, None)
    if condition is not None and [info.dtype for info in condition.outputs] != ["bool"]:
        given = ", ".join(info.dtype for info in condition.outputs) or "nothing"
        raise node.error(f"the condition {condition.name!r} gives {given}; it must give one bool")
    shape = None if condition is None else condition.outputs[0].shape
    if shape is not None and any(extent not in (None, 1) for extent in shape):
        raise node.error(f"the condition's result has the shape {shape_text(shape)}; it must have one element")
    _check_call(node, "body_subgraph_index", node.operands, node.results)


def verify_call(node: Node) -> None:
    """Check that the subgraph accepts the arguments and returns the results."""
    _check_call(node, "subgraph", node.operands, node.results)


def verify_call_once(node: Node) -> None:
    """Check that the subgraph has no inputs. Its outputs are ignored."""
    _check_call(node, "init_subgraph_index", (), None)


def verify_run_model(node: Node) -> None:
    """Check that the named model, if available, accepts the arguments and returns the results."""
    if not option(node, "location"):
        raise node.error("the option location is empty; it must name a model file")
    if (model := node.callees.get(RUN_MODEL_CALLEE)) is not None:
        check_pairs(node, f"arguments and inputs of {model.name!r}", node.operands, model.inputs)
        check_pairs(node, f"results and outputs of {model.name!r}", node.results, model.outputs)


def _check_call(
    node: Node, field: str, arguments: Sequence[TensorInfo | None], results: Sequence[TensorInfo] | None
) -> Callee | None:
    """Check and return the subgraph in option ``field``, or return None if callees are unknown."""
    callee = node.callees.get(option(node, field))
    if callee is not None:
        check_pairs(node, f"arguments and inputs of {callee.name!r}", arguments, callee.inputs)
        if results is not None:
            check_pairs(node, f"results and outputs of {callee.name!r}", results, callee.outputs)
    return callee


def check_pairs(node: Node, what: str, ours: Sequence[TensorInfo | None], theirs: Sequence[TensorInfo | None]) -> None:
    """Raise ModelError if the lengths, element types, scales or zero points of the lists differ."""
    if len(ours) != len(theirs):
        raise node.error(f"{what} are {len(ours)} and {len(theirs)}; their numbers must agree")
    for position, (own, other) in enumerate(zip(ours, theirs, strict=True)):
        if own is None or other is None:
            continue
        if own.dtype != other.dtype:
            raise node.error(
                f"{what} differ at {position}: {own.dtype} and {other.dtype}; the element types must be equal",
                tensor=own.name,
            )
        if own.info.is_integer and None not in (own.quant, other.quant) and own.quant != other.quant:
            raise node.error(
                f"{what} differ at {position}: they have different scales or zero points; these must be equal",
                tensor=own.name,
            )


_op = OperatorFamily(
    __name__,
    gives="results...?",
    quant=real_only("functions called by control flow keep real values"),
    traits=STATEFUL | {Trait.CONTROL_FLOW},
    infer="infer.common:open_results",
    verify="own",
)

SPECS = (
    _op("IF", "condition:bool arguments...?", "call of the subgraph that a condition selects", kernel="if_"),
    _op(
        "WHILE",
        "state...?",
        "loop: the body updates the state while the condition holds; shapes may change",
        kernel="while_",
    ),
    _op("CALL", "arguments...?", "call of a subgraph"),
    _op("CALL_ONCE", "", "call of a subgraph in the first run only, to fill variables and hash tables", gives=""),
    _op("RUN_MODEL", "arguments...?", "call of another model file, with a path relative to this file"),
)
