"""Recording of the ranges of a model's float tensors during runs, including called subgraphs.

Small tensors of many runs are evaluated together, because each call of numpy has a fixed cost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from odc_mlir.calibration.gathering import TensorGatherer
from odc_mlir.calibration.recorded import InputFacts, Records, TensorKey, coverage, shapes_of
from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph
from odc_mlir.runtime.execution.units import Observer, Watcher

# Number of elements of a tensor that are evaluated together. The number is smaller for many tensors.
_BUFFER_ELEMENTS = 1 << 18
_ALL_BUFFERS_ELEMENTS = 1 << 23
_OTHER_MODEL = "RUN_MODEL"


class Recorder:
    """Recorder of tensors that executors of ``graph`` compute. Call :meth:`run` once per run, then :meth:`take`.

    Tensors inside segments are not visible. A recorder is not thread-safe. Without ``detailed``, it records extremes.
    """

    def __init__(self, graph: Graph, *, detailed: bool = True) -> None:
        self.graph = graph
        inputs = [(graph.subgraph, info.name) for info in graph.input_infos() if info.info.kind == "float"]
        shown = [(found.subgraph, found.tensors[i].name) for found in _own_graphs(graph) for i in _shown(found)]
        self.inputs, self.expected = inputs, list(dict.fromkeys(shown))
        room = max(1, min(_BUFFER_ELEMENTS, _ALL_BUFFERS_ELEMENTS // max(1, len(self.expected))))
        # Subgraphs of other model files are not recorded: tensors have separate names and are not quantised.
        self._graphs = _own_graphs(graph)
        slots: dict[int, list[TensorGatherer | None]] = {
            id(found): [None] * len(found.tensors) for found in self._graphs
        }
        for found in self._graphs:
            for index in _shown(found):
                slots[id(found)][index] = TensorGatherer(room, detailed=detailed)
        self._begin(slots)
        self._float_inputs = [
            (place, graph.tensors[index].name)
            for place, index in enumerate(graph.inputs)
            if graph.tensors[index].info.kind == "float"
        ]
        self._facts = {name: InputFacts() for _, name in self._float_inputs}
        self._run = 0
        self._seen = 0  # number of the last run that recorded values
        self._taken = 0

    def _begin(self, slots: dict[int, list[TensorGatherer | None]]) -> None:
        self._slots = slots
        self._main = slots[id(self.graph)]

    def run(self, executor: Executor, inputs: Sequence[Any], observe: Observer | None = None) -> list[Array]:
        """Run ``executor`` on ``inputs``, record tensors, and return the outputs. Raises the executor's errors.

        A failed run counts only if it computed a tensor.
        """
        self._run += 1
        try:
            outputs = executor.run(inputs, observe=observe, watch=self, watch_calls=self.watch_call)
        except BaseException:
            if self._seen == self._run:
                self._note(inputs)
            else:
                self._run -= 1
            raise
        self._note(inputs)
        return outputs

    def _note(self, inputs: Sequence[Any]) -> None:
        for place, name in self._float_inputs:
            if place < len(inputs):
                self._facts[name].add(np.asarray(inputs[place]))

    def __call__(self, index: int, value: Array) -> None:
        """Record tensor ``index`` of the graph."""
        self._seen = self._run
        slot = self._main[index]
        if slot is not None:
            slot.add(value, self._run)

    def watch_call(self, graph: Graph) -> Watcher | None:
        """Return a watcher for one call of a subgraph, or None for a subgraph of another model file."""
        slots = self._slots.get(id(graph))
        if slots is None:
            return None

        def watch(index: int, value: Array) -> None:
            slot = slots[index]
            if slot is not None:
                slot.add(value, self._run)

        return watch

    def take(self) -> Records:
        """Return the records of the runs since the last call."""
        return self.leave().records()

    def leave(self) -> Gathered:
        """Return the values of the runs since the last call. Any thread may evaluate the values."""
        slots = [
            ((graph.subgraph, graph.tensors[index].name), slot)
            for graph in self._graphs
            for index, slot in enumerate(self._slots[id(graph)])
            if slot is not None
        ]
        found = Gathered(Records(runs=self._run - self._taken, inputs=self._facts), slots)
        self._facts = {name: InputFacts() for name in self._facts}
        self._taken = self._run
        self._begin({key: [s and s.successor() for s in held] for key, held in self._slots.items()})
        return found


class Gathered:
    """Values of some runs in ``slots`` by tensor, mostly not evaluated yet. ``records``: other data about the runs."""

    def __init__(self, records: Records, slots: list[tuple[TensorKey, TensorGatherer]]) -> None:
        self._records = records
        self._slots = slots

    @property
    def nbytes(self) -> int:
        """Bytes of values that wait for evaluation."""
        return sum(slot.nbytes for _, slot in self._slots)

    def records(self, between: Callable[[], object] = bool) -> Records:
        """Evaluate the values, calling ``between`` after each tensor. Drop the values and return the records."""
        for key, slot in self._slots:
            statistics = slot.take()
            if statistics.runs_seen:
                self._records.tensors[key] = statistics
            between()
        self._slots = []
        return self._records


def record(executor: Executor, samples: Iterable[Sequence[Any]], *, detailed: bool = True) -> Records:
    """Run ``executor`` on ``samples``, each a list of arrays in graph input order, and return the records.

    All state is reset before each sample. Without ``detailed``, statistics are extremes. ``findings`` of the result
    describe defects of the data and tensors that have no values. Raises InputError if there is no sample or a sample
    does not fit, and other OdcErrors.
    """
    recorder = Recorder(executor.graph, detailed=detailed)
    found: Records | None = None
    for _, alike in groupby(map(list, samples), shapes_of):
        for inputs in alike:
            executor.reset()
            recorder.run(executor, inputs)
        records = recorder.take()
        if found is None:
            found = records
        else:
            found.merge(records)
    if found is None:
        raise InputError("there are no samples to record", hint="give at least one, preferably a hundred")
    found.findings = coverage(found, recorder.inputs, recorder.expected)
    return found


def _shown(graph: Graph) -> list[int]:
    every = [*graph.sources]
    for item in graph.nodes:
        every += item.outputs
        every += [index for index in item.written if graph.tensors[index].is_variable]
    return [index for index in dict.fromkeys(every) if graph.tensors[index].info.kind == "float"]


def _own_graphs(graph: Graph) -> list[Graph]:
    found, waiting = {id(graph): graph}, [graph]
    while waiting:
        for item in waiting.pop().nodes:
            for called in item.calls.values():
                if item.node.spec.name != _OTHER_MODEL and id(called) not in found:
                    found[id(called)] = called
                    waiting.append(called)
    return sorted(found.values(), key=lambda item: item.subgraph)
