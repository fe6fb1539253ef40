"""Measures of outputs, and masks."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_models import attention, normal, only, squeeze_excite
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, add_model
from odc_mlir.errors import InputError, ModelError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.layers import Examination
from odc_mlir.quantizer.measurement import EXACT_DB, Measurement, Powers
from odc_mlir.quantizer.models import graph_of, limited_masks, prepare
from odc_mlir.quantizer.quantize import Quantized, quantize
from odc_mlir.quantizer.reference import Reference, Samples
from odc_mlir.runtime.api import run
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph


def test_a_model_is_exactly_itself_and_a_classifier_by_a_softmax_over_classes() -> None:
    for make, kind in ((squeeze_excite, True), (attention, False)):
        module, samples = make()
        graph = build_graph(export_model(module))
        reference = Reference(graph, samples[:3])
        assert reference.has_scores(0) is kind
        found = reference.measure(graph)
        assert found.quality_db == EXACT_DB
        assert (reference.metrics(found)["differing"], reference.metrics(found)["mpeir"]) == (0, 0)


def layer(
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    count: int = 64,
    rng: np.random.Generator | None = None,
    labels: np.ndarray | None = None,
) -> Reference:
    """Return what is known of a layer with ``weights`` of [outputs, inputs] on ``count`` samples."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, weights.shape[1]))
    graph = build_graph(builder.finish([x], [builder.dense("y", x, weights, bias)]))
    return Reference(graph, normal(rng or np.random.default_rng(1), count, 1, weights.shape[1]), labels)


@pytest.mark.parametrize(("offsets", "found"), [([0.0, 0.0, 0.0, 0.0], True), ([0.0, 9.0, -9.0, 3.0], False)])
def test_logits_are_told_from_coordinates_by_who_wins(offsets: list[float], found: bool) -> None:
    rng = np.random.default_rng(1)
    reference = layer(rng.normal(size=(4, 8)), np.array(offsets), count=20, rng=rng)
    assert reference.has_scores(0) is found
    output = reference.outputs[0][0]
    nearly = output.copy()
    nearly[0, int(np.argmin(output))] = output.max() + 1  # the least likely class
    assert reference.decides_alike(0, output)
    assert not reference.decides_alike(0, nearly)


@pytest.mark.parametrize(
    ("frequent", "trained", "found", "doubted"),
    [
        (0.0, True, True, False),
        (3.0, True, True, False),
        (3.0, False, False, True),
        (9.0, True, False, False),
        (9.0, False, False, False),
    ],
)
def test_a_frequent_class_is_told_by_the_sum(frequent: float, trained: bool, found: bool, doubted: bool) -> None:
    rng = np.random.default_rng(1)
    weights = rng.normal(size=(4, 8)) + (0.0 if trained else 0.5)
    weights -= weights.mean(axis=0) if trained else 0.0  # what one gains the others lose
    reference = layer(weights, np.array([0.0, 0.0, frequent, 0.0]), rng=rng)
    assert reference.has_scores(0) is found
    text = reference.doubts_of_scores.get(0, "")
    assert text.startswith("output 'y' is treated as numbers, not class scores, because column 2 is the la") is doubted
    assert ("of 64 samples; if it has class scores, give labels, or --metric top1" in text) is doubted
    if (frequent, trained) == (3.0, True):  # which is the same for other samples
        graph, pairs = reference.graph, zip(reference.samples, reference.outputs, strict=True)
        alone = [sample for sample, outputs in pairs if np.argmax(outputs[0]) == 2]
        assert not Reference(graph, alone).has_scores(0)
        others = Reference(graph, alone, like=reference)
        assert (others.has_scores(0), others.measure(graph).decided) == (True, {0: 1.0})


_WALK = np.triu(np.ones((12, 12)))[:, 2:].T  # each step is the last one and something new
_WAVES = np.stack([wave(np.arange(10) * 2.0 * np.pi / 10) for wave in (np.sin, np.cos)], axis=1)  # whose sum is 0
_INDEPENDENT = np.random.default_rng(2).normal(size=(16, 10)).T


