"""Passes on operators of the circle dialect keep what a model computes: every bit where they say so."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.data import golden_models
from helpers.equivalence import assert_equivalent, module_of, random_inputs, results_of, transformed
from odc_mlir import pipelines
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.circle.circle_fuse_activation import together
from odc_mlir.transforms.common.placement import operators

PREPARE = ",".join(pipelines.QUANTIZE_PREPARE)
ACTIVATIONS = ("none", "relu", "relu6", "relu_n1_to_1", "tanh")


def names(module: ModuleOp) -> list[str]:
    return [op.SPEC.name for op in operators(module)]


@pytest.mark.parametrize("first", ACTIVATIONS)
@pytest.mark.parametrize("second", ACTIVATIONS[1:])
def test_two_activations_that_are_one(first: str, second: str) -> None:
    functions = {
        "none": lambda x: x,
        "relu": lambda x: np.maximum(x, 0),
        "relu6": lambda x: np.clip(x, 0, 6),
        "relu_n1_to_1": lambda x: np.clip(x, -1, 1),
        "tanh": np.tanh,
    }
    x = np.linspace(-9, 9, 361)
    both = together(first, second)
    results = functions[second](functions[first](x))
    if both is not None:
        np.testing.assert_array_equal(functions[both](x), results)
    elif "tanh" not in (first, second):
        assert not any(np.array_equal(function(x), results) for function in functions.values())


@pytest.mark.parametrize("activation", ["relu", "relu6", "relu_n1_to_1"])
@pytest.mark.parametrize(("scale", "zero"), [(0.05, -128), (0.05, 3), (0.011, 100)])
@pytest.mark.parametrize("producer", ["add", "mul", "average_pool_2d"])
def test_clamps_of_codes_keep_every_bit(producer: str, activation: str, scale: float, zero: int) -> None:
    image = "tensor<1x16x16x1x!quant.uniform<i8:f32, 0.0625:5>>"
    result = f"tensor<1x16x16x1x!quant.uniform<i8:f32, {scale}:{zero}>>"
    same = image if producer == "average_pool_2d" else result
    window = "{padding = same, stride = [1, 1], filter = [1, 1]}"
    call = (
        f"circle.average_pool_2d(%x) {window} : ({image}) -> {same}"
        if producer == "average_pool_2d"
        else f"circle.{producer}(%x, %x) : ({image}, {image}) -> {same}"
    )
    before = module_of(
        f"""func.func @main(%x: {image} loc("x")) -> {same} {{
          %0 = {call} loc("inner")
          %1 = circle.{activation}(%0) : ({same}) -> {same} loc("outer")
          func.return %1 : {same}
        }}"""
    )
    after = transformed(before, "circle-fuse-activation")
    assert len(names(after)) == 1
    assert [op_name(op) for op in operators(after)] == ["outer"]
    every_code = np.arange(-128, 128).astype(np.int8).reshape(1, 16, 16, 1)
    assert_equivalent(before, after, [every_code], rtol=0, atol=0)


@pytest.mark.parametrize("model", golden_models("digits", "zoo-int16", quantised=True))
def test_quantised_models_keep_every_bit(model: Any) -> None:
    """Whatever passes for float models find in them."""
    before = odc_mlir.load(model.circle)
    after = transformed(before, f"circle-simplify,{PREPARE},circle-equalize-channels")
    sample = next(model.samples())
    for expected, found in zip(sample.outputs, results_of(after, sample.inputs), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("model", golden_models("digits", quantised=False))
def test_float_models_stay_as_exact(model: Any) -> None:
    before = odc_mlir.load(model.circle)
    after = transformed(before, f"circle-simplify,{PREPARE}")
    sample = next(model.samples())
    for expected, found in zip(sample.outputs, results_of(after, sample.inputs), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert {"MUL", "RELU"}.isdisjoint(names(after))


GELU = """
func.func @main(%x: tensor<2x33xf32>) -> (tensor<2x33xf32>, tensor<2x33xf32>, tensor<2x33xf32>) {
  %half = circle.const [0.5] : tensor<f32>
  %one = circle.const [1.0] : tensor<f32>
  %c = circle.const [0.044715] : tensor<f32>
  %r = circle.const [0.79788456] : tensor<f32>
  %three = circle.const [3.0] : tensor<f32>
  %six = circle.const [6.0] : tensor<f32>
  %a = circle.const [0.3] : tensor<f32>
  %0 = circle.square(%x) : (tensor<2x33xf32>) -> tensor<2x33xf32>
  %1 = circle.mul(%0, %x) : (tensor<2x33xf32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  %2 = circle.mul(%c, %1) : (tensor<f32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  %3 = circle.add(%2, %x) : (tensor<2x33xf32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  %4 = circle.mul(%3, %r) : (tensor<2x33xf32>, tensor<f32>) -> tensor<2x33xf32>
  %5 = circle.tanh(%4) : (tensor<2x33xf32>) -> tensor<2x33xf32>
  %6 = circle.add(%one, %5) : (tensor<f32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  %7 = circle.mul(%x, %half) : (tensor<2x33xf32>, tensor<f32>) -> tensor<2x33xf32>
  %8 = circle.mul(%7, %6) : (tensor<2x33xf32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  %9 = circle.add(%x, %three) {activation = relu6} : (tensor<2x33xf32>, tensor<f32>) -> tensor<2x33xf32>
  %10 = circle.mul(%9, %x) : (tensor<2x33xf32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  %11 = circle.div(%10, %six) : (tensor<2x33xf32>, tensor<f32>) -> tensor<2x33xf32>
  %12 = circle.relu(%x) : (tensor<2x33xf32>) -> tensor<2x33xf32>
  %13 = circle.neg(%x) : (tensor<2x33xf32>) -> tensor<2x33xf32>
  %14 = circle.relu(%13) : (tensor<2x33xf32>) -> tensor<2x33xf32>
  %15 = circle.mul(%14, %a) : (tensor<2x33xf32>, tensor<f32>) -> tensor<2x33xf32>
  %16 = circle.sub(%12, %15) : (tensor<2x33xf32>, tensor<2x33xf32>) -> tensor<2x33xf32>
  func.return %8, %11, %16 : tensor<2x33xf32>, tensor<2x33xf32>, tensor<2x33xf32>
}"""


def test_functions_of_several_operators_are_what_they_were() -> None:
    before = module_of(GELU)
    after = transformed(before, "circle-fuse-patterns")
    assert sorted(names(after)) == ["GELU", "HARD_SWISH", "PRELU"]
    assert_equivalent(before, after, random_inputs(before))


def test_parts_of_instance_norm_are_what_it_was() -> None:
    image, vector = "tensor<2x5x3x4xf32>", "tensor<4xf32>"
    before = module_of(
        f"""func.func @main(%x: {image} loc("x")) -> {image} {{
          %g = circle.const [0.5, -2.0, 1.0, 3.0] : {vector}
          %b = circle.const [1.0, 0.0, -1.0, 0.25] : {vector}
          %0 = circle.instance_norm(%x, %g, %b) {{epsilon = 0.1, activation = relu}}
            : ({image}, {vector}, {vector}) -> {image} loc("y")
          func.return %0 : {image}
        }}"""
    )
    after = transformed(before, "circle-fuse-patterns{circle=true}")
    assert "INSTANCE_NORM" not in names(after)
    assert_equivalent(before, after, random_inputs(before))


def test_layers_of_every_kind_take_what_stands_beside_them() -> None:
    before = module_of(
        """
    func.func @main(%x: tensor<1x4x4x2xf32>) -> (tensor<1x8x8x2xf32>, tensor<2x1xf32>) {
      %shape = circle.const [1, 8, 8, 2] : tensor<4xi32>
      %w = circle.const [1.0, 2.0, -1.0, 0.5, 0.25, 3.0, 1.5, -2.0, 1.0, 1.0, 2.0, 4.0, -0.5, 1.0, 0.5, 0.75] : tensor<2x2x2x2xf32>
      %v = circle.const [1.0, 2.0, -1.0, 0.5, 0.25, 3.0, 1.5, -2.0, 1.0, 1.0, 2.0, 4.0, -0.5, 1.0, 0.5, 0.75] : tensor<1x16xf32>
      %c = circle.const [3.0, -0.5] : tensor<2xf32>
      %0 = circle.mul(%x, %c) : (tensor<1x4x4x2xf32>, tensor<2xf32>) -> tensor<1x4x4x2xf32>
      %1 = circle.transpose_conv(%shape, %w, %0) {padding = same, stride = [2, 2]} : (tensor<4xi32>, tensor<2x2x2x2xf32>, tensor<1x4x4x2xf32>) -> tensor<1x8x8x2xf32>
      %2 = circle.sub(%1, %c) : (tensor<1x8x8x2xf32>, tensor<2xf32>) -> tensor<1x8x8x2xf32>
      %3 = circle.add(%x, %c) : (tensor<1x4x4x2xf32>, tensor<2xf32>) -> tensor<1x4x4x2xf32>
      %4 = circle.div(%3, %c) : (tensor<1x4x4x2xf32>, tensor<2xf32>) -> tensor<1x4x4x2xf32>
      %5 = circle.fully_connected(%4, %v) : (tensor<1x4x4x2xf32>, tensor<1x16xf32>) -> tensor<2x1xf32>
      func.return %2, %5 : tensor<1x8x8x2xf32>, tensor<2x1xf32>
    }"""  # noqa: E501
    )
    after = transformed(before, "circle-fuse-batch-norm")
    assert names(after) == ["TRANSPOSE_CONV", "FULLY_CONNECTED"]
    assert_equivalent(before, after, random_inputs(before))
