"""Numbers that are missing, infinite, tiny or far from others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

import odc_mlir
from helpers.float_models import only, sqnr_db
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, dense_model, model_bytes
from helpers.nodes import node, quant, tensor
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, ModelError, OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model
from odc_mlir.numerics.weight_rounding import Grid, round_weights
from odc_mlir.ops.spec import TensorInfo
from odc_mlir.quantizer.layers import Effect, Examination
from odc_mlir.quantizer.models import graph_of
from odc_mlir.quantizer.outputs import completed, exceeds, is_measurable, refused_output
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.quantizer.samples import check_finite
from odc_mlir.runtime.api import open_executor, run
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.metrics import compare
from odc_mlir.tools.odc_quantize import summary

Array = np.ndarray


Samples = list[list[Array]]


SAMPLES = 24


INF, NAN = np.inf, np.nan


def _reals(*values: float) -> Array:
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
def test_what_is_lacking_counts_as_zero(found: Array, wanted: list[float], lacks: bool) -> None:
    array, seen = completed(_reals(1, 2, NAN), found)
    np.testing.assert_array_equal(array, wanted)
    assert seen is lacks


def test_numbers_where_there_are_to_be_none() -> None:
    assert exceeds(_reals(1, NAN), _reals(1, 2))
    assert not exceeds(_reals(1, NAN), _reals(1, INF))
    assert not exceeds(_reals(1, 2), _reals(1, 2))
    assert not exceeds(_reals(NAN), _reals(1, 2))
    assert not exceeds(np.array([1]), np.array([2]))


def test_outputs_that_tell_something() -> None:
    assert is_measurable([_reals(1, -INF), np.array([1]), _reals()])  # as of a mask
    assert not is_measurable([_reals(1), _reals(-INF, INF)])
    assert not is_measurable([_reals(1, NAN), np.array([1])])


def test_nothing_is_no_right_answer() -> None:
    assert np.isnan(refused_output(_reals(1, 2))).all()
    for answers in (np.array([0, 3, -1]), np.array([True, False]), np.array([0, 255], np.uint8)):
        assert (refused_output(answers) != answers).all()
        assert refused_output(answers).dtype == answers.dtype
    assert (refused_output(np.array([b"one"], object)) != np.array([b"one"], object)).all()


def _softmax_by_hand(net: FloatNet, x: SSAValue) -> SSAValue:
    exponentials = net.add(
        "EXP", net.add("FULLY_CONNECTED", x, net.weights(8, 16, spread=1.5), None, name="y"), name="e"
    )
    total = net.add("SUM", exponentials, net.const([1], "int32"), name="total", keep_dims=True)
    out: SSAValue = net.add("DIV", exponentials, total, name="out")
    return out


def _looked_up(net: FloatNet, x: SSAValue) -> SSAValue:
    """Rows of a table of six by whole parts of reals below six: of codes some are six."""
    y = net.add("FULLY_CONNECTED", x, net.const(0.9 * np.eye(4)), None, name="y")
    index = net.add("CAST", net.add("FLOOR", y, name="floor"), name="index", dtypes=["int32"], out_data_type="int32")
    rows = net.add("GATHER", net.weights(6, 3), index, axis=0, name="rows")
    out: SSAValue = net.add("FULLY_CONNECTED", rows, net.weights(3, 3), None, name="out", keep_num_dims=True)
    return out


def _logarithm(net: FloatNet, x: SSAValue) -> SSAValue:
    out: SSAValue = net.add("LOG", net.add("FULLY_CONNECTED", x, net.weights(1, 16), None, name="y"), name="out")
    return out


def _model(form: Callable[[FloatNet, SSAValue], SSAValue], first: Array) -> bytes:
    net = FloatNet(9)
    with np.errstate(all="ignore"):
        module: ModuleOp = net.module(form(net, net.input(first)))
    return write_model(export_model(module))


def _normal() -> Samples:
    rng = np.random.default_rng(3)
    return [[rng.normal(size=(1, 16)).astype(np.float32)] for _ in range(SAMPLES)]


def _below_six() -> Samples:
    rng, found = np.random.default_rng(1), []
    for number in range(SAMPLES):
        values = rng.uniform(0, 5.5, (1, 4))
        values[0, number % 4] = 5.99 + 0.009 * rng.random()
        found.append([(values / 0.9).astype(np.float32)])
    return found


def _verdict(model: bytes, samples: Samples, **options: Any) -> dict[str, Any]:
    return quantize(model, scheme="int8", calibration=samples, **options).verdict


def test_what_a_model_lacks_is_a_problem_and_an_error() -> None:
    samples = _normal()
    verdict = _verdict(_model(_softmax_by_hand, samples[0][0]), samples, help=False, mixed="off")
    (problem,) = (text for text in verdict["problems"] if "finite" in text)
    assert problem.startswith("the quantised model lacks finite outputs of ")
    assert problem.endswith(f" of {SAMPLES} samples: these count as zeros")
    assert verdict["samples"]["checked_on"] == SAMPLES
    assert verdict["metrics"]["mpeir"] > 0.1
    exponential = next(layer for layer in verdict["layers"] if layer["op"] == "EXP")
    assert exponential["lacking"] > 0
    assert np.isfinite(exponential["output_sqnr_db"])
    lines = list(summary("m.circle", verdict))
    assert not any("nan dB" in line for line in lines)
    assert any(f"which lack numbers in {exponential['lacking']} of 8 samples" in line for line in lines)


def test_the_search_mends_what_stands_before_a_real_division() -> None:
    samples = _normal()
    verdict = _verdict(_model(_softmax_by_hand, samples[0][0]), samples)
    assert verdict["passed"]
    assert {name for name, scheme in verdict["scheme"].items() if scheme == "float"} >= {"e", "total"}
    assert verdict["scheme"]["y"] == "int8"


def test_a_sample_that_a_kernel_refuses_is_one_that_is_missed() -> None:
    samples = _below_six()
    model = _model(_looked_up, samples[0][0])
    plain = _verdict(model, samples, headroom=0.21, help=False, mixed="off")
    assert plain["status"] == "failed"
    assert any("lacks finite outputs" in text for text in plain["problems"])
    found = _verdict(model, samples, headroom=0.21)
    assert found["passed"]
    assert found["scheme"]["y"] != "int8"


def test_a_model_that_lacks_little_keeps_no_limits() -> None:
    samples = _below_six()
    few = [[np.minimum(x, np.float32(5.5))] for (x,) in samples[4:]] + samples[:4]
    model, fixed = _model(_looked_up, samples[0][0]), {"y": "int8"}
    verdict = _verdict(model, few, headroom=0.21, help=False, mixed="on", overrides=fixed)
    assert all(limit["passed"] for limit in verdict["limits"])
    assert not verdict["passed"]
    assert [point["holds"] for point in verdict["front"] if point["chosen"]] == [False]


def test_samples_of_which_the_float_model_makes_no_numbers_are_not_counted() -> None:
    samples = _normal()
    model = _model(_logarithm, samples[0][0])
    measurable = [bool(np.isfinite(run(model, sample)[0]).all()) for sample in samples]
    some = [sample for sample, is_confirmed in zip(samples, measurable, strict=True) if is_confirmed]
    none = [sample for sample, is_confirmed in zip(samples, measurable, strict=True) if not is_confirmed]
    assert len(some) >= 8
    assert len(none) >= 4
    few, most = [*none, *some[:2]], [*none[:2], *some]
    verdict = _verdict(model, few, help=False, mixed="off")
    assert verdict["samples"]["checked_on"] == 2
    assert any(text.startswith(f"only 2 of {len(few)} samples have finite outputs") for text in verdict["problems"])
    assert all(layer["output_sqnr_db"] is None or np.isfinite(layer["output_sqnr_db"]) for layer in verdict["layers"])
    verdict = _verdict(model, most, help=False, mixed="off")
    assert verdict["samples"]["checked_on"] == len(some)
    assert any(text.startswith(f"measures are of {len(some)} of {len(most)} samples") for text in verdict["findings"])
    assert "mpeir" in verdict["intervals"]


def _undefined_classes(net: FloatNet, x: SSAValue) -> SSAValue:
    scores = net.add("FULLY_CONNECTED", x, net.weights(5, 16, spread=1.5), None, name="y")
    out: SSAValue = net.add("SOFTMAX", net.add("ADD", scores, _logarithm(net, x), name="sum"), name="shares", beta=1.0)
    return out


def test_samples_without_numbers_have_no_answers() -> None:
    """The largest of NaN is the first element: it is no class that labels or another model may agree with."""
    rng = np.random.default_rng(4)
    samples = [[rng.normal(size=(1, 16)).astype(np.float32)] for _ in range(96)]
    model = _model(_undefined_classes, samples[0][0])
    answers = [run(model, sample)[0] for sample in samples]
    some = [sample for sample, found in zip(samples, answers, strict=True) if np.isfinite(found).all()]
    none = [sample for sample, found in zip(samples, answers, strict=True) if not np.isfinite(found).all()]
    given = [*some, *none[: len(some) // 2]]
    labels = np.array([int(run(model, sample)[0].argmax()) for sample in some] + [0] * (len(given) - len(some)))
    verdict = _verdict(model, given, labels=labels, help=False, mixed="off")
    assert verdict["samples"]["checked_on"] == len(some)
    assert sum(found["samples"] for found in verdict["scores"]["classes"]) == len(some)
    assert verdict["scores"]["float"] == 100.0
    (text,) = (text for text in verdict["findings"] if text.startswith("measures are of "))
    assert text.startswith(f"measures are of {len(some)} of {len(given)} samples")


def _in_part(net: FloatNet, x: SSAValue) -> SSAValue:
    roots = net.add("SQRT", net.add("FULLY_CONNECTED", x, net.weights(8, 16), None, name="y"), name="roots")
    out: SSAValue = net.add("CONCATENATION", net.add("TANH", x, name="z"), roots, name="out", axis=1)
    return out


def test_a_sample_with_what_is_no_number_is_not_measured_by_the_rest() -> None:
    samples = _normal()
    verdict = _verdict(_model(_in_part, samples[0][0]), samples, help=False, mixed="off")
    assert not verdict["passed"]
    assert any("samples have finite outputs in the float model" in text for text in verdict["problems"])


EXTREMES = np.array([np.nan, np.inf, -np.inf, 3.4e38, -3.4e38, 1e-45, 0.0, 1e20], np.float32)


def layers(factor: float) -> bytes:
    """Two layers of which every third weight is ``factor``."""
    weights = np.random.default_rng(1).normal(size=(8, 8)).astype(np.float32)
    weights.flat[::3] = factor
    return dense_model(weights, weights, biases=(weights[0], weights[0]), names=("hidden", "y"))


@pytest.mark.parametrize("scheme", ["int8", "int8_wo"])
@pytest.mark.parametrize("value", [np.nan, np.inf, 3.4e38, 1e-45])
def test_samples(value: float, scheme: str) -> None:
    model = layers(1.0)
    sample = np.random.default_rng(1).normal(size=(1, 8)).astype(np.float32)
    extreme = np.where(np.arange(8) % 3 == 0, np.float32(value), sample).astype(np.float32)
    try:
        found = odc_mlir.quantize(model, scheme=scheme, calibration=[[extreme], [sample]] * 3, max_seconds=1)
    except OdcError:
        return
    assert np.isfinite(value)
    odc_mlir.run(found.model, [extreme])


@pytest.mark.parametrize("value", [np.nan, np.inf])
@pytest.mark.parametrize("options", [{"calibration": 3}, {"calibration": 0, "evaluation": 3}])
def test_a_sample_that_is_not_finite_is_refused_by_name(value: float, options: dict[str, int]) -> None:
    """Whichever part it has: to choose by, to check on, or none of these."""
    random = np.random.default_rng(1)
    given = {key: [[random.normal(size=(1, 8)).astype(np.float32)] for _ in range(12)] for key in options}
    for key, count in options.items():
        for sample in given[key][5 : 5 + count]:
            sample[0][0, 2] = value
    with pytest.raises(InputError, match=r"sample 5 holds values that are not finite, as 3 of 12 samples do.*'x'"):
        odc_mlir.quantize(layers(1.0), help=False, **given)


@pytest.mark.parametrize("factor", [np.nan, np.inf, 3.4e38, 1e-45])
def test_weights(factor: float) -> None:
    model, sample = layers(factor), np.ones((1, 8), np.float32)
    odc_mlir.run(model, [sample])
    try:
        odc_mlir.quantize(model, calibration=[[sample]] * 3, max_seconds=1)
    except OdcError:
        return


@pytest.mark.parametrize(
    ("value", "what"), [(np.nan, "NaN"), (np.inf, "infinite values"), (-np.inf, "infinite values")]
)
@pytest.mark.parametrize("held_by", ["w", "b"])
@pytest.mark.parametrize("stored", ["float32", "float16"])
def test_weights_and_biases_that_are_no_numbers_are_refused(value: float, what: str, held_by: str, stored: str) -> None:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 4)) for name in ("x", "y"))
    operands = [x]
    for name, shape in (("w", (4, 4)), ("b", (4,))):
        data = np.ones(shape, stored)
        if name == held_by:
            data.flat[1] = value
        operands.append(builder.tensor(name, shape, stored, data=data))
        if stored == "float16":
            real = builder.tensor(f"{name}/real", shape)
            builder.operator("DEQUANTIZE", [operands[-1]], [real])
            operands[-1] = real
    builder.operator("FULLY_CONNECTED", operands, [y])
    model = bytes(write_model(builder.finish([x], [y])))
    samples = [[np.random.default_rng(seed).normal(size=(1, 4)).astype(np.float32)] for seed in range(4)]
    with pytest.raises(ModelError, match=rf"holds {what}.*tensor '{held_by}'"):
        odc_mlir.quantize(model, calibration=samples)


def test_an_infinite_limit_is_no_weight() -> None:
    builder = ModelBuilder()
    x, hidden, y = (builder.tensor(name, (1, 4)) for name in ("x", "hidden", "y"))
    w = builder.tensor("w", (4, 4), data=np.random.default_rng(0).normal(size=(4, 4)).astype(np.float32))
    most = builder.tensor("most", (), data=np.array(np.inf, np.float32))
    builder.operator("MINIMUM", [x, most], [hidden])
    builder.operator("FULLY_CONNECTED", [hidden, w, -1], [y])
    check_finite(build_graph(builder.finish([x], [y])))


def test_comparing() -> None:
    a, b = (open_executor(layers(factor), all_tensors=True) for factor in (1.0, 2.0))
    found = compare(a, b, [[EXTREMES[None]]])
    assert {tensor.name for tensor in found.tensors} == {"hidden", "y"}


def test_codes_of_numbers_that_are_none() -> None:
    info = TensorInfo("x", "int8", (8,), quant(3e38, 3))
    assert to_codes(info, EXTREMES).tolist() == [-128, 127, -128, 4, 2, 3, 3, 3]
    assert to_reals(info, np.array([127, 3], np.int8)).tolist() == [np.inf, 0]


def test_inputs_of_which_nothing_can_be_computed() -> None:
    grid = Grid(np.ones((1, 1)), np.zeros((1, 1)), -127, 127)
    weights = np.array([[[0.4, 1.6]]])
    for covariance in (np.zeros((1, 2, 2)), np.full((1, 2, 2), 1e-320), np.eye(2)[None] * -1.0):
        assert round_weights(weights, grid, covariance).tolist() == [[[0, 2]]]


def test_equalising_never_overflows() -> None:
    module: Any = import_model(odc_mlir.runtime.api.read_model(layers(3.4e38)))
    text = str(odc_mlir.lower(module, "circle-opt"))
    assert "inf" not in text


def test_scales_too_small_to_multiply() -> None:
    made = node("RSQRT", [tensor("int8", (1,), quant(1e-45))], tensor("int8", None, quant(1e-45)))
    with pytest.raises(ModelError, match="a scale ratio is not finite"):
        made.spec.kernel_function(made)


SAMPLES_SMALL_UNITS = np.random.default_rng(1).standard_normal((32, 1, 8)).astype(np.float32)


def two_layers(unit_in: float, unit_out: float) -> bytes:
    """A model of inputs and outputs in these units."""
    random = np.random.default_rng(0)
    first, second = (random.standard_normal(shape) / 3 for shape in ((16, 8), (4, 16)))
    biases = [random.standard_normal(count) / 4 for count in (16, 4)]
    biases[1] *= unit_out
    names = ("hidden", "y")
    return dense_model(first / unit_in, second * unit_out, biases=biases, names=names, activations=("relu", "none"))


@cache
def measured(scheme: str, unit_in: float, unit_out: float) -> tuple[float, list[str]]:
    """The SQNR in dB without help, and why layers stay in float."""
    samples = [[sample] for sample in (SAMPLES_SMALL_UNITS * unit_in).astype(np.float32)]
    model = two_layers(unit_in, unit_out)
    found = odc_mlir.quantize(model, scheme=scheme, calibration=samples, help=False)
    return found.verdict["metrics"]["sqnr_db"], list(found.verdict["float_reasons"].values())


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


def test_where_products_of_scales_vanish_layers_stay_in_float_and_say_why() -> None:
    _, reasons = measured("int16", 1e-2, 1e-34)
    assert any("'hidden' and 'w1'" in reason for reason in reasons)
    assert any("choose units for them that are closer to 1" in reason for reason in reasons)


def with_zeros(unit: float, where: str) -> bytes:
    """Two layers with values in this unit between them: one has a row of zeros, or what is added to them are zeros.

    These are a dead RELU, or come of a factor of zeros.
    """
    random, builder = np.random.default_rng(0), ModelBuilder()
    tensors = {name: builder.tensor(name, (1, 16)) for name in ("hidden", "negative", "dead", "sum")}
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    first, last = random.standard_normal((16, 8)) * unit, random.standard_normal((4, 16)) / unit
    if where == "row":
        first[3] = 0.0

    def layer(source: int, weights: np.ndarray, bias: float, result: int) -> None:
        constants = [np.asarray(weights, np.float32), np.full(len(weights), bias, np.float32)]
        made = [builder.tensor(f"c{result}_{place}", each.shape, data=each) for place, each in enumerate(constants)]
        builder.operator("FULLY_CONNECTED", [source, *made], [result])

    layer(x, first, 0.0, tensors["hidden"])
    last_input = tensors["hidden"]
    if where == "dead":
        layer(x, np.abs(first), -100 * unit, tensors["negative"])
        builder.operator("RELU", [tensors["negative"]], [tensors["dead"]])
        builder.operator("ADD", [tensors["hidden"], tensors["dead"]], [tensors["sum"]])
        last_input = tensors["sum"]
    if where == "factor":
        zeros = builder.tensor("zeros", (1, 16), data=np.zeros((1, 16), np.float32))
        builder.operator("MUL", [tensors["hidden"], zeros], [tensors["dead"]])
        builder.operator("ADD", [tensors["hidden"], tensors["dead"]], [tensors["sum"]])
        last_input = tensors["sum"]
    layer(last_input, last, 0.0, y)
    return bytes(write_model(builder.finish([x], [y])))


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
    samples = [[sample] for sample in SAMPLES_SMALL_UNITS]
    qualities = []
    for unit in (1.0, 1e-20, 1e15):
        found = odc_mlir.quantize(with_zeros(unit, where), scheme=scheme, calibration=samples, help=False)
        assert not found.verdict["float_reasons"]
        qualities.append(found.verdict["metrics"]["sqnr_db"])
    assert qualities[1:] == pytest.approx(qualities[:1] * 2, abs=0.5)


Samples_far_apart = list[list[np.ndarray]]


ROWS, WIDTH = 8, 16


PRODUCTS = ("FULLY_CONNECTED", "BATCH_MATMUL")


class _Builder(ModelBuilder):
    """Makes operators whose results have the name that they are given."""

    def made(self, name: str, shape: tuple[int, ...], operator: str, *operands: int, **options: object) -> int:
        result = self.tensor(name, shape)
        self.operator(operator, list(operands), [result], options=options)
        return result

    def dense(self, name: str, x: int, width: int, seed: int) -> int:
        weights = np.random.default_rng(seed).normal(size=(width, WIDTH)).astype(np.float32) / 4
        constant = self.tensor(f"{name}/w", weights.shape, data=weights)
        return self.made(name, (1, ROWS, width), "FULLY_CONNECTED", x, constant, -1, keep_num_dims=True)


def _masked(hiding: float = -1e9) -> tuple[bytes, Samples_far_apart, Samples_far_apart]:
    """Attention whose mask is an input: 0, or ``hiding`` where nobody is to look."""
    builder = _Builder()
    x, mask = builder.tensor("x", (1, ROWS, WIDTH)), builder.tensor("mask", (1, ROWS, ROWS))
    q, k, v = (builder.dense(name, x, WIDTH, seed) for seed, name in enumerate("qkv"))
    scores = builder.made("scores", (1, ROWS, ROWS), "BATCH_MATMUL", q, k, adjoint_rhs=True)
    shares = builder.made(
        "shares", (1, ROWS, ROWS), "SOFTMAX", builder.made("masked", (1, ROWS, ROWS), "ADD", scores, mask), beta=1.0
    )
    out = builder.dense("out", builder.made("seen", (1, ROWS, WIDTH), "BATCH_MATMUL", shares, v), WIDTH, 3)
    rng = np.random.default_rng(0)

    def sample() -> list[np.ndarray]:
        hidden = np.where(np.arange(ROWS) < rng.integers(2, ROWS), 0.0, hiding)
        return [rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32), np.tile(hidden, (1, ROWS, 1)).astype(np.float32)]

    return model_bytes(builder.finish([x, mask], [out])), [sample() for _ in range(40)], [sample() for _ in range(20)]


def _hovering() -> tuple[bytes, Samples_far_apart, Samples_far_apart]:
    """A layer, and what is left of its results around their mean, far from which all of them are."""
    builder, rng = _Builder(), np.random.default_rng(0)
    x = builder.tensor("x", (1, ROWS, WIDTH))
    far = builder.tensor("far", (), data=np.array(30000.0, np.float32))
    axis = builder.tensor("axis", (1,), "int32", data=np.array([2], np.int32))
    y = builder.made("y", (1, ROWS, WIDTH), "ADD", builder.dense("h", x, WIDTH, 0), far)
    centred = builder.made(
        "d", (1, ROWS, WIDTH), "SUB", y, builder.made("m", (1, ROWS, 1), "MEAN", y, axis, keep_dims=True)
    )
    out = builder.dense("out", centred, WIDTH, 1)
    samples = [[rng.normal(size=(1, ROWS, WIDTH)).astype(np.float32)] for _ in range(60)]
    return model_bytes(builder.finish([x], [out])), samples[:40], samples[40:]


def test_what_no_integers_hold_stays_real() -> None:
    model, calibration, unseen = _hovering()
    plain = quantize(model, calibration=calibration, mixed="off")
    assert sqnr_db(model, plain, unseen) < 10.0
    found = quantize(model, calibration=calibration)
    assert found.verdict["status"] == "passed"
    assert "float" in found.verdict["choices"]["precisions"].values()
    assert sqnr_db(model, found, unseen) > 15.0
    products = {layer["scheme"] for layer in found.verdict["layers"] if layer["op"] in PRODUCTS}
    assert "int8" in products


@pytest.mark.parametrize("reader", [None, "litert"])
def test_what_readers_quantise_is_within_32_bits(reader: str | None) -> None:
    model, calibration, unseen = _masked(float(np.finfo(np.float32).min))
    found = quantize(model, calibration=calibration, help=False, mixed="off", reader=reader)
    graph = graph_of(found.model)
    values: dict[int, np.ndarray] = {}
    HostExecutor(graph).run(unseen[0], watch=lambda index, value: values.update({index: value}))
    casts = [item for item in graph.nodes if item.node.spec.name == "QUANTIZE"]
    assert {graph.tensors[item.outputs[0]].name for item in casts} == {"x_quantized", "mask_quantized"}
    for item in casts:
        codes = graph.tensors[item.outputs[0]].quant
        assert codes is not None
        assert np.abs(values[item.inputs[0]] / codes.scale).max() < 2**30


def test_softmax_that_hides_gets_no_16_bits() -> None:
    """Its table of exponentials ends at exp(-10), which is more than half a code: what is masked would be seen."""
    model, calibration, _ = _masked()
    assert Examination(build_graph(read_model(model)), calibration[:2]).hiding() == {"shares"}
    found = quantize(model, calibration=calibration, metric="sqnr", limit=31.0, **only("mixed")).verdict
    assert found["choices"]["precisions"]
    assert found["choices"]["precisions"].get("shares") not in ("int16x8", "int16")


@pytest.mark.parametrize("error", [1e30, float("inf"), float("nan")])
def test_no_output_is_more_than_wrong(error: float) -> None:
    effect = Effect(frozenset({"a"}), of_weights=False, sums=[[error, 1.0], [0.5, 1.0]])
    assert effect.noise == (2.0, 0.5)


SIZE = 16


def _masked_same_inputs(kind: str) -> bytes:
    """``y`` of what a mask leaves of ``x``; of an ``idle`` input nothing reaches the output."""
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, mask, idle, h, z, y = (builder.tensor(name, (1, SIZE)) for name in ("x", "mask", "idle", "h", "z", "y"))
    zeros = builder.tensor("zeros", (1, SIZE), data=np.zeros((1, SIZE), np.float32))
    weights = builder.tensor("w", (SIZE, SIZE), data=rng.normal(size=(SIZE, SIZE)).astype(np.float32))
    nothing = builder.tensor("nothing", (1, SIZE))
    builder.operator(kind, [x, mask], [h])
    builder.operator("MUL", [idle, zeros], [nothing])
    builder.operator("ADD", [h, nothing], [z])
    builder.operator("FULLY_CONNECTED", [z, weights, -1], [y])
    return write_model(builder.finish([x, mask, idle], [y]))


@pytest.mark.parametrize(("kind", "value", "used"), [("MUL", 1.0, 0.0), ("ADD", 0.0, -8.0)])
def test_a_mask_that_samples_never_use_is_a_reservation(kind: str, value: float, used: float) -> None:
    rng = np.random.default_rng(1)

    def samples(varies: bool) -> list[list[np.ndarray]]:
        masks = np.where((rng.random((32, 1, SIZE)) < 0.5) & varies, used, value).astype(np.float32)
        return [[rng.normal(size=(1, SIZE)).astype(np.float32), m, np.ones((1, SIZE), np.float32)] for m in masks]

    options: dict[str, Any] = {"help": False, "limit": 0.2, "states": {}}  # the mask is none, though zero
    never, sometimes = (
        odc_mlir.quantize(_masked_same_inputs(kind), calibration=samples(v), **options) for v in (False, True)
    )
    text = "passed on 32 samples (input 'mask' was the same in all of them)"
    assert (never.passed, never.verdict["certain"], never.verdict["samples"]["same_inputs"]) == (True, False, ["mask"])
    assert next(iter(summary("m", never.verdict))) == f"m: int8, {text}"
    assert text in repr(never)
    assert "as measured; input &#x27;mask&#x27; was the same in all of them" in never.report_html()
    assert [t for t in never.verdict["findings"] if t.startswith("give samples in which input 'mask' varies")]
    assert unshown(never.verdict["samples"]) == ["input 'mask' was the same in all of them"]
    assert sometimes.verdict["certain"]
    assert sometimes.verdict["samples"]["same_inputs"] == []
    assert unshown(sometimes.verdict["samples"]) == unshown(None) == []


def test_inputs_for_which_nothing_else_can_be_run_are_no_reservation() -> None:
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, shape, h = builder.tensor("x", (1, SIZE)), builder.tensor("shape", (2,), "int32"), builder.tensor("h", (4, 4))
    y = builder.tensor("y", (4, 4))
    weights = builder.tensor("w", (4, 4), data=rng.normal(size=(4, 4)).astype(np.float32))
    builder.operator("RESHAPE", [x, shape], [h])
    builder.operator("FULLY_CONNECTED", [h, weights, -1], [y])
    samples = [[rng.normal(size=(1, SIZE)).astype(np.float32), np.array([4, 4], np.int32)] for _ in range(16)]
    made = odc_mlir.quantize(write_model(builder.finish([x, shape], [y])), calibration=samples, help=False)
    assert made.verdict["samples"]["same_inputs"] == []


COUNT = 64


_HELD = stratified(16, COUNT)  # of so many


Samples_witnesses = list[list[np.ndarray[Any, Any]]]


def rare(events: int, *, is_alarm: bool) -> tuple[bytes, Samples_witnesses, list[int]]:
    """A small value that is 100 for so many samples, none of which is held back, or an alarm that these set off.

    A file, samples and the events' places.
    """
    rng = np.random.default_rng(7)
    builder = ModelBuilder()
    x, hidden, y = builder.tensor("x", (1, 8)), builder.tensor("hidden", (1, 1)), builder.tensor("y", (1, 1))
    weights = builder.tensor("w", (1, 8), data=np.float32([[100, *[0.3] * 7]]))
    bias = builder.tensor("b", (1,), data=np.float32([-5 if is_alarm else 0]))
    builder.operator("FULLY_CONNECTED", [x, weights, bias], [hidden])
    if is_alarm:
        builder.operator("LOGISTIC", [hidden], [y])
    values = rng.normal(size=(COUNT, 1, 8)).astype(np.float32)
    values[:, 0, 0] *= 1e-3
    places = [place for place in range(COUNT) if place not in _HELD][5 : 5 + events]
    values[places, 0, 0] = 1.0
    return write_model(builder.finish([x], [y if is_alarm else hidden])), [[value] for value in values], places


@pytest.mark.parametrize("is_alarm", [False, True])
@pytest.mark.parametrize("events", [1, 2])
def test_rare_events_are_kept(events: int, is_alarm: bool) -> None:
    file, samples, places = rare(events, is_alarm=is_alarm)
    made = odc_mlir.quantize(file, calibration=samples)
    assert made.passed
    executor = HostExecutor(build_graph(read_model(made.to_circle())))
    least = 0.9 if is_alarm else 90.0
    assert all(float(executor.run(samples[place])[0].item()) > least for place in places)
