"""On-device compilation of one session: selects the executor of the next run, and the next job."""

from __future__ import annotations

import logging
import os
import sys
import time
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from threading import Condition, RLock, Thread
from typing import Any

import numpy as np

from odc_mlir.calibration.recorded import Shapes, shapes_of
from odc_mlir.errors import OdcError
from odc_mlir.formats.private import digest_file
from odc_mlir.ops.spec import Array
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.auto import artefacts, jobs
from odc_mlir.runtime.auto import specialization as states
from odc_mlir.runtime.auto.aim import Aim, ExecutorOptions, Original, aim_at_best, is_quantized, why_not
from odc_mlir.runtime.auto.artefacts import Artefact, JobResult
from odc_mlir.runtime.auto.background import Background, poll, weakly
from odc_mlir.runtime.auto.candidates import ExecutorCandidate, open_artefact
from odc_mlir.runtime.auto.jobs import TIMES_ENOUGH, Job, Supervisor
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.settings import IDLE_SECONDS, AutoSettings, AutoStatus, Fallback, Level, Phase, Trigger
from odc_mlir.runtime.auto.specialization import Serving, Specialization, Track, TrackEvent
from odc_mlir.runtime.auto.watch import Terms, Watch

_log = logging.getLogger(__name__)

# Number of programs in memory, one per set of input shapes. A new program replaces the least recently used program.
SHAPES_KEPT = 16
# Least time between a temporary failure and a retry within one process.
RETRY_SECONDS = 30.0
_IDLE_POLL_SECONDS = 0.1
# Kinds of refusals that the target does not cause.
_OF_RECORDS = (artefacts.PASSING, artefacts.COVERAGE, artefacts.WATCH)
_WORK = (Phase.QUANTIZING, Phase.CHECKING, Phase.COMPILING)  # in this order


