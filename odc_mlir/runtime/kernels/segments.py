"""Reductions of segments of a tensor and of windows over it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.reduction import check_segments, segment_count, window_function, windows_shape
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import by_dtype, fetch, given_values, input_error, ints, single

_NUMBERS = ("float32", "int32")

Combine = Callable[[Array, Array], Any]


def segment_sum(node: Node) -> Execute:
    """Sum neighbouring slices with one segment id; integers wrap around."""
    x_of, ids_of = fetch(node, 0), fetch(node, 1)
    by_dtype(node, node.operand(0), dict.fromkeys(_NUMBERS))

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, ids = x_of(operands), ids_of(operands)
        if ids.shape != x.shape[:1]:
            raise input_error(node, f"there are {ids.size} segment ids for an input {list(x.shape)}")
        with given_values(node, [1]):
            count = segment_count(node, ints(ids))
        out = np.zeros((count, *x.shape[1:]), x.dtype)
        np.add.at(out, ids, x)
        return [out]

    return execute


def _unsorted(node: Node, combine: np.ufunc, start: Callable[[np.dtype], Any]) -> Execute:
    """Return the kernel that combines slices of each segment from ``start`` on; negative ids are ignored."""
    x_of, ids_of, count_of = fetch(node, 0), fetch(node, 1), fetch(node, 2)
    by_dtype(node, node.operand(0), dict.fromkeys(_NUMBERS))

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, ids = x_of(operands), ids_of(operands)
        count = int(single(node, count_of(operands), "num_segments"))
        check_segments(node, x.shape, ids.shape)
        if count < 0 or ids.max(initial=-1) >= count:
            raise input_error(node, f"segment id {ids.max(initial=-1)} is out of range for {count} segments")
        check_elements(node, (count, *x.shape[ids.ndim :]), node.results[0].dtype)
        out = np.full((count, *x.shape[ids.ndim :]), start(x.dtype), x.dtype)
        kept = ids >= 0
        combine.at(out, ids[kept], x[kept])
        return [out]

    return execute


def _least(dtype: np.dtype) -> Any:
    return np.finfo(dtype).min if dtype.kind == "f" else np.iinfo(dtype).min


def _most(dtype: np.dtype) -> Any:
    return np.finfo(dtype).max if dtype.kind == "f" else np.iinfo(dtype).max


def unsorted_segment_prod(node: Node) -> Execute:
    """Multiply the slices of each segment, 1 for an empty segment."""
    return _unsorted(node, np.multiply, lambda dtype: 1)


def unsorted_segment_sum(node: Node) -> Execute:
    """Sum the slices of each segment, 0 for an empty segment."""
    return _unsorted(node, np.add, lambda dtype: 0)


def unsorted_segment_max(node: Node) -> Execute:
    """Compute the largest elements of each segment, the lowest number for an empty segment."""
    return _unsorted(node, np.fmax, _least)


def unsorted_segment_min(node: Node) -> Execute:
    """Compute the smallest elements of each segment, the highest number for an empty segment."""
    return _unsorted(node, np.fmin, _most)


_WINDOW_FUNCTIONS: dict[str, Combine] = {
    "add": np.add,
    "mul": np.multiply,
    "minimum": lambda a, b: np.where(a <= b, a, b),
    "maximum": lambda a, b: np.where(a >= b, a, b),
    "all": lambda a, b: (a != 0) & (b != 0),
    "any": lambda a, b: (a != 0) | (b != 0),
}

_WINDOWED = ("float32", "float64", "bool", *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)))


def reduce_window(node: Node) -> Execute:
    """Combine the elements of each window of operand 0 from operand 1 on; integers wrap around."""
    x_of, start_of, sizes_of = fetch(node, 0), fetch(node, 1), [fetch(node, i) for i in (2, 3, 4)]
    by_dtype(node, node.operand(0), dict.fromkeys(_WINDOWED))
    combine = _WINDOW_FUNCTIONS[window_function(node)]

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        window, strides, dilations = (ints(source(operands)) for source in sizes_of)
        sizes = [d or 0 for d in windows_shape(node, x.shape, window, strides, dilations)]
        total = np.full(sizes, single(node, start_of(operands), "the initial value"), x.dtype)
        for taps in itertools.product(*map(range, window)):
            first = [tap * dilation for tap, dilation in zip(taps, dilations, strict=True)]
            view = x[tuple(slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, sizes, strides, strict=True))]
            total = np.asarray(combine(total, view)).astype(x.dtype, copy=False)
        return [total]

    return execute
