"""Models with several outputs, some of which are scores of classes by their values alone, and logits in rows."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import InputError

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
