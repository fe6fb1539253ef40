"""INSTANCE_NORM, RMS_NORM, ROPE and ATTENTION against plain loops."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers.nodes import Session, const, infer, node, run, tensor, variable
from odc_mlir.errors import InputError, ModelError, UnsupportedError
from odc_mlir.ops.spec import Node

Array = NDArray[Any]

RNG = np.random.default_rng(0)


def real(*shape: int) -> Array:
    return RNG.normal(size=shape).astype(np.float32)


def instance_norm(x: Array, gamma: Array, beta: Array, **options: Any) -> Array:
    operands = [tensor("float32", x.shape), const(gamma, "float32"), const(beta, "float32")]
    return run(node("INSTANCE_NORM", operands, tensor("float32", None), **options), x)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("shape", [(2, 4, 5, 3), (2, 3, 7)])
def test_instance_norm(shape: tuple[int, ...], channels: int) -> None:
    x, gamma, beta = real(*shape), real(channels), real(channels)
    found = instance_norm(x, gamma, beta, epsilon=1e-3)
    for image in range(2):
        for c in range(3):
            part = (image, slice(None), slice(None), c) if len(shape) == 4 else (image, c)
            values = [float(v) for v in x[part].reshape(-1)]
            mean = math.fsum(values) / len(values)
            variance = math.fsum((v - mean) ** 2 for v in values) / len(values)
            scale, shift = float(gamma[c % channels]), float(beta[c % channels])
            expected = (x[part].astype(float) - mean) / math.sqrt(variance + 1e-3) * scale + shift
            np.testing.assert_allclose(found[part], expected, rtol=1e-5, atol=1e-6)


def test_instance_norm_activation_and_nothing() -> None:
    x = real(1, 3, 3, 2)
    gamma, beta = np.ones(2), np.zeros(2)
    plain = instance_norm(x, gamma, beta, epsilon=1e-5)
    assert (instance_norm(x, gamma, beta, epsilon=1e-5, fused_activation_function="relu") == np.maximum(plain, 0)).all()
    assert instance_norm(real(0, 3, 3, 2), gamma, beta).shape == (0, 3, 3, 2)


@given(st.floats(-100, 100), st.floats(0.1, 10))
def test_instance_norm_forgets_offset_and_size(offset: float, factor: float) -> None:
    x = np.random.default_rng(1).normal(size=(1, 4, 4, 2)).astype(np.float32)
    one, zero = np.ones(2), np.zeros(2)
    moved = instance_norm((x * factor + offset).astype(np.float32), one, zero)
    np.testing.assert_allclose(moved, instance_norm(x, one, zero), atol=2e-3)


def rms_norm(x: Array, gamma: Array, **options: Any) -> Array:
    made = node("RMS_NORM", [tensor("float32", x.shape), const(gamma, "float32")], tensor("float32", None), **options)
    return run(made, x)


@pytest.mark.parametrize("channels", [(), (1,), (6,)])
@pytest.mark.parametrize("shape", [(2, 3, 6), (2, 2, 3, 6)])
def test_rms_norm(shape: tuple[int, ...], channels: tuple[int, ...]) -> None:
    x, gamma = real(*shape), np.asarray(RNG.normal(size=channels), np.float32)
    found = rms_norm(x, gamma, epsilon=1e-4).reshape(-1, 6)
    for row, values in zip(found, x.reshape(-1, 6), strict=True):
        root = math.sqrt(math.fsum(float(v) ** 2 for v in values) / 6 + 1e-4)
        np.testing.assert_allclose(row, values / root * gamma, rtol=1e-6, atol=1e-7)


def test_rms_norm_of_nothing() -> None:
    assert rms_norm(real(0, 3, 6), real(6)).shape == (0, 3, 6)
    assert rms_norm(real(2, 3, 0), real(1)).shape == (2, 3, 0)


def rope(x: Array, sine: Array, cosine: Array, **options: Any) -> Node:
    kind = "int64" if x.dtype == np.int64 else "float32"
    operands = [tensor(kind, x.shape), const(sine, kind), const(cosine, kind)]
    return node("ROPE", operands, tensor(kind, None), **options)


@pytest.mark.parametrize("rows", [1, 3])
def test_rope(rows: int) -> None:
    x, sine, cosine = real(2, 2, 3, 4), real(1, 1, rows, 4), real(1, 1, rows, 4)
    found = run(rope(x, sine, cosine), x)
    for batch, head, token, i in np.ndindex(2, 2, 3, 2):
        s, c = sine[0, 0, token % rows], cosine[0, 0, token % rows]
        low, high = x[batch, head, token, i], x[batch, head, token, i + 2]
        assert found[batch, head, token, i] == pytest.approx(low * c[i] - high * s[i], abs=1e-6)
        assert found[batch, head, token, i + 2] == pytest.approx(high * c[i + 2] + low * s[i + 2], abs=1e-6)


@given(st.floats(-10, 10))
def test_rope_keeps_lengths(angle: float) -> None:
    """Tables of one angle turn each pair, and turning back gives the input."""
    x = np.random.default_rng(2).normal(size=(1, 1, 2, 6)).astype(np.float32)
    sine, cosine = (np.full((1, 1, 1, 6), f(angle), np.float32) for f in (math.sin, math.cos))
    turned = run(rope(x, sine, cosine), x)
    np.testing.assert_allclose((turned**2).sum(-1), (x**2).sum(-1), rtol=1e-4)
    np.testing.assert_allclose(run(rope(turned, -sine, cosine), turned), x, atol=1e-5)


def test_rope_of_integers_and_warning(caplog: pytest.LogCaptureFixture) -> None:
    x, table = np.arange(8).reshape(1, 1, 2, 4), np.full((1, 1, 1, 4), 2)
    with caplog.at_level(logging.WARNING):
        assert run(rope(x, table, table), x).tolist() == [[[[-4, -4, 4, 8], [-4, -4, 20, 24]]]]
        assert not caplog.records
        run(rope(x, np.repeat(table, 2, 2), table), x)
    assert "has the shape [1, 1, 2, 4]; ONE's kernels use its first row only" in caplog.text


def test_rope_refused() -> None:
    x, table = real(1, 1, 2, 4), real(1, 1, 1, 4)
    with pytest.raises(UnsupportedError, match="mode 'gpt_j' has no published definition"):
        run(rope(x, table, table, mode="gpt_j"), x)
    mixed = node("ROPE", [tensor("int64", x.shape), *rope(x, table, table).operands[1:]], tensor("int64", None))
    with pytest.raises(UnsupportedError, match="different element types"):
        run(mixed, x.astype(np.int64))
    open_table = node("ROPE", [tensor("float32", s) for s in ((1, 1, 2, 4), None, None)], tensor("float32", None))
    with pytest.raises(InputError, match="do not fit the input"):
        run(open_table, x, real(1, 1, 3, 4), table)


HEADS, SIZE, CAPACITY = 3, 4, 96
WIDTH = HEADS * SIZE


class Layer:
    """An ATTENTION with random weights, its caches and mask."""

    def __init__(self) -> None:
        self.weights = [real(WIDTH, WIDTH) * 0.5 for _ in range(4)]
        angles = RNG.uniform(-3, 3, SIZE // 2).repeat(2)
        self.tables = [f(angles).astype(np.float32).reshape(1, 1, 1, SIZE) for f in (np.cos, np.sin)]

    def node(self, mask: int = CAPACITY, capacity: int = CAPACITY) -> Node:
        cache = (1, capacity, HEADS, SIZE)
        operands = [
            tensor("float32", (1, 1, WIDTH)),
            *(const(w, "float32") for w in self.weights),
            *(const(t, "float32") for t in self.tables),
            tensor("float32", (1, 1, 1, mask)),
            variable("float32", cache),
            variable("float32", cache),
            tensor("int64", (1,)),
        ]
        return node("ATTENTION", operands, tensor("float32", None))

    def turned(self, part: Array) -> Array:
        cosine, sine = (t.reshape(-1).astype(float) for t in self.tables)
        half = SIZE // 2
        other = np.concatenate([-part[:, half:], part[:, :half]], axis=1)
        return np.asarray(part * cosine + other * sine)

    def expected(self, tokens: list[Array]) -> Array:
        """The result for the last of these tokens, by full attention."""
        wq, wk, wv, wo = (w.astype(float) for w in self.weights)
        flat = [t.reshape(-1).astype(float) for t in tokens]
        keys = [self.turned((wk @ t).reshape(HEADS, SIZE)) for t in flat]
        values = [(wv @ t).reshape(HEADS, SIZE) for t in flat]
        query = self.turned((wq @ flat[-1]).reshape(HEADS, SIZE))
        mixed = []
        for head in range(HEADS):
            scores = np.array([query[head] @ key[head] for key in keys]) / math.sqrt(SIZE)
            shares = np.exp(scores - scores.max())
            mixed.append(sum(p * v[head] for p, v in zip(shares / shares.sum(), values, strict=True)))
        return np.asarray(wo @ np.concatenate(mixed)).reshape(1, 1, WIDTH)


def mask_for(position: int, length: int = CAPACITY) -> Array:
    return np.where(np.arange(length) <= position, 0, -np.inf).astype(np.float32).reshape(1, 1, 1, length)


def test_attention() -> None:
    """Token by token, across the end of a block of cache rows."""
    layer, tokens = Layer(), [real(1, 1, WIDTH) for _ in range(35)]
    session = Session(layer.node())
    for position, token in enumerate(tokens):
        (found,) = session(token, mask_for(position), np.array([position]))
        if position in (0, 1, 30, 31, 34):
            np.testing.assert_allclose(found, layer.expected(tokens[: position + 1]), rtol=1e-4, atol=1e-5)
    keys, values = session.variables[8], session.variables[9]
    assert not keys[0, 35:].any()
    assert not values[0, 35:].any()


def test_attention_repeats_a_short_mask() -> None:
    layer, token = Layer(), real(1, 1, WIDTH)
    (found,) = Session(layer.node())(token, mask_for(0), np.array([0]))
    (other,) = Session(layer.node(mask=1))(token, np.zeros((1, 1, 1, 1), np.float32), np.array([0]))
    assert not np.array_equal(found, other)  # all 32 rows count, 31 of them empty
    (long,) = Session(layer.node(mask=32))(token, mask_for(0, 32), np.array([0]))
    assert (found == long).all()


def test_attention_leaves_constant_caches_alone() -> None:
    layer, token = Layer(), real(1, 1, WIDTH)
    made = layer.node()
    caches = [const(np.zeros((1, CAPACITY, HEADS, SIZE)), "float32") for _ in range(2)]
    fixed = node("ATTENTION", [*made.operands[:8], *caches, made.operands[10]], tensor("float32", None))
    inputs = token, mask_for(0), np.array([0])
    assert (run(fixed, *inputs) == Session(made)(*inputs)[0]).all()
    assert not caches[0].array().any()


@pytest.mark.parametrize(("position", "capacity"), [(-1, 96), (96, 96), (31, 32), (95, 96)])
def test_attention_needs_room(position: int, capacity: int) -> None:
    made = Layer().node(capacity=capacity)
    with pytest.raises(InputError, match=rf"position {position} needs \d+ cache rows, the cache has {capacity}"):
        Session(made)(real(1, 1, WIDTH), mask_for(0), np.array([position]))


def test_attention_refused() -> None:
    made = Layer().node()
    double = [*made.operands[:9], variable("float16", (1, CAPACITY, HEADS, SIZE)), made.operands[10]]
    with pytest.raises(UnsupportedError, match="is float16; supported are float32"):
        node("ATTENTION", double, tensor("float32", None)).spec.kernel_function(
            node("ATTENTION", double, tensor("float32", None))
        )
    with pytest.raises(InputError, match="tables and mask do not fit"):
        Session(Layer().node(mask=0))(real(1, 1, WIDTH), np.zeros((1, 1, 1, 0), np.float32), np.array([0]))


def shape(name: str, *shapes: Any, **options: Any) -> Any:
    return infer(name, [tensor("float32", s) for s in shapes], **options)


def test_shapes() -> None:
    assert shape("INSTANCE_NORM", (2, 3, 4, 5), (5,), (1,)) == (2, 3, 4, 5)
    assert shape("INSTANCE_NORM", (2, 5, None), (5,), None) == (2, 5, None)
    assert shape("RMS_NORM", None, (5,)) is None
    assert shape("ROPE", (1, 2, None, 8), (1, 1, 1, 8), None) == (1, 2, None, 8)
    made = Layer().node()
    assert made.spec.infer_function(made)[0].shape == (1, 1, WIDTH)


@pytest.mark.parametrize(
    ("name", "shapes", "message"),
    [
        ("INSTANCE_NORM", [(3, 4), (4,), (4,)], "its rank must be 3 or 4"),
        ("INSTANCE_NORM", [(2, 3, 4, 5), (4,), (5,)], r"operand 1 \(gamma\) and channels: 4 and 5"),
        ("INSTANCE_NORM", [(2, 5, 4), (5,), (4,)], r"operand 2 \(beta\) and channels: 4 and 5"),
        ("RMS_NORM", [(2, 5), (5,)], "its rank must be 3 or 4"),
        ("RMS_NORM", [(2, 3, 5), (3,)], r"operand 1 \(gamma\) and channels"),
        ("ROPE", [(2, 3, 5), (3,), (3,)], "its rank must be 4"),
        ("ROPE", [(1, 2, 3, 5), (1, 1, 1, 5), (1, 1, 1, 5)], "the last dimension is 5; it must be even"),
        ("ROPE", [(1, 2, 3, 4), (1, 1, 1, 4), (1, 1, 1, 2)], "cos_table and the input's last dimension"),
    ],
)
def test_shapes_refused(name: str, shapes: list[Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        shape(name, *shapes)


@pytest.mark.parametrize(
    ("index", "wrong", "message"),
    [
        (0, (1, 2, WIDTH), "must be one token of one batch"),
        (0, (1, 1, 8), "wq's rows and the input: 8 and 12"),
        (4, (WIDTH, 8), "wo's columns and the input"),
        (8, (1, 96, 2, 4), "2 heads of 4 do not make the input's 12 features"),
        (9, (96, 3, 4), "its rank must be 4"),
    ],
)
def test_attention_shapes_refused(index: int, wrong: tuple[int, ...], message: str) -> None:
    made = Layer().node()
    operands = [tensor("float32", wrong) if i == index else info for i, info in enumerate(made.operands)]
    with pytest.raises(ModelError, match=message):
        made.spec.infer_function(node("ATTENTION", operands, tensor("float32", None)))


def test_only_reals() -> None:
    x = np.zeros((1, 2, 2, 2), np.int64)
    for name, count in (("INSTANCE_NORM", 3), ("RMS_NORM", 2)):
        operands = [tensor("int64", x.shape), *(tensor("int64", (2,)) for _ in range(count - 1))]
        with pytest.raises(UnsupportedError, match="is int64; supported are float32"):
            run(node(name, operands, tensor("int64", None)), x, *[x[0, 0, 0]] * (count - 1))
