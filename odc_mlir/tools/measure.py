"""Reports of ``odc-run``: printed summary, CSV file, profile and trace."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odc_mlir.formats.kinds import starts_with
from odc_mlir.formats.quantities import counted, csv_text, time_text
from odc_mlir.tools.files import shown

if TYPE_CHECKING:
    from odc_mlir.formats.samples import Samples
    from odc_mlir.ops.spec import Array
    from odc_mlir.runtime.execution.executor import Executor
    from odc_mlir.runtime.reporting.clocks import LatencyProfile, Modelled

TIMES = starts_with("a file of times", b"Model,Backend,")
_PHASES = ("MODEL_LOAD", "PREPARE", "EXECUTE", "PEAK")
_KINDS = ("RSS", "HWM", "PSS")
_RULE = "=" * 35
_TOLD_EVERY_SECONDS = 10.0


class MemoryPoll:
    """Resident memory in kB after each phase, from Linux's process files. Disabled unless ``active``."""

    def __init__(self, active: bool) -> None:
        self.active = active
        self.samples: dict[str, dict[str, int]] = {}

    def sample(self, phase: str) -> None:
        """Measure the memory at the end of ``phase``. Later phases raise the peak."""
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


class Run:
    """A call of ``odc-run``: a model, samples, measured times and memory, and reports."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        executor: Executor,
        samples: Samples,
        measurement: LatencyProfile,
        memory: MemoryPoll,
    ) -> None:
        self.arguments, self.executor, self.samples = arguments, executor, samples
        self.measurement, self.memory = measurement, memory
        self.segments = getattr(executor, "segments", ())
        self.shapes = [array.shape for array in samples.records[0]]

    @property
    def is_modelled(self) -> bool:
        """Whether the package is compiled for a modelled machine."""
        from odc_mlir.runtime.devices.base import ModelledProgram

        units = [unit for unit in self.segments if unit.failure is None]
        return any(isinstance(unit.program, ModelledProgram) for unit in units)

    @cached_property
    def modelled(self) -> Modelled | None:
        """Modelled time of one inference.

        None if nothing is compiled, if the target has no cost model, or if shapes differ from the compiled shapes.
        """
        from odc_mlir.processors import is_cpu
        from odc_mlir.runtime.execution.plan import PlanExecutor
        from odc_mlir.runtime.reporting.report import modelled_inference

        executor = self.executor
        fixed = [tuple(1 if dim is None else dim for dim in info.shape or ()) for info in executor.graph.input_infos()]
        if not isinstance(executor, PlanExecutor) or self.shapes != fixed:
            return None
        if is_cpu(executor.plan.target or "") or (self.segments and not self.is_modelled):
            return None
        return modelled_inference(executor)

    @property
    def _word(self) -> str:
        """Label of a run, which distinguishes simulator time from device time."""
        return "Simulate" if self.is_modelled else "Execute"

    def summary(self, *, each_run: bool) -> Iterator[str]:
        """Yield the lines of the summary: modelled and measured times, memory, and fallbacks."""
        yield from (_RULE, *self._modelled_lines(), *self._measured_lines(each_run=each_run))
        yield f"ACTIVATIONS  need {self.executor.prepare(self.shapes).peak_bytes} bytes at once"
        parts = getattr(self.executor, "parts", None)
        if parts is not None:
            taken, total = sum(len(part.operators) for part in parts), len(self.executor.graph.nodes)
            yield f"LITERT       takes {taken} of {counted(total, 'operator')} in {counted(len(parts), 'part')}"
        for phase in filter(self.memory.samples.__contains__, _PHASES):
            yield from (f"{phase:<12} {kind} {self.memory.value(phase, kind)} kB" for kind in _KINDS)
        yield from (f"{name} ran on the host: {reason}" for name, reason in self.executor.fallbacks.items())
        yield _RULE

    def _modelled_lines(self) -> list[str]:
        if self.modelled is None:
            return []
        times = {key: time_text(1e6 * value) for key, value in self.modelled.to_dict().items()}
        cycles = sum(unit.cycles() or 0 for unit in self.segments)
        return [
            "modelled, on the target:",
            f"LATENCY      is {times['latency_ms']}: {times['npu_ms']} NPU, {times['host_ms']} host, "
            f"{times['transfer_ms']} tensors, {times['switch_ms']} switches",
            f"NPU          takes {cycles:,} cycles in {counted(len(self.segments), 'segment')}",
        ]

    def _measured_lines(self, *, each_run: bool) -> list[str]:
        """Return lines about wall times of this machine. Times of the simulated NPU have a label."""
        measurement, times = self.measurement, self.measurement.execute_ms()
        runs = f"{counted(len(measurement.run_seconds), 'run')} after {measurement.warmup_runs}"
        runs += f", {len(self.samples.records)} samples one by one" if len(self.samples.records) > 1 else ""
        simulated = ", of the simulator and not of the NPU" if self.is_modelled else ""
        return [
            f"measured here, wall time of this machine{simulated} ({runs}):",
            *(f"run {number}: {1000 * s:.3f} ms" for number, s in enumerate(measurement.run_seconds) if each_run),
            f"MODEL_LOAD   takes {1000 * measurement.load_seconds:.3f} ms",
            f"PREPARE      takes {1000 * measurement.prepare_seconds:.3f} ms",
            f"{self._word.upper():<12} takes {times['mean']:.3f} ms",
            *(f"- {name.upper():<9}:  {times[name]:.3f} ms" for name in ("mean", "max", "min", "geomean")),
        ]

    def write_profile(self) -> None:
        """Write times by operator, counters of every segment, and memory, as JSON."""
        counters = {unit.step.name: unit.counters for unit in self.segments}
        document: dict[str, Any] = {
            "model": shown(self.arguments.model),
            "backend": self.arguments.backend,
            **self.measurement.profile(),
            "modelled": None if self.modelled is None else self.modelled.to_dict(),
            "segments": {name: found if found is None else dict(found) for name, found in counters.items()},
            "fallbacks": self.executor.fallbacks,
            "peak_activation_bytes": self.executor.prepare(self.shapes).peak_bytes,
        }
        self.arguments.files.write_json("profile", lambda: document)

    def write_trace(self) -> None:
        """Write a trace of the modelled inference, or of every timed run if nothing is modelled: one clock per file."""
        from odc_mlir.runtime.reporting.clocks import measured_trace, modelled_trace

        if self.modelled is None:
            document = measured_trace(self.measurement.events)
        else:
            inside = {unit.step.name: unit.trace for unit in self.segments if unit.trace}
            document = modelled_trace(self.modelled, inside)
        self.arguments.files.write_json("trace", lambda: document)

    def write_csv(self) -> None:
        """Write the file of :func:`csv_path`: a header line, and a line of times in milliseconds and of memory."""
        times, titles = self.measurement.execute_ms(), ("ModelLoad", "Prepare", "Execute", "Peak")
        row: dict[str, str | float | int] = {
            "Model": Path(self.arguments.model).resolve().name,
            "Backend": self.arguments.backend,
            "ModelLoad_Time": f"{1000 * self.measurement.load_seconds:.3f}",
            "Prepare_Time": f"{1000 * self.measurement.prepare_seconds:.3f}",
            **{f"{self._word}_Time_{key.capitalize()}": f"{times[key]:.3f}" for key in ("min", "max", "mean")},
        }
        if self.modelled is not None:
            row["Modelled_Latency"] = f"{self.modelled.latency_ms:.6f}"
        for kind in _KINDS:
            row |= {
                f"{title}_{kind}": self.memory.value(phase, kind) for phase, title in zip(_PHASES, titles, strict=True)
            }
        self.arguments.files.write("write_report", lambda: csv_text([row, row.values()]))


def describe_values(value: Array) -> str:
    """Format ``float32[1, 8] least -1 largest 2.5 mean 0.25``, with no numbers for empty or non-numeric tensors."""
    text = f"{value.dtype.name}[{', '.join(map(str, value.shape))}]"
    if not value.size or value.dtype.kind not in "biuf":
        return text
    return f"{text} least {value.min():g} largest {value.max():g} mean {value.mean(dtype=float):g}"


def telling(prog: str, records: Sequence[list[Array]], *, quiet: bool) -> Iterator[list[Array]]:
    """Yield ``records``. In long runs, tell on stderr how many are done."""
    last = time.monotonic()
    for done, record in enumerate(records):
        if not quiet and time.monotonic() - last > _TOLD_EVERY_SECONDS:
            last = time.monotonic()
            print(f"{prog}: {done} of {counted(len(records), 'sample')}", file=sys.stderr)
        yield record


def csv_path(model: str, backend: str) -> str:
    """Return ``odc-run-MODEL-BACKEND.csv``, a file in the current folder."""
    return f"odc-run-{Path(model).resolve().name}-{backend}.csv"