@pytest.mark.parametrize(
    ("weights", "found", "doubt"),
    [
        (_WALK, False, "is treated as numbers, not class scores, because its columns rise and fall together"),
        (_WALK[[3, 8, 1, 6, 0, 9, 4, 7, 2, 5]], True, ""),  # the order of classes says nothing
        (_WAVES, True, "is treated as class scores, though neighbouring columns are alike"),
        (_INDEPENDENT, True, ""),
        (_INDEPENDENT + 3.0 * _INDEPENDENT[:1], True, ""),  # which rise and fall together
    ],
)
def test_steps_of_a_series_are_told_from_classes(weights: np.ndarray, found: bool, doubt: str) -> None:
    reference = layer(weights)
    assert reference.has_scores(0) is found
    said = reference.doubts_of_scores.get(0, "")
    assert doubt in said
    assert bool(said) == bool(doubt)


@pytest.mark.parametrize("weights", [_WAVES, _INDEPENDENT])
def test_labels_that_are_a_number_for_each_column_say_that_these_are_numbers(weights: np.ndarray) -> None:
    labels = np.concatenate([outputs[0] for outputs in layer(weights).outputs])
    numbers = layer(weights, labels=labels * 1.01)
    assert (numbers.has_scores(0), numbers.doubts_of_scores, numbers.classifies(0)) == (False, {}, False)
    assert layer(weights, labels=labels.argmax(axis=1)).has_scores(0)


def test_quantised_inputs_and_outputs_are_compared_as_reals_and_beside_what_they_are_squashed_from() -> None:
    module, samples = squeeze_excite()
    samples = samples[:16]
    reference = Reference(build_graph(export_model(module)), samples)
    found, of_codes = (
        reference.measure(build_graph(export_model(quantize(module, calibration=samples, io=io, help=False).model)))
        for io in ("float", "quantized")
    )
    assert (found.outputs, found.quality_db) == (of_codes.outputs, of_codes.quality_db)
    assert abs(found.quality_db - found.outputs[0].sqnr_db) > 0.1, "noise shows before the softmax"
    assert found.results.quality_db == pytest.approx(found.worst()["sqnr_db"])
    assert found.results.quality_db != pytest.approx(found.decisive.quality_db, abs=0.1)


def test_refusals() -> None:
    graph = build_graph(add_model())
    with pytest.raises(InputError, match="there are no samples"):
        Reference(graph, [])
    builder = ModelBuilder()
    a, b = (builder.tensor(name, (1, 4)) for name in "ab")
    c = builder.made("c", (1, 4), "ADD", a, b)
    with pytest.raises(ModelError, match="the quantised model has 2 outputs, the other 1"):
        Reference(graph, [[np.ones((1, 4), np.float32)] * 2]).measure(build_graph(builder.finish([a, b], [c, c])))


def _measurement(decisive_db: float, output_db: float, *, spread: float = 0.0) -> Measurement:
    """A model whose decisive tensor and output have these SQNRs; ``spread``: how samples of the output differ."""
    signal = np.ones((1, 50))
    varied = 1.0 + spread * np.resize([1.0, -1.0], (1, 50))
    decisive, results = (
        Powers(signal, noise * 10 ** (-db / 10)) for noise, db in ((signal, decisive_db), (varied, output_db))
    )
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
    before, after = (factor * 1e-4 * np.exp(rng.normal(size=(400, 12)) / 2) for factor in (1.0, 0.8))
    signal = np.ones((400, 12))
    rows = ([Powers(signal[:1], noise[k : k + 1]) for noise in (after, before)] for k in range(400))
    assert any(one.worse_than(two, 0.5) for one, two in rows)
    assert Powers(signal, after).better_than(Powers(signal, before), 0.1)
    after[7] *= 100.0
    assert not Powers(signal, after).better_than(Powers(signal, before), 0.1)


