"""Normalisation over channels: L2_NORMALIZATION, LOCAL_RESPONSE_NORMALIZATION."""

from __future__ import annotations

from odc_mlir.numerics import normalization
from odc_mlir.ops.infer.common import option, require_dtype
from odc_mlir.ops.spec import Execute, Node
from odc_mlir.runtime.kernels.common import EIGHT_BIT, fused_activation, scale_of, unsupported
from odc_mlir.runtime.kernels.unary import unary

_OUT_STEPS = 128  # reciprocal of a quantised result's scale
_TOLERANCE = 1e-3


def l2_normalization(node: Node) -> Execute:
    """Divide ``x [..., C]`` by the norm along the last axis. 8-bit results have the scale 1/128."""
    x, out = node.operand(0), node.results[0]
    require_dtype(node, x, "float32", *EIGHT_BIT)
    if fused_activation(node) != "none":
        raise unsupported(node, f"a normalisation with a fused {fused_activation(node)} is not supported")
    if out.dtype == "float32":
        return unary(node, normalization.l2_normalize)
    scale, out_zero = scale_of(node, out)
    wanted = 0 if out.dtype == "int8" else _OUT_STEPS
    if abs(scale * _OUT_STEPS - 1) > _TOLERANCE or out_zero != wanted:
        raise unsupported(
            node,
            f"the result has scale {scale:g} and zero point {out_zero}; 1/{_OUT_STEPS} and {wanted} are supported",
        )
    _, zero = scale_of(node, x)
    return unary(node, lambda codes: normalization.l2_normalize_codes(codes, zero, out_zero))


def local_response_normalization(node: Node) -> Execute:
    """Divide ``x [N, H, W, C]`` by a power of the energy of neighbouring channels."""
    require_dtype(node, node.operand(0), "float32")
    radius = int(option(node, "radius"))
    bias, alpha, beta = (float(option(node, name)) for name in ("bias", "alpha", "beta"))
    return unary(node, lambda x: normalization.local_response_normalize(x, radius, bias, alpha, beta))
