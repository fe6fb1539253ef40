"""Certainty of a verdict: intervals, cross-validation, headroom, and samples that hardly vary outputs."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import (
    activation,
    dense_layers,
    normal,
    only,
    regressor,
    rescaled_mobilenet,
    sqnr_db,
    without_ranges,
)
from helpers.models import ModelBuilder, Samples, dense_model
from odc_mlir.errors import AccuracyError, OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer import evaluator, help
from odc_mlir.quantizer.evaluator import JUDGES, Evaluator, wilson
from odc_mlir.quantizer.measurement import Measurement, Powers
from odc_mlir.quantizer.models import Recipe, prepare
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.verdict import R2_LIMIT, describe
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.metrics import Errors


def plain(**options: Any) -> Quantized:
    """The regressor with four outputs quantised without help, by default with all of its samples."""
    file, samples = regressor(4)
    return odc_mlir.quantize(file, **{"calibration": samples, "help": False, **options})


def test_samples_that_repeat_others_even_but_for_noise_count_once() -> None:
    """Many copies of three rows say as little of other inputs as the three."""
    _, samples = regressor(4)
    said = "24 of 24 samples to check on are also among those for calibration: 12 of them are held back instead"
    assert said in plain(evaluation=samples).verdict["findings"]
    few, once = (plain(calibration=samples[:1] * n + samples[1:13]) for n in (12, 1))
    assert "11 of 24 samples repeat others, and count once" in few.verdict["findings"]
    assert not [text for text in once.verdict["findings"] if "repeat" in text or "check on" in text]
    rng = np.random.default_rng(5)
    copies = [[x + y] for (x,), (y,) in zip(samples[:3] * 42, normal(rng, 126, 1, 8, size=1e-5), strict=True)]
    noisy, three = (plain(calibration=given) for given in (copies, copies[:3]))
    told = "123 of 126 samples repeat others but for noise, and count once"
    assert [text for text in noisy.verdict["findings"] if text not in three.verdict["findings"]] == [told]
    assert (noisy.verdict["samples"]["chosen_by"], noisy.verdict["certain"]) == (3, False)
    for made, other in ((few, once), (noisy, three)):
        assert made.verdict["intervals"] == other.verdict["intervals"]
        assert made.to_circle() == other.to_circle()
    apart = plain(evaluation=[*copies[:3], *samples[20:]]).verdict
    assert "7 of 7 samples to check on are also among" in " ".join(apart["findings"])


def test_values_that_no_real_data_has_are_not_certain() -> None:
    given: dict[str, Any] = {"metric": "mpeir", "limit": 0.2}
    for factor, unreal in ((1e15, []), (1e36, ["x"])):
        rows = [[np.float32(factor) * x] for (x,) in regressor(4)[1]]
        made = plain(calibration=rows, **given)
        assert (made.passed, made.verdict["certain"]) == (True, not unreal)
        assert made.verdict["samples"]["unreal_inputs"] == unreal
        assert ("(the values of input 'x' are not real data)" in repr(made)) is bool(unreal)
    again = plain(calibration=None, records=made.records, evaluation=rows[:8], **given)
    assert again.verdict["samples"]["unreal_inputs"] == ["x"]


@pytest.mark.parametrize("given", ["samples", "weights alone", "records", "one set"])
def test_of_few_samples_the_doubt_counts_however_they_are_given(given: str) -> None:
    _, samples = regressor(4)
    options: dict[str, Any] = {"scheme": "int16_wo" if given == "weights alone" else "int16x8"}
    if given == "one set":
        options |= {"calibration": samples[:4]}
    else:
        options |= {"calibration": samples[4:], "evaluation": samples[:4]}
    if given == "records":
        options |= {"calibration": None, "records": plain(calibration=samples[4:]).records}
    low, high = plain(**options).verdict["intervals"]["mpeir"]
    made = plain(**options, limit=(low + 9 * high) / 10)
    (check,) = made.verdict["limits"]
    assert check["passed"]  # as measured
    assert check["interval"][0] <= check["value"] < check["interval"][1]
    assert (made.passed, made.verdict["too_few_samples"], made.verdict["samples"]["telling"]) == (False, True, False)
    text = "4 samples are too few: mpeir is within its limit"
    assert [problem for problem in made.verdict["problems"] if problem.startswith(text)]
    assert describe(made.verdict).startswith(f"failed: {text[:22]}")
    assert "  FAILED on too few samples (4 samples; all limits are met on them): " in str(made)
    assert "<li>FAILED on too few samples (4 samples; all limits are met on them): " in made._repr_html_()
    missed = plain(**options, limit=low / 9).verdict
    assert (missed["passed"], missed["samples"]["telling"], missed["too_few_samples"]) == (False, True, False)
    sure = plain(**options, limit=1.01 * high).verdict
    assert (sure["passed"], sure["certain"]) == (True, True)


def test_few_samples_are_the_only_reason_against_a_model_with_more_bits() -> None:
    """The search chooses this model, although no model is certain; int8 alone misses the limit."""
    file, samples = without_ranges(dense_layers)
    options: dict[str, Any] = {"calibration": samples[:4], **only("mixed")}
    made = odc_mlir.quantize(file, **options, limit=0.006)
    assert made.verdict["choices"]["precisions"]
    assert (made.passed, made.verdict["too_few_samples"], made.verdict["samples"]["telling"]) == (False, True, False)
    assert not [text for text in made.verdict["findings"] if text.startswith("no choice of precisions")]
    for limit, telling in ((0.006, False), (0.001, True)):  # the interval includes only the first limit
        verdict = odc_mlir.quantize(file, **options | {"mixed": "off"}, limit=limit).verdict
        assert not verdict["limits"][0]["passed"]
        assert (verdict["limits"][0]["interval"][0] < limit) is not telling
        assert (verdict["too_few_samples"], verdict["samples"]["telling"]) == (False, telling)


def test_advice_counts_samples_before_some_are_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "_MOST_JUDGING_MACS", 0)
    made = plain(calibration=regressor(4)[1][:8], limit=0.05)
    assert made.verdict["too_few_samples"]
    said = "; give 16 or more (8 were given, and 4 of them held back for the check)"
    assert made.verdict["problems"][0].endswith(said)


def test_labels_of_few_samples_do_not_take_the_place_of_other_limits() -> None:
    """The share of so few answers tells nothing: one of five may be forgiven."""
    file, samples = regressor(4)
    answers = np.array([odc_mlir.run(file, sample)[0].argmax() for sample in samples])
    few, more = (plain(calibration=samples[:n], labels=answers[:n]).verdict["limits"] for n in (6, 24))
    assert {"drop", "mpeir"} <= {check["metric"] for check in few}
    assert {check["metric"] for check in more} == {"drop", "recall_drop"}


@pytest.mark.parametrize(("count", "told"), [(12, []), (8, ["only 8 samples have been recorded"])])
def test_samples_held_back_count_among_those_recorded(count: int, told: list[str]) -> None:
    findings = plain(calibration=regressor(4)[1][:count]).verdict["findings"]
    assert [text.split(";")[0] for text in findings if "been recorded" in text] == told


def test_what_samples_leave_open_asks_for_more_of_them() -> None:
    file, samples = regressor(4)
    first = plain()
    (low, high), value = first.verdict["intervals"]["mpeir"], first.verdict["value"]
    # The mpeir of the model itself on the samples held back, which its ranges know: more samples help above it alone.
    pairs = [[odc_mlir.run(model, list(x))[0] for model in (file, first.to_circle())] for x in split(samples).held]
    known = float(np.mean([np.abs(a - b).max() for a, b in pairs]) / np.ptp([a for a, _ in pairs]))
    assert low < known < value
    help_first = "allow help, which searches for better parameters, or "
    more = "give more samples, because the limit is met on the calibration samples"
    for limit, said, inherent in (
        (1.01 * known, more, False),
        (0.999 * value, more, False),
        ((low + known) / 2, "allow more loss (--limit)", True),
        (low / 9, "allow more loss (--limit)", True),
    ):
        made = plain(limit=limit)
        with pytest.raises(OdcError) as raised:
            made.require_passed()
        assert [check["inherent"] for check in made.verdict["limits"]] == [inherent]
        assert raised.value.hint == help_first + said
    given: dict[str, Any] = {"calibration": samples[::2], "evaluation": samples[1::2]}
    (check,) = plain(**given, limit=low / 9).verdict["limits"]
    least = check["interval"][0]
    apart = plain(**given, limit=least + 0.5 * (check["value"] - least))
    assert apart.verdict["limits"][0]["inherent"] is None
    said = "give more samples, because the confidence interval includes the limit, or allow"
    with pytest.raises(OdcError, match=re.escape(help_first + said)):
        apart.require_passed()
    kept = plain(limit=(value + high) / 2)
    assert (kept.passed, kept.verdict["certain"]) == (True, False)
    assert "(on other samples, the largest error may miss the limit)" in repr(kept)


def test_weights_that_samples_refined_are_judged_without_them() -> None:
    """The result is refined by all samples, so that of those held back it would know the outputs."""
    file, samples = regressor(4)
    made = plain(scheme="int4_wo", rounding="on", mixed="off", help=True)
    held = samples[1::2]
    assert plain(scheme="int4_wo", mixed="off").verdict["samples"]["checked_on"] == len(held)
    wanted, found = ([odc_mlir.run(model, list(x))[0] for x in held] for model in (file, made.to_circle()))
    itself = np.mean([np.square(a - b).sum() / a.size for a, b in zip(wanted, found, strict=True)])
    assert abs(made.verdict["metrics"]["mse"] / itself - 1.0) > 0.02


def _powers(count: int, noise: float = 0.0) -> list[Powers]:
    """Of one output's logits, and of itself, for so many samples."""
    return [Powers(np.ones((1, count)), np.full((1, count), noise))] * 2


