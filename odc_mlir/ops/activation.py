"""Activation functions."""

from __future__ import annotations

import math

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import ELEMENTWISE, Node, OperatorFamily, ResultType, fixed

# Element types of operand and result of a softmax, if the result has finer steps.
SOFTMAX_PAIRS = (("int8", "int16"), ("uint8", "int16"))


def verify_softmax(node: Node) -> None:
    """Check element types and beta."""
    first, last = node.operand(0).dtype, node.results[0].dtype
    if first != last and (first, last) not in SOFTMAX_PAIRS:
        allowed = " or ".join(f"{a} and {b}" for a, b in SOFTMAX_PAIRS)
        raise node.error(f"the operand is {first}, the result {last}; they must be equal, or {allowed}")
    if not math.isfinite(common.option(node, "beta")):
        raise node.error(f"beta is {common.option(node, 'beta')}; it must be finite")
    common.shape_of(node, 0, least=1)


def verify_log_softmax(node: Node) -> None:
    """Check element types and rank."""
    common.verify_first_dtype(node)
    common.shape_of(node, 0, least=1)


def verify_leaky_relu(node: Node) -> None:
    """Check element types and alpha."""
    common.verify_first_dtype(node)
    if not math.isfinite(common.option(node, "alpha")):
        raise node.error(f"alpha is {common.option(node, 'alpha')}; it must be finite")


def prelu(node: Node) -> list[ResultType]:
    """Infer the type of the first operand. The slopes must broadcast to it."""
    x, alpha = common.shape_of(node, 0), common.shape_of(node, 1)
    if x is not None and alpha is not None:
        both = common.broadcast(node, x, alpha)
        if not common.compatible(x, both):
            raise node.error(
                f"alpha has the shape {common.shape_text(alpha)}; it must broadcast to {common.shape_text(x)}"
            )
    return common.result(node, node.operand(0).dtype, x)


_op = OperatorFamily(__name__)
_unary = OperatorFamily(__name__, options=None, version=3, traits=ELEMENTWISE, infer="infer.common:unary")

SPECS = (
    _unary("RELU", "input", "max(x, 0)"),
    _unary("RELU6", "input", "x limited to [0, 6]"),
    _unary("RELU_N1_TO_1", "input", "x limited to [-1, 1]", version=2),
    _unary("RELU_0_TO_1", "input", "x limited to [0, 1]", version=2),
    _unary("LEAKY_RELU", "input", "x if positive, else alpha * x", options="LeakyReluOptions", version=2, verify="own"),
    _op(
        "PRELU",
        "input alpha",
        "x if not negative, else alpha * x; alpha broadcasts to x",
        options=None,
        version=2,
        traits=ELEMENTWISE,
        verify="same",
    ),
    _unary("ELU", "input", "x if not negative, else e^x - 1", version=2),
    _unary(
        "GELU",
        "input",
        "x times the normal distribution function of x, exact or approximated by tanh",
        options="GeluOptions",
    ),
    _unary("HARD_SWISH", "input", "x * clamp(x + 3, 0, 6) / 6", options="HardSwishOptions", version=2),
    _unary("LOGISTIC", "input", "1 / (1 + e^-x)", quant=fixed("logistic")),
    _unary("TANH", "input", "hyperbolic tangent", quant=fixed("tanh")),
    _op(
        "SOFTMAX",
        "input",
        "e^(beta*x) divided by the sum of e^(beta*x) along the last axis",
        version=3,
        quant=fixed("softmax"),
        infer="infer.common:declared",
        verify="own",
    ),
    _op(
        "LOG_SOFTMAX",
        "input",
        "logarithm of the softmax along the last axis",
        version=3,
        quant=fixed("log_softmax"),
        infer="infer.common:unary",
        verify="own",
    ),
)
