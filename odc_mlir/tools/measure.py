"""Reports of ``odc-run``: what is printed, the CSV file, the profile and the trace."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.tools.common import counted

if TYPE_CHECKING:
    from odc_mlir.ops.spec import Array
    from odc_mlir.runtime.executor import Executor
    from odc_mlir.runtime.profile import Measurement

Shapes = Sequence[tuple[int, ...]]

_PHASES = ("MODEL_LOAD", "PREPARE", "EXECUTE", "PEAK")
_KINDS = ("RSS", "HWM", "PSS")
_RULE = "=" * 35


class MemoryPoll:
    """Resident memory in kB after each phase, as Linux tells it; without ``active`` nothing is measured."""

    def __init__(self, active: bool) -> None:
        self.active = active
        self.samples: dict[str, dict[str, int]] = {}

    def sample(self, phase: str) -> None:
        """Measure now, at the end of ``phase``; phases that end later raise the peak."""
        if self.active:
            now = _resident_kb()
            peak = self.samples.get("PEAK", now)
            self.samples[phase] = now
            self.samples["PEAK"] = {kind: max(now[kind], peak[kind]) for kind in _KINDS}

    def value(self, phase: str, kind: str) -> int:
        return self.samples.get(phase, {}).get(kind, 0)


def _resident_kb() -> dict[str, int]:
    fields = {"VmRSS:": "RSS", "VmHWM:": "HWM", "Pss:": "PSS"}
    found = dict.fromkeys(_KINDS, 0)
    for file in ("/proc/self/status", "/proc/self/smaps_rollup"):
        try:
            lines = Path(file).read_text().splitlines()
        except OSError:
            continue
        for name, value in (line.split()[:2] for line in lines if len(line.split()) > 1):
            if name in fields:
                found[fields[name]] = int(value)
    return found


def summary(executor: Executor, shapes: Shapes, measurement: Measurement, memory: MemoryPoll, *, each_run: bool) -> str:
    """The text that ``odc-run`` prints: where it ran, times, memory for ``shapes``, and why segments fell back."""
    times = measurement.execute_ms()
    lines = [_RULE]
    lines += [f"run {number}: {1000 * s:.3f} ms" for number, s in enumerate(measurement.run_seconds) if each_run]
    lines += [
        f"MODEL_LOAD   takes {1000 * measurement.load_seconds:.3f} ms",
        f"PREPARE      takes {1000 * measurement.prepare_seconds:.3f} ms",
        f"EXECUTE      takes {times['mean']:.3f} ms",
        *(f"- {name.upper():<9}:  {times[name]:.3f} ms" for name in ("mean", "max", "min", "geomean")),
    ]
    segments = getattr(executor, "segments", ())
    if segments:
        cycles = sum((unit.counters or {}).get("cycles", 0) for unit in segments)
        lines.append(f"NPU          takes {cycles} cycles in {counted(len(segments), 'segment')}")
    lines.append(f"ACTIVATIONS  need {executor.prepare(shapes).peak_bytes} bytes at once")
    parts = getattr(executor, "parts", None)
    if parts is not None:
        taken, total = sum(len(part.operators) for part in parts), len(executor.graph.nodes)
        lines.append(f"LITERT       takes {taken} of {counted(total, 'operator')} in {counted(len(parts), 'part')}")
    lines += [
        f"{phase:<12} {kind} {memory.value(phase, kind)} kB"
        for phase in _PHASES
        if phase in memory.samples
        for kind in _KINDS
    ]
    lines += [f"{name} ran on the host: {reason}" for name, reason in executor.fallbacks.items()]
    return "\n".join([*lines, _RULE])


def describe_values(value: Array) -> str:
    """``float32[1, 8] least -1 largest 2.5 mean 0.25``; without the numbers where there are none."""
    text = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if not value.size or value.dtype.kind not in "biuf":
        return text
    return f"{text} least {value.min():g} largest {value.max():g} mean {value.mean(dtype=float):g}"


def write_profile(
    path: str, arguments: argparse.Namespace, executor: Executor, shapes: Shapes, measurement: Measurement
) -> None:
    """Write times by operator, the counters of every segment, and the memory for inputs of ``shapes``, as JSON."""
    document: dict[str, Any] = {"model": arguments.model, "backend": arguments.backend, **measurement.profile()}
    document["segments"] = {unit.step.name: unit.counters for unit in getattr(executor, "segments", ())}
    document["fallbacks"] = executor.fallbacks
    document["peak_activation_bytes"] = executor.prepare(shapes).peak_bytes
    _write_json(path, document)


def write_trace(path: str, executor: Executor, measurement: Measurement) -> None:
    """Write a trace of every timed run, with what went on inside the last run of each segment, as JSON."""
    from odc_mlir.runtime.profile import trace_events

    inside = {unit.step.name: unit.trace or () for unit in getattr(executor, "segments", ())}
    _write_json(path, trace_events(measurement.events, inside))


def _write_json(path: str, document: dict[str, Any]) -> None:
    import json

    from odc_mlir.formats.atomic import write_file

    write_file(path, (json.dumps(document, indent=1) + "\n").encode())


def write_csv(model: str, backend: str, measurement: Measurement, memory: MemoryPoll) -> None:
    """Write ``odc-run-MODEL-BACKEND.csv`` into the current folder: one header line, one line of values."""
    import csv
    import io

    from odc_mlir.formats.atomic import write_file

    name = Path(model).resolve().name
    times = measurement.execute_ms()
    row: dict[str, str | float | int] = {
        "Model": name,
        "Backend": backend,
        "ModelLoad_Time": f"{1000 * measurement.load_seconds:.3f}",
        "Prepare_Time": f"{1000 * measurement.prepare_seconds:.3f}",
        **{f"Execute_Time_{key.capitalize()}": f"{times[key]:.3f}" for key in ("min", "max", "mean")},
    }
    titles = dict(zip(_PHASES, ("ModelLoad", "Prepare", "Execute", "Peak"), strict=True))
    row |= {f"{titles[phase]}_{kind}": memory.value(phase, kind) for kind in _KINDS for phase in _PHASES}
    text = io.StringIO()
    writer = csv.DictWriter(text, list(row), lineterminator="\n")
    writer.writeheader()
    writer.writerow(row)
    write_file(f"odc-run-{name}-{backend}.csv", text.getvalue().encode())
