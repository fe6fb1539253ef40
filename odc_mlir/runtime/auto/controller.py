"""Decides between two runs what computes the next answer, and when to make something better."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from threading import Thread
from typing import Any

from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.aim import Aim, aim_at_best
from odc_mlir.runtime.auto.artefacts import (
    COVERAGE,
    PASSING,
    WATCH,
    Artefact,
    Artefacts,
    JobResult,
    retry_seconds,
    seconds_left,
)
from odc_mlir.runtime.auto.background import Background, poll, weakly
from odc_mlir.runtime.auto.candidates import ExecutorCandidate, open_artefact
from odc_mlir.runtime.auto.direct import DirectStep
from odc_mlir.runtime.auto.job import TIMES_ENOUGH, key_of
from odc_mlir.runtime.auto.jobs import RETRY_SECONDS, JobRunner
from odc_mlir.runtime.auto.original import ExecutorOptions, Original, is_quantized, why_not
from odc_mlir.runtime.auto.proving import prove
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.settings import IDLE_SECONDS, AutoSettings, Trigger
from odc_mlir.runtime.auto.shared import Shared, release_all
from odc_mlir.runtime.auto.specialization import Specialization
from odc_mlir.runtime.auto.status import AutoStatus, Fallback, Level, Phase
from odc_mlir.runtime.auto.watch import Terms, Watch
from odc_mlir.runtime.auto.withdrawal import withdraw

_log = logging.getLogger(__name__)

# Programs for this many sets of input shapes are kept in memory; another one replaces the longest unused.
SHAPES_KEPT = 16
_IDLE_POLL_SECONDS = 0.1
# Refusals that say nothing of the target.
_OF_RECORDS = (PASSING, COVERAGE, WATCH)


class AutoCompiler(JobRunner):
    """Compiling on the device for one session. All of it may be called from several threads.

    ``aim``: what is compiled for; ``forbidden``: why it must not be done at all; ``save_to``: where the quantised model
    and the compiled one are to be copied, if anywhere; ``problem``: why what was made before cannot be used.
    """

    def __init__(
        self,
        original: Original,
        settings: AutoSettings,
        aim: Aim | None,
        options: ExecutorOptions,
        recorder: RunRecorder,
        background: Background,
        *,
        forbidden: str | None = None,
        save_to: tuple[Path | None, Path | None] = (None, None),
        problem: str | None = None,
        notes: Sequence[str] = (),
    ) -> None:
        self.recorder = recorder
        recorder.look()
        artefacts = Artefacts(settings.folder)
        super().__init__(Shared(settings, aim, original, options, artefacts, recorder, background), save_to)
        self.quantized = is_quantized(original.graph)
        self._problem = problem
        self._notes = list(notes)
        self._forbidden = forbidden or why_not(original.graph)
        self._direct = DirectStep(self.shared, weakly(self._direct_is_over), weakly(self._direct_is_refused))
        self._current: Specialization | None = None
        self._base_candidate: ExecutorCandidate | None = None  # runs the quantised model of the base
        self._last_run = time.monotonic()
        self._idler: Thread | None = None

    def _check_process(self) -> None:
        if self.shared.process == os.getpid():
            return
        self.shared.begin_process()
        self.shared.background.submit(self.recorder.look)
        self._idler = None
        for state in self.shared.specializations.values():
            if state.is_busy:  # for the process before; here it begins anew, and finds what that makes
                state.abandon()

    # Between runs.

    def open(self, shapes: Shapes) -> None:
        """Look for a stored result for inputs of ``shapes``, and start what needs no records."""
        self._check_process()
        with self.shared.lock:
            state = self._specialization(shapes)
            if self.shared.settings.trigger is Trigger.FIRST_RUN:
                self._start_what_may(state)

    def settled(self, inputs: Sequence[Array]) -> ExecutorCandidate | None:
        """What computes the answers for such ``inputs`` and has nothing left to be decided about it; None without.

        Then :meth:`answered` need not be told. The watch, if there is one, is still to be asked.
        """
        state = self._current
        if state is None or (found := state.settled) is None or self.shared.process != os.getpid():
            return None
        if tuple([value.shape for value in inputs]) != state.shapes:
            return None
        self._last_run = time.monotonic()
        return found if found is state.first else None

    def candidates(
        self, inputs: Sequence[Array], *, admitted: bool | None = None
    ) -> Iterator[ExecutorCandidate | None]:
        """What may compute the answer for ``inputs``, best first; None, which is last, stands for the model itself.

        As long as runs of the model itself are to be recorded, its own code does not answer in its place. ``admitted``:
        what the watch has said of the inputs, if it was asked.
        """
        self._check_process()
        with self.shared.lock:
            state = self._current = self._specialization(shapes_of(inputs))
            self._last_run = time.monotonic()
            candidates, watch = list(state.candidates), state.watch
            direct = None if state.direct is None or self._is_recording(state) else state.direct.candidate
        if candidates and watch is not None:
            admitted = watch.admits(candidates[0].executor, inputs) if admitted is None else admitted
            candidates = candidates if admitted else []
        if direct is not None:  # faster than host kernels, whatever they compute with
            compiled = [item for item in candidates if item.level is Level.COMPILED]
            candidates = [*compiled, direct, *(item for item in candidates if item.level is not Level.COMPILED)]
        yield from candidates
        yield None

    @property
    def watch(self) -> Watch | None:
        """What watches the answers for the inputs of the last call of :meth:`candidates`."""
        return None if self._current is None else self._current.watch

    def prove(self, shapes: Shapes, candidate: ExecutorCandidate, inputs: Sequence[Array]) -> None:
        """Prove ``candidate`` by these inputs, in the background: until then it does not answer."""
        with self.shared.lock:
            prove(self._specialization(shapes), candidate, inputs, self.shared.background, self.shared.changed)

    def wants_records(self, shapes: Shapes) -> bool:
        """Whether runs of the model itself are to be recorded: not for ever, where nothing starts."""
        state = self._specialization(shapes)
        if state.phase is not Phase.COLLECTING or self.quantized:
            return False
        return self.recorder.runs(shapes) < max(TIMES_ENOUGH * self.shared.settings.records, state.records_needed)

    def _is_recording(self, state: Specialization) -> bool:
        """Whether runs of the model itself are missing for the next step."""
        if state.phase is not Phase.COLLECTING or self._needs_no_records(state):
            return False
        return self.recorder.runs(state.shapes) < self._records_needed(state)

    def answered(
        self,
        shapes: Shapes,
        candidate: ExecutorCandidate | None,
        failed: Sequence[tuple[ExecutorCandidate, OdcError]],
        inputs: Callable[[], Sequence[Array]] | None = None,
    ) -> None:
        """An answer was given by ``candidate`` (None: the model itself) to ``inputs``, after others had failed."""
        with self.shared.lock:
            state = self._specialization(shapes)
            if state.sample is None and inputs is not None:
                state.keep_sample(inputs())
            state.served = Level.ORIGINAL if candidate is None else candidate.level
            state.settled = candidate if state.is_over and not failed else None
            for item, error in failed:
                _log.warning("%s: %s; continuing without it", item.level, error)
                if self._base_candidate is not None and item.executor is self._base_candidate.executor:
                    self._base_candidate = None
                state.give_up(item, error.stage or "run", str(error))
            if state.is_due:
                self._try_again(state)
            refused = None if self._needs_no_records(state) else self.recorder.refused
            if state.phase is Phase.COLLECTING and refused is not None:
                state.enter(Phase.REJECTED, refused)
            elif self.shared.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN):
                self._start_what_may(state)

    def _start_what_may(self, state: Specialization) -> None:
        """Start what is next for ``state``, if it may."""
        if self._direct.may_start(state):
            self._direct.start(state)
        elif self._may_start(state):
            self._start(state)

    def _direct_is_over(self, state: Specialization) -> None:
        """The model itself is compiled for ``state``, or cannot be; the lock is held."""
        if state.starts_next or self.shared.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN):
            state.starts_next = False
            if self._may_start(state):
                self._start(state)

    def _direct_is_refused(self, state: Specialization, reason: str, kind: str | None) -> None:
        """The model itself cannot be compiled for ``state``, which may be all that the target runs."""
        if self.shared.aim is not None and not self.shared.aim.takes_codes:
            self._aim_at_next(state, reason, kind)

    def start(self) -> None:
        """Start now, for the shapes last run, if enough is recorded; errors are reasons in the status."""
        self._check_process()
        with self.shared.lock:
            if self._current is not None:
                self._current.starts_next = True
                self._start_what_may(self._current)

    def retry(self) -> None:
        """Forget what became of the shapes last run, and begin anew; what there is serves until then.

        Nothing happens while a process works on them.
        """
        self._check_process()
        with self.shared.lock:
            state = self._current
            if state is None or state.is_busy or self._forbidden or self.shared.closed:
                return
            state.attempts, state.retry_at = 0, None
            if state.phase is Phase.ACTIVE and state.best is Level.QUANTIZED and state.artefact is not None:
                self._start(state, again=True)
                return
            for key in (state.key, None if state.direct is None else state.direct.key):
                if key is not None:
                    self.shared.artefacts.discard(key)
            state.direct = None
            if self._base is not None and self._base.folder.name == state.key:
                self._base = None
            state.result = state.artefact = None
            state.enter(Phase.FLOAT)
            self._begin(state)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait until nothing works in the background; whether that is so."""
        self._check_process()
        with self.shared.changed:
            watches = [state.watch for state in self.shared.specializations.values() if state.watch is not None]
        shadows = [watch.join(seconds) for watch in watches]  # which may find that there is more to do
        with self.shared.changed:
            idle = self.shared.changed.wait_for(
                lambda: not any(state.is_busy for state in self.shared.specializations.values()), seconds
            )
        return idle and all(shadows) and self.shared.background.wait(seconds)

    def close(self) -> None:
        """Store the records, and let a compile process end soon, unless other sessions want its result."""
        self._check_process()
        self.shared.closed = True
        release_all(self.shared.supervisors)
        self.recorder.finish()

    def stop(self) -> None:
        """Close, and wait until compile processes have ended."""
        self.close()
        for supervisor in list(self.shared.supervisors):
            supervisor.stop()

    def status(self) -> AutoStatus:
        """Where it stands for the shapes last run."""
        self._check_process()
        with self.shared.lock:
            state = self._current
            status = AutoStatus(
                enabled=True,
                records_needed=0 if self.quantized else self._records_needed(state),
                **self.shared.settings.told,
                notes=list(self._notes),
            )
            if self.shared.aim is not None:
                status.target = self.shared.aim.name
            if state is None:
                status.phase = Phase.REJECTED if self._forbidden else Phase.FLOAT
                status.reason = self._forbidden
                return status
            state.describe(status, self.recorder.runs(state.shapes))
            if self.recorder.failure is not None:
                status.fallbacks.append(Fallback("records", "record", self.recorder.failure))
            return status

    # Specializations.

    def _specialization(self, shapes: Shapes) -> Specialization:
        with self.shared.lock:
            state = self.shared.specializations.get(shapes)
            if state is None:
                state = self.shared.specializations[shapes] = Specialization(shapes)
                if self._problem is not None:
                    state.fallbacks.append(Fallback("package", "load", self._problem))
                self._current = self._current or state
                self._begin(state)
                self._forget_specializations()
            else:
                self.shared.specializations.move_to_end(shapes)
            return state

    def _forget_specializations(self) -> None:
        idle = [shapes for shapes, state in self.shared.specializations.items() if not state.is_busy]
        while len(self.shared.specializations) > SHAPES_KEPT and len(idle) > 1:
            del self.shared.specializations[idle.pop(0)]

    def _begin(self, state: Specialization) -> None:
        """Take what is there already, else begin to collect, or to work where no records are needed.

        A result takes long to open, so a run, which may not wait, goes on with what serves other shapes.
        """
        shared = self.shared
        if self._forbidden or shared.aim is None:
            state.enter(Phase.REJECTED, self._forbidden)
            self.recorder.forget(state.shapes)
            return
        state.key = key_of(shared.settings, shared.original.digest, state.shapes, shared.aim.key_facts)
        if shared.aim.takes_codes or self.quantized:
            self._find(state)
        else:
            state.enter(Phase.REJECTED, f"{shared.aim.name} runs real numbers: nothing is quantised")
        if state.phase is Phase.REJECTED:
            self.recorder.forget(state.shapes)
        if not self.quantized:
            self._direct.begin(state)
        if shared.settings.trigger is Trigger.AFTER_RECORDS:
            if self._direct.may_start(state):
                self._direct.start(state)
            elif self._needs_no_records(state) and self._may_start(state):
                self._start(state)

    def _find(self, state: Specialization) -> None:
        """Take what is there already, else begin to collect."""
        if not self.shared.artefacts.has_files(state.key or ""):
            self._load(state)
            return
        self._borrow(state)
        state.is_loading = True
        if not self.shared.background.submit(lambda: self._load(state)):
            state.is_loading = False

    def _load(self, state: Specialization) -> None:
        """Take what is there for ``state``, else begin to collect."""
        try:
            found, problem = self.shared.artefacts.find(state.key or "")
            if problem is not None:
                _log.warning("%s; making it again", problem)
                with self.shared.lock:
                    state.fallbacks.append(Fallback("cache", "load", problem))
            if found is None:
                self._collect(state)
                return
            if found.result.waits_for_records and not self._needs_no_records(state):
                with self.shared.lock:
                    state.wait_for_records(found.result)
                self._collect(state)
                return
            seconds = seconds_left(found.result, self.shared.budget, time.time())
            if found.result.level is None and seconds == 0:
                self._collect(state)
                state.attempts = found.result.attempts
                return
            self._take(state, found)
            if seconds is not None:
                state.postpone(found.result.attempts, seconds)
            if state.phase is not Phase.COLLECTING:
                self.recorder.forget(state.shapes)
        finally:
            with self.shared.changed:
                state.is_loading = False
                self.shared.changed.notify_all()

    def _collect(self, state: Specialization) -> None:
        with self.shared.lock:
            state.outdated = None
            if not state.candidates:
                self._borrow(state)
            state.enter(Phase.COLLECTING, state.reason)
            if self.shared.settings.trigger is Trigger.IDLE and (self._idler is None or not self._idler.is_alive()):
                self._idler = poll(weakly(self.start_if_idle), _IDLE_POLL_SECONDS, "odc-idle")

    def _borrow(self, state: Specialization) -> None:
        """Until something is made for these shapes, the quantised model of others serves them on the host."""
        if self._base is None or self._base_candidate is None:
            return
        try:
            self._base_candidate.executor.prepare(state.shapes)
        except OdcError as error:
            state.fallbacks.append(Fallback(str(Level.QUANTIZED), "load", str(error)))
            return
        state.candidates = [ExecutorCandidate(Level.QUANTIZED, self._base_candidate.executor)]
        state.watch = self._new_watch(None if self._base is None else self._base.result.verdict)

    def _records_needed(self, state: Specialization | None) -> int:
        return max(self.shared.settings.records, 0 if state is None else state.records_needed)

    def _needs_no_records(self, state: Specialization) -> bool:
        return self.quantized or self._base is not None

    def _take(self, state: Specialization, found: Artefact) -> None:
        """Let a result serve: opened and, where inputs are known, proven, before anyone can see it."""
        result = found.result
        built = result.level not in (None, Level.QUANTIZED) or result.reason is None
        if not built and self._aim_at_next(state, result.reason or "nothing was made", result.kind):
            return
        if result.kind == PASSING:
            state.postpone(result.attempts, max(RETRY_SECONDS, retry_seconds(result.attempts)))
        if result.level is None:
            self._take_refusal(state, result)
            return
        self.shared.artefacts.touch(state.key or "")
        inputs = state.sample or self.shared.recorder.sample(state.shapes)
        opened = open_artefact(found, self.shared.original.graph, state.shapes, self.shared.options, inputs)
        if not self.shared.artefacts.is_there(found):  # so parts of two may have been opened, or none
            newer, _ = self.shared.artefacts.find(state.key or "")
            if newer is not None or opened.fallbacks:
                self._take(state, newer) if newer is not None else self._collect(state)
                return
        fallbacks, candidates = list(opened.fallbacks), opened.candidates
        if result.level != Level.COMPILED and result.reason is not None:
            fallbacks.append(Fallback(str(Level.COMPILED), result.stage or "compile", result.reason))
        watch = self._new_watch(result.verdict)
        if watch is not None and candidates:
            watch.prepare(state.shapes)
        with self.shared.lock:
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

    def _take_refusal(self, state: Specialization, result: JobResult) -> None:
        """Wait for more records, where that helps, but not after a process of ours was given all that is waited for.

        Others may have been refused with fewer than there are by now, and what was watched says nothing of how many.
        """
        most = TIMES_ENOUGH * self.shared.settings.records
        with self.shared.lock:
            state.result = result
            if state.outdated is not None:
                self._leave(state, state.outdated)
            elif result.waits_for_records and (state.runs_given < most or result.kind == WATCH):
                state.wait_for_records(result)
            else:
                state.refuse(result)

    def _aim_at_next(self, state: Specialization, reason: str, kind: str | None) -> bool:
        """Where the target was left to us and nothing can be built for it: the next that is here, from the next run on.

        What lies in the records may change, and where anything serves as code, of whatever shapes, the target is right.
        """
        aim = self.shared.aim
        others = [other for other in self.shared.specializations.values() if other is not state]
        serves = state.best is Level.DIRECT or any(other.best in (Level.COMPILED, Level.DIRECT) for other in others)
        if aim is None or not aim.others or serves or kind in _OF_RECORDS:
            return False
        try:
            original, folder = self.shared.original, self.shared.settings.folder
            following = aim_at_best(aim.others, lambda: original.file(folder))
        except OdcError as error:
            _log.info("%s: %s", ", ".join(aim.others), error)
            return False
        with self.shared.lock:
            self.shared.aim = following
            self._notes += [f"{aim.name} is not compiled for: {reason}", *following.passed_over]
            for item in (state, *(other for other in others if not other.is_busy)):
                item.begin_anew(f"{aim.name}: {reason}")
        return True

    # Watching.

    def _new_watch(self, verdict: dict[str, Any] | None) -> Watch | None:
        """What watches answers that are judged by ``verdict``, None where nobody wants that."""
        if not self.shared.settings.watch or self.quantized:
            return None
        terms = Terms.of(verdict, self.shared.settings.shadow_share)
        return Watch(terms, self.shared.original.another(self.shared.options), weakly(self.leave))

    def leave(self, reason: str) -> None:
        """Answers have left the limits: the model itself serves again, for all shapes, and more is recorded."""
        with self.shared.lock:
            _log.warning("back to the original model: %s", reason)
            self._base = self._base_candidate = None
            for state in self.shared.specializations.values():
                if state.candidates or state.is_busy:  # what is being made is made from it
                    self._leave(state, reason)

    def _leave(self, state: Specialization, reason: str) -> None:
        given = state.leave(reason, self.recorder.runs(state.shapes), self.shared.settings.records)
        if given:  # it is not for whoever gave the answer to wait for the disk
            artefacts, package = self.shared.artefacts, self.shared.original.package
            self.shared.background.submit(lambda: withdraw(artefacts, package, given, reason), always=True)

    def start_if_idle(self) -> bool:
        """Start what may be started when nothing has been run for a while; whether there will be more to start."""
        with self.shared.lock:
            collecting = [
                state
                for state in self.shared.specializations.values()
                if state.phase is Phase.COLLECTING or state.is_busy
            ]
            if self.shared.closed or not collecting:
                self._idler = None
                return False
            if time.monotonic() - self._last_run >= IDLE_SECONDS:
                for state in collecting:
                    self._start_what_may(state)
            return True
