from __future__ import annotations

import numpy as np
import pytest

from helpers.float_models import attention, squeeze_excite
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.errors import InputError, ModelError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.labels import FLOAT_MODEL, check_answers, misfit, misfit_text
from odc_mlir.quantizer.measurement import EXACT_DB, Measurement, Powers
from odc_mlir.quantizer.outputs import Lost
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.quantizer.reference import Reference, Samples
from odc_mlir.runtime.execution.graph import Graph, build_graph


def test_a_model_is_exactly_itself() -> None:
    module, samples = squeeze_excite()
    graph = build_graph(export_model(module))
    reference = Reference(graph, samples[:3])
    found = reference.measure(graph)
    assert found.quality_db == EXACT_DB
    assert reference.metrics(found)["differing"] == 0
    assert reference.metrics(found)["mpeir"] == 0


def test_a_softmax_over_classes_is_a_classifier() -> None:
    for make, found in ((squeeze_excite, "softmax"), (attention, None)):
        module, samples = make()
        assert Reference(build_graph(export_model(module)), samples[:1]).classifier == found


@pytest.mark.parametrize(("offsets", "found"), [([0.0, 0.0, 0.0, 0.0], "logits"), ([0.0, 9.0, -9.0, 3.0], None)])
def test_logits_are_told_from_coordinates_by_who_wins(offsets: list[float], found: str | None) -> None:
    rng = np.random.default_rng(1)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    weights = builder.tensor("w", (4, 8), data=rng.normal(size=(4, 8)).astype(np.float32))
    builder.operator("FULLY_CONNECTED", [x, weights, builder.tensor("b", (4,), data=np.float32(offsets))], [y])
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(20)]
    reference = Reference(build_graph(builder.finish([x], [y])), samples)
    assert reference.classifier == found
    output = reference.outputs[0][0]
    nearly = output.copy()
    nearly[0, int(np.argmin(output))] = output.max() + 1  # the least likely class
    assert reference.decides_alike(0, output)
    assert not reference.decides_alike(0, nearly)


def rows_of(frequent: float, trained: bool) -> tuple[Graph, Samples]:
    """Four columns, of which one is larger by ``frequent``; ``trained``: what one gains the others lose."""
    rng = np.random.default_rng(1)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    weights = rng.normal(size=(4, 8)) + (0.0 if trained else 0.5)
    weights -= weights.mean(axis=0) if trained else 0.0
    bias = builder.tensor("b", (4,), data=np.float32([0.0, 0.0, frequent, 0.0]))
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("w", (4, 8), data=weights.astype(np.float32)), bias], [y])
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(64)]
    return build_graph(builder.finish([x], [y])), samples


@pytest.mark.parametrize(
    ("frequent", "trained", "found", "doubted"),
    [
        (0.0, True, "logits", False),
        (3.0, True, "logits", False),
        (3.0, False, None, True),
        (9.0, True, None, False),
        (9.0, False, None, False),
    ],
)
def test_a_frequent_class_is_told_from_the_largest_number_by_the_sum(
    frequent: float, trained: bool, found: str | None, doubted: bool
) -> None:
    reference = Reference(*rows_of(frequent, trained))
    assert reference.classifier == found
    text = reference.doubts_of_scores.get(0, "")
    assert text.startswith("output 'y' is not taken for scores of classes, as column 2 is the largest for ") is doubted
    assert ("of 64 samples; if it has such, give labels, or --metric top1" in text) is doubted


def _rows_by(weights: np.ndarray, labels: np.ndarray | None = None) -> Reference:
    """A layer of these ``weights``, on 64 samples."""
    rng, (inputs, outputs) = np.random.default_rng(1), weights.shape
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, inputs)), builder.tensor("y", (1, outputs))
    given = builder.tensor("w", (outputs, inputs), data=weights.T.astype(np.float32))
    builder.operator("FULLY_CONNECTED", [x, given, -1], [y])
    samples = [[rng.normal(size=(1, inputs)).astype(np.float32)] for _ in range(64)]
    return Reference(build_graph(builder.finish([x], [y])), samples, labels)


