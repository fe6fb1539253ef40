"""Search operators: largest and smallest elements, coordinates, distinct values, boxes, buckets."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from odc_mlir.numerics.detection import select_boxes
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS, PART_ELEMENTS, has_nan, in_pieces, parts
from odc_mlir.ops.infer.common import check_elements, normal_axis, require_dtype
from odc_mlir.ops.search import boundaries
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import PlannedKernel, computed, input_error, planned, single

_INTEGERS = ("uint8", "int8", "int16", "int32", "int64")
_UNIQUE_ARRAYS = 4  # number of index arrays that UNIQUE allocates
_FEW = 1 << 8  # elements up to which a loop is faster than sorting
_ORDERED = ("float32", *_INTEGERS)


def _place(node: Node, best: np.ufunc, search: Callable[..., Any]) -> Execute:
    """Return the kernel for the first index of the best element. NaN is never better than a number."""
    dtype = node.results[0].info.numpy
    require_dtype(node, node.operand(0), *_ORDERED, "bool")

    def make(shape: tuple[int, ...], place: Array) -> PlannedKernel:
        axis = normal_axis(node, int(single(node, place, "the axis")), len(shape))
        if shape[axis] == 0:
            raise input_error(node, f"the input {list(shape)} has no elements along axis {axis}")

        places = list(parts(shape, (axis,), PART_ELEMENTS))

        def first(x: Array) -> Any:
            if x.dtype.kind == "f" and has_nan(x):
                return (x == best.reduce(x, axis=axis, keepdims=True)).argmax(axis)
            return search(x, axis)

        def run(x: Array) -> Array:
            if len(places) < 2:
                return np.asarray(first(x), dtype)
            found = np.empty(shape[:axis] + shape[axis + 1 :], dtype)
            for place in places:
                found[place[:axis] + place[axis + 1 :]] = first(x[place])
            return found

        return run

    return planned(node, 0, (1,), make)


arg_max = partial(_place, best=np.fmax, search=np.ndarray.argmax)
arg_min = partial(_place, best=np.fmin, search=np.ndarray.argmin)


def topk_v2(node: Node) -> Execute:
    """Compute the ``k`` largest elements of each row in descending order, and the indices of these elements."""
    dtype = node.results[1].info.numpy
    require_dtype(node, node.operand(0), *_ORDERED)

    def ranked(x: Array, k: int) -> tuple[Array, Array]:
        keys = np.where(np.isnan(x), -np.inf, x) if x.dtype.kind == "f" and has_nan(x) else x
        # A stable ascending sort of the reversed row, read backwards, is descending and keeps the order of ties.
        ascending = keys[..., ::-1].argsort(-1, "stable")
        places = x.shape[-1] - 1 - ascending[..., : -k - 1 : -1]
        return x.take(places) if x.ndim == 1 else np.take_along_axis(x, places, -1), places.astype(dtype)

    def compute(x: Array, count: Array) -> list[Array]:
        k = max(int(single(node, count, "k")), 0)
        if not x.ndim or k > x.shape[-1]:
            raise input_error(
                node, f"k is {k}; the input of shape {list(x.shape)} allows 0 to {x.shape[-1] if x.ndim else 0}"
            )
        if x.size <= CHUNK_ELEMENTS:
            return list(ranked(x, k))
        check_elements(node, (2, x.shape[-1]), "int64")  # temporaries of sorting a row
        taken, indices = (np.empty((*x.shape[:-1], k), kind) for kind in (x.dtype, dtype))
        for place in parts(x.shape, (x.ndim - 1,)):
            taken[place], indices[place] = ranked(x[place], k)
        return [taken, indices]

    return computed(node, compute, several=True)


def where(node: Node) -> Execute:
    """Compute the coordinates of nonzero elements, in order."""
    require_dtype(node, node.operand(0), *_ORDERED, "uint32", "bool")

    def compute(x: Array) -> Array:
        if not x.ndim:
            raise input_error(node, "the condition is a scalar; its rank must be at least 1")
        sizes = (int(np.count_nonzero(x)), x.ndim)
        check_elements(node, sizes, "int64")
        found = np.empty(sizes, np.int64)
        for axis, places in enumerate(x.nonzero()):
            found[:, axis] = places
        return found

    return computed(node, compute)


def unique(node: Node) -> Execute:
    """Compute distinct values in order of appearance, and the index of each element's value."""
    dtype = node.results[1].info.numpy
    require_dtype(node, node.operand(0), *_ORDERED, "uint16")

    def compute(x: Array) -> list[Array]:
        if x.ndim != 1:
            raise input_error(node, f"the input has the shape {list(x.shape)}; its rank must be 1")
        if x.size <= _FEW and not (x.dtype.kind == "f" and has_nan(x)):
            seen: dict[Any, int] = {}
            found = [seen.setdefault(value, len(seen)) for value in x.tolist()]
            return [np.array(list(seen), x.dtype), np.array(found, dtype)]
        check_elements(node, (_UNIQUE_ARRAYS, x.size), "int64")
        _, firsts, which = np.unique(x, return_index=True, return_inverse=True)
        order = np.argsort(firsts)
        new_place = np.empty_like(order)
        new_place[order] = np.arange(order.size)
        return [x[firsts[order]], new_place[which].astype(dtype)]

    return computed(node, compute, several=True)


def _suppression(node: Node, *, soft: bool) -> Execute:
    for index in (0, 1, *range(3, len(node.operands))):
        require_dtype(node, node.operand(index), "float32")

    def compute(boxes: Array, scores: Array, *limits: Array) -> list[Array]:
        length, *thresholds = (single(node, limit, "a limit").item() for limit in limits)
        if boxes.shape != (scores.size, 4) or scores.ndim != 1:
            raise input_error(node, f"boxes {list(boxes.shape)} and scores {list(scores.shape)} do not fit")
        if length < 0 or (soft and thresholds[2] < 0):
            raise input_error(node, f"max_output_size {length} and sigma must not be negative")
        check_elements(node, (length,), "float32")
        places, finals = select_boxes(boxes, scores, length, *thresholds)
        selected, kept = np.zeros(length, np.int32), np.zeros(length, np.float32)
        selected[: len(places)], kept[: len(places)] = places, finals
        count = np.array(len(places), np.int32)
        return [selected, kept, count] if soft else [selected, count]

    return computed(node, compute, several=True)


non_max_suppression_v4 = partial(_suppression, soft=False)
non_max_suppression_v5 = partial(_suppression, soft=True)


def bucketize(node: Node) -> Execute:
    """Count the boundaries that are less than or equal to each element. Integers are compared as float32."""
    edges = np.array(boundaries(node), np.float32)
    compared = {"float32": np.float32, "float64": np.float64, "int32": np.float32, "int64": np.float32}
    require_dtype(node, node.operand(0), *compared)
    kind = compared[node.operand(0).dtype]

    def compute(x: Array) -> Array:
        return in_pieces(lambda part: np.searchsorted(edges, part.astype(kind), side="right"), x, np.int32)

    return computed(node, compute)
