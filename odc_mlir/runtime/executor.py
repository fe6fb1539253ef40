"""Runs a graph: values flow from unit to unit, each unit being one operator or (see plan.py) one compiled segment."""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from odc_mlir.errors import AllocationError, ModelError, OptionError
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.binding import bind_inputs
from odc_mlir.runtime.calls import MAX_BYTES_VARIABLE, Calls
from odc_mlir.runtime.graph import Graph, GraphNode
from odc_mlir.runtime.shaping import ShapedGraph, Variant, Variants, guarded, known_nbytes

DEFAULT_MAX_BYTES = 2 << 30
# Graphs prepared for this many different input shapes are kept; another one replaces the longest unused.
_SHAPES_KEPT = 4


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
"""Is shown each tensor that a run computes, by index, as soon as it is there; must neither change nor keep it."""


class Unit(Protocol):
    """A step of an execution. ``reads`` and ``writes`` are tensor indices of the graph."""

    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def prepare(self, shaped: ShapedGraph) -> None:
        """Do now what would make the first run slower."""

    def run(self, frame: Frame) -> None:
        """Take ``reads`` from the frame, put ``writes`` into it."""


@dataclass(slots=True)
class OperatorUnit:
    """Operator ``index`` of the graph, by its host kernel."""

    index: int
    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def prepare(self, shaped: ShapedGraph) -> None:
        shaped.prepare(self.index)

    def run(self, frame: Frame) -> None:
        frame.run_operator(self.index)


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
        shaped: ShapedGraph,
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

    def _operand(self, index: int, *, writable: bool) -> Array:
        """What an operator gets for tensor ``index``.

        A variable itself is only seen by operators that write it: results may be views of operands, and must not
        change with the variable. Of anything else a writer gets a copy.
        """
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

    def run_operators(self, operators: Iterable[int]) -> None:
        for index in operators:
            self.run_operator(index)

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


