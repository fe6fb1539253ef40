"""Records of a model: statistics by tensor, facts about its inputs, findings."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import TensorStatistics

TensorKey = tuple[int, str]
"""Index of the subgraph and name of the tensor."""

Shapes = tuple[tuple[int, ...], ...]
"""Those of a model's inputs, in order."""


Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class RecordFinding:
    """One thing to know. ``kind`` is a stable key; ``tensor`` is empty when it is about all of the model."""

    severity: Severity
    kind: str
    text: str
    tensor: str = ""
    subgraph: int = 0

    def __str__(self) -> str:
        return f"{self.tensor!r}: {self.text}" if self.tensor else self.text


@dataclass(slots=True)
class InputFacts:
    """What all samples of one float input have in common.

    ``first`` is a digest of the first sample, empty before there is one; ``identical``: all others are the same;
    ``whole``: all values are whole numbers.
    """

    first: str = ""
    identical: bool = True
    whole: bool = True

    def add(self, value: NDArray[Any]) -> None:
        """Take in one sample."""
        if not self.first or self.identical:
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            self.identical = self.first in ("", digest)
            self.first = self.first or digest
        if self.whole:
            self.whole = bool(np.all(np.rint(value) == value))

    def merge(self, other: InputFacts) -> None:
        """Merge ``other`` into this record."""
        if other.first:
            self.identical = self.identical and other.identical and self.first in ("", other.first)
            self.whole = self.whole and other.whole
            self.first = self.first or other.first


@dataclass(eq=False, slots=True)
class Records:
    """Statistics of a model's float tensors over ``runs`` inferences.

    ``digest`` is that of the model, empty where it is not known; ``inputs`` are facts by the name of a float input.
    ``findings`` is what coverage.py has to say about all of it, where it was asked.
    """

    digest: str = ""
    runs: int = 0
    tensors: dict[TensorKey, TensorStatistics] = field(default_factory=dict)
    inputs: dict[str, InputFacts] = field(default_factory=dict)
    findings: list[RecordFinding] = field(default_factory=list)

    def merge(self, other: Records) -> None:
        """Take in ``other``, runs of the same model that came later; it does not change. Findings are dropped."""
        self.findings = []
        self.digest = self.digest or other.digest
        self.runs += other.runs
        for key, statistics in other.tensors.items():
            self.tensors.setdefault(key, TensorStatistics()).merge(statistics)
        for name, facts in other.inputs.items():
            self.inputs.setdefault(name, InputFacts()).merge(facts)

    def statistics(self) -> dict[str, TensorStatistics]:
        """Statistics by tensor name; of equal names in several subgraphs, the first."""
        return by_name(self.tensors)


def by_name(tensors: Mapping[TensorKey, TensorStatistics]) -> dict[str, TensorStatistics]:
    """``tensors`` by name alone; the lowest subgraph wins."""
    result: dict[str, TensorStatistics] = {}
    for (_, name), statistics in sorted(tensors.items(), key=lambda item: item[0][0]):
        result.setdefault(name, statistics)
    return result


def shapes_of(inputs: Sequence[Any]) -> Shapes:
    """The shapes of one sample's arrays."""
    return tuple([np.shape(value) for value in inputs])


def joined(parts: Iterable[Records]) -> Records:
    """All runs of ``parts``, in order."""
    result = Records()
    for part in parts:
        result.merge(part)
    return result
