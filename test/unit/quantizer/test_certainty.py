"""How sure a verdict is: of few, repeated and known samples, and of weights that samples refined."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.policy.verdict import describe
from odc_mlir.quantizer.samples import split

COUNT = 24


@cache
def regressor() -> tuple[bytes, list[list[np.ndarray]]]:
    """Two layers with four outputs, and samples."""
    rng = np.random.default_rng(3)
    builder = ModelBuilder()
    x, hidden, y = builder.tensor("x", (1, 8)), builder.tensor("hidden", (1, 16)), builder.tensor("y", (1, 4))
    for name, source, result, shape in (("a", x, hidden, (16, 8)), ("b", hidden, y, (4, 16))):
        weights = rng.normal(size=shape).astype(np.float32)
        builder.operator("FULLY_CONNECTED", [source, builder.tensor(f"{name}/w", shape, data=weights), -1], [result])
    model = builder.finish([x], [y])
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model)), [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]


def test_samples_that_are_seen_twice_are_told() -> None:
    file, samples = regressor()
    made = odc_mlir.quantize(file, calibration=samples, evaluation=samples, help=False)
    said = "24 of 24 samples to check on are also among those for calibration: 12 of them are held back instead"
    assert said in made.verdict["findings"]
    few, once = (odc_mlir.quantize(file, calibration=samples[:1] * n + samples[1:13], help=False) for n in (12, 1))
    assert "11 of 24 samples repeat others, and count once" in few.verdict["findings"]
    assert few.verdict["intervals"] == once.verdict["intervals"]
    assert few.to_circle() == once.to_circle()
    assert not [text for text in once.verdict["findings"] if "repeat" in text or "check on" in text]


def test_samples_that_differ_by_noise_alone_are_one_observation() -> None:
    """Many copies of three rows say as little of other inputs as the three."""
    file, samples = regressor()
    rng = np.random.default_rng(5)
    copies = [[rows[0] + np.float32(1e-5) * rng.normal(size=(1, 8)).astype(np.float32)] for rows in samples[:3] * 42]
    made, few = (odc_mlir.quantize(file, calibration=given, help=False) for given in (copies, copies[:3]))
    told = "123 of 126 samples repeat others but for noise, and count once"
    assert [text for text in made.verdict["findings"] if text not in few.verdict["findings"]] == [told]
    assert made.verdict["samples"]["chosen_by"] == 3
    assert made.verdict["intervals"] == few.verdict["intervals"]
    assert not made.verdict["certain"]
    assert made.to_circle() == few.to_circle()
    apart = odc_mlir.quantize(file, calibration=samples, evaluation=[*copies[:3], *samples[20:]], help=False).verdict
    assert "7 of 7 samples to check on are also among" in " ".join(apart["findings"])


def test_values_that_no_real_data_has_are_not_certain() -> None:
    """A network of real layers computes with them as with any."""
    file, samples = regressor()
    given: dict[str, Any] = {"help": False, "metric": "mpeir", "limit": 0.2}
    for factor, unreal in ((1e15, []), (1e36, ["x"])):
        rows = [[np.float32(factor) * row[0]] for row in samples]
        made = odc_mlir.quantize(file, calibration=rows, **given)
        assert made.passed
        assert made.verdict["certain"] is not bool(unreal)
        assert made.verdict["samples"]["unreal_inputs"] == unreal
        assert ("(the values of input 'x' are no real data)" in repr(made)) is bool(unreal)
    again = odc_mlir.quantize(file, records=made.records, evaluation=rows[:8], **given)
    assert again.verdict["samples"]["unreal_inputs"] == ["x"]


@pytest.mark.parametrize(
    "options",
    [{}, {"scheme": "int16_wo"}, {"records": True}],
    ids=["samples", "weights alone", "records"],
)
def test_of_few_samples_the_doubt_counts_however_they_are_given(options: dict[str, Any]) -> None:
    file, samples = regressor()
    given: dict[str, Any] = {"calibration": samples[4:], "help": False, "scheme": "int16x8", **options}
    if options.pop("records", False):
        given |= {"calibration": None, "records": odc_mlir.quantize(file, calibration=samples[4:], help=False).records}
    given |= {"evaluation": samples[:4]}
    low, high = odc_mlir.quantize(file, **given).verdict["intervals"]["mpeir"]
    made = odc_mlir.quantize(file, **given, limit=(low + 9 * high) / 10)
    assert not made.passed
    assert [
        text for text in made.verdict["problems"] if text.startswith("4 samples are too few: mpeir keeps its limit")
    ]
    assert made.verdict["too_few_samples"]
    assert describe(made.verdict).startswith("failed: 4 samples are too few: ")
    assert all(check["passed"] for check in made.verdict["limits"])
    assert not made.verdict["samples"]["telling"]
    missed = odc_mlir.quantize(file, **given, limit=low / 9).verdict
    assert (missed["passed"], missed["samples"]["telling"], missed["too_few_samples"]) == (False, True, False)
    sure = odc_mlir.quantize(file, **given, limit=1.01 * high).verdict
    assert (sure["passed"], sure["certain"]) == (True, True)


def test_labels_of_few_samples_do_not_take_the_place_of_other_limits() -> None:
    """The share of so few answers tells nothing: one of five may be forgiven."""
    file, samples = regressor()
    answers = np.array([odc_mlir.run(file, sample)[0].argmax() for sample in samples])
    few, more = (odc_mlir.quantize(file, calibration=samples[:n], labels=answers[:n], help=False) for n in (6, 24))
    assert {"drop", "mpeir"} <= {check["metric"] for check in few.verdict["limits"]}
    assert {check["metric"] for check in more.verdict["limits"]} == {"drop", "recall_drop"}


def _mpeir_as_it_is(file: bytes, samples: list[list[np.ndarray]]) -> float:
    """The mpeir of the model itself on the samples held back, which its ranges know."""
    made = odc_mlir.quantize(file, calibration=samples, help=False).to_circle()
    pairs = [[odc_mlir.run(model, list(sample))[0] for model in (file, made)] for sample in split(samples).held]
    return float(np.mean([np.abs(a - b).max() for a, b in pairs]) / np.ptp([a for a, _ in pairs]))


def test_what_samples_leave_open_asks_for_more_of_them() -> None:
    file, samples = regressor()
    low, high = odc_mlir.quantize(file, calibration=samples, help=False).verdict["intervals"]["mpeir"]
    value = odc_mlir.quantize(file, calibration=samples, help=False).verdict["value"]
    # Of what it was made by the model has this much: more samples help above it alone.
    known = _mpeir_as_it_is(file, samples)
    assert low < known < value
    help_first = "let help find better choices, or "
    for limit, said, inherent in (
        (1.01 * known, "give more samples, as on those that ranges were chosen by the limit holds", False),
        (0.999 * value, "give more samples, as on those that ranges were chosen by the limit holds", False),
        ((low + known) / 2, "allow more loss (--limit)", True),
        (low / 9, "allow more loss (--limit)", True),
    ):
        made = odc_mlir.quantize(file, calibration=samples, help=False, limit=limit)
        with pytest.raises(OdcError) as raised:
            made.require_passed()
        (check,) = made.verdict["limits"]
        assert check["inherent"] is inherent
        hint = raised.value.hint or ""
        assert hint == help_first + said
        assert not inherent or not any("would decide" in text for text in made.verdict["findings"])
    given: dict[str, Any] = {"calibration": samples[::2], "evaluation": samples[1::2], "help": False}
    (check,) = odc_mlir.quantize(file, **given, limit=low / 9).verdict["limits"]
    for part, said in (
        (0.05, "give more samples, about "),
        (0.999, "allow more loss (--limit), as more samples would"),
    ):
        least = check["interval"][0]
        apart = odc_mlir.quantize(file, **given, limit=least + part * (check["value"] - least))
        assert apart.verdict["limits"][0]["inherent"] is None
        with pytest.raises(OdcError, match=re.escape(help_first + said)):
            apart.require_passed()
    kept = odc_mlir.quantize(file, calibration=samples, help=False, limit=(value + high) / 2)
    assert (kept.passed, kept.verdict["certain"]) == (True, False)
    assert "(on others mpeir may miss)" in repr(kept)


def test_a_scheme_that_keeps_the_limit_is_named_rather_than_more_loss() -> None:
    """Also where the interval leaves open whether the model itself keeps it, which more samples would not decide."""
    file, samples = regressor()
    given: dict[str, Any] = {"calibration": samples[::2], "evaluation": samples[1::2], "help": False}
    (check,) = odc_mlir.quantize(file, **given, limit=1e-6).verdict["limits"]
    least = check["interval"][0]
    made = odc_mlir.quantize(file, **given, limit=least + 0.999 * (check["value"] - least))
    precisions = dict.fromkeys(made.verdict["scheme"], "int16x8")
    point = {"layers": len(precisions), "precisions": precisions, "bytes": 5104, "time_ns": None, "share": 1.0}
    for holds, said in ((True, "--scheme int16x8 keeps the limits in about 5,104 bytes"), (False, "allow more loss")):
        made.verdict["front"] = [{**point, "holds": holds}]
        with pytest.raises(OdcError, match=said):
            made.require_passed()


def test_so_many_samples_as_are_advised_decide_and_others_are_not_advised() -> None:
    """However near to what was measured the limit is, what is advised is checked by the interval of so many."""
    file, samples = regressor()
    few: dict[str, Any] = {"calibration": samples[:12], "help": False}
    plain = odc_mlir.quantize(file, **few).verdict
    (_, high), value = plain["intervals"]["mpeir"], plain["value"]
    advised = {}
    for limit in (value + part * (high - value) for part in (0.001, 0.5, 0.65)):
        verdict = odc_mlir.quantize(file, **few, limit=limit).verdict
        advised[limit] = verdict["limits"][0]["deciding"]
        said = [text for text in verdict["findings"] if text.endswith(" would decide")]
        assert len(said) == (advised[limit] is not None)
        assert all(f"about {advised[limit]} would" in text for text in said)
    nearest, _, farthest = advised
    assert advised[nearest] is None
    assert advised[farthest] == 24
    assert odc_mlir.quantize(file, calibration=samples[:24], help=False, limit=farthest).verdict["certain"]


def test_weights_that_samples_refined_are_judged_without_them() -> None:
    """The result is refined by all samples, so that of those held back it would know the outputs."""
    file, samples = regressor()
    made = odc_mlir.quantize(file, calibration=samples, scheme="int4_wo", rounding="on", mixed="off")
    held = samples[1::2]
    given = odc_mlir.quantize(file, calibration=samples, scheme="int4_wo", mixed="off", help=False)
    assert given.verdict["samples"]["checked_on"] == len(held)
    wanted, found = ([odc_mlir.run(model, list(x))[0] for x in held] for model in (file, made.to_circle()))
    itself = np.mean([np.square(a - b).sum() / a.size for a, b in zip(wanted, found, strict=True)])
    assert abs(made.verdict["metrics"]["mse"] / itself - 1.0) > 0.05


@pytest.mark.parametrize(("count", "told"), [(12, []), (8, ["only 8 samples have been recorded"])])
def test_samples_held_back_count_among_those_recorded(count: int, told: list[str]) -> None:
    file, samples = regressor()
    findings = odc_mlir.quantize(file, calibration=samples[:count], help=False).verdict["findings"]
    assert [text.split(";")[0] for text in findings if "been recorded" in text] == told