def channels_first(last: str, extents: tuple[int, int, int, int]) -> tuple[bytes, Samples]:
    """A convolution between transpositions, a sum, and what is then made of it."""
    rng, builder, (_, channels, height, width) = np.random.default_rng(1), ModelBuilder(), extents
    x, inner = builder.tensor("x", extents), (1, height, width, channels)
    orders = [
        builder.constant(f"order{place}", order, "int32") for place, order in enumerate(((0, 2, 3, 1), (0, 3, 1, 2)))
    ]
    weights = builder.constant("w", rng.normal(size=(channels, 1, 1, channels)))
    bias = builder.constant("b", np.zeros(channels))
    t = builder.made("t", inner, "TRANSPOSE", x, orders[0])
    c = builder.made("c", inner, "CONV_2D", t, weights, bias, padding="valid", stride_w=1, stride_h=1)
    u = builder.made("u", extents, "TRANSPOSE", c, orders[1])
    y = builder.made("y", extents, "ADD", u, u)
    if last == "LOGISTIC":
        y = builder.made("z", extents, "LOGISTIC", y)
    elif last == "ARG_MAX":
        axis = builder.constant("axis", 1, "int32")
        y = builder.made("z", (1, height, width), "ARG_MAX", y, axis, dtype="int64", output_type="int64")
    return builder.file([x], [y]), normal(rng, 8, *extents)


@pytest.mark.parametrize("extents", [(1, 4, 4, 4), (1, 4, 3, 5)])
@pytest.mark.parametrize("last", ["", "LOGISTIC", "ARG_MAX"])
def test_values_in_another_order_of_axes_are_not_compared(last: str, extents: tuple[int, int, int, int]) -> None:
    """Optimised models compute with channels last, under the same names."""
    model, samples = channels_first(last, extents)
    verdict = quantize(model, calibration=samples, help=False).verdict
    assert verdict["steps"][0]["quality_db"] > 10
    if last == "ARG_MAX":
        assert verdict["metrics"]["top1_decided"] > 0.9


ROWS, WIDTH = 8, 16
LOWEST = float(np.finfo(np.float32).min)
Form = Callable[[FloatNet, SSAValue, SSAValue], SSAValue]


def _reshaped(net: FloatNet, x: SSAValue, *shape: int) -> Any:
    return net.add("RESHAPE", x, net.const(np.array(shape), "int32"), new_shape=None)


def _hidden(net: FloatNet, shown: SSAValue, number: float) -> Any:
    return net.add("MUL", net.add("SUB", net.const(1.0), shown), net.const(number))


def _given(net: FloatNet, scores: SSAValue, mask: SSAValue) -> Any:
    """The mask itself, LOWEST where it hides."""
    return net.add("ADD", scores, _reshaped(net, mask, 1, 1, ROWS))


def _of_shown(net: FloatNet, scores: SSAValue, shown: SSAValue) -> Any:
    return net.add("ADD", scores, _hidden(net, shown, -1e9))


def _of_pairs(net: FloatNet, scores: SSAValue, shown: SSAValue) -> Any:
    """Where both are shown; rows of others are hidden altogether."""
    pairs = net.add("MUL", _reshaped(net, shown, 1, ROWS, 1), _reshaped(net, shown, 1, 1, ROWS))
    return net.add("SUB", scores, _hidden(net, pairs, -LOWEST))


@cache
def _network(form: Form) -> ModuleOp:
    """Attention; inputs are ``x`` and what says where nobody is to look."""
    net = FloatNet(0)
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


def _samples(form: Form, count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(count):
        shown = np.arange(ROWS)[None] < rng.integers(2, ROWS)
        mask = np.where(shown, 0.0, LOWEST) if form is _given else shown
        found.append([rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32), mask.astype(np.float32)])
    return found


def _values(graph: Graph, sample: list[np.ndarray]) -> dict[int, np.ndarray]:
    values: dict[int, np.ndarray] = {}
    HostExecutor(graph).run(sample, watch=lambda index, value: values.update({index: value}))
    return values


def _shares(module: ModuleOp, sample: list[np.ndarray]) -> np.ndarray:
    graph = graph_of(module)
    (place,) = [item.outputs[0] for item in graph.nodes if item.node.spec.name == "SOFTMAX"]
    return to_reals(graph.tensors[place], _values(graph, sample)[place])


