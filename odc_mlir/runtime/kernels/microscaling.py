"""Operators on tensors of microscaling types, by an interpretation that a run must enable.

A Circle file holds the element type and the axis of such a tensor, but no public document defines the computation. Here
an operator computes with real numbers, and rounds results of such a type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from odc_mlir.numerics.casts import round_to_blocks
from odc_mlir.ops.infer.common import normal_axis
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import fetch, unsupported

MICROSCALING = ("mxfp4", "mxint8")

# Conversions from and to these types. All other operators compute with real numbers.
_CONVERSIONS = ("QUANTIZE", "DEQUANTIZE")


def prepare_kernel(node: Node) -> Execute:
    """Return the prepared kernel of any operator. Raises OdcError if it cannot run."""
    tensors = (*node.operands, *node.results)
    if any(info is not None and info.dtype in MICROSCALING for info in tensors):
        return _microscaled(node)
    return node.spec.kernel_function(node)


def _microscaled(node: Node) -> Execute:
    if not node.context.microscaling:
        error = unsupported(node, "arithmetic on microscaling types (mxfp4, mxint8) is not published")
        error.hint = "enable our interpretation: Context(microscaling=True)"
        raise error
    real = replace(
        node,
        operands=tuple(info if info is None else _as_real(info) for info in node.operands),
        results=tuple(map(_as_real, node.results)),
    )
    inner = _converted(real) if node.spec.name in _CONVERSIONS else real.spec.kernel_function(real)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        return [_rounded(node, info, value) for info, value in zip(node.results, inner(operands), strict=True)]

    return execute


def _converted(node: Node) -> Execute:
    source = fetch(node, 0)
    if node.operand(0).dtype != "float32" or node.results[0].dtype != "float32":
        raise unsupported(node, "tensors of microscaling types are converted from and to float32 only")
    return lambda operands: [source(operands)]


def _as_real(info: TensorInfo) -> TensorInfo:
    return replace(info, dtype="float32") if info.dtype in MICROSCALING else info


def _rounded(node: Node, info: TensorInfo, value: Array) -> Array:
    if info.dtype not in MICROSCALING:
        return value
    if info.mx_axis is None:
        raise node.error(f"tensor {info.name!r} has no axis of its blocks")
    return round_to_blocks(value, info.dtype, normal_axis(node, info.mx_axis, value.ndim))
