"""Compiles the model itself, for targets that run what it computes with: no records, no question of accuracy."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.auto.artefacts import PASSING, Artefact, JobResult, seconds_left
from odc_mlir.runtime.auto.background import weakly
from odc_mlir.runtime.auto.candidates import open_artefact
from odc_mlir.runtime.auto.job import key_of, make_job
from odc_mlir.runtime.auto.shared import Shared
from odc_mlir.runtime.auto.specialization import Direct, Specialization
from odc_mlir.runtime.auto.status import Fallback, Level
from odc_mlir.runtime.auto.supervisor import Ending

_log = logging.getLogger(__name__)

LEVEL = Level.DIRECT


class DirectStep:
    """The first step of a session: the float model as code.

    ``ended`` is told when it is over for some shapes, before that ``refused`` where nothing is made for them: the
    reason, and its kind as of a result.
    """

    def __init__(
        self,
        shared: Shared,
        ended: Callable[[Specialization], None],
        refused: Callable[[Specialization, str, str | None], None],
    ) -> None:
        self._shared = shared
        self._tell = ended
        self._tell_refusal = refused

    def begin(self, state: Specialization) -> None:
        """Look for what was made before; where there is nothing it is wanted."""
        shared, aim = self._shared, self._shared.aim
        if aim is None or not aim.takes_floats:
            return
        key = key_of(shared.settings, shared.original.digest, state.shapes, aim.key_facts, direct=True)
        state.direct = Direct(key)
        if not shared.artefacts.has_files(key):
            self._load(state, state.direct)
            return
        self._in_background(state, state.direct, self._load)

    def may_start(self, state: Specialization) -> bool:
        """Whether it is wanted for ``state``, and nothing else is worked on."""
        if state.direct is None or not state.direct.is_wanted or self._shared.closed:
            return False
        return not any(other.is_busy for other in self._shared.specializations.values())

    def start(self, state: Specialization) -> None:
        """Let a process make it."""
        if state.direct is not None:
            self._in_background(state, state.direct, self._launch)

    def _in_background(
        self, state: Specialization, direct: Direct, task: Callable[[Specialization, Direct], None]
    ) -> None:
        direct.is_wanted, direct.is_busy = False, True
        if not self._shared.background.submit(lambda: task(state, direct)):
            direct.is_wanted, direct.is_busy = True, False

    def _load(self, state: Specialization, direct: Direct) -> None:
        """Take what is there; raises nothing."""
        artefacts = self._shared.artefacts
        try:
            found, problem = artefacts.find(direct.key)
            if problem is not None:
                with self._shared.lock:
                    state.fallbacks.append(Fallback("cache", "load", problem))
            if found is None or (
                found.result.level is None and seconds_left(found.result, self._shared.budget, time.time()) == 0
            ):
                direct.is_wanted = True
                return
            self._take(state, direct, found)
        finally:
            self._over(state, direct)

    def _launch(self, state: Specialization, direct: Direct) -> None:
        shared = self._shared
        assert shared.aim is not None, "nothing begins without"
        try:
            job = make_job(
                shared.settings,
                shared.aim,
                shared.original,
                None,
                state.shapes,
                key=direct.key,
                records=str(shared.recorder.place.path),
                direct=True,
                must_be_faster=shared.aim.is_measured,
            )
            ended = weakly(self._ended)
            with shared.lock:  # which whoever hears of its end needs too
                direct.supervisor = shared.supervise(
                    job, lambda _facts: None, lambda ending: ended(state, direct, ending)
                )
        except OdcError as error:
            self._refuse(state, direct, str(error), kind=PASSING if error.passing else None)
            self._over(state, direct)
        except Exception as error:  # a background thread has nobody else to tell; no thread, no file may be left now
            _log.exception("no process can be started")
            self._refuse(state, direct, f"{type(error).__name__}: {error}", kind=PASSING)
            self._over(state, direct)

    def _ended(self, state: Specialization, direct: Direct, ending: Ending) -> None:
        """The process has ended: in a thread of its supervisor."""
        artefacts = self._shared.artefacts
        try:
            found, problem = artefacts.find(direct.key)
            if found is not None:
                self._take(state, direct, found)
                return
            if ending.problem is None and problem is None:  # what it has made was deleted by another process
                direct.is_wanted = True
                return
            reason = ending.problem or problem or "nothing was made"
            self._refuse(state, direct, reason, kind=ending.kind)
            kept = JobResult(None, reason, ending.kind, budget=self._shared.budget) if ending.kind == "time" else None
            artefacts.clean(direct.key, kept)
        except Exception as error:  # a background thread has nobody else to tell
            _log.exception("what was made cannot be used")
            self._refuse(state, direct, f"{type(error).__name__}: {error}", kind=PASSING)
        finally:
            direct.supervisor = None
            self._over(state, direct)

    def _take(self, state: Specialization, direct: Direct, found: Artefact) -> None:
        """Let a result serve: opened and, where inputs are known, proven."""
        shared, result = self._shared, found.result
        if result.level is None or found.compiled is None:
            self._refuse(state, direct, result.reason or "nothing was made", result.stage, kind=result.kind)
            return
        shared.artefacts.touch(direct.key)
        inputs: Sequence[Array] | None = state.sample or shared.recorder.sample(state.shapes)
        opened = open_artefact(found, shared.original.graph, state.shapes, shared.options, inputs)
        if not shared.artefacts.is_there(found):  # so parts of two may have been opened, or none
            newer, _ = shared.artefacts.find(direct.key)
            if newer is not None:
                self._take(state, direct, newer)
                return
            if opened.fallbacks:
                direct.is_wanted = True
                return
        with shared.lock:
            state.fallbacks += opened.fallbacks
            direct.artefact = found
            direct.candidate = opened.candidates[0] if opened.candidates else None
            if opened.fallbacks:
                direct.reason = opened.fallbacks[-1].reason
        if direct.candidate is None:
            self._tell_refusal(state, direct.reason or "nothing was made", None)

    def _refuse(
        self, state: Specialization, direct: Direct, reason: str, stage: str | None = None, *, kind: str | None
    ) -> None:
        with self._shared.lock:
            direct.reason = reason
            state.fallbacks.append(Fallback(str(LEVEL), stage or "compile", reason))
        self._tell_refusal(state, reason, kind)

    def _over(self, state: Specialization, direct: Direct) -> None:
        with self._shared.changed:
            direct.is_busy = False
            self._tell(state)
            self._shared.changed.notify_all()