def _sqnr(noise: np.ndarray) -> tuple[float, float]:
    """The interval of the SQNR of samples of power 1 with this noise each."""
    values = np.ones((len(noise), 1))
    pairs = [[(a, a + np.sqrt(power))] for a, power in zip(values, noise, strict=True)]
    return evaluator._of_output(pairs, None, np.zeros(len(noise)), evaluator._Draws(len(noise)))["sqnr_db"]


def coverage(draw: Callable[[], tuple[float, float]], truth: float, count: int = 60) -> float:
    return float(np.mean([low <= truth <= high for low, high in (draw() for _ in range(count))]))


@pytest.mark.parametrize("count", [8, 16, 48])
@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_most_intervals_of_skewed_errors_hold_the_true_ratio(spread: float, count: int) -> None:
    random = np.random.default_rng(2)
    truth = 60.0 - 10.0 * np.log10(np.exp(spread**2 / 2))  # of the mean of exp(N(0, spread)), -60 dB
    assert coverage(lambda: _sqnr(1e-6 * np.exp(random.normal(0.0, spread, count))), truth) >= 0.93


def test_intervals_hold_what_one_sample_of_fifty_decides() -> None:
    """Noise of 2 % of the samples is spread over a wide range: what clipping does to values beyond the ranges."""
    random, others = np.random.default_rng(3), np.random.default_rng(4)
    truth = -10.0 * np.log10(np.minimum(1e-4 * np.exp(others.exponential(2.0, 100_000)), 1.0).mean())
    assert coverage(lambda: _sqnr(np.minimum(1e-4 * np.exp(random.exponential(2.0, 48)), 1.0)), truth) >= 0.95


