"""Files of ONE's tools: partitions (``.part``, docs/partitioning.md), and errors of tensors for visq.

Error files have the form ``{"meta": {"model", "metric", "colorscheme": [{"b", "e", "c"}, …]}, "error": [{tensor:
value}]}``, for the first subgraph. The nine colours divide 0..1 (MPEIR) or the range of values into equal parts.
"""

from __future__ import annotations

import configparser
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from odc_mlir.errors import OptionError, parsing

Comply = Literal["opcode", "opname"]
_SECTIONS = {"opcode": "OPCODE", "opname": "OPNAME"}
_OVERRIDE = "_"


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """Backends of operators: ``by_name`` and ``default``. Names are opcodes or results, depending on ``comply``."""

    backends: tuple[str, ...]
    default: str
    comply: Comply
    by_name: Mapping[str, str]


def parse_partition(text: str, location: str) -> PartitionFile:
    """Parse a partition file. ``location`` names the file in errors (OptionError)."""
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#", ";"), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    with parsing("not a partition file", OptionError, location=location):
        parser.read_string(text)
    known = {"partition", *_SECTIONS.values()}
    for section in parser.sections():
        if section not in known:
            raise OptionError(f"unknown section [{section}], allowed: {', '.join(sorted(known))}", location=location)
    if "partition" not in parser:
        raise OptionError("the section [partition] is missing", location=location)
    head = parser["partition"]
    for key in ("backends", "default"):
        if not head.get(key, "").strip():
            raise OptionError(f"the key {key!r} of [partition] is missing", location=location)
    backends = tuple(name.strip() for name in head["backends"].split(",") if name.strip())
    comply = head.get("comply", "opcode")
    if comply not in _SECTIONS:
        raise OptionError(f"comply is {comply!r}, allowed: opcode, opname", location=location)
    rows = dict(parser[_SECTIONS[comply]]) if _SECTIONS[comply] in parser else {}
    default = rows.pop(_OVERRIDE, head["default"])
    for name, backend in [("default", default), *rows.items()]:
        if backend not in backends:
            listed = ", ".join(backends)
            raise OptionError(f"{name!r} runs on {backend!r}, the backends are {listed}", location=location)
    return PartitionFile(backends, default, "opcode" if comply == "opcode" else "opname", rows)


METRICS = ("mpeir", "mse", "tae", "srmse")
COLOURS = ("#ffffcc", "#ffeda0", "#fed976", "#feb24c", "#fd8d3c", "#fc4e2a", "#e31a1c", "#bd0026", "#800026")
DIGITS = 4

Errors = Mapping[str, float]


def document(model: str, metric: str, errors: Errors) -> dict[str, Any]:
    """Return the content of an error file, with four significant digits."""
    return {
        "meta": {"model": model, "metric": metric.upper(), "colorscheme": _scheme(metric, errors)},
        "error": [{name: float(f"{value:.{DIGITS}g}") for name, value in errors.items()}],
    }


def _scheme(metric: str, errors: Errors) -> list[dict[str, Any]]:
    values = errors.values()
    low, high = (0.0, 1.0) if metric == "mpeir" or not errors else (min(values), max(values))
    step = (high - low) / len(COLOURS)
    return [
        {"b": float(f"{low + i * step:.{DIGITS}g}"), "e": float(f"{low + (i + 1) * step:.{DIGITS}g}"), "c": colour}
        for i, colour in enumerate(COLOURS)
    ]


def read(path: str | os.PathLike[str]) -> tuple[str, dict[str, float]]:
    """Return metric and errors by tensor in a file of visq or odc-mlir. Raises OptionError with the file's name."""
    where = os.fspath(path)
    with parsing("cannot read the errors of layers", OptionError, location=where):
        content = json.loads(Path(path).read_bytes())
    try:
        metric, (errors, *_) = str(content["meta"]["metric"]).lower(), content["error"]
        values = {str(name): float(value) for name, value in errors.items()}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise OptionError("this is not an error file in the format of visq", location=where) from None
    if metric not in METRICS:
        raise OptionError(f"the errors are in {metric!r}", location=where, hint=f"use one of {', '.join(METRICS)}")
    wrong = next((name for name, value in values.items() if not 0 <= value < math.inf), None)
    if wrong is not None or not values:
        what = "there is none" if wrong is None else f"that of {wrong!r} is {values[wrong]:g}"
        raise OptionError(f"errors must be numbers of at least 0; {what}", location=where)
    return metric, values