@cache
def _quantised(form: Form, scheme: str, **options: Any) -> Quantized:
    return quantize(
        _network(form), calibration=_samples(form, 24, 0), scheme=scheme, help=False, mixed="off", **options
    )


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("form", [_given, _of_shown, _of_pairs])
def test_what_inputs_hide_stays_hidden(form: Form, scheme: str) -> None:
    least = 2 / 32768 if scheme == "int16x8" else 0
    network, found = _network(form), _quantised(form, scheme, reader="litert")
    assert found.passed
    # Nothing but the mask's own steps stay real.
    reals = {layer["op"] for layer in found.verdict["layers"] if layer["scheme"] == "float"}
    assert reals <= {"RESHAPE", "MUL", "SUB", "MAXIMUM", "MINIMUM"}
    signal = noise = 0.0
    model, circle = bytes(write_model(export_model(network))), found.to_circle()
    for sample in _samples(form, 8, 1):
        hidden = _shares(network, sample) == 0
        assert _shares(found.model, sample)[hidden].max() <= least
        (wanted,), (given,) = run(model, sample), run(circle, sample)
        signal, noise = signal + float((wanted**2).sum()), noise + float(((wanted - given) ** 2).sum())
    assert 10 * np.log10(signal / noise) > (38 if scheme == "int16x8" else 20)
    if form is _given:  # a caller gives the lowest code for what it hides: nothing stays real
        coded = _quantised(form, scheme, io="quantized")
        assert "float" not in {layer["scheme"] for layer in coded.verdict["layers"]}
        for sample in _samples(form, 8, 1):
            codes = list(map(to_codes, graph_of(coded.model).input_infos(), sample))
            assert _shares(coded.model, codes)[_shares(network, sample) == 0].max() <= least


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
@pytest.mark.parametrize("form", [_given, _of_shown, _of_pairs])
def test_litert_gives_the_same(form: Form, scheme: str) -> None:
    litert = pytest.importorskip("ai_edge_litert.interpreter", reason="ai-edge-litert is not installed")
    found = _quantised(form, scheme, reader="litert")
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


def test_what_readers_quantise_of_masks_is_within_32_bits_and_softmax_that_hides_gets_no_16_bits() -> None:
    """Its table of exponentials ends at exp(-10), which is more than half a code: what is masked would be seen."""
    for reader in (None, "litert"):
        graph = graph_of(_quantised(_given, "int8", reader=reader).model)
        values = _values(graph, _samples(_given, 1, 1)[0])
        casts = [item for item in graph.nodes if item.node.spec.name == "QUANTIZE"]
        assert {graph.tensors[item.outputs[0]].name for item in casts} == {"in0_quantized", "in1_quantized"}
        for item in casts:
            assert np.abs(values[item.inputs[0]] / graph.tensors[item.outputs[0]].quant.scale).max() < 2**30
    network, samples = _network(_given), _samples(_given, 40, 0)
    assert Examination(graph_of(network), samples[:2]).hiding() == {"shares"}
    found = quantize(network, calibration=samples, metric="sqnr", limit=31.0, **only("mixed"))
    precisions = found.verdict["choices"]["precisions"]
    assert precisions
    assert precisions.get("shares") not in ("int16x8", "int16")


@pytest.mark.parametrize("nearest", [0.0, 3000.0])
def test_scores_that_are_far_from_zero_are_no_mask(nearest: float) -> None:
    """Shares of places by their distance: limited where that changes none of them only."""
    net = FloatNet(0)
    distances = net.add("NEG", net.add("SQUARE", net.input(np.zeros((1, ROWS), np.float32))), name="distances")
    module = import_model(export_model(net.module(net.add("SOFTMAX", distances, beta=1.0))))
    rng = np.random.default_rng(0)
    rows = [np.sort(np.sqrt(nearest + rng.uniform(0, 10, ROWS)))[None] for _ in range(8)]
    samples = [[np.concatenate([row[:, 1:], np.full((1, 1), 90.0)], axis=1).astype(np.float32)] for row in rows]
    model = prepare(module)
    found = limited_masks(model, samples)
    assert (found is model) == (nearest > 0)
    for sample in samples:
        np.testing.assert_array_equal(_shares(found.module, sample), _shares(module, sample))
