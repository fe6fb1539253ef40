"""States of a specialisation, which compiles the model for one set of input shapes.

A :class:`Track` leads to one kind of result: a quantised and compiled model, or native code of the float model. A state
is an object that holds only the data of this state. docs/design/on_device.md has the diagram of TRANSITIONS.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, ClassVar

from odc_mlir.calibration.recorded import Shapes
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.runtime.auto.artefacts import Artefact, JobResult
from odc_mlir.runtime.auto.candidates import ExecutorCandidate
from odc_mlir.runtime.auto.settings import AutoStatus, Fallback, Level, Phase, simulated_note
from odc_mlir.runtime.auto.watch import Watch
from odc_mlir.runtime.execution.executor import HostExecutor

_PROGRESS: Mapping[Phase, float] = MappingProxyType(
    {
        Phase.FLOAT: 0.0,
        Phase.COLLECTING: 0.4,  # when enough runs are recorded
        Phase.QUANTIZING: 0.4,
        Phase.CHECKING: 0.6,
        Phase.COMPILING: 0.7,
        Phase.ACTIVE: 1.0,
        Phase.REJECTED: 1.0,
    }
)


@dataclass(frozen=True, slots=True)
class Serving:
    """Executors that answer instead of the model, best first. If ``artefact`` is None, the shapes differ."""

    candidates: tuple[ExecutorCandidate, ...] = ()
    watch: Watch | None = None
    artefact: Artefact | None = None


NOTHING = Serving()
"""No executors: the original model answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackState:
    """Base of all states: ``reason`` explains the state if necessary. Executors of ``serving`` answer meanwhile."""

    PHASE: ClassVar[Phase] = Phase.FLOAT
    reason: str | None = None
    serving: Serving = NOTHING

    @property
    def phase(self) -> Phase:
        """The phase in the status."""
        return self.PHASE


