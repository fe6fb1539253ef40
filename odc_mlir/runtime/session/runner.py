"""Runs of a session: buffers, background runs, and measurements."""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING, Any

import numpy as np

from odc_mlir.errors import InputError, InsufficientOutputError, SessionError
from odc_mlir.formats import kinds
from odc_mlir.formats.cache import cache_folder, records_path
from odc_mlir.formats.outputs import write_output
from odc_mlir.ops.spec import Array, Shape
from odc_mlir.runtime.execution.binding import by_position, check_holds, conversion
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.units import DirectRun, Event, Watcher
from odc_mlir.runtime.reporting.clocks import LatencyProfile, measured_trace
from odc_mlir.runtime.session.loader import INTERNAL_OUTPUTS, Loader
from odc_mlir.runtime.session.states import State
from odc_mlir.runtime.session.tensors import SessionPort, check_choice, port_at

if TYPE_CHECKING:
    from odc_mlir.runtime.auto.recording import RunRecorder


MINMAX, TRACE, PROFILE = EXECUTE_CONFIGS = ("DUMP_MINMAX", "TRACE", "PROFILE")
_WRITE_FILES = (MINMAX, TRACE)
_SETTINGS = {"MINMAX_DUMP": MINMAX, "TRACING_MODE": TRACE, "PROFILING_MODE": PROFILE}
TRACE_FILE, PROFILE_FILE = "trace.json", "profile.json"


class SessionRecorder:
    """Recorder that runs executors and writes measurements to the workspace, and ranges to the cache."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._configs: set[str] = set()
        self._timed = self.is_measuring = False
        self._measurement = LatencyProfile()
        self._runs: RunRecorder | None = None
        self._shared: RunRecorder | None = None

    # Requested measurements.

    @contextmanager
    def preparing(self) -> Iterator[None]:
        """Measure the time of the session's preparation, then apply the session's settings about measurements."""
        start = time.perf_counter()
        yield
        self._measurement.prepare_seconds = time.perf_counter() - start
        settings = self._loader.settings
        found = {config for key, config in _SETTINGS.items() if settings.flag(key)}
        _check_places(found)
        self._choose(self._configs | found | ({PROFILE} & self._loader.prepare_configs))

    def add(self, config: str | int) -> None:
        """Start a kind of measurement. Raise OptionError, or SessionError if there is no folder for the file."""
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
        self._configs, self.is_measuring = configs, bool(configs)
        self._timed = bool({TRACE, PROFILE} & configs)

    # Files.

    def save_trace(self, path: str | os.PathLike[str] | None) -> Path:
        """Write the traced runs and return the path."""
        return self._save(measured_trace(self._measurement.events), path, TRACE_FILE, kinds.TRACE)

    def save_profile(self, path: str | os.PathLike[str] | None) -> Path:
        """Write the mean time of each operator and return the path."""
        return self._save(self._measurement.profile(), path, PROFILE_FILE, kinds.PROFILE)

    def _save(self, document: object, path: str | os.PathLike[str] | None, name: str, kind: kinds.OutputKind) -> Path:
        place = self._loader.workspace_file(name) if path is None else Path(path)
        write_output(place, (json.dumps(document, indent=1) + "\n").encode(), kind)
        return place

    def write_measurements(self) -> None:
        """Write requested measurements to the workspace, and discard the measurements."""
        if TRACE in self._configs and self._measurement.events:
            self.save_trace(None)
        if PROFILE in self._configs and self._measurement.events:
            self.save_profile(None)
        self._measurement.events, self._measurement.run_seconds = [], []

    # Ranges.

    def share(self, runs: RunRecorder | None) -> None:
        """Record ranges with the shared recorder ``runs``. None: create a separate recorder on demand."""
        self.flush()
        self._runs = self._shared = runs

    def flush(self) -> None:
        """Write recorded ranges to the cache."""
        if self._runs is not None:
            self._runs.flush()

    def forget_ranges(self) -> None:
        """Delete the records of the model. Raises SessionError if there are none."""
        from odc_mlir.calibration.records import RecordStore

        self._runs = self._shared
        path = records_path(self._loader.digest)
        if not path.exists():
            raise SessionError("there are no records of this model", hint="record runs with set_execute_config")
        RecordStore.discard(path)

    def _ranges(self, executor: Executor) -> RunRecorder:
        if self._runs is None:
            from odc_mlir.runtime.auto.recording import RecordsLocation, RunRecorder

            path = records_path(self._loader.digest)
            location = RecordsLocation(self._loader.digest, path, path.parent)
            self._runs = RunRecorder(executor.graph, lambda: location)
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
        """Run ``executor`` and return the outputs. Raises the executor's errors.

        Runs of the original model are recorded if ``wanted`` or if the user requested ranges. ``watch`` receives the
        tensors that any other model computes.
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
    if MINMAX in configs:
        cache_folder()


