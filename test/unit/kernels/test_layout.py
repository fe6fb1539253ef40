"""Kernels that repeat, cut, turn and space out: laws, strings, operands computed at run time, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.nodes import const, node, quant, run, run_all, tensor
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.ops.spec import Node

Array = NDArray[Any]
X = np.arange(24, dtype=np.int8).reshape(2, 3, 4)
WORDS = np.array([[b"a", b"bc"], [b"", b"def"]], object)

SIZES = st.lists(st.integers(1, 4), min_size=1, max_size=4)


def dtype_of(x: Array) -> str:
    return "string" if x.dtype == object else x.dtype.name


def mover(name: str, x: Array, *operands: Any, results: int = 1, **options: Any) -> Node:
    kind = dtype_of(x)
    return node(name, [tensor(kind, x.shape), *operands], [tensor(kind, None)] * results, **options)


def counted(sizes: list[int]) -> Array:
    return np.arange(np.prod(sizes), dtype=np.int16).reshape(sizes)


@given(SIZES, st.data())
def test_parts_join_to_the_whole(sizes: list[int], data: st.DataObject) -> None:
    x = counted(sizes)
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    cuts = sorted(data.draw(st.lists(st.integers(0, x.shape[axis]), max_size=3)))
    lengths = np.diff([0, *cuts, x.shape[axis]])
    pieces = run_all(mover("SPLIT_V", x, const(lengths), const(axis), results=len(lengths), num_splits=len(lengths)), x)
    assert (np.concatenate(pieces, axis) == x).all()
    slices = run_all(mover("UNPACK", x, results=x.shape[axis], num=x.shape[axis], axis=axis), x)
    assert (np.stack(slices, axis % x.ndim) == x).all()


@given(SIZES, st.data())
def test_turning_twice_changes_nothing(sizes: list[int], data: st.DataObject) -> None:
    x = counted(sizes)
    axes = data.draw(st.sets(st.integers(0, x.ndim - 1)))
    made = mover("REVERSE_V2", x, const(sorted(axes)))
    assert (run(made, run(made, x)) == x).all()
    if x.ndim > 1:
        lengths = data.draw(st.lists(st.integers(0, x.shape[1]), min_size=x.shape[0], max_size=x.shape[0]))
        made = mover("REVERSE_SEQUENCE", x, const(lengths), seq_dim=1, batch_dim=0)
        assert (run(made, run(made, x)) == x).all()


@given(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3), st.integers(0, 4)), min_size=1, max_size=3))
def test_space_comes_back_from_the_batch(axes: list[tuple[int, int, int]]) -> None:
    """Also with more axes than TensorFlow Lite's kernels take."""
    block = [size for size, _, _ in axes]
    x = counted([2, *(size * cells for size, cells, _ in axes), 2])
    pads = [[extra, -extra % size] for size, _, extra in axes]
    batched = run(mover("SPACE_TO_BATCH_ND", x, const(block), const(pads)), x)
    assert batched.shape[0] == 2 * np.prod(block)
    assert (run(mover("BATCH_TO_SPACE_ND", batched, const(block), const(pads)), batched) == x).all()


@given(st.integers(1, 3), st.integers(1, 3), st.integers(1, 3), st.integers(1, 3))
def test_depth_comes_back_from_space(rows: int, columns: int, channels: int, size: int) -> None:
    x = counted([1, rows, columns, channels * size * size])
    wide = run(mover("DEPTH_TO_SPACE", x, block_size=size), x)
    assert wide.shape == (1, rows * size, columns * size, channels)
    assert (run(mover("SPACE_TO_DEPTH", wide, block_size=size), wide) == x).all()


@given(SIZES, st.sampled_from(["reflect", "symmetric"]), st.data())
def test_mirrors(sizes: list[int], mode: str, data: st.DataObject) -> None:
    x = counted(sizes)
    most = [d - (mode == "reflect") for d in sizes]
    pads = [data.draw(st.tuples(st.integers(0, m), st.integers(0, m))) for m in most]
    expected = np.pad(x, pads, mode=mode)  # type: ignore[call-overload]
    assert (run(mover("MIRROR_PAD", x, const(pads), mode=mode), x) == expected).all()


