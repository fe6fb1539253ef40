"""Damaged and misleading inputs: whatever is said, none of them passes, and what is said is one line."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import squeeze_excite, two_layers
from helpers.models import ModelBuilder, dense_model
from odc_mlir.calibration.recorded import Records
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import OdcError, OptionError
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.policy.declarations import OPTIONS
from odc_mlir.quantizer.policy.verdict import describe, unshown
from odc_mlir.tools import odc_quantize

Samples = list[list[np.ndarray]]
COUNT = 24


@cache
def classifier() -> tuple[bytes, Samples]:
    """A model of six classes, and samples."""
    module, samples = squeeze_excite()
    return _file(export_model(module)), samples[:COUNT]


@cache
def regressor(outputs: int = 1, scale: float = 1.0) -> tuple[bytes, Samples]:
    """Two layers, and samples."""
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(outputs, scale, rng)
    return _file(builder.finish([x], [y])), [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]


@cache
def columned(sizes: tuple[float, ...], beside: str = "") -> tuple[bytes, Samples]:
    """A layer whose columns have these sizes, and samples.

    ``beside``: a second output, a ``silent`` one that no sample moves, or a ``constant`` one that none could.
    """
    rng = np.random.default_rng(5)
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, len(sizes)))
    weights = (rng.normal(size=(len(sizes), 8)) * np.array(sizes)[:, None]).astype(np.float32)
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("y/w", weights.shape, data=weights), -1], [y])
    outputs = [y]
    if beside == "silent":
        alarm, minus = builder.tensor("alarm", (1, 1)), builder.tensor("alarm/b", (1,), data=np.float32([-100]))
        ones = builder.tensor("alarm/w", (1, 8), data=np.ones((1, 8), np.float32))
        builder.operator("FULLY_CONNECTED", [x, ones, minus], [alarm], options={"fused_activation_function": "relu"})
        outputs.append(alarm)
    elif beside:
        version = builder.tensor("version", (1, 1))
        builder.operator("NEG", [builder.tensor("two", (1, 1), data=np.float32([[2]]))], [version])
        outputs.append(version)
    return _file(builder.finish([x], outputs)), [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(COUNT)]


@cache
def integers() -> tuple[bytes, Samples]:
    """A model without a real value."""
    builder = ModelBuilder()
    a, b = builder.tensor("a", (1, 4), "int32"), builder.tensor("b", (1, 4), "int32")
    builder.operator("ABS", [a], [b])
    return _file(builder.finish([a], [b])), [[np.arange(4, dtype=np.int32)[None] - i] for i in range(COUNT)]


def moved() -> tuple[bytes, Samples]:
    """A model that computes nothing, and samples."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 2, 4)), builder.tensor("y", (1, 4, 2))
    order = builder.tensor("order", (3,), "int32", data=np.array([0, 2, 1], np.int32))
    builder.operator("TRANSPOSE", [x, order], [y])
    rng = np.random.default_rng(7)
    return _file(builder.finish([x], [y])), [[rng.normal(size=(1, 2, 4)).astype(np.float32)] for _ in range(COUNT)]


def _file(model: Any) -> bytes:
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model))


def _filled(value: float, *, every: bool = True) -> Callable[[], dict[str, Any]]:
    """Samples of nothing but ``value``, or with one such element each."""

    def make() -> dict[str, Any]:
        _, samples = regressor()
        made = [[sample[0].copy()] for sample in samples]
        for (array,) in made:
            array[0, : None if every else 1] = value
        return {"calibration": made}

    return make


def _with(**options: Any) -> Callable[[], dict[str, Any]]:
    return lambda: {"calibration": regressor()[1], **options}


def _columned(*sizes: float, beside: str = "") -> Callable[[], dict[str, Any]]:
    return lambda: dict(zip(("model", "calibration"), columned(sizes, beside), strict=True))


def _labelled(labels: Callable[[np.ndarray], Any], **options: Any) -> Callable[[], dict[str, Any]]:
    """The classifier with labels made of its own answers."""

    def make() -> dict[str, Any]:
        file, samples = classifier()
        answers = np.array([int(np.argmax(odc_mlir.run(file, list(sample))[0])) for sample in samples])
        return {"model": file, "calibration": samples, "labels": labels(answers), **options}

    return make


