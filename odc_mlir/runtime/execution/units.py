"""What an execution consists of: units, each one operator or (see plan.py) one compiled segment, and a run's values."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Protocol

from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.calls import Calls
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.specialization import (
    SpecializedGraph,
    Variant,
    foreign_error,
    guarded,
    known_nbytes,
    name_operator,
)


@dataclass(frozen=True, slots=True)
class Event:
    """One unit's execution: ``kind`` is host or segment, times are of ``time.perf_counter``, in seconds."""

    name: str
    op: str
    kind: str
    start_seconds: float
    seconds: float


Observer = Callable[[Event], None]

Watcher = Callable[[int, Array], None]
"""Is shown each tensor that a run computes, by index, as soon as it is there; must neither change nor keep it.

Variables that an operator writes are shown after it.
"""

WatchCalls = Callable[[Graph], Watcher | None]
"""Gives the watcher of one call of a subgraph; None where nothing of it is of interest."""


Values = dict[int, Array]
"""Tensors of a run by index: the inputs and what has been computed so far."""

Step = Callable[[Values], None]
"""Takes what a unit reads from the values of a run, by tensor index, and puts what it writes into them."""


class Unit(Protocol):
    """A step of an execution. ``reads`` and ``writes`` are tensor indices of the graph."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def prepare(self, shaped: SpecializedGraph) -> Step | None:
        """Do now what would make the first run slower.

        The result runs the unit in every run of ``shaped`` that nobody observes; None where it needs the frame.
        """

    def inner_bytes(self, shaped: SpecializedGraph) -> int:
        """Most bytes of activations that live inside at any one time, beside what it reads and writes."""

    def run(self, frame: Frame) -> None:
        """Take ``reads`` from the frame, put ``writes`` into it, and tell the observer."""


@dataclass(slots=True)
class OperatorUnit:
    """Operator ``index`` of the graph, by its host kernel."""

    index: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def prepare(self, shaped: SpecializedGraph) -> Step | None:
        shaped.prepare(self.index)
        item = shaped.graph.nodes[self.index]
        stateful = item.node.mutated or any(shaped.tensors[i].is_variable for i in self.reads)
        if stateful or item.calls or self.index in shaped.open:
            return None
        return _step(item, shaped.variant(self.index))

    def inner_bytes(self, shaped: SpecializedGraph) -> int:
        return 0

    def run(self, frame: Frame) -> None:
        frame.run_operator(self.index)


def _step(item: GraphNode, variant: Variant) -> Step:
    """An operator whose operands are constants and values, as directly as can be."""
    node, kernel = variant.node, variant.kernel
    gather = _gather(item)
    outputs = item.outputs

    def step(values: Values) -> None:
        try:
            results = kernel(gather(values))
        except OdcError as error:
            name_operator(node, error)
            raise
        except Exception as error:
            raise foreign_error(node, "run", error) from error
        for index, result in zip(outputs, results, strict=True):
            values[index] = result

    def step_of_one(values: Values) -> None:
        try:
            (values[only],) = kernel(gather(values))  # without the loop it takes half of the time
        except OdcError as error:
            name_operator(node, error)
            raise
        except Exception as error:
            raise foreign_error(node, "run", error) from error

    if len(outputs) != 1:
        return step
    only = outputs[0]
    return step_of_one


def _gather(item: GraphNode) -> Callable[[Values], Sequence[Array | None]]:
    """What gives an operator's operands, of which those are None that are left out."""
    constants: list[Array | None] = [
        info.array() if info is not None and info.is_const else None for info in item.node.operands
    ]
    given = tuple((position, i) for position, i in enumerate(item.inputs) if i >= 0 and constants[position] is None)
    if len(given) == len(constants) > 1:
        return itemgetter(*(index for _, index in given))
    if len(given) == 1:
        ((place, only),) = given
        before, behind = constants[:place], constants[place + 1 :]
        return lambda values: [*before, values[only], *behind]

    def gather(values: Values) -> Sequence[Array | None]:
        operands = constants.copy()
        for position, index in given:
            operands[position] = values[index]
        return operands

    return gather


def operator_units(graph: Graph, operators: Iterable[int]) -> list[OperatorUnit]:
    """Units for ``operators``, in the order given."""
    nodes = (graph.nodes[index] for index in operators)
    return [OperatorUnit(node.index, tuple(i for i in node.inputs if i >= 0), node.outputs) for node in nodes]


class Frame:
    """The values of one run. ``values`` holds what graph inputs and finished units have produced.

    ``variables`` are the contents of variable tensors, which outlive the run.
    """

    def __init__(
        self,
        shaped: SpecializedGraph,
        values: dict[int, Array],
        variables: dict[int, Array],
        calls: Calls,
        observe: Observer | None,
    ) -> None:
        self.shaped = shaped
        self.values = values
        self.variables = variables
        self.calls = calls
        self.observe = observe

    def value(self, index: int) -> Array:
        """Tensor ``index``: a value produced so far, the contents of a variable, or a constant."""
        found = self.values.get(index)
        if found is None:
            found = self.variables.get(index)
        return self.shaped.tensors[index].array() if found is None else found

    def _operand(self, index: int, *, writable: bool) -> Array | None:
        """What an operator gets for tensor ``index``.

        A variable itself is only seen by operators that write it: results may be views of operands, and must not
        change with the variable. Of anything else a writer gets a copy; constants it copies itself, if it writes them.
        """
        if writable and self.shaped.tensors[index].is_const:
            return None
        value = self.value(index)
        return value.copy() if writable != (index in self.variables) else value

    def run_operator(self, index: int) -> None:
        """Run operator ``index`` by its host kernel; raises OdcError that names it."""
        item = self.shaped.graph.nodes[index]
        written = item.node.mutated
        operands = [
            None if i < 0 else self._operand(i, writable=position in written) for position, i in enumerate(item.inputs)
        ]
        variant = self._variant(item, operands)
        node, kernel = variant.node, variant.kernel
        start = time.perf_counter()
        if item.calls:
            with self.calls.below(self._live_bytes()):
                results = guarded(node, "run", lambda: kernel(operands))
        else:
            results = guarded(node, "run", lambda: kernel(operands))
        seconds = time.perf_counter() - start
        for tensor, result in zip(item.outputs, results, strict=True):
            self.values[tensor] = result
        if self.observe is not None:
            self.observe(Event(node.name, node.spec.name, "host", start, seconds))

    def stand_in(self, operators: Sequence[int], writes: Sequence[int]) -> None:
        """Run ``operators`` by host kernels in place of a unit that computes them all and leaves only ``writes``."""
        for index in operators:
            self.run_operator(index)
        for index in operators:
            for tensor in self.shaped.graph.nodes[index].outputs:
                if tensor not in writes:
                    self.values.pop(tensor, None)

    def _variant(self, item: GraphNode, operands: Sequence[Array | None]) -> Variant:
        """The operator, prepared for what it gets where only the run can tell the shapes of that."""
        if item.index not in self.shaped.open:
            return self.shaped.variant(item.index)
        shapes = tuple(
            None if value is None or info is None else info.shape if info.is_const else value.shape
            for value, info in zip(operands, item.node.operands, strict=True)
        )
        variant = self.shaped.variants.get(item.index, shapes)
        self.calls.check_memory(self._live_bytes() + sum(map(known_nbytes, variant.node.results)), variant.node.name)
        return variant

    def _live_bytes(self) -> int:
        return sum(value.nbytes for value in self.values.values())
