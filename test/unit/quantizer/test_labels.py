"""Labels in every form, and labels that cannot be right: order, unit, numbering, and columns."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import normal, regressor, two_layers
from helpers.float_nets import FloatNet
from odc_mlir.calibration.copies import stratified
from odc_mlir.errors import InputError, OdcError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import embed_ranges
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.graph import build_graph

Samples = list[list[np.ndarray]]
COUNT = 24


@cache
def dense(outputs: int, *tail: str, scale: float = 1.0, order: str = "") -> tuple[bytes, Samples]:
    """Two layers and the operators behind them, and samples."""
    rng = np.random.default_rng(3)
    builder, x, y = two_layers(outputs, scale, rng)
    found = [y]
    for op in tail:
        if op == "TOPK_V2":
            values, places = builder.tensor("values", (1, 2)), builder.tensor("places", (1, 2), "int32")
            builder.operator(op, [y, builder.constant("k", 2, "int32")], [values, places])
            found = {"": [places], "first": [places, values], "last": [values, places]}[order]
        elif op in ("ARG_MAX", "ARG_MIN"):
            axis = builder.constant("axis", 1, "int32")
            found = [builder.made(op, (1,), op, found[0], axis, dtype="int64", output_type="int64")]
        elif op == "CAST":
            found = [builder.made(op, (1,), op, *found, in_data_type="int64", out_data_type="float32")]
        else:
            found = [builder.made(op, (1, outputs), op, *found, beta=1.0)]
    return builder.file([x], found), normal(rng, COUNT, 1, 8)


def outputs_by_run(file: bytes, samples: Samples) -> np.ndarray:
    """The first output for all samples, [samples, ...]."""
    return np.concatenate([odc_mlir.run(file, sample)[0] for sample in samples])


def classes(logits: np.ndarray) -> np.ndarray:
    return logits.argmax(axis=1)


@pytest.mark.parametrize(
    ("outputs", "tail", "order", "labels"),
    [
        (4, (), "", classes),
        (4, (), "", lambda logits: classes(logits).astype(np.float32)),
        (4, (), "", lambda logits: np.eye(4, dtype=np.int64)[classes(logits)]),
        (4, (), "", lambda logits: np.eye(4)[classes(logits)][:, None]),
        (4, (), "", lambda logits: np.eye(4, dtype=bool)[classes(logits)]),
        (4, ("ARG_MAX",), "", classes),
        (4, ("TOPK_V2",), "", classes),
        (4, ("TOPK_V2",), "first", classes),
        (4, ("TOPK_V2",), "last", classes),
        (1, (), "", lambda logits: logits > 0.0),
        (5, (), "", lambda logits: logits > 0.0),
    ],
)
def test_right_labels_have_all_points_in_every_form(outputs: int, tail: tuple, order: str, labels: Callable) -> None:
    file, samples = dense(outputs, *tail, order=order)
    right = labels(outputs_by_run(regressor(outputs)[0], samples))
    verdict = odc_mlir.quantize(file, calibration=samples, labels=right, help=False).verdict
    assert (verdict["scores"]["metric"], verdict["scores"]["float"]) == ("top1_percent", 100.0)
    assert "drop" in verdict["intervals"]
    if right.dtype == bool and outputs != 4:  # yes and no
        assert [check["metric"] for check in verdict["limits"]] == ["drop", "recall_drop"]


@pytest.mark.parametrize(
    ("outputs", "tail", "options", "text"),
    [
        (
            4,
            (),
            {"labels": np.arange(COUNT) % 4 + 0.5},
            "neither class numbers nor arrays .*; give a whole number from",
        ),
        (4, ("ARG_MAX",), {"metric": "sqnr"}, "the model has no SQNR: its outputs are places"),
        (1, (), {"metric": "top1"}, "the model has no top1_match"),
        (4, (), {"metric": "top5"}, "the model has no top5_match: no output has more than 5"),
    ],
)
def test_what_outputs_lack_is_refused_first(
    outputs: int, tail: tuple[str, ...], options: dict[str, Any], text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Driver, "run", lambda driver: pytest.fail("searched"))
    file, samples = dense(outputs, *tail)
    with pytest.raises(OdcError, match=text):
        odc_mlir.quantize(file, calibration=samples, **options)


@pytest.mark.parametrize("factor", [30.0, 1000.0])
def test_what_only_a_sample_far_from_others_shows_is_lost_without_it(factor: float) -> None:
    """The mean is near to the others, and so keeps the limit as well."""
    file, samples = regressor()
    held = split(samples).held
    far = next(number for number, sample in enumerate(samples) if sample is held[len(held) // 2])
    spread = [[x * (factor if number == far else 1.0)] for number, (x,) in enumerate(samples)]
    plain, made = (odc_mlir.quantize(file, calibration=given, help=False).verdict for given in (samples, spread))
    assert (plain["passed"], plain["problems"], plain["samples"]["outputs_vary"]) == (True, [], True)
    (problem,) = made["problems"]
    assert "is lost in the quantised one, made without the samples that it is judged on: give more" in problem
    assert all(check["passed"] for check in made["limits"] if check["metric"] == "mpeir")
    assert not made["samples"]["telling"]


@pytest.mark.parametrize(
    "tail", [("ARG_MAX",), ("ARG_MIN",), ("TOPK_V2",), ("ARG_MAX", "CAST"), ("SOFTMAX", "ARG_MAX")]
)
def test_places_are_right_or_wrong(tail: tuple[str, ...]) -> None:
    file, samples = dense(4, *tail)
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    assert [check["metric"] for check in verdict["limits"]] == ["top1_decided"]
    (errors,) = verdict["outputs"]
    assert (errors["mpeir"], errors["sqnr_db"]) == (None, None)
    assert errors["top1_match"] is not None
    assert "mpeir" not in verdict["intervals"]


@pytest.mark.parametrize(("scale", "near"), [(1e-3, 1.0), (1e3, 0.0)])
def test_places_may_differ_where_logits_are_nearly_alike(scale: float, near: float) -> None:
    file, samples = dense(4, "ARG_MAX", scale=scale)
    graph = build_graph(export_model(odc_mlir.load(file)))
    reference = Reference(graph, samples)
    assert reference.classifier == "places"
    assert not reference.has_values
    other = build_graph(export_model(odc_mlir.load(dense(4, "ARG_MIN", scale=scale)[0])))
    found = reference.measure(other)
    assert (found.outputs[0].top1_match, found.decided) == (0.0, {0: near})


def test_a_column_of_other_labels_is_named_and_shares_are_numbers() -> None:
    file, samples = regressor(3)
    labels = outputs_by_run(file, samples)
    labels[:, 1] = labels[::-1, 1]
    verdict = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict
    assert [check["metric"] for check in verdict["limits"]][:2] == ["drop", "mpeir"]
    assert any(text.startswith("labels of column 1 of ") for text in verdict["findings"])
    file, samples = dense(4, "SOFTMAX")  # shares as labels leave the agreement of classes
    verdict = odc_mlir.quantize(file, calibration=samples, labels=outputs_by_run(file, samples), help=False).verdict
    assert verdict["scores"]["metric"] == "rmse"
    assert [check["metric"] for check in verdict["limits"]][:2] == ["drop", "top1_match"]


def test_labels_of_one_kind_that_are_held_back_are_told_by_all() -> None:
    file, samples = regressor()
    held = set(stratified(COUNT // 2, COUNT))
    order = iter(np.argsort(outputs_by_run(file, samples).ravel()))  # those held back have the least: all say no
    places = [*sorted(held), *sorted(set(range(COUNT)) - held)]
    given = {place: samples[number] for place, number in zip(places, order, strict=True)}
    ordered = [given[place] for place in range(COUNT)]
    said_no = (outputs_by_run(file, ordered).ravel() <= 0).astype(np.int64)
    assert said_no[sorted(held)].all()
    with pytest.raises(InputError, match="yes for no"):
        odc_mlir.quantize(file, calibration=ordered, labels=said_no, help=False)


@pytest.mark.parametrize(("limit", "is_least"), [(10.0, True), (30.0, False), (60.0, None)])
def test_who_misses_a_budget_is_told_of_one_that_leaves_the_limits(limit: float, is_least: bool | None) -> None:
    """The smallest of all may miss them, however it looks on samples that its ranges know; all may."""
    file, samples = regressor(4)
    options = {"calibration": samples, "help": False, "metric": "sqnr", "limit": limit}
    missed = odc_mlir.quantize(file, **options, max_bytes=1)
    budget = missed.verdict["coverage"]["budget"]
    size, least = budget["bytes"], min(point["bytes"] for point in missed.verdict["front"])
    with pytest.raises(OdcError) as caught:
        missed.require_passed()
    if is_least is None:
        assert not budget["holds"]
        assert str(caught.value).endswith("bytes, and no model found meets the limits: allow more loss (--limit)")
        assert "--max-size" not in str(caught.value)
        return
    assert (size == least) is is_least
    assert "the smallest file found within the limits has " in str(caught.value)
    assert f" bytes: --max-size {size} " in str(caught.value)
    made = odc_mlir.quantize(file, **options, max_bytes=size)
    made.require_passed()
    assert len(made.to_circle()) <= size


PICTURES, KINDS, PIXELS = 48, 6, 16
PLAIN: dict[str, Any] = {"help": False, "mixed": "off"}
RANGES = {"0..1": (0.0, 1.0), "-1..1": (-1.0, 1.0), "0..255": (0.0, 255.0)}


def _bars() -> tuple[np.ndarray, np.ndarray]:
    """Pictures from 0 to 1 whose class is the place of their bright pixel, and these classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(PICTURES) % KINDS
    pictures = rng.uniform(0, 0.3, (PICTURES, 1, PIXELS))
    pictures[np.arange(PICTURES), 0, labels] = rng.uniform(0.8, 1.0, PICTURES)
    return pictures, labels


