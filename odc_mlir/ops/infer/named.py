"""Operands by their names in the table, for operators with many operands."""

from __future__ import annotations

from odc_mlir.ops.spec import Array, Node, TensorInfo


def position(node: Node, name: str) -> int:
    """Return the index of the operand called ``name``, or the number of operands if there is none."""
    names = [operand.name for operand in node.spec.operands]
    return names.index(name) if name in names else len(node.operands)


def named(node: Node, name: str) -> TensorInfo | None:
    """Return the operand called ``name``, or None if it is omitted or not in the table."""
    return node.optional(position(node, name))


def required(node: Node, name: str) -> TensorInfo:
    """Return the operand called ``name``; raise ModelError if it is omitted."""
    info = named(node, name)
    if info is None:
        raise node.error(f"{name} is left out; it is required here")
    return info


def constants(node: Node) -> dict[str, Array]:
    """Return the contents of all constant operands by name."""
    return {
        node.spec.operand_name(index): info.array()
        for index, info in enumerate(node.operands)
        if info is not None and info.is_const
    }
