"""Records of a model, and findings about the quality: too little data, odd inputs, tensors with no values."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.formats.quantities import counted

TensorKey = tuple[int, str]
"""Index of the subgraph and name of the tensor."""

Shapes = tuple[tuple[int, ...], ...]
"""Shapes of a model's inputs, in order."""


Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class RecordFinding:
    """A finding about records. ``kind`` is a stable key. ``tensor`` is empty for a finding about the whole model."""

    severity: Severity
    kind: str
    text: str
    tensor: str = ""
    subgraph: int = 0

    def __str__(self) -> str:
        return f"{self.tensor!r}: {self.text}" if self.tensor else self.text


@dataclass(slots=True)
class InputFacts:
    """Common properties of all samples of one float input."""

    first: str = ""  # digest of the first sample
    identical: bool = True  # whether all samples are equal
    whole: bool = True  # whether all values are whole numbers

    def add(self, value: NDArray[Any]) -> None:
        """Add one sample."""
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
    """Statistics of a model's float tensors over ``runs`` inferences."""

    digest: str = ""  # digest of the model
    runs: int = 0
    tensors: dict[TensorKey, TensorStatistics] = field(default_factory=dict)
    inputs: dict[str, InputFacts] = field(default_factory=dict)  # by the name of a float input
    findings: list[RecordFinding] = field(default_factory=list)  # result of :func:`coverage`, if requested

    def merge(self, other: Records) -> None:
        """Add the runs in ``other``, later runs of the same model, and drop findings. ``other`` does not change."""
        self.findings = []
        self.digest = self.digest or other.digest
        self.runs += other.runs
        for key, statistics in other.tensors.items():
            self.tensors.setdefault(key, TensorStatistics()).merge(statistics)
        for name, facts in other.inputs.items():
            self.inputs.setdefault(name, InputFacts()).merge(facts)

    def statistics(self) -> dict[str, TensorStatistics]:
        """Return statistics by tensor name. If several subgraphs have a name, use the first subgraph."""
        return by_name(self.tensors)


def by_name(tensors: Mapping[TensorKey, TensorStatistics]) -> dict[str, TensorStatistics]:
    """Return ``tensors`` by name only. If several subgraphs have a name, the lowest index takes precedence."""
    result: dict[str, TensorStatistics] = {}
    for (_, name), statistics in sorted(tensors.items(), key=lambda item: item[0][0]):
        result.setdefault(name, statistics)
    return result


def shapes_of(inputs: Sequence[Any]) -> Shapes:
    """Return the shapes of one sample's arrays."""
    return tuple([np.shape(value) for value in inputs])


def joined(parts: Iterable[Records]) -> Records:
    """Return all runs of ``parts`` in order."""
    result = Records()
    for part in parts:
        result.merge(part)
    return result


FEWEST_RUNS = 10
FEW_RUNS = "few-runs"
# Inputs of trained networks are of the order of one. Larger inputs were probably not normalised.
_LARGEST_INPUT = 1000.0
_SMALLEST_INPUT = 1e-30
# Squares of larger values are infinite in float32. Masks and markers of missing values may be as large, but are few.
_LARGEST_REAL = 2.0**64
_FEWEST_VALUES = 3
_VANISHING, _OUTSIZED = "vanishing-inputs", "outsized-inputs"
_LARGEST_PIXEL = 255


def coverage(
    records: Records, inputs: Iterable[TensorKey] = (), expected: Iterable[TensorKey] = ()
) -> list[RecordFinding]:
    """Return findings about ``records``, errors first. ``expected``: all float tensors that a run can record."""
    found = [*amount(records.runs)]
    unseen = "no run computed it; it has no range"
    found += [_about(key, "warning", "never-observed", unseen) for key in expected if key not in records.tensors]
    for key in inputs:
        if key in records.tensors:
            found += _input(key, records.tensors[key], records.inputs.get(key[1]), records.runs)
    for key, statistics in records.tensors.items():
        found += _values(key, statistics)
    return sorted(found, key=lambda finding: finding.severity)  # errors come before warnings


