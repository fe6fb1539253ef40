"""Numbers that are missing, infinite, tiny or far from others, and sums of wide ones."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from xdsl.ir import SSAValue

import odc_mlir
from helpers.float_models import normal, sqnr_db
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, Samples, dense_model
from helpers.nodes import node, quant, tensor
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, ModelError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.numerics.weight_rounding import Grid, round_weights
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.quantizer.layers import Effect
from odc_mlir.quantizer.outputs import completed, exceeds, is_measurable, refused_output
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.samples import check_finite
from odc_mlir.quantizer.summary import summary
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

COUNT = 24
INF, NAN = np.inf, np.nan


def _reals(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


@pytest.mark.parametrize(
    ("found", "wanted", "lacks"),
    [
        (_reals(1, 2, 3), [1, 2, 3], False),
        (_reals(1, INF, 3), [1, 0, 3], True),
        (_reals(1, NAN, NAN), [1, 0, NAN], True),
        (_reals(1, 2, INF), [1, 2, INF], False),
        (np.array([1, 2, 3]), [1, 2, 3], False),
        (_reals(INF), [INF], False),  # of another shape, which is told elsewhere
    ],
)
def test_what_is_lacking_counts_as_zero(found: np.ndarray, wanted: list[float], lacks: bool) -> None:
    array, seen = completed(_reals(1, 2, NAN), found)
    np.testing.assert_array_equal(array, wanted)
    assert seen is lacks


def test_numbers_where_there_are_to_be_none_and_outputs_that_tell_something() -> None:
    assert exceeds(_reals(1, NAN), _reals(1, 2))
    for expected, found in (([1, NAN], [1, INF]), ([1, 2], [1, 2]), ([NAN], [1, 2])):
        assert not exceeds(_reals(*expected), _reals(*found))
    assert not exceeds(np.array([1]), np.array([2]))
    assert is_measurable([_reals(1, -INF), np.array([1]), _reals()])  # as of a mask
    assert not is_measurable([_reals(1), _reals(-INF, INF)])
    assert not is_measurable([_reals(1, NAN), np.array([1])])
    assert np.isnan(refused_output(_reals(1, 2))).all()
    texts = np.array([b"one"], object)
    for answers in (np.array([0, 3, -1]), np.array([True, False]), np.array([0, 255], np.uint8), texts):
        assert (refused_output(answers) != answers).all()
        assert refused_output(answers).dtype == answers.dtype


Form = Callable[[FloatNet, SSAValue], Any]


def _softmax_by_hand(net: FloatNet, x: SSAValue) -> Any:
    y = net.add("FULLY_CONNECTED", x, net.weights(8, 16, spread=1.5), None, name="y")
    exponentials = net.add("EXP", y, name="e")
    total = net.add("SUM", exponentials, net.const([1], "int32"), name="total", keep_dims=True)
    return net.add("DIV", exponentials, total, name="out")


def _looked_up(net: FloatNet, x: SSAValue) -> Any:
    """Rows of a table of six by whole parts of reals below six: of codes some are six."""
    y = net.add("FULLY_CONNECTED", x, net.const(0.9 * np.eye(4)), None, name="y")
    index = net.add("CAST", net.add("FLOOR", y, name="floor"), name="index", dtypes=["int32"], out_data_type="int32")
    rows = net.add("GATHER", net.weights(6, 3), index, axis=0, name="rows")
    return net.add("FULLY_CONNECTED", rows, net.weights(3, 3), None, name="out", keep_num_dims=True)


def _logarithm(net: FloatNet, x: SSAValue) -> Any:
    return net.add("LOG", net.add("FULLY_CONNECTED", x, net.weights(1, 16), None, name="y"), name="out")


def _undefined_classes(net: FloatNet, x: SSAValue) -> Any:
    scores = net.add("FULLY_CONNECTED", x, net.weights(5, 16, spread=1.5), None, name="y")
    return net.add("SOFTMAX", net.add("ADD", scores, _logarithm(net, x), name="sum"), name="shares", beta=1.0)


def _in_part(net: FloatNet, x: SSAValue) -> Any:
    roots = net.add("SQRT", net.add("FULLY_CONNECTED", x, net.weights(8, 16), None, name="y"), name="roots")
    return net.add("CONCATENATION", net.add("TANH", x, name="z"), roots, name="out", axis=1)


@cache
def _model(form: Form, count: int = COUNT) -> tuple[bytes, Samples]:
    """A model of an input of 16 reals, or 4 below six, and samples."""
    if form is _looked_up:
        rng, samples = np.random.default_rng(1), []
        for number in range(count):
            values = rng.uniform(0, 5.5, (1, 4))
            values[0, number % 4] = 5.99 + 0.009 * rng.random()
            samples.append([(values / 0.9).astype(np.float32)])
    else:
        samples = normal(np.random.default_rng(4 if form is _undefined_classes else 3), count, 1, 16)
    net = FloatNet(9)
    with np.errstate(all="ignore"):
        module = net.module(form(net, net.input(samples[0][0])))
    return bytes(write_model(export_model(module))), samples


def _verdict(model: bytes, samples: Samples, **options: Any) -> dict[str, Any]:
    plain = {} if options.get("help") else {"help": False, "mixed": "off"}
    return odc_mlir.quantize(model, calibration=samples, **plain | options).verdict


def test_what_a_model_lacks_is_a_problem_that_the_search_mends() -> None:
    """Codes of a sum are zero where exponentials are not: divisions of reals behind it give no numbers."""
    model, samples = _model(_softmax_by_hand)
    verdict = _verdict(model, samples)
    (problem,) = (text for text in verdict["problems"] if "finite" in text)
    assert problem.startswith("outputs of the quantised model are not finite for ")
    assert problem.endswith(f" of {COUNT} samples: they count as zeros")
    assert verdict["samples"]["checked_on"] == COUNT
    assert verdict["metrics"]["mpeir"] > 0.1
    exponential = next(layer for layer in verdict["layers"] if layer["op"] == "EXP")
    assert exponential["lacking"] > 0
    assert np.isfinite(exponential["output_sqnr_db"])
    lines = list(summary("m.circle", verdict))
    assert not any("nan dB" in line for line in lines)
    assert any(f"outputs lack numbers in {exponential['lacking']} of 4 samples" in line for line in lines)
    mended = _verdict(model, samples, help=True)
    assert mended["passed"]
    assert {name for name, scheme in mended["scheme"].items() if scheme == "float"} >= {"e", "total"}
    assert mended["scheme"]["y"] == "int8"


def test_a_sample_that_a_kernel_refuses_is_one_that_is_missed() -> None:
    model, samples = _model(_looked_up)
    plain = _verdict(model, samples, headroom=0.21)
    assert plain["status"] == "failed"
    assert any("quantised model are not finite" in text for text in plain["problems"])
    found = _verdict(model, samples, headroom=0.21, help=True)
    assert found["passed"]
    assert found["scheme"]["y"] != "int8"
    few = [[np.minimum(x, np.float32(5.5))] for (x,) in samples[4:]] + samples[:4]
    little = _verdict(model, few, headroom=0.21, mixed="on", overrides={"y": "int8"})
    assert all(limit["passed"] for limit in little["limits"])
    assert not little["passed"]
    assert [point["holds"] for point in little["front"] if point["chosen"]] == [False]


def _parted(model: bytes, samples: Samples) -> tuple[Samples, Samples]:
    has = [bool(np.isfinite(odc_mlir.run(model, sample)[0]).all()) for sample in samples]
    return tuple([s for s, found in zip(samples, has, strict=True) if found is wanted] for wanted in (True, False))


def test_samples_of_which_the_float_model_makes_no_numbers_are_not_counted() -> None:
    model, samples = _model(_logarithm)
    some, none = _parted(model, samples)
    assert len(some) >= 8
    assert len(none) >= 4
    few, most = [*none, *some[:2]], [*none[:2], *some]
    verdict = _verdict(model, few)
    assert verdict["samples"]["checked_on"] == 2
    assert any(
        text.startswith(f"the float model has finite outputs for only 2 of {len(few)} samples")
        for text in verdict["problems"]
    )
    assert all(layer["output_sqnr_db"] is None or np.isfinite(layer["output_sqnr_db"]) for layer in verdict["layers"])
    verdict = _verdict(model, most)
    assert verdict["samples"]["checked_on"] == len(some)
    assert any(
        text.startswith(f"accuracy was measured on {len(some)} of {len(most)} samples") for text in verdict["findings"]
    )
    assert "mpeir" in verdict["intervals"]
    in_part = _verdict(*_model(_in_part))  # the rest of such a sample does not count either
    assert not in_part["passed"]
    assert any("the float model has finite outputs for only" in text for text in in_part["problems"])


def test_samples_without_numbers_have_no_answers() -> None:
    """The largest of NaN is the first element: it is no class that labels or another model may agree with."""
    model, samples = _model(_undefined_classes, 96)
    some, none = _parted(model, samples)
    given = [*some, *none[: len(some) // 2]]
    answers = [int(odc_mlir.run(model, sample)[0].argmax()) for sample in some]
    verdict = _verdict(model, given, labels=np.array(answers + [0] * (len(given) - len(some))))
    assert verdict["samples"]["checked_on"] == len(some)
    assert sum(found["samples"] for found in verdict["scores"]["classes"]) == len(some)
    assert verdict["scores"]["float"] == 100.0
    (text,) = (text for text in verdict["findings"] if text.startswith("accuracy was measured on "))
    assert text.startswith(f"accuracy was measured on {len(some)} of {len(given)} samples")


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{"calibration": 3}, {"calibration": 0, "evaluation": 3}])
def test_a_sample_that_is_not_finite_is_refused_by_name(value: float, options: dict[str, int]) -> None:
    random = np.random.default_rng(1)
    given = {key: normal(random, 12, 1, 8) for key in options}
    for key, count in options.items():
        for (x,) in given[key][5 : 5 + count]:
            x[0, 2] = value
    with pytest.raises(InputError, match=r"sample 5 holds values that are not finite, as 3 of 12 samples do.*'x'"):
        odc_mlir.quantize(dense_model(np.ones((8, 8))), help=False, **given)


@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN"), (np.inf, "infinite values"), (-np.inf, "infinite values")]
)
@pytest.mark.parametrize("held_by", ["w", "b"])
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_weights_and_biases_that_are_no_numbers_are_refused(value: float, what: str, held_by: str, stored: str) -> None:
    builder = ModelBuilder()
    operands = [builder.tensor("x", (1, 4))]
    for name, shape in (("w", (4, 4)), ("b", (4,))):
        data = np.ones(shape, stored)
        data.flat[1] = value if name == held_by else 1.0
        operands.append(builder.constant(name, data, stored))
        if stored == "float16":
            operands[-1] = builder.made(f"{name}/real", shape, "DEQUANTIZE", operands[-1])
    model = builder.file(operands[:1], [builder.made("y", (1, 4), "FULLY_CONNECTED", *operands)])
    with pytest.raises(ModelError, match=rf"holds {what}.*tensor '{held_by}'"):
        odc_mlir.quantize(model, calibration=normal(np.random.default_rng(0), 4, 1, 4))


def test_extreme_numbers_do_no_harm_to_what_computes_with_them() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4))
    hidden = builder.made("hidden", (1, 4), "MINIMUM", x, builder.constant("most", np.inf))
    check_finite(build_graph(builder.finish([x], [builder.dense("y", hidden, np.ones((4, 4)))])))
    info = TensorInfo("x", "int8", (8,), quant(3e38, 3))
    extremes = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, 0.0, 1e20], np.float32)
    assert to_codes(info, extremes).tolist() == [-128, 127, -128, 4, 2, 3, 3, 3]
    assert to_reals(info, np.array([127, 3], np.int8)).tolist() == [np.inf, 0]
    grid = Grid(np.ones((1, 1)), np.zeros((1, 1)), -127, 127)
    for covariance in (np.zeros((1, 2, 2)), np.full((1, 2, 2), 1e-320), np.eye(2)[None] * -1.0):
        assert round_weights(np.array([[[0.4, 1.6]]]), grid, covariance).tolist() == [[[0, 2]]]
    weights = np.random.default_rng(1).normal(size=(8, 8))
    weights.flat[::3] = 3.4e38
    module: Any = import_model(read_model(dense_model(weights, weights, biases=(weights[0], weights[0]))))
    assert "inf" not in str(odc_mlir.lower(module, "circle-opt"))
    made = node("RSQRT", [tensor("int8", (1,), quant(1e-45))], tensor("int8", None, quant(1e-45)))
    with pytest.raises(ModelError, match="a scale ratio is not finite"):
        made.spec.kernel_function(made)
    for error in (1e30, np.inf, np.nan):  # no output is more than wrong
        effect = Effect(frozenset({"a"}), of_weights=False, sums=[[error, 1.0], [0.5, 1.0]])
        assert effect.noise == (2.0, 0.5)
    _, reasons = measured("int16", 1e-2, 1e-34)  # products of scales vanish
    assert any("'hidden' and 'y/w'" in reason for reason in reasons)
    assert any("choose units for them that are closer to 1" in reason for reason in reasons)


UNIT_SAMPLES = np.random.default_rng(1).standard_normal((32, 1, 8)).astype(np.float32)


@cache
def measured(scheme: str, unit_in: float, unit_out: float) -> tuple[float, list[str]]:
    """The SQNR in dB of two layers of inputs and outputs in these units, and why layers stay in float."""
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape) / 3 for shape in ((16, 8), (4, 16)))
    biases = [random.standard_normal(16) / 4, random.standard_normal(4) / 4 * unit_out]
    names, activations = ("hidden", "y"), ("relu", "none")
    model = dense_model(first / unit_in, second * unit_out, biases=biases, names=names, activations=activations)
    samples = [[sample] for sample in (UNIT_SAMPLES * unit_in).astype(np.float32)]
    verdict = odc_mlir.quantize(model, scheme=scheme, calibration=samples, help=False).verdict
    return verdict["metrics"]["sqnr_db"], list(verdict["float_reasons"].values())


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16", "int16x8", "int8x4", "int8_wo", "int4_wo"])
@pytest.mark.parametrize(
    "units",
    [
        (1e-9, 1e-12),
        (1e15, 1e15),
        *(pytest.param(one, marks=pytest.mark.soak) for one in ((1e-6, 1.0), (1.0, 1e-6), (1e-15, 1e-15), (1e6, 1e-6))),
    ],
)
def test_accuracy_does_not_depend_on_the_unit(scheme: str, units: tuple[float, float]) -> None:
    quality, reasons = measured(scheme, *units)
    assert quality == pytest.approx(measured(scheme, 1.0, 1.0)[0], abs=0.5)
    assert not reasons


def with_zeros(unit: float, where: str) -> bytes:
    """Two layers with values in this unit between them: one has a row of zeros, or what is added to them are zeros.

    These are a dead RELU, or come of a factor of zeros.
    """
    random, builder = np.random.default_rng(0), ModelBuilder()
    x = builder.tensor("x", (1, 8))
    first, last = random.standard_normal((16, 8)) * unit, random.standard_normal((4, 16)) / unit
    if where == "row":
        first[3] = 0.0
    between = hidden = builder.dense("hidden", x, first, np.zeros(16))
    if where == "dead":
        negative = builder.dense("negative", x, np.abs(first), np.full(16, -100 * unit))
        between = builder.made("sum", (1, 16), "ADD", hidden, builder.made("dead", (1, 16), "RELU", negative))
    if where == "factor":
        zeros = builder.constant("zeros", np.zeros((1, 16)))
        between = builder.made("sum", (1, 16), "ADD", hidden, builder.made("dead", (1, 16), "MUL", hidden, zeros))
    return builder.file([x], [builder.dense("y", between, last, np.zeros(4))])


@pytest.mark.parametrize(
    ("scheme", "where"),
    [
        ("int8", "row"),
        ("uint8", "dead"),
        ("int16x8", "factor"),
        *(pytest.param("int8", where, marks=pytest.mark.soak) for where in ("dead", "factor")),
        *(pytest.param("uint8", where, marks=pytest.mark.soak) for where in ("row", "factor")),
        *(pytest.param("int16x8", where, marks=pytest.mark.soak) for where in ("row", "dead")),
    ],
)
def test_zeros_do_no_harm_in_any_unit(scheme: str, where: str) -> None:
    samples = [[sample] for sample in UNIT_SAMPLES]
    qualities = []
    for unit in (1.0, 1e-20, 1e15):
        found = odc_mlir.quantize(with_zeros(unit, where), scheme=scheme, calibration=samples, help=False)
        assert not found.verdict["float_reasons"]
        qualities.append(found.verdict["metrics"]["sqnr_db"])
    assert qualities[1:] == pytest.approx(qualities[:1] * 2, abs=0.5)


ROWS, WIDTH = 8, 16
SHAPE = (1, ROWS, WIDTH)


def _dense(builder: ModelBuilder, name: str, x: int, seed: int) -> int:
    weights = np.random.default_rng(seed).normal(size=(WIDTH, WIDTH)).astype(np.float32) / 4
    return builder.dense(name, x, weights, keep_num_dims=True)


def test_what_no_integers_hold_stays_real() -> None:
    """A layer, and what is left of its results around their mean, far from which all of them are."""
    builder = ModelBuilder()
    x, far = builder.tensor("x", SHAPE), builder.constant("far", 30000.0)
    y = builder.made("y", SHAPE, "ADD", _dense(builder, "h", x, 0), far)
    mean = builder.made("m", (1, ROWS, 1), "MEAN", y, builder.constant("axis", [2], "int32"), keep_dims=True)
    model = builder.file([x], [_dense(builder, "out", builder.made("d", SHAPE, "SUB", y, mean), 1)])
    samples = normal(np.random.default_rng(0), 60, *SHAPE)
    plain, found = (odc_mlir.quantize(model, calibration=samples[:40], mixed=mixed) for mixed in ("off", "auto"))
    assert sqnr_db(model, plain, samples[40:]) < 10.0
    assert found.verdict["status"] == "passed"
    assert "float" in found.verdict["choices"]["precisions"].values()
    assert sqnr_db(model, found, samples[40:]) > 15.0
    products = ("FULLY_CONNECTED", "BATCH_MATMUL")
    assert "int8" in {layer["scheme"] for layer in found.verdict["layers"] if layer["op"] in products}


@pytest.mark.parametrize(("kind", "value", "used"), [("MUL", 1.0, 0.0), ("ADD", 0.0, -8.0)])
def test_a_mask_that_samples_never_use_is_a_reservation(kind: str, value: float, used: float) -> None:
    """Other than an ``idle`` input of which nothing reaches the output."""
    builder, shape, rng = ModelBuilder(), (1, 16), np.random.default_rng(1)
    x, mask, idle = (builder.tensor(name, shape) for name in ("x", "mask", "idle"))
    nothing = builder.made("nothing", shape, "MUL", idle, builder.constant("zeros", np.zeros(shape)))
    z = builder.made("z", shape, "ADD", builder.made("h", shape, kind, x, mask), nothing)
    model = builder.file([x, mask, idle], [builder.dense("y", z, np.random.default_rng(0).normal(size=(16, 16)))])

    def samples(varies: bool) -> Samples:
        masks = np.where((rng.random((32, *shape)) < 0.5) & varies, used, value).astype(np.float32)
        return [[rng.normal(size=shape).astype(np.float32), m, np.ones(shape, np.float32)] for m in masks]

    options: dict[str, Any] = {"help": False, "limit": 0.2, "states": {}}  # the mask is none, though zero
    never, sometimes = (odc_mlir.quantize(model, calibration=samples(v), **options) for v in (False, True))
    text = "passed on 32 samples (input 'mask' was the same in all samples)"
    assert (never.passed, never.verdict["certain"], never.verdict["samples"]["same_inputs"]) == (True, False, ["mask"])
    assert f"  {text}: " in str(never)
    assert text in repr(never)
    assert "as measured; input &#x27;mask&#x27; was the same in all samples" in never.report_html()
    assert [t for t in never.verdict["findings"] if t.startswith("input 'mask' never varies")]
    assert unshown(never.verdict["samples"]) == ["input 'mask' was the same in all samples"]
    assert (sometimes.verdict["certain"], sometimes.verdict["samples"]["same_inputs"]) == (True, [])
    assert unshown(sometimes.verdict["samples"]) == unshown(None) == []
    # Nor is an input for which nothing else can be run.
    builder = ModelBuilder()
    x, shape = builder.tensor("x", (1, 16)), builder.tensor("shape", (2,), "int32")
    y = builder.dense("y", builder.made("h", (4, 4), "RESHAPE", x, shape), rng.normal(size=(4, 4)))
    given = [[x, np.array([4, 4], np.int32)] for (x,) in normal(rng, 16, 1, 16)]
    made = odc_mlir.quantize(builder.file([x, shape], [y]), calibration=given, help=False)
    assert made.verdict["samples"]["same_inputs"] == []


@pytest.mark.parametrize("is_alarm", [False, True])
@pytest.mark.parametrize("events", [1, 2])
def test_rare_events_are_kept(events: int, is_alarm: bool) -> None:
    """A small value that is 100 for so many samples, none of which is held back, or an alarm that these set off."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 8))
    y = builder.dense("hidden", x, [[100, *[0.3] * 7]], [-5 if is_alarm else 0])
    if is_alarm:
        y = builder.made("y", (1, 1), "LOGISTIC", y)
    samples, held = normal(np.random.default_rng(7), 64, 1, 8), stratified(16, 64)
    places = [place for place in range(64) if place not in held][5 : 5 + events]
    for place, (values,) in enumerate(samples):
        values[0, 0] = 1.0 if place in places else 1e-3 * values[0, 0]
    made = odc_mlir.quantize(builder.file([x], [y]), calibration=samples)
    assert made.passed
    executor = HostExecutor(build_graph(read_model(made.to_circle())))
    least = 0.9 if is_alarm else 90.0
    assert all(float(executor.run(samples[place])[0].item()) > least for place in places)