@pytest.mark.parametrize(
    ("kind", "count", "bits"), [("SOFTMAX", 16, 8), ("SOFTMAX", 48, 16), ("LOGISTIC", 16, 16), ("LOGISTIC", 48, 8)]
)
def test_intervals_hold_though_nearly_all_scores_are_sure(kind: str, count: int, bits: int) -> None:
    """Of these the codes are the same for all samples; errors of logits show in the few others."""
    random, error, wide = np.random.default_rng(9), 0.2, activation(kind, (1, 2), signature=(-1, 2))
    graph = build_graph(read_model(activation(kind, (1, 2))))

    def drawn(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logits = random.normal(0.0, 60.0, (number, 1, 2)).astype(np.float32)
        logits = logits if kind == "LOGISTIC" else logits * np.float32([1.0, 0.0])
        others = logits + random.normal(0.0, error, logits.shape).astype(np.float32)
        right, found = (odc_mlir.run(wide, [v.reshape(number, 2)])[0] for v in (logits, others))
        codes = np.minimum(np.round(found * 2.0**bits), 2.0**bits - 1.0)
        return logits, right.reshape(logits.shape), codes.reshape(logits.shape) / 2.0**bits

    def interval() -> tuple[float, float]:
        logits, _, found = drawn(count)
        powers = _powers(count, 2 * error**2)
        measured = Measurement([Errors(2, 1, max_abs=1.0)], *powers, ["y"], decided={}, reals=[[v] for v in found])
        return evaluator.intervals_of(Reference(graph, [[value] for value in logits]), measured)["sqnr_db"]

    _, right, found = drawn(200_000)
    assert coverage(interval, 10.0 * np.log10((right**2).sum() / ((right - found) ** 2).sum())) >= 0.9


def test_widths_of_intervals_follow_from_the_count_and_evenness_of_samples() -> None:
    random = np.random.default_rng(5)
    even, uneven = (_sqnr(1e-4 * np.exp(random.normal(0.0, spread, 48))) for spread in (0.1, 2.0))
    assert even[1] - even[0] < 1.0
    assert uneven[1] - uneven[0] > 8.0
    widths = [high - low for low, high in (_sqnr(np.full(count, 1e-4)) for count in (4, 16, 64))]
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0
    assert _sqnr(np.full(2, 0.5))[0] >= 0.0, "never below the signal"
    # Many samples tell that a tail becomes lighter.
    random, truth, medians = np.random.default_rng(8), 60.0 - 10.0 * np.log10(np.exp(2.0)), {}
    for count in (100, 1600):
        found = [_sqnr(1e-6 * np.exp(random.normal(0.0, 2.0, count))) for _ in range(20)]
        assert sum(low <= truth <= high for low, high in found) >= 19
        medians[count] = np.median([high - low for low, high in found])
    assert 3.0 * medians[1600] < medians[100] < 20.0
    # The range of few samples could be another: others exceed what was seen as often as they fall short of it.
    values = np.random.default_rng(6).normal(size=(48, 1))
    seen = np.full(1000, np.ptp(values))
    found = [evaluator._Draws(48).spans(list(values), count, seen) for count in (8, 40)]
    assert found[0].std() > found[1].std() > 0
    for spans in found:
        assert np.median(spans) == pytest.approx(seen[0], rel=1e-3)
        assert spans.min() < seen[0] < spans.max()


@pytest.mark.parametrize(
    ("share", "count", "low", "high"), [(1.0, 16, 0.806, 1.0), (0.5, 100, 0.404, 0.596), (0.0, 4, 0.0, 0.49)]
)
def test_shares_are_never_certain(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))
    # Nor are losses: of answers that all stay right, others may still be lost.
    labels = np.arange(100) % 4
    right = [[np.eye(4)[label][None]] for label in labels]
    for wrong, least, most in ((0, -2.72, 2.72), (10, 3.43, 16.2)):
        found = [[np.roll(row[0], place < wrong)] for place, row in enumerate(right)]
        assert _drop(labels, right, found) == (pytest.approx(least, abs=0.01), pytest.approx(most, abs=0.1))


