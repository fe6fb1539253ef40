"""Decides between two runs what computes the next answer, and when to make something better."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from threading import RLock, Thread
from typing import Any

from odc_mlir.errors import CompileError, OdcError
from odc_mlir.formats.atomic import write_file
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.outputs import MODEL, ZIP, write_output
from odc_mlir.ops.spec import Trait
from odc_mlir.plugins.request import Preference
from odc_mlir.quantization.recorded import Shapes
from odc_mlir.runtime.auto.artefacts import Artefact, Artefacts, Result, is_still_true
from odc_mlir.runtime.auto.job import PHASES, Job, Step, key_of, model_file
from odc_mlir.runtime.auto.lane import Lane
from odc_mlir.runtime.auto.locks import file_lock
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.serving import Serving, Surroundings, open_artefact
from odc_mlir.runtime.auto.settings import IDLE_SECONDS, AutoSettings, Trigger
from odc_mlir.runtime.auto.status import AutoStatus, Fallback, Level, Phase
from odc_mlir.runtime.auto.supervisor import Ending, Supervisor
from odc_mlir.runtime.executor import Executor
from odc_mlir.runtime.graph import Graph

_log = logging.getLogger(__name__)

# Programs for this many sets of input shapes are kept in memory; another one replaces the longest unused.
SHAPES_KEPT = 4
_TIMES_ENOUGH = 4  # recording ends at so many times the runs that are needed
_IDLE_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Original:
    """The model as it was loaded: its executor, its bytes and how to identify it.

    ``path`` is a file that holds exactly the bytes with ``digest``, None where there is none; ``package`` is the
    nnpackage that it comes from.
    """

    executor: Executor
    digest: str
    path: Path | None
    read: Callable[[], bytes]
    package: Path | None = None

    @property
    def graph(self) -> Graph:
        """The model's graph."""
        return self.executor.graph


