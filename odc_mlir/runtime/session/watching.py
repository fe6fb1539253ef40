"""Calls that watch runs: how long each operator takes, a trace for trace viewers, and records of values."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from odc_mlir.errors import SessionError
from odc_mlir.formats.atomic import write_file
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.profile import Measurement, trace_events
from odc_mlir.runtime.session.core import call
from odc_mlir.runtime.session.running import RunningCalls
from odc_mlir.runtime.session.tensors import check_choice
from odc_mlir.runtime.units import Event, Observer

MINMAX, TRACE, PROFILE = EXECUTE_CONFIGS = ("DUMP_MINMAX", "TRACE", "PROFILE")
_WRITE_FILES = (MINMAX, TRACE)
_SETTINGS = {"MINMAX_DUMP": MINMAX, "TRACING_MODE": TRACE, "PROFILING_MODE": PROFILE}
TRACE_FILE, PROFILE_FILE = "trace.json", "profile.json"


class WatchingCalls(RunningCalls):
    """Watches what :class:`RunningCalls` runs."""

    def _forget_model(self) -> None:
        super()._forget_model()
        self._execute_configs: set[str] = set()
        self._measurement = Measurement()

    def _prepare(self) -> None:
        start = time.perf_counter()
        super()._prepare()
        self._measurement.prepare_seconds = time.perf_counter() - start
        self._execute_configs |= {config for key, config in _SETTINGS.items() if self._settings.flag(key)}
        if "PROFILE" in self._prepare_configs:
            self._execute_configs.add(PROFILE)

    @call
    def set_execute_config(self, config: str | int, value: str = "") -> None:
        """``DUMP_MINMAX`` records ranges of all tensors, ``TRACE`` and ``PROFILE`` how long each operator takes."""
        name = check_choice("execute config", config, EXECUTE_CONFIGS)
        if name in _WRITE_FILES and not self.workspace:
            raise SessionError(f"{name} writes to the workspace, which is empty", hint="name one with set_workspace")
        self._execute_configs.add(name)

    @call
    def reset_execute_config(self) -> None:
        """Take back every set_execute_config; a trace or profile that was being made is written to the workspace."""
        self._write_measurements()
        self._execute_configs.clear()

    @call
    def save_trace(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the runs traced so far in the trace-event format; the default is trace.json in the workspace."""
        return self._save(trace_events(self._measurement.events, {}), path, TRACE_FILE)

    @call
    def save_profile(self, path: str | os.PathLike[str] | None = None) -> Path:
        """Write the mean time of each operator as JSON; the default is profile.json in the workspace."""
        return self._save(self._measurement.profile(), path, PROFILE_FILE)

    def _save(self, document: object, path: str | os.PathLike[str] | None, name: str) -> Path:
        place = self._workspace_file(name) if path is None else Path(path)
        write_file(place, (json.dumps(document, indent=1) + "\n").encode())
        return place

    def _write_measurements(self) -> None:
        if TRACE in self._execute_configs and self._measurement.events:
            self._save(trace_events(self._measurement.events, {}), None, TRACE_FILE)
        if PROFILE in self._execute_configs and self._measurement.events:
            self._save(self._measurement.profile(), None, PROFILE_FILE)
        self._measurement.events, self._measurement.run_seconds = [], []

    def _run_executor(self, executor: Executor, arrays: list[Array]) -> list[Array]:
        timed = TRACE in self._execute_configs or PROFILE in self._execute_configs
        if not timed:
            return self._run_observed(executor, arrays, None)
        events: list[Event] = []
        start = time.perf_counter()
        outputs = self._run_observed(executor, arrays, events.append)
        self._measurement.run_seconds.append(time.perf_counter() - start)
        self._measurement.events += events
        return outputs

    def _run_observed(self, executor: Executor, arrays: list[Array], observe: Observer | None) -> list[Array]:
        return executor.run(arrays, observe=observe)
