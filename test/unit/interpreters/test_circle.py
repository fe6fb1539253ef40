"""Running IR by the host kernels."""

from __future__ import annotations

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import Interpreter, PythonValues
from xdsl.ir import Operation

from helpers.data import GoldenModel, golden_models
from helpers.interpreting import run_module
from odc_mlir.errors import CompileError, InputError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.interpreters.module import make_interpreter
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context

X = np.array([-1.0, 0.5, 8.0], np.float32)


def _module(body: str, behind: str = "", result: str = "%y") -> ModuleOp:
    text = f"""
    func.func @main(%x: tensor<3xf32>) -> tensor<3xf32> {{
      {body}
      func.return {result} : tensor<3xf32>
    }}{behind}"""
    module = parse_module(make_context(), text)
    module.verify()
    return module


def test_operators_and_constants() -> None:
    module = _module(
        "%c = circle.const [1.0] : tensor<1xf32>\n"
        "%a = circle.add(%x, %c) : (tensor<3xf32>, tensor<1xf32>) -> tensor<3xf32>\n"
        "%y = circle.relu6(%a) : (tensor<3xf32>) -> tensor<3xf32>"
    )
    assert run_module(module, [X])[0].tolist() == [0.0, 1.5, 6.0]


SEGMENT = """
%y = odc.segment @s(%x) : (tensor<3xf32>) -> tensor<3xf32> circle {
^bb0(%a: tensor<3xf32>):
  %b = circle.relu(%a) : (tensor<3xf32>) -> tensor<3xf32>
  odc.yield %b : tensor<3xf32>
}"""
PROGRAM = """
npu.program @s(%a: tensor<3xf32>) -> tensor<3xf32> {
  %b = circle.relu6(%a) : (tensor<3xf32>) -> tensor<3xf32>
  odc.yield %b : tensor<3xf32>
}"""


def test_a_segment_runs_the_body_that_was_asked_for() -> None:
    module = _module(SEGMENT, PROGRAM)
    assert run_module(module, [X])[0].tolist() == [0.0, 0.5, 6.0]
    assert run_module(module, [X], run_target=False)[0].tolist() == [0.0, 0.5, 8.0]


def test_a_segment_without_program_runs_its_circle_body() -> None:
    module = _module(SEGMENT)
    assert run_module(module, [X])[0].tolist() == [0.0, 0.5, 8.0]


def test_variables_start_at_real_zero_and_last_as_long_as_the_interpreter() -> None:
    module = parse_module(
        make_context(),
        "func.func @main() -> tensor<2x!quant.uniform<i8:f32, 0.5:3>> {\n"
        "  %v = circle.variable : tensor<2x!quant.uniform<i8:f32, 0.5:3>>\n"
        "  func.return %v : tensor<2x!quant.uniform<i8:f32, 0.5:3>>\n}",
    )
    interpreter = make_interpreter(module)
    (state,) = interpreter.call_op("main", ())
    assert state.tolist() == [3, 3]
    state[0] = 7
    assert interpreter.call_op("main", ())[0].tolist() == [7, 3]
    assert run_module(module, [])[0].tolist() == [3, 3]


def test_a_listener_sees_every_operation() -> None:
    class Trace(Interpreter.Listener):
        def __init__(self) -> None:
            self.names: list[str] = []

        def did_interpret_op(self, op: Operation, results: PythonValues) -> None:
            self.names.append(op.name)

    trace = Trace()
    run_module(_module("%y = circle.relu(%x) : (tensor<3xf32>) -> tensor<3xf32>"), [X], listeners=[trace])
    assert trace.names == ["circle.relu", "func.return"]


