"""What a network computes as one function is placed as a whole: in one segment, nothing of it on the host."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers import quant_nets
from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet, assign, run_pass
from helpers.models import model_bytes
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.circle.functions.recognise import functions

Make = Callable[[FloatNet], SSAValue]


def _between_layers(function: Callable[[FloatNet, SSAValue], SSAValue]) -> Make:
    """A function between two layers that the NPU runs anyway."""

    def make(n: FloatNet) -> SSAValue:
        return parts.dense(n, function(n, parts.dense(n, n.real(6, 8), outputs=8)))

    return make


def _silu(n: FloatNet, x: SSAValue) -> SSAValue:
    made: SSAValue = n.add("MUL", x, n.add("LOGISTIC", x))
    return made


def _rms(n: FloatNet, x: SSAValue) -> SSAValue:
    root = n.add("RSQRT", n.add("ADD", parts.mean(n, n.add("MUL", x, x), -1, keep=True), n.const(1e-3)))
    made: SSAValue = n.add("MUL", n.add("MUL", x, root), n.weights(8))
    return made


@pytest.mark.parametrize(
    ("make", "kind"),
    [
        (_between_layers(lambda n, x: parts.centred(n, x, -1, epsilon=1e-3)), "LayerNorm"),
        (_between_layers(_rms), "RMSNorm"),
        (_between_layers(lambda n, x: n.add("GELU", x, approximate=True)), "GELU"),
        (_between_layers(lambda n, x: n.add("HARD_SWISH", x)), "HardSwish"),
        (_between_layers(_silu), "SiLU"),
        (quant_nets.squeeze_and_excite, "SqueezeExcite"),
        (quant_nets.attention, "Attention"),
    ],
)
def test_a_function_is_placed_as_a_whole(make: Make, kind: str) -> None:
    n = FloatNet(2)
    module = n.module(n.add("RELU", make(n)))
    (found,) = (item for item in functions(module) if item.kind == kind)
    wanted = {op_name(op) for op in found.operators}
    assign(module, "int8")
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    layers = odc_mlir.compile(model_bytes(export_model(module)), target="npu-256").report["layers"]
    segments = {layer["segment"] for layer in layers if layer["name"].removesuffix("_quantized") in wanted}
    assert len(segments) == 1
    assert None not in segments