def test_dilation_leaves_the_elements_where_the_steps_are() -> None:
    found = run(mover("DILATE", X, const([2, 1, 3]), const(-1, "int8")), X)
    assert found.shape == (3, 3, 10)
    assert (found[::2, :, ::3] == X).all()
    assert (found == -1).sum() == found.size - X.size


def test_diagonals() -> None:
    found = run(mover("MATRIX_DIAG", X), X)
    assert (np.diagonal(found, axis1=-2, axis2=-1) == X).all()
    assert found.sum() == X.sum()
    diagonal = np.full((2, 3), -1, np.int8)
    made = mover("MATRIX_SET_DIAG", X, tensor("int8", diagonal.shape))
    found = run(made, X, diagonal)
    assert (np.diagonal(found, axis1=-2, axis2=-1) == -1).all()
    assert (found != X).sum() == 6
    assert X.min() == 0


def test_filling_means_real_zero() -> None:
    params, x = quant(0.1, 5), np.array([[1], [2]], np.int8)

    def made(name: str, *operands: Any) -> Node:
        return node(name, [tensor("int8", x.shape, params), *operands], tensor("int8", None, params))

    assert run(made("PADV2", const([[1, 0], [0, 0]]), None), x).tolist() == [[5], [1], [2]]
    assert run(made("MATRIX_DIAG"), x).tolist() == [[[1]], [[2]]]
    wide = np.array([[[1], [2]]], np.int8)
    blocks = made("SPACE_TO_BATCH_ND", const([3]), const([[1, 0]]))
    blocks.operands = (tensor("int8", wide.shape, params), *blocks.operands[1:])
    assert run(blocks, wide).ravel().tolist() == [5, 1, 2]


def test_strings_move() -> None:
    assert run(mover("TILE", WORDS, const([1, 2])), WORDS).tolist() == [[b"a", b"bc"] * 2, [b"", b"def"] * 2]
    halves = node("SPLIT", [const(0), tensor("string", (2, 2))], [tensor("string", None)] * 2, num_splits=2)
    first, second = run_all(halves, WORDS)
    assert (first.tolist(), second.tolist()) == ([[b"a", b"bc"]], [[b"", b"def"]])
    assert [part.tolist() for part in run_all(mover("UNPACK", WORDS[0], results=2, num=2), WORDS[0])] == [b"a", b"bc"]
    assert run(mover("REVERSE_V2", WORDS, const([1])), WORDS).tolist() == [[b"bc", b"a"], [b"def", b""]]
    taken = mover("STRIDED_SLICE", WORDS, const([1, 1]), const([2, 2]), const([1, 1]), shrink_axis_mask=3)
    assert run(taken, WORDS).tolist() == b"def"


@pytest.mark.parametrize("name", ["PADV2", "MATRIX_DIAG"])
def test_strings_have_no_zero(name: str) -> None:
    made = mover(name, WORDS, *([const([[1, 0], [0, 0]])] if name == "PADV2" else []))
    with pytest.raises(UnsupportedError, match="element type string is not supported; it has no zero value"):
        made.spec.kernel_function(made)


@pytest.mark.parametrize(
    ("name", "operands", "options"),
    [
        ("UNPACK", [], {"num": 2}),
        ("MIRROR_PAD", [const([[0, 0]] * 3)], {}),
        ("SPACE_TO_BATCH_ND", [const([1]), const([[0, 0]])], {}),
        ("BATCH_TO_SPACE_ND", [const([1]), const([[0, 0]])], {}),
        ("SPACE_TO_DEPTH", [], {"block_size": 1}),
        ("DEPTH_TO_SPACE", [], {"block_size": 1}),
        ("PADV2", [const([[0, 0]] * 3), const(0, "int8", quant(0.3))], {}),
    ],
)
def test_codes_keep_their_meaning(name: str, operands: list[Any], options: dict[str, Any]) -> None:
    results = [tensor("int8", None, quant(0.2), "r")] * options.get("num", 1)
    made = node(name, [tensor("int8", (2, 3, 4), quant(0.1)), *operands], results, **options)
    with pytest.raises(ModelError, match=r"different scales or zero points; they must be equal .*; requantise"):
        made.spec.kernel_function(made)