def _with_offset(offset: float) -> bytes:
    return dense_model(np.random.default_rng(3).normal(size=(1, 8)), biases=(np.array([offset]),), names="y")


@cache
def damaged() -> tuple[bytes, Samples]:
    """A regressor whose input has columns of very different sizes, of which one scale leaves little."""
    rng = np.random.default_rng(6)
    sizes = 10.0 ** np.linspace(-3, 3, 8)
    file = dense_model(rng.normal(size=(1, 8)) / sizes, names="y")
    samples = [[(rng.normal(size=(1, 8)) * sizes).astype(np.float32)] for _ in range(4 * COUNT)]
    return file, samples


def _told(factor: float, offset: float = 0.0) -> dict[str, Any]:
    """The answers of a regressor that quantising destroys, as labels in another unit."""
    file, samples = damaged()
    answers = np.array([odc_mlir.run(file, list(sample))[0].item() for sample in samples])
    return {"model": file, "calibration": samples, "labels": factor * answers + offset, "normalize": "off"}


def _records(change: Callable[[Records], None]) -> Callable[[], dict[str, Any]]:
    def make() -> dict[str, Any]:
        file, samples = regressor()
        records = odc_mlir.quantize(file, calibration=samples, help=False).records
        change(records)
        return {"records": records, "evaluation": samples}

    return make


def _of_another(records: Records) -> None:
    records.digest = "0" * 64


def _renamed(records: Records) -> None:
    records.digest = ""
    records.tensors = {(0, f"other/{name}"): item for (_, name), item in records.tensors.items()}


def _emptied(records: Records) -> None:
    records.tensors, records.runs = {}, 0


def _ranges(low: float, high: float) -> Callable[[Records], None]:
    """Every tensor reached from ``low`` to ``high``."""

    def change(records: Records) -> None:
        records.tensors = {key: TensorStatistics.of_extremes([low], [high]) for key in records.tensors}

    return change


def _of_one_tensor(records: Records) -> None:
    records.tensors = dict(list(records.tensors.items())[1:2])


def _evaluated(change: Callable[[np.ndarray], np.ndarray]) -> Callable[[], dict[str, Any]]:
    """Samples to check on made of those for calibration."""
    return lambda: {"calibration": regressor()[1], "evaluation": [[change(x)] for (x,) in regressor()[1][:COUNT]]}


def _weights(value: float, *, every: bool = True) -> Callable[[], dict[str, Any]]:
    """A layer whose weights, or one of them, are ``value``."""

    def make() -> dict[str, Any]:
        weights = np.random.default_rng(4).normal(size=(4, 8)).astype(np.float32)
        weights[slice(None) if every else 1, slice(None) if every else 2] = value
        return {"model": dense_model(weights), "calibration": regressor()[1]}

    return make


def _one_sample_with(value: float) -> dict[str, Any]:
    """The last sample, which is held back, holds ``value``."""
    samples = [[x.copy()] for (x,) in regressor()[1]]
    samples[-1][0][0, 0] = value
    return {"calibration": samples}


