"""The entry point: given parameters, boundary types, and models trained with rounding."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import attention, only, rescaled_mobilenet, squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.editing.parameters import fake_quantize
from odc_mlir.errors import AccuracyError, InputError, ModelError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.ops.spec import QuantParams, TensorInfo
from odc_mlir.optimizer import optimize
from odc_mlir.quantizer.evaluator import HALVES, JUDGES
from odc_mlir.quantizer.policy.declarations import EQUALIZE
from odc_mlir.quantizer.quantize import Quantized, embed_ranges, quantize
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph


@cache
def _plain(make: Any = squeeze_excite) -> tuple[bytes, list[list[np.ndarray]]]:
    """A model's file without recorded ranges, and samples."""
    module, samples = make()
    model = export_model(module)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model)), samples


@pytest.fixture(name="helped_steps", scope="module")
def _helped_steps() -> tuple[Quantized, list[tuple[str, int, int | None]]]:
    """A model that needs help, and what was told on the way."""
    file, samples = _plain(rescaled_mobilenet)
    told: list[tuple[str, int, int | None]] = []
    return quantize(file, calibration=samples, progress=lambda *step: told.append(step)), told


def test_help_finds_equalisation(helped_steps: tuple[Quantized, list[tuple[str, int, int | None]]]) -> None:
    file, samples = _plain(rescaled_mobilenet)
    plain, helped = quantize(file, calibration=samples, help=False), helped_steps[0]
    assert not plain.passed
    assert helped.passed
    assert helped.verdict["choices"]["equalize"] in EQUALIZE[1:]
    by_kind = {step["value"]: step["quality_db"] for step in helped.verdict["steps"] if step["step"] == "equalize"}
    assert by_kind[helped.verdict["choices"]["equalize"]] > by_kind["none"] + 15
    assert by_kind["none"] > plain.verdict["steps"][0]["quality_db"] - 1
    order = [step["step"] for step in helped.verdict["steps"]]
    assert order.index("rounding") > len(order) - 1 - order[::-1].index("equalize"), "of the channels that are left"


def test_a_failed_verdict_is_an_error_when_asked_for() -> None:
    file, samples = _plain(rescaled_mobilenet)
    made = quantize(file, calibration=samples, help=False)
    with pytest.raises(AccuracyError, match=r"the quantised model failed: mpeir .*worst layers: 'block"):
        made.require_passed()
    assert "failed" in repr(made)
    quantize(file, calibration=samples, help=False, scheme="int16x8").require_passed()


def test_overrides_keep_layers_as_asked() -> None:
    file, samples = _plain()
    made = quantize(file, calibration=samples, overrides={"stem": "int16x8", "conv1": "float"}, **only("mixed"))
    scheme = made.verdict["scheme"]
    assert (scheme["stem"], scheme["conv0"], scheme["conv1"]) == ("int16x8", "int8", "float")
    assert made.verdict["float_reasons"] == {"conv1": "float was asked for"}
    with pytest.raises(OptionError, match="no operator has a result 'conv9'"):
        quantize(file, calibration=samples, overrides="conv9:float")


def test_what_the_search_leaves_in_float_is_told_from_what_was_asked_for() -> None:
    file, samples = _plain()
    options: dict[str, Any] = {"metric": "sqnr", "limit": 70.0, "min_coverage": 0.0, "overrides": {"pool": "float"}}
    options |= only("mixed")
    reasons = quantize(file, calibration=samples[:24], **options).verdict["float_reasons"]
    assert reasons.pop("pool") == "float was asked for"
    assert set(reasons.values()) == {"the search for precisions chose float"}


def test_inputs_and_outputs_are_float_or_codes() -> None:
    file, samples = _plain()
    types = {}
    for io in ("float", "quantized"):
        graph = build_graph(read_model(quantize(file, calibration=samples, io=io, help=False).to_circle()))
        types[io] = [info.dtype for info in (*graph.input_infos(), *graph.output_infos())]
    assert types == {"float": ["float32", "float32"], "quantized": ["int8", "int8"]}


