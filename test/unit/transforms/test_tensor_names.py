"""Unique names of tensors."""

from __future__ import annotations

from odc_mlir.support.locations import value_name
from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.tensor_names import tell_apart, values_of
from odc_mlir.universe import make_context

SAME_NAMES = """
func.func @main(%x : tensor<4xf32>) -> tensor<4xf32> {
  %c = circle.const [1.0, 2.0, 3.0, 4.0] : tensor<4xf32> loc("y")
  %a = circle.add(%x, %c) : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32> loc("y")
  %b = circle.relu(%a) : (tensor<4xf32>) -> tensor<4xf32> loc("y")
  func.return %b : tensor<4xf32>
}
"""


def test_outputs_keep_their_names_and_constants_are_numbered_last() -> None:
    module = parse_module(make_context(), SAME_NAMES)
    tell_apart(module)
    function = next(op for op in module.body.block.ops if op.name == "func.func")
    names = {value.owner.name: value_name(value) for value in values_of(function) if hasattr(value.owner, "name")}
    assert names["circle.relu"] == "y"
    assert names["circle.add"] < names["circle.const"]
