"""Starts processes that make something better than what there is, and takes in what they have made."""

from __future__ import annotations

import logging
import sys
import time
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any

from odc_mlir.errors import OdcError
from odc_mlir.plugins.request import Preference
from odc_mlir.runtime.auto.artefacts import PASSING, Artefact, JobResult, retry_seconds
from odc_mlir.runtime.auto.background import weakly
from odc_mlir.runtime.auto.job import PHASES, QUEUED, Job, Milestone, make_job
from odc_mlir.runtime.auto.shared import Shared
from odc_mlir.runtime.auto.specialization import Specialization
from odc_mlir.runtime.auto.status import NEXT, Fallback, Phase
from odc_mlir.runtime.auto.supervisor import Ending

_log = logging.getLogger(__name__)

# What failed and may pass is not tried again earlier in the same process, and then less and less often.
RETRY_SECONDS = 30.0


class JobRunner(ABC):
    """The half of compiling on the device that works: from records to a result, by a process for each.

    ``save_to``: where the quantised model and the compiled one are to be copied, if anywhere.
    """

    def __init__(self, shared: Shared, save_to: tuple[Path | None, Path | None]) -> None:
        self.shared = shared
        self._save_to = save_to
        # A result whose quantised model serves other shapes too.
        self._base: Artefact | None = None

    @abstractmethod
    def _take(self, state: Specialization, found: Artefact) -> None:
        """Let a result serve."""

    @abstractmethod
    def _leave(self, state: Specialization, reason: str) -> None:
        """Do not use what there is, or will be, for ``state``."""

    @abstractmethod
    def _begin(self, state: Specialization) -> None:
        """Take what is there already, else begin to collect, or to work where no records are needed."""

    @abstractmethod
    def _records_needed(self, state: Specialization | None) -> int:
        """How many runs must be recorded."""

    @abstractmethod
    def _needs_no_records(self, state: Specialization) -> bool:
        """Whether there is nothing to be quantised."""

    def _may_start(self, state: Specialization) -> bool:
        if state.phase is not Phase.COLLECTING or self.shared.closed or state.is_postponed:
            return False
        if any(other.is_working for other in self.shared.specializations.values()):
            return False
        if state.direct is not None and (state.direct.is_busy or state.direct.is_wanted):
            return False  # what is made afterwards is compared with it
        if self._base is not None and self.shared.settings.preference is Preference.COMPILE_TIME_FIRST:
            return False  # the host serves other shapes well enough
        return self._needs_no_records(state) or self.shared.recorder.runs(state.shapes) >= self._records_needed(state)

    def _try_again(self, state: Specialization) -> None:
        """What failed before may work by now."""
        if self.shared.closed or any(other.is_busy for other in self.shared.specializations.values()):
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

        def launch_in_turn() -> None:
            # What was given up is taken back before, or the process would find it, and leave it at that.
            self.shared.background.submit(launch, always=True)

        if needs_none:
            launch_in_turn()
        else:  # which must be in the store before
            self.shared.recorder.flush(then=launch_in_turn)

    def _launch(self, state: Specialization, base: Artefact | None, *, needs_records: bool, again: bool) -> None:
        """Start a process for ``state``: in the background."""
        try:
            if needs_records and self.shared.recorder.refused is not None:
                self._stay(state, self.shared.recorder.refused, passing=False)
            elif needs_records and self.shared.recorder.runs(state.shapes) < self._records_needed(state):
                self._stay(state, self.shared.recorder.failure or "the records are not in the store yet", passing=True)
            elif base is not None and base.model is not None and not base.model.is_file():
                self._lose(state, base)
            else:
                self._supervise(state, self._job(state, base, again=again))
        except OdcError as error:
            self._stay(state, str(error), passing=error.passing)
        except Exception as error:  # a background thread has nobody else to tell; no thread, no file may be left now
            _log.exception("no process can be started")
            self._stay(state, f"{type(error).__name__}: {error}", passing=True)

    def _supervise(self, state: Specialization, job: Job) -> None:
        heard, ended = weakly(self._heard), weakly(self._ended)
        found, _ = self.shared.artefacts.find(job.key)
        before = None if found is None else found.result
        with self.shared.lock:  # which whoever hears of its end needs too
            state.runs_given = job.runs
            state.supervisor = self.shared.supervise(
                job, lambda facts: heard(state, facts), lambda ending: ended(state, ending, before)
            )

    def _lose(self, state: Specialization, base: Artefact) -> None:
        """The model that was to serve ``state`` too has been deleted: these shapes are recorded as the first ones."""
        with self.shared.changed:
            if self._base is base:
                self._base = None
            if state.outdated is not None:
                self._leave(state, state.outdated)
            state.enter(Phase.COLLECTING, f"{base.model} has been deleted")
            for other in self.shared.specializations.values():
                if other.phase is Phase.COLLECTING and not other.is_busy:  # what is borrowed would answer unrecorded
                    other.candidates, other.watch = [], None
            self.shared.changed.notify_all()

    def _stay(self, state: Specialization, reason: str, *, passing: bool) -> None:
        """No process has started, or it has brought nothing."""
        with self.shared.changed:
            if passing:
                state.attempts += 1
                state.postpone(state.attempts, max(RETRY_SECONDS, retry_seconds(state.attempts)))
            if state.outdated is not None:
                self._leave(state, state.outdated)
            elif state.artefact is not None and state.candidates:
                state.enter(Phase.ACTIVE, reason)
            elif passing and state.supervisor is None:
                state.enter(Phase.COLLECTING, reason)
            else:
                state.enter(Phase.REJECTED, reason)
            self.shared.changed.notify_all()

    def _job(self, state: Specialization, base: Artefact | None, *, again: bool) -> Job:
        aim, direct = self.shared.aim, None if state.direct is None else state.direct.artefact
        assert aim is not None, "nothing begins without"
        return make_job(
            self.shared.settings,
            aim,
            self.shared.original,
            base,
            state.shapes,
            key=state.key or "",
            records=str(self.shared.recorder.place.path),
            again=again,
            rival=None if direct is None or direct.compiled is None else str(direct.compiled),
            must_be_faster=aim.is_measured and base is None,
            runs=self.shared.recorder.runs(state.shapes) if base is None else sys.maxsize,
        )

    def _heard(self, state: Specialization, facts: dict[str, Any]) -> None:
        """The process says how far it is: in a thread of its supervisor."""
        with self.shared.lock:
            step = facts["step"]
            if step == QUEUED:
                state.reason = "another compile process is at work"
            elif step == Milestone.STARTED and state.reason == "another compile process is at work":
                state.reason = None
            if step == Milestone.TARGET_ASKED:
                state.scheme = str(facts.get("scheme"))
            if step == "not installed":
                state.fallbacks.append(Fallback("package", "install", str(facts.get("reason"))))
            phase = PHASES.get(Milestone(step)) if step in set(Milestone) else None
            # What was to be compiled only may have to be quantised again: the phase stays then.
            if phase is not None and state.is_working and phase in NEXT[state.phase]:
                state.enter(phase, state.reason)

    def _ended(self, state: Specialization, ending: Ending, before: JobResult | None) -> None:
        """The process has ended: in a thread of its supervisor. ``before``: the result that there was when it began."""
        state.is_concluding = True
        try:
            self._conclude(state, ending, before)
        except Exception as error:  # a background thread has nobody else to tell
            _log.exception("what was made cannot be used")
            with self.shared.lock:
                state.candidates = []
                state.enter(Phase.REJECTED, f"{type(error).__name__}: {error}")
        finally:
            with self.shared.changed:
                state.is_concluding = False
                state.supervisor = None
                self.shared.changed.notify_all()

    def _conclude(self, state: Specialization, ending: Ending, before: JobResult | None) -> None:
        key = state.key or ""
        found, problem = self.shared.artefacts.find(key)
        if ending.problem is not None or found is None:
            reason = ending.problem or problem or "nothing was made"
            serving = None if state.artefact is None else state.artefact.result
            is_old = found is not None and (
                found.result == serving or (found.result.level is None and found.result == before)
            )
            if found is not None and not is_old:
                self._take(state, found)  # it ended after it had done its work
                return
            # What a process that ended well has made, and is not there, was deleted by another one.
            self._stay(state, reason, passing=ending.kind == PASSING or ending.problem is None)
            refusal = JobResult(None, reason, ending.kind, budget=self.shared.budget)
            if ending.kind == PASSING:
                refusal.attempts, refusal.failed_at = state.attempts, time.time()
            is_kept = state.artefact is None and ending.kind in ("time", PASSING)
            self.shared.artefacts.clean(key, refusal if is_kept else None, before)
            return
        self._take(state, found)
        found.copy_to(*self._save_to)