def unreal_inputs(records: Records, inputs: Iterable[TensorKey]) -> list[str]:
    """Return the names of float ``inputs`` with values that are all almost zero, or often have infinite squares."""
    return [finding.tensor for finding in coverage(records, inputs) if finding.kind in (_VANISHING, _OUTSIZED)]


def amount(runs: int) -> Iterator[RecordFinding]:
    """Yield a finding if there are too few runs."""
    if not runs:
        yield RecordFinding("error", "no-runs", "nothing has been recorded")
    elif runs < FEWEST_RUNS:
        what = "1 sample has" if runs == 1 else f"{runs} samples have"
        text = f"only {what} been recorded; ranges are reliable from {FEWEST_RUNS} samples, better 100"
        yield RecordFinding("warning", FEW_RUNS, text)


def _input(
    key: TensorKey, statistics: TensorStatistics, facts: InputFacts | None, runs: int
) -> Iterator[RecordFinding]:
    least, most = statistics.minimum, statistics.maximum
    if not statistics.runs:
        return
    # A value left out of statistics, for example the lowest float in masks, counts as a separate value.
    counts_all = not (statistics.lowest_count or statistics.infinite_count or statistics.nan_count)
    if least == most and counts_all:
        yield _about(key, "error", "constant-input", f"all values of all samples are {least:zg}; this is no real data")
        return
    if max(-least, most) < _SMALLEST_INPUT and counts_all:
        text = f"values reach from {least:zg} to {most:zg} only; this is no real data"
        yield _about(key, "error", _VANISHING, text)
    if facts is not None and facts.identical and runs > 1:
        yield _about(key, "warning", "identical-inputs", f"all {runs} samples are the same")
    if facts is not None and facts.whole and least >= 0 and 1 < most <= _LARGEST_PIXEL:
        text = (
            f"all values are whole numbers from {least:zg} to {most:zg}; if these are pixels, "
            "check that the model was trained on them unscaled"
        )
        yield _about(key, "warning", "raw-pixels", text)
    elif _is_outsized(statistics):
        text = f"values reach from {least:zg} to {most:zg}, which have no squares in float32; this is no real data"
        yield _about(key, "error", _OUTSIZED, text)
    elif max(-least, most) > _LARGEST_INPUT:
        text = f"values reach from {least:zg} to {most:zg}; check that the model was trained on data of that size"
        yield _about(key, "warning", "large-inputs", text)


def _is_outsized(statistics: TensorStatistics) -> bool:
    edges, counts = statistics.histogram.occupied()
    sizes = np.abs(edges)
    is_beyond = np.minimum(sizes[:-1], sizes[1:]) >= _LARGEST_REAL
    return int(np.count_nonzero(counts[is_beyond])) >= _FEWEST_VALUES


def _values(key: TensorKey, statistics: TensorStatistics) -> Iterator[RecordFinding]:
    """Return findings about elements left out of the statistics."""
    for kind, count, what in (
        ("not-a-number", statistics.nan_count, "NaN"),
        ("infinite", statistics.infinite_count, "infinite"),
    ):
        if count:
            text = (
                f"{counted(count, 'element')} {'is' if count == 1 else 'are'} {what}; the range is that of the others"
            )
            yield _about(key, "warning", kind, text)
    if statistics.runs_seen and not statistics.runs:
        yield _about(key, "warning", "no-values", "no element of any run counts; it has no range")


def _about(key: TensorKey, severity: Severity, kind: str, text: str) -> RecordFinding:
    return RecordFinding(severity, kind, text, key[1], key[0])


def document(findings: Iterable[RecordFinding]) -> list[dict[str, Any]]:
    """Return the findings as JSON data."""
    return [
        {"severity": f.severity, "kind": f.kind, "subgraph": f.subgraph, "tensor": f.tensor, "text": f.text}
        for f in findings
    ]