SCHEMES = ("int8", "uint8", "int16x8", "int16")
RELU6 = {"fused_activation_function": "relu6"}
SAME = {"padding": "same", "stride_h": 1, "stride_w": 1}
# Shapes of the input, of weights and of the bias, or of another operand and none, and of the result.
LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], int, tuple[int, ...], dict[str, Any]]] = {
    "FULLY_CONNECTED": ((1, 40), (5, 40), 5, (1, 5), {}),
    "CONV_2D": ((1, 4, 4, 6), (5, 3, 3, 6), 5, (1, 4, 4, 5), SAME),
    "DEPTHWISE_CONV_2D": ((1, 4, 4, 6), (1, 3, 3, 6), 6, (1, 4, 4, 6), SAME | {"depth_multiplier": 1}),
    "MUL": ((1, 4, 4, 6), (1, 4, 4, 6), 0, (1, 4, 4, 6), {}),
    "ADD": ((1, 4, 4, 6), (1, 4, 4, 6), 0, (1, 4, 4, 6), {}),
}


def layer(name: str, seed: int, weights: float, *, is_limited: bool = True) -> bytes:
    """One layer that cuts off below 0 and above 6, if it ``is_limited``."""
    x, w, b, y, options = LAYERS[name]
    builder, rng = ModelBuilder(), np.random.default_rng(seed)
    operands = [builder.tensor("x", x), builder.constant("w", weights * rng.normal(size=w))]
    if b:
        operands.append(builder.constant("b", rng.normal(size=b)))
    limits = RELU6 if is_limited else {}
    return builder.file(operands[:1], [builder.made("y", y, name, *operands, **options | limits)])


