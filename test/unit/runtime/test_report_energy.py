"""Energy estimates: sums of counted actions, their bounds, and published figures."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import energy_table
from helpers.data import REPOSITORY
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
def test_the_page_and_the_target_file_have_what_the_models_give(test_data: Path) -> None:
    """Background power is calibrated on the first network; the estimate for the others is within a quarter."""
    folder = test_data / "models" / "zoo"
    page, power = (REPOSITORY / "docs" / "numbers.md").read_text(), NPU.energy.background_mw.value
    for published in (energy_table.CALIBRATION, *energy_table.CHECKS[:2]):
        actions = energy_table.actions_uj(folder / f"{published.model}.circle")
        found = actions + power * 1e3 / published.per_second
        if published is energy_table.CALIBRATION:
            assert energy_table.calibrated_mw(actions, published) == pytest.approx(power, abs=1)
        assert found == pytest.approx(published.energy_uj, rel=0.25)
        row = re.search(rf"`{published.model}`.* \| ([\d.]+) uJ \| {published.energy_uj:.1f} uJ", page)
        assert row is not None
        assert found == pytest.approx(float(row[1]), rel=0.02)


@pytest.mark.slow
def test_the_page_has_the_energy_of_resnet_8(test_data: Path) -> None:
    report = compile_package(test_data / "models" / "zoo" / "pretrainedResnet_quant.circle").report
    whole = report["energy"]
    page = (REPOSITORY / "docs" / "numbers.md").read_text()
    text = re.search(r"takes ([\d.]+) uJ \(bounds: ([\d.]+) and ([\d.]+)\)", page)
    assert text is not None
    found = [whole[key] for key in ("estimate_uj", "low_uj", "high_uj")]
    assert found == pytest.approx(list(map(float, text.groups())), rel=0.02), "other plans may change it by 2 %"
    layers = [layer["energy"]["estimate_uj"] for layer in report["layers"] if "energy" in layer]
    assert 0.9 * whole["estimate_uj"] < sum(layers) <= whole["estimate_uj"]
