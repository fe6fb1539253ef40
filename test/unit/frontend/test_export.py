"""Where operations end up in the file."""

from __future__ import annotations

from pathlib import Path

from xdsl.dialects.builtin import ModuleOp

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.export_circle import export_with_operators, save_module
from odc_mlir.loading import load
from odc_mlir.support.locations import op_name
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context

SEGMENTS = """
func.func @main(%x: tensor<8xf32> loc("x")) -> tensor<8xf32> {
  %none = circle.none
  %p = circle.relu(%x) : (tensor<8xf32>) -> tensor<8xf32> loc("p")
  %r = odc.segment @segment_0(%p) : (tensor<8xf32>) -> tensor<8xf32> circle {
  ^bb0(%0: tensor<8xf32>):
    %one = circle.const [1.0] : tensor<1xf32> loc("one")
    %a = circle.add(%0, %one) : (tensor<8xf32>, tensor<1xf32>) -> tensor<8xf32> loc("a")
    %b = circle.relu6(%a) : (tensor<8xf32>) -> tensor<8xf32> loc("b")
    odc.yield %b : tensor<8xf32>
  }
  %c = circle.relu(%r) : (tensor<8xf32>) -> tensor<8xf32> loc("c")
  func.return %c : tensor<8xf32>
}
func.func @other(%x: tensor<8xf32> loc("x")) -> tensor<8xf32> {
  %d = circle.relu(%x) : (tensor<8xf32>) -> tensor<8xf32> loc("d")
  func.return %d : tensor<8xf32>
}
"""


def _module() -> ModuleOp:
    module = parse_module(make_context(), SEGMENTS)
    module.verify()
    return module


def test_operators_of_a_segment_follow_each_other() -> None:
    model, operators = export_with_operators(_module())
    places = {op_name(op): place for op, place in operators.items()}
    assert places == {"p": (0, 0), "a": (0, 1), "b": (0, 2), "c": (0, 3), "d": (1, 0)}
    assert all(isinstance(op, CircleOp) for op in operators)
    graph = model.subgraphs[0]
    assert [operator.name for operator in graph.operators] == ["RELU", "ADD", "RELU6", "RELU"]
    assert [graph.tensors[index].name for index in graph.operators[1].inputs] == ["p", "one"]
    assert [graph.tensors[index].name for index in graph.outputs] == ["c"]


def test_each_tensor_is_written_once() -> None:
    graph = export_with_operators(_module())[0].subgraphs[0]
    assert [tensor.name for tensor in graph.tensors] == ["x", "p", "one", "a", "b", "c"]


def test_a_tflite_file_has_a_signature(tmp_path: Path) -> None:
    """As converters write it, because tools run models by signature; one that the model has stays."""
    text = 'func.func @main(%x: tensor<2xf32> loc("x")) -> (tensor<2xf32>, tensor<2xf32>) {\n'
    text += '%y = circle.relu(%x) : (tensor<2xf32>) -> tensor<2xf32> loc("y")\n'
    text += "func.return %y, %y : tensor<2xf32>, tensor<2xf32>\n}"
    path = tmp_path / "m.tflite"
    for _ in range(2):
        module = parse_module(make_context(), text) if not path.exists() else load(path)
        save_module(module, path, overwrite=True)
        (signature,) = read_model(path.read_bytes()).signatures
        assert (signature.key, list(signature.inputs), list(signature.outputs)) == (
            "serving_default",
            ["x"],
            ["y", "y_1"],
        )