def dense(rng: np.random.Generator, sizes: tuple[int, ...], spreads: tuple[float, ...], bias: float) -> bytes:
    drawn = [
        (spread * rng.normal(size=shape), bias * rng.normal(size=shape[0]))
        for spread, shape in zip(spreads, zip(sizes[1:], sizes, strict=False), strict=True)
    ]
    weights, biases = zip(*drawn, strict=True)
    return dense_model(*weights, biases=biases, activations=("relu6", *["none"] * (len(weights) - 1)))


def quantised(file: bytes, samples: list[list[np.ndarray]], scheme: str, **options: Any) -> Quantized:
    return odc_mlir.quantize(
        file, calibration=samples, scheme=scheme, **{"target": "npu-256", "help": False, **options}
    )


def on_host(made: Quantized) -> list[str]:
    return [layer["reason"] for layer in made.verdict["coverage"]["target"]["on_host"]]


@settings(max_examples=15)
@given(
    st.sampled_from(SCHEMES), st.sampled_from(sorted(LAYERS)), st.floats(0, 6), st.floats(0, 4), st.integers(0, 1000)
)
def test_what_is_far_beyond_a_limit_is_cut_off_there(
    scheme: str, name: str, inputs: float, weights: float, seed: int
) -> None:
    """However large sums are beside what is left of them; a scale that they wrap around in gives anything."""
    file, free = (layer(name, seed, 10.0**weights, is_limited=is_limited) for is_limited in (True, False))
    samples = normal(np.random.default_rng(seed + 1), 8, *LAYERS[name][0], size=10.0**inputs)
    codes = quantised(file, samples, scheme, target=None).model
    real, found, sums = (np.stack([odc_mlir.run(model, x)[0] for x in samples]) for model in (file, codes, free))
    # What inputs and weights lose to steps is less than this part of the largest sums.
    far = np.abs(sums - np.clip(sums, 0.0, 6.0)) > 0.1 * np.abs(sums).max()
    np.testing.assert_allclose(found[far], real[far], atol=0.1)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(("name", "least", "most"), [("RELU6", 0.0, 6.0), ("RELU_N1_TO_1", -1.0, 1.0)])
