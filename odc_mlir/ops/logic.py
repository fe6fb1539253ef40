"""Comparisons, Boolean logic, and selections."""

from __future__ import annotations

from odc_mlir.ops.infer.common import broadcast, result, same_dim, same_shape, shape_of, shape_text
from odc_mlir.ops.spec import COMMUTATIVE, ELEMENTWISE, NONE, Node, OperatorFamily, ResultType, Trait, joined


def verify_comparison(node: Node) -> None:
    """Check that both operands have the same element type."""
    a, b = node.operand(0), node.operand(1)
    if a.dtype != b.dtype:
        raise node.error(f"operands are {a.dtype} and {b.dtype}; they must be equal")


def select(node: Node) -> list[ResultType]:
    """Infer the shape of ``x`` and ``y``. The condition has this shape, or is a scalar or a vector."""
    condition, x, y = (shape_of(node, index) for index in range(3))
    shape = same_shape(node, x, y, "the choices")
    if condition and shape is not None:
        if len(condition) == len(shape):
            shape = tuple(
                same_dim(node, a, b, "sizes of condition and result") for a, b in zip(condition, shape, strict=True)
            )
        elif len(condition) == 1 and shape:
            shape = (same_dim(node, condition[0], shape[0], "size of the condition and of the first axis"), *shape[1:])
        else:
            raise node.error(
                f"the condition has the shape {shape_text(condition)}; it must be a scalar, "
                f"a vector along the first axis, or {shape_text(shape)}"
            )
    return result(node, node.operand(1).dtype, shape)


def select_v2(node: Node) -> list[ResultType]:
    """Infer the broadcast shape of condition, ``x`` and ``y``."""
    condition, x, y = (shape_of(node, index) for index in range(3))
    if condition is None or x is None or y is None:
        return result(node, node.operand(1).dtype, None)
    return result(node, node.operand(1).dtype, broadcast(node, broadcast(node, condition, x), y))


_op = OperatorFamily(__name__, gives="output:bool", quant=NONE)
_select = OperatorFamily(
    __name__, verify="same", quant=joined(1, 2), traits=ELEMENTWISE | {Trait.SAME_QUANT}, bounds="moved"
)
_comparison = OperatorFamily(
    __name__,
    gives="output:bool",
    version=3,
    traits=ELEMENTWISE,
    infer="infer.common:comparison",
    verify="verify_comparison",
)

SPECS = (
    _comparison("EQUAL", "lhs rhs", "equal elements", version=4, traits=COMMUTATIVE),
    _comparison("NOT_EQUAL", "lhs rhs", "unequal elements", version=4, traits=COMMUTATIVE),
    _comparison("LESS", "lhs rhs", "comparison: less"),
    _comparison("LESS_EQUAL", "lhs rhs", "comparison: less or equal"),
    _comparison("GREATER", "lhs rhs", "comparison: greater"),
    _comparison("GREATER_EQUAL", "lhs rhs", "comparison: greater or equal"),
    _op(
        "LOGICAL_AND", "lhs:bool rhs:bool", "logical and", traits=COMMUTATIVE, infer="infer.common:binary", verify=None
    ),
    _op("LOGICAL_OR", "lhs:bool rhs:bool", "logical or", traits=COMMUTATIVE, infer="infer.common:binary", verify=None),
    _op("LOGICAL_NOT", "input:bool", "logical not", traits=ELEMENTWISE, infer="infer.common:unary", verify=None),
    _select(
        "SELECT",
        "condition:bool x y",
        "x where the condition is true, else y; a vector of conditions selects rows",
        version=4,
    ),
    _select("SELECT_V2", "condition:bool x y", "x where the condition is true, else y; all broadcast", version=2),
)