CASES: dict[str, Callable[[], dict[str, Any]]] = {
    "samples of NaN": _filled(np.nan),
    "samples of infinity": _filled(np.inf),
    "samples of minus infinity": _filled(-np.inf),
    "samples of zeros": _filled(0.0),
    "samples of ones": _filled(1.0),
    "samples of subnormals": _filled(1e-40),
    "samples of the largest number": _filled(3.4e38),
    "samples of NaN in part": _filled(np.nan, every=False),
    "samples of infinity in part": _filled(np.inf, every=False),
    "one sample of NaN": lambda: _one_sample_with(np.nan),
    "one sample of infinity": lambda: _one_sample_with(np.inf),
    "one sample": lambda: {"calibration": regressor()[1][:1]},
    "one sample of many outputs": lambda: {"model": classifier()[0], "calibration": classifier()[1][:1]},
    "one sample many times": lambda: {"calibration": regressor()[1][:1] * COUNT},
    "no sample": lambda: {"calibration": []},
    "samples without values": lambda: {"calibration": [[np.zeros((0, 8), np.float32)]] * COUNT},
    "samples that are text": lambda: {"calibration": [[np.array([["a"] * 8])]] * COUNT},
    "samples that are complex": lambda: {"calibration": [[x * 1j] for (x,) in regressor()[1]]},
    "samples of an input too many": lambda: {"calibration": [[x, x] for (x,) in regressor()[1]]},
    "no sample to check on": lambda: {"calibration": regressor()[1], "evaluation": []},
    "checked on NaN": _evaluated(lambda x: x * np.nan),
    "checked on zeros": _evaluated(np.zeros_like),
    "checked on one sample many times": _evaluated(np.ones_like),
    "checked on one sample of others": lambda: {"calibration": regressor()[1][1:], "evaluation": regressor()[1][:1]},
    "weights alone checked on one sample": lambda: {"scheme": "int8_wo", "evaluation": regressor(4)[1][:1]},
    "records checked on one sample": lambda: _records(lambda records: None)() | {"evaluation": regressor()[1][:1]},
    "checked on another shape": _evaluated(lambda x: x[:, :-1]),
    "checked on another unit": _evaluated(lambda x: x * 100),
    "limit nan": _with(limit=np.nan),
    "limit infinite": _with(limit=np.inf),
    "limit negative": _with(limit=-1.0),
    "limit of a share above 1": _with(metric="top1", limit=1.5),
    "limit of mpeir above 1": _with(limit=2.0),
    "limit of cosine above 1": _with(metric="cosine", limit=2.0),
    "limit of mse negative": _with(metric="mse", limit=-1e-9),
    "sqnr infinite": _with(metric="sqnr", limit=np.inf),
    "max-drop nan": _labelled(lambda answers: answers, max_drop=np.nan),
    "max-drop negative": _labelled(lambda answers: answers, max_drop=-1.0),
    "max-drop infinite": _labelled(lambda answers: answers, max_drop=np.inf),
    "min-coverage nan": _with(min_coverage=np.nan),
    "min-coverage above 1": _with(min_coverage=1.5),
    "min-coverage negative": _with(min_coverage=-0.1),
    "max-seconds nan": _with(max_seconds=np.nan),
    "headroom infinite": _with(headroom=np.inf),
    "headroom beyond all codes": _with(headroom=256.0),
    "all layers float": _with(overrides={"hidden": "float", "y": "float"}),
    "all layers of another type": _with(overrides={"hidden": "int16x8", "y": "int16x8"}),
    "most layers float": _with(overrides={"hidden": "float"}),
    "no layer for the target": _with(target="npu-256", overrides={"hidden": "float", "y": "float"}),
    "a layer that the target refuses": _with(target="npu-256", overrides={"hidden": "float"}),
    "no real values": lambda: {"model": integers()[0], "calibration": integers()[1]},
    "weights of zero": _weights(0.0),
    "weights of NaN": _weights(np.nan),
    "weights of infinity": _weights(np.inf),
    "weights of subnormals": _weights(1e-42),
    "one weight of NaN": _weights(np.nan, every=False),
    "one weight of the largest number": _weights(3.4e38, every=False),
    "a column that is small beside another": _columned(1000.0, 1.0),
    "columns of three sizes": _columned(1e5, 1.0, 1e-5),
    "an output that no sample moves": _columned(1.0, 1.0, beside="silent"),
    "limit of sqnr that zeros keep": _with(metric="sqnr", limit=0.0),
    "limit of sqnr below zero": _with(metric="sqnr", limit=-300.0),
    "limit of cosine that zeros keep": _with(metric="cosine", limit=0.0),
    "limit of cosine below zero": _with(metric="cosine", limit=-1.0),
    "limit of mape that zeros keep": _with(metric="mape", limit=100.0),
    "limit of answers that all may miss": lambda: {
        "model": classifier()[0],
        "calibration": classifier()[1],
        "metric": "top1",
        "limit": 0.0,
    },
    "answers of one column": _with(metric="top1", limit=0.9),
    "limit of mse that any model keeps": _with(metric="mse", limit=1e9),
    "limit of mae that any model keeps": _with(metric="mae", limit=1e6),
    "limit of max_abs that any model keeps": _with(metric="max_abs", limit=1e30),
    "limit of mpeir that any model keeps": _with(limit=1.0),
    "limit of sqnr that zeros nearly keep": _with(metric="sqnr", limit=1e-6),
    "limit of cosine that means nearly keep": _with(metric="cosine", limit=1e-9),
    "limit of mape that zeros nearly keep": _with(metric="mape", limit=99.0),
    "limit of sqnr that an offset keeps": lambda: {
        "model": _with_offset(1000.0),
        "calibration": regressor()[1],
        "metric": "sqnr",
    },
    "all points may be lost": _labelled(lambda answers: answers, max_drop=100.0),
    "limit that is text": _with(limit="0.1"),
    "limit that is a truth": _with(limit=True),
    "headroom that is text": _with(headroom="1"),
    "bytes that are text": _with(max_bytes="9 kB"),
    "scheme that is a list": _with(scheme=["int8"]),
    "equalize that is a number": _with(equalize=1),
    "help that is text": _with(help="no"),
    "parameters that are a number": _with(parameters=5),
    "patterns that are a number": _with(patterns=5),
    "percentiles that are text": _with(ranges="percentile", range_options={"high": "99"}),
    "percentiles that are truths": _with(ranges="percentile", range_options={"high": True}),
    "samples that are a number": lambda: {"calibration": 5},
    "samples to check on that are a number": _with(evaluation=5),
    "records that are a number": lambda: {"records": 5},
    "labels of two lengths": _with(labels=[[1], [1, 2]] * (COUNT // 2)),
    "unknown metric": _with(metric="accuracy"),
    "drop without labels": _with(metric="drop"),
    "no layer of that name": _with(overrides={"nobody": "float"}),
    "percentiles that are NaN": _with(ranges="percentile", range_options={"low": np.nan}),
    "percentiles upside down": _with(ranges="percentile", range_options={"low": 99.0, "high": 1.0}),
    "a budget of no byte": _with(max_bytes=0),
    "a budget of no time": _with(max_time_ms=0.0, target="npu-256"),
    "labels that are one number": _labelled(lambda answers: 3),
    "labels in a hundredth of the unit": lambda: _told(100.0),
    "labels in a large unit": lambda: _told(1e-20),
    "labels from another zero": lambda: _told(1.0, 1e4),
    "labels upside down": lambda: _told(-1.0),
    "labels in a third of the unit": lambda: _told(3.0),
    "labels that are truths": _labelled(lambda answers: answers > 2),
    "labels that are complex": _labelled(lambda answers: answers * 1j),
    "labels of more samples": _labelled(lambda answers: np.concatenate([answers, answers])),
    "labels that are NaN in part": lambda: {
        "calibration": regressor()[1],
        "labels": np.array([np.nan, *range(1, COUNT)]),
    },
    "labels that are constant": _labelled(np.zeros_like),
    "labels out of range": _labelled(lambda answers: answers + 100),
    "labels that are negative": _labelled(lambda answers: -1 - answers),
    "labels from 1 on": _labelled(lambda answers: np.minimum(answers + 1, 5)),
    "labels of other samples": _labelled(lambda answers: np.roll(answers, 7)),
    "labels counted down": _labelled(lambda answers: 5 - answers),
    "labels of other classes": _labelled(lambda answers: (answers > 2).astype(np.int64)),
    "labels of too few samples": _labelled(lambda answers: answers[:-1]),
    "labels that are text": _labelled(lambda answers: answers.astype(str)),
    "labels that are NaN": lambda: {"calibration": regressor()[1], "labels": np.full(COUNT, np.nan)},
    "labels that are all one number": lambda: {"calibration": regressor()[1], "labels": np.full(COUNT, 0.5)},
    "records of another model": _records(_of_another),
    "records of other tensors": _records(_renamed),
    "records of no run": _records(_emptied),
    "records of NaN": _records(_ranges(np.nan, np.nan)),
    "records of infinity": _records(_ranges(-np.inf, np.inf)),
    "records upside down": _records(_ranges(1.0, -1.0)),
    "records of zeros": _records(_ranges(0.0, 0.0)),
    "records of small values": _records(_ranges(-1e-3, 1e-3)),
    "records of the largest numbers": _records(_ranges(-3e38, 3e38)),
    "records of one tensor": _records(_of_one_tensor),
    "a sample of another shape": lambda: {"calibration": [*regressor()[1], [np.ones((1, 9), np.float32)]]},
    "a limit that nothing keeps": _with(metric="mae", limit=0.0),
    "time that is over": _with(metric="mae", limit=1e-6, max_seconds=0.0),
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


def test_numbers_that_have_nothing_to_do_with_answers_do_not_count_alone() -> None:
    file, samples = regressor()
    answers = np.array([odc_mlir.run(file, list(sample))[0].item() for sample in samples])
    noise = np.random.default_rng(0).normal(size=COUNT)
    made = [odc_mlir.quantize(file, calibration=samples, labels=y, help=False) for y in (answers + 0.1 * noise, noise)]
    assert [[check["metric"] for check in q.verdict["limits"]] for q in made] == [["drop"], ["drop", "mpeir"]]


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
    text = f"labels of {len(given)} samples fit what the float model answers no better than luck may have it"
    assert any(finding.startswith(text) for finding in verdict["findings"]) is wrong
    assert ("labels fit the float model no better than luck may have it" in unshown(verdict["samples"])) is wrong


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_what_only_moves_values_is_not_quantised(scheme: str) -> None:
    file, samples = moved()
    made = odc_mlir.quantize(file, calibration=samples, scheme=scheme, help=False)
    assert not made.passed
    assert made.verdict["problems"] == [f"nothing but operators that only move values is quantised to {scheme}"]


@pytest.mark.parametrize("scale", [1e-4, 1.0, 1e4])
def test_the_unit_of_an_output_decides_nothing(scale: float) -> None:
    file, samples = regressor(scale=scale)
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    assert verdict["passed"], verdict["problems"]
    assert 0.001 < verdict["value"] < 0.1


def test_what_is_quantised_is_said() -> None:
    file, samples = regressor(4)
    coverage = odc_mlir.quantize(file, calibration=samples, help=False, overrides={"hidden": "int16x8"}).verdict[
        "coverage"
    ]
    assert coverage["precisions"] == {
        "int16x8": {"layers": 1, "weights": 128, "macs": 128},
        "int8": {"layers": 1, "weights": 64, "macs": 64},
    }
    assert (coverage["unit"], coverage["share"]) == ("macs", 1.0)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "'x': all values of all samples are 0; this is no real data"),
        (-0.0, "'x': all values of all samples are 0; this is no real data"),
        (1e-40, "'x': values reach from "),
    ],
)
def test_findings_name_sample_and_tensor(value: float, text: str) -> None:
    file, samples = regressor()
    noise = [sample[0] / np.abs(sample[0]).max() for sample in samples]
    filled = [[(np.ones_like(x) * value if value != 1e-40 else x * 1e-40).astype(np.float32)] for x in noise]
    verdict = odc_mlir.quantize(file, calibration=filled, help=False).verdict
    assert any(finding.startswith(text) for finding in verdict["findings"]), verdict["findings"]


