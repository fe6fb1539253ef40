"""Binary-coded weights against loops over bits, in every reading, and what is refused without one."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.nodes import const, infer, node, run, tensor
from odc_mlir.errors import InputError, ModelError, OdcError, UnsupportedError
from odc_mlir.numerics.blocks import decode_weights
from odc_mlir.ops.check import check_node
from odc_mlir.ops.context import BinaryCodes, Context
from odc_mlir.ops.spec import Node

Array = NDArray[Any]

READINGS = [BinaryCodes(), BinaryCodes(False), BinaryCodes(True, False), BinaryCodes(False, False)]
CLUSTERS = np.array([[2, 3], [1, 2]])  # 8 rows of words for 5 rows of weights
RNG = np.random.default_rng(0)
SCALES = RNG.normal(size=8).astype(np.float32)
WORDS = RNG.integers(-(2**31), 2**31, (8, 2)).astype(np.int32)


def decoded(scales: Array, words: Array, clusters: Array, hidden: int, reading: BinaryCodes) -> Array:
    """The weights, bit by bit."""
    rows, base = [], 0
    for planes, count in clusters.tolist():
        for row in range(count):
            values = np.zeros(hidden)
            for plane in range(planes):
                place = base + plane * count + row
                for h in range(hidden):
                    bit = h % 32 if reading.lowest_first else 31 - h % 32
                    one = int(words[place, h // 32]) >> bit & 1
                    values[h] += float(scales[place]) * (1 if bool(one) == reading.one_is_plus else -1)
            rows.append(values)
        base += planes * count
    return np.array(rows)


def fully_connected(
    reading: BinaryCodes | None, hidden: int = 40, *, bias: Array | None = None, **options: Any
) -> Node:
    operands = [
        tensor("float32", (hidden, 3)),
        const(SCALES, "float32"),
        const(WORDS),
        None if bias is None else const(bias, "float32"),
        const(CLUSTERS),
    ]
    made = node("BCQ_FULLY_CONNECTED", operands, tensor("float32", None), weights_hidden_size=hidden, **options)
    return dataclasses.replace(made, context=Context(binary_codes=reading))


def gather(reading: BinaryCodes | None, indices: Any, hidden: int = 40, axis: int = 0) -> Node:
    operands = [const(SCALES, "float32"), const(WORDS), const(indices), const(CLUSTERS)]
    made = node("BCQ_GATHER", operands, tensor("float32", None), input_hidden_size=hidden, axis=axis)
    return dataclasses.replace(made, context=Context(binary_codes=reading))


@pytest.mark.parametrize("reading", READINGS)
def test_fully_connected(reading: BinaryCodes) -> None:
    x, bias = RNG.normal(size=(40, 3)).astype(np.float32), RNG.normal(size=5).astype(np.float32)
    expected = decoded(SCALES, WORDS, CLUSTERS, 40, reading) @ x
    np.testing.assert_allclose(run(fully_connected(reading), x), expected, rtol=1e-4, atol=1e-4)
    made = fully_connected(reading, bias=bias, fused_activation_function="relu")
    np.testing.assert_allclose(run(made, x), np.maximum(expected + bias[:, None], 0), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize(("axis", "indices"), [(0, [4, 0]), (1, [[39, 1], [0, 2]]), (-1, [7]), (-2, [3])])
def test_gather(reading: BinaryCodes, axis: int, indices: Any) -> None:
    expected = np.take(decoded(SCALES, WORDS, CLUSTERS, 40, reading), indices, axis=axis)
    np.testing.assert_allclose(run(gather(reading, indices, axis=axis)), expected, rtol=1e-6, atol=1e-6)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=3), st.integers(0, 64))
def test_decode(clusters: list[tuple[int, int]], hidden: int) -> None:
    """Also where there are no planes or no rows."""
    stored = sum(planes * rows for planes, rows in clusters)
    rng = np.random.default_rng(stored)
    words, scales = rng.integers(-(2**31), 2**31, (stored, 2)).astype(np.int32), rng.normal(size=stored).astype("f4")
    found = decode_weights(scales, words, np.array(clusters), hidden, lowest_first=True, one_is_plus=True)
    expected = decoded(scales, words, np.array(clusters), hidden, BinaryCodes())
    assert found.shape == (sum(rows for _, rows in clusters), hidden)
    np.testing.assert_allclose(found, expected.reshape(found.shape), rtol=1e-5, atol=1e-5)


def test_whole_words() -> None:
    """Where the model shows all bits of the words, or does not say, rows go to the end of the last word."""
    made = gather(BinaryCodes(), [1])
    shown = dataclasses.replace(made, results=(tensor("float32", (1, 64)),))
    assert run(shown).shape == (1, 64)
    assert run(gather(BinaryCodes(), [1], hidden=0)).shape == (1, 64)
    assert run(made).shape == (1, 40)


@pytest.mark.parametrize("made", [fully_connected(None), gather(None, [1])], ids=["layer", "gather"])
def test_no_reading_is_chosen(made: Node) -> None:
    check_node(made)
    with pytest.raises(UnsupportedError, match=r"not published.*run\(\.\.\., binary_codes=BinaryCodes\(\.\.\.\)\)"):
        made.spec.kernel_function(made)


def test_shapes() -> None:
    clusters = const(CLUSTERS)
    x, scales, words = tensor("float32", (40, None)), tensor("float32", (8,)), tensor("int32", (8, 2))
    layer = [x, scales, words, None, clusters]
    assert infer("BCQ_FULLY_CONNECTED", layer, weights_hidden_size=40) == (5, None)
    computed = [x, scales, words, None, tensor("int32", (2, 2))]
    assert infer("BCQ_FULLY_CONNECTED", computed, weights_hidden_size=40) == (None, None)
    table = [scales, words, tensor("int32", (2, 3)), clusters]
    assert infer("BCQ_GATHER", table, input_hidden_size=40) == (2, 3, 40)
    assert infer("BCQ_GATHER", table, input_hidden_size=40, axis=1) == (5, 2, 3)
    assert infer("BCQ_GATHER", [scales, tensor("int32", None), table[2], clusters]) == (2, 3, None)
    assert infer("BCQ_GATHER", [scales, words, tensor("int32", None), clusters]) is None


def with_operand(made: Node, index: int, info: Any, **options: Any) -> Node:
    operands = tuple(info if place == index else old for place, old in enumerate(made.operands))
    return dataclasses.replace(made, operands=operands, options={**made.options, **options})


LAYER, TABLE = fully_connected(BinaryCodes()), gather(BinaryCodes(), [1])


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (with_operand(LAYER, 0, tensor("float32", (41, 3))), "rows of the input and weights_hidden_size: 41 and 40"),
        (with_operand(LAYER, 1, const(SCALES[:7], "float32")), "stored rows and scales: 8 and 7"),
        (with_operand(LAYER, 2, const(WORDS[:7])), "stored rows of the clusters and rows of words: 8 and 7"),
        (with_operand(LAYER, 3, const([1.0], "float32")), "rows of the weights and bias: 5 and 1"),
        (with_operand(LAYER, 4, const([[1, 2, 3]])), "clusters have 3 columns"),
        (with_operand(LAYER, 4, const([[-1, 2]])), r"clusters \[\[-1, 2\]\] must not be negative"),
        (with_operand(TABLE, 9, None, input_hidden_size=65), "the hidden size is 65; rows of 2 words hold 64"),
        (with_operand(TABLE, 9, None, axis=2), "axis 2 is out of range"),
        (with_operand(TABLE, 1, const(WORDS[0])), "its rank must be 2"),
    ],
)
def test_refused(made: Node, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_node(made, result_types=False)


def test_refused_when_run() -> None:
    cases: list[tuple[Node, tuple[Array, ...], type[OdcError], str]] = [
        (gather(BinaryCodes(), [5]), (), InputError, "index 5 is out of range; allowed are 0 to 4"),
        (with_operand(LAYER, 0, tensor("float16", (40, 3))), (), UnsupportedError, "input is float16"),
    ]
    for made, inputs, error, message in cases:
        with pytest.raises(error, match=message):
            made.spec.kernel_function(made)([*inputs, *[None] * 4])
    open_words = with_operand(TABLE, 1, tensor("int32", (8, 2)))
    with pytest.raises(InputError, match=r"8 scales and words \[7, 2\] do not hold 8 rows of 40 signs"):
        open_words.spec.kernel_function(open_words)([None, WORDS[:7], None, None])
    with pytest.raises(InputError, match=r"the input \[39, 3\] must have 40 rows"):
        LAYER.spec.kernel_function(LAYER)([np.zeros((39, 3), np.float32), *[None] * 4])