def test_ranges_of_the_model_itself_stand_in_for_samples() -> None:
    file, samples = _plain()
    module, records = embed_ranges(file, samples, ranges="minmax")
    assert records.runs == len(samples)
    direct = _direct()
    assert quantize(module, help=False).to_circle() == direct.to_circle()


def test_records_are_written_and_read(tmp_path: Path) -> None:
    file, samples = _plain()
    direct = _direct()
    for name in ("r.sqlite", "minmax.bin"):
        (tmp_path / name).write_bytes(b"notes")
        with pytest.raises(OptionError, match="not a file of records"):
            direct.save_records(tmp_path / name)
        direct.save_records(tmp_path / name, overwrite=True)
        direct.save_records(tmp_path / name)
        assert quantize(file, records=tmp_path / name, help=False).to_circle() == direct.to_circle()
    assert quantize(file, records=direct.records, help=False).to_circle() == direct.to_circle()


def test_records_take_the_place_of_files_alone(tmp_path: Path) -> None:
    """A pipe, or a device, that was named in place of a file was deleted."""
    file, samples = _plain()
    direct = _direct()
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


def test_weights_only_needs_no_data_and_is_not_checked_then(caplog: pytest.LogCaptureFixture) -> None:
    file, samples = _plain()
    made = quantize(file, scheme="int8_wo")
    assert (made.verdict["status"], made.passed, made.failed) == ("unchecked", False, False)
    assert made.verdict["samples"] == {
        "made_up": True,
        "same_inputs": [],
        "unreal_inputs": [],
        "one_sided": [],
        "other_units": [],
        "labels_tell": None,
        "chosen_by": 0,
        "checked_on": 8,
        "telling": True,
        "outputs_vary": True,
    } | {key: made.verdict["samples"][key] for key in ("layers_examined_on", "stands_out")}
    assert not made.verdict["intervals"]
    made.require_passed()
    said = "not checked: no samples were given; limits hold on made-up inputs only"
    hint = "give samples: --calibration or --evaluation (in Python calibration or evaluation)"
    assert caplog.messages == [f"the quantised model: {said}; {hint}"]
    assert said in repr(made)
    assert "passed" not in repr(made)
    assert quantize(file, scheme="int8_wo", evaluation=samples).verdict["status"] == "passed"
    assert len(made.to_circle()) < len(file)


def test_what_misses_a_limit_on_made_up_inputs_has_failed() -> None:
    file, _ = _plain()
    made = quantize(file, scheme="int8_wo", metric="sqnr", limit=200.0)
    assert (made.verdict["status"], made.passed, made.failed) == ("failed", False, True)
    with pytest.raises(AccuracyError, match="the quantised model failed: SQNR "):
        made.require_passed()


def test_files_by_name(tmp_path: Path) -> None:
    file, samples = _plain()
    made = _direct()
    for suffix, schema in ((".circle", "circle"), (".tflite", "tflite")):
        made.save(tmp_path / f"m{suffix}")
        assert read_model(tmp_path / f"m{suffix}").schema == schema
        made.save(tmp_path / f"m{suffix}")
    with pytest.raises(OptionError, match=r"cannot tell the format of .*; use \.circle or \.tflite"):
        made.save(tmp_path / "m.bin")
    (tmp_path / "m.circle").write_bytes(b"notes")
    with pytest.raises(OptionError, match="not a model that odc-mlir wrote"):
        made.save(tmp_path / "m.circle")
    made.save(tmp_path / "m.circle", overwrite=True)


