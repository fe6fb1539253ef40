"""Kernels that index and fill: brute force, laws, packed and block types, strings, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.nodes import const, node, quant, run, tensor
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.ops.spec import Node, TensorInfo

Array = NDArray[Any]
X = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
WORDS = np.array([b"a", b"bc", b""], object)
LATER = tensor("int32", None)


def made(name: str, operands: list[TensorInfo | None], dtype: str, **options: Any) -> Node:
    return node(name, operands, tensor(dtype, None), **options)


@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.data())
def test_gather_is_a_loop(sizes: list[int], data: st.DataObject) -> None:
    x = np.arange(np.prod(sizes)).reshape(sizes)
    axis = data.draw(st.integers(0, x.ndim - 1))
    batch = data.draw(st.integers(0, axis))
    more = data.draw(st.lists(st.integers(0, 2), max_size=2))
    shape = (*sizes[:batch], *more)
    picks = data.draw(st.lists(st.integers(0, sizes[axis] - 1), min_size=int(np.prod(shape)), max_size=20**3))
    indices = np.array(picks[: int(np.prod(shape))], np.int32).reshape(shape)
    expected = np.empty((*sizes[:axis], *more, *sizes[axis + 1 :]), x.dtype)
    for outer in np.ndindex(*sizes[:axis]):
        for place in np.ndindex(*more):
            expected[(*outer, *place)] = x[(*outer, indices[(*outer[:batch], *place)])]
    gather = made("GATHER", [tensor("int64", x.shape), tensor("int32", shape)], "int64", axis=axis, batch_dims=batch)
    assert (run(gather, x, indices) == expected).all()


def test_gather_at_the_coordinates_of_everything() -> None:
    places = np.argwhere(np.ones(X.shape))
    gather = made("GATHER_ND", [tensor("int8", X.shape), tensor("int64", places.shape)], "int8")
    assert (run(gather, X, places) == X.ravel()).all()
    scatter = made("SCATTER_ND", [tensor("int32", None), tensor("int8", None), const(X.shape)], "int8")
    assert (run(scatter, places.astype(np.int32), X.ravel()) == X).all()


def test_coordinates_of_no_axis_name_the_whole() -> None:
    gather = made("GATHER_ND", [tensor("int8", X.shape), tensor("int32", (2, 0))], "int8")
    assert (run(gather, X, np.zeros((2, 0), np.int32)) == np.stack([X, X])).all()
    scatter = made("SCATTER_ND", [tensor("int32", (2, 0)), tensor("int8", None), const(X.shape)], "int8")
    assert (run(scatter, np.zeros((2, 0), np.int32), np.stack([X, X])) == 2 * X).all()


def test_scattered_codes_wrap_and_truth_values_do_not() -> None:
    places = np.zeros((3, 1), np.int32)
    for dtype, value, expected in (("int8", 100, 44), ("bool", True, True), ("uint8", 100, 44)):
        scatter = made("SCATTER_ND", [tensor("int32", (3, 1)), tensor(dtype, (3,)), const([2])], dtype)
        assert run(scatter, places, np.full(3, value, dtype)).tolist() == [expected, 0]


def test_of_equal_coordinates_the_last_wins() -> None:
    dense = made("SPARSE_TO_DENSE", [tensor("int64", (3,)), const([4]), tensor("int8", (3,)), const(9, "int8")], "int8")
    assert run(dense, np.array([1, 3, 1]), np.array([5, 6, 7], np.int8)).tolist() == [9, 7, 9, 6]
    dense = made("SPARSE_TO_DENSE", [tensor("int32", ()), const([4]), tensor("int8", ()), const(9, "int8")], "int8")
    assert run(dense, np.array(2, np.int32), np.array(5, np.int8)).tolist() == [9, 9, 5, 9]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_one_hot(axis: int) -> None:
    indices = np.array([[0, 2], [-1, 1]], np.int32)
    on, off = const(5, "int16"), const(-5, "int16")
    found = run(made("ONE_HOT", [tensor("int32", (2, 2)), const(3), on, off], "int16", axis=axis), indices)
    expected = np.where(indices[..., None] == np.arange(3), 5, -5)
    assert (found == np.moveaxis(expected, -1, axis)).all()


def test_updates_move_until_they_fit() -> None:
    update = made("DYNAMIC_UPDATE_SLICE", [tensor("int8", (4,)), tensor("int8", (2,)), tensor("int64", (1,))], "int8")
    x, part = np.zeros(4, np.int8), np.ones(2, np.int8)
    for start, expected in ((-5, [1, 1, 0, 0]), (1, [0, 1, 1, 0]), (9, [0, 0, 1, 1])):
        assert run(update, x, part, np.array([start])).tolist() == expected
    assert not x.any()


def test_four_bit_values_are_gathered_one_by_one() -> None:
    packed = memoryview(bytes([0x21, 0x43, 0xF5]))
    table = TensorInfo("table", "int4", (2, 3), None, packed)
    gather = made("GATHER", [table, tensor("int32", (2,))], "int4", axis=1)
    assert run(gather, np.array([2, 0], np.int32)).tolist() == [[3, 1], [-1, 4]]


def test_rows_of_blocks_are_decoded() -> None:
    half = np.float16(0.5).tobytes()
    rows = [half + bytes([value] * 32) for value in (1, 2, 255)]
    table = TensorInfo("table", "ggml_q8_0", (3, 32), None, memoryview(b"".join(rows)))
    found = run(made("GATHER", [table, tensor("int32", (2, 1))], "float32"), np.array([[2], [0]], np.int32))
    assert found.shape == (2, 1, 32)
    assert (found[0] == -0.5).all()
    assert (found[1] == 0.5).all()
    wrong = made("GATHER", [table, tensor("int32", (2,))], "float32", axis=1)
    with pytest.raises(UnsupportedError, match="ggml_q8_0 can only be gathered along axes before the last"):
        wrong.spec.kernel_function(wrong)


def test_strings() -> None:
    for shape in ((), (2,), (2, 1)):
        indices = np.ones(shape, np.int16)
        found = run(made("GATHER", [tensor("string", (3,)), tensor("int16", shape)], "string"), WORDS, indices)
        assert found.shape == shape
        assert set(found.ravel()) == {b"bc"}
    found = run(made("GATHER_ND", [tensor("string", (3,)), tensor("int32", (1,))], "string"), WORDS, indices[0])
    assert found.tolist() == b"bc"
    filled = run(made("FILL", [const([2]), tensor("string", ())], "string"), WORDS[1:2].reshape(()))
    assert filled.tolist() == [b"bc", b"bc"]


@pytest.mark.parametrize(
    ("ends", "dtype", "expected"),
    [
        ((1, 8, 3), "int32", [1, 4, 7]),
        ((8, 1, -3), "int64", [8, 5, 2]),
        ((3, 3, -3), "int16", []),
        ((-128, 127, 100), "int8", [-128, -28, 72]),
    ],
)
def test_range(ends: tuple[int, ...], dtype: str, expected: list[int]) -> None:
    for infos in ([tensor(dtype, ())] * 3, [tensor(dtype, (1,))] * 3):
        values = [np.array(end, dtype).reshape(infos[0].shape) for end in ends]
        assert run(made("RANGE", infos, dtype), *values).tolist() == expected


def test_a_range_of_reals_adds_up_its_rounding() -> None:
    values = [np.array(v, np.float32) for v in (0, 1, 0.1)]
    found = run(made("RANGE", [tensor("float32", ())] * 3, "float32"), *values)
    step, value = np.float32(0.1), np.float32(0)
    for element in found:
        assert element == value
        value += step
    assert len(found) == 10


def test_shapes_and_sizes() -> None:
    assert run(made("RANK", [tensor("int8", X.shape)], "int32"), X) == 3
    assert run(made("FILL", [LATER, const([7], "int64")], "int64"), np.array([2, 0, 3], np.int32)).shape == (2, 0, 3)
    assert (
        run(made("ZEROS_LIKE", [tensor("int32", None)], "int32"), np.ones((2, 3), np.int32)).tolist() == [[0] * 3] * 2
    )
    args = made("BROADCAST_ARGS", [LATER, LATER], "int32")
    found = run(args, np.array([3, 1], np.int32), np.array([2, 1, 4], np.int32))
    assert found.tolist() == [2, 3, 4]
    assert found.dtype == np.int32


@pytest.mark.parametrize(
    ("given", "values", "message"),
    [
        (made("GATHER", [tensor("int8", None), LATER], "int8", axis=1), [X, [3]], "index 3 .*allowed are 0 to 2"),
        (
            made("GATHER", [tensor("int8", None), LATER], "int8"),
            [X, [0, -1]],
            "index -1 is out of range.*; feed inputs in the order",
        ),
        (
            made("GATHER", [tensor("int8", None), LATER], "int8", axis=1, batch_dims=1),
            [X, [[0]]],
            r"operand \[2, 3, 4\] and indices \[1, 1\] have different batches",
        ),
        (made("GATHER_ND", [tensor("int8", None), LATER], "int8"), [X, [[0, 3]]], "coordinate along axis 1 3 is out"),
        (made("GATHER_ND", [tensor("int8", None), LATER], "int8"), [X, 0], "the indices are a scalar"),
        (made("SCATTER_ND", [LATER, LATER, LATER], "int32"), [[[2]], [1], [2]], "coordinate along axis 0 2 is out"),
        (made("SCATTER_ND", [LATER, LATER, LATER], "int32"), [[[0]], [1, 2], [2]], "the updates have the shape"),
        (made("SCATTER_ND", [LATER, LATER, LATER], "int32"), [[[0]], [1], [-2]], "must not have negative sizes"),
        (made("SPARSE_TO_DENSE", [LATER] * 4, "int32"), [[0], [2, 2], [1], 0], "coordinates have 1 entries"),
        (made("SPARSE_TO_DENSE", [LATER] * 4, "int32"), [[0], [2], [1, 2], 0], "2 values for 1 coordinates"),
        (made("SPARSE_TO_DENSE", [LATER] * 4, "int32"), [[0], [-2], [1], 0], "must not have negative sizes"),
        (made("SPARSE_TO_DENSE", [LATER] * 4, "int32"), [[0], [2], [1], [0, 0]], "the default value .* one element"),
        (made("ONE_HOT", [LATER] * 4, "int32"), [[0], -1, 1, 0], "the depth is -1"),
        (made("ONE_HOT", [LATER] * 4, "int32"), [[0], [1, 2], 1, 0], "the depth .* one element"),
        (made("ONE_HOT", [LATER] * 4, "int32"), [[0] * 4, 2**30, 1, 0], "are supported"),
        (made("DYNAMIC_UPDATE_SLICE", [LATER] * 3, "int32"), [[1], [1, 2], [0]], "does not fit into the operand"),
        (made("DYNAMIC_UPDATE_SLICE", [LATER] * 3, "int32"), [[1], [1], [0, 0]], "2 start positions"),
        (made("RANGE", [LATER] * 3, "int32"), [1, 2, -1], "do not lead from 1 to 2"),
        (made("RANGE", [LATER] * 3, "int32"), [0, 2**31 - 1, 1], "are supported"),
        (made("FILL", [LATER] * 2, "int32"), [[-1], 0], "must not have negative sizes"),
        (made("FILL", [LATER] * 2, "int32"), [[2**20, 2**20], 0], "are supported"),
        (made("BROADCAST_ARGS", [LATER] * 2, "int32"), [[2], [3]], r"shapes \[2\] and \[3\] cannot be broadcast"),
    ],
)
def test_run_time_operands_that_do_not_fit(given: Node, values: list[Any], message: str) -> None:
    bound = [np.asarray(v, info.info.numpy) for v, info in zip(values, given.operands, strict=True) if info is not None]
    with pytest.raises(OdcError, match=message):
        given.spec.kernel_function(given)(bound)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (made("SCATTER_ND", [LATER, tensor("int16", None), LATER], "int16"), "element type int16 is not supported"),
        (made("RANGE", [tensor("bool", ())] * 3, "bool"), "element type bool is not supported"),
        (made("RANGE", [tensor("int8", (), quant(0.1))] * 3, "int8"), "a range of quantised int8 is not supported"),
        (made("ZEROS_LIKE", [tensor("int8", (), quant(0.1))], "int8"), "zeros of quantised int8"),
        (made("ZEROS_LIKE", [tensor("string", ())], "string"), "zeros of string"),
    ],
)
def test_element_types_that_cannot_run(given: Node, message: str) -> None:
    with pytest.raises(UnsupportedError, match=message):
        given.spec.kernel_function(given)


def test_a_fill_keeps_the_meaning_of_codes() -> None:
    fill = node("FILL", [const([2]), tensor("int8", (), quant(0.1))], tensor("int8", None, quant(0.2)))
    with pytest.raises(ModelError, match="different scales or zero points"):
        fill.spec.kernel_function(fill)