class Executor:
    """Runs ``units`` of ``graph`` over and over; kernels are prepared once for each set of input shapes.

    ``max_bytes`` bounds the activations that live at one time (default: the variable ODC_MAX_ACTIVATION_BYTES, else
    2 GiB); ``resize`` accepts inputs whose static dimensions differ from the model's. Variable tensors start at real
    zero, and they, resource variables, hash tables and random number generators go on from run to run, until
    :meth:`reset`. ``context`` are choices for the whole run; ``calls`` is given to the executors of subgraphs only.
    """

    def __init__(
        self,
        graph: Graph,
        units: Sequence[Unit],
        *,
        max_bytes: int | None = None,
        resize: bool = False,
        context: Context | None = None,
        calls: Calls | None = None,
    ) -> None:
        self.graph = graph
        self.units = tuple(units)
        self.resize = resize
        if calls is None:
            context = Context(custom_ops=graph.custom_ops) if context is None else context
            calls = Calls(context, _limit_from_environment() if max_bytes is None else max_bytes, HostExecutor)
        self._calls = calls
        self.max_bytes = calls.max_bytes
        self._input_infos = graph.input_infos()
        self._variants = Variants(graph, calls.context, lambda item: calls.callables(item.calls))
        self._prepared: OrderedDict[tuple[tuple[int, ...], ...], _Prepared] = OrderedDict()
        self._variables: dict[int, Array] = {}
        self._last_uses = self._releases()
        self.clear_variables()

    def reset(self) -> None:
        """Let all state begin anew; raises AllocationError when the variables need more than ``max_bytes``."""
        self.clear_variables()
        self._calls.reset()

    def clear_variables(self) -> None:
        """Set the variables of this graph, not of its subgraphs, to real zero; raises AllocationError."""
        variables = {
            index: info
            for index, info in enumerate(self.graph.tensors)
            if info.is_variable and index not in self.graph.inputs
        }
        total = sum(math.prod(info.static_shape) * info.info.numpy.itemsize for info in variables.values())
        if total > self.max_bytes:
            raise AllocationError(f"the variables need {total} bytes, more than the limit of {self.max_bytes}")
        self._variables = {index: initial_contents(info) for index, info in variables.items()}

    def prepare(self, input_shapes: Sequence[tuple[int, ...]] | None = None) -> ShapedGraph:
        """The graph ready to run inputs of these shapes (default: the model's own); raises OdcError."""
        shapes = tuple(input_shapes or [info.static_shape for info in self._input_infos])
        prepared = self._prepared.get(shapes)
        if prepared is None:
            shaped = ShapedGraph(self.graph, shapes, self._variants)
            prepared = _Prepared(shaped, *self._peak(shaped))
            self._calls.check_memory(prepared.peak_bytes, prepared.peak_name)
            for unit in self.units:
                unit.prepare(shaped)
            self._prepared[shapes] = prepared
            if len(self._prepared) > _SHAPES_KEPT:
                self._prepared.popitem(last=False)
        else:
            self._calls.check_memory(prepared.peak_bytes, prepared.peak_name)
        self._prepared.move_to_end(shapes)
        return prepared.shaped

    def run(
        self, inputs: Sequence[Any], *, observe: Observer | None = None, watch: Watcher | None = None
    ) -> list[Array]:
        """The graph's outputs for ``inputs`` (arrays in graph input order, which are not changed).

        ``watch`` sees the inputs and what every unit computes; segments give it no tensor that stays inside them.
        Raises InputError for arrays that do not fit, and other OdcErrors that name the operator that failed.
        """
        arrays = bind_inputs(self._input_infos, inputs, resize=self.resize)
        frame = self._execute(arrays, observe, watch)
        kept = [*arrays, *self._variables.values()]
        return [_detached(frame.value(index), kept) for index in self.graph.outputs]

    def call(self, values: Sequence[Array | None]) -> list[Array]:
        """As a subgraph of control flow: the outputs for arrays of any shape; they may be views of ``values``."""
        arrays = [value for value in values if value is not None]
        if len(arrays) != len(self._input_infos):
            raise ModelError(f"{self.graph.name!r} takes {len(self._input_infos)} arguments, {len(arrays)} are given")
        frame = self._execute(arrays, None)
        return [
            frame.value(index).copy() if index in self._variables else frame.value(index)
            for index in self.graph.outputs
        ]

    def _execute(self, arrays: Sequence[Array], observe: Observer | None, watch: Watcher | None = None) -> Frame:
        shaped = self.prepare([array.shape for array in arrays])
        values = dict(zip(self.graph.inputs, arrays, strict=True))
        frame = Frame(shaped, values, self._variables, self._calls, observe)
        if watch is not None:
            _show(watch, frame, self.graph.inputs)
        with np.errstate(all="ignore"):
            for unit, dead in zip(self.units, self._last_uses, strict=True):
                unit.run(frame)
                if watch is not None:
                    _show(watch, frame, unit.writes)
                for index in dead:
                    frame.values.pop(index, None)
        return frame

    def _releases(self) -> list[tuple[int, ...]]:
        """For each unit the tensors that nothing reads afterwards."""
        keep = {*self.graph.outputs, *(i for i, info in enumerate(self.graph.tensors) if info.is_variable)}
        result: list[tuple[int, ...]] = []
        for unit in reversed(self.units):
            touched = dict.fromkeys((*unit.reads, *unit.writes))
            result.append(tuple(index for index in touched if index not in keep))
            keep.update(touched)
        return result[::-1]

    def _peak(self, shaped: ShapedGraph) -> tuple[int, str]:
        """Most bytes of activations that live at any one time, as far as shapes are known, and what is made then."""
        live = peak = sum(shaped.nbytes(index) for index in self.graph.inputs)
        name = self.graph.name
        for unit, dead in zip(self.units, self._last_uses, strict=True):
            live += sum(shaped.nbytes(index) for index in unit.writes)
            if live > peak:
                peak, name = live, shaped.tensors[unit.writes[0]].name
            live -= sum(shaped.nbytes(index) for index in dead if not shaped.tensors[index].is_const)
        return peak, name


class _Prepared(NamedTuple):
    """A graph for some input shapes, and the largest sum of activations that its shapes let us know."""

    shaped: ShapedGraph
    peak_bytes: int
    peak_name: str


class HostExecutor(Executor):
    """Runs every operator of ``graph`` by host kernels, in stored order."""

    def __init__(
        self,
        graph: Graph,
        *,
        max_bytes: int | None = None,
        resize: bool = False,
        context: Context | None = None,
        calls: Calls | None = None,
    ) -> None:
        units = operator_units(graph, range(len(graph.nodes)))
        super().__init__(graph, units, max_bytes=max_bytes, resize=resize, context=context, calls=calls)


def _show(watch: Watcher, frame: Frame, tensors: Iterable[int]) -> None:
    for index in tensors:
        watch(index, frame.value(index))


def _detached(value: Array, kept: Sequence[Array]) -> Array:
    """``value`` as an array that the caller owns: no constant of the model, no view of an input or of its state."""
    if not value.flags.writeable or any(np.may_share_memory(value, array) for array in kept):
        return value.copy()
    return np.ascontiguousarray(value).reshape(value.shape)


def _limit_from_environment() -> int:
    text = os.environ.get(MAX_BYTES_VARIABLE, "")
    if not text:
        return DEFAULT_MAX_BYTES
    if not (text.isascii() and text.isdecimal()):
        raise OptionError(f"the variable {MAX_BYTES_VARIABLE} is {text!r}, expected a number of bytes")
    return int(text)