LATER = tensor("int32", None)


@pytest.mark.parametrize(
    ("made", "values", "message"),
    [
        (mover("TILE", X, LATER), [[1, 1]], "must be 3 numbers"),
        (mover("TILE", X, LATER), [[2**30, 1, 2**30]], "are supported"),
        (mover("SPLIT_V", X, LATER, const(0), results=2, num_splits=2), [[1, 1, 0]], "3 sizes, but 2 results"),
        (mover("SPLIT_V", X, LATER, const(0), results=2, num_splits=2), [[1, 2]], "do not add up"),
        (mover("SPLIT_V", X, const([1, 1]), LATER, results=2, num_splits=2), [[0, 0]], "the axis .* one element"),
        (mover("PADV2", X, LATER), [[[0, 0]]], "3 pairs that are not negative"),
        (mover("PADV2", X, const([[0, 0]] * 3), tensor("int8", None)), [[1, 2]], "the padding value .* one element"),
        (mover("MIRROR_PAD", X, LATER), [[[2, 0], [0, 0], [0, 0]]], "axis 0 of size 2 is padded by 2"),
        (mover("REVERSE_V2", X, LATER), [[0, 3]], "axis 3 is out of range"),
        (mover("REVERSE_V2", X, LATER), [[0, 0]], "name one axis twice"),
        (mover("REVERSE_SEQUENCE", X, LATER, seq_dim=1), [[1, 4]], "must be from 0 to 3"),
        (mover("REVERSE_SEQUENCE", X, LATER, seq_dim=1), [[1]], "1 lengths for a batch of 2"),
        (mover("SPACE_TO_BATCH_ND", X, LATER, const([[0, 0]])), [[2]], "not a multiple"),
        (mover("SPACE_TO_BATCH_ND", X, LATER, const([[0, 0]])), [[2, 2]], "do not fit the operand"),
        (mover("BATCH_TO_SPACE_ND", X, LATER, const([[0, 0]])), [[3]], "cannot be divided"),
        (mover("DILATE", X, LATER, const(0, "int8")), [[1, 1]], "must be 3 positive numbers"),
        (mover("DILATE", X, const([1, 1, 1]), tensor("int8", None)), [[0, 0]], "one element"),
        (mover("MATRIX_SET_DIAG", X, tensor("int8", None)), [[[1, 2], [1, 2]]], r"it must be \[2, 3\]"),
        (mover("BROADCAST_TO", X, LATER), [[2, 3, 5]], "cannot be broadcast"),
        (mover("BROADCAST_TO", X, LATER), [[2**29, 2, 3, 4]], "are supported"),
    ],
)
def test_run_time_operands_that_do_not_fit(made: Node, values: list[Any], message: str) -> None:
    infos = [info for info in made.operands[1:] if info is not None and not info.is_const]
    arrays = iter(np.array(v, info.info.numpy) for info, v in zip(infos, values, strict=True))
    bound = [X, *[None if info is None or info.is_const else next(arrays) for info in made.operands[1:]]]
    with pytest.raises(OdcError, match=message):
        made.spec.kernel_function(made)(bound)


def test_run_time_sizes_that_do_not_fit() -> None:
    made = mover("UNPACK", X, results=2, num=2)
    with pytest.raises(OdcError, match="axis 0 has the size 3, but there are 2 results"):
        made.spec.kernel_function(made)([X[0]])