def test_progress_tells_what_is_done(helped_steps: tuple[Quantized, list[tuple[str, int, int | None]]]) -> None:
    made, told = helped_steps
    assert told[0][0] == "recording ranges"
    assert any(text.startswith("equalize activations: ") for text, _, _ in told)
    foreseen = [total or 0 for _, _, total in told if total]
    assert all(done <= total for _, done, total in told if total)
    # Steps that are kept, and what they are compared with, are judged by models without some of the samples; some steps
    # are left out or tried again.
    judging = 2 * HALVES
    kept = sum(step["kept"] for step in made.verdict["steps"])
    rooms = (1 + JUDGES) * sum(step["step"] == "headroom" for step in made.verdict["steps"])
    most = foreseen[0] + judging * kept + len(EQUALIZE) + rooms
    assert len(made.verdict["steps"]) < told[-1][1] <= foreseen[-1] <= most


def test_one_sample_to_check_on_is_not_enough() -> None:
    file, samples = _plain(rescaled_mobilenet)
    made = quantize(file, calibration=samples[1:], evaluation=samples[:1], limit=0.3)
    assert made.verdict["problems"] == ["a single sample checked the model, which says nothing of others"]
    assert not made.passed


def test_time_that_is_over_ends_the_search() -> None:
    file, samples = _plain()
    made = quantize(file, calibration=samples, max_seconds=0.0)
    assert len(made.verdict["steps"]) == 1
    assert "not all improvements were tried within 0 s (--max-seconds)" in made.verdict["findings"]


def test_fake_quantised_and_integer_models_are_close() -> None:
    file, samples = _plain(attention)
    made = quantize(file, calibration=samples, help=False)
    fake = HostExecutor(build_graph(export_model(fake_quantize(made.model))))
    runs = [HostExecutor(build_graph(read_model(file))), HostExecutor(_graph(made)), fake]
    outputs = [np.concatenate([run.run(sample)[0] for sample in samples[:8]]) for run in runs]
    errors = [float(np.square(outputs[0] - found).sum()) for found in outputs[1:]]
    assert 0.5 < errors[0] / errors[1] < 2.0


def test_what_is_refused() -> None:
    file, samples = _plain()
    made = _direct()
    with pytest.raises(ModelError, match="the model is quantised already"):
        quantize(made.to_circle(), calibration=samples)
    with pytest.raises(InputError, match="needs input samples or recorded ranges"):
        quantize(file)
    with pytest.raises(OptionError, match="unknown quantisation scheme 'int7'"):
        quantize(file, scheme="int7", calibration=samples)


def test_models_without_real_values_are_not_quantised() -> None:
    builder = ModelBuilder()
    a, b = builder.tensor("a", (1, 4), "int32"), builder.tensor("b", (1, 4), "int32")
    builder.operator("ABS", [a], [b])
    file = bytes(write_model(builder.finish([a], [b])))
    made = quantize(file, calibration=[[np.arange(4, dtype=np.int32) + i] for i in range(8)])
    assert made.verdict["problems"] == ["nothing is quantised to int8"]
    assert made.verdict["scheme"] == {"b": "float"}


def test_a_model_without_outputs_cannot_be_judged() -> None:
    module, samples = squeeze_excite()
    model = export_model(module)
    model.subgraphs[0].outputs = ()
    with pytest.raises(ModelError, match="no output by which a quantised one could be judged"):
        quantize(bytes(write_model(model)), calibration=samples)


def test_a_target_may_prefer_a_form_of_weights() -> None:
    file, samples = _plain()
    free, chosen = (
        odc_mlir.quantize(file, scheme="uint8", calibration=samples, help=False, target=target)
        for target in (None, "npu-256")
    )
    zeros = [
        {
            zero
            for info in build_graph(read_model(made.to_circle())).tensors
            if info.is_const and info.quant is not None and not info.quant.per_tensor and info.dtype == "uint8"
            for zero in info.quant.zero_points
        }
        for made in (free, chosen)
    ]
    assert len(zeros[0]) > 1
    assert zeros[1] == {128}


