"""Kinds of outputs: classes, yes/no scores and columns of quantities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.float_models import sqnr_db
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, dense_model, model_bytes
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError, OptionError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.candidates import has_outputs_with_tails, with_output_room
from odc_mlir.quantizer.measurement import Measurement, Powers
from odc_mlir.quantizer.models import normalized, prepare
from odc_mlir.quantizer.outputs import ChannelAxes, Columns, Lost, columns_of, unreached
from odc_mlir.quantizer.policy.verdict import passed_text
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.quant.common.ir import all_ops, quantized_function

COUNT, INPUTS = 64, 12


Samples = list[list[np.ndarray]]


def _head(builder: ModelBuilder, source: int, name: str, weights: np.ndarray, bias: float = 0.0) -> int:
    """A layer ``name`` of these ``weights``, [outputs, inputs], and the same ``bias`` for each output."""
    result = builder.tensor(name, (1, len(weights)))
    arrays = (weights.astype(np.float32), np.full(len(weights), bias, np.float32))
    builder.operator("FULLY_CONNECTED", [source, *(builder.tensor("", a.shape, data=a) for a in arrays)], [result])
    return result


def _trained(classes: int, common: float = 0.0, seed: int = 1) -> np.ndarray:
    """Weights of logits whose sum stays, beside what ``common`` all have, which codes spend their range on."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(classes, INPUTS))
    return np.asarray(weights - weights.mean(axis=0) + common * rng.normal(size=INPUTS))


def _samples() -> Samples:
    rng = np.random.default_rng(2)
    return [[rng.normal(size=(1, INPUTS)).astype(np.float32)] for _ in range(COUNT)]


