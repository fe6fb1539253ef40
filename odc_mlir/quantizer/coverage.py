"""What of a quantised model really is quantised: shares of layers, weights and products by precision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odc_mlir.ops.spec import Node, Trait
from odc_mlir.quantizer.layers import CASTS, coded_constants, precision_of
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph

UNITS = ("macs", "weights", "layers")
UNIT_NAMES = {"macs": "products", "weights": "weights", "layers": "layers"}

# What a result has to cover to be called quantised. Without a target: the larger part. With one: what accuracy may
# cost of the products that the target could run; a network whose work is on the host is no better than a float one.
LEAST_COVERAGE = 0.5
LEAST_TARGET_COVERAGE = 0.95


@dataclass(slots=True)
class Counts:
    """How many layers, elements of weights and multiply-accumulates."""

    layers: int = 0
    weights: int = 0
    macs: int = 0

    def to_dict(self) -> dict[str, int]:
        """As it stands in a verdict."""
        return {unit: getattr(self, unit) for unit in UNITS}


@dataclass(slots=True)
class Coverage:
    """Counts by precision, without layers that compute nothing real; ``computing``: precisions that are computed in.

    Operators that only move or select values, such as RESHAPE, give codes back as they got them.
    """

    by_precision: dict[str, Counts] = field(default_factory=dict)
    computing: set[str] = field(default_factory=set)

    def total(self, unit: str) -> int:
        """All of this unit."""
        return sum(getattr(counts, unit) for counts in self.by_precision.values())

    def left(self, unit: str) -> int:
        """What of this unit stays float."""
        return int(getattr(self.by_precision.get(FLOAT, Counts()), unit))

    @property
    def unit(self) -> str:
        """What is counted by: products, or layers in a model without any."""
        return next((unit for unit in UNITS if self.total(unit)), UNITS[-1])

    def share(self, unit: str | None = None) -> float | None:
        """The share that is not float; None where there is nothing to quantise."""
        unit = unit or self.unit
        total = self.total(unit)
        return (total - self.left(unit)) / total if total else None

    def has(self, scheme: str) -> bool:
        """Whether any layer computes with codes of ``scheme``, or has its weights in them."""
        return scheme in self.computing

    def to_dict(self) -> dict[str, Any]:
        """As it stands in a verdict."""
        return {
            "unit": self.unit,
            "share": self.share(),
            "precisions": {name: counts.to_dict() for name, counts in sorted(self.by_precision.items())},
        }


def coverage_of(graph: Graph, shapes: list[tuple[int, ...]], names: Mapping[str, str]) -> Coverage:
    """Counts of a quantised ``graph`` run with inputs of these shapes.

    ``names``: what precisions of layers without weights are called in this model, where that is not what
    :func:`precision_of` says.
    """
    coded = coded_constants(graph)
    found = Coverage()
    shaped = HostExecutor(graph).prepare(shapes)
    for item, node in zip(graph.nodes, shaped.nodes, strict=True):
        if item.node.spec.name in CASTS:
            continue
        precision = precision_of(item, graph, coded)
        if precision == FLOAT and not _is_real(node):
            continue
        weights = sum(_elements(node, index) for index in node.spec.quant.trained(node.options))
        name = precision if weights else names.get(precision, precision)
        counts = found.by_precision.setdefault(name, Counts())
        if weights or Trait.SAME_QUANT not in node.spec.traits:
            found.computing.add(name)
        counts.layers += 1
        counts.macs += node.macs
        counts.weights += weights
    return found


def _is_real(node: Node) -> bool:
    infos = (*node.results, *(info for info in node.operands if info is not None))
    return any(info.info.kind == "float" for info in infos)


def _elements(node: Node, index: int) -> int:
    info = node.optional(index)
    if info is None:
        return 0
    count = 1
    for size in info.shape or ():
        count *= size or 1
    return count if info.is_const or (index in node.spec.quant.weights and info.quant is not None) else 0