@pytest.mark.parametrize(("rows", "correlated"), [(1, False), (16, True), (16, False)])
@pytest.mark.parametrize(("count", "share"), [(16, 0.9), (48, 0.95), (160, 0.99)])
def test_intervals_of_shares_hold_the_truth(count: int, share: float, correlated: bool, rows: int) -> None:
    """In at least 90 %, if all rows of a sample are right or wrong together as well."""
    random, graph = np.random.default_rng(7), build_graph(read_model(activation("SOFTMAX", (1, rows, 2))))
    reference = Reference(graph, [[np.tile(np.array([3.0, -3.0], np.float32), (1, rows, 1))]] * count)
    right = reference.outputs[0][0]

    def interval() -> tuple[float, float]:
        wrong = random.random((count, 1 if correlated else rows)) >= share
        found = [[np.where(np.resize(row, rows)[:, None], right[..., ::-1], right)] for row in wrong]
        alike = float(1.0 - wrong.mean())
        errors = [Errors(right.size, 1, max_abs=1.0, top1_match=alike)]
        measured = Measurement(errors, *_powers(count), ["y"], decided={0: alike}, reals=found)
        ends = evaluator.intervals_of(reference, measured)
        assert ends["top1_match"] == ends["top1_decided"]
        return ends["top1_match"]

    assert coverage(interval, share) >= 0.9