_WALK = np.triu(np.ones((12, 12)))[:, 2:]  # each step is the last one and something new
_WAVES = np.stack([wave(np.arange(10) * 2.0 * np.pi / 10) for wave in (np.sin, np.cos)])  # whose sum is 0
_INDEPENDENT = np.random.default_rng(2).normal(size=(16, 10))


@pytest.mark.parametrize(
    ("weights", "found", "doubt"),
    [
        (_WALK, None, "is not taken for scores of classes, as its columns rise and fall together"),
        (_WALK[:, [3, 8, 1, 6, 0, 9, 4, 7, 2, 5]], "logits", None),  # the order of classes says nothing
        (_WAVES, "logits", "is taken for scores of classes, though neighbouring columns are alike"),
        (_INDEPENDENT, "logits", None),
        (_INDEPENDENT + 3.0 * _INDEPENDENT[:, :1], "logits", None),  # which rise and fall together
    ],
)
def test_steps_of_a_series_are_told_from_classes(weights: np.ndarray, found: str | None, doubt: str | None) -> None:
    reference = _rows_by(weights)
    assert reference.classifier == found
    said = reference.doubts_of_scores.get(0)
    assert said is None if doubt is None else said is not None and doubt in said


@pytest.mark.parametrize("weights", [_WAVES, _INDEPENDENT])
def test_labels_that_are_a_number_for_each_column_say_that_these_are_numbers(weights: np.ndarray) -> None:
    labels = np.concatenate([outputs[0] for outputs in _rows_by(weights).outputs])
    numbers = _rows_by(weights, labels * 1.01)
    assert (numbers.classifier, numbers.doubts_of_scores) == (None, {})
    assert not numbers.classifies(0)
    assert _rows_by(weights, labels.argmax(axis=1)).classifier == "logits"


def test_what_outputs_are_is_the_same_for_other_samples() -> None:
    graph, samples = rows_of(3.0, trained=True)
    reference = Reference(graph, samples)
    alone = [sample for sample, outputs in zip(samples, reference.outputs, strict=True) if np.argmax(outputs[0]) == 2]
    assert Reference(graph, alone).classifier is None
    others = Reference(graph, alone, like=reference)
    assert others.classifier == "logits"
    assert others.measure(graph).decided == {0: 1.0}


def test_labels_score_and_the_drop_is_in_points() -> None:
    module, samples = squeeze_excite()
    graph = build_graph(export_model(module))
    answers = [int(np.argmax(outputs[0])) for outputs in Reference(graph, samples[:10]).outputs]
    labels = np.array(answers)
    labels[0] = (labels[0] + 1) % 6
    reference = Reference(graph, samples[:10], labels)
    assert reference.scores == {"top1_percent": 90.0}
    found = reference.measure(graph)
    assert found.scored is not None
    assert found.scored.after == {"top1_percent": 90.0}
    assert reference.metrics(found)["drop"] == 0


