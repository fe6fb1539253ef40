"""The table of what LiteRT takes: every operator that we quantise for it runs there, with the same numbers as here."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import squeeze_excite
from helpers.float_nets import FloatNet, assign, operator, run_pass
from odc_mlir.errors import OptionError, UnsupportedError
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.policy.readers import litert_refuses, litert_refuses_node
from odc_mlir.quantizer.policy.schemes import SCHEMES as SCHEME_TYPES
from odc_mlir.runtime.api import open_executor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.transforms.quant.common.ir import REASON
from unit.transforms.test_quantised_operators import CASES, NO_KERNEL

SCHEMES = {"int8": "channel", "int8x4": "channel", "uint8": "tensor", "int16x8": "channel"}
# LiteRT's reference kernels leave this out, even on real numbers.
OTHER_KERNELS = {"ELU"}
# It knows version 2 only, which the helper's model does not say.
NOT_RUN = {"BROADCAST_TO"}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_litert_runs_what_is_made_for_it(scheme: str) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    wrong = {name: seen for name in CASES.keys() - NOT_RUN if (seen := _compared(name, scheme))}
    assert not wrong


def _compared(name: str, scheme: str) -> str:
    """What is wrong with one operator in LiteRT, empty where nothing is."""
    from ai_edge_litert import interpreter as litert

    net = FloatNet(len(name))
    made = CASES[name](net)
    module = net.module(*(made if isinstance(made, list) else [made]))
    assign(module, scheme, reader="litert", granularity=SCHEMES[scheme])
    label = next(label for label in net.values if label.startswith(name.lower()))
    real = REASON in operator(module, label).attributes
    per_channel = SCHEMES[scheme] == "channel"
    activations, weights = SCHEME_TYPES[scheme].activations or "", SCHEME_TYPES[scheme].weights
    taken = ("int8", weights) if weights == "int4" else (weights,)
    refused = all(litert_refuses(name, activations, kind, per_channel=per_channel) for kind in taken)
    assert real == (refused or name in NO_KERNEL.get(scheme, ()))
    run_pass(module, "convert-circle-to-quant")
    run_pass(module, "quant-insert-requantize")
    model = export_model(module)
    assert not any(litert_refuses_node(item.node) for item in build_graph(model).nodes)
    kinds = litert.OpResolverType
    kind = kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES if name in OTHER_KERNELS else kinds.BUILTIN_REF
    theirs: Any = litert.Interpreter(model_content=bytes(write_tflite(model)), experimental_op_resolver_type=kind)
    try:
        theirs.allocate_tensors()
        for detail, value in zip(theirs.get_input_details(), net.inputs, strict=True):
            theirs.set_tensor(detail["index"], value)
        theirs.invoke()
    except (RuntimeError, ValueError) as error:
        return str(error).splitlines()[0]
    ours = open_executor(bytes(write_model(model)), numerics="litert").run(list(net.inputs))
    found = [theirs.get_tensor(detail["index"]) for detail in theirs.get_output_details()]
    off = max(float(np.abs(a - b).max()) for a, b in zip(ours, found, strict=True))
    return "" if off <= (1e-5 if real else 0.0) else f"differs by {off:g}"


def test_what_litert_refuses_is_refused_by_name() -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme="uint8", calibration=samples, help=False)
    with pytest.raises(UnsupportedError, match=r"LiteRT has uint8 weights with one scale only.*CONV_2D"):
        made.to_tflite()
    fitting = odc_mlir.quantize(module, scheme="uint8", calibration=samples, help=False, reader="litert")
    assert fitting.verdict["choices"]["granularity"] == "tensor"
    fitting.to_tflite()


def test_weights_of_sixteen_bits_are_for_circle_files() -> None:
    module, _ = squeeze_excite()
    odc_mlir.quantize(module, scheme="int8_wo").to_tflite()
    with pytest.raises(UnsupportedError, match=r"weights of int16.*DEQUANTIZE"):
        odc_mlir.quantize(module, scheme="int16_wo").to_tflite()
    with pytest.raises(OptionError, match=r"int16_wo: LiteRT has no kernel for weights of int16"):
        odc_mlir.quantize(module, scheme="int16_wo", reader="litert")
