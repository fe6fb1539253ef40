"""Runs a graph operator by operator for many samples at once, so that what is found at one can change the next.

Between two operators, constants of the one to come may be replaced: it then computes with the new ones, and everything
behind it sees what that gives. Tensors are dropped after their last reader. What recurrent operators keep begins anew
with each sample.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.constants import encode_constant, initial_contents
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo, Trait
from odc_mlir.runtime.execution.binding import to_codes, to_reals
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.specialization import SpecializedGraph


class Stepper:
    """Runs ``graph`` on ``samples``, lists of real arrays of the same shapes.

    Raises UnsupportedError for graphs that cannot be run this way: with control flow, shapes that depend on values, or
    state that is not one operator's own variable.
    """

    def __init__(self, graph: Graph, samples: Sequence[Sequence[Array]]) -> None:
        self.graph = graph
        self._shaped = SpecializedGraph(graph, [np.shape(array) for array in samples[0]])
        self._refuse_what_does_not_fit()
        infos = graph.input_infos()
        self._values: dict[int, list[Array]] = {
            index: [to_codes(info, np.asarray(sample[place])) for sample in samples]
            for place, (index, info) in enumerate(zip(graph.inputs, infos, strict=True))
        }
        self._count = len(samples)
        self._last = {index: item.index for item in graph.nodes for index in item.inputs}
        self._next = 0
        self._constants: dict[int, TensorInfo] = {}
        self._replaced: set[int] = set()  # tensors that are not to be computed any more

    def _refuse_what_does_not_fit(self) -> None:
        for item, node in zip(self.graph.nodes, self._shaped.nodes, strict=True):
            stateful = node.mutated or Trait.STATEFUL in node.spec.traits
            if item.calls or Trait.CONTROL_FLOW in node.spec.traits or (stateful and not self._keeps_its_own(item)):
                raise UnsupportedError("a stateful operator cannot be run alone", op=node.spec.name)
            if item.index in self._shaped.open:
                raise UnsupportedError("the operator's shapes depend on values", op=node.spec.name)

    def _keeps_its_own(self, item: GraphNode) -> bool:
        """Whether all that the operator keeps are variables that no other one reads."""
        places = {place for place, operand in enumerate(item.node.spec.operands) if operand.mutated}
        readers = [index for other in self.graph.nodes for index in other.inputs]
        states = [item.inputs[place] for place in item.node.mutated]
        own = all(self.graph.tensors[index].is_variable and readers.count(index) == 1 for index in states)
        return bool(places) and places.issuperset(item.node.mutated) and own

    def go_to(self, item: GraphNode) -> None:
        """Run every operator before ``item``, which must not have run."""
        while self._next < item.index:
            self._step(self.graph.nodes[self._next])

    def run(self, item: GraphNode) -> None:
        """Run every operator up to ``item``, which must not have run: what it gives is alive then."""
        self.go_to(item)
        self._step(item)

    def reals(self, index: int) -> Iterator[Array]:
        """The values of tensor ``index``, which must be alive, for each sample."""
        info = self.graph.tensors[index]
        if info.is_const:
            return (to_reals(info, info.array()) for _ in range(self._count))
        return (to_reals(info, value) for value in self._values[index])

    def replace(self, index: int, array: Array) -> None:
        """Let operators to come find ``array`` as tensor ``index``: a constant, or computed from constants alone."""
        info = self.graph.tensors[index]
        if not info.is_const:
            self._values[index] = [array] * self._count
            self._replaced.add(index)
            return
        data = memoryview(encode_constant(array, info.dtype))
        self._constants[index] = dataclasses.replace(info, data=data, _array=None)

    def _step(self, item: GraphNode) -> None:
        if not self._replaced.issuperset(item.outputs):
            self._compute(item)
        for index in item.inputs:
            if self._last[index] == item.index:
                self._values.pop(index, None)
        self._next = item.index + 1

    def results_as(self, item: GraphNode, change: Callable[[Node], Node]) -> list[Array]:
        """The first result of ``item``, which must not have run, changed like this, for each sample."""
        self.go_to(item)
        node = change(self._shaped.nodes[item.index])
        return [results[0] for results in self._results(item, node.spec.kernel_function(node), node)]

    def _compute(self, item: GraphNode) -> None:
        found = self._results(item, *self._kernel(item))
        for place, index in enumerate(item.outputs):
            self._values[index] = [results[place] for results in found] * (self._count // len(found))

    def _results(self, item: GraphNode, kernel: Execute, node: Node) -> list[list[Array]]:
        """All results for each sample, or once where all samples have the same."""
        found = []
        constants = [None if info is None or not info.is_const else info.array() for info in node.operands]
        # the same operands give the same results: what comes from constants alone is computed once
        runs = self._count if any(index in self._values for index in item.inputs) else 1
        for number in range(runs):
            operands = [
                constant if constant is not None or index < 0 else self._value(index, number)
                for constant, index in zip(_filled(constants, len(item.inputs)), item.inputs, strict=True)
            ]
            found.append([np.array(result) for result in kernel(operands)])
        return found

    def _value(self, index: int, number: int) -> Array:
        info = self.graph.tensors[index]
        return initial_contents(info) if info.is_variable else self._values[index][number]

    def _kernel(self, item: GraphNode) -> tuple[Execute, Node]:
        node = self._shaped.nodes[item.index]
        changed = [self._constants.get(index) for index in item.inputs]
        if not any(changed):
            return self._shaped.kernel(item.index), node
        operands = tuple(new or old for new, old in zip(changed, node.operands, strict=True))
        node = dataclasses.replace(node, operands=operands)
        return node.spec.kernel_function(node), node


def _filled(values: Sequence[Array | None], count: int) -> list[Array | None]:
    return [*values, *[None] * (count - len(values))]


def names_of(graph: Graph) -> Mapping[str, GraphNode]:
    """The operators of ``graph`` by the names of their first results."""
    return {graph.tensors[item.outputs[0]].name: item for item in graph.nodes if item.outputs}
