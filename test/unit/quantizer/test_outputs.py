"""Kinds of outputs: classes, yes/no scores and columns of quantities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.float_models import normal, sqnr_db
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, Samples, dense_model
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import InputError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.quantizer.candidates import has_outputs_with_tails, with_output_room
from odc_mlir.quantizer.measurement import Measurement, Powers
from odc_mlir.quantizer.models import normalized, prepare
from odc_mlir.quantizer.outputs import ChannelAxes, Columns, Lost, columns_of, unreached
from odc_mlir.quantizer.policy.verdict import passed_text
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.quant.common.ir import all_ops, quantized_function

INPUTS = 12
SAMPLES: Samples = normal(np.random.default_rng(2), 64, 1, INPUTS)


def _trained(classes: int, common: float = 0.0, seed: int = 1) -> np.ndarray:
    """Weights of logits whose sum stays, beside what ``common`` all have, which codes spend their range on."""
    rng = np.random.default_rng(seed)
    weights = rng.normal(size=(classes, INPUTS))
    return np.asarray(weights - weights.mean(axis=0) + common * rng.normal(size=INPUTS))


@cache
def _model(*names: str) -> bytes:
    """Layers beside each other; ``shares`` is a SOFTMAX of one."""
    builder = ModelBuilder()
    x, found = builder.tensor("x", (1, INPUTS)), []
    for name in names:
        weights, bias = HEADS[name]
        layer = "other" if name == "shares" else name.partition("/")[0]
        found.append(builder.dense(layer, x, weights, np.full(len(weights), bias)))
        if name == "shares":
            found[-1] = builder.made(name, (1, len(weights)), "SOFTMAX", found[-1], beta=1.0)
    return builder.file([x], found)


_BOX = np.random.default_rng(5).normal(size=(4, INPUTS)) + np.random.default_rng(6).normal(size=INPUTS)
HEADS = {
    "few": (_trained(3), 0.0),
    "many": (_trained(9), 0.0),
    "class": (_trained(10), 0.0),
    "class/common": (_trained(10, 20.0), 0.0),  # beside which scores differ by few codes
    "class/offset": (_trained(10), 100.0),
    "class/other": (_trained(10, seed=8), 0.0),
    "shares": (_trained(4, seed=3), 0.0),
    "box": (_BOX, 0.0),
    "second": (_BOX[::-1], 0.0),
}


def _quantized(*names: str, **options: Any) -> tuple[dict[str, Any], np.ndarray]:
    file = _model(*names)
    made = odc_mlir.quantize(file, calibration=SAMPLES, help=False, **options)
    circle = made.to_circle()
    pairs = [(odc_mlir.run(file, sample), odc_mlir.run(circle, sample)) for sample in SAMPLES]
    return made.verdict, np.mean([[a.argmax() == b.argmax() for a, b in zip(*p, strict=True)] for p in pairs], axis=0)


def _answers(file: bytes, output: int) -> np.ndarray:
    return np.array([int(odc_mlir.run(file, sample)[output].argmax()) for sample in SAMPLES])


def test_labels_that_do_not_fit_say_which_output_they_are_for() -> None:
    labels = _answers(_model("few", "many"), 1)
    said = "labels are compared with output 'few' alone, none of the other 1: "
    for names, given, text in (
        (("few", "many"), labels, f"the model's 3 classes 0 to 2; {said}number classes"),
        (
            ("few", "many"),
            np.stack([labels, labels], axis=1),
            f"neither class numbers nor .*; {said}give a whole number",
        ),
        (("few",), labels, "3 classes 0 to 2; number classes"),  # there is no other
    ):
        with pytest.raises(InputError, match=text):
            odc_mlir.quantize(_model(*names), calibration=SAMPLES, labels=given, help=False)


@pytest.mark.parametrize("first", ["class", "box"])
def test_scores_beside_numbers_are_limited(first: str) -> None:
    verdict, _ = _quantized(first, "box" if first == "class" else "class")
    limits = [(check["metric"], check["output"]) for check in verdict["limits"]]
    assert limits == [("mpeir", None), ("top1_decided", None)]
    found = {output["name"]: (output["classifies"], output["top1_match"] is None) for output in verdict["outputs"]}
    assert found == {"class": (True, False), "box": (False, True)}
    remedy = "give labels, or --metric top1" if first == "box" else "give --metric top1"
    said = "output 'box' is treated as numbers, not class scores, because there are other outputs, and the sum"
    assert any(
        text.startswith(said) and text.endswith(f"if it has class scores, {remedy}") for text in verdict["findings"]
    )


def test_scores_beside_a_softmax_are_limited_and_all_that_may_be_scores_where_classes_are_asked_for() -> None:
    limits = _quantized("class", "shares")[0]["limits"]
    found = {(check["metric"], check["output"]) for check in limits[1:]}
    assert found == {("top1_decided", "class"), ("top1_match", "shares")}
    # Values may not show that an output has scores.
    verdict, _ = _quantized("class/common", "shares")
    assert [output["classifies"] for output in verdict["outputs"]] == [False, True]
    assert any("output 'class' is treated as numbers, not class scores" in text for text in verdict["findings"])
    verdict, alike = _quantized("class/common", "shares", metric="top1", limit=0.97)
    assert [output["classifies"] for output in verdict["outputs"]] == [True, True]
    assert alike[0] < 0.95 < alike[1]
    assert not verdict["passed"]
    assert verdict["metrics"]["top1_match:class"] == verdict["metrics"]["top1_match"] < 0.95
    assert verdict["metrics"]["top1_match:shares"] > 0.95


def test_labels_say_what_the_first_output_is_and_nothing_of_others() -> None:
    names = ("box", "second", "class/other")
    verdict, _ = _quantized(*names, labels=_answers(_model(*names), 0))
    doubted = [text.split("'")[1] for text in verdict["findings"] if "is treated as numbers, not class scores" in text]
    assert doubted == ["second"]
    assert ("class", True) in [(output["name"], output["classifies"]) for output in verdict["outputs"]]
    # What all scores have in common takes most of the codes.
    verdict, alike = _quantized("box", "class/offset")
    assert alike[1] < 0.98
    assert [check["metric"] for check in verdict["limits"] if not check["passed"]] == ["top1_decided"]
    said = "output 'class' is treated as class scores; if it holds other numbers, give --metric mpeir"
    assert said in verdict["findings"]


@cache
def detector(activation: str = "none", *, joined: bool = False, sign: float = 1.0) -> bytes:
    """A score of whether the first two inputs are both large, or where ``joined`` two of them in one output."""
    rng, builder = np.random.default_rng(2), ModelBuilder()
    x, scores = builder.tensor("x", (1, 8)), []
    for name in ("a", "b") if joined else ("a",):
        weights = rng.normal(size=(1, 8))
        weights[0, :2] = sign * rng.uniform(3.0, 3.2, 2)
        logit = builder.dense(f"{name}/logit", x, weights, [-4.2 * sign], fused_activation_function=activation)
        scores.append(builder.made(f"{name}/score", (1, 1), "LOGISTIC", logit))
    if joined:
        scores = [builder.made("both", (1, 2), "CONCATENATION", *scores, axis=1)]
    return builder.file([x], scores)


def scenes(large: int) -> Samples:
    """Samples of which so many of the first two inputs are large."""
    rng = np.random.default_rng(4)
    made = [rng.uniform(-0.1, 0.1, (1, 8)).astype(np.float32) for _ in range(32)]
    for number, x in enumerate(made):
        x[0, : 2 if large == 2 else 0] += 1.0
        x[0, number % 2] += large == 1
    return [[x] for x in made]


def detecting(file: bytes, samples: Samples, **options: Any) -> tuple[Quantized, float]:
    made = odc_mlir.quantize(file, calibration=samples, **{"help": False, **options})
    return made, max(float(odc_mlir.run(made.to_circle(), x)[0].max()) for x in scenes(2))


@pytest.mark.parametrize("joined", [False, True])
def test_a_detector_that_can_never_fire_does_not_pass_and_room_lets_it(joined: bool) -> None:
    file = detector(joined=joined)
    assert max(float(odc_mlir.run(file, x)[0].max()) for x in scenes(1)) < 0.4
    made, largest = detecting(file, scenes(1))
    (problem,) = made.verdict["problems"]
    assert problem.startswith(f"scores of output '{'both' if joined else 'a/score'}' are 0.5 at most on any input")
    assert (made.passed, largest) == (False, 0.5)
    assert all(check["passed"] for check in made.verdict["limits"])
    # The ranges may not reach the other side, which is not shown.
    helped: dict[str, Any] = {"help": True, "mixed": "off"}
    for options in ({"output_room": "on"}, *([] if joined else [helped])):
        made, largest = detecting(file, scenes(1), **options)
        assert (made.passed, made.verdict["certain"], made.verdict["problems"]) == (True, False, [])
        assert (largest > 0.8, made.verdict["choices"]["output_room"]) == (True, True)
        assert "all samples have scores of output " in passed_text(made.verdict)


def test_samples_on_both_sides_and_scores_that_the_model_keeps_on_one_leave_nothing_to_say() -> None:
    for scheme in ("int8", "int16x8"):
        made, largest = detecting(detector(), [*scenes(1), *scenes(2)], scheme=scheme)
        found = made.verdict["samples"]
        assert (made.passed, made.verdict["certain"], found["telling"], found["one_sided"]) == (True, True, True, [])
        assert largest > 0.8
        assert made.verdict["outputs"][0]["r2"] > 0.99
    made, _ = detecting(detector("relu"), scenes(2))
    assert (made.verdict["problems"], made.verdict["samples"]["one_sided"]) == ([], [])
    made, _ = detecting(detector(), scenes(1), scheme="int16x8")  # whose values reach both sides
    assert (made.verdict["problems"], made.verdict["certain"]) == ([], False)


@pytest.mark.parametrize(("scale", "sign"), [(1.0, -1.0), (1e4, 1.0), (1e9, 1.0), (1e30, 1.0)])
def test_an_alarm_that_can_never_be_off_does_not_pass(scale: float, sign: float) -> None:
    samples = [[x * np.float32(scale)] for (x,) in scenes(1)]
    problems = odc_mlir.quantize(detector(sign=sign), calibration=samples, help=False).verdict["problems"]
    said = [text.split(":")[0] for text in problems if text.startswith("scores of output ")]
    assert said == ["scores of output 'a/score' are 0.5 at least on any input"]
    assert len(problems) == (1 if sign < 0 else 2)


@pytest.mark.parametrize(
    ("options", "told"),
    [({}, True), ({"metric": "top1"}, True), ({"metric": "mpeir"}, False), ({"limit": 0.04}, False)],
)
def test_nothing_is_said_of_classes_where_limits_of_numbers_are_given(options: dict[str, Any], told: bool) -> None:
    """Six columns that differ little beside what they have in common; the last is never the largest."""
    rng = np.random.default_rng(2)
    own = rng.normal(size=(6, 8)) + 3.0 * rng.normal(size=8)
    biases = (np.zeros(8), np.array([0.0] * 5 + [-12.0]))
    file = dense_model(np.eye(8), own, biases=biases, names=("hidden", "y"))
    findings = odc_mlir.quantize(file, calibration=normal(rng, 48, 1, 8), help=False, **options).verdict["findings"]
    assert any("answers 1 of 6 classes for no sample" in text for text in findings) is told


RNG = np.random.default_rng(7)


def axis_of(values: np.ndarray, known: bool | None = None) -> int:
    return columns_of(list(values.astype(np.float32)), lambda _: known)[0].axis


def varied(*sizes: np.ndarray) -> np.ndarray:
    """Samples whose elements vary by the product of ``sizes``, to broadcast."""
    whole = np.prod(np.broadcast_arrays(*sizes), axis=0)
    return np.asarray(whole * RNG.normal(size=(16, *whole.shape)))


@pytest.mark.parametrize("shape", [(1, 3, 6, 6), (1, 3, 8), (1, 3, 1)])
@pytest.mark.parametrize("units", [(0.001, 1.0, 1000.0), (100.0, 100.0, 0.01)])
def test_columns_are_along_the_axis_that_tells_the_sizes(shape: tuple[int, ...], units: tuple[float, ...]) -> None:
    values = varied(np.ones(shape), np.array(units).reshape(-1, *[1] * (len(shape) - 2)))
    assert axis_of(values) == 1
    assert axis_of(values, known=False) == -1
    assert axis_of(np.moveaxis(values, 2, -1)) == -1


EDGE = np.array([0.01, 0.3, 1.0, 1.0, 1.0, 1.0, 0.3, 0.01])


@pytest.mark.parametrize(
    ("sizes", "known", "axis"),
    [
        ([np.ones((1, 3, 6, 6))], None, -1),  # of one size
        ([np.ones((1, 6, 6, 3)), np.array([0.001, 1.0, 1000.0])], None, -1),
        # Rows of an image are no columns: what lies at the edge is small, and differs as much along it.
        ([np.ones((1, 8, 8, 1)), EDGE[:, None, None], EDGE[:, None]], None, -1),
        # Many places are columns only where channels are.
        ([np.ones((1, 40, 1)), np.geomspace(1e-5, 1e5, 40)[:, None]], None, -1),
        ([np.ones((1, 40, 1)), np.geomspace(1e-5, 1e5, 40)[:, None]], True, 1),
    ],
)
def test_columns_are_those_of_the_last_axis_otherwise(sizes: list[np.ndarray], known: bool | None, axis: int) -> None:
    assert axis_of(varied(*sizes), known) == axis


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
        ("CONV_2D", [("SUM", (1, 4, 3), (2,))], None),  # what computes is not followed
    ],
)
def test_axes_of_channels_are_followed_through_what_moves_them(layer: str, moves: list, axes: set[int] | None) -> None:
    """A layer of three channels, and operators with their shape and what they move by."""
    builder = ModelBuilder()
    shape, weights = {"CONV_2D": ((1, 4, 4, 2), (3, 1, 1, 2)), "FULLY_CONNECTED": ((1, 2), (24, 2))}[layer]
    x, w = builder.tensor("x", shape), builder.constant("w", np.ones(weights))
    options = {"padding": "valid", "stride_h": 1, "stride_w": 1} if layer == "CONV_2D" else {}
    value = builder.made("layer", (*shape[:-1], weights[0]), layer, x, w, -1, **options)
    for kind, result, by in moves:
        value = builder.made(kind, result, kind, value, *([builder.constant("by", by, "int32")] if by else []))
    graph = build_graph(builder.finish([x], [value]))
    shape = graph.output_infos()[0].static_shape
    found = {axis: ChannelAxes(graph).are_along(graph.outputs[0], shape, axis) for axis in range(1, len(shape))}
    if axes is None:
        assert found[1] is None
    else:
        assert {axis for axis, are_along in found.items() if are_along} == axes


def test_a_column_gets_the_room_that_the_farthest_of_them_has_needed_but_codes_to_go_with_it() -> None:
    even, far = np.array([-1.0, 1.0] * 8), np.r_[np.zeros(14), -3.0, 3.0]
    for columns, ends in (
        ([10.0 + even, far], [[10.0 - 2.0, -3.0], [10.0 + 2.0, 3.0]]),  # sqrt(8) deviations, twice at most
        ([even, np.full(16, 5.0)], [[-1.0, 5.0], [1.0, 5.0]]),  # what never varies tells nothing
    ):
        found = Columns.of([row.reshape(1, 2) for row in np.stack(columns, axis=1)]).wider_ranges
        np.testing.assert_allclose(found, ends)


def test_what_is_lost_is_named_by_axis_and_place_with_a_remedy() -> None:
    assert Lost([0, 2], 1, 3).text("y").startswith("places 0, 2 along axis 1 of output 'y' (2 of 3) vary in")
    assert Lost([1], -1, 3).text("y").startswith("column 1 of output 'y' (1 of 3) varies in")
    assert "outputs of their own" in Lost([0], -1, 2).text("y")
    assert "of their own" not in Lost([0], -1, 1).text("y")
    for places, columns, what in (([0], 1, "it is"), ([1], 3, "it is"), ([0, 2], 3, "they are")):
        text = Lost(places, -1, columns, are_shares=True).text("y")
        assert text.endswith(f"quantised one: give samples for which {what} larger, or the last layer more bits")


@pytest.mark.parametrize(("tail", "are_shares"), [("SOFTMAX", True), ("LOGISTIC", True), ("NEG", False)])
def test_what_gives_columns_tells_whether_they_are_shares(tail: str, are_shares: bool) -> None:
    builder, silent = ModelBuilder(), ModelBuilder()
    x = builder.tensor("x", (1, 3))
    z = builder.made(
        "z", (1, 3), tail, builder.made("y", (1, 3), "NEG", x), **{"beta": 1.0} if tail == "SOFTMAX" else {}
    )
    reference = Reference(build_graph(builder.finish([x], [z])), normal(RNG, 8, 1, 3))
    x = silent.tensor("x", (1, 3))
    z = silent.made("z", (1, 3), "MUL", x, silent.constant("zeros", np.zeros((1, 3))))
    (lost,) = reference.measure(build_graph(silent.finish([x], [z]))).lost[0]
    assert (lost.places, lost.are_shares) == ([0, 1, 2], are_shares)


def measured(noise_db: tuple[float, float], lost: list[Lost]) -> Measurement:
    """What is measured of an output of two columns with these SQNR, the same for all samples."""
    noise = np.repeat(10.0 ** (-np.array(noise_db)[:, None] / 10.0), 8, axis=1)
    powers = Powers(np.ones((2, 8)), noise)
    return Measurement([], powers, powers, ["y"], lost=[lost])


@pytest.mark.parametrize(("cost_db", "kept"), [(1.0, True), (4.0, False)])
def test_columns_that_come_back_may_cost_others_half_a_bit(cost_db: float, kept: bool) -> None:
    before, after = (0.0, 40.0), (35.0, 40.0 - cost_db)
    lost = measured(before, [Lost([0], 1, 2)])
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
def spectra(first: float = float(SIZES[0])) -> tuple[bytes, Samples]:
    """A convolution of images [1, 8, 6, 1] whose columns have these sizes, as large in its sums, and a layer behind."""
    rng, builder = np.random.default_rng(5), ModelBuilder()
    x = builder.tensor("x", (1, 8, 6, 1))
    constants = [rng.normal(size=shape) for shape in ((8, 3, 6, 1), (8,), (3, 1, 1, 8), (3,))]
    constants[0] /= SIZES[:, None]
    w, b, v, c = (builder.constant(name, values) for name, values in zip("wbvc", constants, strict=True))
    options: dict[str, Any] = {"padding": "valid", "stride_h": 1, "stride_w": 1}
    hidden = builder.made("h", (1, 6, 1, 8), "CONV_2D", x, w, b, **options)
    y = builder.made("y", (1, 6, 1, 3), "CONV_2D", hidden, v, c, **options)
    sizes = np.array([first, *SIZES[1:]], np.float32)[:, None]
    samples = [[(sizes * rng.uniform(-1, 1, (1, 8, 6, 1))).astype(np.float32)] for _ in range(32)]
    return builder.file([x], [y]), samples


def test_normalising_columns_keeps_the_function_and_leaves_even_columns() -> None:
    file, samples = spectra()
    base = prepare(import_model(read_model(file)))
    made = normalized(base, samples, columns=True)
    assert made.mends_columns
    for sample in samples[:4]:
        (expected,), (found,) = (HostExecutor(model.graph).run(sample) for model in (base, made))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    assert normalized(base, samples) is None
    even, samples = spectra(12.0)
    assert normalized(prepare(import_model(read_model(even))), samples, columns=True) is None


def test_small_columns_keep_codes() -> None:
    file, samples = spectra()
    helped = odc_mlir.quantize(file, calibration=samples, **PLAIN)
    plain = odc_mlir.quantize(file, calibration=samples, **PLAIN, normalize="off")
    assert helped.verdict["choices"]["normalize"] == "inputs"
    assert helped.verdict["scheme"]["x/split"] == "float"
    assert sqnr_db(file, helped, samples) > sqnr_db(file, plain, samples) + 3.0
    for scheme in ("int16x8", "int8_wo"):
        left_out = () if scheme == "int16x8" else ("ranges", "equalize")
        options = {key: value for key, value in PLAIN.items() if key not in left_out}
        other = odc_mlir.quantize(file, scheme=scheme, calibration=samples, **options)
        assert "x/split" not in other.verdict["scheme"]


@cache
def _rates() -> bytes:
    builder, rng = ModelBuilder(), np.random.default_rng(1)
    x = builder.tensor("x", (1, 8))
    hidden = builder.dense("y0", x, rng.normal(size=(16, 8)) / np.sqrt(8), fused_activation_function="relu")
    y = builder.dense("y1", hidden, rng.normal(size=(1, 16)) / np.sqrt(16))
    return builder.file([x], [builder.made("rate", (1, 1), "EXP", y)])


def _samples(count: int, seed: int) -> Samples:
    return normal(np.random.default_rng(seed), count, 1, 8, size=1.5)


def _made(seed: int = 2, **options: Any) -> Quantized:
    return odc_mlir.quantize(_rates(), calibration=_samples(48, seed), mixed="off", **options)


def test_room_for_rare_values_pays_on_samples_that_were_not_seen() -> None:
    """On the average: samples that happen to have the largest of all need none."""
    unseen, gains = _samples(500, 99), []
    for seed in range(3):
        without, wanted = (_made(seed, output_room=how, help=False) for how in ("off", "on"))
        assert [made.verdict["choices"]["output_room"] for made in (without, wanted)] == [False, True]
        gains.append(sqnr_db(_rates(), wanted, unseen) - sqnr_db(_rates(), without, unseen))
    assert np.mean(gains) > 3.0


def test_help_tries_room_unless_it_is_asked_for_and_the_interval_tells_what_is_cut_off() -> None:
    made = _made()
    (step,) = (step for step in made.verdict["steps"] if step["step"] == "output room")
    assert made.verdict["choices"]["output_room"] == step["kept"]
    # Of a model whose range ends where samples do, none of which shows what lies beyond.
    cut = _made(output_room="off", headroom=0.0)
    low, high = cut.verdict["intervals"]["sqnr_db"]
    assert low <= sqnr_db(_rates(), cut, _samples(2000, 99)) <= high
    for made in (cut, _made(help=False)):
        assert not any(step["step"] == "output room" for step in made.verdict["steps"])
        assert made.verdict["choices"]["output_room"] is False


def _scored(kinds: Sequence[str]) -> tuple[ModuleOp, dict[str, str]]:
    """A layer and operators of these kinds, and names of results by kind."""
    net = FloatNet(1)
    value = net.add("FULLY_CONNECTED", net.real(1, 8), net.const(np.ones((4, 8))), None)
    for kind in kinds:
        value = net.add(kind, value)
    module = net.module(value)
    return module, {op.SPEC.name: value_name(op.results[0]) for op in all_ops(quantized_function(module))}


def _seen_scores(largest: float) -> TensorStatistics:
    return TensorStatistics.of_extremes(np.zeros(16), np.array([0.5] * 10 + [largest] * 6))


@pytest.mark.parametrize(
    ("kind", "scores", "most"),
    [("EXP", 1.0, 60.0), ("LOGISTIC", 1.0, 6.3), ("TANH", 1.0, 5.0), ("SOFTMAX", 0.95, 5.0), ("SOFTMAX", 0.8, 60.0)],
)
def test_what_saturates_gets_no_room_beyond(kind: str, scores: float, most: float) -> None:
    """Codes of 0 to 1 are the same from a logit of 6.2 on; 5 was seen. SOFTMAX has one scale, but no more to tell where
    many scores are nearly one."""
    module, names = _scored([kind])
    layer, largest = names["FULLY_CONNECTED"], np.array([0.1] * 12 + [0.5, 1.0, 2.0, 5.0])
    seen = {layer: TensorStatistics.of_extremes(-largest / 5, largest), names[kind]: _seen_scores(scores)}
    _, end = with_output_room(quantized_function(module), {layer: (-1.0, 5.0)}, seen, 8)[layer]
    assert (end > 6.3) == (most == 60.0)
    assert 5.0 <= end <= most


@pytest.mark.parametrize(
    ("kinds", "score", "takes"),
    [(("SOFTMAX",), 0.95, False), (("SOFTMAX",), 0.8, True), (("SOFTMAX", "EXP"), 0.95, True), ((), 0.95, True)],
)
def test_scores_of_softmax_alone_ask_for_no_room(kinds: tuple[str, ...], score: float, takes: bool) -> None:
    module, names = _scored(kinds)
    assert has_outputs_with_tails(module, dict.fromkeys(names.values(), _seen_scores(score))) is takes
    assert has_outputs_with_tails(module, {})


def test_only_columns_that_vary_are_lost() -> None:
    """Columns: good, noisy, lost by noise, constant in the codes, and noisy but with little variation."""
    base, sign = np.linspace(-1.0, 1.0, 64), np.tile([1.0, -1.0], 32)
    expected = np.stack([base, base, base, base, 100.0 + 0.1 * base], axis=1).astype(np.float32)
    noise = np.sqrt(np.array([0.01, 0.3, 0.8, 0.0, 0.3]) * expected.var(axis=0))
    coded = (expected + sign[:, np.newaxis] * noise).astype(np.float32)
    coded[:, 3] = 0.25
    columns = Columns.of([row[np.newaxis] for row in expected])
    found = columns.like()
    found.add([row[np.newaxis] for row in coded], [row[np.newaxis] for row in expected])
    assert columns.lost(found) == [2, 3]
    assert columns.lost(found, single=False) == [3]


@pytest.mark.parametrize(("large", "lost"), [(3, []), (1, [3])])
def test_rounding_beside_mostly_larger_columns_is_no_variation(large: int, lost: list[int]) -> None:
    """The last of four columns varies by a hundred-millionth of the ``large`` ones, and is constant in the codes."""
    base = np.linspace(-1.0, 1.0, 64, dtype=np.float32)
    sizes = np.float32([*[100.0] * large, *[1e-6] * (3 - large), 1e-6])
    columns = Columns.of([row[np.newaxis] for row in np.outer(base, sizes)])
    found, coded = columns.like(), np.outer(base, sizes) * np.float32([1, 1, 1, 0])
    found.add([row[np.newaxis] for row in coded], [row[np.newaxis] for row in np.outer(base, sizes)])
    assert columns.lost(found, single=False) == lost


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
