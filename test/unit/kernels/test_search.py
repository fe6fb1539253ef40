"""Kernels that find and reduce: definitions by numpy, laws, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from helpers.nodes import const, node, quant, run, run_all, tensor
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.ops.spec import Node, TensorInfo

Array = NDArray[Any]
SMALL = arrays.arrays(np.int32, arrays.array_shapes(max_dims=3, max_side=5), elements=st.integers(-3, 3))
VECTOR = arrays.arrays(np.int8, st.integers(0, 12), elements=st.integers(-3, 3))
X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LATER = tensor("int32", None)


def made(name: str, operands: list[TensorInfo | None], *results: str, **options: Any) -> Node:
    return node(name, operands, [tensor(dtype, None) for dtype in results], **options)


def of(x: Array) -> TensorInfo:
    return tensor(x.dtype.name, x.shape)


@given(SMALL, st.data())
def test_the_first_of_the_best(x: Array, data: st.DataObject) -> None:
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    for name, best in (("ARG_MAX", np.max), ("ARG_MIN", np.min)):
        found = run(made(name, [of(x), const(axis)], "int64", output_type="int64"), x)
        values = np.take_along_axis(x, np.expand_dims(found, axis), axis)
        assert (values.squeeze(axis) == best(x, axis=axis)).all()
        moved = np.moveaxis(x, axis, -1)
        for place in np.ndindex(found.shape):
            assert moved[place][found[place]] not in moved[place][: found[place]]


@given(SMALL, st.data())
def test_the_largest_in_order(x: Array, data: st.DataObject) -> None:
    k = data.draw(st.integers(0, x.shape[-1]))
    values, places = run_all(made("TOPK_V2", [of(x), const(k)], "int32", "int16"), x)
    assert (np.take_along_axis(x, places.astype(np.int64), -1) == values).all()
    rows = x.reshape(-1, x.shape[-1])
    for row, taken in zip(rows, places.reshape(len(rows), k), strict=True):
        assert taken.tolist() == sorted(range(len(row)), key=lambda i: (-row[i], i))[:k]


def test_nothing_is_larger_than_the_least_number() -> None:
    """Codes at the ends of their range, and reals that are not numbers."""
    for x in (np.array([-128, 127, -128], np.int8), np.array([0, 255, 0], np.uint8)):
        values, places = run_all(made("TOPK_V2", [of(x), const(3)], x.dtype.name, "int32"), x)
        assert places.tolist() == [1, 0, 2]
    x = np.array([np.nan, 1, np.inf, np.nan], np.float32)
    _, places = run_all(made("TOPK_V2", [of(x), const(3)], "float32", "int32"), x)
    assert places.tolist() == [2, 1, 0]


@given(SMALL)
def test_places_that_are_not_zero(x: Array) -> None:
    found = run(made("WHERE", [of(x)], "int64"), x)
    assert found.tolist() == [list(place) for place in np.ndindex(x.shape) if x[place]]


@given(VECTOR)
def test_distinct_values_in_order_of_appearance(x: Array) -> None:
    values, which = run_all(made("UNIQUE", [of(x)], "int8", "int64", idx_out_type="int64"), x)
    assert values.tolist() == list(dict.fromkeys(x.tolist()))
    assert values[which].tolist() == x.tolist()


def test_buckets() -> None:
    x = np.array([[-2, -1, -0.5], [0, 7, np.nan]], np.float32)
    found = run(made("BUCKETIZE", [of(x)], "int32", boundaries=(-1.0, 0.0)), x)
    assert found.tolist() == [[0, 1, 1], [2, 2, 2]]
    assert run(made("BUCKETIZE", [of(x)], "int32"), x).tolist() == [[0] * 3] * 2


@given(SMALL, st.booleans(), st.booleans())
def test_running_sums(x: Array, exclusive: bool, reverse: bool) -> None:
    found = run(made("CUMSUM", [of(x), const(-1)], "int32", exclusive=exclusive, reverse=reverse), x)
    for row, sums in zip(x.reshape(-1, x.shape[-1]), found.reshape(-1, x.shape[-1]), strict=True):
        for i, total in enumerate(sums):
            taken = row[i + exclusive :] if reverse else row[: i + 1 - exclusive]
            assert total == taken.sum()


@given(SMALL, st.data())
def test_a_reduction_in_two_steps(x: Array, data: st.DataObject) -> None:
    axes = sorted(data.draw(st.sets(st.integers(0, x.ndim - 1))))
    for name in ("SUM", "REDUCE_PROD", "REDUCE_MAX", "REDUCE_MIN"):
        found = run(made(name, [of(x), const(axes)], "int32", keep_dims=True), x)
        step = x
        for axis in axes:
            step = run(made(name, [of(step), const([axis - x.ndim])], "int32", keep_dims=True), step)
        assert (found == step).all()


def test_integers_wrap() -> None:
    x = np.array([2**31 - 1, 2], np.int32)
    assert run(made("SUM", [of(x), const([0])], "int32"), x) == -(2**31) + 1
    assert run(made("REDUCE_PROD", [of(x), const([0])], "int32"), x) == -2
    assert run(made("CUMSUM", [of(x), const(0)], "int32"), x).tolist() == [2**31 - 1, -(2**31) + 1]


def test_codes_of_nothing() -> None:
    """The sum of nothing is the real 0, the product the real 1."""
    x = np.zeros((2, 0), np.int8)
    for name, code in (("SUM", 5), ("REDUCE_PROD", 15)):
        params = quant(0.1, 5)
        reduced = node(name, [tensor("int8", x.shape, params), const([1])], tensor("int8", None, params))
        assert run(reduced, x).tolist() == [code, code]


def test_segments() -> None:
    x = np.array([[1, 2], [3, 4], [5, 6]], np.float32)
    sums = made("SEGMENT_SUM", [of(x), LATER], "float32")
    assert run(sums, x, np.array([0, 0, 1], np.int32)).tolist() == [[4, 6], [5, 6]]
    ids = np.array([2, -1, 2], np.int32)
    expected = {"SUM": [6, 8], "PROD": [5, 12], "MAX": [5, 6], "MIN": [1, 2]}
    empty = {"SUM": 0.0, "PROD": 1.0, "MAX": np.finfo(np.float32).min, "MIN": np.finfo(np.float32).max}
    for kind, values in expected.items():
        found = run(made(f"UNSORTED_SEGMENT_{kind}", [of(x), LATER, const(3)], "float32"), x, ids)
        assert found.tolist() == [[empty[kind]] * 2, [empty[kind]] * 2, values]
    whole = run(made("UNSORTED_SEGMENT_MAX", [of(x.astype(np.int32)), LATER, const(2)], "int32"),
                x.astype(np.int32), np.zeros((3, 2), np.int32))  # fmt: skip
    assert whole.tolist() == [6, np.iinfo(np.int32).min]


def test_windows_start_from_the_initial_value() -> None:
    x = np.arange(6, dtype=np.int8).reshape(2, 3)
    sizes = [const([1, 2]), const([1, 1]), const([1, 1])]
    window = made("REDUCE_WINDOW", [of(x), const(100, "int8"), *sizes], "int8", reduce_function="add")
    assert run(window, x).tolist() == [[101, 103], [107, 109]]
    window = made("REDUCE_WINDOW", [of(x), const(100, "int8"), *sizes], "int8", reduce_function="any")
    assert run(window, x).tolist() == [[1, 1], [1, 1]]


def test_selected_boxes_fill_up_with_zeros() -> None:
    boxes = np.array([[0, 0, 1, 1], [0, 0, 1, 0.9], [2, 2, 3, 3]], np.float32)
    scores = np.array([0.5, 0.9, 0.7], np.float32)
    limits = [LATER, const(0.5, "float32"), const(0.6, "float32")]
    hard = made("NON_MAX_SUPPRESSION_V4", [of(boxes), of(scores), *limits], "int32", "int32")
    places, count = run_all(hard, boxes, scores, np.array(4, np.int32))
    assert (places.tolist(), count) == ([1, 2, 0, 0], 2)


@pytest.mark.parametrize(
    ("given", "values", "message"),
    [
        (made("ARG_MAX", [tensor("int32", None), LATER], "int64"), [[[1]], 2], "axis 2 is out of range"),
        (made("ARG_MAX", [tensor("int32", None), LATER], "int64"), [np.zeros((2, 0)), 1], "no elements along axis 1"),
        (made("TOPK_V2", [LATER, LATER], "int32", "int32"), [[1, 2], 3], r"k is 3; .* \[2\] allows 0 to 2"),
        (made("TOPK_V2", [LATER, LATER], "int32", "int32"), [[1, 2], [1, 1]], "k has the shape .* one element"),
        (made("WHERE", [LATER], "int64"), [1], "the condition is a scalar"),
        (made("UNIQUE", [LATER], "int32", "int32"), [[[1]]], "its rank must be 1"),
        (
            made("NON_MAX_SUPPRESSION_V4", [tensor("float32", None)] * 2 + [LATER] + [tensor("float32", None)] * 2,
                 "int32", "int32"),
            [np.zeros((3, 4)), [1, 2], 1, 0, 0],
            r"boxes \[3, 4\] and scores \[2\] do not fit",
        ),
        (
            made("NON_MAX_SUPPRESSION_V5", [tensor("float32", None)] * 2 + [LATER] + [tensor("float32", None)] * 3,
                 "int32", "float32", "int32"),
            [np.zeros((2, 4)), [1, 2], 1, 0, 0, -1],
            "max_output_size 1 and sigma must not be negative",
        ),
        (made("SUM", [LATER, LATER], "int32"), [[1, 2], [1]], "axis 1 is out of range"),
        (made("CUMSUM", [LATER, LATER], "int32"), [[1, 2], [0, 0]], "the axis .* one element"),
        (made("SEGMENT_SUM", [LATER, LATER], "int32"), [[1, 2], [0, 2]], "go from 0 to 2"),
        (made("SEGMENT_SUM", [LATER, LATER], "int32"), [[1, 2], [0]], "1 segment ids for an input"),
        (made("UNSORTED_SEGMENT_SUM", [LATER] * 3, "int32"), [[1, 2], [0, 3], 3], "segment id 3 is out of range for 3"),
        (made("UNSORTED_SEGMENT_SUM", [LATER] * 3, "int32"), [[1, 2], [0], 3], "segment ids have the shape"),
        (
            made("REDUCE_WINDOW", [LATER] * 5, "int32", reduce_function="add"),
            [[1, 2], 0, [3], [1], [1]],
            "does not fit into the operand",
        ),
    ],
)  # fmt: skip
def test_run_time_operands_that_do_not_fit(given: Node, values: list[Any], message: str) -> None:
    bound = [np.asarray(v, info.info.numpy) for v, info in zip(values, given.operands, strict=True) if info is not None]
    with pytest.raises(OdcError, match=message):
        given.spec.kernel_function(given)(bound)


@pytest.mark.parametrize(
    "given",
    [
        made("ARG_MAX", [tensor("string", None), LATER], "int64"),
        made("TOPK_V2", [tensor("bool", None), LATER], "bool", "int32"),
        made("WHERE", [tensor("string", None)], "int64"),
        made("UNIQUE", [tensor("string", None)], "string", "int32"),
        made("BUCKETIZE", [tensor("int8", None)], "int32"),
        made("SUM", [tensor("string", None), LATER], "string"),
        made("REDUCE_PROD", [tensor("uint64", None), LATER], "uint64"),
        made("REDUCE_MAX", [tensor("string", None), LATER], "string"),
        made("CUMSUM", [tensor("int8", None), LATER], "int8"),
        made("SEGMENT_SUM", [tensor("int8", None), LATER], "int8"),
        made("UNSORTED_SEGMENT_SUM", [tensor("int64", None), LATER, LATER], "int64"),
        made("REDUCE_WINDOW", [tensor("string", None)] * 5, "string", reduce_function="add"),
        made("NON_MAX_SUPPRESSION_V4", [tensor("int8", None)] * 2 + [LATER] * 3, "int32", "int32"),
        made("L2_POOL_2D", [tensor("int8", None)], "int8", padding="same"),
        node("REDUCE_PROD", [tensor("uint8", None, quant(0.1)), LATER], tensor("uint8", None, quant(0.1))),
    ],
    ids=lambda given: given.spec.name,
)
def test_element_types_that_cannot_run(given: Node) -> None:
    with pytest.raises(UnsupportedError, match=r"not supported.*op " + given.spec.name):
        given.spec.kernel_function(given)


@pytest.mark.parametrize("name", ["REDUCE_MAX", "REDUCE_MIN", "TOPK_V2"])
def test_codes_keep_their_meaning(name: str) -> None:
    results = [tensor("int8", None, quant(0.2)), tensor("int32", None)]
    given = node(name, [tensor("int8", (2, 3), quant(0.1)), const([1])], results[: 1 + (name == "TOPK_V2")])
    with pytest.raises(ModelError, match="different scales or zero points"):
        given.spec.kernel_function(given)
