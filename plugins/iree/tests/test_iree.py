"""The target, its text and its programs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from odc_iree import compiler, costs, target
from odc_iree.text import OPERATORS
from odc_mlir import ops
from odc_mlir.errors import CompileError, PackageError
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.plugins.target import SegmentModel, operator_model
from odc_mlir.runtime import conformance
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.devices.base import DeviceProgram

RANDOM = np.random.default_rng(5)


def tensor(*shape: int) -> TensorInfo:
    return TensorInfo("x", "float32", shape)


def constant(value: Any) -> TensorInfo:
    array = np.asarray(value)
    array = array.astype(np.float32 if array.dtype.kind == "f" else np.int32)
    return TensorInfo("c", array.dtype.name, array.shape, data=memoryview(array.tobytes()))


def weights(*shape: int) -> TensorInfo:
    return constant(RANDOM.normal(size=shape))


def node(name: str, *operands: TensorInfo | None, shape: tuple[int, ...], **options: Any) -> Node:
    spec = ops.get(name)
    result = TensorInfo("y", "float32", shape)
    fields = default_options(spec.options) if spec.options else {}
    return Node(spec, operands, (result,), {**fields, **options}, name="y")


IMAGE = tensor(1, 7, 6, 4)
SAME = {"padding": "same", "stride_h": 2, "stride_w": 1}
FILTER = {"filter_height": 3, "filter_width": 2}
NODES = [
    node(
        "CONV_2D", IMAGE, weights(5, 3, 3, 4), weights(5), shape=(1, 4, 6, 5), **SAME, fused_activation_function="relu6"
    ),
    node("CONV_2D", IMAGE, weights(6, 3, 3, 2), None, shape=(1, 5, 4, 6), padding="valid", stride_h=1, stride_w=1),
    node(
        "CONV_2D",
        IMAGE,
        weights(5, 2, 2, 4),
        weights(5),
        shape=(1, 7, 6, 5),
        padding="same",
        stride_h=1,
        stride_w=1,
        dilation_h_factor=2,
        dilation_w_factor=3,
    ),
    node("DEPTHWISE_CONV_2D", IMAGE, weights(1, 3, 3, 8), weights(8), shape=(1, 4, 6, 8), **SAME, depth_multiplier=2),
    node("FULLY_CONNECTED", tensor(2, 3, 4), weights(5, 4), weights(5), shape=(6, 5), fused_activation_function="tanh"),
    node("FULLY_CONNECTED", tensor(2, 3, 4), weights(5, 4), None, shape=(2, 3, 5), keep_num_dims=True),
    node("AVERAGE_POOL_2D", IMAGE, shape=(1, 4, 6, 4), **SAME, **FILTER),
    node("AVERAGE_POOL_2D", tensor(1, 20, 24, 4), shape=(1, 10, 24, 4), **SAME, filter_height=11, filter_width=8),
    node("MAX_POOL_2D", IMAGE, shape=(1, 4, 6, 4), **SAME, **FILTER, fused_activation_function="relu_n1_to_1"),
    node("SOFTMAX", tensor(2, 9), shape=(2, 9), beta=0.5),
    node("ADD", IMAGE, tensor(6, 1), shape=IMAGE.static_shape, fused_activation_function="relu"),
    *(node(name, IMAGE, weights(4), shape=IMAGE.static_shape) for name in ("SUB", "MUL", "DIV", "MAXIMUM", "MINIMUM")),
    node("PRELU", IMAGE, weights(1, 1, 4), shape=IMAGE.static_shape),
    node("LEAKY_RELU", IMAGE, shape=IMAGE.static_shape, alpha=1.5),
    *(
        node(name, IMAGE, shape=IMAGE.static_shape)
        for name in ("ABS", "EXP", "HARD_SWISH", "LOGISTIC", "NEG", "RELU", "RELU6", "TANH")
    ),
    *(node(name, IMAGE, constant([1, -1]), shape=(1, 6)) for name in ("MEAN", "SUM", "REDUCE_MAX")),
    node("MEAN", IMAGE, constant([1, 2]), shape=(1, 1, 1, 4), keep_dims=True),
    node("TRANSPOSE", IMAGE, constant([0, 3, 1, 2]), shape=(1, 4, 7, 6)),
    node("PAD", IMAGE, constant([[0, 0], [1, 2], [0, 3], [0, 0]]), shape=(1, 10, 9, 4)),
    node("PADV2", IMAGE, constant([[0, 0], [1, 2], [0, 3], [0, 0]]), constant([2.5]), shape=(1, 10, 9, 4)),
    node("CONCATENATION", IMAGE, weights(1, 7, 6, 1), IMAGE, shape=(1, 7, 6, 9), axis=-1),
    node("RESHAPE", IMAGE, constant([6, 28]), shape=(6, 28), new_shape=(6, 28)),
    node("SQUEEZE", IMAGE, shape=(7, 6, 4), squeeze_dims=(0,)),
    node("EXPAND_DIMS", IMAGE, constant(0), shape=(1, 1, 7, 6, 4)),
    node(
        "DEQUANTIZE", replace(weights(4), dtype="float16", data=memoryview(np.arange(4, dtype=np.float16))), shape=(4,)
    ),
    *(node(name, constant([0.5, 4.0]), shape=(2,)) for name in ("SQRT", "RSQRT")),
]


def test_every_form_has_a_case() -> None:
    assert {item.spec.name for item in NODES} == set(OPERATORS)


def loaded(item: Node) -> DeviceProgram:
    segment = SegmentModel("s", write_model(operator_model(item)))
    return open_device("iree").load(compiler.create_codegen().compile_segment(segment, None))  # type: ignore[arg-type]


@pytest.mark.parametrize("item", NODES, ids=lambda item: item.spec.name)
def test_an_operator_computes_the_same_as_host_kernels(item: Node) -> None:
    assert target.RULES.reason_against(item) is None
    program = loaded(item)
    inputs = [RANDOM.normal(size=port.shape).astype(np.float32) for port in program.inputs]
    (found,), (expected,) = program.run(inputs).outputs, odc_mlir.run(write_model(operator_model(item)), inputs)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * np.abs(expected).max())


def test_an_average_over_a_large_window_keeps_its_precision() -> None:
    x, window = tensor(1, 128, 128, 8), {"filter_height": 128, "filter_width": 128}
    item = node("AVERAGE_POOL_2D", x, shape=(1, 1, 1, 8), padding="valid", stride_h=128, stride_w=128, **window)
    program = loaded(item)
    value = RANDOM.uniform(0, 1, x.static_shape).astype(np.float32)
    average = value.astype(np.float64).mean((1, 2), keepdims=True)
    np.testing.assert_allclose(program.run([value]).outputs[0], average, rtol=5e-7)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (node("COS", IMAGE, shape=IMAGE.static_shape), "operator: the target has no COS"),
        (node("ABS", tensor(2), shape=(None,)), "static-shape: the shape of 'y' is not known"),  # type: ignore[arg-type]
        (node("ABS", replace(tensor(2), dtype="int32"), shape=(2,)), "types: 'x' is int32"),
        (
            node("ADD", IMAGE, IMAGE, shape=IMAGE.static_shape, fused_activation_function="sign_bit"),
            "form: the activation",
        ),
        (node("MEAN", IMAGE, tensor(2), shape=(1, 4)), "form: "),
    ],
    ids=["operator", "shape", "types", "activation", "axes"],
)
def test_rules(item: Node, reason: str) -> None:
    found = target.RULES.reason_against(item)
    assert found is not None
    assert found.startswith(reason)


def test_costs_are_measured_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path))
    found = costs.costs()
    monkeypatch.setattr(costs, "_time_ns", None)
    assert costs.costs().host == found.host
    small, large = (
        node("CONV_2D", tensor(1, size, size, 8), weights(8, 3, 3, 8), None, shape=(1, size, size, 8), **SAME)
        for size in (8, 32)
    )
    for cost in (found, costs.costs()):
        assert 0 < cost.operator_ns(small) < cost.operator_ns(large)
        assert cost.operator_ns(node("RESHAPE", IMAGE, shape=(6, 28))) == 0
    (file,) = (tmp_path / "plugins").iterdir()
    file.write_text("{}")
    with pytest.raises(TypeError):
        costs.costs()


def test_the_conformance_suite_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_PLUGIN_TIMEOUT_S", "120")
    assert [outcome.problem for outcome in conformance.check_plugin("iree") if outcome.problem is not None] == []


def test_programs_of_other_versions_and_failures_of_the_compiler_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    data = compiler.to_bytes([[], []], b"nothing")
    with pytest.raises(PackageError, match="IREE cannot load the program"):
        open_device("iree").load(data)
    monkeypatch.setattr(compiler, "facts", lambda: ("iree-base-compiler 1", *target.facts()[1:]))
    with pytest.raises(PackageError, match="iree-base-compiler 1 here"):
        compiler.parse(data)
    monkeypatch.setattr(compiler, "module_text", lambda _: "func.func @main(")
    model = write_model(operator_model(NODES[0]))
    with pytest.raises(CompileError, match=r"IREE's compiler fails: .*error:"):
        compiler.create_codegen().compile_segment(SegmentModel("s", model), None)  # type: ignore[arg-type]