Compute = Callable[[list[Array]], list[Array]]
"""Function that computes the model's outputs from its inputs, both in the user's element types."""


class Runner:
    """Buffers of a model, and runs with ``compute``. ``direct`` returns a quicker function or None."""

    def __init__(self, loader: Loader, compute: Compute, direct: Callable[[], DirectRun | None] = lambda: None) -> None:
        self._loader = loader
        self._compute, self._direct = compute, direct
        self._in_buffers: dict[int, Array] = {}
        self._given: Sequence[Array] = ()  # the last inputs, not yet in ``_in_buffers``
        self._out_buffers: dict[int, Array] = {}
        self._results: Sequence[Array] = ()
        self._has_run = False
        self._direct_shapes: dict[int, tuple[int, ...]] | None = None  # the loader's shapes when ``direct`` fitted last
        self._plain: list[tuple[np.dtype[Any], Shape | None]] | None = None
        self._background: _Background | None = None

    # Buffers.

    def _buffers(self) -> dict[int, Array]:
        if self._given:
            self._in_buffers, self._given = dict(enumerate(self._given)), ()
        return self._in_buffers

    def set_input(self, index: int, buffer: Any) -> None:
        """Set the array that the next runs read for an input. None removes the array."""
        port = port_at(self._loader.inputs, index, "input")
        if buffer is None:
            self._buffers().pop(int(index), None)
        else:
            self._buffers()[int(index)] = port.check(buffer, f"buffer of input {index}")

    def set_inputs(self, size: int, values: Sequence[Any]) -> None:
        """Set the first ``size`` inputs: first to ``values``, the rest to zeros."""
        loader = self._loader
        for index in range(size):
            port = port_at(loader.inputs, index, "input")
            if index < len(values):
                self._buffers()[index] = converted(port, values[index], index)
                continue
            shape = loader.input_shapes.get(index, port.static_shape)
            if shape is None:
                raise InputError(f"input {index} is omitted, but its shape is unknown", tensor=port.info.name)
            self._buffers()[index] = np.zeros([dim or 0 for dim in port.outer_shape(shape)], port.numpy)

    def set_output(self, index: int, buffer: Any) -> None:
        """Set the array that runs write an output to. None removes the array."""
        port = port_at(self._loader.outputs, index, "output")
        if buffer is None:
            self._out_buffers.pop(int(index), None)
            return
        if not isinstance(buffer, np.ndarray) or not buffer.flags.writeable or not buffer.flags.c_contiguous:
            raise InputError(
                f"the buffer of output {index} must be a contiguous, writable array", tensor=port.info.name
            )
        self._out_buffers[int(index)] = port.check(buffer, f"buffer of output {index}")

    def converted(self, values: Any) -> list[Array]:
        """Return ``values``, one per input, as arrays of the model's element types. Raises InputError."""
        ports = self._loader.inputs
        values = by_position([port.info for port in ports], values)
        return list(map(converted, ports, values, range(len(ports))))

    def output(self, index: int) -> Array:
        """Return an output of the last run. Raises SessionError if the run did not keep it."""
        port = port_at(self._loader.outputs, index, "output")
        if index not in self._out_buffers and INTERNAL_OUTPUTS not in self._loader.prepare_configs:
            hint = f"set one with set_output, or set_prepare_config({INTERNAL_OUTPUTS!r}) before prepare"
            raise SessionError("the output has no buffer", tensor=port.info.name, hint=hint)
        return self._results[index]

    @property
    def results(self) -> list[Array]:
        """The outputs of the last run, read-only."""
        return list(self._results)

    @property
    def output_shapes(self) -> list[Shape | None] | None:
        """The output shapes of the last run, in the model's layout, or None before the first run."""
        if not self._has_run:
            return None
        ports = self._loader.outputs
        return [port.inner_shape(value.shape) for port, value in zip(ports, self._results, strict=True)]

    # Runs.

    def infer(self, values: Any) -> list[Array] | None:
        """Run on ``values`` and return the outputs, or return None if a conversion is necessary.

        This is the fast path of most runs: arrays have the model's types and shapes. Buffers and layouts are unset.
        """
        loader, plain = self._loader, self._plain
        if plain is None:
            ports = loader.inputs if all(port.is_plain for port in (*loader.inputs, *loader.outputs)) else []
            plain = self._plain = [(port.numpy, port.static_shape) for port in ports]
        if self._out_buffers or type(values) is not list or len(values) != len(plain) or not plain:
            return None
        shapes, direct = loader.input_shapes, self._direct()
        results = direct(values) if direct is not None and shapes is self._direct_shapes else None
        if results is None:
            for index, (value, (dtype, shape)) in enumerate(zip(values, plain, strict=True)):
                wanted = shapes.get(index, shape) if shapes else shape
                if type(value) is not np.ndarray or value.dtype != dtype or value.shape != wanted:
                    return None
            results = None if direct is None else direct(values)
            self._direct_shapes = None if results is None else shapes
            results = self._compute(values) if results is None else results
        self._given, self._results = tuple(values), tuple(results)
        self._has_run = True
        for value in results:
            value.setflags(False)  # type: ignore[call-arg]  # a keyword argument takes twice the time
        return results

    def compute(self, arrays: Sequence[Array] | None = None) -> list[Array]:
        """Run once and return the outputs. ``arrays`` replace the inputs set so far. Raise OdcError."""
        if arrays is not None:
            self._given = arrays
        self._check_output_buffers()
        return self._compute(self._gather())

    def start(self, before: State) -> None:
        """Start a run in a thread. :meth:`wait` reports ``before``, the state to restore."""
        self._check_output_buffers()
        arrays = self._gather()  # here, so that the caller gets errors about buffers
        self._background = _Background(lambda: self._compute(arrays), before)

    def wait(self) -> _Background:
        """Wait for the run in the background and return it. Raises SessionError if there is none."""
        background, self._background = self._background, None
        if background is None:
            raise SessionError("nothing is running")
        background.join()
        return background

    def join(self) -> None:
        """Wait for the end of a run in the background, and drop outputs and error."""
        if self._background is not None:
            self._background.join()
            self._background = None

    def _gather(self) -> list[Array]:
        shapes = self._loader.input_shapes
        arrays = []
        for index, port in enumerate(self._loader.inputs):
            buffer = self._buffers().get(index)
            if buffer is None:
                raise InputError(f"input {index} has no buffer", tensor=port.info.name, hint="set one with set_input")
            arrays.append(port.take(buffer, shapes.get(index, port.static_shape)))
        return arrays

    def _check_output_buffers(self) -> None:
        loader = self._loader
        for index, buffer in self._out_buffers.items():
            shape = loader.output_shapes[index]
            if shape is not None and None not in shape and not loader.input_shapes:
                _check_room(loader.outputs[index], buffer, math.prod(dim or 0 for dim in shape), SessionError)

    def deliver(self, outputs: list[Array]) -> None:
        """Keep the outputs of a run, and copy the outputs to the user's buffers."""
        ports = self._loader.outputs
        values = [port.give(value) for port, value in zip(ports, outputs, strict=True)]
        for index, buffer in self._out_buffers.items():
            value = values[index]
            _check_room(ports[index], buffer, value.size, InsufficientOutputError)
            place = buffer.reshape(-1)[: value.size].reshape(value.shape)
            place[...] = value
            values[index] = place
        self._results = [np.asarray(value).view() for value in values]
        for view in self._results:
            view.flags.writeable = False
        self._has_run = True


