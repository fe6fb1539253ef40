"""MediaPipe's custom operators against their definitions, written out element by element."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers
from hypothesis import given
from hypothesis import strategies as st

from helpers.models import ModelBuilder
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.ops.custom import known_spec
from odc_mlir.ops.spec import Node
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = np.ndarray
SAME, VALID = 1, 2


def _run(
    code: str, inputs: list[Array], shapes: list[Any], *fields: int, version: int = 1, **options: Any
) -> list[Array]:
    """The results of one operator, with fields or a map as its options."""
    builder = ModelBuilder()
    sources = [builder.tensor(f"x{i}", value.shape, value.dtype.name) for i, value in enumerate(inputs)]
    targets = [builder.tensor(f"y{i}", shape, "float32") for i, shape in enumerate(shapes)]
    data = bytes(flexbuffers.Dumps(options)) if options else struct.pack(f"<{len(fields)}i", *fields)
    record = {"custom_code": code, "custom_options": memoryview(data), "version": version}
    builder.operator("CUSTOM", sources, targets, options_type=None, **record)
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
            best[n, oy, ox, c] = x[n, y, column, c]
            place[n, oy, ox, c] = np.float32(ky * window[1] + kx) + np.float32(0.1)
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
        ("MaxUnpooling2D", [(1, 2, 2, 1), (1, 2, 3, 1)], (1, 2, 2, 2, 2, 0), "columns of values and indices: 2 and 3"),
    ],
)
def test_refusals(code: str, shapes: list[Any], fields: tuple[int, ...], text: str) -> None:
    spec = known_spec(code)
    assert spec is not None
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(OdcError, match=text):
        _run(code, inputs, [(1, 4, 4, 1)] * len(spec.results), *fields)


_CROP = {
    "subset_idxs": [0, 1, 2],
    "left_rotation_idx": 0,
    "right_rotation_idx": 1,
    "target_rotation_radians": 0.0,
    "output_height": 10,
    "output_width": 20,
    "scale_x": 1.0,
    "scale_y": 2.0,
}


def _crop(points: Array, **changed: Any) -> Array:
    (matrix,) = _run("Landmarks2TransformMatrix", [points], [(1, 4, 4)], version=2, **{**_CROP, **changed})
    return matrix


def test_matrix_of_an_upright_crop() -> None:
    """The box from (2, 3) to (6, 5), twice as high: its corners are those of a crop of 20 x 10 pixels."""
    points = np.array([[[2, 3, 9], [6, 3, 9], [4, 5, 9]]], np.float32)
    matrix = _crop(points)[0]
    np.testing.assert_allclose(matrix @ [0, 0, 7, 1], [2, 2, 7, 1], atol=1e-5)
    np.testing.assert_allclose(matrix @ [20, 10, 7, 1], [6, 6, 7, 1], atol=1e-5)


@given(st.integers(0, 99), st.floats(-3, 3))
def test_matrix_turns_with_the_landmarks(seed: int, radians: float) -> None:
    """Landmarks turned by an angle give the same crop, turned by it; a target angle turns the crop back."""
    points = np.random.default_rng(seed).uniform(1, 9, (1, 3, 3)).astype(np.float32)
    sine, cosine = np.sin(radians), np.cos(radians)
    turn = np.array([[cosine, -sine, 0, 0], [sine, cosine, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]])
    turned = (points @ turn[:3, :3].T).astype(np.float32)
    np.testing.assert_allclose(_crop(turned)[0], turn @ _crop(points)[0], atol=1e-4)
    across = points[0, 1] - points[0, 0]
    own = float(np.arctan2(across[1], across[0]))
    matrix = _crop(points, target_rotation_radians=own)[0]
    np.testing.assert_allclose(matrix[[0, 1], [1, 0]], 0, atol=1e-5)


@pytest.mark.parametrize("coordinates", [2, 3])
def test_landmarks_by_a_matrix(coordinates: int) -> None:
    rng = np.random.default_rng(1)
    points = rng.normal(size=(1, 5, coordinates)).astype(np.float32)
    matrix = rng.normal(size=(1, 4, 4)).astype(np.float32)
    (found,) = _run("TransformLandmarks", [points, matrix], [points.shape], version=2)
    flat = np.concatenate([points[0, :, :2], np.zeros((5, 1)), np.ones((5, 1))], axis=1)
    np.testing.assert_allclose(found[0, :, :2], flat @ matrix[0, :2].T, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(found[..., 2:], points[..., 2:])


@given(st.integers(0, 99))
def test_image_by_a_matrix(seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = rng.normal(size=(1, 4, 5, 2)).astype(np.float32)
    matrix = (np.eye(4)[None] + rng.integers(-2, 3, (1, 4, 4)) * 0.25).astype(np.float32)
    expected = np.zeros((1, 3, 6, 2))
    for y, x in np.ndindex(3, 6):
        column, row = (matrix[0, :2] @ [x + 0.5, y + 0.5, 0, 1]) - 0.5
        if 0 <= column <= 4 and 0 <= row <= 3:
            for line, pixel in np.ndindex(4, 5):
                near = max(0, 1 - abs(line - row)) * max(0, 1 - abs(pixel - column))
                expected[0, y, x] += near * image[0, line, pixel]
    size = {"output_height": 3, "output_width": 6}
    (found,) = _run("TransformTensorBilinear", [image, matrix], [expected.shape], version=2, **size)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"subset_idxs": [0, 3]}, "landmark 3 is asked for, there are 3"),
        ({"subset_idxs": []}, "they must be numbers from 0"),
        ({"left_rotation_idx": -1}, "they must be numbers from 0"),
        ({"scale_x": 0.0}, "the scale is 0.0 x 2.0; it must be positive"),
        ({"output_width": 0}, "output_width is 0"),
    ],
)
def test_crops_that_cannot_be(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(OdcError, match=text):
        _crop(np.zeros((1, 3, 3), np.float32), **changed)


@pytest.mark.parametrize(
    ("code", "shapes", "text"),
    [
        ("TransformLandmarks", [(1, 3, 4), (1, 4, 4)], "have 4 coordinates; they must have 2 or 3"),
        ("TransformLandmarks", [(2, 3, 3), (1, 4, 4)], "the batch"),
        ("TransformTensorBilinear", [(1, 3, 3, 1), (1, 3, 4)], r"the matrix has the shape .*16 elements"),
    ],
)
def test_transforms_that_cannot_be(code: str, shapes: list[Any], text: str) -> None:
    inputs = [np.zeros(shape, np.float32) for shape in shapes]
    with pytest.raises(OdcError, match=text):
        _run(code, inputs, [shapes[0]], version=2, output_height=3, output_width=3)


def test_the_first_version_is_another_operator() -> None:
    with pytest.raises(UnsupportedError, match="version 1 is not known, only version 2"):
        _run("TransformLandmarks", [np.zeros((1, 1, 1, 3), np.float32), np.eye(4, dtype=np.float32)], [(1, 1, 1, 3)])


def test_only_real_numbers() -> None:
    from helpers import nodes

    spec = known_spec("MaxPoolingWithArgmax2D")
    assert spec is not None
    assert spec.verify_function is not None
    infos = [nodes.tensor("int8", (1, 2, 2, 1)), nodes.tensor("float32", None), nodes.tensor("float32", None)]
    node = Node(spec, (infos[0],), (infos[1], infos[2]), custom_options=struct.pack("<6i", 1, 2, 2, 2, 2, 0))
    with pytest.raises(ModelError, match="is defined for float32 only, found int8"):
        spec.verify_function(node)