def _drop(labels: np.ndarray, right: Samples, found: Samples) -> tuple[float, float]:
    """The interval of the points that answers lose."""
    reference = SimpleNamespace(labels=labels, outputs=right, answers=lambda outputs: [item[0] for item in outputs])
    return evaluator._drops(reference, SimpleNamespace(reals=found))


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize(("count", "lost"), [(16, 0.1), (64, 0.05), (160, 0.02)])
def test_intervals_of_a_loss_hold_the_truth_though_rows_are_lost_together(count: int, lost: float, rows: int) -> None:
    random, labels = np.random.default_rng(9), np.zeros((count, rows), np.int64)
    right, wrong = (np.tile(np.eye(2)[label], (1, rows, 1)) for label in (0, 1))

    def interval() -> tuple[float, float]:
        return _drop(
            labels, [[right]] * count, [[wrong if is_lost else right] for is_lost in random.random(count) < lost]
        )

    assert coverage(interval, 100.0 * lost, 100) >= 0.9


def test_verdicts_are_by_models_that_lack_few_samples_and_choices_by_two() -> None:
    """Of 16 samples one is loud: what judges it does not know it, most others know it as the result does."""
    module, samples = rescaled_mobilenet()
    every = [[(1.0 + 0.01 * place) * value for value in samples[place % 10]] for place in range(16)]
    loud = split(every).held[3][0]
    every = [[64.0 * value if value is loud else value for value in sample] for sample in every]
    data, model = split(every), prepare(module)
    judge = Evaluator(build_graph(export_model(module)), model, data, make_options(scheme="int8"), None)
    judge.record(model)
    judge.record(other := prepare(module), detailed=False)
    for made, has_histograms in ((model, True), (other, False)):  # other models need only extremes
        assert {bool(found.histogram.total) for found in made.complete.values()} == {has_histograms}
        assert made.complete.keys() == model.complete.keys()
    built = judge.built(model, Recipe())
    itself, of_all, found, halves = (
        measure(built).results.noise[0]
        for measure in (judge.measured, judge.measured_itself, judge.measured_unseen, judge.measured_by_halves)
    )
    place = next(i for i, sample in enumerate(judge.judging.samples) if sample[0] is data.held[3][0])
    assert found[place] > 10 * of_all[place]
    knowing = np.arange(len(found)) % JUDGES != place % JUDGES
    assert (len(found), knowing.sum()) == (16, 12)
    assert np.all(found[knowing] > of_all[knowing] / 2)
    # choices are judged by two models: all of the half with the loud one is judged by what does not know it
    others, quiet = np.arange(len(halves)) != 3, np.arange(len(halves)) % 2 == 1
    assert halves[3] > 10 * itself[3]
    assert np.all(halves[quiet & others] < itself[quiet & others])
    assert np.all(halves[~quiet] > itself[~quiet] / 2)