@pytest.mark.parametrize(
    ("sizes", "beside", "problem", "finding"),
    [
        ((1000.0, 1.0), "", "column 1 of output 'y' (1 of 2) varies in the float model and is lost in the ", ""),
        ((1e5, 1.0, 1e-5), "", "columns 1, 2 of output 'y' (2 of 3) vary in the float model and are lost in", ""),
        (
            (450.0, 1.0),
            "",
            "column 1 of output 'y' (1 of 2) varies in the float model and is lost in the quantised",
            "",
        ),
        ((200.0, 1.0), "", "", "column 1 of output 'y' (1 of 2) varies in the float model and is lost in part in the "),
        ((1000.0, 100.0), "", "", ""),
        ((1.0,) * 16 + (1e-4,), "", "", "column 16 of output 'y' (1 of 17) varies in the float model"),
        ((1.0, 1.0), "silent", "output 'alarm' is the same for all 24 samples, which so say nothing of it: give ", ""),
        ((1.0, 1.0), "constant", "", "output 'version' is the same for all 24 samples, which so say nothing of it"),
    ],
)
def test_what_is_lost_or_silent_is_told_by_name(
    sizes: tuple[float, ...], beside: str, problem: str, finding: str
) -> None:
    file, samples = columned(sizes, beside)
    made = odc_mlir.quantize(file, calibration=samples, help=False, metric="mpeir")
    assert made.passed is not bool(problem)
    for key, expected in (("problems", problem), ("findings", finding)):
        seen = [text for text in made.verdict[key] if " output 'y' " in text or text.startswith("output ")]
        assert len(seen) == bool(expected), seen
        assert "".join(seen).startswith(expected)


