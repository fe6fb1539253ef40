"""One point: every model compiled for its machine, and what the reports say. Runs in processes of its own."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from odc_mlir.errors import OdcError, OptionError
from odc_mlir.explore.space import OPTIONS, Point

MEASURES: Mapping[str, str] = {
    "cycles_total": "NPU cycles",
    "latency_ms": "latency, modelled, ms",
    "sram_peak_bytes": "peak SRAM, bytes",
    "offchip_read_bytes": "read off-chip, bytes",
    "program_bytes": "program, bytes",
    "binary_bytes": "binaries, bytes",
    "host_op_count": "operators on the host",
}
"""What can be made small, and in which words."""


_LEAST = 1e-9  # of a latency, in milliseconds


@dataclass(frozen=True, slots=True)
class Task:
    """A point with all that evaluating it takes. ``models``: paths; ``machine``: TOML text; ``options``: of compile."""

    point: Point
    models: tuple[str, ...]
    machine: str
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a point gave: values by model and measure, or why there is none."""

    by_model: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    failure: str | None = None

    def value(self, measure: str) -> float:
        """Of all models together: the geometric mean of latencies, the sum of all other measures, which can be 0."""
        values = [found[measure] for found in self.by_model.values()]
        if len(values) == 1 or measure != "latency_ms":
            return sum(values)  # of one, its very value
        return math.exp(sum(math.log(max(value, _LEAST)) for value in values) / len(values))


def evaluate(task: Task) -> Outcome:
    """The outcome of a point; what the machine or a model makes impossible is a failure, never an exception."""
    from odc_mlir.runtime import api
    from odc_mlir.runtime.reporting.report import build_report

    chosen = {key: value for key, value in task.point.items() if key in OPTIONS}
    found: dict[str, Mapping[str, float]] = {}
    with tempfile.TemporaryDirectory(prefix="odc-explore-") as folder:
        target = Path(folder) / "machine.toml"
        target.write_text(task.machine)
        for name in task.models:
            try:
                package = api.compile(name, target=str(target), **{**task.options, **chosen})
                report = build_report(package, quick=True)
            except OdcError as error:
                return Outcome(failure=f"{Path(name).name}: {error.message}")
            found[name] = {key: float(report[key]) for key in MEASURES}
    return Outcome(found)


@dataclass(frozen=True, slots=True)
class Bound:
    """A constraint ``measure <= limit``."""

    measure: str
    limit: float

    def excess(self, outcome: Outcome) -> float:
        """By how much of the limit the outcome is over it; 0 or less where it holds."""
        return outcome.value(self.measure) / self.limit - 1 if self.limit else outcome.value(self.measure)


def parse_bound(text: str) -> Bound:
    """A constraint written ``MEASURE<=LIMIT``; raises OptionError."""
    from odc_mlir.formats.quantities import bytes_of

    name, sign, limit = text.partition("<=")
    if not sign or name.strip() not in MEASURES:
        raise OptionError(f"{text!r} is not a constraint", hint=f"write MEASURE<=LIMIT, of {', '.join(MEASURES)}")
    try:
        value = float(limit)
    except ValueError:
        value = bytes_of(limit.strip())
    if not 0 <= value < math.inf:
        raise OptionError(f"{limit.strip()!r} is not a limit", hint="write a number that is not negative")
    return Bound(name.strip(), value)


def parse_objectives(names: Sequence[str]) -> tuple[str, ...]:
    """Measures to make small; raises OptionError for one that is none."""
    for name in names:
        if name not in MEASURES:
            raise OptionError(f"{name!r} is not an objective", hint=f"use some of {', '.join(MEASURES)}")
    if not names or len(set(names)) < len(names):
        raise OptionError("objectives must be distinct measures")
    return tuple(names)
