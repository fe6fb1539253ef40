"""Every shipped target stays within its frozen resource budget."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from helpers.data import REPOSITORY
from odc_mlir import targets
from odc_mlir.targets import Target

BUDGET = REPOSITORY / "test" / "data" / "budget.toml"
LARGE_BUDGET = BUDGET.with_name("budget_2048.toml")

# A machine with less bandwidth or longer latency is a smaller machine; these may not be cut either, because cycles are
# compared with machines that have exactly them.
EXACT = frozenset(
    {
        "clock_hz",
        "compares_with",
        "macs_per_cycle",
        "offchip_burst_bytes",
        "offchip_bytes_per_cycle",
        "offchip_read_latency_cycles",
        "offchip_write_latency_cycles",
        "sram_burst_bytes",
        "sram_bytes_per_cycle",
        "sram_read_latency_cycles",
        "sram_write_latency_cycles",
    }
)


def budgets(*paths: Path) -> dict[str, dict[str, Any]]:
    """Budgets by target, with what they extend filled in."""
    table = {name: entry for path in paths or (BUDGET,) for name, entry in tomllib.loads(path.read_text()).items()}
    return {name: table.get(entry.get("extends"), {}) | entry for name, entry in table.items()}


def used(target: Target) -> dict[str, Any]:
    """What a target uses of everything that is limited."""
    return {
        "compares_with": target.compares_with,
        "clock_hz": target.clock_hz,
        "macs_per_cycle": target.array.macs_per_cycle,
        "sram_bytes_per_cycle": target.sram.bytes_per_cycle,
        "sram_burst_bytes": target.sram.burst_bytes,
        "sram_read_latency_cycles": target.sram.read_latency_cycles,
        "sram_write_latency_cycles": target.sram.write_latency_cycles,
        "sram_capacity_bytes": target.sram.capacity_bytes,
        "offchip_bytes_per_cycle": target.offchip.bytes_per_cycle,
        "offchip_burst_bytes": target.offchip.burst_bytes,
        "offchip_read_latency_cycles": target.offchip.read_latency_cycles,
        "offchip_write_latency_cycles": target.offchip.write_latency_cycles,
        "local_memory_bytes": target.local.total_bytes,
        "requant_lanes": target.vector.requant_lanes,
        "weight_decoder_symbols_per_cycle": target.decoder.symbols_per_cycle,
        "dma_descriptors_in_flight": target.dma.descriptors_in_flight,
    }


def excess(target: Target, budget: dict[str, Any]) -> list[str]:
    """What the target has too much of, or not exactly as the budget says."""
    over = []
    for key, value in used(target).items():
        limit = budget.get(key, 0)  # no write latency: read only
        if value != limit if key in EXACT else value > limit:
            over.append(f"{key}: {value}, budget {limit}")
    return over


@pytest.mark.parametrize("name", targets.names())
def test_within_budget(name: str) -> None:
    assert excess(targets.load(name), budgets(BUDGET, LARGE_BUDGET)[name]) == []


@pytest.mark.parametrize(
    "key", ["requant_lanes", "weight_decoder_symbols_per_cycle", "local_memory_bytes", "sram_bytes_per_cycle"]
)
def test_the_large_machine_has_no_more_of_it_per_multiplier(key: str) -> None:
    small, large = (budgets(BUDGET, LARGE_BUDGET)[name] for name in ("npu-512", "npu-2048"))
    assert large[key] * small["macs_per_cycle"] <= small[key] * large["macs_per_cycle"]


def test_too_much_is_found() -> None:
    target = targets.load("npu-256")
    more_lanes = dataclasses.replace(target, vector=dataclasses.replace(target.vector, requant_lanes=9))
    assert excess(more_lanes, budgets()["npu-256"]) == ["requant_lanes: 9, budget 8"]
    assert excess(more_lanes, budgets()["npu-256-r16"]) == []
    wider = dataclasses.replace(target, offchip=dataclasses.replace(target.offchip, bytes_per_cycle=2))
    assert excess(wider, budgets()["npu-256"]) == ["offchip_bytes_per_cycle: 2, budget 1"]


def test_the_copy_is_the_frozen_budget(test_data: Path) -> None:
    original = test_data / "spec" / "budget.toml"
    if not original.is_file():
        pytest.skip("the test data has no spec/budget.toml")
    assert budgets() == budgets(original)