def test_more_bits_bring_a_column_back() -> None:
    file, samples = columned((1000.0, 1.0))
    assert odc_mlir.quantize(file, calibration=samples, help=False, scheme="int16x8").passed


def test_an_output_that_is_zero_says_nothing_of_layers() -> None:
    file, samples = columned((1.0, 1.0), "silent")
    layers = odc_mlir.quantize(file, calibration=samples, help=False).verdict["layers"]
    effects = {layer["name"]: layer["output_sqnr_db"] for layer in layers}
    assert effects["y"] > 30
    assert effects["alarm"] is None


def test_a_pipe_that_nobody_reads_loses_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, samples = regressor()
    (tmp_path / "m.circle").write_bytes(file)
    np.savez(tmp_path / "data.npz", in_0=np.concatenate([sample[0] for sample in samples]))
    data, made = tmp_path / "data.npz", tmp_path / "q.circle"
    arguments = [tmp_path / "m.circle", "--calibration", data, "--no-help", "-o", made]

    def closed(*_: Any, **__: Any) -> None:
        raise BrokenPipeError

    monkeypatch.setattr("builtins.print", closed)
    with open(tmp_path / "out", "w") as out:
        monkeypatch.setattr("sys.stdout", out)
        odc_quantize.main([str(argument) for argument in arguments])
    assert (tmp_path / "q.circle").stat().st_size > 0


