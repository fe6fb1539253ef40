"""Conversions between real and quantised values, and between element types."""

from __future__ import annotations

import math

from odc_mlir.ops.infer.common import option, result, shape_of, verify_first_dtype
from odc_mlir.ops.spec import ELEMENTWISE, PURE, Node, Operand, OperatorFamily, ResultType, TensorInfo, real_only

LARGEST_BITS = 16


def _check_scale(node: Node, info: TensorInfo, what: str) -> None:
    if info.info.is_integer and info.quant is None:
        raise node.error(f"the {what} of {info.dtype} has no scale", tensor=info.name)


def verify_quantize(node: Node) -> None:
    """Check that integers have a scale."""
    _check_scale(node, node.operand(0), "operand")
    _check_scale(node, node.results[0], "result")


def verify_dequantize(node: Node) -> None:
    """Check that codes have a scale."""
    _check_scale(node, node.operand(0), "operand")


def verify_fake_quant(node: Node) -> None:
    """Check the range and the number of bits."""
    verify_first_dtype(node)
    least, most, bits = option(node, "min"), option(node, "max"), option(node, "num_bits")
    if not (math.isfinite(least) and math.isfinite(most) and least < most):
        raise node.error(f"the range is {least} to {most}; it must be finite and not empty")
    if not 2 <= bits <= LARGEST_BITS:
        raise node.error(f"num_bits is {bits}; it must be from 2 to {LARGEST_BITS}")


def bitcast(node: Node) -> list[ResultType]:
    """Infer the operand's shape. Smaller elements add an axis, and larger elements remove the last axis."""
    shape, source, target = shape_of(node, 0), node.operand(0), node.results[0]
    small, large = sorted((source.info.bits, target.info.bits))
    if small < 8 or large % small:
        raise node.error(
            f"{source.dtype} and {target.dtype} have sizes that are not whole bytes and multiples of each other"
        )
    if shape is None or small == large:
        return result(node, target.dtype, shape)
    ratio = large // small
    if source.info.bits == large:
        return result(node, target.dtype, (*shape, ratio))
    if not shape or shape[-1] not in (None, ratio):
        raise node.error(f"the last dimension must be {ratio}, so that {source.dtype} make up {target.dtype}")
    return result(node, target.dtype, shape[:-1])


_CONVERTS = real_only("it converts between element types itself")
_X, _Y = (Operand("input"),), (Operand("output"),)


_op = OperatorFamily(__name__, quant=_CONVERTS, traits=ELEMENTWISE, infer="infer.common:declared")

SPECS = (
    _op(
        "QUANTIZE",
        "input",
        "quantisation, or requantisation to another scale, zero point or type",
        version=4,
        verify="own",
        quant=real_only(_CONVERTS.reason, left=(0,)),
    ),
    _op("DEQUANTIZE", "input", "dequantisation", version=7, verify="own"),
    _op(
        "FAKE_QUANT",
        "input",
        "rounding of real values to a quantisation grid",
        version=2,
        infer="infer.common:unary",
        verify="own",
    ),
    _op(
        "CAST",
        "input",
        "conversion to another element type; scales are ignored",
        version=8,
        verify=None,
        kernels="cast",
        bounds="cast",
    ),
    _op(
        "BITCAST",
        "input",
        "reinterpretation of bytes as another element type",
        traits=PURE,
        infer="bitcast",
        verify=None,
        kernels="cast",
    ),
)
