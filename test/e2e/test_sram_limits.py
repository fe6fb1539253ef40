"""Programs under limits of SRAM: a larger limit makes none slower, and what turns out to fit is found."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from cycle_table import model_path
from odc_mlir.errors import AllocationError
from odc_mlir.transforms.npu import npu_search_plans

MODELS = (
    "ad01_int8", "kws_ref_model", "mobilenet_v1_0.25_128_quant", "mobilenet_v2_1.0_224_quant", "pretrainedResnet_quant",
    "str_ww_ref_model", "vww_96_int8",
)  # fmt: skip
SLOWER = 1.01  # where constants are copied to changes with every byte that there is


def report(path: Path, limit: int | None, memory: str = "flash") -> Any:
    return odc_mlir.compile(path, memory=memory, sram_limit=limit, placement={"strategy": "supported"}).report


def check(path: Path, limits: list[int], memory: str) -> None:
    found = [report(path, limit, memory) for limit in limits]
    for less, more in pairwise(found):
        assert more["cycles_total"] <= SLOWER * less["cycles_total"], (less["sram_peak_bytes"], more["sram_peak_bytes"])
    for limit, made in zip(limits, found, strict=True):
        assert made["sram_peak_bytes"] <= limit
    assert found[0]["cycles_total"] > found[-1]["cycles_total"], "the limits bind"


def test_a_larger_limit_makes_no_program_slower(test_data: Path) -> None:
    path = model_path(test_data, "kws_ref_model")
    check(path, [12_000, 16_000, 20_000], "flash")
    assert report(path, None)["cycles_total"] <= report(path, 20_000)["cycles_total"]


@pytest.mark.parametrize("stage", ["partition", "npu", "npu-sched", "npu-alloc"])
def test_every_stage_leads_to_the_program_of_compiling(stage: str, test_data: Path) -> None:
    path = model_path(test_data, "kws_ref_model")
    package = odc_mlir.compile(path, sram_limit=12_000)
    lowered = odc_mlir.lower(odc_mlir.load(path), stage, sram_limit=12_000)
    assert odc_mlir.package(lowered).files == package.files


def test_large_programs_are_tried_less(test_data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The instructions of all programs tried are limited; a program is found whatever the limit is."""

    def plans_tried(limit: int) -> int:
        monkeypatch.setattr(npu_search_plans, "INSTRUCTIONS", limit)
        told: list[str] = []
        path = model_path(test_data, "pretrainedResnet_quant")
        odc_mlir.compile(path, sram_limit="40K", progress=lambda activity, *_: told.append(activity))
        return told.count("npu-sched: trying a plan")

    assert plans_tried(300_000) > plans_tried(0) == 1


@pytest.mark.soak
def test_a_plan_that_turns_out_to_fit_is_found(test_data: Path) -> None:
    """What is planned for more memory is in the end done in less."""
    path = model_path(test_data, "pretrainedResnet_quant")
    more = report(path, 32_000, "sram")
    less = report(path, more["sram_peak_bytes"], "sram")
    assert less["cycles_total"] <= SLOWER * more["cycles_total"]


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize("model", MODELS)
def test_a_ladder_of_limits(model: str, memory: str, test_data: Path) -> None:
    path = model_path(test_data, model)
    with pytest.raises(AllocationError) as raised:
        report(path, 64, memory)
    least, most = raised.value.needed_bytes, report(path, None, memory)["sram_peak_bytes"]
    check(path, [*(int(least * (most / least) ** (step / 10)) for step in range(10)), most, 2 * most], memory)
