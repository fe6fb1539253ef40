"""Checks of operators from files or IR against :class:`~odc_mlir.ops.spec.OpSpec`.

The first checks are counts of operands and results, omitted operands and element types. Then the operator's verifier
runs. Finally, declared result types are compared with inferred result types.
"""

from __future__ import annotations

from collections.abc import Sequence

from odc_mlir.ops.infer.common import compatible
from odc_mlir.ops.spec import Node, Operand, ResultType, TensorInfo


def check_node(node: Node, *, own_rules: bool = True, result_types: bool = True) -> None:
    """Raise ModelError, with operator and tensor, if ``node`` breaks a rule of the operator table.

    If ``own_rules``, also run the operator's verifier, which may need values of constant operands. If ``result_types``,
    also compare declared and inferred result types.
    """
    check_structure(node)
    for index, info in enumerate(node.operands):
        if info is not None:
            _check_dtype(node, _described(node.spec.operands, index), info, f"operand {index}")
    for index, result in enumerate(node.results):
        _check_dtype(node, _described(node.spec.results, index), result, f"result {index}")
    spec = node.spec
    verify = spec.check_function if result_types else spec.verify_function  # result types are inferred below
    if own_rules and verify is not None:
        verify(node)
    if result_types:
        check_result_types(node)


def check_structure(node: Node) -> None:
    """Raise ModelError for a wrong number of operands or results, or for a missing operand."""
    check_counts(node, node.spec.operands, len(node.operands), "operand")
    check_counts(node, node.spec.results, len(node.results), "result")
    _check_omitted(node)


def check_counts(node: Node, described: Sequence[Operand], found: int, what: str) -> None:
    """Raise ModelError for too few or too many operands or results."""
    least = sum(not operand.optional and not operand.variadic for operand in described)
    most = None if described and described[-1].variadic else len(described)
    if found >= least and (most is None or found <= most):
        return
    names = ", ".join(operand.name for operand in described) or "none"
    limits = f"at least {least}" if most is None else str(least) if most == least else f"{least} to {most}"
    plural = "" if (least if most is None else most) == 1 else "s"
    raise node.error(f"takes {limits} {what}{plural} ({names}), found {found}")


def check_result_types(node: Node) -> None:
    """Raise ModelError if a declared result type contradicts the inferred one."""
    if not node.spec.infer:
        return
    types = node.spec.infer_function(node)
    if len(types) != len(node.results):
        raise node.error(f"result count is {len(node.results)}; operands and options imply {len(types)}")
    for declared, inferred in zip(node.results, types, strict=True):
        if declared.dtype != inferred.dtype or not compatible(declared.shape, inferred.shape):
            expected, found = type_text(inferred), type_text(ResultType(declared.dtype, declared.shape))
            raise node.error(f"result must be {expected}, found {found}", tensor=declared.name)


def type_text(type: ResultType) -> str:
    """Return the text of a type: ``float32[1, ?, 3]``, or ``float32[...]`` for an unknown rank."""
    dims = "..." if type.shape is None else ", ".join("?" if d is None else str(d) for d in type.shape)
    return f"{type.dtype}[{dims}]"


def _check_omitted(node: Node) -> None:
    for index, info in enumerate(node.operands):
        described = _described(node.spec.operands, index)
        if info is None and not (described and described.optional):
            raise node.error(f"operand {index} ({node.spec.operand_name(index)}) is required, found none")


def _described(operands: Sequence[Operand], index: int) -> Operand | None:
    if index < len(operands):
        return operands[index]
    return operands[-1] if operands and operands[-1].variadic else None


def _check_dtype(node: Node, described: Operand | None, info: TensorInfo, what: str) -> None:
    if described is not None and described.dtypes and info.dtype not in described.dtypes:
        allowed = ", ".join(described.dtypes)
        raise node.error(f"{what} ({described.name}) is {info.dtype}, allowed: {allowed}", tensor=info.name)