@dataclass(frozen=True, slots=True, kw_only=True)
class New(TrackState):
    """Start state. The next run begins the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening(TrackState):
    """State in which a thread reads, opens and verifies a stored or new result.

    ``runs``: number of recorded runs that the process used. ``leaving``: why the result must not be used, if answers
        left the limits.
    """

    phase: Phase = Phase.FLOAT
    runs: int = 0
    scheme: str | None = None
    leaving: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Collecting(TrackState):
    """State in which runs are recorded until there are enough and, if set, until ``retry_at`` (monotonic clock).

    ``result``: a refusal that asks for more records
    """

    PHASE: ClassVar[Phase] = Phase.COLLECTING
    result: JobResult | None = None
    retry_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Working(TrackState):
    """State in which a compile process works, or waits in the queue (``is_queued``). Other fields: see Opening."""

    phase: Phase
    is_queued: bool = False
    runs: int = 0
    scheme: str | None = None
    leaving: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Active(TrackState):
    """State in which a result answers. At ``retry_at`` another process tries to produce a better result."""

    PHASE: ClassVar[Phase] = Phase.ACTIVE
    retry_at: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifying(Active):
    """State Active while a thread verifies ``candidate`` by the first known inputs."""

    candidate: ExecutorCandidate


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected(TrackState):
    """State with no result, for a lasting reason, or until a retry at ``retry_at``."""

    PHASE: ClassVar[Phase] = Phase.REJECTED
    result: JobResult | None = None
    retry_at: float | None = None


class TrackEvent(StrEnum):
    """Causes of a change of state."""

    LOOK = "look"  # look for a stored result
    WAIT = "wait"  # no result can be opened; more records or time are needed first
    START = "start"  # start a process
    PROGRESS = "progress"
    END = "end"  # the process has ended
    SERVE = "serve"  # executors are open and verified
    KEEP = "keep"  # there is no better result
    VERIFY = "verify"  # verify an executor for which no input was known before
    GIVE_UP = "give up"  # an executor has failed; others remain
    EXHAUST = "exhaust"  # the last executor has failed
    REFUSE = "refuse"
    LEAVE = "leave"  # answers have left the accuracy limits
    RESTART = "restart"  # start again: another target, a retry, or the user's request


_ARROWS: tuple[tuple[type[TrackState], type[TrackState], tuple[TrackEvent, ...]], ...] = (
    (New, Opening, (TrackEvent.LOOK,)),
    (New, Rejected, (TrackEvent.REFUSE,)),
    (Opening, Collecting, (TrackEvent.WAIT,)),
    (Opening, Active, (TrackEvent.SERVE, TrackEvent.KEEP)),
    (Opening, Rejected, (TrackEvent.REFUSE,)),
    (Opening, Opening, (TrackEvent.GIVE_UP, TrackEvent.LEAVE)),
    (Opening, New, (TrackEvent.RESTART,)),
    (Collecting, Working, (TrackEvent.START,)),
    (Collecting, Collecting, (TrackEvent.WAIT, TrackEvent.GIVE_UP, TrackEvent.LEAVE)),
    (Collecting, Rejected, (TrackEvent.REFUSE,)),
    (Collecting, New, (TrackEvent.RESTART,)),
    (Working, Working, (TrackEvent.PROGRESS, TrackEvent.GIVE_UP, TrackEvent.LEAVE)),
    (Working, Opening, (TrackEvent.END,)),
    (Working, Collecting, (TrackEvent.WAIT,)),
    (Working, Active, (TrackEvent.KEEP,)),
    (Working, Rejected, (TrackEvent.REFUSE,)),
    (Active, Working, (TrackEvent.START,)),
    (Active, Verifying, (TrackEvent.VERIFY,)),
    (Active, Active, (TrackEvent.GIVE_UP,)),
    (Active, Rejected, (TrackEvent.EXHAUST,)),
    (Active, Collecting, (TrackEvent.LEAVE,)),
    (Active, New, (TrackEvent.RESTART,)),
    (Verifying, Active, (TrackEvent.SERVE, TrackEvent.KEEP, TrackEvent.GIVE_UP)),
    (Verifying, Rejected, (TrackEvent.EXHAUST,)),
    (Verifying, Collecting, (TrackEvent.LEAVE,)),
    (Rejected, Rejected, (TrackEvent.GIVE_UP,)),
    (Rejected, Collecting, (TrackEvent.LEAVE,)),
    (Rejected, New, (TrackEvent.RESTART,)),
)
TRANSITIONS: Mapping[tuple[type[TrackState], TrackEvent], type[TrackState]] = MappingProxyType(
    {(source, event): target for source, target, events in _ARROWS for event in events}
)
"""Next state by state and event. Other events cannot happen in a state."""

BUSY = (Opening, Working, Verifying)
"""States with work in the background."""


class Track:
    """Progress towards one kind of result: the current state, and counters that outlive states.

    ``attempts``: consecutive temporary failures. ``departures``: how often answers left the limits. After each
        departure, ``records_needed`` runs must be recorded.
    """

    __slots__ = ("attempts", "departures", "key", "records_needed", "state")

    def __init__(self, key: str = "") -> None:
        self.key = key
        self.state: TrackState = New()
        self.attempts = self.departures = self.records_needed = 0

    def on(self, event: TrackEvent, state: TrackState) -> None:
        """Change to ``state`` because of ``event``. Raises RuntimeError unless TRANSITIONS allows it."""
        before = type(self.state)
        if TRANSITIONS.get((before, event)) is not type(state):
            raise RuntimeError(f"{event!r} cannot lead from {before.__name__} to {type(state).__name__}")
        self.state = state

    @property
    def is_busy(self) -> bool:
        """Whether background work is pending."""
        return isinstance(self.state, BUSY)

    @property
    def retry_at(self) -> float | None:
        """Time of the next retry on the monotonic clock, or None."""
        state = self.state
        return state.retry_at if isinstance(state, (Collecting, Active, Rejected)) else None

    @property
    def is_due(self) -> bool:
        """Whether the next attempt may start."""
        return not self.is_busy and self.retry_at is not None and time.monotonic() >= self.retry_at

    @property
    def result(self) -> JobResult | None:
        """The result that answers, or the refusal that explains the state."""
        state = self.state
        if state.serving.artefact is not None:
            return state.serving.artefact.result
        return state.result if isinstance(state, (Collecting, Rejected)) else None

    @property
    def collects(self) -> bool:
        """Whether to record runs of the original model, also during the first search for a stored result."""
        state = self.state
        return isinstance(state, Collecting) or (isinstance(state, Opening) and state.phase is Phase.FLOAT)

    def start(self, phase: Phase) -> None:
        """Enter Working. Keep the reason why records were not enough, because the original model still answers."""
        state = self.state
        reason = None if state.serving.candidates else state.reason
        self.on(TrackEvent.START, Working(phase=phase, reason=reason, serving=state.serving))

    def end(self) -> None:
        """Handle the end of the process."""
        state = self.state
        assert isinstance(state, Working)
        facts = {name: getattr(state, name) for name in ("reason", "serving", "phase", "runs", "scheme", "leaving")}
        self.on(TrackEvent.END, Opening(**facts))

    def verify(self, candidate: ExecutorCandidate) -> bool:
        """Enter Verifying if ``candidate`` needs verification. Return whether the caller must verify it."""
        state = self.state
        if type(state) is not Active:
            return False
        facts: dict[str, Any] = {"reason": state.reason, "serving": state.serving, "retry_at": state.retry_at}
        self.on(TrackEvent.VERIFY, Verifying(candidate=candidate, **facts))
        return True

    def verified(self) -> None:
        """Handle the verification of the candidate."""
        state = self.state
        assert isinstance(state, Verifying)
        self.on(TrackEvent.SERVE, Active(reason=state.reason, serving=state.serving, retry_at=state.retry_at))

    def leave_at_end(self, reason: str) -> bool:
        """Mark a pending result, which builds on a failed result, to be discarded. Return whether there is one."""
        state = self.state
        if not isinstance(state, (Opening, Working)):
            return False
        serving = replace(state.serving, candidates=())
        self.on(TrackEvent.LEAVE, replace(state, serving=serving, leaving=state.leaving or reason))
        return True

    def give_up(self, candidate: ExecutorCandidate, reason: str) -> None:
        """Stop using ``candidate``."""
        state = self.state
        others = tuple(item for item in state.serving.candidates if item is not candidate)
        serving = replace(state.serving, candidates=others)
        if not isinstance(state, Active):
            self.on(TrackEvent.GIVE_UP, replace(state, serving=serving))
        elif serving.candidates:
            self.on(TrackEvent.GIVE_UP, Active(reason=state.reason, serving=serving, retry_at=state.retry_at))
        else:
            self.on(TrackEvent.EXHAUST, Rejected(reason=reason, result=self.result))

    def abandon(self) -> None:
        """Leave a busy state in a forked child, which has no workers: keep the active result, or collect records."""
        state = self.state
        if isinstance(state, BUSY):
            is_served = state.serving.artefact is not None and state.serving.candidates
            if is_served or isinstance(state, Verifying):
                self.on(TrackEvent.KEEP, Active(reason=state.reason, serving=state.serving))
            else:
                self.on(TrackEvent.WAIT, Collecting(reason=state.reason, serving=state.serving))


@dataclass(slots=True)
class Specialization:
    """State for inputs of ``shapes``: tracks, and data about runs.

    ``direct``: track to native code of the float model, for targets that run float models. ``fallbacks``: log of
        failures. ``sample``: inputs of a run. ``served``: level of the last answer. ``asked``: the user has requested
        the next step. ``settled``: the executor for these shapes, if no job, verification or record is pending.
    """

    shapes: Shapes
    quantized: Track = field(default_factory=Track)
    direct: Track | None = None
    fallbacks: list[Fallback] = field(default_factory=list)
    sample: list[Array] | None = None
    served: Level | None = None
    asked: bool = False
    settled: ExecutorCandidate | None = None

    @property
    def tracks(self) -> list[Track]:
        return [self.quantized] if self.direct is None else [self.quantized, self.direct]

    @property
    def is_busy(self) -> bool:
        """Whether background work is pending."""
        return any(track.is_busy for track in self.tracks)

    @property
    def is_direct_pending(self) -> bool:
        """Whether the direct track has no outcome yet."""
        return self.direct is not None and isinstance(self.direct.state, (New, Opening, Collecting, Working))

    @property
    def direct_candidate(self) -> ExecutorCandidate | None:
        """The executor of the float model's native code."""
        return next(iter(self.direct.state.serving.candidates), None) if self.direct is not None else None

    def candidates(self, *, direct: bool) -> list[ExecutorCandidate]:
        """Return the executors that may replace the model, best first. ``direct``: include the direct track's."""
        found = list(self.quantized.state.serving.candidates)
        if not direct or self.direct_candidate is None:
            return found
        compiled = [item for item in found if item.level is Level.COMPILED]
        return [*compiled, self.direct_candidate, *(item for item in found if item.level is not Level.COMPILED)]

    @property
    def watch(self) -> Watch | None:
        return self.quantized.state.serving.watch

    @property
    def first(self) -> ExecutorCandidate | None:
        """The executor that answers if no decision is pending, else None."""
        state = self.quantized.state
        if isinstance(state, Active) and state.serving.candidates:
            return state.serving.candidates[0]
        return self.direct_candidate if isinstance(state, Rejected) and not state.serving.candidates else None

    @property
    def is_over(self) -> bool:
        """Whether the best possible executor answers, so that only a watch can change the executor."""
        over = self.first is not None and self.quantized.retry_at is None and self.sample is not None
        return over and not self.is_direct_pending and not self.is_busy

    @property
    def best(self) -> Level:
        """The level of the next answer."""
        candidates = self.quantized.state.serving.candidates
        if candidates:
            return candidates[0].level
        return Level.ORIGINAL if self.direct_candidate is None else Level.DIRECT

    def restart(self, reason: str | None) -> None:
        """Drop all results. The next run begins again. With a ``reason``, no result may answer in the meantime."""
        serving = NOTHING if reason is not None else replace(self.quantized.state.serving, artefact=None)
        self.direct = None
        if not isinstance(self.quantized.state, New):
            self.quantized.on(TrackEvent.RESTART, New(reason=reason, serving=serving))

    def give_up(self, candidate: ExecutorCandidate, stage: str, reason: str) -> None:
        """Stop using ``candidate``."""
        self.fallbacks.append(Fallback(str(candidate.level), stage, reason))
        for track in self.tracks:
            if any(item is candidate for item in track.state.serving.candidates):
                track.give_up(candidate, f"{candidate.level}: {reason}")

    # Entries of the status.

    @property
    def phase(self) -> Phase:
        """The phase in the status."""
        phase = self.quantized.state.phase
        if phase is Phase.REJECTED and self.best is Level.DIRECT:  # native code of the float model is active
            return Phase.ACTIVE
        return Phase.COMPILING if phase is Phase.REJECTED and self.is_direct_pending else phase

    @property
    def reason(self) -> str | None:
        """The reason in the status."""
        state = self.quantized.state
        working = [track.state for track in self.tracks if isinstance(track.state, Working)]
        if state.reason is None and any(item.is_queued for item in working):
            return "another compile process is at work"
        if state.reason is None and working and isinstance(state, Collecting):
            return "the float model itself is compiled first"
        if all(isinstance(track.state, Rejected) for track in self.tracks):
            return "; ".join(dict.fromkeys(track.state.reason for track in self.tracks if track.state.reason)) or None
        return state.reason

    def describe(self, status: AutoStatus, records: int) -> None:
        """Set the entries of ``status``. ``records``: number of recorded runs of these shapes."""
        state, result = self.quantized.state, self.quantized.result
        artefact = state.serving.artefact
        status.phase, status.reason, status.key = self.phase, self.reason, self.quantized.key or None
        status.serving = self.served or self.best
        status.records = records
        status.progress = _PROGRESS[state.phase]
        if state.phase is Phase.COLLECTING:
            status.progress *= min(1.0, records / max(1, status.records_needed))
        status.shapes = [list(shape) for shape in self.shapes]
        status.artefact = None if artefact is None else str(artefact.folder)
        if isinstance(state, (Opening, Working)):
            status.scheme = state.scheme or status.scheme
        direct = None if self.direct is None else self.direct.state.serving.artefact
        status.latency_us |= {} if direct is None else direct.result.latency_us
        if result is not None:
            status.scheme = result.scheme or status.scheme
            status.seconds = dict(result.seconds)
            status.latency_us |= result.latency_us
            status.verdict = None if result.verdict is None else dict(result.verdict)
            if status.verdict is not None:
                status.verdict.pop("saturation", None)  # too long: a line for each tensor
                judged = "the quantised model was judged on recorded inputs"
                status.notes += [f"{judged}: {text}" for text in unshown(status.verdict.get("samples"))]
            status.notes += result.notes
        simulated = next((item for item in state.serving.candidates if item.simulation is not None), None)
        if simulated is not None:
            by = "a host kernel for each operator" if isinstance(simulated.executor, HostExecutor) else "native code"
            status.cycles = simulated.cycles
            status.notes.append(simulated_note(status.target, by))
        failures = [found for item in self.candidates(direct=True) for found in item.failures()]
        status.fallbacks = [*self.fallbacks, *failures]
        if self.watch is not None:
            status.watch = asdict(self.watch.facts)
            if status.reason is None and status.serving in (Level.ORIGINAL, Level.DIRECT):
                status.reason = self.watch.not_admitted
