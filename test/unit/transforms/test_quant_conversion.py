"""Quantised modules: what they compute, how they are written, and what flipping the sign of codes leaves as it is."""

from __future__ import annotations

import logging
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.editing.parameters import fake_quantize
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.transforms.quant.convert_circle_to_quant import ConvertCircleToQuantPass
from odc_mlir.transforms.quant.quant_assign_params import QuantAssignParamsPass
from odc_mlir.transforms.quant.quant_flip_sign import QuantFlipSignPass
from odc_mlir.transforms.quant.quant_insert_requantize import QuantInsertRequantizePass
from odc_mlir.transforms.quant.quant_propagate_params import QuantPropagateParamsPass
from odc_mlir.transforms.quant.quant_verify_params import QuantVerifyParamsPass
from odc_mlir.universe import make_context

SCHEMES = ("uint8", "int8", "int16", "int16x8")

# A convolution, pooling, a branch that is concatenated and a softmax; the batch is open, "big" has several uses.
X = "tensor<?x4x4x2xf32, #circle.qparams<min = [-1.0], max = [1.0]>>"
C = "tensor<?x4x4x3xf32, #circle.qparams<min = [-2.0], max = [2.5]>>"
P = "tensor<?x2x2x3xf32, #circle.qparams<min = [-2.0], max = [2.5]>>"
M = "tensor<?x2x2x3xf32, #circle.qparams<min = [-1.0], max = [1.0]>>"
J = "tensor<?x2x2x6xf32, #circle.qparams<min = [-2.0], max = [2.5]>>"
F = "tensor<?x4xf32, #circle.qparams<min = [-3.0], max = [3.0]>>"
S = "tensor<?x4xf32, #circle.qparams<min = [0.0], max = [1.0]>>"
POOL = "{padding = valid, stride = [2, 2], filter = [2, 2]}"


def _numbers(count: int, seed: int) -> str:
    values = np.random.default_rng(seed).uniform(-0.5, 0.5, count).astype(np.float32)
    return f'#circle.blob<"0x{values.tobytes().hex()}">' if count <= 16 else _list(values)


def _list(values: NDArray[Any]) -> str:
    return "[" + ", ".join(np.format_float_positional(value, trim="0") for value in values) + "]"


TEXT = f"""
func.func @main(%x: {X} loc("x")) -> {S} {{
  %w = circle.const {_numbers(54, 1)} : tensor<3x3x3x2xf32> loc("w")
  %b = circle.const [0.1, -0.2, 0.3] : tensor<3xf32> loc("b")
  %c = circle.conv_2d(%x, %w, %b) {{padding = same, stride = [1, 1]}} : ({X}, tensor<3x3x3x2xf32>, tensor<3xf32>) -> {C} loc("c")
  %p = circle.max_pool_2d(%c) {POOL} : ({C}) -> {P} loc("p")
  %m = circle.tanh(%p) : ({P}) -> {M} loc("m")
  %j = circle.concatenation(%p, %m) {{axis = 3}} : ({P}, {M}) -> {J} loc("j")
  %f = circle.const {_numbers(96, 2)} : tensor<4x24xf32> loc("f")
  %d = circle.fully_connected(%j, %f) : ({J}, tensor<4x24xf32>) -> {F} loc("d")
  %s = circle.softmax(%d) {{beta = 1.0}} : ({F}) -> {S} loc("s")
  func.return %s : {S}
}}"""  # noqa: E501
INPUTS = np.random.default_rng(3).uniform(-1, 1, (32, 4, 4, 2)).astype(np.float32)


def applied(module: ModuleOp, *passes: ModulePass) -> ModuleOp:
    for item in passes:
        item.apply(make_context(), module)
        module.verify()
    return module


def assigned(scheme: str) -> ModuleOp:
    module = parse_module(make_context(), TEXT)
    return applied(module, QuantAssignParamsPass(scheme=scheme), QuantPropagateParamsPass())


def quantised(scheme: str, *, io: Any = "float") -> ModuleOp:
    passes = ConvertCircleToQuantPass(io), QuantInsertRequantizePass(), QuantVerifyParamsPass()
    return applied(assigned(scheme), *passes)


def executor(module: ModuleOp) -> HostExecutor:
    return HostExecutor(build_graph(read_model(bytes(write_model(export_model(module))))))


def result(module: ModuleOp, inputs: NDArray[Any]) -> NDArray[Any]:
    (found,) = executor(module).run([inputs])
    return found


def body(module: ModuleOp) -> list[str]:
    """The operators with their types, without names of values, which text numbers in its own way."""
    names = re.compile(r"%\w+|#?loc\w*(\(.*?\))?")
    lines = [names.sub("", line) for line in module_text(module).splitlines() if " circle." in line]
    return [line for line in lines if "circle.const" not in line]


def tensor_names(module: ModuleOp) -> set[str]:
    return {tensor.name for tensor in export_model(module).subgraphs[0].tensors}


