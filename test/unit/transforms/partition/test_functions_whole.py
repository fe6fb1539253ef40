"""What a network computes as one function is placed as a whole: in one segment, nothing of it on the host."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers import quant_nets, unrolled
from helpers import rewrite_parts as parts
from helpers.float_nets import FloatNet, assign, run_pass
from helpers.models import model_bytes
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.common.placement import operators

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
    ("make", "dtype"),
    [
        (_between_layers(lambda n, x: parts.centred(n, x, -1, epsilon=1e-3)), "int8"),
        (_between_layers(_rms), "int8"),
        (_between_layers(lambda n, x: n.add("GELU", x, approximate=True)), "int8"),
        (_between_layers(lambda n, x: n.add("HARD_SWISH", x)), "int8"),
        (_between_layers(_silu), "int8"),
        (quant_nets.squeeze_and_excite, "int8"),
        (quant_nets.attention, "int8"),
        *((make, dtype) for make in (unrolled.lstm, unrolled.gru) for dtype in ("int8", "uint8")),
    ],
)
def test_a_function_is_placed_as_a_whole(make: Make, dtype: str) -> None:
    n = FloatNet(2)
    module = n.module(n.add("RELU", make(n)))
    *_, last = operators(module)  # whose name the conversion of the output takes
    wanted = {op_name(op) for op in operators(module)} - {op_name(last)}
    assign(module, dtype)
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    model = model_bytes(export_model(module))
    package = odc_mlir.compile(model, target="npu-256")
    layers = package.report["layers"]
    segments = {layer["segment"] for layer in layers if layer["name"].removesuffix("_quantized") in wanted}
    assert len(segments) == 1
    assert None not in segments
    inputs = [np.random.default_rng(1).normal(0, 1, given.shape).astype(given.dtype) for given in package.inputs]
    expected = odc_mlir.run(model, inputs, backend="host")
    for ours, host in zip(odc_mlir.run(package, inputs, backend="npu", strict=True), expected, strict=True):
        np.testing.assert_array_equal(ours, host)
