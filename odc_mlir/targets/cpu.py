"""Processors as data: one TOML file per kind of machine in ``cpus``, loaded strictly.

``cpu`` stands for the machine that runs this: the first description whose features it has.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection
from importlib import resources
from typing import Any

from odc_mlir.errors import TargetError

HERE = "cpu"
"""Name of the machine that runs this."""

_FOLDER = "cpus"
_DOTS = ("vnni", "madd", "usdot", "sdot", "portable")


@dataclasses.dataclass(frozen=True)
class CpuTarget:
    """One kind of processor.

    ``triple``, ``cpu`` and ``features`` are LLVM's, and so is ``tuning``, which code can run without. ``dot`` is how
    four bytes are multiplied and added up; a tile of sums that stays in registers has ``tile_rows`` pixels by
    ``tile_vectors`` times 16 channels. ``preference`` orders descriptions that all fit a machine, the largest first.
    """

    name: str
    version: int
    triple: str
    cpu: str
    features: tuple[str, ...]
    tuning: tuple[str, ...]
    dot: str
    tile_rows: int
    tile_vectors: int
    l1_bytes: int
    l2_bytes: int
    preference: int

    @property
    def architecture(self) -> str:
        """Return the first part of the triple."""
        return self.triple.partition("-")[0]


def is_cpu(target: str) -> bool:
    """Return whether ``target`` names a processor, not an NPU."""
    return target == HERE or target in names()


def names() -> tuple[str, ...]:
    """Return the names of the shipped descriptions."""
    files = (resources.files("odc_mlir.targets") / _FOLDER).iterdir()
    return tuple(sorted(file.name.removesuffix(".toml") for file in files if file.name.endswith(".toml")))


def load(name: str) -> CpuTarget:
    """Load the processor called ``name``; raise TargetError."""
    if name not in names():
        raise TargetError(f"unknown processor {name!r}", hint=f"use {HERE}, or one of {', '.join(names())}")
    text = (resources.files("odc_mlir.targets") / _FOLDER / f"{name}.toml").read_text("utf-8")
    return parse(text, name)


def parse(text: str, location: str) -> CpuTarget:
    """Parse TOML ``text`` as a processor; ``location`` names it in errors."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TargetError(f"not valid TOML: {error}", location=location) from error
    fields = {field.name: field for field in dataclasses.fields(CpuTarget)}
    for key in (*document, *fields):
        if key not in document or key not in fields:
            raise TargetError(f"{'unknown' if key in document else 'missing'} key {key!r}", location=location)
    values = {key: _value(key, value, location) for key, value in document.items()}
    target = CpuTarget(**values)
    if target.dot not in _DOTS:
        raise TargetError(f"dot is {target.dot!r}, allowed: {', '.join(_DOTS)}", location=location)
    return target


def _value(key: str, value: Any, location: str) -> Any:
    if key in ("features", "tuning"):
        if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
            raise TargetError(f"{key} must be a list of strings", location=location)
        return tuple(value)
    wanted = str if key in ("name", "triple", "cpu", "dot") else int
    if type(value) is not wanted or (isinstance(value, int) and value < 0):
        kind = "a string" if wanted is str else "a number that is not negative"
        raise TargetError(f"{key} must be {kind}", location=location)
    return value


def best_for(architecture: str, features: Collection[str]) -> CpuTarget:
    """Return the shipped description that suits a machine best; raise TargetError if none does."""
    fitting = [
        target
        for target in map(load, names())
        if target.architecture == architecture and set(target.features) <= set(features)
    ]
    if not fitting:
        raise TargetError(f"there is no description of a processor of architecture {architecture!r}")
    return max(fitting, key=lambda target: target.preference)
