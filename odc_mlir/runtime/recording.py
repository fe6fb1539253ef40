"""Records the ranges of a model's float tensors while it runs.

Small tensors are copied aside and looked at together, many runs at a time: one by one, numpy's overhead would take
longer than the model. Tensors of subgraphs that control flow calls are recorded as well; however often a run computes
one, it counts as one run.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import InputError
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import is_package, read_package
from odc_mlir.ops.spec import Array
from odc_mlir.quantization.coverage import coverage
from odc_mlir.quantization.recorded import InputFacts, Records, Shapes, TensorKey, shapes_of
from odc_mlir.quantization.records import RecordStore
from odc_mlir.quantization.statistics import TensorStatistics
from odc_mlir.runtime.executor import Executor, HostExecutor
from odc_mlir.runtime.graph import Graph, build_graph
from odc_mlir.runtime.units import Watcher

Progress = Callable[[int, int | None], None]
"""Is told how many samples are done, and of how many, where that is known."""

# A tensor's values are looked at when this many elements have come together, or fewer where there are many tensors.
_BUFFER_ELEMENTS = 1 << 15
_ALL_BUFFERS_ELEMENTS = 1 << 23
# Runs after which what was found goes to the store: what is lost at most when the process dies.
_RUNS_PER_APPEND = 128
# The first values of a tensor are looked at in all detail, later ones in turn: by then there are enough, and it takes
# long. The extremes of all are taken.
_DETAILED = 24
_DETAILED_EACH = 16
_NO = np.zeros(1, np.bool_)
_OTHER_MODEL = "RUN_MODEL"


class Recorder:
    """Records what executors of ``graph`` compute: give each run to :meth:`run`, and ask for :meth:`take` at the end.

    It can also be given to ``executor.run`` itself, as ``watch`` with :meth:`watch_call` as ``watch_calls``, after
    :meth:`begin`. Of tensors that a segment keeps to itself nothing is seen. Not for several threads at a time.
    """

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.inputs, self.expected = float_tensors(graph)
        room = max(1, min(_BUFFER_ELEMENTS, _ALL_BUFFERS_ELEMENTS // max(1, len(self.expected))))
        # Subgraphs of other model files have indices and names of their own, and nobody here quantises them.
        self._slots = {id(found): _slots(found, room) for found in _own_graphs(graph)}
        self._main = self._slots[id(graph)]
        self._float_inputs = [
            (place, graph.tensors[index].name)
            for place, index in enumerate(graph.inputs)
            if graph.tensors[index].info.kind == "float"
        ]
        self._facts = {name: InputFacts() for _, name in self._float_inputs}
        self._run = 0
        self._taken = 0

    def run(self, executor: Executor, inputs: Sequence[Any]) -> list[Array]:
        """``executor.run(inputs)``, recorded; raises what that raises."""
        self.begin(inputs)
        return executor.run(inputs, watch=self, watch_calls=self.watch_call)

    def begin(self, inputs: Sequence[Any]) -> None:
        """A new run begins, on ``inputs``."""
        self._run += 1
        for place, name in self._float_inputs:
            if place < len(inputs):
                self._facts[name].add(np.asarray(inputs[place]))

    def __call__(self, index: int, value: Array) -> None:
        """Take in tensor ``index`` of the graph."""
        slot = self._main[index]
        if slot is not None:
            slot.add(value, self._run)

    def watch_call(self, graph: Graph) -> Watcher | None:
        """What takes in the tensors of one call of a subgraph; None for the subgraph of another model."""
        slots = self._slots.get(id(graph))
        if slots is None:
            return None

        def watch(index: int, value: Array) -> None:
            slot = slots[index]
            if slot is not None:
                slot.add(value, self._run)

        return watch

    def take(self, digest: str = "") -> Records:
        """What the runs since the last call gave; ``digest`` is the model's, where it is known."""
        records = Records(digest, self._run - self._taken)
        for slots in self._slots.values():
            for slot in slots:
                if slot is not None and slot.take_into(records):
                    slot.statistics = TensorStatistics()
        records.inputs, self._facts = self._facts, {name: InputFacts() for name in self._facts}
        self._taken = self._run
        return records


