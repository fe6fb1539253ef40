"""Processors as data: one TOML file per kind of machine in ``cpus``.

``cpu`` means this machine: the best description whose features it has.
"""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Collection
from importlib import resources
from typing import Any

from odc_mlir.errors import TargetError

HERE = "cpu"
"""Name of the machine that runs this process."""

_FOLDER = "cpus"


@dataclasses.dataclass(frozen=True)
class CpuTarget:
    """One kind of processor.

    ``triple``, ``cpu`` and ``features`` are LLVM's terms, and so is ``tuning``, which does not restrict where code
    runs. ``dot``: instruction that multiplies and adds four bytes (``vnni``, ``madd``, ``usdot`` or ``sdot``); without
    such an instruction, ``portable``, or ``shifts`` if vectors cannot be permuted. A tile of sums in registers has
    ``tile_rows`` pixels by ``tile_vectors`` times 16 channels. If several descriptions fit a machine, the largest
    ``preference`` decides.
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
    document: dict[str, Any] = tomllib.loads(
        (resources.files("odc_mlir.targets") / _FOLDER / f"{name}.toml").read_text("utf-8")
    )
    return CpuTarget(**document | {key: tuple(document[key]) for key in ("features", "tuning")})


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
