"""Work of every operator of a graph on the host, including the subgraphs that it calls.

Unknown dimensions are inferred from the inputs, else taken from the model's declaration, else assumed to be 1. If a
branch condition is not constant, the more expensive branch counts. If constants determine the trip count of a loop, the
operators that compute the loop condition run to count the trips. Any other loop counts once.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.spec import Array, Node, Shape, TensorInfo, Trait
from odc_mlir.ops.work import HostRates, host_ns
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.units import MAX_DEPTH, Variants, is_static

MAX_TRIPS = 4096  # limit on counted trips of a loop


@dataclass(frozen=True, slots=True)
class Work:
    """Multiply-accumulates, and modelled nanoseconds of host kernels. ``trips``: trip count of a loop, if known."""

    macs: int = 0
    host_ns: float = 0.0
    trips: int | None = None

    def times(self, count: int) -> Work:
        return Work(self.macs * count, self.host_ns * count)

    def plus(self, other: Work) -> Work:
        return _sum((self, other))


@dataclass(frozen=True, slots=True)
class Measured:
    """A graph with inferred or assumed shapes: tensors, operators, and the work of each operator."""

    tensors: Sequence[TensorInfo]
    nodes: Sequence[Node]
    works: Sequence[Work]


def graph_work(graph: Graph, rates: HostRates, input_shapes: Sequence[Shape | None] | None = None) -> Measured:
    """Return shapes and work of ``graph`` for inputs of ``input_shapes`` (default: the model's own)."""
    shapes = [info.shape for info in graph.input_infos()] if input_shapes is None else input_shapes
    return _Counter(rates).graph(graph, tuple(map(_likely, shapes)), 0)


def _likely(shape: Shape | None) -> tuple[int, ...]:
    return tuple(1 if dim is None else dim for dim in shape or ())


class _Counter:
    """Counter of work. It counts each graph once per set of input shapes."""

    def __init__(self, rates: HostRates) -> None:
        self._rates = rates
        self._found: dict[tuple[int, tuple[tuple[int, ...], ...]], Measured] = {}

    def graph(self, graph: Graph, shapes: tuple[tuple[int, ...], ...], depth: int) -> Measured:
        key = id(graph), shapes
        if key not in self._found:
            self._found[key] = self._count(graph, shapes, depth)
        return self._found[key]

    def _count(self, graph: Graph, shapes: tuple[tuple[int, ...], ...], depth: int) -> Measured:
        tensors = list(graph.tensors)
        for index, shape in zip(graph.inputs, shapes, strict=False):
            tensors[index] = replace(tensors[index], shape=shape)
        variants, nodes, works = Variants(graph), [], []
        for item in graph.nodes:
            node = _inferred(variants, item, tensors)
            called = {} if depth >= MAX_DEPTH else self._called(item, tensors, depth + 1)
            results = [self._result(i, position, called, tensors) for position, i in enumerate(item.outputs)]
            node = replace(
                node,
                results=tuple(
                    known if is_static(known.shape) else guess
                    for known, guess in zip(node.results, results, strict=True)
                ),
            )
            for index, info in zip(item.outputs, node.results, strict=True):
                tensors[index] = info
            nodes.append(node)
            works.append(self._work(item, node, called, tensors))
        return Measured(tensors, nodes, works)

    def _called(self, item: GraphNode, tensors: Sequence[TensorInfo], depth: int) -> dict[int, tuple[Graph, Measured]]:
        first = 1 if item.node.spec.name == "IF" else 0
        given = [tensors[i].shape if i >= 0 else None for i in item.inputs[first:]]
        called = {}
        for index, graph in item.calls.items():
            infos = graph.input_infos()
            known = [*given, *(info.shape for info in infos[len(given) :])][: len(infos)]
            shapes = [
                _likely(shape if is_static(shape) else info.shape) for shape, info in zip(known, infos, strict=True)
            ]
            called[index] = graph, self.graph(graph, tuple(shapes), depth)
        return called

    def _result(
        self, index: int, position: int, called: Mapping[int, tuple[Graph, Measured]], tensors: Sequence[TensorInfo]
    ) -> TensorInfo:
        declared = tensors[index]
        shape = declared.shape
        for graph, found in called.values():  # a loop's condition has one result, its body the state
            if not is_static(shape) and position < len(graph.outputs):
                inner = found.tensors[graph.outputs[position]]
                shape = inner.shape if inner.dtype == declared.dtype else shape
        return replace(declared, shape=_likely(shape))

    def _work(
        self, item: GraphNode, node: Node, called: Mapping[int, tuple[Graph, Measured]], tensors: Sequence[TensorInfo]
    ) -> Work:
        own = Work(node.macs, host_ns(node, self._rates))
        totals = {index: _sum(found.works) for index, (_, found) in called.items()}
        kind = node.spec.name
        if not totals or kind == "CALL_ONCE":  # CALL_ONCE runs nothing after the first inference
            return own
        if kind == "IF":
            branches = [totals.get(option(node, f"{which}_subgraph_index"), Work()) for which in ("then", "else")]
            condition = node.operands[0]
            if condition is not None and condition.is_const:
                return own.plus(branches[0 if condition.array().any() else 1])
            return own.plus(max(branches, key=lambda work: (work.host_ns, work.macs)))
        if kind == "WHILE":
            condition, body = (option(node, f"{which}_subgraph_index") for which in ("cond", "body"))
            trips = trip_count(item, tensors)
            count = 1 if trips is None else trips
            again = totals.get(condition, Work())
            found = own.plus(again.times(count + 1)).plus(totals.get(body, Work()).times(count))
            return replace(found, trips=trips)
        return own.plus(_sum(totals.values()))


def _sum(works: Iterable[Work]) -> Work:
    found = list(works)
    return Work(sum(work.macs for work in found), sum(work.host_ns for work in found))


def _inferred(variants: Variants, item: GraphNode, tensors: Sequence[TensorInfo]) -> Node:
    operands = tuple(None if i < 0 else tensors[i] for i in item.inputs)
    try:
        return variants.get(item.index, tuple(None if info is None else info.shape for info in operands)).node
    except OdcError:
        return replace(item.node, operands=operands)


def trip_count(item: GraphNode, tensors: Sequence[TensorInfo]) -> int | None:
    """Return the trip count of a WHILE, or None if it depends on data or effects, or exceeds MAX_TRIPS."""
    condition, body = (item.calls.get(option(item.node, f"{which}_subgraph_index")) for which in ("cond", "body"))
    if condition is None or body is None:
        return None
    test = _Slice.of(condition, [0])
    if test is None:
        return None
    deciding, waiting = set[int](), set(test.inputs)
    while waiting:  # collect the state that the condition reads, and all state that determines it in later trips
        deciding |= waiting
        step = _Slice.of(body, sorted(deciding))
        if step is None:
            return None
        waiting = set(step.inputs) - deciding
    order = sorted(deciding)
    step = _Slice.of(body, order)
    infos = [tensors[item.inputs[position]] for position in order]
    if step is None or not all(info.is_const for info in infos):
        return None
    state = {position: info.array() for position, info in zip(order, infos, strict=True)}
    try:
        with np.errstate(all="ignore"):
            for trips in range(MAX_TRIPS + 1):
                (more,) = test.run(state)
                if not more.any():
                    return trips
                state = dict(zip(order, step.run(state), strict=True))
    except OdcError:
        return None
    return None


class _Slice:
    """The side-effect-free operators that compute some outputs of a graph. ``inputs``: positions of graph inputs."""

    def __init__(self, graph: Graph, outputs: Sequence[int], operators: Sequence[int], inputs: Sequence[int]) -> None:
        self.inputs = inputs
        self._graph, self._outputs, self._operators = graph, outputs, operators
        self._variants = Variants(graph)

    @classmethod
    def of(cls, graph: Graph, outputs: Sequence[int]) -> _Slice | None:
        """Return the slice for outputs at these positions, or None if there are side effects or kept state."""
        if any(position >= len(graph.outputs) for position in outputs):
            return None
        needed = {graph.outputs[position] for position in outputs}
        operators: list[int] = []
        for item in reversed(graph.nodes):
            if needed.isdisjoint(item.outputs):
                continue
            if Trait.PURE not in item.node.spec.traits or item.calls:
                return None
            operators.append(item.index)
            needed.update(i for i in item.inputs if i >= 0)
        if any(graph.tensors[index].is_variable for index in needed):
            return None
        inputs = [position for position, index in enumerate(graph.inputs) if index in needed]
        return cls(graph, outputs, operators[::-1], inputs)

    def run(self, state: Mapping[int, Array]) -> list[Array]:
        """Run on arrays by input position and return the outputs. Raises OdcError."""
        graph = self._graph
        values = {graph.inputs[position]: state[position] for position in self.inputs}

        def value(index: int) -> Array:
            return values[index] if index in values else graph.tensors[index].array()

        for index in self._operators:
            item = graph.nodes[index]
            operands = [None if i < 0 else value(i) for i in item.inputs]
            shapes = tuple(None if array is None else array.shape for array in operands)
            results = self._variants.get(index, shapes).kernel(operands)
            values.update(zip(item.outputs, results, strict=True))
        return [value(graph.outputs[position]) for position in self._outputs]
