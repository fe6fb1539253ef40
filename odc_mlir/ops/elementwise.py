"""Element-wise arithmetic: unary, binary with broadcasting, and sums of many operands."""

from __future__ import annotations

from dataclasses import replace

from odc_mlir.ops.infer import common
from odc_mlir.ops.spec import (
    COMMUTATIVE,
    ELEMENTWISE,
    NONE,
    Node,
    OperatorFamily,
    QuantRule,
    ResultType,
    Shape,
    joined,
    real_only,
)


def add_n(node: Node) -> list[ResultType]:
    """Infer the sum of tensors of equal shape."""
    found: Shape | None = None
    for index in range(len(node.operands)):
        found = common.same_shape(node, found, common.shape_of(node, index), "operands, which are not broadcast,")
    return common.result(node, node.operand(0).dtype, found)


def verify_add_n(node: Node) -> None:
    """Check that there are operands, with the result's element type."""
    if not node.operands:
        raise node.error("takes at least 1 operand, found 0")
    common.verify_same_dtype(node)


_OF_POSITIVE = QuantRule(not_negative=(0,))


_op = OperatorFamily(__name__)
_binary = OperatorFamily(__name__, traits=ELEMENTWISE, infer="infer.common:binary", verify="same")
_steps = replace(_binary, version=3, quant=real_only("integer quotients of codes differ from those of real values"))
_extreme = replace(_binary, options="MaximumMinimumOptions", version=5, quant=joined())
_unary = OperatorFamily(
    __name__,
    options=None,
    version=2,
    traits=ELEMENTWISE,
    infer="infer.common:unary",
    kernels="unary",
)

SPECS = (
    _binary("ADD", "lhs rhs", "sum of two tensors", version=6, traits=COMMUTATIVE, bounds="add"),
    _binary("SUB", "lhs rhs", "difference of two tensors", version=5, bounds="sub"),
    _binary("MUL", "lhs rhs", "product of two tensors", version=8, traits=COMMUTATIVE, bounds="mul"),
    _binary("DIV", "lhs rhs", "quotient of two tensors", version=3, quant=QuantRule(not_zero=(1,))),
    _steps("FLOOR_DIV", "lhs rhs", "quotient rounded down", bounds="floor_div"),
    _steps("FLOOR_MOD", "lhs rhs", "remainder with the sign of the divisor", bounds="floor_mod"),
    _binary("POW", "lhs rhs", "power of one tensor by another", version=2),
    _binary("ATAN2", "lhs rhs", "angle of the point (x, y) = (rhs, lhs)", options="ATan2Options", version=2),
    _binary("SQUARED_DIFFERENCE", "lhs rhs", "square of the difference of two tensors", version=2, traits=COMMUTATIVE),
    _extreme("MAXIMUM", "lhs rhs", "larger of two elements", bounds="maximum"),
    _extreme("MINIMUM", "lhs rhs", "smaller of two elements", bounds="minimum"),
    _binary("BITWISE_XOR", "lhs rhs", "bitwise exclusive or", quant=NONE, traits=COMMUTATIVE),
    _binary("RIGHT_SHIFT", "lhs rhs", "arithmetic shift to the right", quant=NONE),
    _op("ADD_N", "inputs...", "sum of tensors of one shape", version=2, traits=COMMUTATIVE, verify="own"),
    _unary("FLOOR", "input", "rounding down to an integer"),
    _unary("CEIL", "input", "rounding up to an integer"),
    _unary("ROUND", "input", "rounding to the nearest integer, halves to even"),
    _unary("ABS", "input", "absolute value", options="AbsOptions", version=6, kernel="absolute"),
    _unary("NEG", "input", "negative value", options="NegOptions"),
    _unary("SIGN", "input", "sign: -1, 0 or 1", options="SignOptions"),
    _unary("SQUARE", "input", "square", options="SquareOptions"),
    _unary("SQRT", "input", "square root", quant=_OF_POSITIVE),
    _unary("RSQRT", "input", "one over the square root", version=4, quant=_OF_POSITIVE),
    _unary("EXP", "input", "e^x", options="ExpOptions", version=3),
    _unary("LOG", "input", "natural logarithm", version=3),
    _unary("SIN", "input", "sine"),
    _unary("COS", "input", "cosine", options="CosOptions"),
)
