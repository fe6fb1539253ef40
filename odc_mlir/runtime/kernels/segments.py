"""Reductions over segments and windows of a tensor."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.reduction import check_segments, segment_count, window_function, windows_shape
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import computed, given_values, input_error, ints, single

_NUMBERS = ("float32", "int32")

Combine = Callable[[Array, Array], Any]


def segment_sum(node: Node) -> Execute:
    """Sum neighbouring slices with the same segment id. Integers wrap around."""
    require_dtype(node, node.operand(0), *_NUMBERS)

    def compute(x: Array, ids: Array) -> Array:
        if ids.shape != x.shape[:1]:
            raise input_error(node, f"there are {ids.size} segment ids for an input {list(x.shape)}")
        with given_values(node, [1]):
            count = segment_count(node, ints(ids))
        out = np.zeros((count, *x.shape[1:]), x.dtype)
        np.add.at(out, ids, x)
        return out

    return computed(node, compute)


def _unsorted(node: Node, combine: np.ufunc, start: int | str) -> Execute:
    """Combine the slices of each segment. Ignore negative ids. ``start``: initial number, or a name of a limit"""
    require_dtype(node, node.operand(0), *_NUMBERS)

    def compute(x: Array, ids: Array, segments: Array) -> Array:
        count = int(single(node, segments, "num_segments"))
        check_segments(node, x.shape, ids.shape)
        if count < 0 or ids.max(initial=-1) >= count:
            raise input_error(node, f"segment id {ids.max(initial=-1)} is out of range for {count} segments")
        check_elements(node, (count, *x.shape[ids.ndim :]), node.results[0].dtype)
        limits = np.finfo(x.dtype) if x.dtype.kind == "f" else np.iinfo(x.dtype)
        first = getattr(limits, start) if isinstance(start, str) else start
        out = np.full((count, *x.shape[ids.ndim :]), first, x.dtype)
        kept = ids >= 0
        combine.at(out, ids[kept], x[kept])
        return out

    return computed(node, compute)


unsorted_segment_prod = partial(_unsorted, combine=np.multiply, start=1)
unsorted_segment_sum = partial(_unsorted, combine=np.add, start=0)
unsorted_segment_max = partial(_unsorted, combine=np.fmax, start="min")
unsorted_segment_min = partial(_unsorted, combine=np.fmin, start="max")


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
    """Combine the elements of each window of operand 0, starting from operand 1. Integers wrap around."""
    require_dtype(node, node.operand(0), *_WINDOWED)
    combine = _WINDOW_FUNCTIONS[window_function(node)]

    def compute(x: Array, start: Array, *sizes_of: Array) -> Array:
        window, strides, dilations = map(ints, sizes_of)
        sizes = [d or 0 for d in windows_shape(node, x.shape, window, strides, dilations)]
        total = np.full(sizes, single(node, start, "the initial value"), x.dtype)
        for taps in itertools.product(*map(range, window)):
            first = [tap * dilation for tap, dilation in zip(taps, dilations, strict=True)]
            view = x[tuple(slice(f, f + (n - 1) * s + 1, s) for f, n, s in zip(first, sizes, strides, strict=True))]
            total = np.asarray(combine(total, view)).astype(x.dtype, copy=False)
        return total

    return computed(node, compute)
