"""Comparisons, logic on booleans, and choices between tensors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from odc_mlir.numerics import lut
from odc_mlir.numerics.comparison import LARGEST_ORDERED, common_scale, compare_params, threshold_table
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS, FEW_ELEMENTS, choose, in_pairs
from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels import common
from odc_mlir.runtime.kernels.elementwise import Compute, broadcasting, coded_pairs
from odc_mlir.runtime.kernels.unary import LaterTable, unary

_COMPARED = (*common.FLOATS, "float64", *common.CODES, "int32", "int64")


def _comparison(node: Node, function: np.ufunc, others: tuple[str, ...] = (), *, exact: bool = True) -> Execute:
    """Return the kernel of a comparison; ``exact``: 16-bit codes of one scale are compared directly."""
    a, b = node.operand(0), node.operand(1)
    require_dtype(node, a, *_COMPARED, *others)
    if a.dtype == "string":
        return broadcasting(node, lambda a, b: function(_texts(a), _texts(b)).astype(bool))
    if not _needs_scales(a, b, exact):
        return broadcasting(node, lambda a, b: np.asarray(function(a, b)))
    left, right = _scaling(node, a), _scaling(node, b)

    def compare(a: Array, b: Array) -> Array:
        return in_pairs(lambda a, b: function(left(a), right(b)), a, b, bool)

    return broadcasting(
        node, _by_threshold(node, function, compare) if exact and a.dtype == "int16" else coded_pairs(node, compare)
    )


# The comparison with thresholds, and True if these belong to "less or equal".
_THRESHOLDS: dict[np.ufunc, tuple[np.ufunc, bool]] = {
    np.less: (np.less, False),
    np.less_equal: (np.less, True),
    np.greater: (np.greater_equal, True),
    np.greater_equal: (np.greater_equal, False),
}
_TURNED: dict[np.ufunc, np.ufunc] = {
    np.less: np.greater,
    np.less_equal: np.greater_equal,
    np.greater: np.less,
    np.greater_equal: np.less_equal,
}


def _by_threshold(node: Node, function: np.ufunc, compare: Compute) -> Compute:
    """Return ``compare`` on int16 codes, for many by thresholds of the operand with fewer elements."""
    infos = node.operand(0), node.operand(1)
    scaled = []
    for info in infos:
        scale, zero = common.scale_of(node, info)
        if scale >= LARGEST_ORDERED or abs(zero) >= 1 << 15:
            return compare
        scaled.append((zero, *compare_params(scale)))
    usual = _THRESHOLDS[function]
    turned = _THRESHOLDS[_TURNED[function]]
    for_second = LaterTable(lambda: threshold_table(scaled[0], scaled[1], inclusive=usual[1]))
    for_first = LaterTable(lambda: threshold_table(scaled[1], scaled[0], inclusive=turned[1]))

    def thresholds(a: Array, b: Array) -> Array:
        second = b.size <= a.size
        later, (one, other), how = (for_second, (a, b), usual[0]) if second else (for_first, (b, a), turned[0])
        table = later.after(max(a.size, b.size))
        if table is None:
            return compare(a, b)
        if other.size <= CHUNK_ELEMENTS:
            found = table.take(other.view(np.uint16))
            if int(found.min(initial=0)) <= np.iinfo(np.int16).min:
                return in_pairs(how, one, found, bool)
            last = (found - 1).astype(np.int16)  # 16-bit comparisons take half of the time
            return in_pairs(np.less_equal if how is np.less else np.greater, one, last, bool)
        return in_pairs(lambda one, other: how(one, table.take(other.view(np.uint16))), one, other, bool)

    return thresholds


def _needs_scales(a: TensorInfo, b: TensorInfo, exact: bool) -> bool:
    if a.dtype in common.EIGHT_BIT:
        return True
    if a.dtype != "int16" or not (common.is_quantised(a) and common.is_quantised(b)):
        return False
    return not exact or a.quant != b.quant


def _scaling(node: Node, info: TensorInfo) -> Callable[[Array], Array]:
    scale, zero = common.scale_of(node, info)
    q, e = compare_params(scale)
    if info.dtype in common.EIGHT_BIT:
        return lambda codes: common_scale(codes, zero, q, e)
    later = LaterTable(lambda: common_scale(lut.codes_by_bits(info.info.numpy), zero, q, e))

    def scaled(codes: Array) -> Array:
        table = later.after(codes.size)
        return common_scale(codes, zero, q, e) if table is None else lut.apply(table, codes)

    return scaled


def _texts(values: Array) -> Array:
    """Return strings as bytes."""
    texts = np.empty(values.size, object)
    texts[:] = [value.encode() if isinstance(value, str) else bytes(value) for value in values.ravel().tolist()]
    return texts.reshape(values.shape)


equal = partial(_comparison, function=np.equal, others=("bool", "string"), exact=False)
not_equal = partial(_comparison, function=np.not_equal, others=("bool", "string"), exact=False)
less = partial(_comparison, function=np.less)
less_equal = partial(_comparison, function=np.less_equal)
greater = partial(_comparison, function=np.greater)
greater_equal = partial(_comparison, function=np.greater_equal)
logical_and = partial(broadcasting, compute=np.logical_and)
logical_or = partial(broadcasting, compute=np.logical_or)
logical_not = partial(unary, compute=np.logical_not)


def select(node: Node) -> Execute:
    """Choose ``x`` where the condition holds, else ``y``; a vector chooses along the first axis."""

    def aligned(condition: Array, x: Array, y: Array) -> Array:
        if x.shape != y.shape:
            raise common.input_error(node, f"the choices have the shapes {list(x.shape)} and {list(y.shape)}")
        if condition.ndim == 1 and x.ndim > 1 and condition.shape == x.shape[:1]:
            return condition.reshape(-1, *(1,) * (x.ndim - 1))
        if condition.shape not in ((), x.shape):
            raise common.input_error(
                node, f"the condition {list(condition.shape)} does not fit choices {list(x.shape)}"
            )
        return condition

    return _choice(node, aligned)


def select_v2(node: Node) -> Execute:
    """Choose ``x`` where the condition holds, else ``y``; all three broadcast."""
    return _choice(node, lambda condition, x, y: condition)


def _choice(node: Node, aligned: Callable[[Array, Array, Array], Array]) -> Execute:
    out = node.results[0]
    sources = [common.fetch(node, index) for index in range(3)]
    condition_of, x_of, y_of = sources
    few: tuple[tuple[int, ...], ...] = ()  # shapes that fit, of few elements

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        nonlocal few
        condition, x, y = condition_of(operands), x_of(operands), y_of(operands)
        shapes = condition.shape, x.shape, y.shape
        condition = aligned(condition, x, y)
        if shapes == few:
            return [np.where(condition, x, y)]
        try:
            shape = np.broadcast_shapes(condition.shape, x.shape, y.shape)
        except ValueError:
            listed = [list(array.shape) for array in (condition, x, y)]
            raise common.input_error(node, f"shapes {listed} cannot be broadcast") from None
        check_elements(node, shape, out.dtype)
        if math.prod(shape) <= FEW_ELEMENTS:
            few = shapes
        return [choose(condition, x, y)]

    return execute
