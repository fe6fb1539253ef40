"""Comparisons, logic on booleans, and choices between tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from odc_mlir.numerics.elementwise import common_scale, compare_params
from odc_mlir.numerics.pieces import choose, in_pairs
from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels import common
from odc_mlir.runtime.kernels.elementwise import broadcasting, coded_pairs
from odc_mlir.runtime.kernels.unary import unary

_COMPARED = (*common.FLOATS, "float64", *common.CODES, "int32", "int64")


def _comparison(node: Node, function: np.ufunc, others: tuple[str, ...] = ()) -> Execute:
    """Return the kernel of a comparison."""
    a, b = node.operand(0), node.operand(1)
    require_dtype(node, a, *_COMPARED, *others)
    if a.dtype == "string":
        return broadcasting(node, lambda a, b: function(_texts(a), _texts(b)).astype(bool))
    if not needs_scales(node):
        return broadcasting(node, lambda a, b: np.asarray(function(a, b)))
    left, right = _scaling(node, a), _scaling(node, b)

    def compare(a: Array, b: Array) -> Array:
        return in_pairs(lambda a, b: function(left(a), right(b)), a, b, bool)

    return broadcasting(node, coded_pairs(node, compare))


def needs_scales(node: Node) -> bool:
    """Return whether a comparison first brings codes to a common scale, as for all codes except ordered int16 codes."""
    a, b = node.operand(0), node.operand(1)
    if a.dtype in common.EIGHT_BIT:
        return True
    if a.dtype != "int16" or not (common.is_quantised(a) and common.is_quantised(b)):
        return False
    return node.spec.name in ("EQUAL", "NOT_EQUAL") or a.quant != b.quant


def _scaling(node: Node, info: TensorInfo) -> Callable[[Array], Array]:
    scale, zero = common.scale_of(node, info)
    q, e = compare_params(scale)
    return lambda codes: common_scale(codes, zero, q, e)


def _texts(values: Array) -> Array:
    texts = np.empty(values.size, object)
    texts[:] = [value.encode() if isinstance(value, str) else bytes(value) for value in values.ravel().tolist()]
    return texts.reshape(values.shape)


equal = partial(_comparison, function=np.equal, others=("bool", "string"))
not_equal = partial(_comparison, function=np.not_equal, others=("bool", "string"))
less = partial(_comparison, function=np.less)
less_equal = partial(_comparison, function=np.less_equal)
greater = partial(_comparison, function=np.greater)
greater_equal = partial(_comparison, function=np.greater_equal)
logical_and = partial(broadcasting, compute=np.logical_and)
logical_or = partial(broadcasting, compute=np.logical_or)
logical_not = partial(unary, compute=np.logical_not)


def select(node: Node) -> Execute:
    """Choose ``x`` if the condition holds, else ``y``. A vector of conditions chooses along the first axis."""

    def aligned(condition: Array, x: Array, y: Array) -> Array:
        if x.shape != y.shape:
            raise common.input_error(
                node, f"the choices have the shapes {list(x.shape)} and {list(y.shape)}; they must be equal"
            )
        if condition.ndim == 1 and x.ndim > 1 and condition.shape == x.shape[:1]:
            return condition.reshape(-1, *(1,) * (x.ndim - 1))
        if condition.shape not in ((), x.shape):
            raise common.input_error(
                node, f"the condition {list(condition.shape)} does not fit choices {list(x.shape)}"
            )
        return condition

    return _choice(node, aligned)


def select_v2(node: Node) -> Execute:
    """Choose ``x`` if the condition holds, else ``y``. All three broadcast."""
    return _choice(node, lambda condition, x, y: condition)


def _choice(node: Node, aligned: Callable[[Array, Array, Array], Array]) -> Execute:
    out = node.results[0]
    condition_of, x_of, y_of = (common.fetch(node, index) for index in range(3))

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        condition, x, y = condition_of(operands), x_of(operands), y_of(operands)
        condition = aligned(condition, x, y)
        try:
            shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
        except ValueError:
            listed = [list(array.shape) for array in (condition, x, y)]
            raise common.input_error(node, f"shapes {listed} cannot be broadcast") from None
        check_elements(node, shape, out.dtype)
        return [choose(condition, x, y)]

    return execute
