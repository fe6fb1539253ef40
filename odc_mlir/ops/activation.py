"""Activation functions."""

from __future__ import annotations

from odc_mlir.ops.quantization import OWN, QuantRule, fixed
from odc_mlir.ops.spec import Operand, OpSpec, Trait

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
    quant: QuantRule = OWN,
) -> OpSpec:
    return OpSpec(
        name,
        (Operand("input"),),
        (Operand("output"),),
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
    _unary("RELU6", "x limited to [0, 6]"),
    _unary("RELU_N1_TO_1", "x limited to [-1, 1]", version=2),
    _unary("RELU_0_TO_1", "x limited to [0, 1]", version=2),
    _unary(
        "LEAKY_RELU",
        "x if positive, else alpha * x",
        options="LeakyReluOptions",
        verify=f"{_INFER}:verify_leaky_relu",
        version=2,
    ),
    OpSpec(
        "PRELU",
        (Operand("input"), Operand("alpha")),
        (Operand("output"),),
        None,
        f"{_INFER}:prelu",
        f"{_KERNELS}:prelu",
        f"{_INFER}:verify_prelu",
        _ELEMENTWISE,
        2,
        summary="x if not negative, else alpha * x; alpha broadcasts to x",
    ),
    _unary("ELU", "x if not negative, else e^x - 1", version=2),
    _unary(
        "GELU",
        "x times the normal distribution function of x, exact or approximated by tanh",
        options="GeluOptions",
        version=3,
    ),
    _unary("HARD_SWISH", "x * clamp(x + 3, 0, 6) / 6", options="HardSwishOptions", version=2),
    _unary("LOGISTIC", "1 / (1 + e^-x)", quant=fixed("logistic")),
    _unary("TANH", "hyperbolic tangent", quant=fixed("tanh")),
    OpSpec(
        "SOFTMAX",
        (Operand("input"),),
        (Operand("output"),),
        "SoftmaxOptions",
        f"{_INFER}:softmax",
        f"{_KERNELS}:softmax",
        f"{_INFER}:verify_softmax",
        max_version=3,
        quant=fixed("softmax"),
        summary="e^(beta*x) along the last axis, divided by their sum",
    ),
    OpSpec(
        "LOG_SOFTMAX",
        (Operand("input"),),
        (Operand("output"),),
        "LogSoftmaxOptions",
        _UNARY,
        f"{_KERNELS}:log_softmax",
        f"{_INFER}:verify_log_softmax",
        max_version=3,
        quant=fixed("log_softmax"),
        summary="logarithm of the softmax along the last axis",
    ),
)
