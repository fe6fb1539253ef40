"""Interpreter of the ``circle`` dialect: every operator by its host kernel.

Values are numpy arrays of the tensors' storage types; a left-out operand is None.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.interpreter import Interpreter, InterpreterFunctions, OpImplResult, PythonValues, impl, register_impls
from xdsl.ir import Operation
from xdsl.utils.exceptions import InterpretationError

from odc_mlir.dialects.circle import (
    CircleOp,
    ConstOp,
    NoneOp,
    UndefinedOp,
    VariableOp,
    info_of,
    node_of,
)
from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.microscaling import prepare_kernel
from odc_mlir.support.locations import op_name, value_name


@register_impls
class CircleFunctions(InterpreterFunctions):
    """Constants and variables, and one implementation for all operators of a module.

    Kernels are prepared once per operation; variables keep their contents from one run to the next.
    """

    def __init__(self, module: ModuleOp) -> None:
        self._classes = {type(op) for op in module.walk() if isinstance(op, CircleOp)}
        self._prepared: dict[Operation, tuple[Node, Execute]] = {}
        self._variables: dict[Operation, Array] = {}
        self._context = Context()

    def _impls(self) -> Iterator[tuple[type[Operation], Any]]:  # type: ignore[override]
        yield from super()._impls()
        for cls in self._classes:
            yield cls, _run_operator

    @impl(ConstOp)
    def run_const(self, interpreter: Interpreter, op: ConstOp, args: PythonValues) -> PythonValues:
        return (info_of(op.result).array(),)

    @impl(NoneOp)
    def run_none(self, interpreter: Interpreter, op: NoneOp, args: PythonValues) -> PythonValues:
        return (None,)

    @impl(UndefinedOp)
    def run_undefined(self, interpreter: Interpreter, op: UndefinedOp, args: PythonValues) -> PythonValues:
        raise InterpretationError(f"nothing computes tensor {value_name(op.result)!r}")

    @impl(VariableOp)
    def run_variable(self, interpreter: Interpreter, op: VariableOp, args: PythonValues) -> PythonValues:
        if op not in self._variables:
            self._variables[op] = initial_contents(info_of(op.result))
        return (self._variables[op],)

    def prepared(self, interpreter: Interpreter, op: CircleOp) -> tuple[Node, Execute]:
        """An operation and its prepared kernel; raises UnsupportedError where the operator has none."""
        if op not in self._prepared:
            if not op.SPEC.kernel:
                raise UnsupportedError("this operator cannot be run", op=op.SPEC.name, tensor=op_name(op))
            if op.unverified is not None:
                raise UnsupportedError(op.unverified, op=op.SPEC.name, tensor=op_name(op))
            node = node_of(op)
            node.context, node.place = self._context, (0, len(self._prepared))
            node.subgraphs = {symbol: partial(_call, interpreter, str(symbol)) for symbol in node.callees}
            self._prepared[op] = node, prepare_kernel(node)
        return self._prepared[op]


def _run_operator(
    functions: CircleFunctions, interpreter: Interpreter, op: CircleOp, args: PythonValues
) -> OpImplResult:
    node, kernel = functions.prepared(interpreter, op)
    # As in the executor: only operators that write a variable see it itself, since results may be views of operands.
    written = node.mutated
    operands = [
        value.copy() if (position in written) != isinstance(op.operands[position].owner, VariableOp) else value
        for position, value in enumerate(args)
    ]
    return OpImplResult(tuple(kernel(operands)), None)


def _call(interpreter: Interpreter, name: str, values: Sequence[Array | None]) -> Sequence[Array]:
    results: PythonValues = interpreter.call_op(name, tuple(values))
    return results
