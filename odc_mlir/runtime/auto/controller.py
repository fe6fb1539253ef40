"""Decides between two runs what computes the next answer, and when to make something better."""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Condition, RLock, Thread
from typing import Any

from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.auto.artefacts import PASSING, Artefact, Artefacts, Result, retry_seconds, seconds_left
from odc_mlir.runtime.auto.background import Background, poll, weakly
from odc_mlir.runtime.auto.job import PHASES, TIMES_ENOUGH, Job, Step, key_of, make_job, target_facts
from odc_mlir.runtime.auto.lane import Lane
from odc_mlir.runtime.auto.original import Original, is_quantized, why_not
from odc_mlir.runtime.auto.proving import prove
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.serving import Serving, Surroundings, open_artefact
from odc_mlir.runtime.auto.settings import IDLE_SECONDS, AutoSettings, Trigger
from odc_mlir.runtime.auto.status import NEXT, AutoStatus, Fallback, Level, Phase
from odc_mlir.runtime.auto.supervisor import Ending, Supervisor
from odc_mlir.runtime.auto.watch import Terms, Watch
from odc_mlir.runtime.auto.withdrawal import withdraw

_log = logging.getLogger(__name__)

# Programs for this many sets of input shapes are kept in memory; another one replaces the longest unused.
SHAPES_KEPT = 16
_IDLE_POLL_SECONDS = 0.1
# What failed and may pass is not tried again earlier in the same process, and then less and less often.
_RETRY_SECONDS = 30.0


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
        save_to: tuple[Path | None, Path | None] = (None, None),
        problem: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.original = original
        self.settings = settings
        self.quantized = is_quantized(original.graph)
        records = settings.records_file(original.digest)
        self.recorder = RunRecorder(
            original.graph, original.digest, records, settings.folder, cache_bytes=settings.cache_bytes
        )
        self._artefacts = Artefacts(settings.folder)
        self._around = around
        self._save_to = save_to
        self._problem = problem
        self._notes = list(notes)
        self._budget = {"seconds": settings.timeout_seconds, "bytes": float(settings.memory_bytes)}
        self._forbidden = forbidden or why_not(original.graph)
        self._target: list[str] = []
        if self._forbidden is None:
            try:
                self._target = target_facts(settings.plugin, settings.machine)
            except OdcError as error:
                self._forbidden = str(error)
        self._lanes: OrderedDict[Shapes, Lane] = OrderedDict()
        self._current: Lane | None = None
        # A result whose quantised model serves other shapes too, and what runs it.
        self._base: Artefact | None = None
        self._base_serving: Serving | None = None
        self._last_run = time.monotonic()
        self._closed = False
        self._background = Background("odc-auto")
        self._begin_process()
        # What was recorded is kept too when nobody closes the session.
        weakref.finalize(self, self.recorder.hand_over)

    def _begin_process(self) -> None:
        """What belongs to one process: at first, and in a child of it, which has none of its threads."""
        self._process = os.getpid()
        self._lock = RLock()
        self._changed = Condition(self._lock)
        self._idler: Thread | None = None
        self._background.begin()

    def _check_process(self) -> None:
        if self._process == os.getpid():
            return
        self._begin_process()
        for lane in self._lanes.values():
            if lane.is_busy:  # for the process before; here it begins anew, and finds what that makes
                lane.abandon()

    # Between runs.

    def open(self, shapes: Shapes, *, in_run: bool = False) -> None:
        """Look for what is there for inputs of ``shapes``; with the trigger first-run also make it, and wait.

        ``in_run``: what takes long to open is opened in the background.
        """
        self._check_process()
        with self._changed:
            lane = self._lane(shapes, may_wait=not in_run)
            if self.settings.trigger is not Trigger.FIRST_RUN:
                return
            if self._may_start(lane):
                self._start(lane)
        self.wait()

    def candidates(self, inputs: Sequence[Array]) -> Iterator[Serving | None]:
        """What may compute the answer for ``inputs``, best first; None, which is last, stands for the model itself."""
        self._check_process()
        with self._lock:
            lane = self._current = self._lane(shapes_of(inputs))
            self._last_run = time.monotonic()
            servings, watch = list(lane.servings), lane.watch
        if servings and (watch is None or watch.admits(servings[0].executor, inputs)):
            yield from servings
        yield None

    @property
    def watch(self) -> Watch | None:
        """What watches the answers for the inputs of the last call of :meth:`candidates`."""
        return None if self._current is None else self._current.watch

    def prove(self, shapes: Shapes, serving: Serving, inputs: Sequence[Array]) -> None:
        """Prove ``serving`` by these inputs, in the background: until then it does not answer."""
        with self._lock:
            prove(self._lane(shapes), serving, inputs, self._background, self._changed)

    def wants_records(self, shapes: Shapes) -> bool:
        """Whether runs of the model itself are to be recorded: not for ever, where nothing starts."""
        if self._lane(shapes).phase is not Phase.COLLECTING or self.quantized:
            return False
        most = max(TIMES_ENOUGH * self.settings.records, self._lane(shapes).records_needed)
        return self.recorder.runs(shapes) < most

    def answered(
        self,
        shapes: Shapes,
        serving: Serving | None,
        failed: Sequence[tuple[Serving, OdcError]],
        inputs: Callable[[], Sequence[Array]] | None = None,
    ) -> None:
        """An answer was given by ``serving`` (None: the model itself) to ``inputs``, after others had failed."""
        with self._lock:
            lane = self._lane(shapes)
            if lane.sample is None and inputs is not None:
                lane.keep_sample(inputs())
            lane.served = Level.ORIGINAL if serving is None else serving.level
            for item, error in failed:
                _log.warning("%s: %s; going on without", item.level, error)
                if self._base_serving is not None and item.executor is self._base_serving.executor:
                    self._base_serving = None
                lane.give_up(item, error.stage or "run", str(error))
            if lane.is_due:
                self._try_again(lane)
            refused = None if self._needs_no_records(lane) else self.recorder.refused
            if lane.phase is Phase.COLLECTING and refused is not None:
                lane.enter(Phase.REJECTED, refused)
            elif self.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN) and self._may_start(lane):
                self._start(lane)

    def start(self) -> None:
        """Start now, for the shapes last run, if enough is recorded; errors are reasons in the status."""
        self._check_process()
        with self._lock:
            if self._current is not None and self._may_start(self._current):
                self._start(self._current)

    def retry(self) -> None:
        """Forget what became of the shapes last run, and begin anew; what there is serves until then.

        Nothing happens while a process works on them.
        """
        self._check_process()
        with self._lock:
            lane = self._current
            if lane is None or lane.is_busy or self._forbidden or self._closed:
                return
            lane.attempts, lane.retry_at = 0, None
            if lane.phase is Phase.ACTIVE and lane.best is Level.QUANTIZED and lane.artefact is not None:
                self._start(lane, again=True)
                return
            if lane.key is not None:
                self._artefacts.discard(lane.key)
            if self._base is not None and self._base.folder.name == lane.key:
                self._base = None
            lane.result = lane.artefact = None
            lane.enter(Phase.FLOAT)
            self._begin(lane)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing works in the background; whether that is so."""
        self._check_process()
        with self._changed:
            watches = [lane.watch for lane in self._lanes.values() if lane.watch is not None]
        shadows = [watch.join(seconds) for watch in watches]  # which may find that there is more to do
        with self._changed:
            idle = self._changed.wait_for(lambda: not any(lane.is_busy for lane in self._lanes.values()), seconds)
        return idle and all(shadows) and self._background.wait(seconds)

    def close(self) -> None:
        """Keep what was recorded. A process that is at work goes on: the next session finds what it makes."""
        self._check_process()
        self._closed = True
        self.recorder.finish()

    def stop(self) -> None:
        """The same, but end processes too."""
        self.close()
        with self._lock:
            working = [lane.supervisor for lane in self._lanes.values() if lane.supervisor is not None]
        for supervisor in working:
            supervisor.stop()

    def status(self) -> AutoStatus:
        """Where it stands for the shapes last run."""
        self._check_process()
        with self._lock:
            lane = self._current
            status = AutoStatus(
                enabled=True,
                records_needed=0 if self.quantized else self._records_needed(lane),
                **self.settings.told,
                notes=list(self._notes),
            )
            if lane is None:
                status.phase = Phase.REJECTED if self._forbidden else Phase.FLOAT
                status.reason = self._forbidden
                return status
            lane.describe(status, self.recorder.runs(lane.shapes))
            if self.recorder.failure is not None:
                status.fallbacks.append(Fallback("records", "record", self.recorder.failure))
            return status

    # Lanes.

    def _lane(self, shapes: Shapes, *, may_wait: bool = False) -> Lane:
        with self._lock:
            lane = self._lanes.get(shapes)
            if lane is None:
                lane = self._lanes[shapes] = Lane(shapes)
                if self._problem is not None:
                    lane.fallbacks.append(Fallback("package", "load", self._problem))
                self._current = self._current or lane
                self._begin(lane, may_wait=may_wait)
                self._forget_lanes()
            else:
                self._lanes.move_to_end(shapes)
            return lane

    def _forget_lanes(self) -> None:
        idle = [shapes for shapes, lane in self._lanes.items() if not lane.is_busy]
        while len(self._lanes) > SHAPES_KEPT and len(idle) > 1:
            del self._lanes[idle.pop(0)]

    def _begin(self, lane: Lane, *, may_wait: bool = False) -> None:
        """Take what is there already, else begin to collect, or to work where no records are needed.

        A result takes long to open, so a run, which may not wait, goes on with what serves other shapes.
        """
        if self._forbidden:
            lane.enter(Phase.REJECTED, self._forbidden)
            return
        lane.key = key_of(self.settings, self.original.digest, lane.shapes, self._target)
        if may_wait or not self._artefacts.has_files(lane.key):
            self._load(lane)
            return
        self._borrow(lane)
        lane.is_loading = True
        if not self._background.submit(lambda: self._load(lane)):
            lane.is_loading = False

    def _load(self, lane: Lane) -> None:
        """Take what is there for ``lane``, else begin to collect."""
        try:
            found, problem = self._artefacts.find(lane.key or "")
            if problem is not None:
                _log.warning("%s; it is made anew", problem)
                with self._lock:
                    lane.fallbacks.append(Fallback("cache", "load", problem))
            if found is None:
                self._collect(lane)
                return
            if found.result.waits_for_records and not self._needs_no_records(lane):
                with self._lock:
                    lane.wait_for_records(found.result)
                self._collect(lane)
                return
            seconds = seconds_left(found.result, self._budget, time.time())
            if found.result.level is None and seconds == 0:
                self._collect(lane)
                lane.attempts = found.result.attempts
                return
            self._take(lane, found)
            if seconds is not None:
                lane.postpone(found.result.attempts, seconds)
        finally:
            with self._changed:
                lane.is_loading = False
                self._changed.notify_all()

    def _collect(self, lane: Lane) -> None:
        with self._lock:
            lane.outdated = None
            if not lane.servings:
                self._borrow(lane)
            lane.enter(Phase.COLLECTING, lane.reason)
            starts = self.settings.trigger is Trigger.AFTER_RECORDS and self._needs_no_records(lane)
            if starts and self._may_start(lane):
                self._start(lane)
            if self.settings.trigger is Trigger.IDLE and (self._idler is None or not self._idler.is_alive()):
                self._idler = poll(weakly(self.start_if_idle), _IDLE_POLL_SECONDS, "odc-idle")

    def _borrow(self, lane: Lane) -> None:
        """Until something is made for these shapes, the quantised model of others serves them on the host."""
        if self._base_serving is None:
            return
        try:
            self._base_serving.executor.prepare(lane.shapes)
        except OdcError as error:
            lane.fallbacks.append(Fallback(str(Level.QUANTIZED), "load", str(error)))
            return
        lane.servings = [Serving(Level.QUANTIZED, self._base_serving.executor)]
        lane.watch = self._new_watch(None if self._base is None else self._base.result.verdict)

    def _records_needed(self, lane: Lane | None) -> int:
        return max(self.settings.records, 0 if lane is None else lane.records_needed)

    def _needs_no_records(self, lane: Lane) -> bool:
        return self.quantized or self._base is not None

    # Working.

    def _may_start(self, lane: Lane) -> bool:
        if lane.phase is not Phase.COLLECTING or self._closed or lane.is_postponed:
            return False
        if any(other.is_working for other in self._lanes.values()):
            return False
        if self._base is not None and self.settings.preference is Preference.COMPILE_TIME_FIRST:
            return False  # the host serves other shapes well enough
        return self._needs_no_records(lane) or self.recorder.runs(lane.shapes) >= self._records_needed(lane)

    def _try_again(self, lane: Lane) -> None:
        """What failed before may work by now."""
        if self._closed or any(other.is_busy for other in self._lanes.values()):
            return
        if lane.phase is Phase.ACTIVE:
            self._start(lane, again=True)
        elif lane.phase is Phase.REJECTED:
            lane.retry_at = None
            lane.enter(Phase.FLOAT)
            self._begin(lane)

    def _start(self, lane: Lane, *, again: bool = False) -> None:
        """Let a process start for ``lane``; ``again``: what was made before is not as good as it could be."""
        needs_none = again or self._needs_no_records(lane)
        base = None if again else self._base
        lane.retry_at = None
        # A reason why records were not enough before stays: it is why the model itself serves meanwhile.
        lane.enter(Phase.COMPILING if needs_none else Phase.QUANTIZING, None if lane.servings else lane.reason)

        def launch() -> None:
            self._launch(lane, base, needs_records=not needs_none, again=again)

        if needs_none:
            self._background.submit(launch, always=True)
        else:  # which must be in the store before
            self.recorder.flush(then=launch)

    def _launch(self, lane: Lane, base: Artefact | None, *, needs_records: bool, again: bool) -> None:
        """Start a process for ``lane``: in the background."""
        try:
            if needs_records and self.recorder.refused is not None:
                self._stay(lane, self.recorder.refused, passing=False)
            elif needs_records and self.recorder.runs(lane.shapes) < self._records_needed(lane):
                self._stay(lane, self.recorder.failure or "the records are not in the store yet", passing=True)
            else:
                job = self._job(lane, base, again=again)
                heard, ended = weakly(self._heard), weakly(self._ended)
                lane.supervisor = Supervisor(job, lambda facts: heard(lane, facts), lambda ending: ended(lane, ending))
        except OdcError as error:
            self._stay(lane, str(error), passing=error.passing)

    def _stay(self, lane: Lane, reason: str, *, passing: bool) -> None:
        """No process has started, or it has brought nothing."""
        with self._changed:
            if passing:
                lane.attempts += 1
                lane.postpone(lane.attempts, max(_RETRY_SECONDS, retry_seconds(lane.attempts)))
            if lane.outdated is not None:
                self._leave(lane, lane.outdated)
            elif lane.artefact is not None and lane.servings:
                lane.enter(Phase.ACTIVE, reason)
            elif passing and lane.supervisor is None:
                lane.enter(Phase.COLLECTING, reason)
            else:
                lane.enter(Phase.REJECTED, reason)
            self._changed.notify_all()

    def _job(self, lane: Lane, base: Artefact | None, *, again: bool) -> Job:
        return make_job(
            self.settings,
            self.original,
            base,
            lane.shapes,
            key=lane.key or "",
            records=str(self.recorder.path),
            again=again,
            target=self._target,
            runs=self.recorder.runs(lane.shapes) if base is None else sys.maxsize,
        )

    def _heard(self, lane: Lane, facts: dict[str, Any]) -> None:
        """The process says how far it is: in a thread of its supervisor."""
        with self._lock:
            step = facts["step"]
            if step == Step.TARGET_ASKED:
                lane.scheme = str(facts.get("scheme"))
            if step == "not installed":
                lane.fallbacks.append(Fallback("package", "install", str(facts.get("reason"))))
            phase = PHASES.get(Step(step)) if step in set(Step) else None
            # What was to be compiled only may have to be quantised again: the phase stays then.
            if phase is not None and lane.is_working and phase in NEXT[lane.phase]:
                lane.enter(phase, lane.reason)

    def _ended(self, lane: Lane, ending: Ending) -> None:
        """The process has ended: in a thread of its supervisor."""
        lane.is_concluding = True
        try:
            self._conclude(lane, ending)
        except Exception as error:  # a background thread has nobody else to tell
            _log.exception("what was made cannot be used")
            with self._lock:
                lane.servings = []
                lane.enter(Phase.REJECTED, f"{type(error).__name__}: {error}")
        finally:
            with self._changed:
                lane.is_concluding = False
                lane.supervisor = None
                self._changed.notify_all()

    def _conclude(self, lane: Lane, ending: Ending) -> None:
        key = lane.key or ""
        found, problem = self._artefacts.find(key)
        if ending.problem is not None or found is None:
            reason = ending.problem or problem or "nothing was made"
            if found is not None and (lane.artefact is None or found.result != lane.artefact.result):
                self._take(lane, found)  # it ended after it had done its work
                return
            self._stay(lane, reason, passing=ending.kind == PASSING)
            refusal = Result(None, reason, ending.kind, budget=self._budget)
            if ending.kind == PASSING:
                refusal.attempts, refusal.failed_at = lane.attempts, time.time()
            self._artefacts.clean(key, refusal if lane.artefact is None and ending.kind in ("time", PASSING) else None)
            return
        self._take(lane, found)
        found.copy_to(*self._save_to)

    def _take(self, lane: Lane, found: Artefact) -> None:
        """Let a result serve: opened and, where inputs are known, proven, before anyone can see it."""
        result, most = found.result, TIMES_ENOUGH * self.settings.records
        if result.kind == PASSING:
            lane.postpone(result.attempts, max(_RETRY_SECONDS, retry_seconds(result.attempts)))
        if result.level is None:
            with self._lock:
                lane.result = result
                if lane.outdated is not None:
                    self._leave(lane, lane.outdated)
                elif result.waits_for_records and self.recorder.runs(lane.shapes) < most:
                    lane.wait_for_records(result)
                else:
                    lane.refuse(result)
            return
        self._artefacts.touch(lane.key or "")
        inputs = lane.sample or self.recorder.sample(lane.shapes)
        opened = open_artefact(found, self.original.graph, lane.shapes, self._around, inputs)
        fallbacks, servings = list(opened.fallbacks), opened.servings
        if result.level != Level.COMPILED and result.reason is not None:
            fallbacks.append(Fallback(str(Level.COMPILED), result.stage or "compile", result.reason))
        watch = self._new_watch(result.verdict)
        if watch is not None and servings:
            watch.prepare(lane.shapes)
        with self._lock:
            lane.artefact, lane.result = found, result
            lane.fallbacks += fallbacks
            if lane.outdated is not None:
                self._leave(lane, lane.outdated)
                return
            lane.servings, lane.watch = servings, watch
            on_host = next((item for item in servings if item.level is Level.QUANTIZED), None)
            if found.model is not None and on_host is not None:
                self._base, self._base_serving = found, on_host
            if servings:
                lane.enter(Phase.ACTIVE, None if not fallbacks else fallbacks[-1].reason)
            else:
                lane.enter(Phase.REJECTED, fallbacks[-1].reason if fallbacks else "nothing was made")

    # Watching.

    def _new_watch(self, verdict: dict[str, Any] | None) -> Watch | None:
        """What watches answers that are judged by ``verdict``, None where nobody wants that."""
        if not self.settings.watch or self.quantized:
            return None
        terms = Terms.of(verdict, self.settings.shadow_share)
        return Watch(terms, self.original.another(self._around), weakly(self.leave))

    def leave(self, reason: str) -> None:
        """Answers have left the limits: the model itself serves again, for all shapes, and more is recorded."""
        with self._lock:
            _log.warning("the model itself serves again: %s", reason)
            self._base = self._base_serving = None
            for lane in self._lanes.values():
                if lane.servings or lane.is_busy:  # what is being made is made from it
                    self._leave(lane, reason)

    def _leave(self, lane: Lane, reason: str) -> None:
        given = lane.leave(reason, self.recorder.runs(lane.shapes), self.settings.records)
        if given:  # it is not for whoever gave the answer to wait for the disk
            artefacts, package = self._artefacts, self.original.package
            self._background.submit(lambda: withdraw(artefacts, package, given, reason), always=True)

    def start_if_idle(self) -> bool:
        """Start what may be started when nothing has been run for a while; whether there will be more to start."""
        with self._lock:
            collecting = [lane for lane in self._lanes.values() if lane.phase is Phase.COLLECTING or lane.is_busy]
            if self._closed or not collecting:
                self._idler = None
                return False
            if time.monotonic() - self._last_run >= IDLE_SECONDS:
                for lane in collecting:
                    if self._may_start(lane):
                        self._start(lane)
            return True
