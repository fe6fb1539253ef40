"""Outputs with one answer in each of several rows, as of the pixels of an image or the words of a text."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import InputError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.policy.verdict import reservation
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.graph import build_graph

SIDE, CHANNELS, CLASSES, COUNT = 8, 6, 3, 24
Samples = list[list[np.ndarray]]


def _segments(boxes: bool = False) -> tuple[bytes, Samples]:
    """Classes of the pixels of images, whose left part is mostly of one; with ``boxes`` beside them."""
    builder, rng = ModelBuilder(), np.random.default_rng(3)
    x = builder.tensor("x", (1, SIDE, SIDE, CHANNELS))
    weights = rng.normal(size=(CLASSES, 1, 1, CHANNELS)).astype(np.float32)
    w, b = (builder.tensor(n, a.shape, data=a) for n, a in (("w", weights), ("b", np.zeros(CLASSES, np.float32))))
    logits = builder.tensor("logits", (1, SIDE, SIDE, CLASSES))
    builder.operator("CONV_2D", [x, w, b], [logits], options={"stride_h": 1, "stride_w": 1, "padding": "same"})
    shares = builder.tensor("shares", (1, SIDE, SIDE, CLASSES))
    builder.operator("SOFTMAX", [logits], [shares], options={"beta": 1.0})
    outputs = [shares]
    if boxes:
        outputs.append(builder.tensor("boxes", (1, SIDE, SIDE, CHANNELS)))
        builder.operator("ABS", [x], [outputs[1]])
    left = np.linspace(3.0, 0.0, SIDE)[:, None] * weights[0, 0, 0]
    samples = [[(rng.normal(size=(1, SIDE, SIDE, CHANNELS)) + left).astype(np.float32)] for _ in range(COUNT)]
    return bytes(model_bytes(builder.finish([x], outputs))), samples


def _labels(file: bytes, samples: Samples) -> np.ndarray:
    return np.stack([odc_mlir.run(file, sample)[0][0].argmax(axis=-1) for sample in samples])


def _checks(verdict: dict[str, Any]) -> dict[str, float]:
    return {check["metric"]: check["value"] for check in verdict["limits"]}


@pytest.mark.parametrize("boxes", [False, True])
def test_each_row_is_an_answer(boxes: bool) -> None:
    file, samples = _segments(boxes=boxes)
    made = odc_mlir.quantize(file, calibration=samples, help=False)
    found = made.to_circle()
    alike = [
        np.mean(odc_mlir.run(file, sample)[0].argmax(axis=-1) == odc_mlir.run(found, sample)[0].argmax(axis=-1))
        for sample in samples
    ]
    assert 0.9 < np.mean(alike) < 1.0
    assert made.verdict["metrics"]["top1_match"] == pytest.approx(np.mean(alike), abs=0.003)
    assert np.mean(alike) < _checks(made.verdict)["top1_decided"] < 1.0  # tied codes are half an answer
    assert [output["classes"] for output in made.verdict["outputs"]] == [CLASSES, None][: 1 + boxes]
    assert [output["top1_match"] is None for output in made.verdict["outputs"]] == [False, True][: 1 + boxes]


def _bounds(verdict: dict[str, Any]) -> dict[str, float]:
    return {check["metric"]: check["limit"] for check in verdict["limits"]}


def test_what_is_forgiven_is_an_answer_and_not_a_sample() -> None:
    """A wrong pixel is a 1536th of what 24 images of 64 answer."""
    file, samples = _segments()
    assert _bounds(odc_mlir.quantize(file, calibration=samples, help=False).verdict)["top1_decided"] == 0.99
    labels = _labels(file, samples)
    assert _bounds(odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict)["drop"] == 1.0


@pytest.mark.parametrize(
    ("rows", "tail", "share"), [(1, False, 0.95), (4, False, 0.9875), (1, True, 0.95), (4, True, 0.9875)]
)
def test_answers_are_rows_of_shares_and_places(rows: int, tail: bool, share: float) -> None:
    builder, rng = ModelBuilder(), np.random.default_rng(9)
    x, y = builder.tensor("x", (1, rows, 6)), builder.tensor("y", (1, rows, 6))
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    if tail:
        axis, z = (
            builder.tensor("axis", (1,), "int32", data=np.array([2], np.int32)),
            builder.tensor("z", (1, rows), "int32"),
        )
        builder.operator("ARG_MAX", [y, axis], [z], options={"output_type": "int32"})
    file = bytes(model_bytes(builder.finish([x], [z if tail else y])))
    samples = [[rng.normal(size=(1, rows, 6)).astype(np.float32)] for _ in range(20)]
    found = _bounds(odc_mlir.quantize(file, calibration=samples, help=False).verdict)
    assert found["top1_decided" if tail or rows > 1 else "top1_match"] == pytest.approx(share)


@pytest.mark.parametrize("kind", ["SOFTMAX", "LOG_SOFTMAX"])
def test_rows_may_answer_what_is_nearly_as_likely(kind: str) -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4, 3)), builder.tensor("y", (1, 4, 3))
    builder.operator(kind, [x], [y], options={"beta": 1.0} if kind == "SOFTMAX" else {})
    graph = build_graph(read_model(model_bytes(builder.finish([x], [y]))))
    reference = Reference(graph, [[np.array([[[0.5, 0.0, -3.0]] * 4], np.float32)]])
    expected = reference.outputs[0][0]
    found = expected.copy()
    found[0, 0] = found[0, 0, [1, 0, 2]]  # 0.6 nats less: more than half the odds
    found[0, 1] = found[0, 1, [2, 1, 0]]
    assert reference.decides_alike(0, found) == 0.75


def _heads(rows: tuple[int, ...]) -> tuple[bytes, Samples]:
    """A SOFTMAX over so many rows for each output."""
    builder, rng, inputs, outputs = ModelBuilder(), np.random.default_rng(4), [], []
    for place, count in enumerate(rows):
        x, y = (builder.tensor(f"{name}{place}", (1, count, 6)) for name in "xy")
        builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
        inputs.append(x)
        outputs.append(y)
    samples = [[rng.normal(size=(1, count, 6)).astype(np.float32) for count in rows] for _ in range(20)]
    return bytes(model_bytes(builder.finish(inputs, outputs))), samples


def test_each_head_has_its_limit_by_its_own_answers() -> None:
    """A wrong row of 80 is forgiven beside 20 that may have one too."""
    file, samples = _heads((1, 4, 50))
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    found = {check["output"]: check for check in verdict["limits"]}
    bounds = {None: ("mpeir", 0.1), "y0": ("top1_match", 0.95), "y1": ("top1_decided", 0.9875)}
    bounds["y2"] = ("top1_decided", 0.99)
    assert {name: (check["metric"], pytest.approx(check["limit"])) for name, check in found.items()} == bounds
    for name, metric in (("y0", "top1_match"), ("y1", "top1_decided")):
        key = f"{metric}:{name}"
        assert found[name]["value"] == verdict["metrics"][key]
        assert found[name]["interval"] == verdict["intervals"][key]
    assert "top1_match of output 'y0'" in reservation(verdict)


def test_heads_alike_have_one_limit() -> None:
    file, samples = _heads((1, 1))
    limits = odc_mlir.quantize(file, calibration=samples, help=False).verdict["limits"]
    assert [(check["metric"], check["output"]) for check in limits] == [("mpeir", None), ("top1_match", None)]


def test_classes_behind_a_reshape_are_those_of_the_softmax() -> None:
    builder = ModelBuilder()
    x, shares, flat = (builder.tensor(n, s) for n, s in (("x", (1, 4, 5)), ("shares", (1, 4, 5)), ("flat", (1, 20))))
    builder.operator("SOFTMAX", [x], [shares], options={"beta": 1.0})
    shape = builder.tensor("shape", (2,), "int32", data=np.array([1, 20], np.int32))
    builder.operator("RESHAPE", [shares, shape], [flat])
    graph = build_graph(read_model(model_bytes(builder.finish([x], [flat]))))
    assert Reference(graph, [[np.zeros((1, 4, 5), np.float32)]]).classes(0) == 5


@pytest.mark.parametrize("lengths", [(4, 5, 6), (4, 4, 4)])
def test_rows_of_several_lengths_are_no_classes(lengths: tuple[int, ...]) -> None:
    """As shares of attention over as many words as there are."""
    builder = ModelBuilder()
    x, y = (builder.tensor(n, (1, 2, 1), signature=(1, 2, -1)) for n in "xy")
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    rng, file = np.random.default_rng(8), bytes(model_bytes(builder.finish([x], [y])))
    samples = [[rng.normal(size=(1, 2, length)).astype(np.float32)] for length in lengths * 8]
    reference = Reference(build_graph(read_model(file)), samples)
    assert reference.classes(0) == (4 if len(set(lengths)) == 1 else None)
    verdict = odc_mlir.quantize(file, calibration=samples, help=False).verdict
    assert verdict["outputs"][0]["top1_match"] is not None


def test_labels_of_rows() -> None:
    file, samples = _segments()
    verdict = odc_mlir.quantize(file, calibration=samples, labels=_labels(file, samples), help=False).verdict
    assert verdict["scores"]["metric"] == "top1_percent"
    assert verdict["scores"]["float"] == 100.0


@pytest.mark.parametrize("by", [1, 5])
def test_rows_of_other_samples_are_refused(by: int) -> None:
    """Half of them are right by where they are."""
    file, samples = _segments()
    labels = np.roll(_labels(file, samples), by, axis=0)
    with pytest.raises(InputError, match="labels seem to belong to other samples"):
        odc_mlir.quantize(file, calibration=samples, labels=labels, help=False)


def test_few_rows_of_others_are_no_reason() -> None:
    """A model that is wrong about some samples has the others' labels right by chance."""
    file, samples = _segments()
    labels = _labels(file, samples)
    labels[:3] = np.roll(labels[:3], 1, axis=0)
    odc_mlir.quantize(file, calibration=samples, labels=labels, help=False)


