"""Calls of subgraphs: their executors, and the limits on depth, number and memory of calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Protocol

from odc_mlir.errors import AllocationError, ModelError
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array, Execute
from odc_mlir.runtime.execution.graph import Graph

if TYPE_CHECKING:
    from odc_mlir.runtime.execution.executor import Executor
    from odc_mlir.runtime.execution.units import WatchCalls

MAX_BYTES_VARIABLE = "ODC_MAX_ACTIVATION_BYTES"
MAX_DEPTH = 32  # nested calls; deeper ones are treated as endless recursion

# Subgraphs that one operator may run, in all loops and calls within it: some seconds of empty calls. Without it a short
# file could multiply nested calls without end.
MAX_CALLS = 1 << 17


class MakeExecutor(Protocol):
    """Function that makes the executor of a subgraph."""

    def __call__(self, graph: Graph, *, calls: Calls) -> Executor: ...


class Calls:
    """Data shared by the executors of a model and of its subgraphs.

    Executors of subgraphs are made at their first call; ``context`` holds the shared state; ``max_bytes`` bounds the
    activations of all active calls.
    """

    def __init__(self, context: Context, max_bytes: int, make: MakeExecutor) -> None:
        self.context = context
        self.max_bytes = context.max_bytes = max_bytes
        self._make = make
        self._executors: dict[int, Executor] = {}
        self._depth = 0
        self._count = 0
        self._outer_bytes = 0
        self._watch: WatchCalls | None = None  # of the current run

    def reset(self) -> None:
        """Reset the state of all subgraphs."""
        self.context.state.reset()
        for executor in self._executors.values():
            executor.clear_variables()

    def abandon(self) -> None:
        """Drop the current run, whose thread does not exist in this process."""
        self._depth = self._count = self._outer_bytes = 0
        self._watch = None
        self._executors = {}

    def callables(self, graphs: Mapping[int, Graph]) -> Mapping[int, Execute]:
        """Return functions that run ``graphs``, by the same indices."""
        return {index: partial(self._call, graph) for index, graph in graphs.items()}

    def _call(self, graph: Graph, values: Sequence[Array | None]) -> Sequence[Array]:
        self._count += 1
        if self._count > MAX_CALLS:
            raise ModelError(f"subgraphs have been run {MAX_CALLS} times and there is no end", location=graph.name)
        # Graphs live as long as the model's, which holds them all.
        executor = self._executors.get(id(graph))
        if executor is None:
            executor = self._executors[id(graph)] = self._make(graph, calls=self)
        return executor.call(values, None if self._watch is None else self._watch(graph))

    @contextmanager
    def watched(self, watch: WatchCalls | None) -> Iterator[None]:
        """Ask ``watch`` for a watcher of each call during a run."""
        before, self._watch = self._watch, watch
        try:
            yield
        finally:
            self._watch = before

    @contextmanager
    def below(self, live_bytes: int) -> Iterator[None]:
        """Enter an operator that calls, while ``live_bytes`` of activations are live; raise ModelError at the limit."""
        if self._depth >= MAX_DEPTH:
            raise ModelError(f"subgraphs call one another more than {MAX_DEPTH} times deep")
        self._count = self._count if self._depth else 0
        self._depth += 1
        self._outer_bytes += live_bytes
        try:
            yield
        finally:
            self._depth -= 1
            self._outer_bytes -= live_bytes

    def check_memory(self, live_bytes: int, name: str) -> None:
        """Raise AllocationError if live activations exceed ``max_bytes``.

        ``live_bytes`` are those of the innermost call; ``name`` is the tensor that is computed next.
        """
        total = live_bytes + self._outer_bytes
        if total > self.max_bytes:
            raise AllocationError(
                f"the activations need {total} bytes at this operator, more than the limit of {self.max_bytes}",
                tensor=name,
                hint=f"raise max_bytes or the variable {MAX_BYTES_VARIABLE} if this is meant",
            )
