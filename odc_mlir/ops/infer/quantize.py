"""Checks of conversions between real and quantised values."""

from __future__ import annotations

from odc_mlir.ops.infer.common import declared, verified
from odc_mlir.ops.spec import Node, TensorInfo


def _check_scale(node: Node, info: TensorInfo, what: str) -> None:
    if info.quant is None:
        raise node.error(f"the {what} of {info.dtype} has no scale", tensor=info.name)


def _check_quantize(node: Node) -> None:
    if node.operand(0).info.is_integer:
        _check_scale(node, node.operand(0), "operand")
    _check_scale(node, node.results[0], "result")


def _check_dequantize(node: Node) -> None:
    if node.operand(0).info.is_integer:
        _check_scale(node, node.operand(0), "operand")


verify_quantize = verified(_check_quantize, declared)
verify_dequantize = verified(_check_dequantize, declared)
