"""The entry point: given parameters, boundary types, readers, and models trained with rounding."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import attention, normal, only, rescaled_mobilenet, squeeze_excite, without_ranges
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder
from odc_mlir.compiler import compile_object
from odc_mlir.editing.parameters import fake_quantize
from odc_mlir.errors import AccuracyError, InputError, ModelError, OptionError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.optimizer import optimize
from odc_mlir.quantizer.help import OF_VALUES
from odc_mlir.quantizer.models import Recipe
from odc_mlir.quantizer.policy.declarations import EQUALIZE
from odc_mlir.quantizer.policy.schemes import scheme as scheme_of
from odc_mlir.quantizer.quantize import Quantized, embed_ranges, quantize
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph


@cache
def _direct(make: Any = squeeze_excite) -> Quantized:
    file, samples = without_ranges(make)
    return quantize(file, calibration=samples, help=False)


def _made(make: Any = squeeze_excite, **chosen: Any) -> Quantized:
    file, samples = without_ranges(make)
    return quantize(file, **{"calibration": samples, "help": False, **chosen}) if chosen else _direct(make)


def _graph(made: Quantized) -> Graph:
    return build_graph(read_model(made.to_circle()))


def _tensor(made: Quantized, name: str) -> TensorInfo:
    return next(info for info in _graph(made).tensors if info.name == name)


def test_help_finds_equalisation_and_says_what_it_does() -> None:
    told: list[tuple[str, int, int | None]] = []
    plain = _direct(rescaled_mobilenet)
    helped = _made(rescaled_mobilenet, help=True, progress=lambda *step: told.append(step))
    assert (plain.passed, helped.passed) == (False, True)
    steps = helped.verdict["steps"]
    assert helped.verdict["choices"]["equalize"] in EQUALIZE[1:]
    by_kind = {step["value"]: step["quality_db"] for step in steps if step["step"] == "equalize"}
    assert by_kind[helped.verdict["choices"]["equalize"]] > by_kind["none"] + 15
    assert by_kind["none"] > plain.verdict["steps"][0]["quality_db"] - 1
    order = [step["step"] for step in steps]
    assert order.index("rounding") > len(order) - 1 - order[::-1].index("equalize"), "of the channels that are left"
    assert told[0][0] == "recording ranges"
    assert any(text.startswith("equalize activations: ") for text, _, _ in told)
    counts = [done for _, done, _ in told]
    assert counts == sorted(counts), "models that were built"
    assert len(steps) < counts[-1]


@pytest.mark.parametrize(("limit", "count"), [(25.0, 1), (90.0, 3)])
def test_refined_models_try_all_equalisations_if_limits_are_missed(limit: float, count: int) -> None:
    made = _made(rescaled_mobilenet, help=True, mixed="off", metric="sqnr", limit=limit)
    assert [step["step"] for step in made.verdict["steps"]].count("refined equalize") == count


@pytest.mark.parametrize(("count", "ranges"), [(160, "percentile"), (96, "minmax")])
def test_help_leaves_out_rare_extremes_that_outputs_do_not_need(count: int, ranges: str) -> None:
    """TANH saturates for an input that is twenty times as large in every 16th of many samples."""
    random, builder = np.random.default_rng(0), ModelBuilder()
    weights = random.normal(size=(8, 8)) / 2
    weights[:, 0], weights[0], weights[0, 0] = 0.0, 0.0, 3.0
    x = builder.tensor("x", (1, 8))
    squashed = builder.made("squashed", (1, 8), "TANH", builder.dense("hidden", x, weights))
    file = builder.file([x], [builder.dense("y", squashed, random.normal(size=(4, 8)))])
    samples = random.normal(size=(count, 1, 8)).astype(np.float32)
    samples[::16, :, 0] *= 20.0
    assert quantize(file, calibration=[[sample] for sample in samples]).verdict["choices"]["ranges"] == ranges


def test_overrides_keep_layers_as_asked_and_are_told_from_what_the_search_leaves_in_float() -> None:
    made = _made(overrides={"stem": "int16x8", "conv1": "float"}, **only("mixed"), help=True)
    scheme = made.verdict["scheme"]
    assert (scheme["stem"], scheme["conv0"], scheme["conv1"]) == ("int16x8", "int8", "float")
    assert made.verdict["float_reasons"] == {"conv1": "float was requested"}
    options: dict[str, Any] = {"metric": "sqnr", "limit": 70.0, "min_coverage": 0.0, "overrides": {"pool": "float"}}
    samples = without_ranges(squeeze_excite)[1][:24]
    reasons = _made(calibration=samples, help=True, **options, **only("mixed")).verdict["float_reasons"]
    assert reasons.pop("pool") == "float was requested"
    assert set(reasons.values()) == {"the search for precisions chose float"}


def test_records_are_written_and_read_in_place_of_files_alone(tmp_path: Path) -> None:
    """A pipe, or a device, that was named in place of a file was deleted."""
    (file, samples), direct = without_ranges(squeeze_excite), _direct()
    module, records = embed_ranges(file, samples, ranges="minmax")
    assert records.runs == len(samples)
    assert quantize(module, help=False).to_circle() == direct.to_circle(), "ranges of the model itself"
    for name in ("r.sqlite", "minmax.bin"):
        (tmp_path / name).write_bytes(b"notes")
        with pytest.raises(OptionError, match="not a file of records"):
            direct.save_records(tmp_path / name)
        direct.save_records(tmp_path / name, overwrite=True)
        direct.save_records(tmp_path / name)
        assert quantize(file, records=tmp_path / name, help=False).to_circle() == direct.to_circle()
    assert quantize(file, records=direct.records, help=False).to_circle() == direct.to_circle()
    os.mkfifo(tmp_path / "pipe")
    for overwrite in (False, True):
        with pytest.raises(OptionError, match="cannot be written to a device or a pipe"):
            direct.save_records(tmp_path / "pipe", overwrite=overwrite)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "file")
    direct.save_records(tmp_path / "link")
    direct.save_records(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").is_file()


def test_files_by_name(tmp_path: Path) -> None:
    made, circle = _direct(), tmp_path / "m.circle"
    for path, schema in ((circle, "circle"), (tmp_path / "m.tflite", "tflite")):
        made.save(path)
        assert read_model(path).schema == schema
        made.save(path)
    with pytest.raises(OptionError, match=r"cannot tell the format of .*; use \.circle or \.tflite"):
        made.save(tmp_path / "m.bin")
    circle.write_bytes(b"notes")
    with pytest.raises(OptionError, match="not a model that odc-mlir wrote"):
        made.save(circle)
    made.save(circle, overwrite=True)


def test_weights_only_needs_no_data_and_is_not_checked_then(caplog: pytest.LogCaptureFixture) -> None:
    file, samples = without_ranges(squeeze_excite)
    made = quantize(file, scheme="int8_wo")
    assert (made.verdict["status"], made.passed, made.failed) == ("unchecked", False, False)
    expected: dict[str, Any] = {key: [] for key in ("same_inputs", "unreal_inputs", "one_sided", "other_units")}
    expected |= {"made_up": True, "labels_tell": None, "chosen_by": 0, "checked_on": 8, "telling": True}
    expected |= {"outputs_vary": True, "ranges_cover": False}
    found = made.verdict["samples"]
    assert {key: found[key] for key in found if key != "layers_examined_on"} == expected
    assert not made.verdict["intervals"]
    made.require_passed()
    said = "not checked: no samples were given; limits hold on made-up inputs only"
    hint = "give samples: --calibration or --evaluation (in Python calibration or evaluation)"
    assert caplog.messages == [f"the quantised model: {said}; {hint}"]
    assert said in repr(made)
    assert "passed" not in repr(made)
    assert quantize(file, scheme="int8_wo", evaluation=samples).verdict["status"] == "passed"
    assert len(made.to_circle()) < len(file)
    missed = quantize(file, scheme="int8_wo", metric="sqnr", limit=200.0)
    assert (missed.verdict["status"], missed.passed, missed.failed) == ("failed", False, True)
    with pytest.raises(AccuracyError, match="the quantised model failed: SQNR "):
        missed.require_passed()


def test_time_that_is_over_ends_the_search_and_one_sample_is_not_enough() -> None:
    made = _made(max_seconds=0.0, help=True)
    assert len(made.verdict["steps"]) == 1
    assert "not all improvements were tried within 0 s (--max-seconds)" in made.verdict["findings"]
    _, samples = without_ranges(rescaled_mobilenet)
    made = _made(rescaled_mobilenet, calibration=samples[1:], evaluation=samples[:1], scheme="int16x8", limit=0.3)
    assert not made.passed
    assert made.verdict["problems"] == ["the model was checked on a single sample: the accuracy on others is unknown"]


def test_fake_quantised_and_integer_models_are_close_and_give_each_other() -> None:
    file, samples = without_ranges(attention)
    made = _direct(attention)
    fake = HostExecutor(build_graph(export_model(fake_quantize(made.model))))
    runs = [HostExecutor(build_graph(read_model(file))), HostExecutor(_graph(made)), fake]
    outputs = [np.concatenate([run.run(sample)[0] for sample in samples[:8]]) for run in runs]
    errors = [float(np.square(outputs[0] - found).sum()) for found in outputs[1:]]
    assert 0.5 < errors[0] / errors[1] < 2.0
    _, samples = without_ranges(squeeze_excite)
    again = quantize(fake_quantize(_direct().model), calibration=samples, help=False)
    first, second = HostExecutor(_graph(_direct())), HostExecutor(_graph(again))
    for sample in samples:
        np.testing.assert_array_equal(first.run(sample)[0], second.run(sample)[0])


def test_what_is_refused() -> None:
    file, samples = without_ranges(squeeze_excite)
    with pytest.raises(ModelError, match="the model is quantised already"):
        quantize(_direct().to_circle(), calibration=samples)
    with pytest.raises(InputError, match="needs input samples or recorded ranges"):
        quantize(file)
    model = read_model(file)
    model.subgraphs[0].outputs = ()
    with pytest.raises(ModelError, match="no output by which a quantised one could be judged"):
        quantize(bytes(write_model(model)), calibration=samples)


@pytest.mark.parametrize(
    ("options", "types"),
    [
        ({"io": "float"}, ["float32", "float32"]),
        ({"io": "quantized"}, ["int8", "int8"]),
        ({"input_types": ["in0=uint8"], "output_types": "int16"}, ["uint8", "int16"]),
        # A name wins over all, and both over io.
        ({"io": "quantized", "output_types": {"probs": "float", "": "uint8"}}, ["int8", "float32"]),
    ],
)
def test_inputs_and_outputs_have_types_of_their_own(options: dict[str, Any], types: list[str]) -> None:
    made = _made(**options)
    (x,), (y,) = _graph(made).input_infos(), _graph(made).output_infos()
    assert [x.dtype, y.dtype] == types
    if "input_types" in options:
        (codes,) = _graph(_made(io="quantized")).input_infos()
        assert x.quant == QuantParams(codes.quant.scales, (codes.quant.zero_point + 128,)), "the same reals"
        assert made.verdict["metrics"]["sqnr_db"] == pytest.approx(_direct().verdict["metrics"]["sqnr_db"], abs=0.01)
        assert made.verdict["choices"]["input_types"] == {"in0": "uint8"}


def test_parameters_are_those_that_are_given_or_copied() -> None:
    made = _made(parameters={"conv0": (0.05, 3)}, mixed="on")
    assert _tensor(made, "conv0").quant == QuantParams((float(np.float32(0.05)),), (3,))
    assert made.verdict["scheme"]["conv0"] == "int8", "the parameters are for codes of the scheme"
    copied = _made(copied_parameters=["conv1=conv0"])
    assert _tensor(copied, "conv1").quant == _tensor(copied, "conv0").quant != _tensor(_direct(), "conv1").quant
    wide = _made(copied_parameters=["conv1=conv0"], overrides={"conv0": "int16x8"})
    assert _tensor(wide, "conv1").dtype == "int16", "a copy has its source's element type as well"
    assert _tensor(wide, "conv1").quant == _tensor(wide, "conv0").quant
    scale = max(_tensor(_direct(), "const4").quant.scales)
    assert _tensor(_made(parameters={"const4": (scale, 0)}), "const4").quant == QuantParams((scale,), (0,)), "weights"
    with pytest.raises(OptionError, match="'const4' cannot have the parameters given for it"):
        _made(parameters={"const4": (scale, 3)})


def test_what_is_moved_has_the_parameters_that_are_given_for_it() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4))
    y = builder.made("y", (4, 1), "RESHAPE", x, builder.constant("shape", [4, 1], "int32"))
    file = builder.file([x], [builder.made("z", (4, 1), "EXP", y)])
    samples = [[np.linspace(-1, 1, 4, dtype=np.float32)[None] * k / 8] for k in range(1, 9)]
    made = quantize(file, calibration=samples, help=False, parameters={"y": (0.25, 5)}, io="quantized")
    (x_codes,) = _graph(made).input_infos()
    assert x_codes.quant == QuantParams((0.25,), (5,))


def test_outputs_are_named_as_in_the_float_model() -> None:
    """Optimised, the two reorderings go away, and what they reordered becomes the output."""
    builder = ModelBuilder()
    x, order = builder.tensor("x", (1, 2, 4)), builder.constant("order", [0, 2, 1], "int32")
    scores = builder.made("scores", (1, 4, 2), "TANH", builder.made("turned", (1, 4, 2), "TRANSPOSE", x, order))
    file = builder.file([x], [builder.made("y", (1, 2, 4), "TRANSPOSE", scores, order)])
    samples = [[np.linspace(-1, 1, 8, dtype=np.float32).reshape(1, 2, 4) * k / 8] for k in range(1, 9)]
    made = quantize(file, calibration=samples, help=False, output_types="y=int8")
    for found in (made, optimize(file)):
        assert [info.name for info in _graph(found).output_infos()] == ["y"]


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"patterns": "batchnorm"}, "unknown pattern 'batchnorm'; use layernorm or softmax"),
        ({"patterns": "softmax", "scheme": "int16"}, "scheme 'int16' has no wider scheme for patterns"),
        ({"visq_file": "e.json", "mixed": "off"}, "which is off; omit mixed"),
        ({"equalize": "no_such.json"}, "cannot read the patterns"),
        ({"overrides": "conv9:float"}, "no operator has a result 'conv9'"),
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
        ({"parameters": ["conv0=1"], "equalize": "weights"}, "equalisation would change values whose parameters are"),
    ],
)
def test_options_that_cannot_be_are_refused(chosen: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        _made(**chosen)


def test_whole_numbers_have_no_such_types() -> None:
    builder = ModelBuilder()
    table, index = builder.constant("table", np.eye(4)), builder.tensor("index", (3,), "int32")
    file = builder.file([index], [builder.made("rows", (3, 4), "GATHER", table, index)])
    samples = [[np.array([k % 4, 1, 2], np.int32)] for k in range(8)]
    with pytest.raises(OptionError, match="input 'index' is int32, not float, and cannot be changed"):
        quantize(file, calibration=samples, help=False, input_types="index=int8")
    made = quantize(file, calibration=samples, help=False, input_types="int8")
    assert [info.dtype for info in _graph(made).input_infos()] == ["int32"]


def _told_of_codes(made: Quantized) -> list[str]:
    return [text for text in made.verdict["findings"] if text.startswith("weights of the model are quantised already")]


@pytest.mark.parametrize("scheme", ["int4_wo", "int8_wo", "int16_wo"])
def test_codes_that_a_model_brings_are_what_accuracy_is_measured_against(scheme: str) -> None:
    made = _made(scheme=scheme)
    samples = without_ranges(squeeze_excite)[1]
    (told,) = _told_of_codes(quantize(made.to_circle(), calibration=samples, help=False))
    assert scheme.removesuffix("_wo") in told
    assert "not against the original weights" in told
    assert not _told_of_codes(made)


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ({"io": "quantized"}, True),
        ({"output_types": "quantized"}, True),
        ({"output_types": {"y": "quantized"}}, True),
        ({"io": "quantized", "output_types": "float"}, False),
        ({}, False),
    ],
)
def test_a_finding_names_outputs_that_stay_float(options: dict[str, Any], is_told: bool) -> None:
    """LiteRT takes no 16-bit codes in the last layer."""
    net = FloatNet(1)
    hidden = net.add("FULLY_CONNECTED", net.real(1, 8), net.weights(8, 8), None)
    module = net.module(net.add("L2_NORMALIZATION", hidden, name="y"))
    samples = normal(np.random.default_rng(1), 12, 1, 8)
    made = quantize(module, scheme="int16x8", reader="litert", calibration=samples, help=False, **options)
    told = (
        "output 'y' stays float although a quantised type was requested: layers that read or compute it are not "
        "quantised"
    )
    assert [text for text in made.verdict["findings"] if "stays float" in text] == [told] * is_told


def test_a_cpu_gets_no_codes_that_object_code_lacks() -> None:
    """A layer whose sums are hundreds of times coarser than its limited result."""
    rng, builder, shape = np.random.default_rng(1), ModelBuilder(), (1, 4, 4, 2)
    x = builder.tensor("x", shape)
    constants = builder.constant("w", rng.normal(0, 50, (2, 3, 3, 2))), builder.constant("b", np.zeros(2))
    options: dict[str, Any] = {"padding": "same", "stride_w": 1, "stride_h": 1}
    y = builder.made("y", shape, "CONV_2D", x, *constants, **options, fused_activation_function="relu6")
    file, samples = builder.file([x], [y]), normal(rng, 8, *shape, size=50.0)
    anywhere, on_cpu = (quantize(file, calibration=samples, target=target, help=False) for target in (None, "cpu"))
    assert not anywhere.verdict["float_reasons"]
    with pytest.raises(UnsupportedError, match=r"a scale ratio above 1.*quantise with --target cpu"):
        compile_object(anywhere.model, name="net")
    assert on_cpu.verdict["float_reasons"] == {"y": "a scale ratio above 1 has no native kernel"}
    assert compile_object(on_cpu.model, name="net")[0]
    assert scheme_of("uint8").read_by("cpu").family == scheme_of("uint8").family, "nothing else changes"


SAMPLES = [[np.random.default_rng(k).uniform(-1, 1, (1, 6, 6, 2)).astype(np.float32)] for k in range(12)]
CODES = {"x": (1 / 127, 0), "y": (0.03, -60), "z": (0.05, 4)}
WEIGHTS = (0.02, 0.01, 0.03)  # scales of the first layer's channels


@cache
def trained(form: str, dtype: str = "int8") -> bytes:
    """Two layers with rounding between them, as ``pairs`` of QUANTIZE and DEQUANTIZE or by FAKE_QUANT."""
    builder, random = ModelBuilder(), np.random.default_rng(0)

    def fake(value: int, name: str, low: float, high: float) -> int:
        shape, options = builder.subgraph.tensors[value].shape, {"num_bits": 8, "narrow_range": name == "w"}
        return builder.made(f"{name}/dq", shape, "FAKE_QUANT", value, min=low, max=high, **options)

    def rounded(value: int, name: str) -> int:
        (scale, zero), shape = CODES[name], builder.subgraph.tensors[value].shape
        if form == "fake":
            return fake(value, name, scale * (-128 - zero), scale * (127 - zero))
        codes = builder.tensor(f"{name}/q", shape, dtype, quant=(scale, zero + 128 * (dtype == "uint8")))
        builder.operator("QUANTIZE", [value], [codes])
        return builder.made(f"{name}/dq", shape, "DEQUANTIZE", codes)

    codes = random.integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
    x, scales = builder.tensor("x", (1, 6, 6, 2)), np.array(WEIGHTS, np.float32)
    if form == "fake":
        w = fake(builder.constant("w", codes * scales[:, None, None, None]), "w", -127 * 0.03, 127 * 0.03)
    else:
        stored = builder.tensor("w/codes", codes.shape, "int8", data=codes, quant=(1.0, 0))
        quantization = builder.subgraph.tensors[stored].quantization
        quantization.scale, quantization.zero_point = scales, np.zeros(3, np.int64)
        w = builder.made("w", codes.shape, "DEQUANTIZE", stored)
    b = builder.constant("b", random.uniform(-0.1, 0.1, 3))
    step = {"stride_h": 1, "stride_w": 1, "padding": "same", "fused_activation_function": "relu"}
    y = rounded(builder.made("y", (1, 6, 6, 3), "CONV_2D", rounded(x, "x"), w, b, **step), "y")
    mean = builder.made("mean", (1, 3), "MEAN", y, builder.constant("axes", [1, 2], "int32"), keep_dims=False)
    return builder.file([x], [rounded(builder.dense("z", mean, random.uniform(-0.5, 0.5, (2, 3))), "z")])


def _codes(made: Quantized) -> dict[str, TensorInfo]:
    """Tensors of codes by name; ``w``: weights of the first layer."""
    coded = [info for info in _graph(made).tensors if info.quant is not None and info.info.is_integer]
    return {"w" if info.shape == (3, 3, 3, 2) else info.name: info for info in coded}


@pytest.mark.parametrize("samples", [SAMPLES, None], ids=["samples", "no-samples"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pairs_give_their_parameters(dtype: str, samples: Any) -> None:
    made = quantize(trained("pairs", dtype), calibration=samples, io="quantized")
    graph, found = _graph(made), _codes(made)
    (x,), (z,) = graph.input_infos(), graph.output_infos()
    for name, info in ({"x": x, "y": found["y"]} | ({"z": z} if samples else {})).items():
        scale, zero = CODES[name]
        params = QuantParams((float(np.float32(scale)),), (zero + 128 * (dtype == "uint8"),))
        assert (info.dtype, info.quant) == (dtype, params)
    assert found["w"].quant.scales == tuple(np.array(WEIGHTS, np.float32).tolist())
    lost = [text for text in made.verdict["findings"] if "other parameters" in text]
    assert made.verdict["status"] == ("passed" if samples else "unchecked")
    assert bool(lost) is (samples is None)
    if samples is None:
        assert made.verdict["float_reasons"]["mean"] == "no range is known for 'mean'", "nobody rounded it, or ran it"
        assert "'z/dq' (it stays float)" in lost[0]


def test_the_quantised_model_computes_what_the_trained_one_does() -> None:
    """Every value is a code of the one and the other; roundings at halves may differ by one."""
    made = quantize(trained("pairs"), calibration=SAMPLES)
    assert made.verdict["choices"]["scheme"] == "int8"
    assert made.verdict["metrics"]["max_abs"] <= 1.001 * CODES["z"][0]
    codes = [node.node.spec.name for node in _graph(made).nodes]
    assert codes == ["QUANTIZE", "CONV_2D", "MEAN", "FULLY_CONNECTED", "DEQUANTIZE"]
    assert [info.name for info in _graph(made).output_infos()] == ["z/dq"], "the name that the model's users know"
    assert not _told_of_codes(made), "codes that a model was trained with are its weights"
    assert odc_mlir.compile(quantize(trained("pairs")).model, target="npu-256") is not None


def test_fake_quant_gives_its_parameters() -> None:
    found = _codes(quantize(trained("fake"), calibration=SAMPLES, io="quantized"))
    for name, (scale, zero) in {"x": CODES["x"], "y": CODES["y"], "w": (0.03, 0)}.items():
        quant = found[name].quant
        assert (quant.scales, quant.zero_points) == ((pytest.approx(scale, rel=1e-6),), (zero,))
    (x,) = _graph(quantize(trained("pairs"), scheme="int16", io="quantized")).input_infos()
    assert (x.dtype, x.quant.zero_point) == ("int16", 0), "another scheme takes the ranges"


def test_what_is_lost_is_said() -> None:
    """SOFTMAX fixes its result's parameters, whatever was trained."""
    builder = ModelBuilder()
    x, codes = builder.tensor("x", (1, 4)), builder.tensor("c", (1, 4), "int8", quant=(0.01, 0))
    builder.operator("QUANTIZE", [builder.made("y", (1, 4), "SOFTMAX", x, beta=1.0)], [codes])
    file = builder.file([x], [builder.made("d", (1, 4), "DEQUANTIZE", codes)])
    made = quantize(file, calibration=[[np.arange(4, dtype=np.float32)[None] * k] for k in range(8)])
    (said,) = [text for text in made.verdict["findings"] if "parameters than those in the model" in text]
    lost = "1 of 1 tensors have other parameters than those in the model: 'd' (it is int8 with scale 0.0039"
    assert said.startswith(lost)


