"""Kernels that look up, hash, make word groups and convolve volumes."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.nodes import const, node, quant, run, run_all, tensor
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.ops.spec import Node, QuantParams, TensorInfo
from odc_mlir.runtime.kernels import lookup

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)
LATER = tensor("int32", None)
REAL = tensor("float32", None)


def made(name: str, operands: list[TensorInfo | None], *results: str, **options: Any) -> Node:
    return node(name, operands, [tensor(dtype, None) for dtype in results or ("float32",)], **options)


def ids(*values: int) -> Any:
    return np.array(values, np.int32)


def test_rows_of_a_four_bit_table() -> None:
    packed = memoryview(bytes([0x21, 0xF3, 0x84, 0x07]))
    table = TensorInfo("table", "int4", (4, 2), quant([1, 2, 3, 4]), packed)
    found = run(made("EMBEDDING_LOOKUP", [tensor("int32", (3,)), table]), ids(2, 0, 3))
    assert found.tolist() == [[12, -24], [1, 2], [28, 0]]


def test_unsigned_tables_hold_signed_numbers() -> None:
    table = const([[255, 1]], "uint8", quant(0.5))
    assert run(made("EMBEDDING_LOOKUP", [tensor("int32", (1,)), table]), ids(0)).tolist() == [[-0.5, 0.5]]


@pytest.mark.parametrize(
    ("dtype", "params", "wanted"),
    [
        ("int8", quant(0.5, 3), [[-1.5, -1.0], [-0.5, 0.0]]),
        ("uint8", quant([0.5, 2.0], [1, 0]), [[-0.5, 0.0], [4.0, 6.0]]),
    ],
)
def test_tables_with_zero_points(dtype: str, params: QuantParams, wanted: list[list[float]]) -> None:
    table = const([[0, 1], [2, 3]], dtype, params)
    assert run(made("EMBEDDING_LOOKUP", [tensor("int32", (2,)), table]), ids(0, 1)).tolist() == wanted


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (const([[1, 2]], "int8"), "table 'c' of int8 has no scale"),
        (const([[1, 2]], "int8", quant([0.5, 0.5], axis=1)), "the 2 scales of 'c' are not one per row"),
        (const([[1, 2]], "int16", quant(0.5)), "element type int16 is not supported"),
    ],
)
def test_tables_that_cannot_be_scaled(table: TensorInfo, message: str) -> None:
    given = made("EMBEDDING_LOOKUP", [tensor("int32", (1,)), table])
    with pytest.raises(OdcError, match=message):
        given.spec.kernel_function(given)


def test_weighted_rows() -> None:
    operands = [LATER, LATER, const([3, 9]), REAL, const(TABLE, "float32")]
    weights = np.array([2, 0.5, 1], np.float32)
    for combiner, divisor in (("sum", 1.0), ("mean", 2.5), ("sqrtn", np.sqrt(4.25))):
        found = run(made("EMBEDDING_LOOKUP_SPARSE", operands, combiner=combiner),
                    ids(1, 3, 0), np.array([[0, 0], [0, 1], [2, 4]], np.int32), weights)  # fmt: skip
        np.testing.assert_allclose(found[0], (2 * TABLE[1] + 0.5 * TABLE[3]) / divisor, rtol=1e-6)
        assert (found[1] == 0).all()
        assert (found[2] == TABLE[0]).all()


def test_keys_that_are_not_there() -> None:
    values = const(TABLE, "float32")
    numbers = made("HASHTABLE_LOOKUP", [LATER, const([2, 5, 7, 9]), values], "float32", "uint8")
    found, hits = run_all(numbers, ids(5, 1, 10, 9))
    assert hits.tolist() == [1, 0, 0, 1]
    assert found.tolist() == [[3, 4, 5], [0] * 3, [0] * 3, [9, 10, 11]]
    words = made("HASHTABLE_LOOKUP", [LATER, const([2]), tensor("string", (1,))], "string", "uint8")
    found, _ = run_all(words, ids(2, 3), np.array([b"two"], object))
    assert found.tolist() == [b"two", b""]


@pytest.mark.parametrize(
    ("sentence", "words"),
    [
        (b"a b c", [b"a", b"b", b"c"]),
        (b"a\t b\n", [b"a", b"b"]),
        (b"", []),
        (b"one", [b"one"]),
        (b" a b", [b"a", b"b"]),
        (b" a", [b"a"]),
    ],
)
def test_words(sentence: bytes, words: list[bytes]) -> None:
    given = made("SKIP_GRAM", [tensor("string", (1,))], "string", ngram_size=1)
    assert run(given, np.array([sentence], object)).tolist() == words


@given(st.integers(0, 5), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_groups_of_words(count: int, size: int, skips: int, shorter: bool) -> None:
    """Every choice in order whose neighbours are near enough, each once."""
    words = [str(i).encode() for i in range(count)]
    options = {"ngram_size": size, "max_skip_size": skips, "include_all_ngrams": shorter}
    given = made("SKIP_GRAM", [tensor("string", (1,))], "string", **options)
    found = run(given, np.array([b" ".join(words)], object)).tolist()
    lengths = range(1, size + 1) if shorter else [size] if size else []
    choices = [
        choice
        for length in lengths
        for choice in itertools.combinations(range(count), length)
        if all(b - a <= skips + 1 for a, b in itertools.pairwise(choice))
    ]
    expected = [b" ".join(words[i] for i in choice) for choice in choices] if count >= size else []
    assert sorted(found) == sorted(expected)


def test_longer_groups_come_first() -> None:
    options = {"ngram_size": 2, "max_skip_size": 1, "include_all_ngrams": True}
    found = run(made("SKIP_GRAM", [tensor("string", (1,))], "string", **options), np.array([b"a b c"], object))
    assert found.tolist() == [b"a b", b"a c", b"a", b"b c", b"b", b"c"]


@pytest.mark.parametrize(
    ("given", "values", "message"),
    [
        (made("EMBEDDING_LOOKUP", [LATER, REAL]), [[4], TABLE], "id 4 is out of range; allowed are 0 to 3"),
        (
            made("EMBEDDING_LOOKUP", [LATER, const([[1, 2]], "int8", quant(0.5))]),
            [[-1], [[0]]],
            "id -1 is out of range",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [LATER, LATER, LATER, REAL, REAL]),
            [[1], [[0, 0]], [2], [1], TABLE],
            "do not fit",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [LATER, LATER, LATER, REAL, REAL]),
            [[1], [[2, 0]], [2, 2], [1], TABLE],
            "index along axis 0 2 is out of range",
        ),
        (
            made("EMBEDDING_LOOKUP_SPARSE", [LATER, LATER, LATER, REAL, REAL]),
            [[9], [[1, 0]], [2, 2], [1], TABLE],
            "id 9 is out of range",
        ),
        (made("HASHTABLE_LOOKUP", [LATER, LATER, REAL], "float32", "uint8"), [[1], [2, 1], [1, 2]], "and ascending"),
        (made("HASHTABLE_LOOKUP", [LATER, LATER, REAL], "float32", "uint8"), [[1], [], []], "must be at least one"),
        (made("LSH_PROJECTION", [REAL, LATER], "int32", type="dense"), [[[1]], []], "has no rows"),
        (made("LSH_PROJECTION", [REAL, LATER, REAL], "int32", type="dense"), [[[1]], [1], [1, 2]], "2 weights for 1"),
        (made("CONV_3D", [REAL, const(np.ones((1, 1, 1, 2, 1)), "float32"), None], stride_d=1, stride_h=1, stride_w=1),
         [np.zeros((1, 2, 2, 2, 3)), None, None], "must be a volume of 2 channels"),
    ],
)  # fmt: skip
def test_run_time_operands_that_do_not_fit(given: Node, values: list[Any], message: str) -> None:
    pairs = zip(values, given.operands, strict=True)
    bound = [None if info is None or v is None else np.asarray(v, info.info.numpy) for v, info in pairs]
    with pytest.raises(OdcError, match=message):
        given.spec.kernel_function(given)(bound)


def test_too_many_groups_of_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "MOST_GRAMS", 1000)
    options = {"ngram_size": 8, "max_skip_size": 100}
    given = made("SKIP_GRAM", [tensor("string", (1,))], "string", **options)
    with pytest.raises(OdcError, match="the 40 words give more than 1000 results"):
        run(given, np.array([b"x " * 40], object))
    with pytest.raises(OdcError, match="has no string"):
        given.spec.kernel_function(given)([np.zeros(0, object)])


@pytest.mark.parametrize(
    "given",
    [
        made("LSH_PROJECTION", [REAL, tensor("string", (2,))], "int32", type="dense"),
        made("LSH_PROJECTION", [REAL, tensor("int4", (2,))], "int32", type="dense"),
        made("EMBEDDING_LOOKUP_SPARSE", [LATER, LATER, LATER, REAL, tensor("int8", None)]),
        made("CONV_3D", [tensor("int8", None), tensor("int8", None), None], "int8"),
        made("CONV_3D_TRANSPOSE", [LATER, tensor("int8", None), tensor("int8", None)], "int8"),
    ],
    ids=lambda given: given.spec.name,
)
def test_element_types_that_cannot_run(given: Node) -> None:
    with pytest.raises(UnsupportedError, match="is not supported"):
        given.spec.kernel_function(given)


def test_scales_of_tables_must_be_positive() -> None:
    given = made("EMBEDDING_LOOKUP", [tensor("int32", (1,)), const([[1, 2]], "int8", quant(0))])
    with pytest.raises(ModelError, match="must be positive and finite"):
        given.spec.kernel_function(given)
