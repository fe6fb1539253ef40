"""Networks that the quantising passes make, in LiteRT: it accepts them and computes what our kernels do."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet, assign, operator, quantised_results
from helpers.quant_nets import attention, lstm, pyramid, squeeze_and_excite
from odc_mlir.formats.circle.writer import write_tflite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.transforms.quant.common.ir import params_of, result_types

litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")


@pytest.mark.parametrize(
    ("build", "scheme"),
    [
        (squeeze_and_excite, "int8"),
        (attention, "int8"),
        (attention, "int16x8"),
        (pyramid, "int8"),
        (pyramid, "int16x8"),
        (lstm, "int8"),
    ],
)
def test_litert_computes_the_same(build: Callable[[FloatNet], SSAValue], scheme: str) -> None:
    net = FloatNet(3)
    output = build(net)
    module = assign(net.module(output), scheme)
    element = params_of((result_types(operator(module, net.name(output))) or [None])[0])
    assert element is not None
    step = element[1].scale
    (ours,) = quantised_results(module, net.inputs)
    interpreter = litert.Interpreter(
        model_content=bytes(write_tflite(export_model(module))),
        experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF,
    )
    interpreter.allocate_tensors()
    for detail, value in zip(interpreter.get_input_details(), net.inputs, strict=True):
        interpreter.set_tensor(detail["index"], value)
    interpreter.invoke()
    theirs = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
    # newer fully connected kernels round once where ours round twice: here and there a step
    off = np.abs(ours - theirs)
    assert off.max() <= 2.01 * step
    assert np.mean(off > step / 2) <= (0.5 if scheme == "int16x8" else 0.05)