WIDTH = 32
ALONE = only("headroom")


@cache
def _layers() -> bytes:
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH / 2) for _ in range(3)]
    return dense_model(*weights, activations=("relu", "relu", "none"))


def _samples(count: int, spread: float, seed: int = 1) -> Samples:
    """Noise whose size differs from sample to sample by this much."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(spread * rng.normal(size=count))
    return [[(size * rng.normal(size=(1, WIDTH))).astype(np.float32)] for size in sizes]


def _shrunk(turns: int, count: int) -> Samples:
    """These samples again and again, a little smaller each time."""
    return [[0.98**turn * sample[0]] for turn in range(turns) for sample in _samples(count, 0.5)]


def _made(samples: Samples, **options: Any) -> Quantized:
    return odc_mlir.quantize(_layers(), calibration=samples, **{**ALONE, **options})


def _tried(made: Quantized) -> list[float]:
    return [step["value"] for step in made.verdict["steps"] if step["step"] == "headroom"]


@pytest.mark.parametrize(("scheme", "tight", "count", "spread"), [("int8", 0.0, 24, 0.5), ("int16x8", 1.0, 12, 0.8)])
def test_ranges_are_wider_where_samples_leave_others_out(scheme: str, tight: float, count: int, spread: float) -> None:
    samples, unseen = _samples(count, spread), _samples(200, spread, 99)
    found, without = (_made(samples, scheme=scheme, headroom=room) for room in (None, tight))
    assert _tried(found)
    assert found.verdict["choices"]["headroom"] > tight
    assert sqnr_db(_layers(), found, unseen) > sqnr_db(_layers(), without, unseen) + 3.0


def test_samples_to_check_on_do_not_take_the_place_of_room() -> None:
    samples = _samples(40, 0.5)
    found = _made(samples[:24], evaluation=samples[24:], output_room="auto")
    assert found.verdict["choices"]["headroom"] > 0.0
    assert any(step["step"] == "output room" for step in found.verdict["steps"])


UNSHOWN = {"_LEAST_LOST_DB": 100.0}  # nothing shows that room helps
PRESUMED = {"HEADROOMS": (0.001, 0.3), "_PRESUMED": {0.001: (99, math.inf), 0.3: (99, math.inf)}}


@pytest.mark.parametrize(
    ("samples", "options", "patches", "tried", "chosen"),
    [
        # Asked for, or without help.
        (_samples(24, 0.5), {"headroom": 0.0}, {}, [], 0.0),
        (_samples(24, 0.5), {"help": False}, {}, [], 0.0),
        # Few samples are presumed to show too little, the fewer the more; 16 bits have more room.
        (_samples(16, 0.2), {}, UNSHOWN, [0.1, 0.3], 0.3),
        (_samples(48, 0.2), {}, UNSHOWN, [0.1], 0.1),
        (_samples(99, 0.2), {}, UNSHOWN, [0.1], 0.1),
        (_samples(100, 0.2), {}, UNSHOWN, [], 0.0),
        (_samples(16, 0.2), {"scheme": "int16x8"}, UNSHOWN, [3.0], 3.0),
        (_samples(48, 0.2), {"scheme": "int16x8"}, UNSHOWN, [3.0], 3.0),
        (_samples(100, 0.2), {"scheme": "int16x8"}, UNSHOWN, [], 1.0),
        # Ranges hold other samples.
        (_shrunk(15, 8), {}, {}, [], 0.0),
        # Room does harm, of few samples and whatever those held back leave in doubt.
        (_samples(24, 0.2), {}, {"HEADROOMS": (8.0,), "_PRESUMED": {8.0: (99, 1.5)}}, [8.0], 0.0),
        (_samples(24, 0.5), {}, {"HEADROOMS": (-0.3, 0.3)}, [-0.3], 0.0),
        (_shrunk(12, 4), dict.fromkeys(("rounding", "correction"), "auto"), {}, [0.1], 0.0),
        # A first step that changes next to nothing: large models are asked for no more.
        (_samples(24, 0.5), {}, PRESUMED, [0.001, 0.3], 0.3),
        (_samples(24, 0.5), {}, PRESUMED | {"_MOST_JUDGING_MACS": 0}, [0.001], 0.001),
    ],
)
def test_room_is_tried_where_samples_show_or_leave_open_that_it_helps(
    samples: Samples,
    options: dict[str, Any],
    patches: dict[str, Any],
    tried: list[float],
    chosen: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in patches.items():
        monkeypatch.setattr(evaluator if name == "_MOST_JUDGING_MACS" else help, name, value)
    made = _made(samples, **options)
    assert _tried(made) == tried
    assert made.verdict["choices"]["headroom"] == chosen


SCENES = 32


@cache
def detector() -> bytes:
    """Four reals, and a score that the first input decides."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 8))
    box = builder.dense("box", x, np.random.default_rng(2).normal(size=(4, 8)))
    logit = builder.dense("logit", x, [[12, *[0.0] * 7]], [-8])
    return builder.file([x], [box, builder.made("score", (1, 1), "LOGISTIC", logit)])