def test_answers_that_are_numbers_count_as_right_or_wrong() -> None:
    builder = ModelBuilder()
    a, b = builder.tensor("a", (1, 8)), builder.tensor("b", (1, 8))
    axis = builder.tensor("axis", (1,), "int32", data=np.array([1], np.int32))
    c, d = builder.tensor("c", (1, 8)), builder.tensor("d", (1,), "int64")
    builder.operator("ADD", [a, b], [c])
    builder.operator("ARG_MAX", [c, axis], [d], options={"output_type": "int64"})
    file = bytes(write_model(builder.finish([a, b], [d])))
    rng = np.random.default_rng(0)
    # Sums that differ by less than a step of 8 bits.
    samples = [[rng.uniform(1.0, 1.004, (1, 8)), rng.uniform(-1.0, 1.0, (1, 1)).repeat(8, 1)] for _ in range(32)]
    plain = quantize(file, calibration=samples, help=False, metric="top1_match")
    assert plain.verdict["worst_layers"]
    helped = quantize(file, calibration=samples, metric="top1", limit=1.0)
    # All in reals would keep it, but then nothing is quantised.
    assert not helped.verdict["passed"]
    assert helped.verdict["limits"][0]["value"] < 1


@cache
def _direct() -> Quantized:
    """The model quantised without options."""
    file, samples = _plain()
    return quantize(file, calibration=samples, help=False)


def _made(**chosen: Any) -> Quantized:
    file, samples = _plain()
    return quantize(file, calibration=samples, help=False, **chosen) if chosen else _direct()


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
def test_what_is_refused_given(chosen: dict[str, Any], message: str) -> None:
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
    _, samples = _plain()
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


TOLD = "real numbers stay in output 'y': codes were asked for, but what reads or makes it stays float"


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"io": "quantized"}, [TOLD]),
        ({"output_types": "quantized"}, [TOLD]),
        ({"output_types": {"y": "quantized"}}, [TOLD]),
        ({"io": "quantized", "output_types": "float"}, []),
        ({}, []),
    ],
)
def test_what_stays_real_though_codes_were_asked_for_is_told(options: dict[str, Any], told: list[str]) -> None:
    """LiteRT takes no 16-bit codes in the last layer."""
    net = FloatNet(1)
    hidden = net.add("FULLY_CONNECTED", net.real(1, 8), net.weights(8, 8), None)
    module = net.module(net.add("L2_NORMALIZATION", hidden, name="y"))
    samples = [[np.random.default_rng(seed).normal(size=(1, 8)).astype(np.float32)] for seed in range(12)]
    made = odc_mlir.quantize(module, scheme="int16x8", reader="litert", calibration=samples, help=False, **options)
    assert [text for text in made.verdict["findings"] if text.startswith("real numbers stay")] == told


SAMPLES = [[np.random.default_rng(k).uniform(-1, 1, (1, 6, 6, 2)).astype(np.float32)] for k in range(12)]


CODES = {"x": (1 / 127, 0), "y": (0.03, -60), "z": (0.05, 4)}


WEIGHTS = (0.02, 0.01, 0.03)  # scales of the first layer's channels