class AutoCompiler:
    """The compiler of one session. All methods are thread-safe.

    ``aim``: the target, or None. ``forbidden``: the reason why nothing may be compiled. ``save_to``: paths for copies
        of the quantised and the compiled model, if wanted. ``problem``: why the result in the package is unusable.
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
        self.settings = settings
        self.recorder = recorder
        self.background = background
        self.artefacts = artefacts.Artefacts(settings.folder)
        self.specializations: OrderedDict[Shapes, Specialization] = OrderedDict()  # least recently used first
        self._original, self._options = original, options
        self._is_quantized = is_quantized(original.graph)
        self._aim = aim
        self._forbidden = forbidden or why_not(original.graph)
        self._save_to = save_to
        self._problem = problem
        self._notes = list(notes)
        self._closed = False
        self._current: Specialization | None = None
        self._base: Serving | None = None  # its quantised model also answers for other shapes, on the host
        self._last_run = time.monotonic()
        self._supervisors: list[Supervisor] = []
        weakref.finalize(self, jobs.release_all, self._supervisors)
        recorder.look()
        self._begin_process()

    def _begin_process(self) -> None:
        """Create the objects of this process, at the start and in a forked child, which has only this thread."""
        self._process = os.getpid()
        self._lock = RLock()  # guards specializations
        self._changed = Condition(self._lock)  # notified whenever background work has ended
        self._idler: Thread | None = None
        self._supervisors.clear()

    def _check_process(self) -> None:
        if self._process == os.getpid():
            return
        self._begin_process()
        self.background.submit(self.recorder.look)
        for spec in self.specializations.values():
            for track in spec.tracks:
                track.abandon()

    # Runs.

    def open(self, shapes: Shapes) -> None:
        """Look for stored results for inputs of ``shapes`` in the background."""
        self._check_process()
        self._specialization(shapes)

    def settled(self, inputs: Sequence[Array]) -> ExecutorCandidate | None:
        """Return the executor for ``inputs`` if no decision is pending. Callers may then omit :meth:`answered`.

        The caller must still consult the watch.
        """
        spec = self._current
        if spec is None or (found := spec.settled) is None or self._process != os.getpid():
            return None
        if tuple([value.shape for value in inputs]) != spec.shapes:
            return None
        self._last_run = time.monotonic()
        return found if found is spec.first else None

    def candidates(
        self, inputs: Sequence[Array], *, admitted: bool | None = None
    ) -> Iterator[ExecutorCandidate | None]:
        """Return executors that may answer for ``inputs``, best first, and None for the original model.

        Native code of the float model does not answer until enough runs are recorded. ``admitted``: the watch's
        decision about these inputs, if the caller has it already.
        """
        self._check_process()
        with self._lock:
            spec = self._current = self._specialization(shapes_of(inputs))
            self._last_run = time.monotonic()
            is_recording = (  # the next step needs more runs of the original model
                spec.quantized.collects
                and not self._needs_no_records
                and self.recorder.runs(spec.shapes) < self._records_needed(spec)
            )
            found, watch = spec.candidates(direct=not is_recording), spec.watch
        if watch is not None and found and found[0].level is not Level.DIRECT:
            admitted = watch.admits(found[0].executor, inputs) if admitted is None else admitted
            found = found if admitted else [item for item in found if item.level is Level.DIRECT]
        yield from found
        yield None

    @property
    def watch(self) -> Watch | None:
        """Watch of the answers for the inputs of the last call of :meth:`candidates`."""
        return None if self._current is None else self._current.watch

    def wants_records(self, shapes: Shapes) -> bool:
        """Return whether to record further runs of the original model."""
        spec = self._specialization(shapes)
        if self._is_quantized or not spec.quantized.collects:
            return False
        return self.recorder.runs(shapes) < max(TIMES_ENOUGH * self.settings.records, spec.quantized.records_needed)

    def answered(
        self,
        shapes: Shapes,
        candidate: ExecutorCandidate | None,
        failed: Sequence[tuple[ExecutorCandidate, OdcError]],
        inputs: Callable[[], Sequence[Array]] | None = None,
    ) -> None:
        """Note that ``candidate`` (None: the original model) has answered ``inputs`` after candidates ``failed``."""
        with self._lock:
            spec = self._specialization(shapes)
            if spec.sample is None and inputs is not None:
                spec.sample = [np.array(value) for value in inputs()]
            spec.served = Level.ORIGINAL if candidate is None else candidate.level
            spec.settled = candidate if spec.is_over and not failed else None
            for item, error in failed:
                self._give_up(spec, item, error)
            if spec.quantized.is_due:
                self._try_again(spec)
            refused = None if self._needs_no_records else self.recorder.refused
            if isinstance(spec.quantized.state, states.Collecting) and refused is not None:
                serving = spec.quantized.state.serving
                spec.quantized.on(TrackEvent.REFUSE, states.Rejected(reason=refused, serving=serving))
            elif self.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN):
                self._start_next(spec)

    def _give_up(self, spec: Specialization, candidate: ExecutorCandidate, error: OdcError) -> None:
        _log.warning("%s: %s; continuing without it", candidate.level, error)
        if self._base is not None and any(item.executor is candidate.executor for item in self._base.candidates):
            self._base = replace(self._base, candidates=())
        spec.give_up(candidate, error.stage or "run", str(error))

    def verify(self, shapes: Shapes, candidate: ExecutorCandidate, inputs: Sequence[Array]) -> None:
        """Verify ``candidate`` on these inputs in the background. It does not answer before."""
        with self._lock:
            spec = self._specialization(shapes)
            track = next((item for item in spec.tracks if candidate in item.state.serving.candidates), None)
            if track is not None and track.verify(candidate):
                self._later(partial(self._verify, spec, track, candidate, [np.array(value) for value in inputs]))

    def _verify(
        self, spec: Specialization, track: Track, candidate: ExecutorCandidate, inputs: Sequence[Array]
    ) -> None:
        failure = None
        try:
            candidate.verify(inputs)
        except Exception as error:  # waiting threads always need a notification
            failure = error if isinstance(error, OdcError) else OdcError(f"{type(error).__name__}: {error}")
        with self._changed:
            state = track.state
            # Meanwhile the candidate's answers may have left the limits.
            if isinstance(state, states.Verifying) and state.candidate is candidate:
                if failure is not None:
                    self._give_up(spec, candidate, failure)
                else:
                    track.verified()
            self._changed.notify_all()

    # Calls of the user.

    def start(self) -> None:
        """Start to compile for the shapes of the last run, if enough runs are recorded. The status reports errors."""
        self._check_process()
        with self._lock:
            if self._current is not None:
                self._current.asked = True
                self._start_next(self._current)

    def retry(self) -> None:
        """If no process works, drop the outcome for the last run's shapes and start again. Keep an active result."""
        self._check_process()
        with self._lock:
            spec = self._current
            if spec is None or spec.is_busy or self._forbidden or self._closed:
                return
            track = spec.quantized
            track.attempts = 0
            if isinstance(track.state, states.Active) and spec.best is Level.QUANTIZED:
                self._start(spec, track, again=True)
                return
            for item in spec.tracks:
                if item.key:
                    self.artefacts.discard(item.key)
            if self._base is not None and track.state.serving.artefact is self._base.artefact:
                self._base = None
            spec.restart(None)
            self._begin(spec)

    def wait(self, seconds: float | None = None) -> bool:
        """Wait at most ``seconds`` for the end of background work. Return whether it has ended."""
        self._check_process()
        with self._changed:
            watches = [spec.watch for spec in self.specializations.values() if spec.watch is not None]
        shadows = [watch.join(seconds) for watch in watches]  # a shadow run may cause more background work
        with self._changed:
            idle = self._changed.wait_for(lambda: not self._is_busy, seconds)
        return idle and all(shadows) and self.background.wait(seconds)

    def close(self) -> None:
        """Store the records. Let compile processes end soon if no other session wants the results."""
        self._check_process()
        self._closed = True
        jobs.release_all(self._supervisors)
        self.recorder.finish()

    def stop(self) -> None:
        """Close the compiler, and wait for the end of compile processes."""
        self.close()
        for supervisor in list(self._supervisors):
            supervisor.stop()

    def status(self) -> AutoStatus:
        """Return the status for the shapes of the last run."""
        self._check_process()
        with self._lock:
            spec = self._current
            status = AutoStatus(
                enabled=True,
                records_needed=0 if self._is_quantized else self._records_needed(spec),
                notes=list(self._notes),
                target=self.settings.target if self._aim is None else self._aim.name,
                scheme=self.settings.scheme,
                preference=self.settings.preference.name.lower(),
                trigger=str(self.settings.trigger),
            )
            if spec is None:
                status.phase = Phase.REJECTED if self._forbidden else Phase.FLOAT
                status.reason = self._forbidden
                return status
            spec.describe(status, self.recorder.runs(spec.shapes))
            if self.recorder.failure is not None:
                status.fallbacks.append(Fallback("records", "record", self.recorder.failure))
            return status

    # Specialisations.

    def _specialization(self, shapes: Shapes) -> Specialization:
        with self._lock:
            spec = self.specializations.get(shapes)
            if spec is None:
                spec = self.specializations[shapes] = Specialization(shapes)
                if self._problem is not None:
                    spec.fallbacks.append(Fallback("package", "load", self._problem))
                self._current = self._current or spec
                idle = [known for known, other in self.specializations.items() if not other.is_busy]
                while len(self.specializations) > SHAPES_KEPT and len(idle) > 1:
                    del self.specializations[idle.pop(0)]
            else:
                self.specializations.move_to_end(shapes)
            if isinstance(spec.quantized.state, states.New):
                self._begin(spec)
            return spec

    def _begin(self, spec: Specialization) -> None:
        """Look for stored results in the background. Meanwhile, the quantised model of other shapes answers."""
        aim, digest, track = self._aim, self._original.digest, spec.quantized
        if self._forbidden or aim is None:
            self._reject(spec, self._forbidden)
            return
        track.key = jobs.key_of(self.settings, digest, spec.shapes, aim.key_facts)
        if aim.takes_floats and not self._is_quantized:
            spec.direct = Track(jobs.key_of(self.settings, digest, spec.shapes, aim.key_facts, direct=True))
        if aim.takes_codes or self._is_quantized:
            self._look(spec, track)
        else:
            self._reject(spec, f"{aim.name} runs real numbers: nothing is quantised")
        if spec.direct is not None and isinstance(spec.direct.state, states.New):
            self._look(spec, spec.direct)

    def _reject(self, spec: Specialization, reason: str | None) -> None:
        spec.quantized.on(TrackEvent.REFUSE, states.Rejected(reason=reason))
        self.recorder.forget(spec.shapes)

    def _look(self, spec: Specialization, track: Track) -> None:
        track.on(TrackEvent.LOOK, states.Opening(reason=track.state.reason, serving=self._serving(spec, track)))
        self._later(partial(self._open_stored, spec, track))

    def _serving(self, spec: Specialization, track: Track) -> Serving:
        """Return the active result, else the quantised model of other shapes if the host can run it on these."""
        if track is spec.direct or track.state.serving.candidates:
            return track.state.serving
        base = states.NOTHING if self._base is None else self._base
        for candidate in base.candidates:
            try:
                candidate.executor.prepare(spec.shapes)
            except OdcError as error:
                spec.fallbacks.append(Fallback(str(Level.QUANTIZED), "load", str(error)))
                return states.NOTHING
            verdict = None if base.artefact is None else base.artefact.result.verdict
            return Serving((ExecutorCandidate(Level.QUANTIZED, candidate.executor),), self._new_watch(verdict))
        return states.NOTHING

    def _records_needed(self, spec: Specialization | None) -> int:
        return max(self.settings.records, 0 if spec is None else spec.quantized.records_needed)

    @property
    def _needs_no_records(self) -> bool:
        return self._is_quantized or self._base is not None

    def _later(self, task: Callable[[], None]) -> None:
        self.background.submit(task, always=True)

    @property
    def _is_busy(self) -> bool:
        return any(spec.is_busy for spec in self.specializations.values())

    # Next steps.

    def _start_next(self, spec: Specialization) -> None:
        if spec.direct is not None and isinstance(spec.direct.state, states.Collecting):
            if not self._closed and not self._is_busy:
                self._start(spec, spec.direct)
        elif self._may_start(spec):
            spec.asked = False
            self._start(spec, spec.quantized)

    def _may_start(self, spec: Specialization) -> bool:
        track = spec.quantized
        if not isinstance(track.state, states.Collecting) or self._closed:
            return False
        if track.retry_at is not None and not track.is_due:
            return False
        if any(isinstance(other.quantized.state, states.Working) for other in self.specializations.values()):
            return False
        if spec.is_direct_pending:
            return False  # the result must be compared with the direct track's code
        if self._base is not None and self.settings.preference is Preference.COMPILE_TIME_FIRST:
            return False  # the host is good enough for other shapes
        return self._needs_no_records or self.recorder.runs(spec.shapes) >= self._records_needed(spec)

    def _try_again(self, spec: Specialization) -> None:
        if self._closed or self._is_busy:
            return
        if isinstance(spec.quantized.state, states.Active):
            self._start(spec, spec.quantized, again=True)
        elif isinstance(spec.quantized.state, states.Rejected):
            spec.restart(None)
            self._begin(spec)

    def start_if_idle(self) -> bool:
        """Start processes if the application is idle. Return whether to check again later."""
        with self._lock:
            goals = (states.Collecting, *states.BUSY)
            specs = self.specializations.values()
            waiting = [spec for spec in specs if any(isinstance(track.state, goals) for track in spec.tracks)]
            if self._closed or not waiting:
                self._idler = None
                return False
            if time.monotonic() - self._last_run >= IDLE_SECONDS:
                for spec in waiting:
                    self._start_next(spec)
            return True

    # Processes.

    def _start(self, spec: Specialization, track: Track, *, again: bool = False) -> None:
        """Start a process for ``track``. ``again``: look for a better result than the active one."""
        is_direct = track is spec.direct
        records = not (again or is_direct or self._needs_no_records)
        base = None if again or is_direct or self._base is None else self._base.artefact
        track.start(Phase.QUANTIZING if records else Phase.COMPILING)
        launch = partial(self._launch, spec, track, base, records=records, again=again)
        if records:
            self.recorder.flush(then=partial(self._later, launch))
        else:
            self._later(launch)  # queued after withdrawals, so the process finds no withdrawn result

    def _launch(self, spec: Specialization, track: Track, base: Artefact | None, *, records: bool, again: bool) -> None:
        """Start a process, in the background. It continues with the quantised model of ``base``, if any."""
        recorder = self.recorder
        try:
            if records and recorder.refused is not None:
                self._fail(spec, track, recorder.refused, passing=False)
            elif records and recorder.runs(spec.shapes) < self._records_needed(spec):
                self._fail(spec, track, recorder.failure or "the records are not in the store yet", passing=True)
            elif base is not None and base.model is not None and not base.model.is_file():
                self._lose(spec, base.model)
            else:
                self._supervise(spec, track, self._job(spec, track, base, again=again))
        except OdcError as error:
            self._fail(spec, track, str(error), passing=error.passing)
        except Exception as error:  # for example, the system has no free threads or files
            _log.exception("no process can be started")
            self._fail(spec, track, f"{type(error).__name__}: {error}", passing=True)
        self._go_on(spec)

    def _go_on(self, spec: Specialization) -> None:
        with self._changed:
            if spec.asked or self.settings.trigger in (Trigger.AFTER_RECORDS, Trigger.FIRST_RUN):
                self._start_next(spec)
            self._changed.notify_all()

    def _job(self, spec: Specialization, track: Track, base: Artefact | None, *, again: bool) -> Job:
        assert self._aim is not None, "compilation needs a target"
        is_direct, settings, original = track is spec.direct, self.settings, self._original
        rival = None if is_direct or spec.direct is None else spec.direct.state.serving.artefact
        if base is not None and base.model is not None:
            model, digest = base.model, digest_file(base.model)
        else:
            base, model, digest = None, original.file(settings.folder), original.digest
        shapes = [list(shape) for shape in spec.shapes]
        has_own_shapes = [info.shape for info in original.graph.input_infos()] == list(spec.shapes)
        # With native code of the float model, a package would count as compiled and never get a quantised model.
        package = None if is_direct or not has_own_shapes else original.package
        return Job(
            key=track.key,
            settings=settings,
            model=str(model.absolute()),
            digest=digest,
            records=str(self.recorder.location.path),
            quantized=base is not None or self._is_quantized,
            verdict=None if base is None else base.result.verdict,
            plugin=self._aim.plugin,
            machine=self._aim.machine,
            target=list(self._aim.facts),
            twin=self._aim.twin[0] if self._aim.twin else None,
            competitor=self._aim.competitor[0] if is_direct and self._aim.competitor else None,
            shapes=shapes,
            fixed_shapes=None if has_own_shapes else shapes,
            package=None if package is None else str(package.absolute()),
            again=again,
            direct=is_direct,
            rival=None if rival is None or rival.compiled is None else str(rival.compiled),
            must_be_faster=self._aim.is_measured and base is None,
            runs=self.recorder.runs(spec.shapes) if base is None else sys.maxsize,
            patience_runs=TIMES_ENOUGH * settings.records if settings.watch else 0,
            states={pair.output: pair.input for pair in original.states},
        )

    def _supervise(self, spec: Specialization, track: Track, job: Job) -> None:
        found, _ = self.artefacts.find(job.key)
        before = None if found is None else found.result
        heard, ended = weakly(self._heard), weakly(self._ended)
        with self._lock:  # callbacks need this lock, so they wait
            assert isinstance(track.state, states.Working)
            track.on(TrackEvent.PROGRESS, replace(track.state, runs=job.runs))
            self._supervisors[:] = [item for item in self._supervisors if not item.is_over]
            self._supervisors.append(
                Supervisor(job, lambda facts: heard(spec, track, facts), lambda end: ended(spec, track, end, before))
            )

    def _heard(self, spec: Specialization, track: Track, facts: dict[str, Any]) -> None:
        with self._lock:
            state, step = track.state, facts["step"]
            if step == "not installed":
                spec.fallbacks.append(Fallback("package", "install", str(facts.get("reason"))))
            if isinstance(state, states.Working):
                phase = jobs.PHASES.get(step, state.phase)
                if track is spec.direct or _WORK.index(phase) < _WORK.index(state.phase):
                    phase = state.phase  # phases do not go back, even if the model is quantised again
                scheme = str(facts["scheme"]) if step == jobs.Milestone.TARGET_ASKED else state.scheme
                track.on(TrackEvent.PROGRESS, replace(state, is_queued=step == jobs.QUEUED, scheme=scheme, phase=phase))

    def _ended(self, spec: Specialization, track: Track, ending: jobs.Ending, before: JobResult | None) -> None:
        """Handle the end of a process, in a thread of the supervisor. ``before``: the result at the start."""
        with self._lock:
            track.end()
        self._in_background(spec, track, partial(self._conclude, spec, track, ending, before))

    def _in_background(self, spec: Specialization, track: Track, work: Callable[[], None]) -> None:
        """Call ``work`` on a track in state Opening. Even after an exception, the track leaves this state."""
        try:
            work()
        except Exception as error:  # no caller handles it
            _log.exception("a result cannot be used")
            with self._lock:
                if isinstance(track.state, states.Opening):
                    track.on(TrackEvent.REFUSE, states.Rejected(reason=f"{type(error).__name__}: {error}"))
        finally:
            self._go_on(spec)

    def _conclude(self, spec: Specialization, track: Track, ending: jobs.Ending, before: JobResult | None) -> None:
        found, problem = self.artefacts.find(track.key)
        serving = track.state.serving.artefact
        is_old = found is not None and (
            (serving is not None and found.result == serving.result)
            or (found.result.level is None and found.result == before)
        )
        if found is not None and (ending.problem is None or not is_old):
            self._take(spec, track, found)  # a process may have stored its result before it failed
            found.copy_to(*self._save_to) if track is spec.quantized else None
            return
        reason = ending.problem or problem or "nothing was made"
        if track is spec.direct and ending.problem is None and problem is None:
            self._collect(spec, track)  # another process has deleted the result
            return
        refusal = JobResult(None, reason, ending.kind, budget=self.settings.budget)
        if ending.kind == artefacts.PASSING:
            refusal.attempts, refusal.failed_at = track.attempts + 1, time.time()
        is_kept = serving is None and ending.kind in ("time", artefacts.PASSING)
        self.artefacts.clean(track.key, refusal if is_kept else None, before)
        self._fail(spec, track, reason, passing=ending.kind == artefacts.PASSING or ending.problem is None)

    def _fail(self, spec: Specialization, track: Track, reason: str, *, passing: bool) -> None:
        """Handle a process that could not start (state Working) or that produced no result (state Opening)."""
        if track is spec.direct:
            self._refuse_direct(spec, track, reason, artefacts.PASSING if passing else None)
            return
        with self._lock:
            state, retry_at = track.state, None
            assert isinstance(state, (states.Working, states.Opening))
            if passing:
                track.attempts += 1
                retry_at = time.monotonic() + max(RETRY_SECONDS, artefacts.retry_seconds(track.attempts))
            if state.leaving is not None:
                self._leave(spec, state.leaving)
            elif state.serving.artefact is not None and state.serving.candidates:
                track.on(TrackEvent.KEEP, states.Active(reason=reason, serving=state.serving, retry_at=retry_at))
            elif passing and isinstance(state, states.Working):
                track.on(TrackEvent.WAIT, states.Collecting(reason=reason, serving=state.serving, retry_at=retry_at))
            else:
                track.on(TrackEvent.REFUSE, states.Rejected(reason=reason, serving=state.serving, retry_at=retry_at))

    def _lose(self, spec: Specialization, model: Path) -> None:
        """Handle the loss of the quantised model of other shapes: record runs of ``spec.shapes`` to quantise again."""
        with self._lock:
            self._base, state = None, spec.quantized.state
            if isinstance(state, states.Working) and state.leaving is not None:
                self._leave(spec, state.leaving)
            else:
                reason = f"{model} has been deleted"
                spec.quantized.on(TrackEvent.WAIT, states.Collecting(reason=reason, serving=state.serving))
            for other in self.specializations.values():
                state = other.quantized.state
                # The shared model must not answer, because only answers of the original model are recorded.
                if isinstance(state, states.Collecting) and not other.is_busy:
                    other.quantized.on(TrackEvent.WAIT, replace(state, serving=states.NOTHING))

    # Results.

    def _open_stored(self, spec: Specialization, track: Track) -> None:
        """Use a stored result, else begin to collect records. Runs in the background."""
        if not track.is_busy or track not in spec.tracks:
            return  # the target has changed meanwhile
        self._in_background(spec, track, lambda: self._find(spec, track))
        if track is spec.quantized and isinstance(track.state, (states.Active, states.Rejected)):
            self.recorder.forget(spec.shapes)

    def _find(self, spec: Specialization, track: Track) -> None:
        found, problem = self.artefacts.find(track.key)
        if problem is not None:
            _log.warning("%s; compiling it again", problem)
            with self._lock:
                spec.fallbacks.append(Fallback("cache", "load", problem))
        if found is None:
            self._collect(spec, track)
            return
        result = found.result
        if result.waits_for_records and track is spec.quantized and not self._needs_no_records:
            self._wait_for_records(spec, track, result)
            return
        seconds = artefacts.seconds_left(result, self.settings.budget, time.time())
        if result.level is None and seconds == 0:
            track.attempts = result.attempts
            self._collect(spec, track)
            return
        self._take(spec, track, found, None if seconds is None else time.monotonic() + seconds)

    def _collect(self, spec: Specialization, track: Track, reason: str | None = None, **facts: Any) -> None:
        with self._lock:
            reason, serving = reason or track.state.reason, self._serving(spec, track)
            track.on(TrackEvent.WAIT, states.Collecting(reason=reason, serving=serving, **facts))
            if self.settings.trigger is Trigger.IDLE and (self._idler is None or not self._idler.is_alive()):
                self._idler = poll(weakly(self.start_if_idle), _IDLE_POLL_SECONDS, "odc-idle")

    def _wait_for_records(self, spec: Specialization, track: Track, result: JobResult) -> None:
        track.records_needed = result.records_needed
        spec.fallbacks.append(Fallback(str(Level.QUANTIZED), result.stage or "check", result.reason or ""))
        self._collect(spec, track, f"{result.reason}; recording more runs first", result=result)

    def _take(self, spec: Specialization, track: Track, found: Artefact, retry_at: float | None = None) -> None:
        """Open a result, verify it if inputs are known, and then let it answer."""
        result, is_direct = found.result, track is spec.direct
        if is_direct:
            if result.level is None or found.compiled is None:
                self._refuse_direct(spec, track, result.reason or "nothing was made", result.kind, result)
                return
        else:
            is_built = result.level not in (None, Level.QUANTIZED) or result.reason is None
            if not is_built and self._aim_at_next(spec, result.reason or "nothing was made", result.kind):
                return
            if result.kind == artefacts.PASSING:
                track.attempts = result.attempts
                pause = time.monotonic() + max(RETRY_SECONDS, artefacts.retry_seconds(result.attempts))
                retry_at = pause if retry_at is None else retry_at
            if result.level is None:
                self._take_refusal(spec, track, result, retry_at)
                return
        self.artefacts.touch(track.key)
        inputs = spec.sample or self.recorder.sample(spec.shapes)
        opened = open_artefact(found, self._original.graph, spec.shapes, self._options, inputs)
        if not self.artefacts.is_there(found):  # it was replaced while it was opened
            newer, _ = self.artefacts.find(track.key)
            if newer is not None:
                self._take(spec, track, newer)
                return
            if opened.fallbacks:
                self._collect(spec, track)
                return
        watch = None if is_direct else self._new_watch(result.verdict)
        if watch is not None and opened.candidates:
            watch.prepare(spec.shapes)
        if not is_direct and result.level != Level.COMPILED and result.reason is not None:
            opened.fallbacks.append(Fallback(str(Level.COMPILED), result.stage or "compile", result.reason))
        with self._lock:
            spec.fallbacks += opened.fallbacks
        reason = opened.fallbacks[-1].reason if opened.fallbacks else None
        self._serve(spec, track, Serving(tuple(opened.candidates), watch, found), reason, retry_at)

    def _serve(
        self, spec: Specialization, track: Track, serving: Serving, reason: str | None, retry_at: float | None
    ) -> None:
        with self._lock:
            state, artefact = track.state, serving.artefact
            assert isinstance(state, states.Opening)
            assert artefact is not None
            if state.leaving is not None:
                self._leave(spec, state.leaving, artefact.result)
            elif serving.candidates:
                on_host = next((item for item in serving.candidates if item.level is Level.QUANTIZED), None)
                if artefact.model is not None and on_host is not None:
                    self._base = Serving((on_host,), None, artefact)
                track.on(TrackEvent.SERVE, states.Active(reason=reason, serving=serving, retry_at=retry_at))
            elif track is not spec.direct:
                reason = reason or "nothing was made"
                track.on(TrackEvent.REFUSE, states.Rejected(reason=reason, result=artefact.result, retry_at=retry_at))
        if track is spec.direct and not serving.candidates:
            self._refuse_direct(spec, track, reason or "nothing was made", None, artefact.result)

    def _take_refusal(self, spec: Specialization, track: Track, result: JobResult, retry_at: float | None) -> None:
        """Collect more records if the refusal asks for more and our process used less than the maximum number.

        The refusal of another session may be based on fewer records than there are now. A withdrawal by a watch does
        not depend on the number of records.
        """
        with self._lock:
            state = track.state
            assert isinstance(state, states.Opening)
            most = TIMES_ENOUGH * self.settings.records
            if state.leaving is not None:
                self._leave(spec, state.leaving, result)
            elif result.waits_for_records and (state.runs < most or result.kind == artefacts.WATCH):
                self._wait_for_records(spec, track, result)
            else:
                more = "; the next session records more" if result.waits_for_records else ""
                facts: dict[str, Any] = {"serving": state.serving, "result": result, "retry_at": retry_at}
                track.on(
                    TrackEvent.REFUSE, states.Rejected(reason=f"{result.reason or 'nothing was made'}{more}", **facts)
                )

    def _refuse_direct(
        self, spec: Specialization, track: Track, reason: str, kind: str | None, result: JobResult | None = None
    ) -> None:
        """Handle missing native code of the float model. If the target runs only float models, try the next target."""
        with self._lock:
            track.on(TrackEvent.REFUSE, states.Rejected(reason=reason, result=result))
            if result is None or result.level is None:
                stage = "compile" if result is None else result.stage or "compile"
                spec.fallbacks.append(Fallback(str(Level.DIRECT), stage, reason))
        if self._aim is not None and not self._aim.takes_codes:
            self._aim_at_next(spec, reason, kind)

    def _aim_at_next(self, spec: Specialization, reason: str, kind: str | None) -> bool:
        """Use the next target from the next run on, if the user chose no target and this target yields no code.

        Do nothing if the records caused the refusal, or if compiled code for the target is active.
        """
        aim = self._aim
        others = [other for other in self.specializations.values() if other is not spec]
        serves = spec.best is Level.DIRECT or any(other.best in (Level.COMPILED, Level.DIRECT) for other in others)
        if aim is None or not aim.others or serves or kind in _OF_RECORDS:
            return False
        try:
            following = aim_at_best(aim.others, partial(self._original.file, self.settings.folder))
        except OdcError as error:
            _log.info("%s: %s", ", ".join(aim.others), error)
            return False
        with self._lock:
            self._aim = following
            self._notes += [f"{aim.name} is not compiled for: {reason}", *following.passed_over]
            for item in (spec, *(other for other in others if not other.is_busy)):
                item.restart(f"{aim.name}: {reason}")
        return True

    # Watching.

    def _new_watch(self, verdict: dict[str, Any] | None) -> Watch | None:
        if not self.settings.watch or self._is_quantized:
            return None
        terms = Terms.of(verdict, self.settings.shadow_share)
        return Watch(terms, self._original.another(self._options), weakly(self.leave))

    def leave(self, reason: str) -> None:
        """Return to the original model for all shapes and record more runs, because answers left the limits."""
        with self._lock:
            _log.warning("back to the original model: %s", reason)
            self._base = None
            for spec in self.specializations.values():
                if not spec.quantized.leave_at_end(reason) and spec.quantized.state.serving.candidates:
                    self._leave(spec, reason)

    def _leave(self, spec: Specialization, reason: str, result: JobResult | None = None) -> None:
        """Withdraw the active or new result, and record more runs than before."""
        track = spec.quantized
        if result is None and track.state.serving.artefact is not None:
            result = track.state.serving.artefact.result
        track.records_needed = self.recorder.runs(spec.shapes) + (self.settings.records << track.departures)
        track.departures += 1
        spec.fallbacks.append(Fallback(str(spec.best), "watch", reason))
        event = TrackEvent.WAIT if isinstance(track.state, (states.Opening, states.Working)) else TrackEvent.LEAVE
        track.on(event, states.Collecting(reason=reason))
        if result is not None:
            budget = {**result.budget, "runs": float(track.records_needed - 1)}
            kept: dict[str, Any] = {"scheme": result.scheme, "verdict": result.verdict, "budget": budget}
            refusal = JobResult(None, reason, artefacts.WATCH, "watch", **kept)
            package = self._original.package
            self._later(partial(artefacts.withdraw, self.artefacts, package, track.key, result, refusal))