class _Background:
    def __init__(self, run: Callable[[], list[Array]], before: State) -> None:
        self.before = before
        self.error: BaseException | None = None
        self.outputs: list[Array] = []
        self._run = run
        self._process, self._has_ended = os.getpid(), False
        self._thread = Thread(target=self._work, name="odc-session-run", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            self.outputs = self._run()
        except BaseException as error:  # raised by wait, in the caller's thread
            self.error = error
        self._has_ended = True

    def join(self) -> None:
        """Wait for the end of the run. A forked child has no such thread and computes the run now."""
        if self._process == os.getpid():
            self._thread.join()
        elif not self._has_ended:
            self._work()


def converted(port: SessionPort, value: Any, index: int) -> Array:
    """Return ``value`` as an array of the port's element type. Raises InputError if values would change."""
    if isinstance(value, np.ndarray) and value.dtype == port.numpy:
        return value
    array = np.asarray(value)
    if port.dtype == "string" or not np.can_cast(array.dtype, port.numpy, "same_kind"):
        return port.check(array, f"input {index}")
    codes, is_integer = port.numpy.kind != "f" and port.info.quant is not None, array.dtype.kind in "iu"
    if is_integer and port.numpy.kind in "iu":
        check_holds(port.info, array, f"input {index}", conversion(port.info, array) if codes else None)
    may_be_pixels = array.dtype == np.uint8 if codes else port.numpy.kind == "f"
    if isinstance(value, np.ndarray) and is_integer and may_be_pixels:
        warnings.warn(
            f"input {index} ({port.info.name!r}) takes {port.dtype}, the array has {array.dtype.name}, used unscaled; "
            f"scale pixels and decode codes first, or convert with astype({port.numpy.name!r})",
            stacklevel=5,
        )
    return array.astype(port.numpy)


def _check_room(port: SessionPort, buffer: Array, needed: int, error: type[SessionError]) -> None:
    if buffer.size < needed:
        raise error(f"the buffer holds {buffer.size} elements, the output has {needed}", tensor=port.info.name)
