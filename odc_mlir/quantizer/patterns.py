"""Operators that belong to a larger function, some of which need more bits than the rest.

* ``layernorm``: ``(x - mean) * rsqrt(variance + eps)``, also the one without a mean (RMS). Squares, their mean, the sum
  with epsilon and the root have a range that is the square of the values', so that 8 bits leave nothing of the small.
* ``softmax``: ``exp(x - max) / sum``, where it is no SOFTMAX. A step of 8 bits in the difference is a factor in the
  exponential.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from odc_mlir.errors import OptionError
from odc_mlir.runtime.execution.graph import Graph, GraphNode

_MOVES = frozenset({"RESHAPE", "EXPAND_DIMS", "SQUEEZE", "BROADCAST_TO"})
_SQUARES = frozenset({"SQUARE", "SQUARED_DIFFERENCE", "MUL", "POW"})


class _Makers:
    """Who makes a tensor."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._by_tensor = {index: item for item in graph.nodes for index in item.outputs}

    def of(self, index: int) -> GraphNode | None:
        """What makes the values of a tensor, whatever moves them; None for inputs and constants."""
        found = self._by_tensor.get(index)
        while found is not None and found.node.spec.name in _MOVES:
            found = self._by_tensor.get(found.inputs[0])
        return found

    def operand(self, item: GraphNode | None, *names: str) -> GraphNode | None:
        """The first maker of an operand of ``item`` that is one of these operators."""
        makers = () if item is None else (self.of(index) for index in item.inputs)
        return next((maker for maker in makers if maker is not None and maker.node.spec.name in names), None)

    def name(self, item: GraphNode) -> str:
        """The name of the first result."""
        return self._graph.tensors[item.outputs[0]].name


def _norms(makers: _Makers, item: GraphNode) -> Iterator[GraphNode]:
    """What of a normalisation ends in the root that ``item`` is."""
    if item.node.spec.name not in ("RSQRT", "SQRT"):
        return
    total = makers.operand(item, "ADD")
    variance = makers.operand(total if total is not None else item, "MEAN")
    squares = makers.operand(variance, *_SQUARES)
    if variance is None or squares is None or not _is_square(squares):
        return
    yield from (squares, variance, *([total] if total is not None else []), item)


def _is_square(item: GraphNode) -> bool:
    return item.node.spec.name != "MUL" or item.inputs[0] == item.inputs[1]


def _softmaxes(makers: _Makers, item: GraphNode) -> Iterator[GraphNode]:
    """What of a softmax ends in the division that ``item`` is."""
    if item.node.spec.name != "DIV":
        return
    top, total = (makers.of(index) for index in item.inputs)
    if top is None or total is None or top.node.spec.name != "EXP" or total.node.spec.name != "SUM":
        return
    difference = makers.operand(top, "SUB")
    if makers.of(total.inputs[0]) is not top or makers.operand(difference, "REDUCE_MAX") is None:
        return
    assert difference is not None
    yield from (difference, top)


PATTERNS: Mapping[str, Callable[[_Makers, GraphNode], Iterator[GraphNode]]] = {
    "layernorm": _norms,
    "softmax": _softmaxes,
}


def parse_patterns(names: str | tuple[str, ...] | list[str]) -> tuple[str, ...]:
    """Names of patterns, also as one text with commas, in any case; raises OptionError."""
    given = names.split(",") if isinstance(names, str) else list(names)
    found = tuple(dict.fromkeys(name.strip().lower() for name in given if name.strip()))
    if unknown := next((name for name in found if name not in PATTERNS), None):
        raise OptionError(f"unknown pattern {unknown!r}", hint=f"use {' or '.join(PATTERNS)}")
    return found


def layers_of(graph: Graph, pattern: str) -> list[str]:
    """The layers of a pattern, wherever it stands in ``graph``, that need more bits: names of their results."""
    makers = _Makers(graph)
    found = (makers.name(part) for item in graph.nodes for part in PATTERNS[pattern](makers, item))
    return list(dict.fromkeys(found))
