"""Activation functions."""

from __future__ import annotations

from odc_mlir.ops.spec import Operand, OpSpec, Trait

_CODES = ("float32", "int8", "uint8", "int16")
_UNARY = "odc_mlir.ops.infer.common:unary"
_VERIFY = "odc_mlir.ops.infer.elementwise:verify_unary"
_INFER = "odc_mlir.ops.infer.activation"
_KERNELS = "odc_mlir.runtime.kernels.activation"
_ELEMENTWISE = frozenset({Trait.PURE, Trait.ELEMENTWISE})


def _unary(
    name: str,
    summary: str,
    *,
    options: str | None = None,
    verify: str = _VERIFY,
    version: int = 3,
    quant: str = "own",
    dtypes: tuple[str, ...] = _CODES,
) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input", dtypes=dtypes),),
        (Operand("output", dtypes=dtypes),),
        options,
        _UNARY,
        f"{_KERNELS}:{name.lower()}",
        verify,
        _ELEMENTWISE,
        version,
        quant,
        summary,
    )


SPECS = (
    _unary("RELU", "max(x, 0)"),
    _unary("RELU6", "x clamped to [0, 6]"),
    _unary("RELU_N1_TO_1", "x clamped to [-1, 1]", version=1),
    _unary(
        "LEAKY_RELU",
        "x where positive, else alpha * x",
        options="LeakyReluOptions",
        verify=f"{_INFER}:verify_leaky_relu",
        version=2,
    ),
    _unary("LOGISTIC", "1 / (1 + e^-x)", quant="fixed:logistic"),
    _unary("TANH", "hyperbolic tangent", quant="fixed:tanh"),
    OpSpec(
        "SOFTMAX",
        (Operand("input", dtypes=_CODES),),
        (Operand("output", dtypes=_CODES),),
        "SoftmaxOptions",
        f"{_INFER}:softmax",
        f"{_KERNELS}:softmax",
        f"{_INFER}:verify_softmax",
        max_version=3,
        quant="fixed:softmax",
        summary="e^(beta*x) along the last axis, divided by their sum",
    ),
)
