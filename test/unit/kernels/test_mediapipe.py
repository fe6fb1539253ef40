"""MediaPipe's custom operators against their definitions, written out element by element."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.models import ModelBuilder
from odc_mlir.errors import ModelError, OdcError
from odc_mlir.ops.custom import known_spec
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.executor import HostExecutor
from odc_mlir.runtime.graph import build_graph

Array = np.ndarray
SAME, VALID = 1, 2


def _run(code: str, inputs: list[Array], shapes: list[Any], *fields: int) -> list[Array]:
    builder = ModelBuilder()
    sources = [builder.tensor(f"x{i}", value.shape, value.dtype.name) for i, value in enumerate(inputs)]
    targets = [builder.tensor(f"y{i}", shape, "float32") for i, shape in enumerate(shapes)]
    data = memoryview(struct.pack(f"<{len(fields)}i", *fields))
    builder.operator("CUSTOM", sources, targets, options_type=None, custom_code=code, custom_options=data)
    return HostExecutor(build_graph(builder.finish(sources, targets))).run(inputs)


def _transposed(x: Array, weights: Array, bias: Array, padding: int, stride: tuple[int, int]) -> Array:
    """What MediaPipe's loops over input pixels and filter taps give."""
    over = [
        max(0, taps - (size - 1) % step - 1) if padding == SAME else 0
        for size, taps, step in zip(x.shape[1:3], weights.shape[1:3], stride, strict=True)
    ]
    height, width = (
        step * (size - 1) + taps - o
        for size, taps, step, o in zip(x.shape[1:3], weights.shape[1:3], stride, over, strict=True)
    )
    result = np.zeros((len(x), height, width, len(weights))) + bias
    for n, iy, ix, ky, kx in np.ndindex(*x.shape[:3], *weights.shape[1:3]):
        y, column = iy * stride[0] - over[0] // 2 + ky, ix * stride[1] - over[1] // 2 + kx
        if 0 <= y < height and 0 <= column < width:
            result[n, y, column] += weights[:, ky, kx].astype(np.float64) @ x[n, iy, ix]
    return result


@given(st.integers(0, 99), st.sampled_from([SAME, VALID]), *[st.integers(1, 4)] * 6)
def test_convolution_with_bias(
    seed: int, padding: int, h: int, w: int, kh: int, kw: int, stride_h: int, stride_w: int
) -> None:
    rng = np.random.default_rng(seed)
    x, weights, bias = (rng.normal(size=s).astype(np.float32) for s in ((2, h, w, 3), (2, kh, kw, 3), (2,)))
    expected = _transposed(x, weights, bias, padding, (stride_h, stride_w))
    (found,) = _run("Convolution2DTransposeBias", [x, weights, bias], [expected.shape], padding, stride_w, stride_h)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


