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
from unit.transforms.test_quantised_operators import CASES, NO_KERNEL, Make

SCHEMES = {"int8": "channel", "int8x4": "channel", "uint8": "tensor", "int16x8": "channel"}
# LiteRT's reference kernels leave this out, even on real numbers.
OTHER_KERNELS = {"ELU"}
# It knows version 2 only, which the helper's model does not say.
NOT_RUN = {"BROADCAST_TO"}


def _compare(name: str) -> Make:
    return lambda net: net.add(name, net.real(20, 9, low=-3), net.real(20, 9, high=4))


def _place(name: str) -> Make:
    return lambda net: net.add(name, net.real(20, 9), net.const(1, "int32"), dtypes=["int64"], output_type="int64")


def _mean(net: FloatNet) -> Any:
    return net.add("MEAN", net.real(2, 3), net.const([0, 1], "int32"))


# Operators on codes whose results are no reals, or that codes of others come with.
OTHERS: dict[str, Make] = {
    **{name: _compare(name) for name in ("EQUAL", "NOT_EQUAL", "LESS", "LESS_EQUAL", "GREATER", "GREATER_EQUAL")},
    **{name: _place(name) for name in ("ARG_MAX", "ARG_MIN")},
    "SELECT": lambda net: net.add(
        "SELECT", net.add("EQUAL", net.real(2, 8), net.real(2, 8)), net.real(2, 8, low=-3), net.real(2, 8)
    ),
    "SPLIT_V": lambda net: net.add(
        "SPLIT_V", net.real(2, 3, 4), net.const([1, 2], "int32"), net.const(1, "int32"), count=2, num_splits=2
    ),
    "REVERSE_SEQUENCE": lambda net: net.add(
        "REVERSE_SEQUENCE", net.real(2, 5, 4), net.const([3, 4], "int32"), seq_dim=1, batch_dim=0
    ),
    "DILATE": lambda net: net.add("DILATE", net.real(2, 5), net.const([2, 2], "int32"), net.const(np.float32(0))),
    "MATRIX_SET_DIAG": lambda net: net.add("MATRIX_SET_DIAG", net.real(2, 3, 3), net.real(2, 3)),
    "FILL": lambda net: net.add("FILL", net.const([2, 3], "int32"), _mean(net)),
    "ONE_HOT": lambda net: net.add(
        "ONE_HOT", net.const([1, 2], "int32"), net.const(4, "int32"), _mean(net), net.const(np.float32(0)), axis=-1
    ),
    "EMBEDDING_LOOKUP": lambda net: net.add("EMBEDDING_LOOKUP", net.const([1, 2], "int32"), net.real(4, 5)),
}
ALL = CASES | OTHERS


@pytest.mark.parametrize("scheme", SCHEMES)
def test_litert_runs_what_is_made_for_it(scheme: str) -> None:
    pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    wrong = {name: seen for name in ALL.keys() - NOT_RUN if (seen := _compared(name, scheme))}
    assert not wrong


def _compared(name: str, scheme: str) -> str:
    """What is wrong with one operator in LiteRT, empty where nothing is."""
    from ai_edge_litert import interpreter as litert

    net = FloatNet(len(name))
    made = ALL[name](net)
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
    off = max(float(np.abs(np.asarray(a, np.float64) - b).max()) for a, b in zip(ours, found, strict=True))
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


@pytest.mark.parametrize("name", ["ARG_MAX", "ARG_MIN", "LESS", "ONE_HOT"])
def test_what_has_no_kernel_of_sixteen_bits_stays_real(name: str) -> None:
    net = FloatNet(3)
    module = net.module(OTHERS[name](net))
    assign(module, "int16x8", reader="litert")
    label = next(label for label in net.values if label.startswith(name.lower()))
    assert "LiteRT has" in str(operator(module, label).attributes[REASON])
