"""Random numbers: TensorFlow's generator, checked against published vectors and LiteRT."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.nodes import const, node, tensor
from odc_mlir.errors import InputError
from odc_mlir.numerics.philox import Philox, unit_doubles
from odc_mlir.ops.spec import Node


def _uniform(seed: int = 1, seed2: int = 2) -> Node:
    return node("RANDOM_UNIFORM", [const([8])], tensor("float32", None), seed=seed, seed2=seed2)


def _draw(made: Node) -> np.ndarray:
    return np.asarray(made.spec.kernel_function(made)([None] * len(made.operands))[0])


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        (0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((1 << 64) - 1, (1 << 128) - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ],
)
def test_published_vectors(key: int, counter: int, words: str) -> None:
    assert [f"{word:08x}" for word in Philox(key, counter).words(4)[0].tolist()] == words.split()


def test_draws_go_on_block_by_block() -> None:
    whole, parts = Philox(3, (1 << 64) - 2), Philox(3, (1 << 64) - 2)  # the counter's lower half wraps on the way
    np.testing.assert_array_equal(whole.words(24), np.concatenate([parts.words(n) for n in (1, 8, 9, 4)])[:6])


def test_the_same_numbers_as_litert() -> None:
    """LiteRT's first two draws for seeds 1 and 2, as multiples of 2^-23."""
    made = _uniform()
    np.testing.assert_array_equal(
        _draw(made) * (1 << 23), [3409103, 7194067, 464694, 720349, 3457395, 307282, 5513105, 736499]
    )
    np.testing.assert_array_equal(
        _draw(made) * (1 << 23), [7290453, 354227, 2966598, 1996755, 573266, 4128591, 5883106, 5629256]
    )


def test_seeds_are_32_bits_wide() -> None:
    np.testing.assert_array_equal(_draw(_uniform(1 << 33 | 7)), _draw(_uniform(7)))


def test_state_begins_anew() -> None:
    made = _uniform(0, 0)
    first, second = _draw(made), _draw(made)
    assert (first != second).any()
    made.context.state.reset()
    np.testing.assert_array_equal(_draw(made), first)


def test_normal_numbers() -> None:
    made = node("RANDOM_STANDARD_NORMAL", [const([20000])], tensor("float32", None), seed=5, seed2=6)
    numbers = _draw(made)
    assert abs(numbers.mean()) < 0.03
    assert abs(numbers.std() - 1) < 0.03


def test_multinomial() -> None:
    logits = np.log(
        np.array([[0.2, 0.5, 0.3], [1, 0, 0]], np.float32),
        where=[[True] * 3, [True, False, False]],
        out=np.full((2, 3), -np.inf, np.float32),
    )
    made = node("MULTINOMIAL", [tensor("float32", (2, 3)), const(20000)], tensor("int64", None), seed=1, seed2=2)
    drawn = made.spec.kernel_function(made)([logits, None])[0]
    np.testing.assert_allclose(np.bincount(drawn[0]) / 20000, [0.2, 0.5, 0.3], atol=0.015)
    assert not drawn[1].any()


def test_multinomial_without_a_class() -> None:
    made = node("MULTINOMIAL", [tensor("float32", (1, 2)), const(3)], tensor("int64", None), seed=1)
    with pytest.raises(InputError, match="cannot draw 3 samples"):
        made.spec.kernel_function(made)([np.full((1, 2), -np.inf, np.float32), None])


def test_doubles_are_below_one() -> None:
    words = np.array([[0xFFFFFFFF] * 4, [0] * 4], np.uint32)
    np.testing.assert_array_equal(unit_doubles(words), [1 - 2.0**-52] * 2 + [0, 0])
