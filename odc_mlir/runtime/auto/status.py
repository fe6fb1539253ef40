"""Where compiling on the device stands: phases, how one follows another, and what users are told."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

SCHEMA_VERSION = 1


class Phase(StrEnum):
    """What is being done for one set of input shapes."""

    FLOAT = "float"  # nothing: the model runs as it is
    COLLECTING = "collecting"
    QUANTIZING = "quantizing"
    CHECKING = "checking"
    COMPILING = "compiling"
    ACTIVE = "active"  # something better than the model itself serves
    REJECTED = "rejected"  # there is a reason why that cannot be


class Level(StrEnum):
    """What computes the answers, best first."""

    COMPILED = "compiled"
    DIRECT = "direct"  # the model itself as code of the target: nothing is quantised
    QUANTIZED = "quantized"  # the quantised model, on the host
    ORIGINAL = "original"  # the model as it was loaded


_WORKING = (Phase.QUANTIZING, Phase.CHECKING, Phase.COMPILING)

NEXT: Mapping[Phase, frozenset[Phase]] = MappingProxyType(
    {
        # A cached result or a refusal needs no work; a quantised model no records.
        Phase.FLOAT: frozenset({Phase.COLLECTING, *_WORKING, Phase.ACTIVE, Phase.REJECTED}),
        Phase.COLLECTING: frozenset({*_WORKING, Phase.FLOAT, Phase.ACTIVE, Phase.REJECTED}),
        # Back to collecting where the process cannot start for now, the records show too little, or answers of what it
        # works on have left the limits.
        Phase.QUANTIZING: frozenset({Phase.CHECKING, Phase.COMPILING, Phase.COLLECTING, Phase.ACTIVE, Phase.REJECTED}),
        Phase.CHECKING: frozenset({Phase.COMPILING, Phase.COLLECTING, Phase.ACTIVE, Phase.REJECTED}),
        Phase.COMPILING: frozenset({Phase.COLLECTING, Phase.ACTIVE, Phase.REJECTED}),
        # Another try, where the user asks for it or what was in the way may be gone; collecting when answers have left
        # the limits.
        Phase.ACTIVE: frozenset({Phase.FLOAT, Phase.COLLECTING, *_WORKING, Phase.REJECTED}),
        Phase.REJECTED: frozenset({Phase.FLOAT, Phase.COLLECTING}),
    }
)
"""The phases that may follow each."""


@dataclass(frozen=True, slots=True)
class Fallback:
    """Something did not work, and ``level`` was given up because of ``reason``; ``stage``: where it happened."""

    level: str
    stage: str
    reason: str


@dataclass(slots=True)
class AutoStatus:
    """Everything that can be known from outside; :meth:`to_json` has stable keys.

    ``serving`` computed the last answer, or before there is one will compute the first; ``progress`` is 0 to 1.
    ``reason``: why the phase is what it is, where that needs one. ``shapes`` are the input shapes that this is about.
    ``notes`` are what else should be known, such as a setting that is ignored. ``watch``: what watching the answers has
    shown, while something else than the model serves; see watch.py. ``latency_us``: processor time of one run by level,
    as measured here side by side before something new was let serve. ``cycles``: of one run on hardware that is
    simulated, which is not what answers then.
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
        """As JSON data."""
        return {"schema_version": SCHEMA_VERSION, **asdict(self)}

    def to_json(self) -> str:
        """As text."""
        return json.dumps(self.to_dict(), indent=1)