@pytest.mark.parametrize(
    ("right", "kinds", "count", "refused", "telling"),
    [
        (1.0, 4, 200, False, True),
        (0.4, 4, 200, False, True),
        (0.25, 4, 200, True, False),  # as guessing does
        (0.98, 1, 200, False, True),  # nearly all of one class, and the others are told
        (1.0, 1, 12, False, False),  # right, but too few to know
        (0.0, 4, 8, False, False),
    ],
)
def test_labels_that_are_guessed_tell_nothing(
    right: float, kinds: int, count: int, refused: bool, telling: bool
) -> None:
    answers = np.arange(count) % kinds
    answers[::20] = 3  # so that there is more than one
    outputs = [np.eye(4)[[answer]] for answer in answers]
    wrong = np.arange(count) * 7919 % count >= right * count
    labels = np.where(wrong, (answers + 1 + np.arange(count) // kinds % 3) % 4, answers)
    assert (misfit(outputs, labels) is None) is telling
    if not refused:
        return check_answers(outputs, labels)
    with pytest.raises(InputError, match=r"gets 2[0-9.]* % of the labels right, no better than guessing"):
        check_answers(outputs, labels)


def test_labels_of_classes_that_answers_hardly_have_are_those_of_another_question() -> None:
    """Odd or even, of ten digits: two answers of ten are right more often than by luck, and still less than a guess."""
    digits = np.arange(200) % 10
    with pytest.raises(InputError, match=r"gets 2[0-9.]* % of the labels right, guessing 50 %"):
        check_answers(list(np.eye(10, dtype=np.float32)[digits]), digits % 2)


def test_labels_that_are_right_less_often_than_a_guess_are_refused() -> None:
    """A rare class is told, and answered to nearly all: better than luck has these answers, worse than any guess."""
    labels = np.repeat([0, 1, 2, 3], [100, 100, 96, 4])
    chosen = np.full(300, 3)
    chosen[100:120] = 1
    outputs = list(np.eye(4)[chosen][:, None])
    with pytest.raises(InputError, match=r"gets 8 % of the labels right, guessing 25 %: .* unit or order"):
        check_answers(outputs, labels)
    chosen[:60] = 0
    check_answers(list(np.eye(4)[chosen][:, None]), labels)
    wide = list(np.eye(40)[np.where(np.arange(300) % 4, 4 + np.arange(300) % 36, labels)][:, None])
    check_answers(wide, labels)  # of many classes, of which few are among the labels


def test_right_labels_of_one_class_are_no_wrong_ones() -> None:
    labels = np.repeat([1, 0], [46, 4])
    found = misfit(list(np.eye(2)[labels][:, None]), labels)
    assert found is not None
    text = misfit_text(found, 50, FLOAT_MODEL)
    assert text.startswith("92 % of the labels of 50 samples are of class 1, so that luck may have as many right")
    assert text.endswith("give more samples of other classes")
    with pytest.raises(InputError, match=r"no better than guessing .* more samples of other classes than 1 \(92 %\)"):
        check_answers(list(np.eye(2)[np.where(np.arange(50) == 49, 0, 1)][::-1][:, None]), labels)


def test_quantised_inputs_and_outputs_are_compared_as_reals() -> None:
    module, samples = squeeze_excite()
    reference = Reference(build_graph(export_model(module)), samples[:8])
    both = [
        reference.measure(build_graph(export_model(quantize(module, calibration=samples, io=io, help=False).model)))
        for io in ("float", "quantized")
    ]
    assert both[0].outputs == both[1].outputs
    assert both[0].quality_db == both[1].quality_db


def test_noise_shows_before_the_softmax() -> None:
    module, samples = squeeze_excite()
    reference = Reference(build_graph(export_model(module)), samples[:8])
    found = reference.measure(build_graph(export_model(quantize(module, calibration=samples, help=False).model)))
    assert found.outputs[0].sqnr_db is not None
    assert abs(found.quality_db - found.outputs[0].sqnr_db) > 0.1


def test_refusals() -> None:
    graph = build_graph(add_model())
    with pytest.raises(InputError, match="there are no samples"):
        Reference(graph, [])
    sample = [np.ones((1, 4), np.float32)] * 2
    builder = ModelBuilder()
    a, b, c = (builder.tensor(name, (1, 4)) for name in "abc")
    builder.operator("ADD", [a, b], [c])
    two = build_graph(builder.finish([a, b], [c, c]))
    with pytest.raises(ModelError, match="the quantised model has 2 outputs, the other 1"):
        Reference(graph, [sample]).measure(two)


def _measurement(decisive_db: float, output_db: float, *, spread: float = 0.0) -> Measurement:
    """A model whose decisive tensor and output have these SQNRs; ``spread``: how samples of the output differ."""
    count = 50
    signal = np.ones((1, count))
    varied = 1.0 + spread * np.resize([1.0, -1.0], (1, count))
    noises = (signal * 10 ** (-decisive_db / 10), varied * 10 ** (-output_db / 10))
    decisive, results = (Powers(signal, noise) for noise in noises)
    return Measurement([], decisive, results, ["y"])


@pytest.mark.parametrize(
    ("decisive_db", "output_db", "spread", "kept"),
    [
        (40.0, 30.0, 0.0, False),  # nothing gained
        (41.0, 30.0, 0.0, True),
        (40.0, 31.0, 0.0, True),
        (41.0, 29.0, 0.0, False),  # noise that the function hides pays for noise that it leaves
        (39.0, 31.0, 0.0, False),
        (41.0, 29.95, 0.0, True),  # too little to mind
        (41.0, 29.5, 0.9, True),  # as chance would have it
        (40.0, 30.5, 0.9, False),
    ],
)
def test_what_is_kept_gains_in_logits_or_outputs_and_loses_in_neither(
    decisive_db: float, output_db: float, spread: float, kept: bool
) -> None:
    found, best = _measurement(decisive_db, output_db, spread=spread), _measurement(40.0, 30.0)
    assert found.better_than(best, 0.1) == kept


@pytest.mark.parametrize(
    ("decisive_db", "output_db", "spread", "confirmed"),
    [
        (40.0, 30.0, 0.0, True),
        (39.5, 31.0, 0.9, False),  # worse beyond chance, whatever the output gains
        (40.0, 29.9, 0.9, True),
        (40.0, 29.0, 0.0, False),
        (39.95, 29.95, 0.9, False),  # by chance, but nothing says that it is better
    ],
)
def test_a_gain_is_confirmed_where_nothing_is_worse_and_one_measure_as_good(
    decisive_db: float, output_db: float, spread: float, confirmed: bool
) -> None:
    found, best = _measurement(decisive_db, output_db, spread=spread), _measurement(40.0, 30.0)
    assert found.confirms(best, 0.1) == confirmed


def test_a_large_gain_is_confirmed_though_a_little_is_lost_by_chance() -> None:
    found, best = _measurement(39.95, 29.95, spread=0.9), _measurement(40.0, 30.0)
    assert [found.confirms(best, 0.1, most_lost_db) for most_lost_db in (0.0, 0.04, 0.06)] == [False, False, True]
    assert not _measurement(39.5, 29.5).confirms(best, 0.1, 1.0)  # beyond chance


def test_a_column_that_is_lost_no_more_confirms_what_others_pay_for_it() -> None:
    found, best = _measurement(39.95, 29.95, spread=0.9), _measurement(40.0, 30.0)
    best.lost = [[Lost([1], 1, 4)]]
    assert found.confirms(best, 0.1)
    found.lost = best.lost
    assert not found.confirms(best, 0.1)


def test_outputs_are_measured_beside_what_they_are_squashed_from() -> None:
    module, samples = squeeze_excite()
    reference = Reference(build_graph(export_model(module)), samples)
    found = reference.measure(build_graph(export_model(quantize(module, calibration=samples, help=False).model)))
    assert found.results.quality_db == pytest.approx(found.worst()["sqnr_db"])
    assert found.results.quality_db != pytest.approx(found.decisive.quality_db, abs=0.1)


def test_a_few_loud_samples_leave_no_doubt_of_what_nearly_all_samples_gain() -> None:
    """Four samples make nearly all noise: over all samples the gain may be chance, by the number of them it is not."""
    noise, factors = np.ones((1, 20)), np.full((1, 20), 0.9)
    noise[0, :4], factors[0, :4] = 1000.0, (0.1, 1.02, 0.3, 0.95)
    before, after = Powers(np.ones((1, 20)), noise), Powers(np.ones((1, 20)), noise * factors)
    gain, error = after.gain_db(before)
    assert 2.0 < gain < 1.96 * error
    assert after.better_than(before, 0.1)
    assert not before.better_than(after, 0.1)
    factors[0, 4:] = np.resize([0.9, 1.1], 16)
    assert not Powers(np.ones((1, 20)), noise * factors).better_than(before, 0.1)
    # what nearly all samples gain does not count where the loud ones lose it
    factors[0] = np.where(np.arange(20) < 4, 1.1, 0.7)
    assert not Powers(np.ones((1, 20)), noise * factors).better_than(before, 0.1)


def test_one_of_many_tensors_may_be_worse_by_chance() -> None:
    """Of 400 columns that all gain 1 dB a few seem to lose as much: that is what chance makes of so many."""
    rng = np.random.default_rng(2)
    count, samples = 400, 12
    before = 1e-4 * np.exp(rng.normal(size=(count, samples)) / 2)
    after = 0.8 * 1e-4 * np.exp(rng.normal(size=(count, samples)) / 2)
    signal = np.ones((count, samples))
    one, two = Powers(signal, after), Powers(signal, before)
    alone = [
        Powers(signal[k : k + 1], after[k : k + 1]).worse_than(Powers(signal[k : k + 1], before[k : k + 1]), 0.5)
        for k in range(count)
    ]
    assert any(alone)
    assert one.better_than(two, 0.1)
    worse = after.copy()
    worse[7] *= 100.0
    assert not Powers(signal, worse).better_than(two, 0.1)


def channels_first(last: str, extents: tuple[int, int, int, int]) -> tuple[bytes, Samples]:
    """A convolution between transpositions, a sum, and what is then made of it."""
    rng, builder, (_, channels, height, width) = np.random.default_rng(1), ModelBuilder(), extents
    x, u, y = (builder.tensor(name, extents) for name in "xuy")
    t, c = (builder.tensor(name, (1, height, width, channels)) for name in "tc")
    orders = [
        builder.tensor(f"order{place}", (4,), "int32", data=np.int32(order))
        for place, order in enumerate([[0, 2, 3, 1], [0, 3, 1, 2]])
    ]
    filters = rng.normal(size=(channels, 1, 1, channels)).astype(np.float32)
    weights = builder.tensor("w", filters.shape, data=filters)
    bias = builder.tensor("b", (channels,), data=np.zeros(channels, np.float32))
    builder.operator("TRANSPOSE", [x, orders[0]], [t])
    builder.operator("CONV_2D", [t, weights, bias], [c], options={"padding": "valid", "stride_w": 1, "stride_h": 1})
    builder.operator("TRANSPOSE", [c, orders[1]], [u])
    builder.operator("ADD", [u, u], [y])
    result = y
    if last == "LOGISTIC":
        result = builder.tensor("z", extents)
        builder.operator("LOGISTIC", [y], [result])
    elif last == "ARG_MAX":
        result = builder.tensor("z", (1, height, width), "int64")
        axis = builder.tensor("axis", (), "int32", data=np.int32(1))
        builder.operator("ARG_MAX", [y, axis], [result], options={"output_type": "int64"})
    samples = [[rng.normal(size=extents).astype(np.float32)] for _ in range(8)]
    return bytes(model_bytes(builder.finish([x], [result]))), samples


@pytest.mark.parametrize("extents", [(1, 4, 4, 4), (1, 4, 3, 5)])
@pytest.mark.parametrize("last", ["", "LOGISTIC", "ARG_MAX"])
def test_values_in_another_order_of_axes_are_not_compared(last: str, extents: tuple[int, int, int, int]) -> None:
    """Optimised models compute with channels last, under the same names."""
    model, samples = channels_first(last, extents)
    verdict = quantize(model, calibration=samples, help=False).verdict
    assert verdict["steps"][0]["quality_db"] > 10
    if last == "ARG_MAX":
        assert verdict["metrics"]["top1_decided"] > 0.9
