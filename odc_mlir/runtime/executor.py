"""Runs a graph: values flow from unit to unit, each unit being one operator or (see plan.py) one compiled segment."""

from __future__ import annotations

import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from odc_mlir.errors import AllocationError, OptionError
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.binding import bind_inputs
from odc_mlir.runtime.graph import Graph
from odc_mlir.runtime.shaping import ShapedGraph, guarded

DEFAULT_MAX_BYTES = 2 << 30
MAX_BYTES_VARIABLE = "ODC_MAX_ACTIVATION_BYTES"
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
        shaped.kernel(self.index)

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
        self, shaped: ShapedGraph, values: dict[int, Array], variables: dict[int, Array], observe: Observer | None
    ) -> None:
        self.shaped = shaped
        self.values = values
        self.variables = variables
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
        item, node = self.shaped.graph.nodes[index], self.shaped.nodes[index]
        kernel = self.shaped.kernel(index)
        written = node.mutated
        operands = [
            None if i < 0 else self._operand(i, writable=position in written) for position, i in enumerate(item.inputs)
        ]
        start = time.perf_counter()
        results = guarded(node, "run", lambda: kernel(operands))
        seconds = time.perf_counter() - start
        for tensor, result in zip(item.outputs, results, strict=True):
            self.values[tensor] = result
        if self.observe is not None:
            self.observe(Event(node.name, node.spec.name, "host", start, seconds))

    def run_operators(self, operators: Iterable[int]) -> None:
        for index in operators:
            self.run_operator(index)


class Executor:
    """Runs ``units`` of ``graph`` over and over; kernels are prepared once for each set of input shapes.

    ``max_bytes`` bounds the activations that live at one time (default: the variable ODC_MAX_ACTIVATION_BYTES, else
    2 GiB); ``resize`` accepts inputs whose static dimensions differ from the model's. Variable tensors start at real
    zero and keep their contents from run to run, until :meth:`reset`.
    """

    def __init__(
        self, graph: Graph, units: Sequence[Unit], *, max_bytes: int | None = None, resize: bool = False
    ) -> None:
        self.graph = graph
        self.units = tuple(units)
        self.resize = resize
        self.max_bytes = _limit_from_environment() if max_bytes is None else max_bytes
        self._input_infos = graph.input_infos()
        self._shaped: OrderedDict[tuple[tuple[int, ...], ...], ShapedGraph] = OrderedDict()
        self._variables: dict[int, Array] = {}
        self._last_uses = self._releases()
        self.reset()

    def reset(self) -> None:
        """Set all variable tensors to real zero; raises AllocationError when they need more than ``max_bytes``."""
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
        shaped = self._shaped.get(shapes)
        if shaped is None:
            shaped = ShapedGraph(self.graph, shapes)
            self._check_memory(shaped)
            for unit in self.units:
                unit.prepare(shaped)
            self._shaped[shapes] = shaped
            if len(self._shaped) > _SHAPES_KEPT:
                self._shaped.popitem(last=False)
        self._shaped.move_to_end(shapes)
        return shaped

    def run(self, inputs: Sequence[Any], *, observe: Observer | None = None) -> list[Array]:
        """The graph's outputs for ``inputs`` (arrays in graph input order, which are not changed).

        Raises InputError for arrays that do not fit, and other OdcErrors that name the operator that failed.
        """
        arrays = bind_inputs(self._input_infos, inputs, resize=self.resize)
        shaped = self.prepare([array.shape for array in arrays])
        frame = Frame(shaped, dict(zip(self.graph.inputs, arrays, strict=True)), self._variables, observe)
        with np.errstate(all="ignore"):
            for unit, dead in zip(self.units, self._last_uses, strict=True):
                unit.run(frame)
                for index in dead:
                    frame.values.pop(index, None)
        kept = [*arrays, *self._variables.values()]
        return [_detached(frame.value(index), kept) for index in self.graph.outputs]

    def _releases(self) -> list[tuple[int, ...]]:
        """For each unit the tensors that nothing reads afterwards."""
        keep = {*self.graph.outputs, *(i for i, info in enumerate(self.graph.tensors) if info.is_variable)}
        result: list[tuple[int, ...]] = []
        for unit in reversed(self.units):
            touched = dict.fromkeys((*unit.reads, *unit.writes))
            result.append(tuple(index for index in touched if index not in keep))
            keep.update(touched)
        return result[::-1]

    def _check_memory(self, shaped: ShapedGraph) -> None:
        """Refuse to run what would need more than ``max_bytes`` for activations at any one time."""
        live = sum(shaped.nbytes(index) for index in self.graph.inputs)
        for unit, dead in zip(self.units, self._last_uses, strict=True):
            live += sum(shaped.nbytes(index) for index in unit.writes)
            if live > self.max_bytes:
                raise AllocationError(
                    f"the activations need {live} bytes at this operator, more than the limit of {self.max_bytes}",
                    tensor=shaped.tensors[unit.writes[0]].name,
                    hint=f"raise max_bytes or the variable {MAX_BYTES_VARIABLE} if this is meant",
                )
            live -= sum(shaped.nbytes(index) for index in dead if not shaped.tensors[index].is_const)


class HostExecutor(Executor):
    """Runs every operator of ``graph`` by host kernels, in stored order."""

    def __init__(self, graph: Graph, *, max_bytes: int | None = None, resize: bool = False) -> None:
        super().__init__(graph, operator_units(graph, range(len(graph.nodes))), max_bytes=max_bytes, resize=resize)


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
