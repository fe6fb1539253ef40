"""Runs of modules by the interpreter."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.interpreter import Interpreter

from odc_mlir.errors import InputError
from odc_mlir.interpreters.module import make_interpreter
from odc_mlir.ops.spec import Array
from odc_mlir.support.diagnostics import typed_errors


def run_module(
    module: ModuleOp,
    inputs: Sequence[Array],
    *,
    run_target: bool = True,
    listeners: Sequence[Interpreter.Listener] = (),
) -> list[Array]:
    """Return the outputs of the module's first function for ``inputs``, in graph order.

    Raises InputError for a wrong number of inputs, and the errors of kernels.
    """
    function = next((op for op in module.body.block.ops if isinstance(op, FuncOp)), None)
    if function is None or len(function.args) != len(inputs):
        expected = 0 if function is None else len(function.args)
        raise InputError(f"the module's inputs: {len(inputs)} given, expected {expected}")
    with typed_errors("interpret"):
        interpreter = make_interpreter(module, run_target=run_target, listeners=listeners)
        return list(interpreter.call_op(function, tuple(inputs)))