@pytest.mark.parametrize(
    ("form", "given"),
    [
        ("pairs", {"equalize": "weights"}),
        ("fake", {"equalize": "weights"}),
        ("fake", {"ranges": "percentile"}),
        ("fake", {"headroom": 0.3}),
        ("fake", {"normalize": "on"}),
        ("fake", {"rounding": "on"}),
    ],
)
def test_what_training_chose_is_not_chosen_again(form: str, given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"parameters .*the model already has.*; omit"):
        quantize(trained(form), calibration=SAMPLES, **given)


@pytest.mark.parametrize(
    ("is_large", "gains", "tried"),
    [
        (False, True, list(EQUALIZE[1:])),
        (True, True, ["activations"]),
        (True, False, ["activations", "activations:0.8", "weights"]),
    ],
)
def test_large_models_are_equalised_by_weights_if_activations_gain_nothing(
    is_large: bool, gains: bool, tried: list[str]
) -> None:
    search = SimpleNamespace(
        options=SimpleNamespace(equalizations=EQUALIZE),
        evaluator=SimpleNamespace(is_large=is_large),
        equalized=lambda kind: kind,
        best=SimpleNamespace(recipe=Recipe()),
    )
    seen = []
    for change in OF_VALUES[0].changes(cast(Any, search)):
        seen.append(change.value)
        if gains:
            search.best = SimpleNamespace(recipe=change.recipe)
    assert seen == tried
