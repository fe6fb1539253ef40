"""Energy estimates: sums of counted actions, their bounds, and one published figure."""

from __future__ import annotations

from pathlib import Path

import pytest

from odc_mlir import targets
from odc_mlir.runtime.api import compile as compile_package
from odc_mlir.runtime.reporting.report import estimate, total_energy
from odc_mlir.runtime.reporting.report_table import energy_line
from odc_mlir.simulator.resources import Resource

NPU = targets.load("npu-256")


def test_every_count_is_charged_once() -> None:
    nothing = estimate({}, 0, 0, NPU)
    assert nothing == {"estimate_uj": 0, "low_uj": 0, "high_uj": 0, "parts_uj": {}}
    assert estimate({}, 1_000_000, 0, NPU)["estimate_uj"] == NPU.energy.mac_pj.value
    for resource in Resource:
        one = estimate({resource.name.lower(): 1e6}, 0, 0, NPU)
        assert len(one["parts_uj"]) == 1
        assert one["low_uj"] < one["estimate_uj"] < one["high_uj"]
    second = estimate({}, 0, NPU.clock_hz, NPU)
    assert second["parts_uj"] == {"background": NPU.energy.background_mw.value * 1e3}


def test_totals_add_up() -> None:
    one, other = estimate({"sram": 1e6}, 0, 0, NPU), estimate({"sram": 2e6, "requant": 1e6}, 0, 0, NPU)
    assert total_energy([one, other], "with") == {
        "estimated_with": "with",
        **{key: one[key] + other[key] for key in ("estimate_uj", "low_uj", "high_uj")},
        "parts_uj": {"sram": 15.0, "requantisation": 2.5},
    }
    total = energy_line(total_energy([one], "with"))
    assert total == ("energy on the NPU, an estimate: 5 uJ, between 2.5 and 10 (with)")


@pytest.mark.slow
def test_resnet_8_is_where_such_a_chip_was_measured(test_data: Path) -> None:
    """28 to 40 uJ are published for a 22 nm part, whose memories differ: the estimate's bounds hold all of that."""
    report = compile_package(test_data / "models" / "zoo" / "pretrainedResnet_quant.circle").report
    energy = report["energy"]
    assert 28 <= energy["estimate_uj"] <= 40
    assert energy["low_uj"] < 28
    assert energy["high_uj"] > 40
    layers = [layer["energy"]["estimate_uj"] for layer in report["layers"] if "energy" in layer]
    assert 0.9 * energy["estimate_uj"] < sum(layers) <= energy["estimate_uj"]
