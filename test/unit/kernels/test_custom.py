"""Custom operators: registered ones, known ones, and those that nobody computes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

from helpers.models import ModelBuilder
from helpers.nodes import known_codes
from odc_mlir.errors import ModelError, OptionError, UnsupportedError
from odc_mlir.formats.circle.model import Model
from odc_mlir.ops.custom import known_spec
from odc_mlir.ops.registry import CustomOps
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

Array = np.ndarray


def _model(code: str, inputs: list[Array], results: list[tuple[str, Any]], **options: Any) -> Model:
    """One custom operator; ``results`` are element types and shapes."""
    builder = ModelBuilder()
    sources = [builder.tensor(f"x{i}", value.shape, value.dtype.name) for i, value in enumerate(inputs)]
    targets = [builder.tensor(f"y{i}", shape, dtype) for i, (dtype, shape) in enumerate(results)]
    raw = memoryview(bytes(flexbuffers.Dumps(options))) if options else memoryview(b"")
    builder.operator("CUSTOM", sources, targets, options_type=None, custom_code=code, custom_options=raw)
    return builder.finish(sources, targets)


def _run(code: str, inputs: list[Array], *results: tuple[str, Any], **options: Any) -> list[Array]:
    return HostExecutor(build_graph(_model(code, inputs, list(results), **options))).run(inputs)


def _floats(*values: Any) -> Array:
    return np.array(values, np.float32)


def test_a_registered_operator() -> None:
    seen: list[Any] = []

    def scale(inputs: Any, outputs: Any, options: bytes) -> list[Array]:
        seen.append((outputs[0].name, outputs[0].dtype, bytes(options)))
        assert not inputs[0].flags.writeable
        return [inputs[0] * np.float32(3)]

    registry = CustomOps()
    registry.register("Mine", scale, infer=lambda inputs, outputs, options: [inputs[0].shape])
    x = _floats(1, 2)
    graph = build_graph(_model("Mine", [x], [("float32", (2,))], factor=3), custom_ops=registry)
    np.testing.assert_array_equal(HostExecutor(graph).run([x])[0], [3, 6])
    assert seen == [("y0", "float32", bytes(flexbuffers.Dumps({"factor": 3})))]


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (lambda inputs, outputs, options: [], "returned 0 results, the model has 1"),
        (lambda inputs, outputs, options: [np.zeros(2)], "returned float64, the model declares float32"),
    ],
)
def test_a_registered_operator_that_does_not_fit(given: Any, text: str) -> None:
    registry = CustomOps()
    registry.register("Mine", given)
    graph = build_graph(_model("Mine", [_floats(1)], [("float32", (1,))]), custom_ops=registry)
    with pytest.raises(ModelError, match=text):
        HostExecutor(graph).run([_floats(1)])


def test_registered_operators_go_first_and_stay_in_their_registry() -> None:
    parent = CustomOps()
    own = CustomOps(parent)
    own.register("Erf", lambda inputs, outputs, options: [inputs[0] * 0])
    model = _model("Erf", [_floats(1)], [("float32", (1,))])
    assert HostExecutor(build_graph(model, custom_ops=own)).run([_floats(1)])[0][0] == 0
    assert HostExecutor(build_graph(model, custom_ops=parent)).run([_floats(1)])[0][0] > 0.8
    assert (list(own), list(parent)) == (["Erf"], [])


def test_registering_is_checked() -> None:
    registry = CustomOps()
    registry.register("A", lambda *_: [])
    registry.register("A", lambda *_: [], replace=True)
    for code, function, text in (("A", len, "registered already"), ("", len, "non-empty"), ("B", None, "callable")):
        with pytest.raises(OptionError, match=text):
            registry.register(code, function)  # type: ignore[arg-type]
    registry.remove("A")
    with pytest.raises(OptionError, match="'A' is not registered"):
        registry.remove("A")


def test_nobody_computes_it() -> None:
    with pytest.raises(UnsupportedError, match=r"custom operator 'Nope' .*register_custom_op\('Nope', function\)"):
        _run("Nope", [_floats(1)], ("float32", (1,)))


def test_known_codes_have_entries() -> None:
    for code in known_codes():
        spec = known_spec(code)
        assert spec is not None
        assert spec.name == f"CUSTOM({code})"
        assert callable(spec.infer_function)
        assert callable(spec.kernel_function)
        spec.quant.trained({})  # their options stand in a map, not in the table of the builtin operator


def test_erf() -> None:
    x = np.concatenate([np.linspace(-5, 5, 1001), [1e-20, np.inf, -np.inf]]).astype(np.float32)
    expected = np.array([math.erf(v) for v in x.tolist()])
    np.testing.assert_allclose(_run("Erf", [x], ("float32", x.shape))[0], expected, rtol=3e-7, atol=3e-7)


def test_builtin_operators_by_other_names() -> None:
    a, b = _floats([1, 2], [3, 4]), _floats([5, 6], [7, 8])
    sizes, axis = np.array([1, 1], np.int32), np.array(0, np.int32)
    kind = ("float32", (2, 2))
    np.testing.assert_array_equal(_run("AddV2", [a, b], kind, T=1)[0], a + b)
    np.testing.assert_array_equal(_run("MatMul", [a, b], kind, transpose_a=True, transpose_b=False)[0], a.T @ b)
    np.testing.assert_array_equal(_run("BatchMatMulV2", [a, b], kind, adj_x=False, adj_y=True)[0], a @ b.T)
    np.testing.assert_array_equal(_run("BroadcastTo", [a[0], np.array([3, 2], np.int32)], kind)[0], [a[0]] * 3)
    parts = _run("SplitV", [a, sizes, axis], ("float32", (1, 2)), ("float32", (1, 2)), num_split=2)
    np.testing.assert_array_equal(np.concatenate(parts), a)
    flags = np.array([[True, False], [True, True]])
    found = _run("All", [flags, np.array([1], np.int32)], ("bool", (2,)), keep_dims=False)[0]
    np.testing.assert_array_equal(found, [False, True])


@pytest.mark.parametrize(("lower", "upper"), [(0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (-1, -1), (2, 1)])
def test_matrix_band_part(lower: int, upper: int) -> None:
    x = np.arange(1, 25, dtype=np.float32).reshape(2, 3, 4)
    limits = [np.array(lower, np.int32), np.array(upper, np.int32)]
    kept = [[(lower < 0 or i - j <= lower) and (upper < 0 or j - i <= upper) for j in range(4)] for i in range(3)]
    np.testing.assert_array_equal(_run("MatrixBandPart", [x, *limits], ("float32", x.shape))[0], x * np.array(kept))


@pytest.mark.parametrize("padding", ["SAME", "VALID"])
@pytest.mark.parametrize("with_batch", [False, True])
def test_max_pool_with_argmax(padding: str, with_batch: bool) -> None:
    x = np.random.default_rng(0).integers(-5, 5, (2, 5, 6, 3)).astype(np.float32)
    sizes = {"ksize": [1, 3, 2, 1], "strides": [1, 2, 2, 1], "padding": padding}
    results = ("float32", (2, 3, 3, 3)), ("int64", (2, 3, 3, 3))
    best, place = _run("MaxPoolWithArgmax", [x], *results, include_batch_in_index=with_batch, **sizes)
    images = np.broadcast_to(0 if with_batch else np.arange(2)[:, None, None, None] * x[0].size, place.shape)
    np.testing.assert_array_equal(x.reshape(-1)[place + images], best)
    top = 1 if padding == "SAME" else 0
    rows = 3 if padding == "SAME" else 2
    assert best.shape == (2, rows, 3, 3)
    for n, y, column, c in np.ndindex(best.shape):
        window = x[n, max(2 * y - top, 0) : 2 * y - top + 3, 2 * column : 2 * column + 2, c]
        assert best[n, y, column, c] == window.max()


@pytest.mark.parametrize("training", [False, True])
def test_fused_batch_norm(training: bool) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(3, 2, (2, 3, 4, 5)).astype(np.float32)
    scale, offset, mean, variance = (rng.uniform(0.5, 2, 5).astype(np.float32) for _ in range(4))
    results = [("float32", x.shape), ("float32", (5,)), ("float32", (5,))]
    inputs = [x, scale, offset, mean, variance]
    y, found_mean, found_variance = _run("FusedBatchNormV3", inputs, *results, is_training=training, epsilon=0.001)
    own = (x.mean((0, 1, 2)), x.var((0, 1, 2))) if training else (mean, variance)
    np.testing.assert_allclose(y, (x - own[0]) / np.sqrt(own[1] + 0.001) * scale + offset, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found_mean, own[0], rtol=1e-5)
    np.testing.assert_allclose(found_variance, x.var((0, 1, 2), ddof=1) if training else variance, rtol=1e-5)


def test_stateless_random_uniform() -> None:
    shape, seeds = np.array([3, 5], np.int32), np.array([2, 7], np.int32)
    first = _run("StatelessRandomUniform", [shape, seeds], ("float32", (3, 5)))[0]
    np.testing.assert_array_equal(first, _run("StatelessRandomUniform", [shape, seeds], ("float32", (3, 5)))[0])
    assert first.shape == (3, 5)
    assert (first >= 0).all()
    assert (first < 1).all()
    assert (first != _run("StatelessRandomUniform", [shape, seeds + 1], ("float32", (3, 5)))[0]).any()


_DETECTION = {
    "max_detections": 3,
    "max_classes_per_detection": 1,
    "nms_score_threshold": 0.3,
    "nms_iou_threshold": 0.5,
    "num_classes": 2,
    "y_scale": 10.0,
    "x_scale": 10.0,
    "h_scale": 5.0,
    "w_scale": 5.0,
}
_DETECTED = [("float32", (1, 3, 4)), ("float32", (1, 3)), ("float32", (1, 3)), ("float32", (1,))]


@pytest.mark.parametrize("thorough", [False, True])
def test_detection_post_process(thorough: bool) -> None:
    """Two boxes on one place, of which the better stays, one elsewhere, and one below the threshold."""
    anchors = _floats([0.5, 0.5, 0.2, 0.2], [0.5, 0.5, 0.2, 0.2], [0.1, 0.1, 0.1, 0.1], [0.9, 0.9, 0.1, 0.1])
    scores = _floats([[0.1, 0.8, 0.1], [0.1, 0.9, 0.1], [0.0, 0.1, 0.6], [0.9, 0.2, 0.1]])
    inputs = [np.zeros((1, 4, 4), np.float32), scores, anchors]
    options = {**_DETECTION, "use_regular_nms": thorough}
    boxes, classes, found, count = _run("TFLite_Detection_PostProcess", inputs, *_DETECTED, **options)
    np.testing.assert_allclose(boxes[0], [[0.4, 0.4, 0.6, 0.6], [0.05, 0.05, 0.15, 0.15], [0] * 4], atol=1e-6)
    np.testing.assert_array_equal(classes, [[0, 1, 0]])
    np.testing.assert_allclose(found, [[0.9, 0.6, 0]])
    np.testing.assert_array_equal(count, [2])


def test_options_of_the_wrong_kind() -> None:
    with pytest.raises(ModelError, match="option adj_x is 'yes'; it must be a bool"):
        _run("BatchMatMulV2", [np.ones((2, 2), np.float32)] * 2, ("float32", (2, 2)), adj_x="yes")
