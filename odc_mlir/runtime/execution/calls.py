"""Subgraphs that operators call: their executors, how deep calls may go, and how much memory all of them take."""

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
MAX_DEPTH = 32  # calls within calls; more are taken for a model that calls itself without end

# Subgraphs that one operator may run, in all loops and calls within it: some seconds' worth of doing nothing. Calls
# within calls would otherwise multiply without end, however short the file.
MAX_CALLS = 1 << 17


class MakeExecutor(Protocol):
    """How the executor of a subgraph is made."""

    def __call__(self, graph: Graph, *, calls: Calls) -> Executor: ...


class Calls:
    """What the executor of a model and those of its subgraphs share.

    Executors of subgraphs are made when first called; ``context`` holds the state that all of them see, ``max_bytes``
    bounds the activations of all calls that are under way.
    """

    def __init__(self, context: Context, max_bytes: int, make: MakeExecutor) -> None:
        self.context = context
        self.max_bytes = context.max_bytes = max_bytes
        self._make = make
        self._executors: dict[int, Executor] = {}
        self._depth = 0
        self._count = 0
        self._outer_bytes = 0
        self._watch: WatchCalls | None = None  # of the run that is under way

    def reset(self) -> None:
        """Let the state of all subgraphs begin anew."""
        self.context.state.reset()
        for executor in self._executors.values():
            executor.clear_variables()

    def abandon(self) -> None:
        """Forget the run that is under way, of which nothing more will come."""
        self._depth = self._count = self._outer_bytes = 0
        self._watch = None
        self._executors = {}

    def callables(self, graphs: Mapping[int, Graph]) -> Mapping[int, Execute]:
        """The functions that run ``graphs``, under the same indices."""
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
        """Around a run, all of whose calls ``watch`` is asked for watchers of."""
        before, self._watch = self._watch, watch
        try:
            yield
        finally:
            self._watch = before

    @contextmanager
    def below(self, live_bytes: int) -> Iterator[None]:
        """Around an operator that calls: ``live_bytes`` of activations wait for it. Raises ModelError at the limit."""
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
        """Refuse to run what needs more than ``max_bytes`` for activations at any one time.

        ``live_bytes`` are those of the innermost call, ``name`` is what is about to be made.
        """
        total = live_bytes + self._outer_bytes
        if total > self.max_bytes:
            raise AllocationError(
                f"the activations need {total} bytes at this operator, more than the limit of {self.max_bytes}",
                tensor=name,
                hint=f"raise max_bytes or the variable {MAX_BYTES_VARIABLE} if this is meant",
            )
