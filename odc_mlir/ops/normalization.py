"""Normalisation over channels, the last axis."""

from __future__ import annotations

import math

from odc_mlir.ops.infer.common import option, shape_of, verify_first_dtype
from odc_mlir.ops.spec import Node, OperatorFamily, fixed

LARGEST_RADIUS = 1 << 20


def verify_l2_normalization(node: Node) -> None:
    """Check element types and rank."""
    verify_first_dtype(node)
    shape_of(node, 0, least=1)


def verify_local_response_normalization(node: Node) -> None:
    """Check radius and coefficients."""
    verify_first_dtype(node)
    shape_of(node, 0, 4)
    radius = int(option(node, "radius"))
    if not 0 <= radius <= LARGEST_RADIUS:
        raise node.error(f"radius is {radius}; it must be from 0 to {LARGEST_RADIUS}")
    for name in ("bias", "alpha", "beta"):
        if not math.isfinite(option(node, name)):
            raise node.error(f"{name} is {option(node, name)}; it must be finite")


_op = OperatorFamily(__name__, infer="infer.common:unary", verify="own")

SPECS = (
    _op(
        "L2_NORMALIZATION",
        "input",
        "channels divided by their L2 norm",
        options="L2NormOptions",
        version=2,
        quant=fixed("l2_normalization"),
    ),
    _op(
        "LOCAL_RESPONSE_NORMALIZATION",
        "input",
        "channels divided by a power of the energy of adjacent channels",
    ),
)
