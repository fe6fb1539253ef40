"""DENSIFY."""

from __future__ import annotations

from odc_mlir.ops.spec import Execute, Node
from odc_mlir.runtime.kernels.common import fetch


def densify(node: Node) -> Execute:
    """Return the operand: a sparse constant becomes dense when it is decoded."""
    value_of = fetch(node, 0)
    return lambda operands: [value_of(operands)]