@pytest.mark.parametrize(("limit", "passes"), [(0.02, False), (0.2, True)])
def test_of_few_samples_the_doubt_counts_too(limit: float, passes: bool) -> None:
    file, samples = regressor()
    options = {"calibration": samples[:4], "scheme": "int16x8", "help": False, "mixed": "off"}
    made = odc_mlir.quantize(file, metric="mpeir", limit=limit, **options)
    (check,) = made.verdict["limits"]
    assert check["passed"]  # what was measured
    assert check["interval"][0] <= check["value"] < check["interval"][1]
    assert made.passed is passes
    assert [text[:14] for text in made.verdict["problems"]] == ([] if passes else ["4 samples are "])
    first = next(odc_quantize.summary("m.circle", made.verdict))
    assert first.endswith("FAILED on too few samples (4 samples, which keep all limits)") is not passes


@pytest.mark.parametrize("option", [name for name, declared in OPTIONS.items() if declared.needs_samples])
def test_what_takes_samples_is_refused_without(option: str) -> None:
    file, samples = regressor()
    records = odc_mlir.quantize(file, calibration=samples, help=False).records
    value = "weights" if option == "equalize" else "on"
    with pytest.raises(OptionError, match=f"{option} '{value}' is done by running samples for calibration"):
        odc_mlir.quantize(file, records=records, **{option: value})
    for idle in OPTIONS[option].idle:
        assert odc_mlir.quantize(file, records=records, help=False, **{option: idle}).verdict["choices"]


def test_weights_alone_are_rounded_by_samples_only() -> None:
    with pytest.raises(OptionError, match="rounding 'on' is done by running samples"):
        odc_mlir.quantize(regressor()[0], scheme="int8_wo", rounding="on")


@pytest.mark.parametrize(("option", "value"), [("normalize", "on"), ("equalize", "weights")])
def test_what_changes_nothing_is_said(option: str, value: str) -> None:
    file, samples = classifier() if option == "normalize" else columned((1.0, 2.0))
    found = odc_mlir.quantize(file, calibration=samples, help=False, **{option: value}).verdict["findings"]
    assert [text for text in found if text.startswith(f"{option} {value} changes nothing: ")]


def test_ranges_come_from_one_place() -> None:
    file, samples = regressor()
    records = odc_mlir.quantize(file, calibration=samples, help=False).records
    with pytest.raises(OptionError, match="records and calibration samples both say the ranges; give one"):
        odc_mlir.quantize(file, records=records, calibration=samples)
