"""What a machine's actions take in energy: estimates with their least, most and source, for reports.

A target file has a table ``[energy]``, or ``energy = "NAME"`` for a description shipped in ``energies/``; one that has
neither gets ``22nm``. A description may be ``like`` a shipped one with other numbers for some of it. Energy decides
nothing, so it is no part of a target's identity.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from importlib import resources
from typing import Any

from odc_mlir.errors import TargetError
from odc_mlir.targets.host import number_of

REFERENCE = "22nm"
_NUMBERS = ("value", "low", "high")


@dataclasses.dataclass(frozen=True)
class EnergyFigure:
    """A number that lies between ``low`` and ``high``, and where it is from."""

    value: float
    low: float
    high: float
    source: str


@dataclasses.dataclass(frozen=True)
class EnergyCosts:
    """Picojoules of actions, and the power that is there all the time."""

    description: str
    mac_pj: EnergyFigure
    requantisation_pj: EnergyFigure
    tile_byte_pj: EnergyFigure
    weight_byte_pj: EnergyFigure
    accumulator_entry_pj: EnergyFigure
    sram_byte_pj: EnergyFigure
    offchip_byte_pj: EnergyFigure
    background_mw: EnergyFigure


FIGURES = tuple(field.name for field in dataclasses.fields(EnergyCosts) if field.name != "description")


def parse_energy(table: Any, location: str) -> EnergyCosts:
    """The figures in a table, or in the shipped description that a string names; raises TargetError."""
    if isinstance(table, str):
        return _load(table, location)
    if not isinstance(table, Mapping):
        raise TargetError("key 'energy' must be a table or the name of one", location=location)
    found = dict(table)
    if "like" in found:
        base = _load(str(found.pop("like")), location)
        found = {key: getattr(base, key) for key in ("description", *FIGURES)} | found
    for key in found:
        if key not in ("description", *FIGURES):
            raise TargetError(f"unknown key 'energy.{key}'", location=location)
    for key in ("description", *FIGURES):
        if key not in found:
            raise TargetError(f"missing key 'energy.{key}'", location=location)
    figures = {key: _figure(found[key], f"energy.{key}", location) for key in FIGURES}
    return EnergyCosts(description=str(found["description"]), **figures)


def _load(name: str, location: str) -> EnergyCosts:
    folder = resources.files(__package__) / "energies"
    known = sorted(f.name.removesuffix(".toml") for f in folder.iterdir() if f.name.endswith(".toml"))
    if name not in known:
        raise TargetError(f"key 'energy' names {name!r}, known: {', '.join(known)}", location=location)
    return parse_energy(tomllib.loads((folder / f"{name}.toml").read_text("utf-8")), f"{name}.toml")


def _figure(value: Any, path: str, location: str) -> EnergyFigure:
    if isinstance(value, EnergyFigure):
        return value
    if not isinstance(value, Mapping) or set(value) != {*_NUMBERS, "source"} or not isinstance(value["source"], str):
        raise TargetError(f"key {path!r} must have exactly value, low, high and source", location=location)
    found, low, high = (number_of(value[name], f"{path}.{name}", location) for name in _NUMBERS)
    if not low <= found <= high:
        raise TargetError(f"key {path!r} has a value that is not between low and high", location=location)
    return EnergyFigure(found, low, high, value["source"])
