"""The status of on-device compilation, as users see it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

SCHEMA_VERSION = 1


class Phase(StrEnum):
    """The phase for one set of input shapes."""

    FLOAT = "float"  # nothing is known yet, and the model runs as it is
    COLLECTING = "collecting"
    QUANTIZING = "quantizing"
    CHECKING = "checking"
    COMPILING = "compiling"
    ACTIVE = "active"  # something better than the model itself serves
    REJECTED = "rejected"  # nothing does, for a reason


class Level(StrEnum):
    """The kind of executor that answers, best first."""

    COMPILED = "compiled"
    DIRECT = "direct"  # native code of the float model
    QUANTIZED = "quantized"  # the quantised model, on the host
    ORIGINAL = "original"  # the model as it was loaded


@dataclass(frozen=True, slots=True)
class Fallback:
    """A failure: ``level`` was given up at ``stage``, for ``reason``."""

    level: str
    stage: str
    reason: str


@dataclass(slots=True)
class AutoStatus:
    """The status of a session; :meth:`to_json` has stable keys.

    ``serving`` computed the last answer, or will compute the first; ``progress`` is from 0 to 1. ``reason`` explains
    the phase if necessary. ``shapes``: the input shapes that the status is about. ``notes``: other facts, such as
    ignored settings. ``watch``: facts of the watch while a result serves; see watch.py. ``latency_us``: processor time
    of a run by level, measured here side by side. ``cycles``: of a run on simulated hardware, which does not answer.
    """

    enabled: bool = False
    phase: Phase = Phase.FLOAT
    serving: Level = Level.ORIGINAL
    progress: float = 0.0
    reason: str | None = None
    records: int = 0
    records_needed: int = 0
    target: str | None = None
    scheme: str | None = None
    preference: str | None = None
    trigger: str | None = None
    shapes: list[list[int]] = field(default_factory=list)
    key: str | None = None
    artefact: str | None = None
    verdict: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    latency_us: dict[str, float] = field(default_factory=dict)
    cycles: int | None = None
    fallbacks: list[Fallback] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    watch: dict[str, Any] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the status as JSON data."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """Return the status as JSON text."""
        return json.dumps(self.to_dict(), indent=1)
