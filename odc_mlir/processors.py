"""Processors as data: one TOML file per kind of machine in ``targets/cpus``.

``cpu`` is this machine, with the best description for the features of the processor.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any

from odc_mlir.errors import TargetError

HERE = "cpu"
"""Name of the machine of this process."""

_FOLDER = Path(__file__).parent / "targets" / "cpus"
_TRIPLE = r"(thumb|arm|aarch64|riscv|x86_64|i[3-6]86)[\w.]*(-[\w.]+){2,3}"
_TRIPLES = (
    (r"cortex-m(0|0plus|1)", "thumbv6m"),
    (r"cortex-m3", "thumbv7m"),
    (r"cortex-m[47]", "thumbv7em"),
    (r"cortex-m23", "thumbv8m.base"),
    (r"cortex-m3[35]p?", "thumbv8m.main"),
    (r"cortex-m(52|55|85)", "thumbv8.1m.main"),
)


@dataclasses.dataclass(frozen=True)
class CpuTarget:
    """One kind of processor.

    ``triple``, ``cpu``, ``features``, ``tuning``: LLVM's terms. Code also runs on processors that have no ``tuning``.
    ``dot``: instruction that multiplies and adds four bytes (``vnni``, ``madd``, ``usdot`` or ``sdot``). If there is no
    such instruction, ``portable``, or ``shifts`` if vectors cannot be permuted. ``tile_rows``, ``tile_vectors``:
    pixels, and groups of 16 channels, in a register tile of sums. ``preference``: of several suitable descriptions, the
    largest value decides.
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
        return self.triple.partition("-")[0]


def is_cpu(target: str) -> bool:
    """Return whether ``target`` names a processor, not an NPU."""
    return target == HERE or target in names()


def names() -> tuple[str, ...]:
    """Return the names of the shipped descriptions."""
    return tuple(sorted(file.stem for file in _FOLDER.glob("*.toml")))


def flags_of(name: str) -> str | None:
    """Return the flags of ``--emit object`` for a Cortex-M (floats in integer registers) or a triple, or None."""
    if re.fullmatch(_TRIPLE, name):
        return f"--triple {name}"
    found = (f"--triple {arch}-none-eabi --cpu {name}" for pattern, arch in _TRIPLES if re.fullmatch(pattern, name))
    return next(found, None)


def load(name: str) -> CpuTarget:
    """Load the processor called ``name``. Raises TargetError."""
    if name not in names():
        flags = flags_of(name)
        hint = f"use {HERE}, or one of {', '.join(names())}" if flags is None else f"use {flags}"
        raise TargetError(f"unknown processor {name!r}", hint=hint)
    import tomllib

    document: dict[str, Any] = tomllib.loads((_FOLDER / f"{name}.toml").read_text("utf-8"))
    return CpuTarget(**document | {key: tuple(document[key]) for key in ("features", "tuning")})


def best_for(architecture: str, features: Collection[str]) -> CpuTarget:
    """Return the best shipped description for a machine. Raises TargetError if none is suitable."""
    fitting = [
        target
        for target in map(load, names())
        if target.architecture == architecture and set(target.features) <= set(features)
    ]
    if not fitting:
        raise TargetError(f"there is no description of a processor of architecture {architecture!r}")
    return max(fitting, key=lambda target: target.preference)