def scenes() -> Samples:
    """Samples that have nothing to detect."""
    return [[x * np.float32([0.05, *[1.0] * 7])] for (x,) in normal(np.random.default_rng(4), SCENES, 1, 8)]


@cache
def classifier() -> tuple[bytes, Samples]:
    rng, builder = np.random.default_rng(6), ModelBuilder()
    x = builder.tensor("x", (1, 8))
    hidden = builder.dense("hidden", x, rng.normal(size=(16, 8)), rng.normal(size=16))
    logits = builder.dense("logits", hidden, rng.normal(size=(6, 16)), rng.normal(size=6))
    return builder.file([x], [builder.made("y", (1, 6), "SOFTMAX", logits, beta=1.0)]), normal(rng, 64, 1, 8)


@cache
def scaled(factor: float, **options: Any) -> Quantized:
    """The classifier with samples in a unit that makes them small."""
    file, samples = classifier()
    return odc_mlir.quantize(file, calibration=[[factor * x] for (x,) in samples], help=False, **options)


@pytest.mark.parametrize("limit", [{}, {"metric": "mae", "limit": 0.5}])
def test_a_score_that_nothing_raises_is_lost_whatever_the_limit(limit: dict[str, Any]) -> None:
    made = odc_mlir.quantize(detector(), calibration=scenes(), help=False, **limit)
    problem, never = made.verdict["problems"]
    assert never.startswith("scores of output 'score' are 0.5 at most on any input")
    assert problem.startswith("output 'score' varies in the float model and is lost in the quantised one, by 0.00")
    assert problem.endswith("only: give samples for which it varies as it does in use")
    assert [check["passed"] for check in made.verdict["limits"]] == [True]
    assert not made.verdict["samples"]["telling"]
    with pytest.raises(AccuracyError, match=r"^the quantised model failed: output 'score' varies"):
        made.require_passed()


