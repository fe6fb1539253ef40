"""Study files: the same as the command line says, to be kept.

::

    models = ["resnet8.circle"]
    target = "npu-256"
    vary = ["array.macs_per_cycle=128,256,512", "sram.capacity_bytes=128K:2M:log4"]
    objective = ["cycles_total", "sram_peak_bytes"]
    constraint = ["sram_peak_bytes<=256K"]
    sampler = "grid"

    [options]
    memory = "sram"
"""

from __future__ import annotations

import tomllib
from collections.abc import Set
from pathlib import Path
from typing import Any

from odc_mlir.errors import OptionError, parsing

_LISTS = ("models", "vary", "objective", "constraint")
_TYPES: dict[str, type] = {"target": str, "sampler": str, "points": int, "seed": int, "options": dict}


def read_study(path: str, keys: Set[str], options: Set[str]) -> dict[str, Any]:
    """The settings in a study file, paths of models beside it made whole; raises OptionError."""
    with parsing("not valid TOML", OptionError, location=path):
        found: dict[str, Any] = tomllib.loads(Path(path).read_text())
    if unknown := sorted(found.keys() - keys):
        raise OptionError(f"a study has no key {unknown[0]!r}", location=path, hint=f"use {', '.join(sorted(keys))}")
    for key, value in found.items():
        is_texts = isinstance(value, list) and all(isinstance(item, str) for item in value)
        if not (is_texts if key in _LISTS else type(value) is _TYPES[key]):
            raise OptionError(f"{key} has the value {value!r}, which has the wrong type", location=path)
    if unknown := sorted(found.get("options", {}).keys() - options):
        raise OptionError(f"a study has no option {unknown[0]!r}", location=path)
    if found.get("sampler", "grid") not in ("grid", "random", "bayes"):
        raise OptionError(f"there is no sampler {found['sampler']!r}", location=path, hint="use grid, random or bayes")
    beside = Path(path).parent
    found["models"] = [str(beside / name) for name in found.get("models", [])]
    return found
