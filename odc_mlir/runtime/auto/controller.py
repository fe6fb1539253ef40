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
from odc_mlir.runtime.auto.candidates import Candidate, ExecutorOptions, open_artefact
from odc_mlir.runtime.auto.job import PHASES, TIMES_ENOUGH, Job, Step, key_of, make_job, target_facts
from odc_mlir.runtime.auto.original import Original, is_quantized, why_not
from odc_mlir.runtime.auto.proving import prove
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.settings import IDLE_SECONDS, AutoSettings, Trigger
from odc_mlir.runtime.auto.specialization import Specialization
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
        options: ExecutorOptions,
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
        self._options = options
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
        self._specializations: OrderedDict[Shapes, Specialization] = OrderedDict()
        self._current: Specialization | None = None
        # A result whose quantised model serves other shapes too, and what runs it.
        self._base: Artefact | None = None
        self._base_candidate: Candidate | None = None
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
        for state in self._specializations.values():
            if state.is_busy:  # for the process before; here it begins anew, and finds what that makes
                state.abandon()

    # Between runs.

    def open(self, shapes: Shapes, *, in_run: bool = False) -> None:
        """Look for what is there for inputs of ``shapes``; with the trigger first-run also make it, and wait.

        ``in_run``: what takes long to open is opened in the background.
        """
        self._check_process()
        with self._changed:
            state = self._specialization(shapes, may_wait=not in_run)
            if self.settings.trigger is not Trigger.FIRST_RUN:
                return
            if self._may_start(state):
                self._start(state)
        self.wait()

    def candidates(self, inputs: Sequence[Array]) -> Iterator[Candidate | None]:
        """What may compute the answer for ``inputs``, best first; None, which is last, stands for the model itself."""
        self._check_process()
        with self._lock:
            state = self._current = self._specialization(shapes_of(inputs))
            self._last_run = time.monotonic()
            candidates, watch = list(state.candidates), state.watch
        if candidates and (watch is None or watch.admits(candidates[0].executor, inputs)):
            yield from candidates
        yield None

    @property
    def watch(self) -> Watch | None:
        """What watches the answers for the inputs of the last call of :meth:`candidates`."""
        return None if self._current is None else self._current.watch

    def prove(self, shapes: Shapes, candidate: Candidate, inputs: Sequence[Array]) -> None:
        """Prove ``candidate`` by these inputs, in the background: until then it does not answer."""
        with self._lock:
            prove(self._specialization(shapes), candidate, inputs, self._background, self._changed)

    def wants_records(self, shapes: Shapes) -> bool:
        """Whether runs of the model itself are to be recorded: not for ever, where nothing starts."""
        if self._specialization(shapes).phase is not Phase.COLLECTING or self.quantized:
            return False
        most = max(TIMES_ENOUGH * self.settings.records, self._specialization(shapes).records_needed)
        return self.recorder.runs(shapes) < most

    def answered(
        self,
        shapes: Shapes,
        candidate: Candidate | None,
        failed: Sequence[tuple[Candidate, OdcError]],
        inputs: Callable[[], Sequence[Array]] | None = None,
    ) -> None:
        """An answer was given by ``candidate`` (None: the model itself) to ``inputs``, after others had failed."""
        with self._lock:
            state = self._specialization(shapes)
            if state.sample is None and inputs is not None:
                state.keep_sample(inputs())
            state.served = Level.ORIGINAL if candidate is None else candidate.level
            for item, error in failed:
                _log.warning("%s: %s; going on without", item.level, error)
                if self._base_candidate is not None and item.executor is self._base_candidate.executor:
                    self._base_candidate = None
                state.give_up(item, error.stage or "run", str(error))
            if state.is_due:
                self._try_again(state)
            refused = None if self._needs_no_records(state) else self.recorder.refused
            if state.phase is Phase.COLLECTING and refused is not None:
                state.enter(Phase.REJECTED, refused)
            elif self.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN) and self._may_start(state):
                self._start(state)

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
            state = self._current
            if state is None or state.is_busy or self._forbidden or self._closed:
                return
            state.attempts, state.retry_at = 0, None
            if state.phase is Phase.ACTIVE and state.best is Level.QUANTIZED and state.artefact is not None:
                self._start(state, again=True)
                return
            if state.key is not None:
                self._artefacts.discard(state.key)
            if self._base is not None and self._base.folder.name == state.key:
                self._base = None
            state.result = state.artefact = None
            state.enter(Phase.FLOAT)
            self._begin(state)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing works in the background; whether that is so."""
        self._check_process()
        with self._changed:
            watches = [state.watch for state in self._specializations.values() if state.watch is not None]
        shadows = [watch.join(seconds) for watch in watches]  # which may find that there is more to do
        with self._changed:
            idle = self._changed.wait_for(
                lambda: not any(state.is_busy for state in self._specializations.values()), seconds
            )
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
            working = [state.supervisor for state in self._specializations.values() if state.supervisor is not None]
        for supervisor in working:
            supervisor.stop()

    def status(self) -> AutoStatus:
        """Where it stands for the shapes last run."""
        self._check_process()
        with self._lock:
            state = self._current
            status = AutoStatus(
                enabled=True,
                records_needed=0 if self.quantized else self._records_needed(state),
                **self.settings.told,
                notes=list(self._notes),
            )
            if state is None:
                status.phase = Phase.REJECTED if self._forbidden else Phase.FLOAT
                status.reason = self._forbidden
                return status
            state.describe(status, self.recorder.runs(state.shapes))
            if self.recorder.failure is not None:
                status.fallbacks.append(Fallback("records", "record", self.recorder.failure))
            return status

    # Specializations.

    def _specialization(self, shapes: Shapes, *, may_wait: bool = False) -> Specialization:
        with self._lock:
            state = self._specializations.get(shapes)
            if state is None:
                state = self._specializations[shapes] = Specialization(shapes)
                if self._problem is not None:
                    state.fallbacks.append(Fallback("package", "load", self._problem))
                self._current = self._current or state
                self._begin(state, may_wait=may_wait)
                self._forget_specializations()
            else:
                self._specializations.move_to_end(shapes)
            return state

    def _forget_specializations(self) -> None:
        idle = [shapes for shapes, state in self._specializations.items() if not state.is_busy]
        while len(self._specializations) > SHAPES_KEPT and len(idle) > 1:
            del self._specializations[idle.pop(0)]

    def _begin(self, state: Specialization, *, may_wait: bool = False) -> None:
        """Take what is there already, else begin to collect, or to work where no records are needed.

        A result takes long to open, so a run, which may not wait, goes on with what serves other shapes.
        """
        if self._forbidden:
            state.enter(Phase.REJECTED, self._forbidden)
            return
        state.key = key_of(self.settings, self.original.digest, state.shapes, self._target)
        if may_wait or not self._artefacts.has_files(state.key):
            self._load(state)
            return
        self._borrow(state)
        state.is_loading = True
        if not self._background.submit(lambda: self._load(state)):
            state.is_loading = False

    def _load(self, state: Specialization) -> None:
        """Take what is there for ``state``, else begin to collect."""
        try:
            found, problem = self._artefacts.find(state.key or "")
            if problem is not None:
                _log.warning("%s; it is made anew", problem)
                with self._lock:
                    state.fallbacks.append(Fallback("cache", "load", problem))
            if found is None:
                self._collect(state)
                return
            if found.result.waits_for_records and not self._needs_no_records(state):
                with self._lock:
                    state.wait_for_records(found.result)
                self._collect(state)
                return
            seconds = seconds_left(found.result, self._budget, time.time())
            if found.result.level is None and seconds == 0:
                self._collect(state)
                state.attempts = found.result.attempts
                return
            self._take(state, found)
            if seconds is not None:
                state.postpone(found.result.attempts, seconds)
        finally:
            with self._changed:
                state.is_loading = False
                self._changed.notify_all()

    def _collect(self, state: Specialization) -> None:
        with self._lock:
            state.outdated = None
            if not state.candidates:
                self._borrow(state)
            state.enter(Phase.COLLECTING, state.reason)
            starts = self.settings.trigger is Trigger.AFTER_RECORDS and self._needs_no_records(state)
            if starts and self._may_start(state):
                self._start(state)
            if self.settings.trigger is Trigger.IDLE and (self._idler is None or not self._idler.is_alive()):
                self._idler = poll(weakly(self.start_if_idle), _IDLE_POLL_SECONDS, "odc-idle")

    def _borrow(self, state: Specialization) -> None:
        """Until something is made for these shapes, the quantised model of others serves them on the host."""
        if self._base_candidate is None:
            return
        try:
            self._base_candidate.executor.prepare(state.shapes)
        except OdcError as error:
            state.fallbacks.append(Fallback(str(Level.QUANTIZED), "load", str(error)))
            return
        state.candidates = [Candidate(Level.QUANTIZED, self._base_candidate.executor)]
        state.watch = self._new_watch(None if self._base is None else self._base.result.verdict)

    def _records_needed(self, state: Specialization | None) -> int:
        return max(self.settings.records, 0 if state is None else state.records_needed)

    def _needs_no_records(self, state: Specialization) -> bool:
        return self.quantized or self._base is not None

    # Working.

    def _may_start(self, state: Specialization) -> bool:
        if state.phase is not Phase.COLLECTING or self._closed or state.is_postponed:
            return False
        if any(other.is_working for other in self._specializations.values()):
            return False
        if self._base is not None and self.settings.preference is Preference.COMPILE_TIME_FIRST:
            return False  # the host serves other shapes well enough
        return self._needs_no_records(state) or self.recorder.runs(state.shapes) >= self._records_needed(state)

    def _try_again(self, state: Specialization) -> None:
        """What failed before may work by now."""
        if self._closed or any(other.is_busy for other in self._specializations.values()):
            return
        if state.phase is Phase.ACTIVE:
            self._start(state, again=True)
        elif state.phase is Phase.REJECTED:
            state.retry_at = None
            state.enter(Phase.FLOAT)
            self._begin(state)

    def _start(self, state: Specialization, *, again: bool = False) -> None:
        """Let a process start for ``state``; ``again``: what was made before is not as good as it could be."""
        needs_none = again or self._needs_no_records(state)
        base = None if again else self._base
        state.retry_at = None
        # A reason why records were not enough before stays: it is why the model itself serves meanwhile.
        state.enter(Phase.COMPILING if needs_none else Phase.QUANTIZING, None if state.candidates else state.reason)

        def launch() -> None:
            self._launch(state, base, needs_records=not needs_none, again=again)

        if needs_none:
            self._background.submit(launch, always=True)
        else:  # which must be in the store before
            self.recorder.flush(then=launch)

    def _launch(self, state: Specialization, base: Artefact | None, *, needs_records: bool, again: bool) -> None:
        """Start a process for ``state``: in the background."""
        try:
            if needs_records and self.recorder.refused is not None:
                self._stay(state, self.recorder.refused, passing=False)
            elif needs_records and self.recorder.runs(state.shapes) < self._records_needed(state):
                self._stay(state, self.recorder.failure or "the records are not in the store yet", passing=True)
            else:
                job = self._job(state, base, again=again)
                heard, ended = weakly(self._heard), weakly(self._ended)
                state.supervisor = Supervisor(
                    job, lambda facts: heard(state, facts), lambda ending: ended(state, ending)
                )
        except OdcError as error:
            self._stay(state, str(error), passing=error.passing)

    def _stay(self, state: Specialization, reason: str, *, passing: bool) -> None:
        """No process has started, or it has brought nothing."""
        with self._changed:
            if passing:
                state.attempts += 1
                state.postpone(state.attempts, max(_RETRY_SECONDS, retry_seconds(state.attempts)))
            if state.outdated is not None:
                self._leave(state, state.outdated)
            elif state.artefact is not None and state.candidates:
                state.enter(Phase.ACTIVE, reason)
            elif passing and state.supervisor is None:
                state.enter(Phase.COLLECTING, reason)
            else:
                state.enter(Phase.REJECTED, reason)
            self._changed.notify_all()

    def _job(self, state: Specialization, base: Artefact | None, *, again: bool) -> Job:
        return make_job(
            self.settings,
            self.original,
            base,
            state.shapes,
            key=state.key or "",
            records=str(self.recorder.path),
            again=again,
            target=self._target,
            runs=self.recorder.runs(state.shapes) if base is None else sys.maxsize,
        )

    def _heard(self, state: Specialization, facts: dict[str, Any]) -> None:
        """The process says how far it is: in a thread of its supervisor."""
        with self._lock:
            step = facts["step"]
            if step == Step.TARGET_ASKED:
                state.scheme = str(facts.get("scheme"))
            if step == "not installed":
                state.fallbacks.append(Fallback("package", "install", str(facts.get("reason"))))
            phase = PHASES.get(Step(step)) if step in set(Step) else None
            # What was to be compiled only may have to be quantised again: the phase stays then.
            if phase is not None and state.is_working and phase in NEXT[state.phase]:
                state.enter(phase, state.reason)

    def _ended(self, state: Specialization, ending: Ending) -> None:
        """The process has ended: in a thread of its supervisor."""
        state.is_concluding = True
        try:
            self._conclude(state, ending)
        except Exception as error:  # a background thread has nobody else to tell
            _log.exception("what was made cannot be used")
            with self._lock:
                state.candidates = []
                state.enter(Phase.REJECTED, f"{type(error).__name__}: {error}")
        finally:
            with self._changed:
                state.is_concluding = False
                state.supervisor = None
                self._changed.notify_all()

    def _conclude(self, state: Specialization, ending: Ending) -> None:
        key = state.key or ""
        found, problem = self._artefacts.find(key)
        if ending.problem is not None or found is None:
            reason = ending.problem or problem or "nothing was made"
            if found is not None and (state.artefact is None or found.result != state.artefact.result):
                self._take(state, found)  # it ended after it had done its work
                return
            self._stay(state, reason, passing=ending.kind == PASSING)
            refusal = Result(None, reason, ending.kind, budget=self._budget)
            if ending.kind == PASSING:
                refusal.attempts, refusal.failed_at = state.attempts, time.time()
            self._artefacts.clean(key, refusal if state.artefact is None and ending.kind in ("time", PASSING) else None)
            return
        self._take(state, found)
        found.copy_to(*self._save_to)

    def _take(self, state: Specialization, found: Artefact) -> None:
        """Let a result serve: opened and, where inputs are known, proven, before anyone can see it."""
        result, most = found.result, TIMES_ENOUGH * self.settings.records
        if result.kind == PASSING:
            state.postpone(result.attempts, max(_RETRY_SECONDS, retry_seconds(result.attempts)))
        if result.level is None:
            with self._lock:
                state.result = result
                if state.outdated is not None:
                    self._leave(state, state.outdated)
                elif result.waits_for_records and self.recorder.runs(state.shapes) < most:
                    state.wait_for_records(result)
                else:
                    state.refuse(result)
            return
        self._artefacts.touch(state.key or "")
        inputs = state.sample or self.recorder.sample(state.shapes)
        opened = open_artefact(found, self.original.graph, state.shapes, self._options, inputs)
        fallbacks, candidates = list(opened.fallbacks), opened.candidates
        if result.level != Level.COMPILED and result.reason is not None:
            fallbacks.append(Fallback(str(Level.COMPILED), result.stage or "compile", result.reason))
        watch = self._new_watch(result.verdict)
        if watch is not None and candidates:
            watch.prepare(state.shapes)
        with self._lock:
            state.artefact, state.result = found, result
            state.fallbacks += fallbacks
            if state.outdated is not None:
                self._leave(state, state.outdated)
                return
            state.candidates, state.watch = candidates, watch
            on_host = next((item for item in candidates if item.level is Level.QUANTIZED), None)
            if found.model is not None and on_host is not None:
                self._base, self._base_candidate = found, on_host
            if candidates:
                state.enter(Phase.ACTIVE, None if not fallbacks else fallbacks[-1].reason)
            else:
                state.enter(Phase.REJECTED, fallbacks[-1].reason if fallbacks else "nothing was made")

    # Watching.

    def _new_watch(self, verdict: dict[str, Any] | None) -> Watch | None:
        """What watches answers that are judged by ``verdict``, None where nobody wants that."""
        if not self.settings.watch or self.quantized:
            return None
        terms = Terms.of(verdict, self.settings.shadow_share)
        return Watch(terms, self.original.another(self._options), weakly(self.leave))

    def leave(self, reason: str) -> None:
        """Answers have left the limits: the model itself serves again, for all shapes, and more is recorded."""
        with self._lock:
            _log.warning("the model itself serves again: %s", reason)
            self._base = self._base_candidate = None
            for state in self._specializations.values():
                if state.candidates or state.is_busy:  # what is being made is made from it
                    self._leave(state, reason)

    def _leave(self, state: Specialization, reason: str) -> None:
        given = state.leave(reason, self.recorder.runs(state.shapes), self.settings.records)
        if given:  # it is not for whoever gave the answer to wait for the disk
            artefacts, package = self._artefacts, self.original.package
            self._background.submit(lambda: withdraw(artefacts, package, given, reason), always=True)

    def start_if_idle(self) -> bool:
        """Start what may be started when nothing has been run for a while; whether there will be more to start."""
        with self._lock:
            collecting = [
                state for state in self._specializations.values() if state.phase is Phase.COLLECTING or state.is_busy
            ]
            if self._closed or not collecting:
                self._idler = None
                return False
            if time.monotonic() - self._last_run >= IDLE_SECONDS:
                for state in collecting:
                    if self._may_start(state):
                        self._start(state)
            return True
