"""Running a whole module: its functions and segments around the operations of ``circle`` and ``npu``."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import ModuleOp
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.interpreter import (
    Interpreter,
    InterpreterFunctions,
    PythonValues,
    ReturnedValues,
    TerminatorValue,
    impl,
    impl_callable,
    impl_terminator,
    register_impls,
)
from xdsl.ir import BlockArgument

from odc_mlir.dialects.npu_program import programs
from odc_mlir.dialects.odc import SegmentOp, YieldOp
from odc_mlir.errors import InputError
from odc_mlir.interpreters.circle import CircleFunctions
from odc_mlir.ops.spec import Array
from odc_mlir.support.diagnostics import typed_errors


@register_impls
class StructureFunctions(InterpreterFunctions):
    """Functions and segments. A segment runs its program while that consists of tensor operations."""

    def __init__(self, *, run_target: bool) -> None:
        self.run_target = run_target

    @impl_callable(FuncOp)
    def run_function(self, interpreter: Interpreter, op: FuncOp, args: PythonValues) -> PythonValues:
        return interpreter.run_ssacfg_region(op.body, args, op.sym_name.data)

    @impl_terminator(ReturnOp)
    def run_return(
        self, interpreter: Interpreter, op: ReturnOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()

    @impl(SegmentOp)
    def run_segment(self, interpreter: Interpreter, op: SegmentOp, args: PythonValues) -> PythonValues:
        program = programs(interpreter.module).get(op.sym_name.data) if self.run_target else None
        if program is None or not isinstance(program.block.last_op, YieldOp):
            return interpreter.run_ssacfg_region(op.circle, args, op.sym_name.data)
        results = interpreter.run_ssacfg_region(program.body, args, op.sym_name.data)
        last = op.circle_block.last_op
        for value, result in zip(last.operands if last is not None else (), results, strict=True):
            if isinstance(value, BlockArgument):  # what a variable holds now
                args[value.index][...] = result
        return results

    @impl_terminator(YieldOp)
    def run_yield(
        self, interpreter: Interpreter, op: YieldOp, args: PythonValues
    ) -> tuple[TerminatorValue, PythonValues]:
        return ReturnedValues(args), ()


def make_interpreter(
    module: ModuleOp, *, run_target: bool = True, listeners: Sequence[Interpreter.Listener] = ()
) -> Interpreter:
    """An interpreter of ``module``; state of variables lasts as long as it.

    ``run_target``: run the programs of segments (as long as they work on tensors) instead of their circle bodies.
    """
    from odc_mlir.interpreters.npu import NpuFunctions

    interpreter = Interpreter(module, listeners=tuple(listeners))
    interpreter.register_implementations(StructureFunctions(run_target=run_target))
    interpreter.register_implementations(CircleFunctions(module))
    interpreter.register_implementations(NpuFunctions())
    return interpreter


def run_module(
    module: ModuleOp,
    inputs: Sequence[Array],
    *,
    run_target: bool = True,
    listeners: Sequence[Interpreter.Listener] = (),
) -> list[Array]:
    """Outputs of the module's first function for ``inputs``, both in graph order.

    Raises InputError for a wrong number of inputs, and what kernels raise.
    """
    function = next((op for op in module.body.block.ops if isinstance(op, FuncOp)), None)
    if function is None or len(function.args) != len(inputs):
        expected = 0 if function is None else len(function.args)
        raise InputError(f"the module's inputs: {len(inputs)} given, expected {expected}")
    with typed_errors("interpret"):
        interpreter = make_interpreter(module, run_target=run_target, listeners=listeners)
        return list(interpreter.call_op(function, tuple(inputs)))
