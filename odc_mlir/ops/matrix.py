"""Matrix products of two activations."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from odc_mlir.ops.infer.common import broadcast, option, result, same_dim, shape_of
from odc_mlir.ops.spec import Node, OperatorFamily, QuantRule, ResultType, Shape


def _matrix(node: Node, index: int, adjoint: bool) -> Shape | None:
    shape = shape_of(node, index, least=2)
    return (*shape[:-2], shape[-1], shape[-2]) if adjoint and shape is not None else shape


def batch_matmul(node: Node) -> list[ResultType]:
    """Infer ``[..., M, N]`` from ``[..., M, K]`` and ``[..., K, N]``. Adjoint operands are transposed."""
    a = _matrix(node, 0, bool(option(node, "adjoint_lhs")))
    b = _matrix(node, 1, bool(option(node, "adjoint_rhs")))
    dtype = node.results[0].dtype
    if a is None or b is None:
        return result(node, dtype, None)
    same_dim(node, a[-1], b[-2], "columns of the left and rows of the right matrices")
    return result(node, dtype, (*broadcast(node, a[:-2], b[:-2]), a[-2], b[-1]))


def verify_batch_matmul(node: Node) -> None:
    """Check that left operand and result have the same element type. Results of int8 may be int32."""
    left, out = node.operand(0).dtype, node.results[0].dtype
    if left != out and (left, out) != ("int8", "int32"):
        raise node.error(f"the left operand is {left}, the result {out}; use equal types, or int8 and int32")


def _columns(options: Mapping[str, Any]) -> int:
    return -2 if options["adjoint_rhs"] else -1


_op = OperatorFamily(__name__, verify="own")

SPECS = (
    _op(
        "BATCH_MATMUL",
        "lhs rhs",
        "matrix products over the last two axes, leading axes broadcast",
        options="BatchMatMulOptions",
        version=4,
        quant=QuantRule(stored=MappingProxyType({1: _columns})),
        macs="batch_matmul",
    ),
)
