"""Compiling on the device for one set of input shapes: its phase, what serves, and what went wrong."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from odc_mlir.calibration.recorded import Shapes
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.runtime.auto.artefacts import Artefact, JobResult
from odc_mlir.runtime.auto.candidates import ExecutorCandidate
from odc_mlir.runtime.auto.status import NEXT, AutoStatus, Fallback, Level, Phase
from odc_mlir.runtime.auto.supervisor import Supervisor
from odc_mlir.runtime.auto.watch import Watch
from odc_mlir.runtime.auto.withdrawal import Given

_PROGRESS = {
    Phase.FLOAT: 0.0,
    Phase.COLLECTING: 0.0,
    Phase.QUANTIZING: 0.4,
    Phase.CHECKING: 0.6,
    Phase.COMPILING: 0.7,
    Phase.ACTIVE: 1.0,
    Phase.REJECTED: 1.0,
}
_COLLECTED = 0.4


@dataclass(slots=True)
class Direct:
    """The model itself as code, for one set of input shapes: ``candidate`` runs it, ``reason`` is why it does not.

    ``is_wanted``: nobody has tried yet; ``is_busy``: something is being done about it in the background.
    """

    key: str
    candidate: ExecutorCandidate | None = None
    artefact: Artefact | None = None
    reason: str | None = None
    supervisor: Supervisor | None = None
    is_wanted: bool = False
    is_busy: bool = False


@dataclass(slots=True)
class Specialization:
    """``candidates`` are what may compute answers instead of the model itself, best first.

    ``attempts`` have failed in a row for what may pass; another one may begin at ``retry_at``, on the monotonic clock,
    None: never. ``is_loading``: a result is being opened in the background. ``sample`` are inputs that were run.
    ``records_needed`` are more than the settings ask for where those were not enough; ``times_left`` is how often
    answers have left the limits, and ``outdated`` why what is being made or opened must not be used. ``direct`` is the
    model itself as code, where the target runs that; ``starts_next``: its user wants what follows to start then.
    ``settled`` has answered, with nothing left to be done for these shapes. ``runs_given`` is how many were recorded
    when the last process started.
    """

    shapes: Shapes
    key: str | None = None
    phase: Phase = Phase.FLOAT
    reason: str | None = None
    candidates: list[ExecutorCandidate] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    artefact: Artefact | None = None
    result: JobResult | None = None
    supervisor: Supervisor | None = None
    scheme: str | None = None
    served: Level | None = None  # what computed the last answer
    attempts: int = 0
    retry_at: float | None = None
    is_loading: bool = False
    is_concluding: bool = False
    watch: Watch | None = None
    records_needed: int = 0
    times_left: int = 0
    outdated: str | None = None
    sample: list[Array] | None = None
    direct: Direct | None = None
    starts_next: bool = False
    settled: ExecutorCandidate | None = None
    runs_given: int = 0

    def enter(self, phase: Phase, reason: str | None = None) -> None:
        """Go on to ``phase``, as the table of phases allows."""
        if phase is self.phase:
            self.reason = reason or self.reason
            return
        if phase not in NEXT[self.phase]:
            raise RuntimeError(f"the phase {phase} cannot follow {self.phase}")
        self.phase, self.reason = phase, reason

    def give_up(self, candidate: ExecutorCandidate, stage: str, reason: str) -> None:
        """Do not use ``candidate`` any more."""
        self.fallbacks.append(Fallback(str(candidate.level), stage, reason))
        if self.direct is not None and self.direct.candidate is candidate:
            self.direct.candidate, self.direct.reason = None, reason
            return
        self.candidates = [item for item in self.candidates if item is not candidate]
        if not self.candidates and self.phase is Phase.ACTIVE:
            self.enter(Phase.REJECTED, f"{candidate.level}: {reason}")

    def wait_for_records(self, result: JobResult) -> None:
        """What was recorded is not enough: ``result`` says why, and how much must be there for another try."""
        self.records_needed = result.records_needed
        self.fallbacks.append(Fallback(str(Level.QUANTIZED), result.stage or "check", result.reason or ""))
        self.enter(Phase.COLLECTING, f"{result.reason}; more is recorded first")

    def begin_anew(self, reason: str) -> None:
        """Let the next run begin as if nothing had been made."""
        self.candidates, self.artefact, self.result, self.direct, self.watch = [], None, None, None, None
        self.enter(Phase.REJECTED, reason)
        self.postpone(0, 0.0)

    def refuse(self, result: JobResult) -> None:
        """``result`` says why there is nothing, and nothing more is recorded here."""
        more = "; the next session records more" if result.waits_for_records else ""
        self.enter(Phase.REJECTED, f"{result.reason or 'nothing was made'}{more}")

    def leave(self, reason: str, runs: int, more: int) -> list[Given]:
        """Let the model itself serve again, and wait for ``more`` to be recorded than the ``runs`` there are.

        Returns what is to be taken back. While something is being made or opened that waits for the end of it.
        """
        if self.is_making and self.outdated is None:
            self.candidates, self.outdated = [], reason
            return []
        # Whoever leaves again and again was not shown enough.
        self.records_needed = runs + (more << self.times_left)
        self.times_left += 1
        self.fallbacks.append(Fallback(str(self.best), "watch", reason))
        given = [] if self.result is None or self.key is None else [Given(self.key, self.result, self.records_needed)]
        self.candidates, self.artefact, self.result, self.outdated = [], None, None, None
        self.enter(Phase.COLLECTING, reason)
        return given

    @property
    def is_working(self) -> bool:
        """Whether a process works on it."""
        return self.phase in (Phase.QUANTIZING, Phase.CHECKING, Phase.COMPILING)

    @property
    def is_making(self) -> bool:
        """Whether something that stands in for the model is being made or opened in the background."""
        return self.is_working or self.is_loading or self.is_concluding

    @property
    def is_busy(self) -> bool:
        """Whether anything is being done about it in the background."""
        return self.is_making or (self.direct is not None and self.direct.is_busy)

    @property
    def is_over(self) -> bool:
        """Whether the best that there can be serves, and nothing will change that but what is watched."""
        is_direct_over = self.direct is None or not self.direct.is_wanted
        over = self.first is not None and self.retry_at is None and self.sample is not None and is_direct_over
        return over and not self.is_busy

    @property
    def first(self) -> ExecutorCandidate | None:
        """What answers where nothing more is to be decided; None as long as something is."""
        if self.phase is Phase.ACTIVE and self.candidates:
            return self.candidates[0]
        given_up = self.phase is Phase.REJECTED and not self.candidates and self.direct is not None
        return self.direct.candidate if given_up and self.direct is not None else None

    def keep_sample(self, inputs: Sequence[Array]) -> None:
        """Remember inputs, by which what is made will be proven."""
        self.sample = [np.array(value) for value in inputs]

    def abandon(self) -> None:
        """Nobody works on it here any more."""
        self.supervisor, self.is_loading, self.is_concluding = None, False, False
        for candidate in self.candidates:
            candidate.is_being_proven = False
        if self.direct is not None and self.direct.is_busy:
            self.direct.supervisor, self.direct.is_busy, self.direct.is_wanted = None, False, True
        if self.is_working or self.phase is Phase.FLOAT:
            self.phase = Phase.ACTIVE if self.artefact is not None and self.candidates else Phase.COLLECTING

    def postpone(self, attempts: int, seconds: float) -> None:
        """After so many failures that may pass: no other try before so many ``seconds`` are over."""
        self.attempts, self.retry_at = attempts, time.monotonic() + seconds

    @property
    def is_postponed(self) -> bool:
        """Whether it is too early for another try."""
        return self.retry_at is not None and time.monotonic() < self.retry_at

    @property
    def is_due(self) -> bool:
        """Whether it is time for another try."""
        return self.retry_at is not None and not self.is_postponed and not self.is_busy

    @property
    def begins_anew(self) -> bool:
        """Whether the next run begins as if nothing had been made."""
        return self.phase is Phase.REJECTED and self.retry_at is not None and not self.attempts

    @property
    def best(self) -> Level:
        """The level of what will compute the next answer."""
        if self.candidates:
            return self.candidates[0].level
        return Level.ORIGINAL if self.direct is None or self.direct.candidate is None else Level.DIRECT

    def progress(self, records: int, needed: int) -> float:
        """From 0 to 1."""
        if self.phase is Phase.COLLECTING:
            return _COLLECTED * min(1.0, records / max(1, needed))
        return _PROGRESS[self.phase]

    def describe(self, status: AutoStatus, records: int) -> None:
        """Put into ``status`` what is known of these shapes, of which so many ``records`` are there."""
        result = self.result
        status.phase, status.reason, status.key = self.phase, self.reason, self.key
        if self.begins_anew:
            status.phase = Phase.FLOAT
        elif self.phase is Phase.REJECTED and self.direct is not None:
            if self.best is Level.DIRECT:  # something better than the model serves, and there is a reason why not more
                status.phase = Phase.ACTIVE
            elif self.direct.is_busy or self.direct.is_wanted:
                status.phase = Phase.COMPILING
        status.serving = self.served or self.best
        status.records = records
        status.progress = self.progress(records, status.records_needed)
        status.shapes = [list(shape) for shape in self.shapes]
        status.verdict = None if result is None or result.verdict is None else dict(result.verdict)
        if status.verdict is not None:
            status.verdict.pop("saturation", None)  # a line for each tensor, which nobody reads
            status.notes += [
                f"the quantised model was judged on recorded inputs: {text}"
                for text in unshown(status.verdict.get("samples"))
            ]
        status.seconds = {} if result is None else dict(result.seconds)
        status.notes += [] if result is None else result.notes
        status.scheme = (result.scheme if result is not None else None) or self.scheme
        status.artefact = None if self.artefact is None else str(self.artefact.folder)
        direct = None if self.direct is None else self.direct.artefact
        for made in (direct, self.artefact):
            status.latency_us |= {} if made is None else made.result.latency_us
        if self.artefact is None and result is not None:
            status.latency_us |= result.latency_us  # of what was refused
        given = [*self.candidates, *([self.direct.candidate] if self.direct and self.direct.candidate else [])]
        status.cycles = next((item.cycles for item in self.candidates if item.cycles is not None), None)
        status.fallbacks = self.fallbacks + [found for item in given for found in item.failures()]
        if self.watch is not None:
            status.watch = asdict(self.watch.facts)
            if status.reason is None and status.serving in (Level.ORIGINAL, Level.DIRECT):
                status.reason = self.watch.not_admitted
