"""Activation functions."""

from __future__ import annotations

import math

from odc_mlir.ops.infer import common
from odc_mlir.ops.quantization import fixed
from odc_mlir.ops.spec import ELEMENTWISE, Node, OperatorFamily, ResultType

# Element types of softmax results with finer steps than the operand's type.
SOFTMAX_PAIRS = (("int8", "int16"), ("uint8", "int16"))


def _check_rows(node: Node) -> None:
    shape = common.shape_of(node, 0)
    if shape is not None and not shape:
        raise node.error("the operand is a scalar; it must have at least one dimension")


def _check_softmax(node: Node) -> None:
    first, last = node.operand(0).dtype, node.results[0].dtype
    if first != last and (first, last) not in SOFTMAX_PAIRS:
        allowed = " or ".join(f"{a} and {b}" for a, b in SOFTMAX_PAIRS)
        raise node.error(f"the operand is {first}, the result {last}; they must be equal, or {allowed}")
    if not math.isfinite(common.option(node, "beta")):
        raise node.error(f"beta is {common.option(node, 'beta')}; it must be finite")
    _check_rows(node)


def softmax(node: Node) -> list[ResultType]:
    """Infer the operand's shape and the declared element type (int8 may give int16)."""
    return common.declared(node)


def _check_log_softmax(node: Node) -> None:
    common.verify_first_dtype(node)
    _check_rows(node)


def _check_leaky_relu(node: Node) -> None:
    common.verify_first_dtype(node)
    if not math.isfinite(common.option(node, "alpha")):
        raise node.error(f"alpha is {common.option(node, 'alpha')}; it must be finite")


def prelu(node: Node) -> list[ResultType]:
    """Infer the type of the first operand, to which the slopes must broadcast."""
    x, alpha = common.shape_of(node, 0), common.shape_of(node, 1)
    if x is not None and alpha is not None:
        both = common.broadcast(node, x, alpha)
        if len(both) != len(x) or any(a is not None and b is not None and a != b for a, b in zip(x, both, strict=True)):
            raise node.error(
                f"alpha has the shape {common.shape_text(alpha)}; it must broadcast to {common.shape_text(x)}"
            )
    return common.result(node, node.operand(0).dtype, x)


verify_softmax = common.verified(_check_softmax, softmax)
verify_log_softmax = common.verified(_check_log_softmax, common.unary)
verify_leaky_relu = common.verified(_check_leaky_relu, common.unary)
verify_prelu = common.verified(common.verify_same_dtype, prelu)


_op = OperatorFamily(__name__)
_unary = OperatorFamily(
    __name__, options=None, version=3, traits=ELEMENTWISE, infer="infer.common:unary", verify="elementwise:verify_unary"
)

SPECS = (
    _unary("RELU", "input", "max(x, 0)"),
    _unary("RELU6", "input", "x limited to [0, 6]"),
    _unary("RELU_N1_TO_1", "input", "x limited to [-1, 1]", version=2),
    _unary("RELU_0_TO_1", "input", "x limited to [0, 1]", version=2),
    _op(
        "LEAKY_RELU",
        "input",
        "x if positive, else alpha * x",
        version=2,
        traits=ELEMENTWISE,
        infer="infer.common:unary",
    ),
    _op(
        "PRELU",
        "input alpha",
        "x if not negative, else alpha * x; alpha broadcasts to x",
        options=None,
        version=2,
        traits=ELEMENTWISE,
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
    _op("SOFTMAX", "input", "e^(beta*x) along the last axis, divided by their sum", version=3, quant=fixed("softmax")),
    _op(
        "LOG_SOFTMAX",
        "input",
        "logarithm of the softmax along the last axis",
        version=3,
        quant=fixed("log_softmax"),
        infer="infer.common:unary",
    ),
)
