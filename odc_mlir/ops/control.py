"""Operators that run other subgraphs."""

from odc_mlir.ops.quantization import real_only
from odc_mlir.ops.spec import Operand, OpSpec, Trait

_INFER = "odc_mlir.ops.infer.control"
_KERNELS = "odc_mlir.runtime.kernels.control"

_EFFECTS = frozenset({Trait.CONTROL_FLOW, Trait.STATEFUL})
_CALLS = real_only("functions that control flow calls stay with real values")
_CONDITION = Operand("condition", dtypes=("bool",))
_ARGUMENTS = Operand("arguments", optional=True, variadic=True)
_RESULTS = (Operand("results", optional=True, variadic=True),)

SPECS = (
    OpSpec(
        name="IF",
        operands=(_CONDITION, _ARGUMENTS),
        results=_RESULTS,
        options="IfOptions",
        infer=f"{_INFER}:open_results",
        kernel=f"{_KERNELS}:if_",
        verify=f"{_INFER}:verify_if",
        traits=_EFFECTS,
        quant=_CALLS,
        summary="one of two subgraphs, by a condition",
    ),
    OpSpec(
        name="WHILE",
        operands=(Operand("state", optional=True, variadic=True),),
        results=_RESULTS,
        options="WhileOptions",
        infer=f"{_INFER}:open_results",
        kernel=f"{_KERNELS}:while_",
        verify=f"{_INFER}:verify_while",
        traits=_EFFECTS,
        quant=_CALLS,
        summary="loop: the body updates the state while the condition holds; shapes may change",
    ),
    OpSpec(
        name="CALL",
        operands=(_ARGUMENTS,),
        results=_RESULTS,
        options="CallOptions",
        infer=f"{_INFER}:open_results",
        kernel=f"{_KERNELS}:call",
        verify=f"{_INFER}:verify_call",
        traits=_EFFECTS,
        quant=_CALLS,
        summary="call of a subgraph",
    ),
    OpSpec(
        name="CALL_ONCE",
        operands=(),
        results=(),
        options="CallOnceOptions",
        infer=f"{_INFER}:open_results",
        kernel=f"{_KERNELS}:call_once",
        verify=f"{_INFER}:verify_call_once",
        traits=_EFFECTS,
        quant=_CALLS,
        summary="call of a subgraph in the first run only, to fill variables and hash tables",
    ),
    OpSpec(
        name="RUN_MODEL",
        operands=(_ARGUMENTS,),
        results=_RESULTS,
        options="RunModelOptions",
        infer=f"{_INFER}:open_results",
        kernel=f"{_KERNELS}:run_model",
        verify=f"{_INFER}:verify_run_model",
        traits=_EFFECTS,
        quant=_CALLS,
        summary="call of another model file, named relative to this file's folder",
    ),
)