def test_labels_that_no_class_has_are_told_before_the_unit_of_inputs() -> None:
    file, samples = _segments()
    scaled = [[array / 8.0] for (array,) in samples]  # which fit 0 to 1, and no label
    with pytest.raises(InputError, match="labels are 1 to 3, the model's 3 classes 0 to 2"):
        odc_mlir.quantize(file, calibration=scaled, labels=_labels(file, samples) + 1, help=False)


def test_values_that_labels_do_not_score_are_told() -> None:
    """Logarithms of shares end at -16 as codes."""
    builder, rng = ModelBuilder(), np.random.default_rng(5)
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 8))
    builder.operator("LOG_SOFTMAX", [x], [y])
    file = bytes(model_bytes(builder.finish([x], [y])))
    samples = [[(40.0 * rng.normal(size=(1, 8))).astype(np.float32)] for _ in range(64)]
    labels = np.array([int(np.argmax(array)) for (array,) in samples])
    findings = odc_mlir.quantize(file, calibration=samples, labels=labels, help=False).verdict["findings"]
    assert [text for text in findings if "the values of output 'y' are far" in text]


def test_classes_that_no_sample_has_are_told() -> None:
    """Of each head that has classes."""
    builder, rng = ModelBuilder(), np.random.default_rng(6)
    x, z, y, other = (builder.tensor(name, (1, 6)) for name in ("x", "z", "y", "other"))
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    builder.operator("SOFTMAX", [z], [other], options={"beta": 1.0})
    file = bytes(model_bytes(builder.finish([x, z], [other, y])))
    samples = [[rng.normal(size=(1, 6)).astype(np.float32) for _ in range(2)] for _ in range(40)]
    told = "answers 2 of 6 classes for no sample (1, 4) in output 'y'"
    for lacking, expected in ((False, False), (True, True)):
        for array, _ in samples:
            array[0, [1, 4]] -= 9.0 * lacking
        findings = odc_mlir.quantize(file, calibration=samples, help=False).verdict["findings"]
        assert any(told in text for text in findings) == expected
