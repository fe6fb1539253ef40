"""Types of inputs and outputs, and parameters that the user gives to tensors or copies."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from helpers.float_models import squeeze_excite
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.optimizer import optimize
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.runtime.execution.graph import Graph, build_graph


@cache
def _model() -> tuple[bytes, list[list[np.ndarray]]]:
    module, samples = squeeze_excite()
    model = export_model(module)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model)), samples


def _made(**chosen: Any) -> Quantized:
    file, samples = _model()
    return quantize(file, calibration=samples, help=False, **chosen)


def _graph(made: Quantized) -> Graph:
    return build_graph(read_model(made.to_circle()))


def _tensor(made: Quantized, name: str) -> TensorInfo:
    return next(info for info in _graph(made).tensors if info.name == name)


def test_inputs_and_outputs_have_types_of_their_own() -> None:
    plain = _graph(_made(io="quantized"))
    made = _made(input_types=["in0=uint8"], output_types="int16")
    graph = _graph(made)
    (x,), (y,) = graph.input_infos(), graph.output_infos()
    (codes,) = plain.input_infos()
    assert (x.dtype, y.dtype, codes.dtype) == ("uint8", "int16", "int8")
    assert x.quant is not None
    assert codes.quant is not None
    assert x.quant == QuantParams(codes.quant.scales, (codes.quant.zero_point + 128,)), "the same reals, code for code"
    assert made.verdict["metrics"]["sqnr_db"] == pytest.approx(_made().verdict["metrics"]["sqnr_db"], abs=0.01)
    assert made.verdict["choices"]["input_types"] == {"in0": "uint8"}


def test_a_name_wins_over_all_and_both_over_io() -> None:
    graph = _graph(_made(io="quantized", output_types={"probs": "float", "": "uint8"}))
    assert [info.dtype for info in (*graph.input_infos(), *graph.output_infos())] == ["int8", "float32"]


def test_parameters_are_those_that_are_given() -> None:
    made = _made(parameters={"conv0": (0.05, 3)}, mixed="on")
    quant = _tensor(made, "conv0").quant
    assert quant == QuantParams((float(np.float32(0.05)),), (3,))
    assert made.verdict["scheme"]["conv0"] == "int8", "the parameters are for codes of the scheme"


def test_parameters_are_copied() -> None:
    made = _made(copied_parameters=["conv1=conv0"])
    assert _tensor(made, "conv1").quant == _tensor(made, "conv0").quant != _tensor(_made(), "conv1").quant


def test_weights_take_parameters() -> None:
    weights = next(info for info in _graph(_made()).tensors if info.name == "const4")
    assert weights.quant is not None
    scale = max(weights.quant.scales)
    made = _made(parameters={"const4": (scale, 0)})
    assert _tensor(made, "const4").quant == QuantParams((scale,), (0,))
    with pytest.raises(OptionError, match="'const4' cannot have the parameters given for it"):
        _made(parameters={"const4": (scale, 3)})


def test_what_is_moved_has_the_parameters_that_are_given_for_it() -> None:
    builder = ModelBuilder()
    x, y, z = builder.tensor("x", (1, 4)), builder.tensor("y", (4, 1)), builder.tensor("z", (4, 1))
    shape = builder.tensor("shape", (2,), "int32", data=np.array([4, 1], np.int32))
    builder.operator("RESHAPE", [x, shape], [y])
    builder.operator("EXP", [y], [z])
    file = model_bytes(builder.finish([x], [z]))
    samples = [[np.linspace(-1, 1, 4, dtype=np.float32)[None] * k / 8] for k in range(1, 9)]
    made = quantize(file, calibration=samples, help=False, parameters={"y": (0.25, 5)}, io="quantized")
    (x_codes,) = _graph(made).input_infos()
    assert x_codes.quant == QuantParams((0.25,), (5,))


def test_outputs_are_named_as_in_the_float_model() -> None:
    """Optimised, the two reorderings go away, and what they reordered becomes the output."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 2, 4)), builder.tensor("y", (1, 2, 4))
    inner = [builder.tensor(name, (1, 4, 2)) for name in ("turned", "scores")]
    order = builder.tensor("order", (3,), "int32", data=np.array([0, 2, 1], np.int32))
    builder.operator("TRANSPOSE", [x, order], [inner[0]])
    builder.operator("TANH", [inner[0]], [inner[1]])
    builder.operator("TRANSPOSE", [inner[1], order], [y])
    file = model_bytes(builder.finish([x], [y]))
    samples = [[np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 2, 4) * k / 8] for k in range(1, 9)]
    made = quantize(file, calibration=samples, help=False, output_types="y=int8")
    assert [info.name for info in _graph(made).output_infos()] == ["y"]
    assert [info.name for info in build_graph(read_model(optimize(file).to_circle())).output_infos()] == ["y"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"input_types": "z=int8"}, "the model has no input 'z'.* it has 'in0'"),
        ({"output_types": "int4"}, "unknown type 'int4' of an input or output; use one of float, quantized, int8"),
        ({"input_types": ["int8", "uint8"]}, "the type of all inputs or outputs has been given twice"),
        ({"parameters": ["conv0"]}, "'conv0' is not parameters; write NAME=SCALE:ZERO"),
        ({"parameters": ["conv0=a:0"]}, "parameters 'a:0' of 'conv0' cannot be read; write SCALE:ZERO"),
        ({"parameters": ["conv0=-1:0"]}, "the scale of 'conv0' is -1, expected a finite number above 0"),
        ({"parameters": ["conv0=1e-60:0"]}, "the scale of 'conv0' is 1e-60, which is 0 in float32"),
        ({"parameters": ["conv0=1:300"]}, "the zero point of 'conv0' is 300, int8 allows from -128 to 127"),
        ({"parameters": ["conv0=1:1"], "scheme": "int16"}, "the zero point of 'conv0' is 1, int16 allows 0"),
        ({"parameters": ["conv0=1", "conv0=2"]}, "'conv0' has parameters given twice"),
        ({"parameters": ["nope=1"]}, "has no tensor 'nope'"),
        ({"parameters": ["probs=0.5:0"]}, "'probs' cannot have the parameters .* it is int8 with scale 0.00390625"),
        ({"copied_parameters": ["conv0=nope"]}, "has no tensor 'nope'"),
        ({"copied_parameters": ["conv0"]}, "'conv0' is not a copy of parameters; write TO=FROM"),
        ({"copied_parameters": ["conv0=const4"]}, "cannot take its parameters from 'const4', which has none"),
        ({"copied_parameters": ["a=b", "b=c"]}, "'b' is both a source and a destination of parameters"),
        ({"copied_parameters": ["a=b"], "parameters": ["a=1"]}, "'a' has parameters given twice"),
        (
            {"parameters": ["conv0=1"], "equalize": "weights"},
            "equalisation would change values whose parameters are given",
        ),
        ({"parameters": ["conv0=1"], "scheme": "int8_wo"}, "scheme 'int8_wo' touches weights only"),
    ],
)
def test_what_is_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _made(**chosen)