def _model(
    heads: dict[str, np.ndarray], shares: str | None = None, biases: Mapping[str, float] = MappingProxyType({})
) -> bytes:
    """Layers by name beside each other; ``shares``: one more output, a SOFTMAX of the head with this name."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, INPUTS))
    found = {name: _head(builder, x, name, weights, biases.get(name, 0.0)) for name, weights in heads.items()}
    if shares is not None:
        found["shares"] = builder.tensor("shares", (1, len(heads[shares])))
        builder.operator("SOFTMAX", [found.pop(shares)], [found["shares"]], options={"beta": 1.0})
    return bytes(model_bytes(builder.finish([x], list(found.values()))))


def test_labels_that_do_not_fit_say_which_output_they_are_for() -> None:
    samples, file = _samples(), _model({"few": _trained(3), "many": _trained(9)})
    labels = np.array([int(odc_mlir.run(file, sample)[1].argmax()) for sample in samples])
    said = "labels are compared with output 'few' alone, none of the other 1: "
    with pytest.raises(InputError, match=f"the model's 3 classes 0 to 2; {said}number classes"):
        odc_mlir.quantize(file, calibration=samples, labels=labels, help=False)
    with pytest.raises(InputError, match=f"neither class numbers nor .*; {said}give a whole number"):
        odc_mlir.quantize(file, calibration=samples, labels=np.stack([labels, labels], axis=1), help=False)
    with pytest.raises(InputError, match="3 classes 0 to 2; number classes"):  # there is no other
        odc_mlir.quantize(_model({"few": _trained(3)}), calibration=samples, labels=labels, help=False)


def _quantized(file: bytes, **options: Any) -> tuple[dict[str, Any], np.ndarray]:
    """The verdict, and the share of samples for which each output has its largest element where the float model has."""
    samples = _samples()
    made = odc_mlir.quantize(file, calibration=samples, help=False, **options)
    circle = made.to_circle()
    pairs = [(odc_mlir.run(file, sample), odc_mlir.run(circle, sample)) for sample in samples]
    return made.verdict, np.mean([[a.argmax() == b.argmax() for a, b in zip(*p, strict=True)] for p in pairs], axis=0)


_COMMON = 20.0  # beside which scores differ by few codes


_BOX = np.random.default_rng(5).normal(size=(4, INPUTS)) + np.random.default_rng(6).normal(size=INPUTS)


@pytest.mark.parametrize("first", ["class", "box"])
def test_scores_beside_numbers_are_limited(first: str) -> None:
    heads = {"class": _trained(10), "box": _BOX}
    file = _model({name: heads[name] for name in sorted(heads, key=lambda name: name != first)})
    verdict, _ = _quantized(file)
    assert [(check["metric"], check["output"]) for check in verdict["limits"]] == [
        ("mpeir", None),
        ("top1_decided", None),
    ]
    found = {output["name"]: (output["classifies"], output["top1_match"] is None) for output in verdict["outputs"]}
    assert found == {"class": (True, False), "box": (False, True)}
    remedy = "give labels, or --metric top1" if first == "box" else "give --metric top1"
    said = "output 'box' is not taken for scores of classes, as it is beside others, and the sum of its columns varies"
    assert any(text.startswith(said) and text.endswith(f"if it has such, {remedy}") for text in verdict["findings"])


def test_scores_beside_a_softmax_are_limited() -> None:
    file = _model({"class": _trained(10), "other": _trained(4, seed=3)}, shares="other")
    limits = _quantized(file)[0]["limits"]
    assert {(check["metric"], check["output"]) for check in limits[1:]} == {
        ("top1_decided", "class"),
        ("top1_match", "shares"),
    }


def test_who_asks_for_classes_has_all_outputs_compared_that_may_have_them() -> None:
    """Also those whose values do not show it."""
    file = _model({"class": _trained(10, _COMMON), "other": _trained(4, seed=3)}, shares="other")
    verdict, _ = _quantized(file)
    assert [output["classifies"] for output in verdict["outputs"]] == [False, True]
    assert any("output 'class' is not taken for scores of classes" in text for text in verdict["findings"])
    verdict, alike = _quantized(file, metric="top1", limit=0.97)
    assert [output["classifies"] for output in verdict["outputs"]] == [True, True]
    assert alike[0] < 0.95 < alike[1]
    assert not verdict["passed"]
    assert verdict["metrics"]["top1_match:class"] == verdict["metrics"]["top1_match"] < 0.95
    assert verdict["metrics"]["top1_match:shares"] > 0.95


def _pixels(side: int = 6, channels: int = 4, classes: int = 3) -> tuple[bytes, Samples]:
    """Logits of pixels."""
    builder, rng = ModelBuilder(), np.random.default_rng(3)
    x = builder.tensor("x", (1, side, side, channels))
    weights = rng.normal(size=(classes, 1, 1, channels)).astype(np.float32)
    given = [builder.tensor(n, a.shape, data=a) for n, a in (("w", weights), ("b", np.zeros(classes, np.float32)))]
    y = builder.tensor("y", (1, side, side, classes))
    builder.operator("CONV_2D", [x, *given], [y], options={"stride_h": 1, "stride_w": 1, "padding": "same"})
    samples = [[rng.normal(size=(1, side, side, channels)).astype(np.float32)] for _ in range(24)]
    return bytes(model_bytes(builder.finish([x], [y]))), samples


@pytest.mark.parametrize("metric", ["top1", "top1_decided"])
def test_logits_in_rows_have_an_answer_in_each(metric: str) -> None:
    file, samples = _pixels()
    made = odc_mlir.quantize(file, calibration=samples, help=False, metric=metric)
    circle = made.to_circle()
    alike = np.mean(
        [np.mean(np.equal(*(odc_mlir.run(f, sample)[0].argmax(axis=-1) for f in (file, circle)))) for sample in samples]
    )
    (output,) = made.verdict["outputs"]
    assert (output["classifies"], output["classes"]) == (True, 3)
    assert output["top1_match"] == pytest.approx(alike, abs=0.003)
    (limit,) = made.verdict["limits"]
    assert limit["value"] == pytest.approx(alike, abs=0.02)


def test_rows_of_numbers_are_not_taken_for_scores() -> None:
    """Unless somebody asks for classes."""
    file, samples = _pixels()
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    assert [check["metric"] for check in verdict["limits"]] == ["mpeir"]
    assert [(output["classifies"], output["classes"]) for output in verdict["outputs"]] == [(False, None)]


def test_labels_say_what_the_first_output_is_and_nothing_of_others() -> None:
    samples, file = _samples(), _model({"first": _BOX, "second": _BOX[::-1], "class": _trained(10, seed=8)})
    labels = np.array([int(odc_mlir.run(file, sample)[0].argmax()) for sample in samples])
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    doubted = [text.split("'")[1] for text in verdict["findings"] if "is not taken for scores" in text]
    assert doubted == ["second"]
    assert ("class", True) in [(output["name"], output["classifies"]) for output in verdict["outputs"]]


def test_a_missed_limit_names_the_output_that_is_taken_for_scores() -> None:
    """What all scores have in common takes most of the codes."""
    verdict, alike = _quantized(_model({"box": _BOX, "class": _trained(10)}, biases={"class": 100.0}))
    assert alike[1] < 0.98
    assert [check["metric"] for check in verdict["limits"] if not check["passed"]] == ["top1_decided"]
    said = "output 'class' is taken for scores of classes; if it has numbers, give --metric mpeir"
    assert said in verdict["findings"]


COUNT_YES_SCORES, WIDTH = 32, 8


@cache
def detector(activation: str = "none", *, joined: bool = False, sign: float = 1.0) -> bytes:
    """A score of whether the first two inputs are both large, or where ``joined`` two of them in one output."""
    rng, builder = np.random.default_rng(2), ModelBuilder()
    x, scores = builder.tensor("x", (1, WIDTH)), []
    for name in ("a", "b") if joined else ("a",):
        logit, score = builder.tensor(f"{name}/logit", (1, 1)), builder.tensor(f"{name}/score", (1, 1))
        weights = rng.normal(size=(1, WIDTH)).astype(np.float32)
        weights[0, :2] = sign * rng.uniform(3.0, 3.2, 2)
        bias = builder.tensor(f"{name}/b", (1,), data=np.float32([-4.2 * sign]))
        constant = builder.tensor(f"{name}/w", weights.shape, data=weights)
        options = {"fused_activation_function": activation}
        builder.operator("FULLY_CONNECTED", [x, constant, bias], [logit], options=options)
        builder.operator("LOGISTIC", [logit], [score])
        scores.append(score)
    if joined:
        both = builder.tensor("both", (1, 2))
        builder.operator("CONCATENATION", scores, [both], options={"axis": 1})
        scores = [both]
    model = builder.finish([x], scores)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model))


def scenes(large: int) -> list[list[np.ndarray]]:
    """Samples of which so many of the first two inputs are large."""
    rng = np.random.default_rng(4)
    made = [rng.uniform(-0.1, 0.1, (1, WIDTH)).astype(np.float32) for _ in range(COUNT_YES_SCORES)]
    for number, x in enumerate(made):
        x[0, : 2 if large == 2 else 0] += 1.0
        x[0, number % 2] += large == 1
    return [[x] for x in made]


def _largest(made: Any) -> float:
    return max(float(odc_mlir.run(made.to_circle(), x)[0].max()) for x in scenes(2))


@pytest.mark.parametrize("joined", [False, True])
def test_a_detector_that_can_never_fire_does_not_pass(joined: bool) -> None:
    file = detector(joined=joined)
    assert max(float(odc_mlir.run(file, x)[0].max()) for x in scenes(1)) < 0.4
    made = odc_mlir.quantize(file, calibration=scenes(1), help=False)
    (problem,) = made.verdict["problems"]
    assert problem.startswith(f"scores of output '{'both' if joined else 'a/score'}' are 0.5 at most on any input")
    assert (made.passed, _largest(made)) == (False, 0.5)
    assert all(check["passed"] for check in made.verdict["limits"])


def test_an_alarm_that_can_never_be_off_does_not_pass() -> None:
    made = odc_mlir.quantize(detector(sign=-1.0), calibration=scenes(1), help=False)
    assert [text.split(":")[0] for text in made.verdict["problems"]] == [
        "scores of output 'a/score' are 0.5 at least on any input"
    ]


@pytest.mark.parametrize("joined", [False, True])
def test_room_lets_scores_reach_what_no_sample_has(joined: bool) -> None:
    made = odc_mlir.quantize(detector(joined=joined), calibration=scenes(1), help=False, output_room="on")
    verdict = made.verdict
    assert (verdict["passed"], verdict["certain"], verdict["problems"]) == (True, False, [])
    assert _largest(made) > 0.8
    assert "in no sample is a score of output " in passed_text(verdict)


def test_help_gives_such_room() -> None:
    """The network may not reach the other side within its ranges, which such samples do not show."""
    made = odc_mlir.quantize(detector(), calibration=scenes(1), mixed="off")
    assert (made.passed, made.verdict["certain"], made.verdict["choices"]["output_room"]) == (True, False, True)
    assert _largest(made) > 0.8


def test_samples_on_both_sides_leave_nothing_to_say() -> None:
    made = odc_mlir.quantize(detector(), calibration=[*scenes(1), *scenes(2)], help=False)
    assert (made.passed, made.verdict["samples"]["one_sided"], _largest(made) > 0.8) == (True, [], True)


def test_scores_that_the_model_itself_keeps_on_one_side_are_none() -> None:
    made = odc_mlir.quantize(detector("relu"), calibration=scenes(2), help=False)
    assert (made.verdict["problems"], made.verdict["samples"]["one_sided"]) == ([], [])


def test_values_of_16_bits_reach_both_sides() -> None:
    made = odc_mlir.quantize(detector(), calibration=scenes(1), help=False, scheme="int16x8")
    assert made.verdict["problems"] == []
    assert not made.verdict["certain"]


@pytest.mark.parametrize("scale", [1e4, 1e9, 1e30])
def test_logits_may_be_as_large_as_they_like(scale: float) -> None:
    """Their exponentials are no numbers."""
    samples = [[x * np.float32(scale)] for (x,) in scenes(1)]
    problems = odc_mlir.quantize(detector(), calibration=samples, help=False).verdict["problems"]
    assert [text for text in problems if text.startswith("scores of output 'a/score' are ")]


COUNT_GUESSED_CLASSES, CLASSES = 48, 6


@cache
def numbers() -> tuple[bytes, Samples]:
    """Six columns that differ little beside what they have in common; the last is never the largest."""
    rng = np.random.default_rng(2)
    own = rng.normal(size=(CLASSES, 8)) + 3.0 * rng.normal(size=8)
    last = np.where(np.arange(CLASSES) == CLASSES - 1, -12.0, 0.0)
    file = dense_model(np.eye(8), own, biases=(np.zeros(8), last), names=("hidden", "y"))
    return file, [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT_GUESSED_CLASSES)]


def _found(**options: Any) -> dict[str, Any]:
    file, samples = numbers()
    return odc_mlir.quantize(file, calibration=samples, help=False, **options).verdict


def _tells_of_classes(verdict: dict[str, Any]) -> bool:
    return any("answers 1 of 6 classes for no sample" in text for text in verdict["findings"])


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, True), ({"metric": "top1"}, True), ({"metric": "mpeir"}, False), ({"limit": 0.04}, False)],
)
def test_nothing_is_said_of_classes_where_limits_of_numbers_are_given(options: dict[str, Any], told: bool) -> None:
    assert _tells_of_classes(_found(**options)) is told


RNG = np.random.default_rng(7)


def axis_of(values: np.ndarray, known: bool | None = None) -> int:
    """The axis of the columns of samples [samples, *output]."""
    return columns_of(list(values.astype(np.float32)), lambda _: known)[0].axis


def varied(*sizes: np.ndarray, samples: int = 16) -> np.ndarray:
    """Samples whose elements vary by the product of ``sizes``, to broadcast."""
    whole = np.prod(np.broadcast_arrays(*sizes), axis=0)
    return np.asarray(whole * RNG.normal(size=(samples, *whole.shape)))


@pytest.mark.parametrize("shape", [(1, 3, 6, 6), (1, 3, 8), (1, 3, 1)])
@pytest.mark.parametrize("units", [(0.001, 1.0, 1000.0), (100.0, 100.0, 0.01)])
def test_columns_are_along_the_axis_that_tells_the_sizes(shape: tuple[int, ...], units: tuple[float, ...]) -> None:
    sizes = np.array(units).reshape(-1, *[1] * (len(shape) - 2))
    values = varied(np.ones(shape), sizes)
    assert axis_of(values) == 1
    assert axis_of(values, known=False) == -1
    assert axis_of(np.moveaxis(values, 2, -1)) == -1


def test_columns_of_one_size_are_those_of_the_last_axis() -> None:
    assert axis_of(varied(np.ones((1, 3, 6, 6)))) == -1


def test_units_along_the_last_axis_are_told_by_it() -> None:
    assert axis_of(varied(np.ones((1, 6, 6, 3)), np.array([0.001, 1.0, 1000.0]))) == -1


def test_rows_of_an_image_are_no_columns() -> None:
    """What lies at the edge is small, and differs as much along it."""
    edge = np.array([0.01, 0.3, 1.0, 1.0, 1.0, 1.0, 0.3, 0.01])
    assert axis_of(varied(np.ones((1, 8, 8, 1)), edge[:, None, None], edge[:, None])) == -1


@pytest.mark.parametrize(("known", "axis"), [(None, -1), (True, 1)])
def test_many_places_are_columns_only_where_channels_are(known: bool | None, axis: int) -> None:
    assert axis_of(varied(np.ones((1, 40, 1)), np.geomspace(1e-5, 1e5, 40)[:, None]), known) == axis


def graph(layer: str, *moves: tuple[str, tuple[int, ...], tuple[int, ...]]) -> Graph:
    """A layer of three channels, and operators with their shape and what they move by."""
    builder = ModelBuilder()
    shape, weights = {"CONV_2D": ((1, 4, 4, 2), (3, 1, 1, 2)), "FULLY_CONNECTED": ((1, 2), (24, 2))}[layer]
    x, w = builder.tensor("x", shape), builder.tensor("w", weights, data=np.ones(weights, np.float32))
    value = builder.tensor("layer", (*shape[:-1], weights[0]))
    options = {"padding": "valid", "stride_h": 1, "stride_w": 1} if layer == "CONV_2D" else {}
    builder.operator(layer, [x, w, -1], [value], options=options)
    for at, (kind, result, by) in enumerate(moves):
        made = builder.tensor(f"{kind}{at}", result)
        more = [builder.tensor(f"by{at}", (len(by),), "int32", data=np.array(by, np.int32))] if by else []
        builder.operator(kind, [value, *more], [made])
        value = made
    return build_graph(builder.finish([x], [value]))


FIRST = ("TRANSPOSE", (1, 3, 4, 4), (0, 3, 1, 2))


@pytest.mark.parametrize(
    ("layer", "moves", "axes"),
    [
        ("CONV_2D", [], {3}),
        ("CONV_2D", [FIRST], {1}),
        ("CONV_2D", [FIRST, ("RELU", (1, 3, 4, 4), ())], {1}),
        ("CONV_2D", [("RESHAPE", (1, 48, 1), (1, 48, 1))], {2}),
        ("CONV_2D", [("RESHAPE", (1, 16, 3), (1, 16, 3))], {2}),
        ("FULLY_CONNECTED", [("RESHAPE", (1, 3, 8), (1, 3, 8))], {1, 2}),
    ],
)
def test_axes_of_channels_are_followed_through_what_moves_them(layer: str, moves: list, axes: set[int]) -> None:
    made = graph(layer, *moves)
    shape = made.output_infos()[0].static_shape
    found = {axis for axis in range(1, len(shape)) if ChannelAxes(made).are_along(made.outputs[0], shape, axis)}
    assert found == axes


def test_channels_behind_what_computes_are_not_known() -> None:
    made = graph("CONV_2D", ("SUM", (1, 4, 3), (2,)))
    assert ChannelAxes(made).are_along(made.outputs[0], (1, 4, 3), 1) is None


def test_a_column_gets_the_room_that_the_farthest_of_them_has_needed_but_codes_to_go_with_it() -> None:
    even, far = np.array([-1.0, 1.0] * 8), np.r_[np.zeros(14), -3.0, 3.0]
    low, high = Columns.of([row.reshape(1, 2) for row in np.stack([10.0 + even, far], axis=1)]).wider_ranges
    np.testing.assert_allclose(
        [low, high], [[10.0 - 2.0, -3.0], [10.0 + 2.0, 3.0]]
    )  # sqrt(8) deviations, twice at most
    low, high = Columns.of([row.reshape(1, 2) for row in np.stack([even, np.full(16, 5.0)], axis=1)]).wider_ranges
    np.testing.assert_allclose([low, high], [[-1.0, 5.0], [1.0, 5.0]])  # what never varies tells nothing


def test_what_is_lost_is_named_by_axis_and_place() -> None:
    assert Lost([0, 2], 1, 3).text("y").startswith("places 0, 2 along axis 1 of output 'y' (2 of 3) vary in")
    assert Lost([1], -1, 3).text("y").startswith("column 1 of output 'y' (1 of 3) varies in")


def test_who_has_an_output_of_its_own_is_not_told_to_get_one() -> None:
    assert "outputs of their own" in Lost([0], -1, 2).text("y")
    assert "of their own" not in Lost([0], -1, 1).text("y")


def test_shares_are_not_to_be_scaled() -> None:
    for places, columns, what in (([0], 1, "it is"), ([1], 3, "it is"), ([0, 2], 3, "they are")):
        text = Lost(places, -1, columns, are_shares=True).text("y")
        assert text.endswith(f"quantised one: give samples for which {what} larger, or the last layer more bits")


@pytest.mark.parametrize(("tail", "are_shares"), [("SOFTMAX", True), ("LOGISTIC", True), ("NEG", False)])
def test_what_gives_columns_tells_whether_they_are_shares(tail: str, are_shares: bool) -> None:
    builder = ModelBuilder()
    x, y, z = (builder.tensor(name, (1, 3)) for name in "xyz")
    builder.operator("NEG", [x], [y])
    builder.operator(tail, [y], [z], options={"beta": 1.0} if tail == "SOFTMAX" else {})
    samples = [[RNG.normal(size=(1, 3)).astype(np.float32)] for _ in range(8)]
    reference = Reference(build_graph(builder.finish([x], [z])), samples)
    silent = ModelBuilder()
    x, z = silent.tensor("x", (1, 3)), silent.tensor("z", (1, 3))
    zeros = silent.tensor("zeros", (1, 3), data=np.zeros((1, 3), np.float32))
    silent.operator("MUL", [x, zeros], [z])
    (lost,) = reference.measure(build_graph(silent.finish([x], [z]))).lost[0]
    assert (lost.places, lost.are_shares) == ([0, 1, 2], are_shares)


def measured(noise_db: tuple[float, float], lost: list[Lost]) -> Measurement:
    """What is measured of an output of two columns with these SQNR, the same for all samples."""
    noise = np.repeat(10.0 ** (-np.array(noise_db)[:, None] / 10.0), 8, axis=1)
    powers = Powers(np.ones((2, 8)), noise)
    kinds = [[item for item in lost if item.in_part == in_part] for in_part in (False, True)]
    return Measurement([], powers, powers, ["y"], lost=kinds[:1], blurred=kinds[1:])


@pytest.mark.parametrize(("cost_db", "kept"), [(1.0, True), (4.0, False)])
@pytest.mark.parametrize("in_part", [False, True])
def test_columns_that_come_back_may_cost_others_half_a_bit(cost_db: float, kept: bool, in_part: bool) -> None:
    before, after = (0.0, 40.0), (35.0, 40.0 - cost_db)
    lost = measured(before, [Lost([0], 1, 2, in_part=in_part)])
    assert measured(after, []).better_than(lost, 0.1) == kept
    assert not measured(after, []).better_than(measured(before, []), 0.1)
    assert not measured(after, [Lost([1], 1, 2)]).better_than(lost, 0.1)


@pytest.mark.parametrize(("shape", "axis"), [((1, 10), -1), ((1, 7, 3), -1), ((1, 3, 50), 1), ((1, 20, 1), -1)])
def test_samples_taken_together_are_these_one_by_one(shape: tuple[int, ...], axis: int) -> None:
    random = np.random.default_rng(0)
    expected = [random.standard_normal(shape).astype(np.float32) for _ in range(9)]
    found = [a + np.float32(0.1) for a in expected]
    found[4].flat[0] = np.inf
    together, one_by_one = (Columns.of(expected, axis).like() for _ in range(2))
    together.add(found, expected)
    for a, b in zip(found, expected, strict=True):
        one_by_one.add([a], [b])
    for name in ("low", "high", "values", "total", "squares", "noise"):
        np.testing.assert_array_equal(getattr(together, name), getattr(one_by_one, name))


SIZES = np.array([120.0, 10.0, 8.0, 5.0, 3.0, 2.0], np.float32)


PLAIN: dict[str, Any] = {"ranges": "minmax", "equalize": "none", "rounding": "off", "correction": "off", "mixed": "off"}


@cache
def spectra(first: float = float(SIZES[0])) -> tuple[bytes, list[list[np.ndarray]]]:
    """A convolution of images [1, 8, 6, 1] whose columns have these sizes, as large in its sums, and a layer behind."""
    rng = np.random.default_rng(5)
    builder = ModelBuilder()

    def constant(name: str, *shape: int, by: float | np.ndarray = 1.0) -> int:
        return builder.tensor(name, shape, data=(rng.normal(size=shape) / by).astype(np.float32))

    x, hidden, y = (builder.tensor(n, s) for n, s in (("x", (1, 8, 6, 1)), ("h", (1, 6, 1, 8)), ("y", (1, 6, 1, 3))))
    options = {"padding": "valid", "stride_h": 1, "stride_w": 1}
    weights = constant("w", 8, 3, 6, 1, by=SIZES[:, None])
    builder.operator("CONV_2D", [x, weights, constant("b", 8)], [hidden], options=options)
    builder.operator("CONV_2D", [hidden, constant("v", 3, 1, 1, 8), constant("c", 3)], [y], options=options)
    sizes = np.array([first, *SIZES[1:]], np.float32)[:, None]
    samples = [[(sizes * rng.uniform(-1, 1, (1, 8, 6, 1))).astype(np.float32)] for _ in range(32)]
    return bytes(write_model(builder.finish([x], [y]))), samples


def test_the_function_stays_what_it_was() -> None:
    file, samples = spectra()
    base = prepare(import_model(read_model(file)))
    made = normalized(base, samples, columns=True)
    assert made is not None
    assert made.mends_columns
    for sample in samples[:4]:
        (expected,), (found,) = (HostExecutor(model.graph).run(sample) for model in (base, made))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_even_columns_stay() -> None:
    file, samples = spectra(12.0)
    base = prepare(import_model(read_model(file)))
    assert normalized(base, samples, columns=True) is None
    assert normalized(prepare(import_model(read_model(spectra()[0]))), spectra()[1]) is None


def test_small_columns_keep_codes() -> None:
    file, samples = spectra()
    helped = odc_mlir.quantize(file, calibration=samples, **PLAIN)
    plain = odc_mlir.quantize(file, calibration=samples, **PLAIN, normalize="off")
    assert helped.verdict["choices"]["normalize"] == "inputs"
    assert helped.verdict["scheme"]["x/split"] == "float"
    assert sqnr_db(file, helped, samples) > sqnr_db(file, plain, samples) + 3.0


@pytest.mark.parametrize("scheme", ["int16x8", "int8_wo"])
def test_other_schemes_need_no_split(scheme: str) -> None:
    file, samples = spectra()
    options = {key: value for key, value in PLAIN.items() if scheme == "int16x8" or key not in ("ranges", "equalize")}
    made = odc_mlir.quantize(file, scheme=scheme, calibration=samples, **options)
    assert "x/split" not in made.verdict["scheme"]


WIDTH_OUTPUT_ROOM = 8


def _rates() -> bytes:
    """A rate, the exponential of a small network of the input."""
    builder, rng = ModelBuilder(), np.random.default_rng(1)
    first = at = builder.tensor("x", (1, WIDTH_OUTPUT_ROOM))
    for number, (given, size) in enumerate(((WIDTH_OUTPUT_ROOM, 16), (16, 1))):
        weights = (rng.normal(size=(size, given)) / np.sqrt(given)).astype(np.float32)
        constant = builder.tensor(f"w{number}", weights.shape, data=weights)
        made = builder.tensor(f"y{number}", (1, size))
        options = {"fused_activation_function": "relu" if number == 0 else "none"}
        builder.operator("FULLY_CONNECTED", [at, constant, -1], [made], options=options)
        at = made
    rate = builder.tensor("rate", (1, 1))
    builder.operator("EXP", [at], [rate])
    return bytes(model_bytes(builder.finish([first], [rate])))


def _samples_output_room(count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    return [[(1.5 * rng.normal(size=(1, WIDTH_OUTPUT_ROOM))).astype(np.float32)] for _ in range(count)]


def _made(seed: int = 2, **options: Any) -> Any:
    return quantize(_rates(), calibration=_samples_output_room(48, seed), mixed="off", **options)


def test_room_for_rare_values_pays_on_samples_that_were_not_seen() -> None:
    """On the average: samples that happen to have the largest of all need none."""
    unseen, gains = _samples_output_room(500, 99), []
    for seed in range(3):
        without, wanted = (_made(seed, output_room=how, help=False) for how in ("off", "on"))
        assert [made.verdict["choices"]["output_room"] for made in (without, wanted)] == [False, True]
        dbs = [sqnr_db(_rates(), made, unseen) for made in (without, wanted)]
        gains.append(dbs[1] - dbs[0])
    assert np.mean(gains) > 3.0


def test_help_tries_whether_room_is_worth_its_steps() -> None:
    made = _made()
    (step,) = (step for step in made.verdict["steps"] if step["step"] == "output room")
    assert made.verdict["choices"]["output_room"] == step["kept"]


def test_the_interval_tells_that_rare_values_are_cut_off() -> None:
    """Of a model whose range ends where samples do, none of which shows what lies beyond."""
    made = _made(output_room="off", headroom=0.0)
    low, high = made.verdict["intervals"]["sqnr_db"]
    assert low <= sqnr_db(_rates(), made, _samples_output_room(2000, 99)) <= high


def test_what_is_asked_for_is_not_tried() -> None:
    for made in (_made(output_room="off"), _made(help=False)):
        assert not any(step["step"] == "output room" for step in made.verdict["steps"])
        assert made.verdict["choices"]["output_room"] is False


def test_weights_alone_have_no_ranges() -> None:
    with pytest.raises(OptionError, match="touches weights only"):
        _made(scheme="int8_wo", output_room="on")


@pytest.mark.parametrize(
    ("kind", "scores", "most"),
    [("EXP", 1.0, 60.0), ("LOGISTIC", 1.0, 6.3), ("TANH", 1.0, 5.0), ("SOFTMAX", 0.95, 5.0), ("SOFTMAX", 0.8, 60.0)],
)
def test_what_saturates_gets_no_room_beyond(kind: str, scores: float, most: float) -> None:
    """Codes of 0 to 1 are the same from a logit of 6.2 on; 5 was seen. SOFTMAX has one scale, but no more to tell where
    many scores are nearly one."""
    module = _scored([kind])
    function = quantized_function(module)
    assert function is not None
    (name,) = (value_name(op.results[0]) for op in all_ops(function) if op.SPEC.name == "FULLY_CONNECTED")
    (result,) = (value_name(op.results[0]) for op in all_ops(function) if op.SPEC.name == kind)
    largest = np.array([0.1] * 12 + [0.5, 1.0, 2.0, 5.0])
    seen = {name: TensorStatistics.of_extremes(-largest / 5, largest), result: _seen_scores(scores)}
    found = with_output_room(function, {name: (-1.0, 5.0)}, seen, 8)
    assert (found[name][1] > 6.3) == (most == 60.0)
    assert 5.0 <= found[name][1] <= most


@pytest.mark.parametrize(
    ("kinds", "score", "takes"),
    [(("SOFTMAX",), 0.95, False), (("SOFTMAX",), 0.8, True), (("SOFTMAX", "EXP"), 0.95, True), ((), 0.95, True)],
)
def test_scores_of_softmax_alone_ask_for_no_room(kinds: tuple[str, ...], score: float, takes: bool) -> None:
    module = _scored(kinds)
    function = quantized_function(module)
    assert function is not None
    seen = {value_name(op.results[0]): _seen_scores(score) for op in all_ops(function)}
    assert has_outputs_with_tails(module, seen) is takes
    assert has_outputs_with_tails(module, {})


def _scored(kinds: Sequence[str]) -> ModuleOp:
    net = FloatNet(1)
    value = net.add("FULLY_CONNECTED", net.real(1, 8), net.const(np.ones((4, 8))), None)
    for kind in kinds:
        value = net.add(kind, value)
    return net.module(value)


def _seen_scores(largest: float) -> TensorStatistics:
    """A third of the samples has so large a score."""
    return TensorStatistics.of_extremes(np.zeros(16), np.array([0.5] * 10 + [largest] * 6))


def test_only_columns_that_vary_are_lost() -> None:
    """Columns: good, lost in part, lost by noise, constant in the codes, and noisy but with little variation."""
    base, sign = np.linspace(-1.0, 1.0, 64), np.tile([1.0, -1.0], 32)
    expected = np.stack([base, base, base, base, 100.0 + 0.1 * base], axis=1).astype(np.float32)
    noise = np.sqrt(np.array([0.01, 0.3, 0.8, 0.0, 0.3]) * expected.var(axis=0))
    coded = (expected + sign[:, np.newaxis] * noise).astype(np.float32)
    coded[:, 3] = 0.25
    columns = Columns.of([row[np.newaxis] for row in expected])
    found = columns.like()
    found.add([row[np.newaxis] for row in coded], [row[np.newaxis] for row in expected])
    assert columns.lost(found) == ([2, 3], [1])
    assert columns.lost(found, single=False) == ([3], [])


@pytest.mark.parametrize(
    ("zero", "found"), [(None, []), (0, []), (127, ["0.5 at most on any input"]), (-128, ["0.5 at least on any input"])]
)
def test_scores_on_one_side_of_a_half(zero: int | None, found: list[str]) -> None:
    builder = ModelBuilder()
    dtype, quant, last = ("float32", None, None) if zero is None else ("int8", (0.1, zero), (1 / 256, -128))
    x, total = (builder.tensor(name, (1, 4), dtype, quant=quant) for name in ("x", "total"))
    y = builder.tensor("y", (1, 4), dtype, quant=last)
    builder.operator("ADD", [x, x], [total])
    builder.operator("LOGISTIC", [total], [y])
    texts = unreached(build_graph(builder.finish([x], [y])))
    assert [text.partition(" are ")[2].partition(":")[0] for text in texts] == found
