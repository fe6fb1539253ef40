"""Measures of outputs, and masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_models import attention, squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.errors import InputError, ModelError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.measurement import EXACT_DB, Measurement, Powers
from odc_mlir.quantizer.models import graph_of, limited_masks, prepare
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.reference import Reference, Samples
from odc_mlir.runtime.api import run
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.reporting.labels import FLOAT_MODEL, check_answers, misfit, misfit_text


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


def test_quantised_inputs_and_outputs_are_compared_as_reals_and_beside_what_they_are_squashed_from() -> None:
    module, samples = squeeze_excite()
    samples = samples[:16]
    reference = Reference(build_graph(export_model(module)), samples)
    both = [
        reference.measure(build_graph(export_model(quantize(module, calibration=samples, io=io, help=False).model)))
        for io in ("float", "quantized")
    ]
    assert both[0].outputs == both[1].outputs
    assert both[0].quality_db == both[1].quality_db
    found = both[0]
    assert found.outputs[0].sqnr_db is not None
    assert abs(found.quality_db - found.outputs[0].sqnr_db) > 0.1, "noise shows before the softmax"
    assert found.results.quality_db == pytest.approx(found.worst()["sqnr_db"])
    assert found.results.quality_db != pytest.approx(found.decisive.quality_db, abs=0.1)


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


Array = np.ndarray


Samples_masks = list[list[Array]]


ROWS, WIDTH = 8, 16


LOWEST = float(np.finfo(np.float32).min)


class _Net(FloatNet):
    def reshaped(self, x: SSAValue, *shape: int) -> SSAValue:
        return self.add("RESHAPE", x, self.const(np.array(shape), "int32"), new_shape=None)

    def hidden(self, shown: SSAValue, number: float) -> SSAValue:
        return self.add("MUL", self.add("SUB", self.const(1.0), shown), self.const(number))


def _given(net: _Net, scores: SSAValue, mask: SSAValue) -> SSAValue:
    """The mask itself, LOWEST where it hides."""
    return net.add("ADD", scores, net.reshaped(mask, 1, 1, ROWS))


def _of_shown(net: _Net, scores: SSAValue, shown: SSAValue) -> SSAValue:
    """Ones are shown."""
    return net.add("ADD", scores, net.hidden(shown, -1e9))


def _of_pairs(net: _Net, scores: SSAValue, shown: SSAValue) -> SSAValue:
    """Where both are shown; rows of others are hidden altogether."""
    pairs = net.add("MUL", net.reshaped(shown, 1, ROWS, 1), net.reshaped(shown, 1, 1, ROWS))
    return net.add("SUB", scores, net.hidden(pairs, -LOWEST))


Form = Callable[[_Net, SSAValue, SSAValue], SSAValue]


def _network(form: Form) -> ModuleOp:
    """Attention; inputs are ``x`` and what says where nobody is to look."""
    net = _Net(0)
    x, given = net.real(1, ROWS, WIDTH), net.input(np.zeros((1, ROWS), np.float32))
    with np.errstate(all="ignore"):
        q, k, v = (
            net.add("FULLY_CONNECTED", x, net.weights(WIDTH, WIDTH, spread=0.25), None, keep_num_dims=True)
            for _ in range(3)
        )
        scores = net.add("BATCH_MATMUL", q, k, adjoint_rhs=True)
        shares = net.add("SOFTMAX", form(net, scores, given), beta=1.0, name="shares")
        module = net.module(net.add("BATCH_MATMUL", shares, v))
    return import_model(export_model(module))


def _samples(form: Form, count: int, seed: int) -> Samples_masks:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        shown = np.arange(ROWS)[None] < rng.integers(2, ROWS)
        mask = np.where(shown, 0.0, LOWEST) if form is _given else shown
        found.append([rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32), mask.astype(np.float32)])
    return found


def _shares(module: ModuleOp, sample: list[Array]) -> Array:
    graph, values = graph_of(module), dict[int, Array]()
    HostExecutor(graph).run(sample, watch=lambda index, value: values.update({index: value}))
    (place,) = [item.outputs[0] for item in graph.nodes if item.node.spec.name == "SOFTMAX"]
    return to_reals(graph.tensors[place], values[place])


@cache
def _quantised(form: Form, scheme: str) -> Quantized:
    options = {"scheme": scheme, "help": False, "mixed": "off", "reader": "litert"}
    return quantize(_network(form), calibration=_samples(form, 24, 0), **options)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("form", [_given, _of_shown, _of_pairs])
def test_what_inputs_hide_stays_hidden(form: Form, scheme: str) -> None:
    network, found, unseen = _network(form), _quantised(form, scheme), _samples(form, 8, 1)
    assert found.passed
    # Nothing but the mask's own steps stay real.
    reals = {layer["op"] for layer in found.verdict["layers"] if layer["scheme"] == "float"}
    assert reals <= {"RESHAPE", "MUL", "SUB", "MAXIMUM", "MINIMUM"}
    signal = noise = 0.0
    model = bytes(write_model(export_model(network)))
    for sample in unseen:
        expected = _shares(network, sample)
        assert _shares(found.model, sample)[expected == 0].max() <= (2 / 32768 if scheme == "int16x8" else 0)
        (wanted,), (given,) = run(model, sample), run(found.to_circle(), sample)
        signal, noise = signal + float((wanted**2).sum()), noise + float(((wanted - given) ** 2).sum())
    assert 10 * np.log10(signal / noise) > (38 if scheme == "int16x8" else 20)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_a_mask_of_codes_leaves_nothing_real(scheme: str) -> None:
    """A caller gives the lowest code for what it hides."""
    options = {"scheme": scheme, "help": False, "mixed": "off", "io": "quantized"}
    found = quantize(_network(_given), calibration=_samples(_given, 24, 0), **options)
    assert "float" not in {layer["scheme"] for layer in found.verdict["layers"]}
    graph = graph_of(found.model)
    for x, mask in _samples(_given, 8, 1):
        given = [to_codes(info, array) for info, array in zip(graph.input_infos(), (x, mask), strict=True)]
        hidden = _shares(_network(_given), [x, mask]) == 0
        assert _shares(found.model, given)[hidden].max() <= (2 / 32768 if scheme == "int16x8" else 0)


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("form", [_given, _of_shown, _of_pairs])
def test_litert_gives_the_same(form: Form, scheme: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    found = _quantised(form, scheme)
    interpreter = litert.Interpreter(
        model_content=found.to_tflite(), experimental_op_resolver_type=litert.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    for sample in _samples(form, 4, 1):
        for detail, value in zip(interpreter.get_input_details(), sample, strict=True):
            interpreter.set_tensor(detail["index"], value)
        interpreter.invoke()
        theirs = interpreter.get_tensor(interpreter.get_output_details()[0]["index"])
        (ours,) = run(found.to_circle(), sample, numerics="litert")
        np.testing.assert_array_equal(theirs, ours)


@pytest.mark.parametrize("nearest", [0.0, 3000.0])
def test_scores_that_are_far_from_zero_are_no_mask(nearest: float) -> None:
    """Shares of places by their distance: limited where that changes none of them only."""
    net = _Net(0)
    x = net.input(np.zeros((1, ROWS), np.float32))
    distances = net.add("NEG", net.add("SQUARE", x), name="distances")
    module = import_model(export_model(net.module(net.add("SOFTMAX", distances, beta=1.0))))
    rng = np.random.default_rng(0)
    rows = [np.sort(np.sqrt(nearest + rng.uniform(0, 10, ROWS)))[None] for _ in range(8)]
    samples = [[np.concatenate([row[:, 1:], np.full((1, 1), 90.0)], axis=1).astype(np.float32)] for row in rows]
    model = prepare(module)
    found = limited_masks(model, samples)
    assert (found is model) == (nearest > 0)
    for sample in samples:
        np.testing.assert_array_equal(_shares(found.module, sample), _shares(module, sample))
