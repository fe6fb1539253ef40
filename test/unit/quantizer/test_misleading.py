"""Damaged and misleading inputs: whatever is said, none of them passes, and what is said is one line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import normal, regressor, squeeze_excite, without_ranges
from helpers.models import ModelBuilder, Samples, dense_model
from odc_mlir.calibration.recorded import Records
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.quantizer.policy.declarations import OPTIONS
from odc_mlir.quantizer.policy.verdict import describe, unshown

Case = Callable[[], dict[str, Any]]
COUNT = 24
SAMPLES = regressor()[1]
NAN, INF = np.nan, np.inf


def classifier() -> tuple[bytes, Samples]:
    file, samples = without_ranges(squeeze_excite)
    return file, samples[:COUNT]


@cache
def columned(sizes: tuple[float, ...], beside: str = "") -> tuple[bytes, Samples]:
    """A layer whose columns have these sizes, and samples.

    ``beside``: a second output, a ``silent`` one that no sample moves, or a ``constant`` one that none could.
    """
    rng, builder = np.random.default_rng(5), ModelBuilder()
    x = builder.tensor("x", (1, 8))
    outputs = [builder.dense("y", x, rng.normal(size=(len(sizes), 8)) * np.array(sizes)[:, None])]
    if beside == "silent":
        outputs.append(builder.dense("alarm", x, np.ones((1, 8)), [-100], fused_activation_function="relu"))
    elif beside:
        outputs.append(builder.made("version", (1, 1), "NEG", builder.constant("two", [[2]])))
    return builder.file([x], outputs), normal(rng, COUNT, 1, 8)


def without_sums(kind: str) -> tuple[bytes, Samples]:
    """A model without a real value, or one that only moves values, and samples."""
    builder = ModelBuilder()
    if kind == "ABS":
        a = builder.tensor("a", (1, 4), "int32")
        file = builder.file([a], [builder.made("b", (1, 4), kind, a, dtype="int32")])
        return file, [[np.arange(4, dtype=np.int32)[None] - i] for i in range(COUNT)]
    x, order = builder.tensor("x", (1, 2, 4)), builder.constant("order", [0, 2, 1], "int32")
    return builder.file([x], [builder.made("y", (1, 4, 2), kind, x, order)]), normal(
        np.random.default_rng(7), COUNT, 1, 2, 4
    )


def _of(made: tuple[bytes, Samples], **options: Any) -> dict[str, Any]:
    return {"model": made[0], "calibration": made[1], **options}


def _with(**options: Any) -> Case:
    return lambda: {"calibration": SAMPLES, **options}


def _changed(change: Callable[[np.ndarray], Any]) -> Case:
    return lambda: {"calibration": [[change(x)] for (x,) in SAMPLES]}


def _evaluated(change: Callable[[np.ndarray], np.ndarray]) -> Case:
    """Samples to check on made of those for calibration."""
    return _with(evaluation=[[change(x)] for (x,) in SAMPLES])


@cache
def answers_of_classifier() -> np.ndarray:
    file, samples = classifier()
    return np.array([int(np.argmax(odc_mlir.run(file, list(sample))[0])) for sample in samples])


def _labelled(labels: Callable[[np.ndarray], Any], **options: Any) -> Case:
    """The classifier with labels made of its own answers."""
    return lambda: _of(classifier(), labels=labels(answers_of_classifier()), **options)


@cache
def damaged() -> tuple[bytes, Samples, np.ndarray]:
    """A regressor whose input has columns of very different sizes, too many for one scale; samples, and its answers."""
    rng = np.random.default_rng(6)
    sizes = 10.0 ** np.linspace(-3, 3, 8)
    file = dense_model(rng.normal(size=(1, 8)) / sizes, names="y")
    samples = [[(rng.normal(size=(1, 8)) * sizes).astype(np.float32)] for _ in range(4 * COUNT)]
    return file, samples, np.array([odc_mlir.run(file, list(sample))[0].item() for sample in samples])


def _told(factor: float, offset: float = 0.0) -> Case:
    """The answers of a regressor that quantising destroys, as labels in another unit."""
    return lambda: _of(damaged()[:2], labels=factor * damaged()[2] + offset, normalize="off")


def _records(evaluation: Samples = SAMPLES, **fields: Callable[[dict], Any] | Any) -> Case:
    """Records of which fields are replaced; ``tensors`` by a function of these."""

    def make() -> dict[str, Any]:
        records: Records = odc_mlir.quantize(regressor()[0], calibration=SAMPLES, help=False).records
        for name, value in fields.items():
            setattr(records, name, value(records.tensors) if callable(value) else value)
        return {"records": records, "evaluation": evaluation}

    return make


def _ranges(low: float, high: float) -> Case:
    """Records in which every tensor reached from ``low`` to ``high``."""
    return _records(tensors=lambda old: {key: TensorStatistics.of_extremes([low], [high]) for key in old})


def _weights(value: float, *, every: bool = True) -> Case:
    """A layer whose weights, or one of them, are ``value``."""
    weights = np.random.default_rng(4).normal(size=(4, 8)).astype(np.float32)
    weights[slice(None) if every else 1, slice(None) if every else 2] = value
    return lambda: _of((dense_model(weights), SAMPLES))


OFFSET = dense_model(np.random.default_rng(3).normal(size=(1, 8)), biases=(np.array([1000.0]),), names="y")
# Values of options: no numbers, beyond what is possible, of another type, and limits that any model or zeros keep.
VALUES: dict[str, list[Any]] = {
    "limit": [NAN, INF, -1.0, 2.0, 1.0, "0.1", True],
    "min_coverage": [NAN, 1.5, -0.1],
    "headroom": [INF, 256.0, "1"],
    "max_bytes": ["9 kB", 0],
    "scheme": [["int8"]],
    "equalize": [1],
    "help": ["no"],
    "parameters": [5],
    "patterns": [5],
    "evaluation": [[], 5],
    "metric": ["accuracy", "drop"],
    "overrides": [
        {"hidden": "float", "y": "float"},
        {"hidden": "int16x8", "y": "int16x8"},
    ],
}
LIMITS: dict[str, list[float]] = {
    "top1": [1.5, 0.9],
    "cosine": [2.0, 0.0, -1.0, 1e-9],
    "mse": [-1e-9, 1e9],
    "mae": [0.0, 1e6],
    "max_abs": [1e30],
    "mape": [100.0, 99.0],
    "sqnr": [INF, 0.0, -300.0, 1e-6],
}
CASES: dict[str, Case] = {
    **{f"{name} {value}": _with(**{name: value}) for name, values in VALUES.items() for value in values},
    **{f"{name} limit {limit}": _with(metric=name, limit=limit) for name, limits in LIMITS.items() for limit in limits},
    **{
        f"percentiles {options}": _with(ranges="percentile", range_options=options)
        for options in ({"high": "99"}, {"high": True}, {"low": NAN}, {"low": 99.0, "high": 1.0})
    },
    **{
        f"samples of {value}": _changed(lambda x, value=value: np.full_like(x, value))
        for value in (NAN, INF, -INF, 0.0, 1.0, 1e-40, 3.4e38)
    },
    **{
        f"{count} samples of another unit": _with(
            calibration=[[x * np.float32(1e3 if i % COUNT < count else 1)] for i, (x,) in enumerate(SAMPLES)]
        )
        for count in (3, 12, 20)
    },
    "one sample": _with(calibration=SAMPLES[:1]),
    "one sample of many outputs": lambda: _of(classifier()) | {"calibration": classifier()[1][:1]},
    "one sample many times": _with(calibration=SAMPLES[:1] * COUNT),
    "samples without values": _changed(lambda x: x[:0]),
    "samples that are text": _changed(lambda x: np.array([["a"] * 8])),
    "samples that are complex": _changed(lambda x: x * 1j),
    "samples of an input too many": lambda: {"calibration": [[x, x] for (x,) in SAMPLES]},
    "samples that are a number": _with(calibration=5),
    "a sample of another shape": _with(calibration=[*SAMPLES, [np.ones((1, 9), np.float32)]]),
    "checked on zeros": _evaluated(np.zeros_like),
    "checked on one sample many times": _evaluated(np.ones_like),
    "checked on one sample of others": _with(calibration=SAMPLES[1:], evaluation=SAMPLES[:1]),
    "weights alone checked on one sample": lambda: {"scheme": "int8_wo", "evaluation": SAMPLES[:1]},
    "records checked on one sample": _records(SAMPLES[:1]),
    "checked on another shape": _evaluated(lambda x: x[:, :-1]),
    "checked on another unit": _evaluated(lambda x: x * 100),
    "no layer for the target": _with(target="npu-256", overrides={"hidden": "float", "y": "float"}),
    "a layer that the target refuses": _with(target="npu-256", overrides={"hidden": "float"}),
    "a budget of no time": _with(max_time_ms=0.0, target="npu-256"),
    "weights of zero": _weights(0.0),
    "weights of subnormals": _weights(1e-42),
    "one weight of the largest number": _weights(3.4e38, every=False),
    "limit of answers that all may miss": lambda: _of(classifier(), metric="top1", limit=0.0),
    "limit of sqnr that an offset keeps": lambda: _of((OFFSET, SAMPLES), metric="sqnr"),
    "max-drop nan": _labelled(lambda answers: answers, max_drop=NAN),
    "max-drop infinite": _labelled(lambda answers: answers, max_drop=INF),
    "all points may be lost": _labelled(lambda answers: answers, max_drop=100.0),
    "labels that are one number": _labelled(lambda answers: 3),
    "labels in a hundredth of the unit": _told(100.0),
    "labels in a large unit": _told(1e-20),
    "labels from another zero": _told(1.0, 1e4),
    "labels upside down": _told(-1.0),
    "labels in a third of the unit": _told(3.0),
    "labels of two lengths": _with(labels=[[1], [1, 2]] * (COUNT // 2)),
    "labels that are NaN in part": _with(labels=np.array([NAN, *range(1, COUNT)])),
    "labels that are NaN": _with(labels=np.full(COUNT, NAN)),
    "labels that are all one number": _with(labels=np.full(COUNT, 0.5)),
    "labels that are truths": _labelled(lambda answers: answers > 2),
    "labels that are complex": _labelled(lambda answers: answers * 1j),
    "labels of more samples": _labelled(lambda answers: np.concatenate([answers, answers])),
    "labels that are constant": _labelled(np.zeros_like),
    "labels out of range": _labelled(lambda answers: answers + 100),
    "labels that are negative": _labelled(lambda answers: -1 - answers),
    "labels from 1 on": _labelled(lambda answers: np.minimum(answers + 1, 5)),
    "labels of other samples": _labelled(lambda answers: np.roll(answers, 7)),
    "labels counted down": _labelled(lambda answers: 5 - answers),
    "labels of other classes": _labelled(lambda answers: (answers > 2).astype(np.int64)),
    "labels that are text": _labelled(lambda answers: answers.astype(str)),
    "records that are a number": lambda: {"records": 5},
    "records of another model": _records(digest="0" * 64),
    "records of other tensors": _records(
        digest="", tensors=lambda old: {(0, f"other/{name}"): item for (_, name), item in old.items()}
    ),
    "records of no run": _records(tensors={}, runs=0),
    "records of NaN": _ranges(NAN, NAN),
    "records of infinity": _ranges(-INF, INF),
    "records upside down": _ranges(1.0, -1.0),
    "records of zeros": _ranges(0.0, 0.0),
    "records of small values": _ranges(-1e-3, 1e-3),
    "records of the largest numbers": _ranges(-3e38, 3e38),
    "records of one tensor": _records(tensors=lambda old: dict(list(old.items())[1:2])),
}


@pytest.mark.parametrize("case", list(CASES))
def test_nothing_misleading_passes(case: str) -> None:
    options = CASES[case]()
    model = options.pop("model", regressor()[0])
    options.setdefault("help", case.startswith("samples") or "time" in case)  # where help has something to trip over
    with pytest.raises(OdcError) as raised:
        _require_passed(model, options)
    assert "\n" not in str(raised.value)


def _require_passed(model: bytes, options: dict[str, Any]) -> None:
    made = odc_mlir.quantize(model, **options)
    assert describe(made.verdict).startswith("passed" if made.passed else "failed: ")
    made.require_passed()


def verdict_of(made: tuple[bytes, Samples] = regressor(), **options: Any) -> dict[str, Any]:
    return odc_mlir.quantize(made[0], **{"calibration": made[1], "help": False, **options}).verdict


def test_numbers_that_have_nothing_to_do_with_answers_do_not_count_alone() -> None:
    answers = np.array([odc_mlir.run(regressor()[0], list(sample))[0].item() for sample in SAMPLES])
    noise = np.random.default_rng(0).normal(size=COUNT)
    for labels, metrics in ((answers + 0.1 * noise, ["drop"]), (noise, ["drop", "mpeir"])):
        assert [check["metric"] for check in verdict_of(labels=labels)["limits"]] == metrics


@pytest.mark.parametrize("wrong", [False, True])
def test_few_labels_that_luck_may_explain_do_not_count_alone(wrong: bool) -> None:
    file, samples = regressor(4)
    answers = [int(np.argmax(odc_mlir.run(file, list(sample))[0])) for sample in samples]
    chosen = [i for i, answer in enumerate(answers) if answers[:i].count(answer) < 3]
    labels = np.array([answers[i] for i in chosen])
    given = [samples[i] for i in chosen]
    options: dict[str, Any] = {"evaluation": given, "labels": np.roll(labels, 2) if wrong else labels}
    verdict = odc_mlir.quantize(file, calibration=samples, help=False, **options).verdict
    assert [check["metric"] for check in verdict["limits"]] == (
        ["drop", "mpeir", "top1_decided", "recall_drop"] if wrong else ["drop", "recall_drop"]
    )
    text = f"labels of {len(given)} samples fit the answers of the float model no better than chance"
    assert any(finding.startswith(text) for finding in verdict["findings"]) is wrong
    assert ("labels fit the float model no better than chance" in unshown(verdict["samples"])) is wrong


@pytest.mark.parametrize(
    ("kind", "scheme", "problem"),
    [
        ("TRANSPOSE", "int8", "only operators that move values are quantised to int8"),
        ("TRANSPOSE", "int16x8", "only operators that move values are quantised to int16x8"),
        ("ABS", "int8", "nothing is quantised to int8"),
    ],
)
def test_what_only_moves_values_or_has_no_reals_is_not_quantised(kind: str, scheme: str, problem: str) -> None:
    verdict = verdict_of(without_sums(kind), scheme=scheme)
    assert (verdict["passed"], verdict["problems"]) == (False, [problem])
    assert set(verdict["scheme"].values()) == ({"float"} if kind == "ABS" else {scheme})


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_unit_of_an_output_decides_nothing(scale: float) -> None:
    verdict = verdict_of(regressor(scale=scale))
    assert verdict["passed"], verdict["problems"]
    assert 0.001 < verdict["value"] < 0.1
    assert (verdict["metrics"]["top1_match"], "top1_match" in verdict["intervals"]) == (None, False), "it is one number"


def test_what_is_quantised_is_said() -> None:
    coverage = verdict_of(regressor(4), overrides={"hidden": "int16x8"})["coverage"]
    assert coverage["precisions"] == {
        "int16x8": {"layers": 1, "weights": 128, "macs": 128},
        "int8": {"layers": 1, "weights": 64, "macs": 64},
    }
    assert (coverage["unit"], coverage["share"]) == ("macs", 1.0)
    problems = verdict_of(overrides={"hidden": "float"})["problems"]
    assert any("of the products are quantised; the minimum is 50 %" in text for text in problems)


@pytest.mark.parametrize(
    ("value", "text"), [(0.0, "all values of all samples are 0; this is no real data"), (1e-40, "values reach from ")]
)
def test_findings_name_sample_and_tensor(value: float, text: str) -> None:
    filled = [[(value * x / np.abs(x).max()).astype(np.float32)] for (x,) in SAMPLES]
    findings = verdict_of(calibration=filled)["findings"]
    assert any(finding.startswith(f"'x': {text}") for finding in findings), findings


LOST = "varies in the float model and is lost in"
SAME = "is the same for all 24 samples, so its accuracy is unknown"


@pytest.mark.parametrize(
    ("sizes", "beside", "problem", "finding"),
    [
        ((1000.0, 1.0), "", f"column 1 of output 'y' (1 of 2) {LOST} the ", ""),
        ((1e5, 1.0, 1e-5), "", "columns 1, 2 of output 'y' (2 of 3) vary in the float model and are lost in", ""),
        ((450.0, 1.0), "", f"column 1 of output 'y' (1 of 2) {LOST} the quantised", ""),
        ((200.0, 1.0), "", "", ""),
        ((1.0,) * 16 + (1e-4,), "", "", "column 16 of output 'y' (1 of 17) varies in the float model"),
        ((1.0, 1.0), "silent", f"output 'alarm' {SAME}: give ", ""),
        ((1.0, 1.0), "constant", "", f"output 'version' {SAME}"),
    ],
)
def test_what_is_lost_or_silent_is_told_by_name(sizes: tuple, beside: str, problem: str, finding: str) -> None:
    verdict = verdict_of(columned(sizes, beside))
    assert verdict["passed"] is not bool(problem)
    for key, expected in (("problems", problem), ("findings", finding)):
        seen = [text for text in verdict[key] if " of output 'y' (" in text or SAME in text]
        assert len(seen) == bool(expected), seen
        assert "".join(seen).startswith(expected)
    if sizes == (1000.0, 1.0):
        assert verdict_of(columned(sizes), scheme="int16x8")["passed"], "more bits bring it back"
    if beside == "silent":  # says nothing of layers
        effects = {layer["name"]: layer["output_sqnr_db"] for layer in verdict["layers"]}
        assert effects["y"] > 30
        assert effects["alarm"] is None


def test_what_takes_samples_is_refused_without_and_what_changes_nothing_is_said() -> None:
    file, records = regressor()[0], odc_mlir.quantize(regressor()[0], calibration=SAMPLES, help=False).records
    for option in (name for name, declared in OPTIONS.items() if declared.needs_samples):
        value = "weights" if option == "equalize" else "on"
        with pytest.raises(OptionError, match=f"{option} '{value}' needs samples for calibration"):
            odc_mlir.quantize(file, records=records, **{option: value})
        for idle in OPTIONS[option].idle:
            assert odc_mlir.quantize(file, records=records, help=False, **{option: idle}).verdict["choices"]
    with pytest.raises(OptionError, match="rounding 'on' needs samples for calibration"):
        odc_mlir.quantize(file, scheme="int8_wo", rounding="on")
    with pytest.raises(OptionError, match="records and calibration samples both give ranges; give one"):
        odc_mlir.quantize(file, records=records, calibration=SAMPLES)
    for option, value, made in (("normalize", "on", classifier()), ("equalize", "weights", columned((1.0, 2.0)))):
        findings = verdict_of(made, **{option: value})["findings"]
        assert [text for text in findings if text.startswith(f"{option} {value} changes nothing: ")]
