"""Certainty of a verdict: intervals, cross-validation and headroom."""

from __future__ import annotations

import math
import re
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import only, rescaled_mobilenet, sqnr_db, two_layers
from helpers.models import ModelBuilder, dense_model, model_bytes
from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer import evaluator, help, intervals, reference, refinement
from odc_mlir.quantizer.evaluator import JUDGES, Evaluator, Folds
from odc_mlir.quantizer.execution import Stepper
from odc_mlir.quantizer.help import HelpSearch
from odc_mlir.quantizer.intervals import wilson
from odc_mlir.quantizer.measurement import Measurement, Powers
from odc_mlir.quantizer.models import FloatModel, Recipe, prepare
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.verdict import describe
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.refinement import Samples
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.recording import record
from odc_mlir.runtime.reporting.metrics import Errors

COUNT = 24


@cache
def regressor() -> tuple[bytes, list[list[np.ndarray]]]:
    """Two layers with four outputs, and samples."""
    rng = np.random.default_rng(3)
    file = dense_model(rng.normal(size=(16, 8)), rng.normal(size=(4, 16)), names=("hidden", "y"))
    return file, [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]


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
    "options", [{}, {"scheme": "int16_wo"}, {"records": True}], ids=["samples", "weights alone", "records"]
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


def test_what_samples_leave_open_asks_for_more_of_them() -> None:
    file, samples = regressor()
    first = odc_mlir.quantize(file, calibration=samples, help=False)
    (low, high), value = first.verdict["intervals"]["mpeir"], first.verdict["value"]
    # The mpeir of the model itself on the samples held back, which its ranges know: more samples help above it alone.
    pairs = [[odc_mlir.run(model, list(x))[0] for model in (file, first.to_circle())] for x in split(samples).held]
    known = float(np.mean([np.abs(a - b).max() for a, b in pairs]) / np.ptp([a for a, _ in pairs]))
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
    given: dict[str, Any] = {"calibration": samples[::2], "evaluation": samples[1::2], "help": False}
    (check,) = odc_mlir.quantize(file, **given, limit=low / 9).verdict["limits"]
    least, said = check["interval"][0], "give more samples, as these leave open whether the limit holds, or allow more"
    apart = odc_mlir.quantize(file, **given, limit=least + 0.5 * (check["value"] - least))
    assert apart.verdict["limits"][0]["inherent"] is None
    with pytest.raises(OdcError, match=re.escape(help_first + said)):
        apart.require_passed()
    kept = odc_mlir.quantize(file, calibration=samples, help=False, limit=(value + high) / 2)
    assert (kept.passed, kept.verdict["certain"]) == (True, False)
    assert "(on others mpeir may miss)" in repr(kept)


def test_a_scheme_that_keeps_the_limit_is_named_rather_than_more_loss() -> None:
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


def _powers(count: int, noise: float = 0.0) -> list[Powers]:
    """Of one output's logits, and of itself, for so many samples."""
    return [Powers(np.ones((1, count)), np.full((1, count), noise))] * 2


def _sqnr(noise: np.ndarray) -> tuple[float, float]:
    """The interval of the SQNR of samples of power 1 with this noise each."""
    values = np.ones((len(noise), 1))
    pairs = [(a, a + np.sqrt(power)) for a, power in zip(values, noise, strict=True)]
    return intervals._of_output(pairs, None, np.zeros(len(noise)), intervals._Draws(len(noise)))["sqnr_db"]


@pytest.mark.parametrize("count", [8, 16, 48])
@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_most_intervals_of_skewed_errors_hold_the_true_ratio(spread: float, count: int) -> None:
    random, held = np.random.default_rng(2), 0
    truth = 60.0 - 10.0 * np.log10(np.exp(spread**2 / 2))  # of the mean of exp(N(0, spread)), -60 dB
    for _ in range(60):
        low, high = _sqnr(1e-6 * np.exp(random.normal(0.0, spread, count)))
        held += low <= truth <= high
    assert held >= 0.93 * 60


