"""Comparison of all tensors that two models, packages or backends compute from the same inputs.

Outputs are matched by position, other tensors by name. Equal types are compared as codes, others as real numbers,
after rescaled channels are scaled back.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from odc_mlir.errors import ModelError
from odc_mlir.formats.channel_factors import NAME, decode
from odc_mlir.formats.quantities import counted
from odc_mlir.ops.check import type_text
from odc_mlir.ops.spec import Array, ResultType, TensorInfo
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Watcher
from odc_mlir.runtime.reporting.metrics import INTERVALS, ErrorMeter, Errors, Tolerance

TensorKind = Literal["intermediate", "output"]


@dataclass(frozen=True, slots=True)
class TensorComparison:
    """One tensor in both runs. ``errors`` is None when the two cannot be compared, for the reason in ``misfit``."""

    name: str  # in the reference
    op: str  # what computes it there; empty for an output that nothing computes
    kind: TensorKind
    unit: Literal["code", "value"]  # of the errors
    reference_type: str
    other_type: str
    errors: Errors | None
    misfit: str = ""

    @property
    def diverges(self) -> bool:
        return self.errors is None or self.errors.differing > 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """All compared tensors, in the reference's execution order."""

    tensors: tuple[TensorComparison, ...]
    records: int
    tolerance: Tolerance

    @property
    def first_diverging(self) -> TensorComparison | None:
        return next((tensor for tensor in self.tensors if tensor.diverges), None)

    @property
    def outputs(self) -> tuple[TensorComparison, ...]:
        return tuple(tensor for tensor in self.tensors if tensor.kind == "output")


def compare(
    reference: Executor,
    other: Executor,
    records: Sequence[Sequence[Array]],
    tolerance: Tolerance | None = None,
    others: Sequence[Sequence[Array]] | None = None,
) -> Comparison:
    """Run both on every record, ``records[k][j]`` for input j, and compare outputs and common intermediates.

    Inputs of either side's type are converted. ``others``: records for the other side, if its inputs differ. Raises
    ModelError for different numbers of inputs or outputs, and errors of running.
    """
    counts = [("output", len(reference.graph.outputs), len(other.graph.outputs))]
    if others is None:
        counts.insert(0, ("input", len(reference.graph.inputs), len(other.graph.inputs)))
    for what, first, second in counts:
        if first != second:
            raise ModelError(f"the reference has {counted(first, what)}, the other {second}; they cannot be compared")
    tolerance = tolerance or Tolerance()
    pairs = _pairs(reference, other)
    for record, theirs in zip(records, records if others is None else others, strict=True):
        _compare_record(reference, other, record, theirs, pairs, tolerance)
    return Comparison(tuple(pair.result() for pair in pairs), len(records), tolerance)


class _Pair:
    """A tensor of both graphs; ``output`` is its position among the outputs, None for an intermediate."""

    def __init__(
        self,
        graphs: tuple[Graph, Graph],
        indices: tuple[int, int],
        op: str,
        output: int | None,
        factors: tuple[Array | None, Array | None],
    ) -> None:
        self.indices = indices
        self.output = output
        self._infos = (graphs[0].tensors[indices[0]], graphs[1].tensors[indices[1]])
        self._factors = factors
        first, second = self._infos
        ours, theirs = (np.ones(1) if row is None else row for row in factors)
        same_units = np.array_equal(ours, theirs)
        self._as_they_are = same_units and (first.dtype, first.quant) == (second.dtype, second.quant)
        self._op = op
        self._meter: ErrorMeter | None = None
        self._types = ("", "")
        self._misfit = ""

    def add(self, a: Array, b: Array, tolerance: Tolerance) -> None:
        infos, factors = self._infos, self._factors
        self._types = (_seen_type(infos[0], a), _seen_type(infos[1], b))
        if a.shape != b.shape:
            self._misfit = self._misfit or "the shapes differ"
            return
        if not self._as_they_are:
            a, b = (_taken_back(to_reals(i, v), f) for i, v, f in zip(infos, (a, b), factors, strict=True))
        if (a.dtype == object) != (b.dtype == object):
            self._misfit = self._misfit or "the element types have nothing in common"
            return
        if self._meter is None:
            interval = None if self._as_they_are and infos[0].quant is not None else INTERVALS.get(self._op)
            top = self.output is not None
            self._meter = ErrorMeter(tolerance, top=top, interval=interval, scale=self._scale)
        self._meter.add(a, b)

    @property
    def _scale(self) -> float | None:
        """Return the scale of the other's codes in units of the compared values."""
        info = self._infos[1]
        if info.quant is None or not info.info.is_integer or not info.quant.per_tensor:
            return None
        return 1.0 if self._as_they_are else info.quant.scale

    def result(self) -> TensorComparison:
        first, second = self._infos
        codes = self._as_they_are and first.quant is not None
        return TensorComparison(
            name=first.name,
            op=self._op,
            kind="intermediate" if self.output is None else "output",
            unit="code" if codes and first.info.is_integer else "value",
            reference_type=self._types[0],
            other_type=self._types[1],
            errors=None if self._misfit or self._meter is None else self._meter.errors(),
            misfit=self._misfit,
        )