@pytest.mark.parametrize("magnitude", [1e5, 1e9, 1e13])
def test_activations_alone_cut_off_as_well(name: str, least: float, most: float, scheme: str, magnitude: float) -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 32))
    signs = magnitude * np.random.default_rng(3).choice([-1.0, 1.0], (1, 32)).astype(np.float32)
    file = builder.file([x], [builder.made("y", (1, 32), name, x)])
    (found,) = odc_mlir.run(quantised(file, [[signs]] * 8, scheme, target=None).model, [signs])
    np.testing.assert_allclose(found, np.clip(signs, least, most), atol=0.1)


@settings(max_examples=10)
@given(
    st.sampled_from(["int16x8", "int16"]),
    st.floats(-6, 4),
    st.tuples(st.floats(-6, 3), st.floats(-6, 6)),
    st.floats(-6, 6),
    st.integers(0, 9),
)
def test_no_layer_is_refused_for_its_numbers(
    scheme: str, inputs: float, spreads: tuple[float, float], bias: float, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    file = dense(rng, (6, 5, 3), (10.0 ** spreads[0], 10.0 ** spreads[1]), 10.0**bias)
    columns = 10.0 ** rng.uniform(min(inputs, 0), max(inputs, 0), 6)
    assert not on_host(quantised(file, [[(columns * x).astype(np.float32)] for (x,) in normal(rng, 8, 1, 6)], scheme))


@pytest.mark.parametrize(("scheme", "least_db"), [("int16", 80.0), ("int16x8", 50.0)])
def test_a_result_much_finer_than_its_sums_loses_little(scheme: str, least_db: float) -> None:
    """Cut off far below what inputs are: one step of a sum is many of what is left."""
    rng = np.random.default_rng(0)
    file = dense(rng, (6, 5, 3), (1e3, 1.0), 1.0)
    samples = normal(rng, 16, 1, 6, size=1e4)
    free, kept = quantised(file, samples, scheme, target=None), quantised(file, samples, scheme)
    assert not on_host(kept)
    assert min(made.verdict["metrics"]["sqnr_db"] for made in (free, kept)) > least_db


@pytest.mark.parametrize("scheme", ["int8", "uint8"])
@pytest.mark.parametrize("bias", [-3e6, 3e6])
def test_a_bias_leaves_room_for_products(scheme: str, bias: float) -> None:
    """Of a channel that is always cut off: with the finest weights its bias alone would fill 32 bits."""
    rng, biases = np.random.default_rng(4), np.array([bias, *[0.0] * 7])
    file = dense_model(rng.normal(size=(8, 16)), biases=(biases,), activations=("relu6",))
    samples = normal(rng, 16, 1, 16)
    made = quantised(file, samples, scheme, target=None)
    found = np.stack([odc_mlir.run(made.model, sample)[0] for sample in samples])[..., 0]
    np.testing.assert_allclose(found, np.clip(bias, 0.0, 6.0), atol=0.05)


def test_products_that_only_8_bits_run_count_as_possible_and_advice_names_few_of_them() -> None:
    """Of two computed matrices of 16-bit codes: their sums may need more bits than accumulators have."""

    def made_of(count: int, overrides: str | None = None) -> Quantized:
        rng, builder, shapes = np.random.default_rng(5), ModelBuilder(), ((1, 4, 600), *[(1, 600, 4)] * count)
        a, *others = (builder.tensor(f"x{place}", shape) for place, shape in enumerate(shapes))
        options = {"adjoint_lhs": False, "adjoint_rhs": False}
        ys = [builder.made(f"y{i}", (1, 4, 4), "BATCH_MATMUL", a, b, **options) for i, b in enumerate(others)]
        ys.append(builder.made("z", (1, 4, 4), "ADD", ys[0], ys[0]))
        samples = [[rng.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(8)]
        return quantised(builder.file([a, *others], ys), samples, "int16x8", overrides=overrides)

    for count, named in ((1, "y0:int8 (in Python overrides)"), (7, ",y4:int8 (in Python overrides) and 2 more layers")):
        made = made_of(count)
        (problem,) = made.verdict["problems"]
        assert problem.startswith("npu-256 runs 0.0 % of the products that it could")
        assert problem.endswith(named)
        assert f"  FAILED: {problem}" in str(made)
        assert problem not in str(made).replace(f"FAILED: {problem}", "")
    mended = made_of(1, "y0:int8")
    assert mended.passed
    assert not on_host(mended)


@pytest.mark.parametrize("name", ["AVERAGE_POOL_2D", "RESIZE_BILINEAR"])
def test_what_is_averaged_before_it_is_cut_off_keeps_its_range(name: str) -> None:
    builder, shape = ModelBuilder(), (1, 4, 4, 2)
    x = builder.tensor("x", (1, 8, 8, 2))
    if name == "AVERAGE_POOL_2D":
        window = {"filter_height": 2, "filter_width": 2, "stride_h": 2, "stride_w": 2, "padding": "valid"}
        y = builder.made("y", shape, name, x, **window)
    else:
        y = builder.made("y", shape, name, x, builder.constant("size", [4, 4], "int32"), half_pixel_centers=True)
    file = builder.file([x], [builder.made("z", shape, "MINIMUM", y, builder.constant("limit", [0.5]))])
    samples = normal(np.random.default_rng(6), 16, 1, 8, 8, 2, size=4.0)
    assert quantised(file, samples, "int8", target=None).verdict["metrics"]["sqnr_db"] > 25.0


def test_sums_that_no_scale_brings_down_stay_real_and_sums_of_many_wide_weights_fit() -> None:
    """As large as can be, sums of the finest codes need more bits than accumulators have."""
    rng = np.random.default_rng(2)
    made = quantised(dense(rng, (6, 5, 3), (1e5, 1.0), 1.0), normal(rng, 8, 1, 6, size=1e6), "int8")
    why = "its sums exceed its result's range by more than kernels can scale; rescale it in the float model"
    assert made.verdict["float_reasons"] == {"y0": why}
    rng = np.random.default_rng(1)
    file = dense_model(np.sign(rng.normal(size=(4, 4096))))
    made = quantised(file, normal(rng, 8, 1, 4096), "int16")
    assert not on_host(made)
    assert made.verdict["metrics"]["mpeir"] < 1e-3