def test_intervals_hold_what_one_sample_of_fifty_decides() -> None:
    """Noise of 2 % of the samples is spread over a wide range: what clipping does to values beyond the ranges."""
    random, held = np.random.default_rng(3), 0
    tail = 1e-4 * np.exp(np.random.default_rng(4).exponential(2.0, 100_000))
    truth = -10.0 * np.log10(np.minimum(tail, 1.0).mean())
    for _ in range(60):
        low, high = _sqnr(np.minimum(1e-4 * np.exp(random.exponential(2.0, 48)), 1.0))
        held += low <= truth <= high
    assert held >= 0.95 * 60


@pytest.mark.parametrize(
    ("kind", "count", "bits"), [("SOFTMAX", 16, 8), ("SOFTMAX", 48, 16), ("LOGISTIC", 16, 16), ("LOGISTIC", 48, 8)]
)
def test_intervals_hold_though_nearly_all_scores_are_sure(kind: str, count: int, bits: int) -> None:
    """Of these the codes are the same for all samples; errors of logits show in the few others."""
    builder, random, held, error = ModelBuilder(), np.random.default_rng(9), 0, 0.2
    x, y = (builder.tensor(name, (1, 2)) for name in "xy")
    options = {"options": {"beta": 1.0}} if kind == "SOFTMAX" else {}
    builder.operator(kind, [x], [y], **options)
    graph = build_graph(read_model(model_bytes(builder.finish([x], [y]))))

    def drawn(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logits = random.normal(0.0, 60.0, (number, 1, 2)).astype(np.float32)
        logits = logits if kind == "LOGISTIC" else logits * np.float32([1.0, 0.0])
        others = logits + random.normal(0.0, error, logits.shape).astype(np.float32)
        right, found = (odc_mlir.run(write_model(wide), [v.reshape(number, 2)])[0] for v in (logits, others))
        codes = np.minimum(np.round(found * 2.0**bits), 2.0**bits - 1.0)
        return logits, right.reshape(logits.shape), codes.reshape(logits.shape) / 2.0**bits

    wide_builder = ModelBuilder()
    a, b = (wide_builder.tensor(name, (1, 2), signature=(-1, 2)) for name in "xy")
    wide_builder.operator(kind, [a], [b], **options)
    wide = wide_builder.finish([a], [b])
    _, right, found = drawn(200_000)
    truth = 10.0 * np.log10((right**2).sum() / ((right - found) ** 2).sum())
    for _ in range(60):
        logits, _, found = drawn(count)
        reference = Reference(graph, [[value] for value in logits])
        measured = Measurement(
            [Errors(2, 1, max_abs=1.0)], *_powers(count, 2 * error**2), ["y"], decided={}, reals=[[v] for v in found]
        )
        low, high = intervals.intervals_of(reference, measured)["sqnr_db"]
        held += low <= truth <= high
    assert held >= 0.9 * 60


def test_even_errors_have_narrow_intervals_and_uneven_ones_wide() -> None:
    random = np.random.default_rng(5)
    even, uneven = (_sqnr(1e-4 * np.exp(random.normal(0.0, spread, 48))) for spread in (0.1, 2.0))
    assert even[1] - even[0] < 1.0
    assert uneven[1] - uneven[0] > 8.0


def test_an_interval_becomes_narrower_with_more_samples_and_never_reaches_below_the_signal() -> None:
    widths = [high - low for low, high in (_sqnr(np.full(count, 1e-4)) for count in (4, 16, 64))]
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0
    assert _sqnr(np.full(2, 0.5))[0] >= 0.0


def test_many_samples_tell_that_a_tail_becomes_lighter() -> None:
    """Widths of skewed errors shrink with more samples, and still hold the truth."""
    random, truth = np.random.default_rng(8), 60.0 - 10.0 * np.log10(np.exp(2.0))
    widths = {}
    for count in (100, 1600):
        found = [_sqnr(1e-6 * np.exp(random.normal(0.0, 2.0, count))) for _ in range(20)]
        assert sum(low <= truth <= high for low, high in found) >= 19
        widths[count] = np.median([high - low for low, high in found])
    assert 3.0 * widths[1600] < widths[100] < 20.0


def test_the_range_of_few_samples_could_be_another() -> None:
    random = np.random.default_rng(6)
    values = random.normal(size=(48, 1))
    seen = np.full(1000, np.ptp(values))
    found = [intervals._Draws(48).spans(list(values), count, seen) for count in (8, 40)]
    assert found[0].std() > found[1].std() > 0
    for spans in found:  # others exceed what was seen as often as they fall short of it
        assert np.median(spans) == pytest.approx(seen[0], rel=1e-3)
        assert spans.min() < seen[0] < spans.max()


@pytest.mark.parametrize(
    ("share", "count", "low", "high"), [(1.0, 16, 0.806, 1.0), (0.5, 100, 0.404, 0.596), (0.0, 4, 0.0, 0.49)]
)
def test_shares_are_never_certain(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


@pytest.mark.parametrize(("rows", "correlated"), [(1, False), (16, True), (16, False)])
@pytest.mark.parametrize(("count", "share"), [(16, 0.9), (48, 0.95), (160, 0.99)])
def test_intervals_of_shares_hold_the_truth_though_rows_of_a_sample_agree(
    count: int, share: float, correlated: bool, rows: int
) -> None:
    """In at least 90 %, if all rows of a sample are right or wrong together as well."""
    builder, random, held = ModelBuilder(), np.random.default_rng(7), 0
    x, y = (builder.tensor(name, (1, rows, 2)) for name in "xy")
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    graph = build_graph(read_model(model_bytes(builder.finish([x], [y]))))
    sample = np.tile(np.array([3.0, -3.0], np.float32), (1, rows, 1))
    reference = Reference(graph, [[sample]] * count)
    right = reference.outputs[0][0]
    for _ in range(60):
        wrong = random.random((count, 1 if correlated else rows)) >= share
        found = [[np.where(np.resize(row, rows)[:, None], right[..., ::-1], right)] for row in wrong]
        alike = float(1.0 - wrong.mean())
        measured = Measurement(
            [Errors(right.size, 1, max_abs=1.0, top1_match=alike)],
            *_powers(count),
            ["y"],
            decided={0: alike},
            reals=found,
        )
        ends = intervals.intervals_of(reference, measured)
        assert ends["top1_match"] == ends["top1_decided"]
        held += ends["top1_match"][0] <= share <= ends["top1_match"][1]
    assert held >= 0.9 * 60


def test_a_loss_of_no_answer_is_not_certain() -> None:
    """Of answers that all stay right, others may still be lost."""
    labels = np.arange(100) % 4
    right = [[np.eye(4)[label][None]] for label in labels]

    def drops(wrong: int) -> Any:
        found = [[np.roll(row[0], place < wrong)] for place, row in enumerate(right)]
        reference, measured = (
            SimpleNamespace(labels=labels, outputs=right, answers=_firsts),
            SimpleNamespace(reals=found),
        )
        return intervals._drops(reference, measured)  # type: ignore[arg-type]

    assert drops(0) == (pytest.approx(-2.72, abs=0.01), pytest.approx(2.72, abs=0.01))
    assert drops(10) == (pytest.approx(3.43, abs=0.01), pytest.approx(16.2, abs=0.1))


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize(("count", "lost"), [(16, 0.1), (64, 0.05), (160, 0.02)])
def test_intervals_of_a_loss_hold_the_truth_though_rows_of_a_sample_are_lost_together(
    count: int, lost: float, rows: int
) -> None:
    random, held = np.random.default_rng(9), 0
    labels = np.zeros((count, rows), np.int64)
    right, wrong = (np.tile(np.eye(2)[label], (1, rows, 1)) for label in (0, 1))
    reference = SimpleNamespace(labels=labels, outputs=[[right]] * count, answers=_firsts)
    for _ in range(100):
        found = [[wrong if is_lost else right] for is_lost in random.random(count) < lost]
        low, high = intervals._drops(reference, SimpleNamespace(reals=found))  # type: ignore[arg-type]
        held += low <= 100.0 * lost <= high
    assert held >= 90


def _firsts(outputs: list[list[np.ndarray]]) -> list[np.ndarray]:
    return [found[0] for found in outputs]


def test_an_output_of_one_number_has_no_largest_element_and_no_interval_of_it() -> None:
    rng = np.random.default_rng(5)
    builder, x, y = two_layers(1, 1.0, rng)
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(12)]
    made = odc_mlir.quantize(bytes(write_model(builder.finish([x], [y]))), calibration=samples, help=False)
    assert made.verdict["metrics"]["top1_match"] is None
    assert "top1_match" not in made.verdict["intervals"]


@pytest.fixture(name="made", scope="module")
def _made() -> tuple[Graph, FloatModel, list[list[np.ndarray]]]:
    module, samples = rescaled_mobilenet()
    return build_graph(export_model(module)), prepare(module), [list(sample) for sample in samples][:10]


def test_a_sample_is_judged_by_a_model_without_it(made: tuple[Graph, FloatModel, list[list[np.ndarray]]]) -> None:
    """A loud sample is clipped by the one model that lacks it, and widens the ranges of the others."""
    original, model, samples = made
    loud = [[64.0 * value for value in samples[0]], *samples[1:]]
    options = make_options(scheme="int8")
    noise, quiet = (
        Folds(Reference(original, every), options).judge(model, Recipe()).results.noise[0] for every in (loud, samples)
    )
    assert noise[0] > 100 * quiet[0]
    others = np.arange(len(samples)) % JUDGES != 0  # judged by models that know the loud one
    assert np.all(noise[others] > quiet[others])


def test_verdicts_are_by_models_that_lack_few_samples_and_choices_by_two(
    made: tuple[Graph, FloatModel, list[list[np.ndarray]]],
) -> None:
    """Of 16 samples one is loud: what judges it does not know it, most others know it as the result does."""
    original, _, samples = made
    every = [[(1.0 + 0.01 * place) * value for value in samples[place % len(samples)]] for place in range(16)]
    loud = split(every).held[3][0]
    every = [[64.0 * value if value is loud else value for value in sample] for sample in every]
    data, options = split(every), make_options(scheme="int8")
    model = prepare(rescaled_mobilenet()[0])
    evaluator = Evaluator(original, model, data, options, None)
    evaluator.record(model)
    built = evaluator.built(model, Recipe())
    itself = evaluator.measured(built).results.noise[0]
    of_all = evaluator.measured_itself(built).results.noise[0]
    found = evaluator.measured_unseen(built).results.noise[0]
    place = next(i for i, sample in enumerate(evaluator.judging.samples) if sample[0] is data.held[3][0])
    assert found[place] > 10 * of_all[place]
    knowing = np.arange(len(found)) % JUDGES != place % JUDGES
    assert (len(found), knowing.sum()) == (16, 14)
    assert np.all(found[knowing] > of_all[knowing] / 2)
    # choices are judged by two models: all of the half with the loud one is judged by what does not know it
    halves = evaluator.measured_by_halves(built).results.noise[0]
    others = np.arange(len(halves)) != 3
    quiet = np.arange(len(halves)) % 2 == 1
    assert halves[3] > 10 * itself[3]
    assert np.all(halves[quiet & others] < itself[quiet & others])
    assert np.all(halves[~quiet] > itself[~quiet] / 2)


def test_with_statistics_nothing_is_clipped(made: tuple[Graph, FloatModel, list[list[np.ndarray]]]) -> None:
    original, model, samples = made
    loud = [[64.0 * value for value in samples[0]], *samples[1:]]
    folds = Folds(Reference(original, loud), make_options(scheme="int8"))
    every = record(HostExecutor(model.graph), loud).statistics()
    alone, known = folds.judge(model, Recipe()), folds.measure(model, Recipe(), every)
    assert known.results.noise[0][0] < alone.results.noise[0][0] / 10


def test_there_are_no_more_folds_than_samples(made: tuple[Graph, FloatModel, list[list[np.ndarray]]]) -> None:
    original, model, samples = made
    folds = Folds(Reference(original, samples[:2]), make_options(scheme="int8"))
    assert folds.count(JUDGES) == 2
    assert folds.judge(model, Recipe()).reals[0]


def test_what_a_model_shows_its_judges_is_learnt_once(
    made: tuple[Graph, FloatModel, list[list[np.ndarray]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The float model runs once for all judges, and not again for those of other ranges, who find the same codes."""
    original, model, samples = made
    recipes = [Recipe(rounding=True, correction=True, headroom=part) for part in (0.0, 0.1)]
    options, runs = make_options(scheme="int8"), []
    anew = [Folds(Reference(original, samples), options).judge(model, recipe) for recipe in recipes]

    class Spy(Stepper):
        def __init__(self, graph: Graph, samples: Samples) -> None:
            runs.append(graph)
            super().__init__(graph, samples)

    monkeypatch.setattr(refinement, "Stepper", Spy)
    folds = Folds(Reference(original, samples), options)
    for recipe, expected in zip(recipes, anew, strict=True):
        found = folds.judge(model, recipe)
        np.testing.assert_array_equal(found.results.noise, expected.results.noise)
    assert sum(graph is model.graph for graph in runs) == 1
    assert len(runs) == 1 + 2 * JUDGES


Samples_headroom = list[list[np.ndarray]]


WIDTH = 32
ALONE = only("headroom")


def _layers() -> bytes:
    """Three layers with rectifiers between them."""
    rng = np.random.default_rng(1)
    weights = [rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH / 2) for _ in range(3)]
    return dense_model(*weights, activations=("relu", "relu", "none"))


def _samples(count: int, spread: float, seed: int) -> Samples_headroom:
    """Noise whose size differs from sample to sample by this much."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(spread * rng.normal(size=count))
    return [[(size * rng.normal(size=(1, WIDTH))).astype(np.float32)] for size in sizes]


def _tried(verdict: dict[str, Any]) -> list[float]:
    return [step["value"] for step in verdict["steps"] if step["step"] == "headroom"]


def test_ranges_are_wider_where_few_samples_leave_others_out() -> None:
    model, samples, unseen = _layers(), _samples(24, 0.5, 1), _samples(100, 0.5, 99)
    found, tight = (quantize(model, calibration=samples, headroom=room, **ALONE) for room in (None, 0.0))
    assert _tried(found.verdict)
    assert found.verdict["choices"]["headroom"] > 0.0
    assert sqnr_db(model, found, unseen) > sqnr_db(model, tight, unseen) + 3.0


def test_samples_to_check_on_do_not_take_the_place_of_room() -> None:
    """They choose no range: few that do leave others out as much as without them."""
    model, samples = _layers(), _samples(40, 0.5, 1)
    found = quantize(model, calibration=samples[:24], evaluation=samples[24:], **only("headroom", "output_room"))
    assert found.verdict["choices"]["headroom"] > 0.0
    assert any(step["step"] == "output room" for step in found.verdict["steps"])


@pytest.mark.parametrize("chosen", [{"headroom": 0.0}, {"help": False}])
def test_what_is_asked_for_is_not_tried(chosen: dict[str, Any]) -> None:
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), **{**ALONE, **chosen})
    assert not _tried(made.verdict)
    assert made.verdict["choices"]["headroom"] == 0.0


def test_ranges_that_hold_other_samples_stay() -> None:
    """Each of 120 samples is one of eight, a little smaller each time."""
    known = _samples(8, 0.5, 1)
    made = quantize(
        _layers(), calibration=[[0.98**turn * sample[0]] for turn in range(15) for sample in known], **ALONE
    )
    assert not _tried(made.verdict)


@pytest.mark.parametrize(("count", "headrooms"), [(16, [0.1, 0.3]), (48, [0.1]), (99, [0.1]), (100, [])])
def test_few_samples_are_presumed_to_show_too_little(
    count: int, headrooms: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(help, "_LEAST_LOST_DB", 100.0)  # nothing shows it
    made = quantize(_layers(), calibration=_samples(count, 0.2, 1), **ALONE)
    assert _tried(made.verdict) == headrooms
    assert made.verdict["choices"]["headroom"] == (headrooms or [0.0])[-1]


@pytest.mark.parametrize(("count", "headrooms"), [(16, [3.0, 7.0]), (48, [3.0]), (100, [])])
def test_16_bits_have_more_room(count: int, headrooms: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help, "_LEAST_LOST_DB", 100.0)
    made = quantize(_layers(), scheme="int16x8", calibration=_samples(count, 0.2, 1), **ALONE)
    assert _tried(made.verdict) == headrooms
    assert made.verdict["choices"]["headroom"] == (headrooms or [1.0])[-1]


def test_few_samples_leave_out_more_than_twice_as_large_values() -> None:
    model, samples, unseen = _layers(), _samples(12, 0.8, 1), _samples(200, 0.8, 99)
    found, tight = (
        quantize(model, scheme="int16x8", calibration=samples, headroom=room, **ALONE) for room in (None, 1.0)
    )
    assert sqnr_db(model, found, unseen) > sqnr_db(model, tight, unseen) + 3.0


def test_room_that_does_harm_is_not_kept_of_few_samples_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help, "HEADROOMS", (8.0,))
    monkeypatch.setattr(help, "_PRESUMED", {8.0: (99, math.inf)})
    made = quantize(_layers(), calibration=_samples(24, 0.2, 1), **ALONE)
    assert _tried(made.verdict) == [8.0]
    assert made.verdict["choices"]["headroom"] == 0.0


def test_room_that_costs_all_samples_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the few held back leave in doubt: where ranges hold all values, wider ones make steps coarser."""
    monkeypatch.setattr(HelpSearch, "is_worse_unseen", lambda *trials: False)
    samples = [[0.98**turn * sample[0]] for turn in range(12) for sample in _samples(4, 0.5, 1)]
    made = quantize(_layers(), calibration=samples, mixed="off", output_room="off")
    assert _tried(made.verdict) == [0.1]
    assert made.verdict["choices"]["headroom"] == 0.0


def test_more_room_is_not_tried_where_some_of_it_does_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help, "HEADROOMS", (-0.3, 0.3))
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), **ALONE)
    assert _tried(made.verdict) == [-0.3]
    assert made.verdict["choices"]["headroom"] == 0.0


@pytest.mark.parametrize("is_large", [False, True])
def test_room_that_is_only_presumed_to_help_asks_large_models_for_no_more(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(help, "HEADROOMS", (0.001, 0.3))  # the first changes next to nothing
    monkeypatch.setattr(help, "_PRESUMED", {0.001: (99, math.inf), 0.3: (99, math.inf)})
    monkeypatch.setattr(evaluator, "_MOST_JUDGING_MACS", 0 if is_large else 1 << 30)
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), **ALONE)
    first = next(step for step in made.verdict["steps"] if step["step"] == "headroom")
    assert (first["value"], first["kept"]) == (0.001, True)
    assert _tried(made.verdict) == ([0.001] if is_large else [0.001, 0.3])
    assert made.verdict["choices"]["headroom"] == (0.001 if is_large else 0.3)


def test_room_is_judged_on_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those held back are few, and may all be smaller than one that chose the ranges."""
    sizes: list[int] = []
    measure = reference.Reference.measure

    def counted(self: Any, *graphs: Any, **options: Any) -> Any:
        if len(graphs) > 1:  # models that lack some samples
            sizes.append(len(self.samples))
        return measure(self, *graphs, **options)

    monkeypatch.setattr(reference.Reference, "measure", counted)
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), **ALONE)
    assert _tried(made.verdict) == list(help.HEADROOMS)
    assert sizes == [24, 24, 24]  # as they were, and with either room