class _Trained(ModelBuilder):
    """Two layers with rounding between them, written as ``form`` says."""

    def __init__(self, form: str, dtype: str = "int8") -> None:
        super().__init__()
        self.form, self.dtype = form, dtype
        random = np.random.default_rng(0)
        codes = random.integers(-127, 128, (3, 3, 3, 2)).astype(np.int8)
        x = self.tensor("x", (1, 6, 6, 2))
        w = self._weights(codes)
        b = self.tensor("b", (3,), data=random.uniform(-0.1, 0.1, 3).astype(np.float32))
        first = self.tensor("y", (1, 6, 6, 3))
        step = {"stride_h": 1, "stride_w": 1, "padding": "same", "fused_activation_function": "relu"}
        self.operator("CONV_2D", [self._rounded(x, "x"), w, b], [first], options=step)
        axes = self.tensor("axes", (2,), "int32", data=np.array([1, 2], np.int32))
        mean, last = self.tensor("mean", (1, 3)), self.tensor("z", (1, 2))
        self.operator("MEAN", [self._rounded(first, "y"), axes], [mean], options={"keep_dims": False})
        v = self.tensor("v", (2, 3), data=random.uniform(-0.5, 0.5, (2, 3)).astype(np.float32))
        self.operator("FULLY_CONNECTED", [mean, v, -1], [last])
        self.out = self._rounded(last, "z")
        self.x = x

    def _weights(self, codes: np.ndarray) -> int:
        reals = codes * np.array(WEIGHTS, np.float32)[:, None, None, None]
        if self.form == "fake":
            return self._fake(
                self.tensor("w", codes.shape, data=reals.astype(np.float32)), "w", -127 * 0.03, 127 * 0.03
            )
        made = self.tensor("w", codes.shape, "float32")
        stored = self.tensor("w/codes", codes.shape, "int8", data=codes, quant=(1.0, 0))
        quant = self.subgraph.tensors[stored].quantization
        assert quant is not None
        quant.scale, quant.zero_point = np.array(WEIGHTS, np.float32), np.zeros(3, np.int64)
        self.operator("DEQUANTIZE", [stored], [made])
        return made

    def _rounded(self, value: int, name: str) -> int:
        scale, zero = CODES[name]
        shape = self.subgraph.tensors[value].shape
        if self.form == "fake":
            return self._fake(value, name, scale * (-128 - zero), scale * (127 - zero))
        moved = zero + 128 if self.dtype == "uint8" else zero
        codes = self.tensor(f"{name}/q", shape, self.dtype, quant=(scale, moved))
        back = self.tensor(f"{name}/dq", shape)
        self.operator("QUANTIZE", [value], [codes])
        self.operator("DEQUANTIZE", [codes], [back])
        return back

    def _fake(self, value: int, name: str, low: float, high: float) -> int:
        made = self.tensor(f"{name}/dq", self.subgraph.tensors[value].shape)
        narrow = name == "w"
        self.operator(
            "FAKE_QUANT", [value], [made], options={"min": low, "max": high, "num_bits": 8, "narrow_range": narrow}
        )
        return made

    def file(self) -> bytes:
        return bytes(model_bytes(self.finish([self.x], [self.out])))


def _codes(made: Quantized) -> dict[str, TensorInfo]:
    return {info.name: info for info in _graph(made).tensors if info.quant is not None and info.info.is_integer}


def _params(scale: float, zero: int) -> QuantParams:
    return QuantParams((float(np.float32(scale)),), (zero,))


@pytest.mark.parametrize("samples", [SAMPLES, None], ids=["samples", "no-samples"])
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_pairs_give_their_parameters(dtype: str, samples: Any) -> None:
    made = quantize(_Trained("pairs", dtype).file(), calibration=samples, io="quantized")
    graph, found = _graph(made), _codes(made)
    offset = 128 if dtype == "uint8" else 0
    (x,), (z,) = graph.input_infos(), graph.output_infos()
    seen = {"x": x, "y": found["y"]} | ({"z": z} if samples else {})
    for name, info in seen.items():
        scale, zero = CODES[name]
        assert (info.dtype, info.quant) == (dtype, _params(scale, zero + offset))
    weights = next(info for info in found.values() if info.shape == (3, 3, 3, 2))
    assert weights.quant is not None
    assert weights.quant.scales == tuple(np.array(WEIGHTS, np.float32).tolist())
    lost = [text for text in made.verdict["findings"] if "other parameters" in text]
    assert made.verdict["status"] == ("passed" if samples else "unchecked")
    if samples:
        assert not lost
    else:
        assert made.verdict["float_reasons"]["mean"] == "no range is known for 'mean'", "nobody rounded it, or ran it"
        assert "'z/dq' (it stays real)" in lost[0]