def channel_factors(graph: Graph) -> Mapping[str, Array]:
    """Return the divisors of channels of the graph's tensors, by tensor name."""
    data = graph.metadata.get(NAME)
    return {} if data is None else decode(data)


def _taken_back(value: Array, factors: Array | None) -> Array:
    """Undo the division of channels in real values."""
    if factors is None or value.dtype.kind != "f" or factors.ndim > value.ndim:
        return value
    fits = all(ours in (1, extent) for ours, extent in zip(factors.shape[::-1], value.shape[::-1], strict=False))
    return np.asarray(value * factors, value.dtype) if fits else value


def _seen_type(info: TensorInfo, value: Array) -> str:
    return type_text(ResultType(info.dtype, value.shape))


def _pairs(reference: Executor, other: Executor) -> list[_Pair]:
    """Pair outputs by position and computed tensors by name, in the reference's execution order."""
    graphs = (reference.graph, other.graph)
    order = {tensor: item.index for item in graphs[0].nodes for tensor in item.outputs}
    theirs = _by_name(other)
    found: list[tuple[int, int, int | None]] = [
        (ours, theirs[name], None)
        for name, ours in _by_name(reference).items()
        if name in theirs and ours not in graphs[0].outputs
    ]
    found += [(a, b, i) for i, (a, b) in enumerate(zip(graphs[0].outputs, graphs[1].outputs, strict=True))]
    found.sort(key=lambda pair: order.get(pair[0], -1))
    units = [channel_factors(graph) for graph in graphs]

    def pair(a: int, b: int, output: int | None) -> _Pair:
        op = graphs[0].nodes[order[a]].node.spec.name if a in order else ""
        factors = units[0].get(graphs[0].tensors[a].name), units[1].get(graphs[1].tensors[b].name)
        return _Pair(graphs, (a, b), op, output, factors)

    return [pair(*item) for item in found]


def _by_name(executor: Executor) -> dict[tuple[str, int], int]:
    """Return the observable tensors by name and number among tensors of the same name."""
    result: dict[tuple[str, int], int] = {}
    seen: dict[str, int] = {}
    for index in sorted(tensor for unit in executor.units for tensor in unit.writes):
        name = executor.graph.tensors[index].name
        result[name, seen.setdefault(name, 0)] = index
        seen[name] += 1
    return result


def _compare_record(
    reference: Executor,
    other: Executor,
    record: Sequence[Array],
    others: Sequence[Array],
    pairs: Sequence[_Pair],
    tolerance: Tolerance,
) -> None:
    """Run each side once; only the reference's tensors are kept, the other's are compared as they appear."""
    kept: dict[int, Array] = {}
    wanted = {pair.indices[0] for pair in pairs if pair.output is None}

    def keep(index: int, value: Array) -> None:
        if index in wanted:
            kept[index] = value.copy()

    by_other: dict[int, list[_Pair]] = {}
    for pair in pairs:
        if pair.output is None:
            by_other.setdefault(pair.indices[1], []).append(pair)

    def check(index: int, value: Array) -> None:
        for pair in by_other.get(index, ()):
            pair.add(kept[pair.indices[0]], value, tolerance)

    infos = reference.graph.input_infos(), other.graph.input_infos()
    if others is record:
        inputs = [_for_both(*item) for item in zip(*infos, record, strict=True)]
        record, others = [a for a, _ in inputs], [b for _, b in inputs]
    else:
        record, others = (
            [to_codes(*item) for item in zip(side, values, strict=True)]
            for side, values in zip(infos, (record, others), strict=True)
        )
    ours, theirs = _run(reference, record, keep), _run(other, others, check)
    for pair in pairs:
        if pair.output is not None:
            pair.add(ours[pair.output], theirs[pair.output], tolerance)


def _run(executor: Executor, inputs: Sequence[Array], watch: Watcher) -> list[Array]:
    executor.reset()
    return executor.run(inputs, watch=watch)


def _for_both(first: TensorInfo, second: TensorInfo, value: Array) -> tuple[Array, Array]:
    """Return an input for the reference's tensor ``first`` and for ``second``, from either's type or from reals."""
    given = first if value.dtype == first.info.numpy else second

    def converted(info: TensorInfo) -> Array:
        if (info.dtype, info.quant) == (given.dtype, given.quant) or value.dtype != given.info.numpy:
            return to_codes(info, value)
        return to_codes(info, to_reals(given, value))

    return converted(first), converted(second)