@pytest.mark.parametrize(("factor", "scheme", "follows"), [(0.003, "int8", False), (0.0035, "int16x8", True)])
def test_outputs_that_constants_nearly_match_must_be_followed(factor: float, scheme: str, follows: bool) -> None:
    made = scaled(factor, scheme=scheme)
    verdict, text = made.verdict, "constant outputs would meet, or nearly meet, all limits except R²"
    limits = {check["metric"]: check["passed"] for check in verdict["limits"]}
    assert limits == {"mpeir": True, "top1_match": True, "r2": follows}
    assert (verdict["passed"], verdict["certain"]) == (follows, False)
    assert (verdict["samples"]["outputs_vary"], verdict["samples"]["telling"]) == (False, False)
    (said,) = [found for found in verdict["findings" if follows else "problems"] if found.startswith(text)]
    assert "give samples for which outputs vary" in said
    assert re.search(r"on these samples, in which inputs reach [\d.]+[;,]", said)
    first = describe(verdict)
    assert first.startswith(
        "passed on 64 samples (on other samples, same answers and R² may miss the limit; "
        if follows
        else "failed: " + text
    )
    assert text in first
    assert not follows or f"{text}: are inputs in the unit of training?" in first
    assert f"; {text}" in made.report_html() or not follows
    if not follows:
        with pytest.raises(AccuracyError) as raised:
            made.require_passed()
        assert raised.value.hint is None  # the problem has it


def hint_of(**changes: Any) -> str | None:
    """The advice where the verdict of a classifier that misses R² has these ``changes``."""
    made = scaled(0.003, scheme="int8")
    with pytest.raises(AccuracyError) as raised:
        replace(made, verdict=made.verdict | changes).require_passed()
    return raised.value.hint


@pytest.mark.parametrize("problems", [[], ["output 'y' is lost: give layers more bits"]])
@pytest.mark.parametrize("vary", [True, False])  # columns in several units may
def test_a_limit_that_nobody_asked_for_is_not_to_be_lowered(vary: bool, problems: list[str]) -> None:
    samples = scaled(0.003, scheme="int8").verdict["samples"] | {"outputs_vary": vary}
    assert hint_of(samples=samples, problems=problems) == "give samples for which outputs vary as they do in use"


def test_limits_of_outputs_that_vary_and_given_ones_count_alone() -> None:
    verdict = scaled(1.0).verdict
    assert [check["metric"] for check in verdict["limits"]] == ["mpeir", "top1_match"]
    assert verdict["samples"]["outputs_vary"]
    assert verdict["metrics"]["r2"] > R2_LIMIT.bound
    given = scaled(0.01, metric="sqnr", limit=30.0).verdict
    assert [check["metric"] for check in given["limits"]] == ["sqnr_db"]


def test_what_is_explained_is_the_part_of_the_variance() -> None:
    file, samples = classifier()
    made = odc_mlir.quantize(file, calibration=samples[SCENES:], evaluation=samples[:SCENES], help=False, metric="r2")
    wanted, found = (
        np.concatenate([odc_mlir.run(m, list(x))[0] for x in samples[:SCENES]]) for m in (file, made.to_circle())
    )
    noise = np.square(wanted - found).sum() / np.square(wanted - wanted.mean(axis=0)).sum()
    (check,) = made.verdict["limits"]
    assert (check["value"], check["limit"]) == (pytest.approx(1.0 - noise, abs=1e-6), R2_LIMIT.bound)
    low, high = check["interval"]
    assert low < check["value"] <= high < 1.0


@pytest.mark.parametrize("spread", [1.0, 1e-2])
def test_columns_of_samples_nearly_alike_are_no_units_of_their_own(spread: float) -> None:
    rng = np.random.default_rng(6)
    file = dense_model(rng.normal(size=(4, 8)) * [[1], [10], [100], [1000]])
    samples = [[1 + value] for (value,) in normal(rng, SCENES, 1, 8, size=spread)]
    reference = Reference(build_graph(read_model(file)), samples)
    assert reference.splits(0)
    assert reference.varies_in_units(0) is (spread == 1.0)