def _trained_for(low: float, high: float) -> bytes:
    """A network that finds the bright pixel where black is ``low`` and white ``high``.

    One class more wins where no pixel is bright, and where too many are.
    """
    net = FloatNet(0)
    x = net.input(np.zeros((1, PIXELS), np.float32))
    unit, black = 1.0 / (high - low), -low / (high - low)
    bright = np.concatenate([np.eye(KINDS, PIXELS), np.ones((1, PIXELS))]) * unit
    thresholds = np.array([black - 0.6] * KINDS + [PIXELS * black - 7.0])
    found = net.add("FULLY_CONNECTED", x, net.const(bright), net.const(thresholds), fused_activation_function="relu")
    answers, none = np.diag([10.0] * KINDS + [100.0]), np.array([0.0] * KINDS + [0.5])
    y = net.add("FULLY_CONNECTED", found, net.const(answers), net.const(none))
    return bytes(write_model(export_model(net.module(y))))


def _in_unit(pictures: np.ndarray, unit: str) -> Samples:
    low, high = RANGES[unit]
    return [[(low + (high - low) * picture).astype(np.float32)] for picture in pictures]


@pytest.mark.parametrize(
    ("trained", "given", "what"),
    [
        ("0..1", "0..255", "divided by 255"),
        ("-1..1", "0..255", "divided by 127.5, less 1"),
        ("0..255", "0..1", "times 255"),
        ("0..255", "-1..1", "times 127.5, plus 127.5"),
    ],
)
def test_labels_tell_the_unit_of_pixels(trained: str, given: str, what: str) -> None:
    pictures, labels = _bars()
    file, samples, as_trained = _trained_for(*RANGES[trained]), _in_unit(pictures, given), _in_unit(pictures, trained)
    right = [np.mean(classes(outputs_by_run(file, seen)) == labels) for seen in (samples, as_trained)]
    assert right[0] < 0.5
    assert right[1] == 1.0
    graph = build_graph(read_model(file))
    with pytest.raises(InputError, match=rf"gets 0 % of the labels right, and 100 % of them with input 'in0' {what}: "):
        Reference(graph, samples, labels)
    Reference(graph, as_trained, labels)
    poor = (labels + np.where(np.arange(PICTURES) % 5 < 2, 0, 2 + np.arange(PICTURES) % 2)) % KINDS
    Reference(graph, as_trained, poor)  # has no unit that helps


