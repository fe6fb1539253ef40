"""Operators that stay in float because what runs the file has no kernel for their codes."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.float_nets import FloatNet, assign, operator, run_pass
from helpers.models import ModelBuilder, model_bytes
from helpers.quant_nets import lstm
from odc_mlir.compiler import compile_object
from odc_mlir.errors import UnsupportedError
from odc_mlir.quantizer.policy.schemes import scheme
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.transforms.quant.common.ir import REASON, read_word


def _steep(target: str | None) -> Quantized:
    """A depthwise layer whose sums are hundreds of times coarser than its limited result."""
    rng = np.random.default_rng(1)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4, 4, 2)), builder.tensor("y", (1, 4, 4, 2))
    weights = builder.tensor("w", (1, 3, 3, 2), data=rng.normal(0, 50, (1, 3, 3, 2)).astype(np.float32))
    bias = builder.tensor("b", (2,), data=np.zeros(2, np.float32))
    options = {"padding": "same", "stride_w": 1, "stride_h": 1, "depth_multiplier": 1}
    activation = {"fused_activation_function": "relu6"}
    builder.operator("DEPTHWISE_CONV_2D", [x, weights, bias], [y], options=options | activation)
    samples = [[rng.normal(0, 50, (1, 4, 4, 2)).astype(np.float32)] for _ in range(8)]
    return quantize(model_bytes(builder.finish([x], [y])), calibration=samples, target=target, help=False)


def test_a_cpu_gets_no_codes_that_object_code_lacks() -> None:
    anywhere, on_cpu = _steep(None), _steep("cpu")
    assert not anywhere.verdict["float_reasons"]
    with pytest.raises(UnsupportedError, match=r"a scale ratio above 1.*quantise with --target cpu"):
        compile_object(anywhere.model, name="net")
    assert on_cpu.verdict["float_reasons"] == {"y": "a scale ratio above 1 has no native kernel"}
    assert compile_object(on_cpu.model, name="net")[0]


def test_a_cpu_changes_nothing_else() -> None:
    assert scheme("uint8").read_by("cpu").family == scheme("uint8").family


@pytest.mark.parametrize(("activation", "stays"), [("tanh", False), ("relu", True), ("none", True)])
def test_cells_with_other_activations_than_tanh_stay_float(activation: str, stays: bool) -> None:
    net = FloatNet(1)
    module = assign(net.module(lstm(net, activation=activation)), "int8")
    run_pass(module, "quant-propagate-params")
    reason = read_word(operator(module, "lstm"), REASON)
    assert (reason or "").startswith(f"its cell has the activation {activation}") is stays