class _Slot:
    """Statistics of one tensor, and values that wait to be looked at: row i of ``_rows`` is of run ``_runs[i]``."""

    __slots__ = (
        "_capacity",
        "_direct",
        "_fill",
        "_last_run",
        "_looked",
        "_room",
        "_rows",
        "_runs",
        "_shape",
        "key",
        "statistics",
    )

    def __init__(self, key: TensorKey, room: int) -> None:
        self.key = key
        self.statistics = TensorStatistics()
        self._room = room
        self._shape: tuple[int, ...] | None = None
        self._rows: NDArray[np.float32] = np.empty(0, np.float32)
        self._runs: NDArray[np.int64] = np.empty(0, np.int64)
        self._fill = self._capacity = 0
        self._direct = False
        self._looked = 0  # so many values
        self._last_run = -1  # of the last of them

    def add(self, value: Array, run: int) -> None:
        """Take in a value, which may change afterwards."""
        if value.shape != self._shape:
            self._fit(value)
        if self._direct:
            self._look(value[np.newaxis], _NO if run == self._last_run else None)
            self._last_run = run
            return
        fill = self._fill
        self._rows[fill] = value
        self._runs[fill] = run
        self._fill = fill + 1
        if self._fill == self._capacity:
            self.flush()

    def _fit(self, value: Array) -> None:
        """Make room for values like this one."""
        self.flush()
        self._shape = value.shape
        self._capacity = self._room // max(1, value.size)
        self._direct = self._capacity <= 1
        if not self._direct:
            self._rows = np.empty((self._capacity, *value.shape), np.float32)
            self._runs = np.empty(self._capacity, np.int64)

    def flush(self) -> None:
        """Look at all values that wait."""
        if self._fill:
            runs = self._runs[: self._fill]
            first, last = int(runs[0]), int(runs[-1])
            begins = None
            if first == self._last_run or last - first != self._fill - 1:
                begins = runs != np.concatenate([[self._last_run], runs[:-1]])
            self._look(self._rows[: self._fill], begins)
            self._last_run = last
            self._fill = 0

    def _look(self, values: Array, begins: NDArray[np.bool_] | None) -> None:
        rows = values.reshape(len(values), math.prod(values.shape[1:]))
        channels = max(1, values.shape[-1]) if values.ndim > 1 else 1
        detail = None
        if self._looked + len(rows) > _DETAILED:
            numbers = np.arange(self._looked, self._looked + len(rows))
            detail = (numbers < _DETAILED) | (numbers % _DETAILED_EACH == 0)
        self._looked += len(rows)
        self.statistics.update(rows, channels=channels, begins=begins, detail=detail)

    def take_into(self, records: Records) -> bool:
        """Look at all values and hand the statistics over; false when there are none."""
        self.flush()
        self._last_run = -1
        if not self.statistics.runs_seen:
            return False
        # Tensors may share a name: then each must find its values within the range.
        known = records.tensors.get(self.key)
        if known is None:
            records.tensors[self.key] = self.statistics
        else:
            known.merge(self.statistics)
        return True


def record(
    model: str | os.PathLike[str] | bytes | Model | Executor,
    samples: Iterable[Sequence[Any]],
    *,
    store: RecordStore | str | os.PathLike[str] | None = None,
    progress: Progress | None = None,
    max_runs: int | None = None,
    keep_state: bool = False,
) -> Records:
    """The records of running ``model`` on ``samples``, each a list of arrays in graph input order.

    ``model``: a model file or its bytes, an nnpackage, a model's records, or an executor, which then runs. At most
    ``max_runs`` samples are taken. Variables and other state begin anew with each sample, or with ``keep_state`` only
    with the first. What is found is also added to ``store`` (or to the file of that name), a while at a time, together
    with the last raw inputs. ``findings`` of the result tell what is wrong with the data, and what no run has shown.
    Raises InputError when there is no sample or one does not fit, and other OdcErrors.
    """
    executor, digest = _opened(model)
    if store is not None and not isinstance(store, RecordStore):
        store = RecordStore(store, digest or None)
    recorder = Recorder(executor.graph)
    found = Records(digest)
    total = _known_length(samples, max_runs)
    executor.reset()
    batch = _Batch(recorder, store, found)
    for done, sample in enumerate(_first(samples, max_runs), 1):
        inputs = list(sample)
        if not keep_state:
            executor.reset()
        batch.prepare(shapes_of(inputs))
        recorder.run(executor, inputs)
        batch.keep(inputs)
        if progress is not None:
            progress(done, total)
    batch.finish()
    if not found.runs:
        raise InputError("there is no sample to record", hint="give at least one, better a hundred")
    found.findings = coverage(found, recorder.inputs, recorder.expected)
    return found


