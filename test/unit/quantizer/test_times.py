"""Times of verdicts: those of packages, with the digits that tell them apart; and what is left to the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import attention
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer import report, target
from odc_mlir.quantizer.advice import cost_text, decimals, times_text
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.tools.odc_quantize import _coverage

TARGET = "npu-256"
Samples = list[list[np.ndarray]]


def _exponential(function: str = "EXP", size: float = 0.125) -> tuple[bytes, Samples]:
    """The exponential, or another function, of a layer with weights of this size."""
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, y, z = builder.tensor("x", (1, 16)), builder.tensor("y", (1, 16)), builder.tensor("z", (1, 16))
    weights = builder.tensor("w", (16, 16), data=rng.normal(size=(16, 16)).astype(np.float32) * size)
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    builder.operator(function, [y], [z])
    samples = [[rng.normal(size=(1, 16)).astype(np.float32)] for _ in range(24)]
    return bytes(write_model(builder.finish([x], [z]))), samples


def _packaged_ms(made: Quantized) -> float:
    return odc_mlir.compile(made.model, target=TARGET).modelled.latency_ms


def test_with_a_budget_the_time_of_a_verdict_is_that_of_the_package() -> None:
    model, samples = _exponential()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "help": False}
    made = odc_mlir.quantize(model, max_time_ms=9.0, **options)
    found = made.verdict["coverage"]["target"]
    assert found["modelled"]
    assert found["time_ns"] / 1e6 == pytest.approx(_packaged_ms(made))
    assert not odc_mlir.quantize(model, **options).verdict["coverage"]["target"]["modelled"]


@pytest.mark.parametrize("larger", [1.02, 1.2])
def test_a_budget_holds_of_the_package_whatever_was_estimated(monkeypatch: pytest.MonkeyPatch, larger: float) -> None:
    """Estimates are wrong both ways: twice as large, and half."""
    module, samples = attention()
    options: dict[str, Any] = {"calibration": samples[:16], "target": TARGET, "ranges": "minmax", "equalize": "none"}
    options |= {"rounding": "off", "correction": "off", "normalize": "off", "headroom": 0.0, "output_room": "off"}
    budget = larger * _packaged_ms(odc_mlir.quantize(module, mixed="off", **options))
    estimated = TargetRules._time_ns
    found = []
    for factor in (0.5, 2.0):
        monkeypatch.setattr(TargetRules, "_time_ns", lambda *a, factor=factor: factor * estimated(*a))
        made = odc_mlir.quantize(module, max_time_ms=budget, metric="sqnr", **options)
        assert not [text for text in made.verdict["problems"] if "an inference takes" in text]
        assert _packaged_ms(made) <= budget
        found.append(made.verdict["metrics"]["sqnr_db"])
    assert found[0] == pytest.approx(found[1], abs=3.0)


def test_large_models_are_only_estimated_and_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "_MOST_COMPILED_MACS", 1)
    model, samples = _exponential()
    options: dict[str, Any] = {"calibration": samples, "target": TARGET, "help": False, "max_time_ms": 9.0}
    made = odc_mlir.quantize(model, **options)
    found = made.verdict["coverage"]["target"]
    assert not found["modelled"]
    assert any("estimated time" in line for line in _coverage(made.verdict["coverage"], 3))


def test_what_the_target_leaves_to_the_host_is_told_with_the_reason() -> None:
    model, samples = _exponential("SIN", 1e3)  # waves of a few codes, which no table gives
    made = odc_mlir.quantize(model, calibration=samples, target=TARGET, scheme="int16x8", help=False)
    coverage = made.verdict["coverage"]
    (left,) = coverage["target"]["on_host"]
    assert (left["op"], left["name"]) == ("SIN", "z")
    assert left["reason"]
    (line,) = [line for line in _coverage(coverage, 3) if "on the host" in line]
    assert line == f"  on the host: SIN 'z' ({left['reason']})"
    coverage["target"]["on_host"] = [left] * 5
    (line,) = [line for line in _coverage(coverage, 3) if "on the host" in line]
    assert line.count("SIN 'z'") == 3
    assert line.endswith(", and 2 more")
    coverage["target"]["on_host"] = []
    assert not [line for line in _coverage(coverage, 3) if "on the host" in line]


@pytest.mark.parametrize(
    ("times", "digits"),
    [([], 3), ([93_700.0, 94_000.0], 4), ([93_000.0, 94_000.0], 3), ([1.0, 2.0], 6), ([5.2, 5.3], 3), ([7e6, 7e6], 3)],
)
def test_times_have_as_many_digits_as_tell_them_apart(times: list[float], digits: int) -> None:
    assert decimals(times) == digits


def test_costs_say_how_they_are_known() -> None:
    assert times_text(93_700.0, 4) == "0.0937 ms"
    assert cost_text({"time_ns": 93_700.0, "modelled": True}, 3) == "0.094 ms modelled"
    assert cost_text({"time_ns": 93_700.0, "modelled": False}, 3) == "0.094 ms estimated"
    assert cost_text({"time_ns": None, "bytes": 1234}, 3) == "1,234 bytes"


def test_the_picture_of_costs_says_how_each_is_known() -> None:
    point = {"layers": 1, "bytes": 9, "runs": 1.0, "search": {"sqnr_db": 30.0}, "holds": True, "confirmed": True}
    points = [
        point | {"time_ns": 2e6, "modelled": True, "chosen": True},
        point | {"time_ns": 1e6, "modelled": False, "chosen": False},
    ]
    (section,) = report._front(points, 3)
    assert "1 other layers, modelled, chosen: 2, 30" in str(section.content)
    assert "1 other layers, estimated: 1, 30" in str(section.content)
    (section,) = report._front([one | {"time_ns": None} for one in points], 3)
    assert "1 other layers, chosen: 9, 30" in str(section.content)
