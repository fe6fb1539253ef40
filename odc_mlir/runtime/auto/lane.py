"""Compiling on the device for one set of input shapes: its phase, what serves, and what went wrong."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from odc_mlir.quantization.recorded import Shapes
from odc_mlir.runtime.auto.artefacts import Artefact, Result
from odc_mlir.runtime.auto.serving import Serving
from odc_mlir.runtime.auto.status import NEXT, Fallback, Level, Phase
from odc_mlir.runtime.auto.supervisor import Supervisor

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
class Lane:
    """``servings`` are what may compute answers instead of the model itself, best first."""

    shapes: Shapes
    key: str | None = None
    phase: Phase = Phase.FLOAT
    reason: str | None = None
    servings: list[Serving] = field(default_factory=list)
    fallbacks: list[Fallback] = field(default_factory=list)
    artefact: Artefact | None = None
    result: Result | None = None
    supervisor: Supervisor | None = None
    scheme: str | None = None
    served: Level | None = None  # what computed the last answer

    def enter(self, phase: Phase, reason: str | None = None) -> None:
        """Go on to ``phase``, as the table of phases allows."""
        if phase is self.phase:
            self.reason = reason or self.reason
            return
        if phase not in NEXT[self.phase]:
            raise RuntimeError(f"the phase {phase} cannot follow {self.phase}")
        self.phase, self.reason = phase, reason

    def give_up(self, serving: Serving, stage: str, reason: str) -> None:
        """Do not use ``serving`` any more."""
        self.fallbacks.append(Fallback(str(serving.level), stage, reason))
        self.servings = [item for item in self.servings if item is not serving]
        if not self.servings and self.phase is Phase.ACTIVE:
            self.enter(Phase.REJECTED, f"{serving.level}: {reason}")

    @property
    def is_working(self) -> bool:
        """Whether a process works on it."""
        return self.phase in (Phase.QUANTIZING, Phase.CHECKING, Phase.COMPILING)

    @property
    def best(self) -> Level:
        """The level of what will compute the next answer."""
        return self.servings[0].level if self.servings else Level.ORIGINAL

    def progress(self, records: int, needed: int) -> float:
        """From 0 to 1."""
        if self.phase is Phase.COLLECTING:
            return _COLLECTED * min(1.0, records / max(1, needed))
        return _PROGRESS[self.phase]

    def facts(self) -> dict[str, Any]:
        """What the result says."""
        result = self.result
        return {
            "verdict": None if result is None else result.verdict,
            "seconds": {} if result is None else dict(result.seconds),
            "scheme": (result.scheme if result is not None else None) or self.scheme,
            "artefact": None if self.artefact is None else str(self.artefact.folder),
        }