def test_whole_numbers_have_no_such_types() -> None:
    builder = ModelBuilder()
    table = builder.tensor("table", (4, 4), data=np.eye(4, dtype=np.float32))
    index, rows = builder.tensor("index", (3,), "int32"), builder.tensor("rows", (3, 4))
    builder.operator("GATHER", [table, index], [rows])
    file = model_bytes(builder.finish([index], [rows]))
    samples = [[np.array([k % 4, 1, 2], np.int32)] for k in range(8)]
    with pytest.raises(OptionError, match="input 'index' is int32, not float, and cannot be changed"):
        quantize(file, calibration=samples, help=False, input_types="index=int8")
    made = quantize(file, calibration=samples, help=False, input_types="int8")
    assert [info.dtype for info in _graph(made).input_infos()] == ["int32"]


def _told_of_codes(made: Quantized) -> list[str]:
    return [text for text in made.verdict["findings"] if text.startswith("weights of the model are codes already")]


@pytest.mark.parametrize("scheme", ["int4_wo", "int8_wo", "int16_wo"])
def test_codes_that_a_model_brings_are_what_accuracy_is_measured_against(scheme: str) -> None:
    _, samples = _model()
    made = _made(scheme=scheme)
    (told,) = _told_of_codes(quantize(made.to_circle(), calibration=samples, help=False))
    assert scheme.removesuffix("_wo") in told
    assert "not against the weights that they were rounded from" in told
    assert not _told_of_codes(made)


def test_codes_that_a_model_was_trained_with_are_its_weights() -> None:
    builder, rng = ModelBuilder(), np.random.default_rng(7)
    codes = rng.integers(-127, 128, (4, 8)).astype(np.int8)
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    values, rounded = builder.tensor("x/q", (1, 8), "int8", quant=(0.03, 0)), builder.tensor("x/r", (1, 8))
    held, weights = builder.tensor("w", (4, 8), "int8", data=codes, quant=(0.01, 0)), builder.tensor("w/r", (4, 8))
    for op, source, result in (("QUANTIZE", x, values), ("DEQUANTIZE", values, rounded), ("DEQUANTIZE", held, weights)):
        builder.operator(op, [source], [result])
    builder.operator("FULLY_CONNECTED", [rounded, weights, -1], [y])
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(16)]
    assert not _told_of_codes(quantize(model_bytes(builder.finish([x], [y])), calibration=samples, help=False))
