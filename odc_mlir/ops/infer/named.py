"""Operands by the names that the table gives them, for operators with too many to count."""

from __future__ import annotations

from odc_mlir.ops.spec import Array, Node, TensorInfo


def position(node: Node, name: str) -> int:
    """Index of the operand called ``name``; the number of operands where the table has none of that name."""
    names = [operand.name for operand in node.spec.operands]
    return names.index(name) if name in names else len(node.operands)


def named(node: Node, name: str) -> TensorInfo | None:
    """The operand called ``name``, None where it is left out or not in the table."""
    return node.optional(position(node, name))


def required(node: Node, name: str) -> TensorInfo:
    """The operand called ``name``; raises ModelError where it is left out."""
    info = named(node, name)
    if info is None:
        raise node.error(f"{name} is left out; it is required here")
    return info


def constants(node: Node) -> dict[str, Array]:
    """The contents of all constant operands by name."""
    return {
        node.spec.operand_name(index): info.array()
        for index, info in enumerate(node.operands)
        if info is not None and info.is_const
    }
