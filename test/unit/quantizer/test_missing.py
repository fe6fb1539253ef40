"""Numbers that a quantised model does not give, or no model: they are errors, counted, and looked into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.outputs import completed, exceeds, is_measurable, refused_output
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.runtime.api import run
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