class AutoCompiler:
    """Compiling on the device for one session. All of it may be called from several threads.

    ``forbidden``: why it must not be done at all; ``save_to``: where the quantised model and the compiled one are to be
    copied, if anywhere; ``problem``: why what was made before cannot be used.
    """

    def __init__(
        self,
        original: Original,
        settings: AutoSettings,
        around: Surroundings,
        *,
        forbidden: str | None = None,
        save_to: Sequence[Path | None] = (None, None),
        problem: str | None = None,
    ) -> None:
        self.original = original
        self.settings = settings
        self.quantized = is_quantized(original.graph)
        self.recorder = RunRecorder(original.graph, original.digest, settings.records_file(original.digest))
        self._artefacts = Artefacts(settings.folder)
        self._around = around
        self._save_to = save_to
        self._problem = problem
        self._forbidden = forbidden or why_not(original.graph)
        self._lock = RLock()
        self._lanes: OrderedDict[Shapes, Lane] = OrderedDict()
        self._current: Lane | None = None
        self._last_run = time.monotonic()
        self._closed = False

    # Between runs.

    def open(self, shapes: Shapes) -> None:
        """Look for what is there for inputs of ``shapes``; with the trigger first-run also make it, and wait."""
        with self._lock:
            lane = self._lane(shapes)
            if self.settings.trigger is Trigger.FIRST_RUN and self._may_start(lane):
                self._start(lane)
            supervisor = lane.supervisor if self.settings.trigger is Trigger.FIRST_RUN else None
        if supervisor is not None:
            supervisor.join()

    def candidates(self, shapes: Shapes) -> Iterator[Serving | None]:
        """What may compute the next answer, best first; None, which is last, stands for the model itself."""
        lane = self._lane(shapes)
        with self._lock:
            self._current = lane
            self._last_run = time.monotonic()
            servings = list(lane.servings)
        yield from servings
        yield None

    def wants_records(self, shapes: Shapes) -> bool:
        """Whether runs of the model itself are to be recorded: not for ever, where nothing starts."""
        if self._lane(shapes).phase is not Phase.COLLECTING or self.quantized:
            return False
        return self.recorder.runs(shapes) < _TIMES_ENOUGH * self.settings.records

    def answered(self, shapes: Shapes, serving: Serving | None, failed: Sequence[tuple[Serving, OdcError]]) -> None:
        """An answer was given by ``serving`` (None: the model itself), after others had failed."""
        with self._lock:
            lane = self._lane(shapes)
            lane.served = Level.ORIGINAL if serving is None else serving.level
            for item, error in failed:
                _log.warning("%s: %s; going on without", item.level, error)
                lane.give_up(item, error.stage or "run", str(error))
            if self._may_start(lane) and self.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN):
                self._start(lane)

    def start(self) -> None:
        """Start now, for the shapes last run, if enough is recorded; errors are reasons in the status."""
        with self._lock:
            if self._current is not None and self._may_start(self._current):
                self._start(self._current)

    def retry(self) -> None:
        """Forget why it was rejected, for the shapes last run, and begin anew."""
        with self._lock:
            lane = self._current
            if lane is None or lane.phase is not Phase.REJECTED or self._forbidden:
                return
            if lane.key is not None:
                self._artefacts.discard(lane.key)
            lane.enter(Phase.FLOAT)
            lane.result = lane.artefact = lane.supervisor = None
            self._begin(lane)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing works in the background; whether that is so."""
        with self._lock:
            working = [lane.supervisor for lane in self._lanes.values() if lane.supervisor is not None]
        ended = [supervisor.join(seconds) for supervisor in working]
        return all(ended)

    def close(self) -> None:
        """Keep what was recorded. A process that is at work goes on: the next session finds what it makes."""
        with self._lock:
            self._closed = True
            self.recorder.flush()

    def stop(self) -> None:
        """The same, but end processes too."""
        self.close()
        with self._lock:
            working = [lane.supervisor for lane in self._lanes.values() if lane.supervisor is not None]
        for supervisor in working:
            supervisor.stop()

    def status(self) -> AutoStatus:
        """Where it stands for the shapes last run."""
        with self._lock:
            lane, settings = self._current, self.settings
            status = AutoStatus(
                enabled=True,
                records_needed=0 if self.quantized else settings.records,
                target=settings.target,
                scheme=settings.scheme,
                preference=settings.preference.name.lower(),
                trigger=str(settings.trigger),
            )
            if lane is None:
                status.phase = Phase.REJECTED if self._forbidden else Phase.FLOAT
                status.reason = self._forbidden
                return status
            status.phase, status.reason, status.key = lane.phase, lane.reason, lane.key
            status.serving = lane.served or lane.best
            status.records = self.recorder.runs(lane.shapes)
            status.progress = lane.progress(status.records, settings.records)
            status.shapes = [list(shape) for shape in lane.shapes]
            for name, value in lane.facts().items():
                setattr(status, name, value)
            status.fallbacks = lane.fallbacks + [found for item in lane.servings for found in item.failures()]
            if self.recorder.failure is not None:
                status.fallbacks.append(Fallback("records", "record", self.recorder.failure))
            return status

    # Lanes.

    def _lane(self, shapes: Shapes) -> Lane:
        with self._lock:
            lane = self._lanes.get(shapes)
            if lane is None:
                lane = self._lanes[shapes] = Lane(shapes)
                if self._problem is not None:
                    lane.fallbacks.append(Fallback("package", "load", self._problem))
                self._current = self._current or lane
                self._begin(lane)
                self._forget_lanes()
            else:
                self._lanes.move_to_end(shapes)
            return lane

    def _forget_lanes(self) -> None:
        idle = [shapes for shapes, lane in self._lanes.items() if not lane.is_working]
        while len(self._lanes) > SHAPES_KEPT and len(idle) > 1:
            del self._lanes[idle.pop(0)]

    def _begin(self, lane: Lane) -> None:
        """Take what is there already, else begin to collect, or to work where no records are needed."""
        if self._forbidden:
            lane.enter(Phase.REJECTED, self._forbidden)
            return
        try:
            lane.key = key_of(self.settings, self.original.digest, lane.shapes)
        except OdcError as error:
            lane.enter(Phase.REJECTED, str(error))
            return
        found, problem = self._artefacts.find(lane.key)
        if problem is not None:
            _log.warning("%s; it is made anew", problem)
            lane.fallbacks.append(Fallback("cache", "load", problem))
        if found is not None and (found.result.level is not None or self._is_refused(found.result)):
            self._take(lane, found)
            return
        self._borrow(lane)
        lane.enter(Phase.COLLECTING)
        starts = self.settings.trigger is Trigger.AFTER_RECORDS and self._needs_no_records(lane)
        if starts and self._may_start(lane):
            self._start(lane)
        if self.settings.trigger is Trigger.IDLE:
            Thread(target=self._watch_for_idleness, args=(lane,), name="odc-idle", daemon=True).start()

    def _is_refused(self, result: Result) -> bool:
        budget = {"seconds": self.settings.timeout_seconds, "bytes": float(self.settings.memory_bytes)}
        return result.level is None and is_still_true(result, budget)

    def _borrow(self, lane: Lane) -> None:
        """Until something is made for these shapes, the quantised model of others serves them on the host."""
        for other in reversed(self._lanes.values()):
            model = other.artefact.model if other.artefact is not None else None
            if other is not lane and other.servings and other.artefact is not None and model and model.is_file():
                borrowed = Artefact(other.artefact.folder, Result(str(Level.QUANTIZED)))
                lane.servings = open_artefact(borrowed, self.original.graph, lane.shapes, self._around).servings
                return

    def _base(self, lane: Lane) -> Artefact | None:
        """A result for other shapes, whose quantised model is to be compiled for these."""
        for other in reversed(self._lanes.values()):
            if other is not lane and other.artefact is not None and other.artefact.model.is_file():
                return other.artefact
        return None

    def _needs_no_records(self, lane: Lane) -> bool:
        return self.quantized or self._base(lane) is not None

    # Working.

    def _may_start(self, lane: Lane) -> bool:
        if lane.phase is not Phase.COLLECTING or self._closed:
            return False
        if any(other.is_working for other in self._lanes.values()):
            return False
        if self._base(lane) is not None and self.settings.preference is Preference.COMPILE_TIME_FIRST:
            return False  # the host serves other shapes well enough
        return self._needs_no_records(lane) or self.recorder.runs(lane.shapes) >= self.settings.records

    def _start(self, lane: Lane) -> None:
        """Start a process for ``lane``."""
        self.recorder.flush()
        base = self._base(lane)
        lane.enter(Phase.COMPILING if self._needs_no_records(lane) else Phase.QUANTIZING)
        if self.recorder.failure is not None and not self._needs_no_records(lane):
            lane.enter(Phase.REJECTED, self.recorder.failure)
            return
        try:
            job = self._job(lane, base)
        except OdcError as error:
            lane.enter(Phase.REJECTED, str(error))
            return
        lane.supervisor = Supervisor(
            job, lambda facts: self._heard(lane, facts), lambda ending: self._ended(lane, ending)
        )

    def _job(self, lane: Lane, base: Artefact | None) -> Job:
        settings, original = self.settings, self.original
        if base is not None:
            model, digest = base.model, content_digest(base.model)
        else:
            model, digest = self._model_path(), original.digest
        declared = [info.shape for info in original.graph.input_infos()]
        fixed = None if declared == list(lane.shapes) else [list(shape) for shape in lane.shapes]
        return Job(
            key=lane.key or "",
            folder=str(settings.folder),
            model=str(model.absolute()),
            digest=digest,
            records=str(self.recorder.path),
            quantized=self.quantized or base is not None,
            plugin=settings.plugin,
            machine=settings.machine,
            scheme=settings.scheme,
            metric=settings.metric,
            limit=settings.limit,
            preference=int(settings.preference),
            seconds=settings.timeout_seconds,
            memory_bytes=settings.memory_bytes,
            fixed_shapes=fixed,
            package=str(original.package.absolute()) if original.package is not None and fixed is None else None,
        )

    def _model_path(self) -> Path:
        """A file of the model; raises OdcError when there is none and none can be made."""
        if self.original.path is not None:
            return self.original.path
        path = model_file(self.settings.folder, self.original.digest)
        if not path.is_file():
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise CompileError(f"the cache cannot be written: {error.strerror}", location=str(path)) from None
            write_file(path, self.original.read())
        return path

    def _heard(self, lane: Lane, facts: dict[str, Any]) -> None:
        with self._lock:
            step = facts["step"]
            if step == Step.TARGET_ASKED:
                lane.scheme = str(facts["scheme"])
            if step == "not installed":
                lane.fallbacks.append(Fallback("package", "install", str(facts["reason"])))
            phase = PHASES.get(Step(step)) if step in set(Step) else None
            if phase is not None and lane.is_working:
                lane.enter(phase)

    def _ended(self, lane: Lane, ending: Ending) -> None:
        """The process has ended: in a thread of its supervisor."""
        try:
            self._conclude(lane, ending)
        except Exception as error:  # a background thread has nobody else to tell
            _log.exception("what was made cannot be used")
            with self._lock:
                lane.servings = []
                if lane.phase is not Phase.REJECTED:
                    lane.enter(Phase.REJECTED, f"{type(error).__name__}: {error}")

    def _conclude(self, lane: Lane, ending: Ending) -> None:
        key = lane.key or ""
        found, problem = self._artefacts.find(key)
        if found is None:
            reason = ending.problem or problem or "nothing was made"
            refusal = Result(None, reason, ending.kind, budget=self._job_budget(lane))
            self._clean(key, refusal)
            with self._lock:
                lane.enter(Phase.REJECTED, reason)
            return
        self._take(lane, found)
        self._save(found)

    def _job_budget(self, lane: Lane) -> dict[str, float]:
        return lane.supervisor.job.budget if lane.supervisor is not None else {}

    def _clean(self, key: str, refusal: Result | None) -> None:
        """Remove what a process left that did not end well, unless another one is at work; remember what took long."""
        try:
            with file_lock(self._artefacts.lock_path(key), seconds=0):
                self._artefacts.sweep(key)
                if refusal is not None and refusal.kind == "time":
                    self._artefacts.keep_refusal(key, refusal)
        except OdcError as error:
            _log.debug("not cleaned: %s", error)

    def _take(self, lane: Lane, found: Artefact) -> None:
        """Let a result serve: opened and, where inputs are known, proven, before anyone can see it."""
        result = found.result
        if result.level is None:
            with self._lock:
                lane.result = result
                lane.enter(Phase.REJECTED, result.reason)
            return
        self._artefacts.touch(lane.key or "")
        opened = open_artefact(found, self.original.graph, lane.shapes, self._around)
        fallbacks = list(opened.fallbacks)
        if result.level != Level.COMPILED and result.reason is not None:
            fallbacks.append(Fallback(str(Level.COMPILED), result.stage or "compile", result.reason))
        servings = []
        inputs = self.recorder.last_inputs
        fitting = inputs is not None and tuple(array.shape for array in inputs) == lane.shapes
        for serving in opened.servings:
            try:
                if inputs is not None and fitting and not serving.proven and not _casts(serving, self.original.graph):
                    serving.prove(inputs)
                servings.append(serving)
            except OdcError as error:
                fallbacks.append(Fallback(str(serving.level), error.stage or "run", str(error)))
        with self._lock:
            lane.artefact, lane.result = found, result
            lane.fallbacks += fallbacks
            lane.servings = servings
            if servings:
                lane.enter(Phase.ACTIVE, None if not fallbacks else fallbacks[-1].reason)
            else:
                lane.enter(Phase.REJECTED, fallbacks[-1].reason if fallbacks else "nothing was made")

    def _save(self, found: Artefact) -> None:
        """Copy what was made to where the user wants it too."""
        for source, target in zip((found.model, found.compiled), self._save_to, strict=True):
            if target is not None and source is not None and source.is_file():
                try:
                    write_output(target, source.read_bytes(), MODEL if source == found.model else ZIP)
                except OdcError as error:
                    _log.warning("%s", error)

    def _watch_for_idleness(self, lane: Lane) -> None:
        """Start when enough is recorded and nothing has been run for a while."""
        while not self._closed and lane.phase is Phase.COLLECTING:
            time.sleep(_IDLE_POLL_SECONDS)
            with self._lock:
                if time.monotonic() - self._last_run >= IDLE_SECONDS and self._may_start(lane):
                    self._start(lane)


def is_quantized(graph: Graph) -> bool:
    """Whether values that the graph computes are quantised."""
    computed = {index for item in graph.nodes for index in item.outputs}
    return any(graph.tensors[i].info.is_integer and graph.tensors[i].quant is not None for i in computed)


def why_not(graph: Graph) -> str | None:
    """Why a model must not be exchanged between two runs, None where it may."""
    if any(info.is_variable for info in graph.tensors):
        return "the model keeps state from run to run, which an exchange would lose"
    for item in graph.nodes:
        if Trait.STATEFUL in item.node.spec.traits:
            return f"{item.node.spec.name} {item.node.name!r} keeps state from run to run, which an exchange would lose"
    if not graph.nodes:
        return "the model computes nothing"
    return None


def _casts(serving: Serving, original: Graph) -> bool:
    """Whether inputs must be converted for it, so that recorded ones do not fit."""
    return any(
        ours.dtype != theirs.dtype
        for ours, theirs in zip(serving.executor.graph.input_infos(), original.input_infos(), strict=True)
    )