class _Batch:
    """Runs on inputs of one set of shapes, which go to ``found`` and to the store together."""

    def __init__(self, recorder: Recorder, store: RecordStore | None, found: Records) -> None:
        self._recorder, self._store, self._found = recorder, store, found
        self._shapes: Shapes = ()
        self._runs = 0
        self._inputs: deque[list[Array]] = deque(maxlen=0 if store is None else store.max_inputs)

    def prepare(self, shapes: Shapes) -> None:
        """The next run is on inputs of these shapes."""
        if shapes != self._shapes or self._runs >= _RUNS_PER_APPEND:
            self.finish()
            self._shapes = shapes

    def keep(self, inputs: Sequence[Any]) -> None:
        """That run is done."""
        self._runs += 1
        if self._store is not None:
            self._inputs.append([np.array(value) for value in inputs])

    def finish(self) -> None:
        """Hand over what has been recorded."""
        if self._runs:
            records = self._recorder.take(self._found.digest)
            if self._store is not None:
                self._store.append(records, self._shapes, tuple(self._inputs))
            self._found.merge(records)
            self._inputs.clear()
            self._runs = 0


def _opened(model: str | os.PathLike[str] | bytes | Model | Executor) -> tuple[Executor, str]:
    """What runs ``model``, and the digest of its file, empty where that is not known."""
    if isinstance(model, Executor):
        return model, ""
    if isinstance(model, Model):
        return HostExecutor(build_graph(model)), content_digest(write_model(model))
    if not isinstance(model, bytes) and is_package(model):
        model = read_package(model).model
    return HostExecutor(build_graph(read_model(model))), content_digest(model)


def float_tensors(graph: Graph) -> tuple[list[TensorKey], list[TensorKey]]:
    """The float inputs of ``graph``, and all float tensors that a run of it can show, subgraphs included."""
    inputs = [(graph.subgraph, info.name) for info in graph.input_infos() if info.info.kind == "float"]
    shown = [(found.subgraph, found.tensors[i].name) for found in _own_graphs(graph) for i in _shown(found)]
    return inputs, list(dict.fromkeys(shown))


def _shown(graph: Graph) -> list[int]:
    """The float tensors of one subgraph that its watcher sees."""
    every = [*graph.inputs]
    for item in graph.nodes:
        every += item.outputs
        every += [item.inputs[i] for i in item.node.mutated if graph.tensors[item.inputs[i]].is_variable]
    return [index for index in dict.fromkeys(every) if graph.tensors[index].info.kind == "float"]


def _slots(graph: Graph, room: int) -> list[_Slot | None]:
    """A slot for each tensor that is recorded, by index."""
    result: list[_Slot | None] = [None] * len(graph.tensors)
    for index in _shown(graph):
        result[index] = _Slot((graph.subgraph, graph.tensors[index].name), room)
    return result


def _own_graphs(graph: Graph) -> list[Graph]:
    """``graph`` and the subgraphs of the same model that it calls, directly or not."""
    found, waiting = {id(graph): graph}, [graph]
    while waiting:
        for item in waiting.pop().nodes:
            for called in item.calls.values():
                if item.node.spec.name != _OTHER_MODEL and id(called) not in found:
                    found[id(called)] = called
                    waiting.append(called)
    return sorted(found.values(), key=lambda item: item.subgraph)


def _known_length(samples: Iterable[Any], most: int | None) -> int | None:
    if not isinstance(samples, Sized):
        return most
    return len(samples) if most is None else min(most, len(samples))


def _first(samples: Iterable[Sequence[Any]], most: int | None) -> Iterator[Sequence[Any]]:
    """The first samples, without taking one more from an iterator than is asked for."""
    return iter(samples) if most is None else islice(samples, most)