def test_samples_in_another_unit_than_others_or_than_ranges_are_told() -> None:
    """Ranges in the model's file, as record-minmax writes them, and recorded ones."""
    file, (pictures, _) = _trained_for(0.0, 1.0), _bars()
    plain, bright = _in_unit(pictures, "0..1"), _in_unit(pictures, "0..255")

    def told(model: Any = file, **options: Any) -> tuple[Any, str]:
        made = odc_mlir.quantize(model, **options, **PLAIN)
        return made, "; ".join(made.verdict["findings"])

    found, text = told(calibration=bright[:24], evaluation=plain[24:])
    assert "in the samples to check on, 254 in calibration samples: one" in text
    assert found.verdict["samples"]["other_units"] == ["in0"]
    assert not found.verdict["certain"]
    assert "input 'in0' was in another unit in the calibration samples" in unshown(found.verdict["samples"])
    clipped, text = told(calibration=plain[:24], evaluation=bright[24:])
    assert not clipped.passed
    assert "one of both is in another unit" in text
    alike, text = told(calibration=plain[:24], evaluation=plain[24:])
    assert "another unit" not in text
    assert alike.verdict["samples"]["other_units"] == []
    ranged, records = embed_ranges(file, plain)
    assert "255 in calibration samples, 0.999 in the ranges that the" in told(ranged, calibration=bright)[1]
    assert "255 in the samples to check on, 0.999 in recorded ranges" in told(records=records, evaluation=bright)[1]
