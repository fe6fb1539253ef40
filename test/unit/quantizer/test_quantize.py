"""What the driver does with its options, on small models made on the spot."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import attention, rescaled_mobilenet, squeeze_excite
from helpers.models import ModelBuilder
from odc_mlir.errors import AccuracyError, InputError, ModelError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.evaluator import HALVES, JUDGES
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.policy.options import EQUALIZE
from odc_mlir.quantizer.quantize import Quantized, embed_ranges, quantize
from odc_mlir.runtime.execution.graph import build_graph


def _plain(make: Any) -> tuple[bytes, list[list[np.ndarray]]]:
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
    file, samples = _plain(squeeze_excite)
    made = quantize(file, calibration=samples, overrides={"stem": "int16x8", "conv1": "float"})
    scheme = made.verdict["scheme"]
    assert (scheme["stem"], scheme["conv0"], scheme["conv1"]) == ("int16x8", "int8", "float")
    assert made.verdict["float_reasons"] == {"conv1": "float was asked for"}
    with pytest.raises(OptionError, match="no operator has a result 'conv9'"):
        quantize(file, calibration=samples, overrides="conv9:float")


def test_what_the_search_leaves_in_float_is_told_from_what_was_asked_for() -> None:
    file, samples = _plain(squeeze_excite)
    options = {"metric": "sqnr", "limit": 70.0, "min_coverage": 0.0, "overrides": {"pool": "float"}}
    reasons = quantize(file, calibration=samples[:24], **options).verdict["float_reasons"]
    assert reasons.pop("pool") == "float was asked for"
    assert set(reasons.values()) == {"the search for precisions chose float"}


def test_inputs_and_outputs_are_float_or_codes() -> None:
    file, samples = _plain(squeeze_excite)
    types = {}
    for io in ("float", "quantized"):
        graph = build_graph(read_model(quantize(file, calibration=samples, io=io, help=False).to_circle()))
        types[io] = [info.dtype for info in (*graph.input_infos(), *graph.output_infos())]
    assert types == {"float": ["float32", "float32"], "quantized": ["int8", "int8"]}


def test_ranges_of_the_model_itself_stand_in_for_samples() -> None:
    file, samples = _plain(squeeze_excite)
    module, records = embed_ranges(file, samples, ranges="minmax")
    assert records.runs == len(samples)
    direct = quantize(file, calibration=samples, help=False)
    assert quantize(module, help=False).to_circle() == direct.to_circle()


def test_records_are_written_and_read(tmp_path: Path) -> None:
    file, samples = _plain(squeeze_excite)
    direct = quantize(file, calibration=samples, help=False)
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
    file, samples = _plain(squeeze_excite)
    direct = quantize(file, calibration=samples, help=False)
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
    file, samples = _plain(squeeze_excite)
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
    file, _ = _plain(squeeze_excite)
    made = quantize(file, scheme="int8_wo", metric="sqnr", limit=200.0)
    assert (made.verdict["status"], made.passed, made.failed) == ("failed", False, True)
    with pytest.raises(AccuracyError, match="the quantised model failed: SQNR "):
        made.require_passed()


def test_files_by_name(tmp_path: Path) -> None:
    file, samples = _plain(squeeze_excite)
    made = quantize(file, calibration=samples, help=False)
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


def test_what_holds_other_samples_less_well_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equalised channels gain on samples that ranges were chosen by: that alone does not keep them."""
    file, samples = _plain(rescaled_mobilenet)
    monkeypatch.setattr(Measurement, "confirms", lambda *_: False)
    made = quantize(file, calibration=samples, ranges="minmax", rounding="off", correction="off", mixed="off")
    assert made.verdict["choices"]["equalize"] == "none"


def test_one_sample_to_check_on_is_not_enough() -> None:
    file, samples = _plain(rescaled_mobilenet)
    made = quantize(file, calibration=samples[1:], evaluation=samples[:1], limit=0.3)
    assert made.verdict["problems"] == ["a single sample checked the model, which says nothing of others"]
    assert not made.passed


def test_time_that_is_over_ends_the_search() -> None:
    file, samples = _plain(squeeze_excite)
    made = quantize(file, calibration=samples, max_seconds=0.0)
    assert len(made.verdict["steps"]) == 1
    assert "not all improvements were tried within 0 s (--max-seconds)" in made.verdict["findings"]


def test_fake_quantised_and_integer_models_are_close() -> None:
    file, samples = _plain(attention)
    verdict = quantize(file, calibration=samples).verdict
    integer, fake = verdict["metrics"]["sqnr_db"], verdict["fake_quantized"]["sqnr_db"]
    assert abs(integer - fake) < 3


def test_what_is_refused() -> None:
    file, samples = _plain(squeeze_excite)
    made = quantize(file, calibration=samples, help=False)
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
    file, samples = _plain(squeeze_excite)
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