def test_what_cannot_be_run() -> None:
    ruleless = '%y = "circle.delegate"(%x) : (tensor<3xf32>) -> tensor<3xf32> loc("t")'
    with pytest.raises(UnsupportedError, match=r"this operator cannot be run .*DELEGATE.*'t'"):
        run_module(_module(ruleless), [X])
    with pytest.raises(CompileError, match="nothing computes tensor 'u'"):
        run_module(_module('%y = circle.undefined : tensor<3xf32> loc("u")'), [X])
    with pytest.raises(InputError, match="the module's inputs: 0 given, expected 1"):
        run_module(_module("", result="%x"), [])
    with pytest.raises(InputError, match="the module's inputs: 1 given, expected 0"):
        run_module(ModuleOp([]), [X])


@pytest.mark.parametrize("model", golden_models("digits", quantised=True))
def test_a_model_gives_its_golden_outputs(model: GoldenModel) -> None:
    module = import_model(read_model(model.circle))
    inputs, outputs = next(model.samples())
    for found, expected in zip(run_module(module, inputs), outputs, strict=True):
        np.testing.assert_array_equal(found, expected)


STATEFUL = """
builtin.module {{
  func.func @main(%x: tensor<1x3xf32>) -> tensor<1x1xf32> {{
    %w = circle.const [1.0, 2.0, 3.0] : tensor<1x3xf32>
    %t = circle.const [10.0, 1.0] : tensor<1x2xf32>
    %n = circle.none
    %s = circle.variable : tensor<1x2xf32>
    {}
    func.return %y : tensor<1x1xf32>
  }}
  {}
}}"""
LAYER = (
    "circle.svdf({}) {{rank = 1, activation = none}} : "
    "(tensor<1x3xf32>, tensor<1x3xf32>, tensor<1x2xf32>, none, tensor<1x2xf32>) -> tensor<1x1xf32>"
)
ENDS = "(tensor<1x3xf32>, tensor<1x2xf32>) -> (tensor<1x1xf32>, tensor<1x2xf32>)"
STATEFUL_SEGMENT = f"""%y, %m = odc.segment @s(%x, %s) : {ENDS} circle {{
^bb0(%a: tensor<1x3xf32>, %v: tensor<1x2xf32>):
  %f = circle.const [1.0, 2.0, 3.0] : tensor<1x3xf32>
  %g = circle.const [10.0, 1.0] : tensor<1x2xf32>
  %o = circle.none
  %z = {LAYER.format("%a, %f, %g, %o, %v")}
  odc.yield %z, %v : tensor<1x1xf32>, tensor<1x2xf32>
}}"""
STATEFUL_PROGRAM = """npu.program @s(%a: tensor<1x3xf32>, %v: tensor<1x2xf32>) -> (tensor<1x1xf32>, tensor<1x2xf32>) {
  %c = circle.const [1.0] : tensor<1xf32>
  %n = circle.add(%v, %c) : (tensor<1x2xf32>, tensor<1xf32>) -> tensor<1x2xf32>
  %i = circle.const [1] : tensor<1xi32>
  %z = circle.sum(%n, %i) {keep_dims = true} : (tensor<1x2xf32>, tensor<1xi32>) -> tensor<1x1xf32>
  odc.yield %z, %n : tensor<1x1xf32>, tensor<1x2xf32>
}"""


def runs(body: str, program: str = "", *, run_target: bool = False) -> list[float]:
    """Return the results of three runs of one interpreter."""
    module = parse_module(make_context(), STATEFUL.format(body, program))
    module.verify()
    interpreter = make_interpreter(module, run_target=run_target)
    (function,) = (op for op in module.body.block.ops if isinstance(op, FuncOp))
    return [float(interpreter.call_op(function, (X.reshape(1, 3),))[0][0, 0]) for _ in range(3)]


def test_a_variable_keeps_what_operators_in_a_segment_wrote() -> None:
    alone = runs("%y = " + LAYER.format("%x, %w, %t, %n, %s"))
    assert alone[0] != alone[1]
    assert runs(STATEFUL_SEGMENT) == alone


def test_a_variable_gets_what_a_program_gives_for_it() -> None:
    assert runs(STATEFUL_SEGMENT, STATEFUL_PROGRAM, run_target=True) == [2.0, 4.0, 6.0]