def _pooled(x: Array, padding: int, stride: tuple[int, int], window: tuple[int, int]) -> tuple[Array, Array]:
    counts, before = [], []
    for size, step, taps in zip(x.shape[1:3], stride, window, strict=True):
        counts.append(-(-size // step) if padding == SAME else (size - taps + step) // step)
        before.append(max(0, (counts[-1] - 1) * step + taps - size) // 2)
    best = np.full((len(x), *counts, x.shape[3]), -np.inf, np.float32)
    place = np.zeros(best.shape, np.float32)
    for n, oy, ox, c, ky, kx in np.ndindex(*best.shape, *window):
        y, column = oy * stride[0] - before[0] + ky, ox * stride[1] - before[1] + kx
        if 0 <= y < x.shape[1] and 0 <= column < x.shape[2] and x[n, y, column, c] > best[n, oy, ox, c]:
            best[n, oy, ox, c], place[n, oy, ox, c] = x[n, y, column, c], ky * window[1] + kx + 0.1
    return best, place


@given(st.integers(0, 99), st.sampled_from([SAME, VALID]), *[st.integers(1, 3)] * 4)
def test_pooling_with_places(seed: int, padding: int, kh: int, kw: int, stride_h: int, stride_w: int) -> None:
    x = np.random.default_rng(seed).integers(-5, 5, (2, 4, 5, 2)).astype(np.float32)
    best, place = _pooled(x, padding, (stride_h, stride_w), (kh, kw))
    fields = (padding, stride_w, stride_h, kw, kh, 1)  # 1: RELU
    found = _run("MaxPoolingWithArgmax2D", [x], [best.shape] * 2, *fields)
    np.testing.assert_array_equal(found[0], np.maximum(best, 0))
    np.testing.assert_array_equal(found[1], place)


@given(st.integers(0, 99), *[st.integers(1, 3)] * 4)
def test_unpooling(seed: int, kh: int, kw: int, stride_h: int, stride_w: int) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(2, 3, 2, 2)).astype(np.float32)
    places = (rng.integers(-1, kh * kw + 2, x.shape) + 0.1).astype(np.float32)
    places[0, 0, 0] = np.nan, 3e38
    expected = np.zeros((2, 3 * kh, 2 * kw, 2), np.float32)
    pads = [max(0, (n - 1) * s + k - n * k) // 2 for n, s, k in ((3, stride_h, kh), (2, stride_w, kw))]
    for n, iy, ix, c in np.ndindex(*x.shape):
        if abs(places[n, iy, ix, c]) < 1000:
            index = int(places[n, iy, ix, c])
            row = int(index / kw)
            y, column = iy * stride_h - pads[0] + row, ix * stride_w - pads[1] + index - row * kw
            if 0 <= y < expected.shape[1] and 0 <= column < expected.shape[2]:
                expected[n, y, column, c] = x[n, iy, ix, c]
    (found,) = _run("MaxUnpooling2D", [x, places], [expected.shape], SAME, stride_w, stride_h, kw, kh, 0)
    np.testing.assert_array_equal(found, expected)


def test_unpooling_undoes_pooling() -> None:
    x = np.zeros((1, 4, 6, 1), np.float32)
    x[0, [0, 3, 1], [1, 0, 5], 0] = 1, 2, 3
    best, place = _run("MaxPoolingWithArgmax2D", [x], [(1, 2, 3, 1)] * 2, SAME, 2, 2, 2, 2, 0)
    (back,) = _run("MaxUnpooling2D", [best, place], [x.shape], SAME, 2, 2, 2, 2, 0)
    np.testing.assert_array_equal(back, x)


@pytest.mark.parametrize(
    ("code", "shapes", "fields", "text"),
    [
        ("Convolution2DTransposeBias", [(1, 2, 2, 1), (1, 2, 2, 1), (1,)], (1, 2), "have 8 bytes; .*at least 12"),
        ("Convolution2DTransposeBias", [(1, 2, 2, 1), (1, 2, 2, 1), (1,)], (3, 2, 2), "padding is 3; allowed"),
        ("Convolution2DTransposeBias", [(1, 2, 2, 1), (1, 2, 2, 1), (1,)], (1, 2, 0), "stride's height is 0"),
        ("Convolution2DTransposeBias", [(1, 2, 2, 1), (1, 2, 2, 2), (1,)], (1, 2, 2), "channels of input and filter"),
        ("Convolution2DTransposeBias", [(1, 2, 2, 1), (1, 2, 2, 1), (2,)], (1, 2, 2), "channels of filter and bias"),
        ("MaxPoolingWithArgmax2D", [(1, 2, 2, 1)], (1, 2, 2, 2, 0, 0), "window's height is 0"),
        ("MaxPoolingWithArgmax2D", [(1, 2, 2, 1)], (1, 2, 2, 2, 2, 4), "activation is 4; allowed are 0 to 3"),
        ("MaxUnpooling2D", [(1, 2, 2, 1), (1, 2, 3, 1)], (1, 2, 2, 2, 2, 0), "columns of values and places: 2 and 3"),
    ],
)
def test_refusals(code: str, shapes: list[Any], fields: tuple[int, ...], text: str) -> None:
    spec = known_spec(code)
    assert spec is not None
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(OdcError, match=text):
        _run(code, inputs, [(1, 4, 4, 1)] * len(spec.results), *fields)


def test_only_real_numbers() -> None:
    from helpers import nodes

    spec = known_spec("MaxPoolingWithArgmax2D")
    assert spec is not None
    assert spec.verify_function is not None
    infos = [nodes.tensor("int8", (1, 2, 2, 1)), nodes.tensor("float32", None), nodes.tensor("float32", None)]
    node = Node(spec, (infos[0],), (infos[1], infos[2]), custom_options=struct.pack("<6i", 1, 2, 2, 2, 2, 0))
    with pytest.raises(ModelError, match="is defined for float32 only, found int8"):
        spec.verify_function(node)