def test_the_quantised_model_computes_what_the_trained_one_does() -> None:
    """Every value is a code of the one and the other; roundings at halves may differ by one."""
    made = quantize(_Trained("pairs").file(), calibration=SAMPLES)
    assert made.verdict["choices"]["scheme"] == "int8"
    assert made.verdict["metrics"]["max_abs"] <= 1.001 * CODES["z"][0]
    codes = [node.node.spec.name for node in _graph(made).nodes]
    assert codes == ["QUANTIZE", "CONV_2D", "MEAN", "FULLY_CONNECTED", "DEQUANTIZE"]
    assert [info.name for info in _graph(made).output_infos()] == ["z/dq"], "the name that the model's users know"


def test_fake_quant_gives_its_parameters() -> None:
    made = quantize(_Trained("fake").file(), calibration=SAMPLES, io="quantized")
    found = _codes(made)
    for name in ("x", "y"):
        quant = found[name].quant
        assert quant is not None
        assert quant.scale == pytest.approx(CODES[name][0], rel=1e-6)
        assert quant.zero_point == CODES[name][1]
    weights = next(info for info in found.values() if info.shape == (3, 3, 3, 2))
    assert weights.quant is not None
    assert weights.quant.per_tensor
    assert weights.quant.scale == pytest.approx(0.03, rel=1e-6)
    assert weights.quant.zero_point == 0


def test_another_scheme_takes_the_ranges() -> None:
    made = quantize(_Trained("pairs").file(), scheme="int16", io="quantized")
    (x,) = _graph(made).input_infos()
    assert (x.dtype, x.quant is not None and x.quant.zero_point) == ("int16", 0)


def test_a_fake_quantised_model_gives_back_the_quantised_one() -> None:
    """Bit for bit: what ``odc-circle fake-quantize`` wrote is a model of reals with its parameters in pairs."""
    _, samples = _plain()
    first = _direct()
    again = quantize(fake_quantize(first.model), calibration=samples, help=False)
    runs = [HostExecutor(_graph(made)) for made in (first, again)]
    for sample in samples:
        (a,), (b,) = (run.run(sample) for run in runs)
        np.testing.assert_array_equal(a, b)


def test_what_is_lost_is_said() -> None:
    """SOFTMAX fixes its result's parameters, whatever was trained."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    codes, back = builder.tensor("c", (1, 4), "int8", quant=(0.01, 0)), builder.tensor("d", (1, 4))
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    builder.operator("QUANTIZE", [y], [codes])
    builder.operator("DEQUANTIZE", [codes], [back])
    samples = [[np.arange(4, dtype=np.float32)[None] * k] for k in range(8)]
    made = quantize(model_bytes(builder.finish([x], [back])), calibration=samples)
    (said,) = [text for text in made.verdict["findings"] if "parameters than the model brings" in text]
    assert said.startswith(
        "1 of 1 tensors have other parameters than the model brings: 'd' (it is int8 with scale 0.0039"
    )


def test_what_is_refused_trained_rounding() -> None:
    file = _Trained("pairs").file()
    with pytest.raises(OptionError, match="equalisation would change values whose parameters the model already has"):
        quantize(file, calibration=SAMPLES, equalize="weights")
    made = quantize(file, calibration=SAMPLES)
    with pytest.raises(ModelError, match="quantised already"):
        quantize(made.to_circle(), calibration=SAMPLES)


def test_compiling_takes_it_too() -> None:
    package = odc_mlir.compile(quantize(_Trained("pairs").file()).model, target="npu-256")
    assert package is not None


@pytest.mark.parametrize(
    "given",
    [{"ranges": "percentile"}, {"headroom": 0.3}, {"normalize": "on"}, {"rounding": "on"}, {"equalize": "weights"}],
    ids=lambda given: next(iter(given)),
)
def test_what_training_chose_is_not_chosen_again(given: dict[str, Any]) -> None:
    with pytest.raises(OptionError, match=r"parameters .*the model already has.*; omit"):
        quantize(_Trained("fake").file(), calibration=SAMPLES, **given)
