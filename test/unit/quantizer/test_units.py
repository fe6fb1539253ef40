"""Inputs in another unit than the model was trained for: told where labels, or other data, contradict them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_nets import FloatNet
from odc_mlir.errors import InputError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.advice import hint_of
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.quantizer.quantize import embed_ranges
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.graph import Graph, build_graph

COUNT, CLASSES, PIXELS = 48, 6, 16
PLAIN: dict[str, Any] = {"help": False, "mixed": "off"}


def _bars() -> tuple[np.ndarray, np.ndarray]:
    """Pictures from 0 to 1 whose class is the place of their bright pixel, and these classes."""
    rng = np.random.default_rng(0)
    labels = np.arange(COUNT) % CLASSES
    pictures = rng.uniform(0, 0.3, (COUNT, 1, PIXELS))
    pictures[np.arange(COUNT), 0, labels] = rng.uniform(0.8, 1.0, COUNT)
    return pictures, labels


def _trained_for(low: float, high: float) -> bytes:
    """A network that finds the bright pixel where black is ``low`` and white ``high``.

    One class more wins where no pixel is bright, and where too many are.
    """
    net = FloatNet(0)
    x = net.input(np.zeros((1, PIXELS), np.float32))
    unit, black = 1.0 / (high - low), -low / (high - low)
    bright = np.concatenate([np.eye(CLASSES, PIXELS), np.ones((1, PIXELS))]) * unit
    thresholds = np.array([black - 0.6] * CLASSES + [PIXELS * black - 7.0])
    found = net.add("FULLY_CONNECTED", x, net.const(bright), net.const(thresholds), fused_activation_function="relu")
    answers = np.diag([10.0] * CLASSES + [100.0])
    none = np.array([0.0] * CLASSES + [0.5])
    y = net.add("FULLY_CONNECTED", found, net.const(answers), net.const(none))
    return bytes(write_model(export_model(net.module(y))))


UNITS = {"0..1": (0.0, 1.0), "-1..1": (-1.0, 1.0), "0..255": (0.0, 255.0)}


def _in_unit(pictures: np.ndarray, unit: str) -> list[list[np.ndarray]]:
    low, high = UNITS[unit]
    return [[(low + (high - low) * picture).astype(np.float32)] for picture in pictures]


def _graph(file: bytes) -> Graph:
    return build_graph(read_model(file))


def _percent(file: bytes, samples: list[list[np.ndarray]], labels: np.ndarray) -> float:
    answers = [int(np.argmax(odc_mlir.run(file, sample)[0])) for sample in samples]
    return 100.0 * float(np.mean(answers == labels))


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
    file, samples = _trained_for(*UNITS[trained]), _in_unit(pictures, given)
    assert _percent(file, samples, labels) < 50
    with pytest.raises(InputError, match=rf"gets 0 % of the labels right, and 100 % of them with input 'in0' {what}: "):
        Reference(_graph(file), samples, labels)
    as_trained = _in_unit(pictures, trained)
    assert _percent(file, as_trained, labels) == 100
    Reference(_graph(file), as_trained, labels)


def test_a_poor_model_has_no_unit_that_helps() -> None:
    pictures, labels = _bars()
    graph = _graph(_trained_for(0.0, 1.0))
    wrong = np.where(np.arange(COUNT) % 5 < 2, 0, 2 + np.arange(COUNT) % 2)
    Reference(graph, _in_unit(pictures, "0..1"), (labels + wrong) % CLASSES)


def test_samples_to_check_on_in_another_unit_are_told() -> None:
    pictures, _ = _bars()
    file = _trained_for(0.0, 1.0)
    bright, plain = _in_unit(pictures[:24], "0..255"), _in_unit(pictures, "0..1")
    found = odc_mlir.quantize(file, calibration=bright, evaluation=plain[24:], **PLAIN)
    assert [t for t in found.verdict["findings"] if "in the samples to check on, 254 in calibration samples: one" in t]
    assert found.verdict["samples"]["other_units"] == ["in0"]
    assert not found.verdict["certain"]
    assert "input 'in0' was in another unit in those to calibrate by" in unshown(found.verdict["samples"])
    clipped = odc_mlir.quantize(file, calibration=plain[:24], evaluation=_in_unit(pictures[24:], "0..255"), **PLAIN)
    assert not clipped.passed
    assert (hint_of(clipped.verdict) or "").startswith(
        "leave out the samples to check on, which seem to be in another unit"
    )
    alike = odc_mlir.quantize(file, calibration=plain[:24], evaluation=plain[24:], **PLAIN)
    assert not [t for t in alike.verdict["findings"] if "another unit" in t]
    assert alike.verdict["samples"]["other_units"] == []


def test_samples_that_contradict_ranges_are_told() -> None:
    """Ranges in the model's file, as record-minmax writes them, and recorded ones."""
    pictures, _ = _bars()
    plain, bright = _in_unit(pictures, "0..1"), _in_unit(pictures, "0..255")
    ranged, records = embed_ranges(_trained_for(0.0, 1.0), plain)
    found = odc_mlir.quantize(ranged, calibration=bright, **PLAIN)
    assert [t for t in found.verdict["findings"] if "255 in calibration samples, 0.999 in the ranges that the" in t]
    found = odc_mlir.quantize(_trained_for(0.0, 1.0), records=records, evaluation=bright, **PLAIN)
    assert [t for t in found.verdict["findings"] if "255 in the samples to check on, 0.999 in recorded ranges" in t]
