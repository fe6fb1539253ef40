"""Measurements of a session's runs: times of operators, traces for trace viewers, and ranges of tensors."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from odc_mlir.errors import SessionError
from odc_mlir.formats import kinds
from odc_mlir.formats.cache import cache_folder, records_path
from odc_mlir.formats.outputs import write_output
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.units import Event, Watcher
from odc_mlir.runtime.reporting.profile import LatencyProfile, trace_events
from odc_mlir.runtime.session.loader import Loader
from odc_mlir.runtime.session.tensors import check_choice

if TYPE_CHECKING:  # imported when something is recorded
    from odc_mlir.runtime.auto.recording import RunRecorder

MINMAX, TRACE, PROFILE = EXECUTE_CONFIGS = ("DUMP_MINMAX", "TRACE", "PROFILE")
_WRITE_FILES = (MINMAX, TRACE)
_SETTINGS = {"MINMAX_DUMP": MINMAX, "TRACING_MODE": TRACE, "PROFILING_MODE": PROFILE}
TRACE_FILE, PROFILE_FILE = "trace.json", "profile.json"


class SessionRecorder:
    """Runs executors and keeps the requested measurements, in the loader's workspace and in the cache."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._configs: set[str] = set()
        self._timed = False
        self._measurement = LatencyProfile()
        self._runs: RunRecorder | None = None
        self._shared: RunRecorder | None = None

    # What is to be kept.

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Measure the preparation of the session, then follow its settings."""
        start = time.perf_counter()
        yield
        self._measurement.prepare_seconds = time.perf_counter() - start
        settings = self._loader.settings
        found = {config for key, config in _SETTINGS.items() if settings.flag(key)}
        _check_places(found)
        self._choose(self._configs | found | ({PROFILE} & self._loader.prepare_configs))

    def add(self, config: str | int) -> None:
        """Start a kind of measurement; raise OptionError, and SessionError if there is no folder for its file."""
        name = check_choice("execute config", config, EXECUTE_CONFIGS)
        if name in _WRITE_FILES and not self._loader.workspace:
            raise SessionError(f"{name} writes to the workspace, which is empty", hint="name one with set_workspace")
        _check_places({name})
        self._choose(self._configs | {name})

    def reset(self) -> None:
        """Write measurements to the workspace and stop measuring."""
        self.write_measurements()
        self._choose(set())

    def _choose(self, configs: set[str]) -> None:
        self._configs = configs
        self._timed = bool({TRACE, PROFILE} & configs)

    # Files.

    def save_trace(self, path: str | os.PathLike[str] | None) -> Path:
        """Write the traced runs and return the path."""
        return self._save(trace_events(self._measurement.events), path, TRACE_FILE, kinds.TRACE)

    def save_profile(self, path: str | os.PathLike[str] | None) -> Path:
        """Write the mean time of each operator and return the path."""
        return self._save(self._measurement.profile(), path, PROFILE_FILE, kinds.PROFILE)

    def _save(self, document: object, path: str | os.PathLike[str] | None, name: str, kind: kinds.OutputKind) -> Path:
        place = self._loader.workspace_file(name) if path is None else Path(path)
        write_output(place, (json.dumps(document, indent=1) + "\n").encode(), kind)
        return place

    def write_measurements(self) -> None:
        """Write requested measurements to the workspace and start over."""
        if TRACE in self._configs and self._measurement.events:
            self.save_trace(None)
        if PROFILE in self._configs and self._measurement.events:
            self.save_profile(None)
        self._measurement.events, self._measurement.run_seconds = [], []

    # Ranges.

    def share(self, runs: RunRecorder | None) -> None:
        """Record ranges with ``runs``, which others use as well; None: with an own recorder, made when needed."""
        self.flush()
        self._runs = self._shared = runs

    def flush(self) -> None:
        """Write recorded ranges to the cache."""
        if self._runs is not None:
            self._runs.flush()

    def forget_ranges(self) -> None:
        """Delete the records of the model; raise SessionError if there are none."""
        from odc_mlir.calibration.records import RecordStore

        self._runs = self._shared
        path = records_path(self._loader.digest)
        if not path.exists():
            raise SessionError("there are no records of this model", hint="record runs with set_execute_config")
        RecordStore.discard(path)

    def _ranges(self, executor: Executor) -> RunRecorder:
        if self._runs is None:
            from odc_mlir.runtime.auto.recording import RecordsPlace, RunRecorder

            path = records_path(self._loader.digest)
            place = RecordsPlace(self._loader.digest, path, path.parent)
            self._runs = RunRecorder(executor.graph, lambda: place)
        self._runs.keeps_all = MINMAX in self._configs
        return self._runs

    # Runs.

    def run(
        self,
        executor: Executor,
        arrays: list[Array],
        *,
        is_original: bool,
        wanted: bool = False,
        watch: Watcher | None = None,
    ) -> list[Array]:
        """Run ``executor`` and return its outputs; raise the executor's errors.

        Ranges are recorded for the model itself only, if they are requested or ``wanted``. ``watch`` sees the tensors
        that another model computes.
        """
        recorded = is_original and (wanted or MINMAX in self._configs)
        if not self._timed:
            return self._ranges(executor).run(executor, arrays) if recorded else executor.run(arrays, watch=watch)
        events: list[Event] = []
        start = time.perf_counter()
        if recorded:
            outputs = self._ranges(executor).run(executor, arrays, events.append)
        else:
            outputs = executor.run(arrays, observe=events.append, watch=watch)
        self._measurement.run_seconds.append(time.perf_counter() - start)
        self._measurement.events += events
        return outputs


def _check_places(configs: set[str]) -> None:
    """Raise OptionError if ranges are requested and there is no cache folder."""
    if MINMAX in configs:
        cache_folder()