@pytest.mark.parametrize(
    ("scheme", "largest_error"), [("uint8", 0.03), ("int8", 0.03), ("int16", 3e-4), ("int16x8", 0.02)]
)
def test_integers_compute_what_reals_do(scheme: str, largest_error: float) -> None:
    reals = result(parse_module(make_context(), TEXT), INPUTS)
    integers = result(quantised(scheme), INPUTS)
    assert integers.dtype == np.float32
    assert np.abs(integers - reals).max() < largest_error


@pytest.mark.parametrize(
    ("scheme", "mean_steps", "most_steps"), [("uint8", 0.7, 4), ("int8", 0.7, 4), ("int16", 1, 5), ("int16x8", 1, 5)]
)
def test_fake_quantisation_predicts_integers(scheme: str, mean_steps: float, most_steps: int) -> None:
    """Integers round where real numbers do, but in another way: results are few codes apart."""
    written = export_model(quantised(scheme, io="quantized")).subgraphs[0]
    quant = written.tensors[written.outputs[0]].quant_params()
    assert quant is not None
    predicted = result(fake_quantize(quantised(scheme)), INPUTS)
    steps = np.abs(result(quantised(scheme), INPUTS) - predicted) / quant.scale
    assert steps.mean() < mean_steps
    assert steps.max() < most_steps + 0.01


@pytest.mark.parametrize("io", ["float", "quantized"])
@pytest.mark.parametrize("scheme", SCHEMES)
def test_the_file_gives_the_module_back(scheme: str, io: str) -> None:
    module = quantised(scheme, io=io)
    data = bytes(write_model(export_model(module)))
    again = import_model(read_model(data))
    again.verify()
    assert bytes(write_model(export_model(again))) == data
    for attribute in [name for name in module.attributes if name.startswith("quant.")]:
        del module.attributes[attribute]
    assert body(again) == body(module)


def test_names_and_dimensions_stay() -> None:
    module = quantised("int8")
    assert {"x", "x_quantized", "w", "b", "c", "p", "m", "f", "d", "s", "s_quantized"} <= tensor_names(module)
    graph = export_model(module).subgraphs[0]
    assert graph.tensors[graph.inputs[0]].effective_shape == (None, 4, 4, 2)
    assert [graph.tensors[i].name for i in graph.outputs] == ["s"]
    codes = export_model(quantised("int8", io="quantized")).subgraphs[0]
    assert [codes.tensors[i].name for i in (*codes.inputs, *codes.outputs)] == ["x", "s"]
    assert [codes.tensors[i].dtype for i in (*codes.inputs, *codes.outputs)] == ["int8", "int8"]


@cache
def runner(*, flipped: bool) -> HostExecutor:
    """The int8 model, or the uint8 one that it becomes."""
    module = quantised("int8", io="quantized")
    return executor(applied(module, QuantFlipSignPass("uint8")) if flipped else module)


@given(seed=st.integers(0, 1 << 32))
def test_flipping_moves_codes_and_nothing_else(seed: int) -> None:
    """int8 symmetric weights become uint8 with the zero point 128: the same sums, the same codes but for 128."""
    codes = np.random.default_rng(seed).integers(-128, 128, (4, 4, 4, 2)).astype(np.int8)
    (expected,) = runner(flipped=False).run([codes])
    (found,) = runner(flipped=True).run([(codes.astype(np.int16) + 128).astype(np.uint8)])
    assert found.dtype == np.uint8
    np.testing.assert_array_equal(found.astype(np.int16) - 128, expected)


def test_flipping_twice_is_nothing() -> None:
    module, before = (quantised("int8", io="quantized") for _ in range(2))
    applied(module, QuantFlipSignPass("uint8"), QuantFlipSignPass("int8"))
    del before.attributes["quant.scheme"]  # the scheme of the other type in between
    assert module_text(module) == module_text(before)


def test_flipping_changes_nothing_without_codes() -> None:
    module = parse_module(make_context(), TEXT)
    before = module_text(module)
    assert module_text(applied(module, QuantFlipSignPass("int8"))) == before


def test_a_bias_that_does_not_fit_is_limited_and_named(caplog: pytest.LogCaptureFixture) -> None:
    text = """
func.func @main(%x: tensor<1x2xf32>) -> tensor<1x2xf32> {
  %w = circle.const [1.0, -1.0, 0.5, 1.0] : tensor<2x2xf32>
  %b = circle.const [1.0e9, -1.0] : tensor<2xf32> loc("bias")
  %0 = circle.fully_connected(%x, %w, %b) attributes {
    quant.operands = [!quant.uniform<i8:f32, 0.0625>, !quant.uniform<i8:f32:0, {0.0625, 0.0625}>, unit],
    quant.results = [!quant.uniform<i8:f32, 0.125>]
  } : (tensor<1x2xf32>, tensor<2x2xf32>, tensor<2xf32>) -> tensor<1x2xf32>
  func.return %0 : tensor<1x2xf32>
}"""
    module = parse_module(make_context(), text)
    with caplog.at_level(logging.WARNING):
        applied(module, ConvertCircleToQuantPass())
    assert "'bias'" in caplog.text
    assert "1 channels (0)" in caplog.text
    assert "circle.const [2147483647, -256] : tensor<2x!quant.uniform<i32" in module_text(module)
