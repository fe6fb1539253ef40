"""Energy figures of targets: read strictly, no part of a target's identity, and every one with a source."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from odc_mlir import targets
from odc_mlir.errors import TargetError
from odc_mlir.targets.costs import FIGURES, EnergyCosts, parse_energy

GOOD = {"value": 2, "low": 1, "high": 3, "source": "somewhere"}


def table(**changes: Any) -> dict[str, Any]:
    return {"description": "mine", **dict.fromkeys(FIGURES, GOOD), **changes}


@pytest.mark.parametrize("name", targets.names())
def test_shipped_figures_have_bounds_and_sources(name: str) -> None:
    costs = targets.load(name).energy
    for key in FIGURES:
        figure = getattr(costs, key)
        assert 0 < figure.low < figure.value < figure.high, key
        assert len(figure.source) > 10, key


def test_a_table_of_ones_own() -> None:
    costs = parse_energy(table(), "x.toml")
    assert costs == EnergyCosts("mine", *[costs.mac_pj] * len(FIGURES))
    assert (costs.mac_pj.low, costs.mac_pj.value, costs.mac_pj.high) == (1.0, 2.0, 3.0)
    like = parse_energy({"like": "22nm", "mac_pj": GOOD}, "x.toml")
    assert like.mac_pj == costs.mac_pj
    assert like.sram_byte_pj == targets.load("npu-256").energy.sram_byte_pj


def test_energy_is_no_part_of_identity() -> None:
    npu = targets.load("npu-256")
    other = dataclasses.replace(npu, energy=parse_energy(table(), "x.toml"))
    assert other == npu
    assert other.digest("sram") == npu.digest("sram")
    assert targets.from_canonical(npu.canonical, "x").energy == npu.energy


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "key 'energy' must be a table or the name of one"),
        ("none", "key 'energy' names 'none', known: 22nm"),
        (table(speed=GOOD), "unknown key 'energy.speed'"),
        ({"description": "x"}, "missing key 'energy.mac_pj'"),
        (table(mac_pj=2.0), "key 'energy.mac_pj' must have exactly value, low, high and source"),
        (table(mac_pj={**GOOD, "unit": 1}), "key 'energy.mac_pj' must have exactly value, low, high and source"),
        (table(mac_pj={**GOOD, "low": -1}), "key 'energy.mac_pj.low' has the value -1, expected a number from 0"),
        (table(mac_pj={**GOOD, "high": 10**400}), "key 'energy.mac_pj.high' has the value 1000"),
        (table(mac_pj={**GOOD, "low": True}), "key 'energy.mac_pj.low' has the value True"),
        (table(mac_pj={**GOOD, "low": 4}), "key 'energy.mac_pj' has a value that is not between low and high"),
    ],
)
def test_mistakes(value: Any, message: str) -> None:
    with pytest.raises(TargetError, match=message):
        parse_energy(value, "x.toml")
