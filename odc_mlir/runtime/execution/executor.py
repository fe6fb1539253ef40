"""Execution of a graph: units run in order and exchange values."""

from __future__ import annotations

import difflib
import math
import os
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from threading import RLock
from typing import Any, NamedTuple

import numpy as np

from odc_mlir.errors import AllocationError, InputError, ModelError, OdcError, OptionError
from odc_mlir.formats.quantities import bytes_of, counted
from odc_mlir.ops.constants import initial_contents
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.binding import InputBinder, Inputs
from odc_mlir.runtime.execution.blas_threads import LARGE_MACS, BlasLimit
from odc_mlir.runtime.execution.graph import Graph, GraphState
from odc_mlir.runtime.execution.units import (
    MAX_BYTES_VARIABLE,
    Calls,
    DirectRun,
    Frame,
    Observer,
    OperatorUnit,
    SpecializedGraph,
    Step,
    Unit,
    Values,
    Variants,
    WatchCalls,
    Watcher,
    operator_units,
)
from odc_mlir.runtime.forks import is_stuck, mend_after_fork
from odc_mlir.runtime.kernels.resource import Variable

DEFAULT_MAX_BYTES = 768 << 20
Shapes = tuple[tuple[int, ...], ...]

# Number of prepared graphs that are kept, one per set of input shapes. The least recently used graph is replaced.
SHAPES_KEPT = 4


class Executor:
    """Execution of ``units`` of ``graph``. Kernels are prepared once for each set of input shapes.

    ``max_bytes`` limits the operands and results that are live at one time (default: the environment variable
    ODC_MAX_ACTIVATION_BYTES, else 768 MiB). Temporaries of kernels do not count. ``resize``: accept inputs with static
    dimensions that differ from the model's. ``context``: settings of all kernels. ``calls``: set for subgraphs.

    The following state stays from run to run until :meth:`reset`: variable tensors (initially real zero), the graph's
    states, resource variables, hash tables and random number generators. A failed run does not change the graph's
    states. Threads that share an executor take turns. Separate executors run in parallel. If a process is forked while
    another thread runs the executor, the child resets the state.
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
        decode_constants(graph)
        self.graph = graph
        self.units = units_to_run(graph, units)
        if calls is None:
            context = Context(custom_ops=graph.custom_ops) if context is None else context
            calls = Calls(context, _limit_from_environment() if max_bytes is None else max_bytes, HostExecutor)
        self._calls = calls
        self.max_bytes = calls.max_bytes
        self._lock = RLock()
        self._input_infos = graph.input_infos()
        self._bind = InputBinder(self._input_infos, indices=graph.inputs, resize=resize)
        self._variants = Variants(graph, calls.context, lambda item: calls.callables(item.calls))
        self._prepared: OrderedDict[Shapes, Prepared] = OrderedDict()
        self._recent: tuple[Shapes | None, Prepared | None] = None, None
        self.direct: DirectRun | None = None  # for the inputs of ``_recent``
        self._variable_infos = {
            index: info for index, info in enumerate(graph.tensors) if info.is_variable and index not in graph.inputs
        }
        self._variables: dict[int, Array] = {}
        self._states: dict[int, Array] = {}
        self._last_uses = self._releases()
        self._written = [self._written_variables(unit) for unit in self.units]
        self.clear_variables()
        mend_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child, abandon a run of the parent's thread and reset the state."""
        if is_stuck(self._lock):
            self._lock = RLock()
            self._prepared, self._recent, self.direct = OrderedDict(), (None, None), None
            self._calls.abandon()
            self._fetch_states()  # the abandoned run has not changed them
            states = self._states
            self.reset()
            self._states = states

    @property
    def fallbacks(self) -> dict[str, str]:
        """Reasons why host kernels replace segments or other backends, by name."""
        return {}

    def close(self) -> None:
        """End the threads of native code. The next run starts threads again."""

    def reset(self) -> None:
        """Reset all state. Raises AllocationError if the variables need more than ``max_bytes``."""
        with self._lock:
            self.clear_variables()
            self._calls.reset()

    def clear_variables(self) -> None:
        """Reset variables and states of this graph, but not of its subgraphs. Raises AllocationError."""
        variables = self._variable_infos
        total = sum(math.prod(info.static_shape) * info.info.numpy.itemsize for info in variables.values())
        if total > self.max_bytes:
            raise AllocationError(f"the variables need {total} bytes, more than the limit of {self.max_bytes}")
        self._variables = {index: initial_contents(info) for index, info in variables.items()}
        self._states = {state.input: self._start(state) for state in self.graph.states}
        self.forget_device_states()

    def device_states(self) -> dict[int, Array]:
        """Return the states that devices currently hold, by state input tensor."""
        return {}

    def forget_device_states(self) -> None:
        """Discard the states on devices. The next run writes the states to the devices again."""

    def _start(self, state: GraphState) -> Array:
        info = self.graph.tensors[state.input]
        return np.frombuffer(state.initial, info.info.numpy).reshape(info.static_shape)

    def _fetch_states(self) -> None:
        for tensor, value in self.device_states().items():
            if tensor in self._variables:
                self._variables[tensor][...] = value
            else:
                self._states[tensor] = value

    def get_states(self) -> dict[str, Array]:
        """Return copies of the graph's states, variable tensors and resource variables, by name."""
        with self._lock:
            self._fetch_states()
            return {name: value.copy() for name, value in self._contents().items()}

    def set_states(self, values: Mapping[str, Any]) -> None:
        """Replace some of the arrays that :meth:`get_states` returns. Raises InputError if an array does not fit."""
        with self._lock:
            self._fetch_states()
            known, arrays = self._contents(), {name: np.array(value) for name, value in values.items()}
            for name, array in arrays.items():
                if name not in known:
                    hint = f"its states: {', '.join(known) or 'none'}"
                    raise InputError(f"the model has no state {name!r}", tensor=name, hint=hint)
                old = known[name]
                if (array.dtype, array.shape) != (old.dtype, old.shape):
                    seen = f"{array.dtype} {list(array.shape)}"
                    raise InputError(f"the state is {old.dtype} {list(old.shape)}, got {seen}", tensor=name)
                array.flags.writeable = False
            self.forget_device_states()
            self._states |= {item.input: arrays[item.name] for item in self.graph.states if item.name in arrays}
            for variable in self._resources():
                variable.value = arrays.get(variable.name, variable.value)
            for index, held in self._variables.items():
                held[...] = arrays.get(self.graph.tensors[index].name, held)

    def _contents(self) -> dict[str, Array]:
        found = {self.graph.tensors[index].name: value for index, value in self._variables.items()}
        found |= {item.name: item.value for item in self._resources() if item.value is not None}
        return found | {state.name: self._states[state.input] for state in self.graph.states}

    def _resources(self) -> list[Variable]:
        return [item for item in self._calls.context.state.resources.values() if isinstance(item, Variable)]

    def _keep_states(self, values: Values, results: Sequence[Array]) -> None:
        """Make the outputs of a run the states of the next run. Copy arrays that outside code may write."""
        kept: dict[int, Array] = {}
        for state in self.graph.states:
            value = values.get(state.output)
            if value is None and self.graph.tensors[state.output].is_const:
                value = self._stored(state.output)
            if value is None:  # the device keeps this state
                kept[state.input] = self._states[state.input]
                continue
            if not value.flags.writeable or any(np.may_share_memory(value, other) for other in results):
                value = value.copy()
            value = np.ascontiguousarray(value)
            value.flags.writeable = False
            kept[state.input] = value
        self._states = kept

    def prepare(self, input_shapes: Sequence[tuple[int, ...]] | None = None) -> SpecializedGraph:
        """Prepare the graph for inputs of these shapes (default: the model's own). Raises OdcError."""
        with self._lock:
            shapes = [info.static_shape for info in self._input_infos] if input_shapes is None else input_shapes
            return self._prepare(tuple(shapes)).shaped

    def _prepare(self, shapes: Shapes) -> Prepared:
        prepared = self._prepared.get(shapes)
        if prepared is None:
            shaped = SpecializedGraph(self.graph, shapes, self._variants)
            self._find_peak(shaped)
            self._calls.check_memory(shaped.peak_bytes, shaped.peak_name)
            threads = self._calls.context.threads
            is_large = threads is None and any(node.macs >= LARGE_MACS for node in shaped.nodes)
            blas = nullcontext() if is_large else BlasLimit(threads or 1)
            steps = [unit.prepare(shaped) for unit in self.units]
            program = tuple(zip(self.units, steps, self._last_uses, self._written, strict=True))
            straight = _straight(program)
            # As a decorator, np.errstate costs half as much as in a with statement. Only host kernels need it.
            computes = any(isinstance(unit, OperatorUnit) for unit in self.units)
            quietly = np.errstate(all="ignore")(straight) if straight is not None and computes else straight
            prepared = self._prepared[shapes] = Prepared(shaped, program, straight, quietly, blas)
            if len(self._prepared) > SHAPES_KEPT:
                self._prepared.popitem(last=False)
        else:
            self._calls.check_memory(prepared.shaped.peak_bytes, prepared.shaped.peak_name)
            self._prepared.move_to_end(shapes)
        return prepared

    def run(
        self,
        inputs: Inputs,
        *,
        observe: Observer | None = None,
        watch: Watcher | None = None,
        watch_calls: WatchCalls | None = None,
    ) -> list[Array]:
        """Run on ``inputs``, arrays in graph input order, and return the outputs. The inputs are not changed.

        ``watch`` receives the inputs and the results of every unit, but no tensors inside segments. ``watch_calls``
        returns a watcher for each call of a subgraph. Raises InputError for arrays that do not fit, and other OdcErrors
        that name the failed operator.
        """
        with self._lock:
            if self.direct is not None and observe is None and watch is None:  # one program computes everything
                found = self.direct(inputs)
                if found is not None:
                    return found
            values = self._bind(inputs)
            shapes, prepared = self._recent
            if self._bind.shapes is not shapes or prepared is None:
                prepared = self._prepare(self._bind.shapes or ())
                self._recent = self._bind.shapes, prepared
                self.direct = None if prepared.straight is None else self._direct_run()
            if watch is not None:
                self._fetch_states()
            values.update(self._states)
            if prepared.quietly is not None and observe is None and watch is None:  # no subgraph is called
                with prepared.blas:
                    prepared.quietly(values)
            else:
                with prepared.blas, np.errstate(all="ignore"), self._calls.watched(watch_calls):
                    self._execute(prepared, values, observe, watch)
            results = []
            for index in self.graph.outputs:
                value = values.get(index)
                results.append(self._detached(self._stored(index) if value is None else value))
            if self._states:
                self._keep_states(values, results)
            return results

    def _direct_run(self) -> DirectRun | None:
        return None

    def call(self, values: Sequence[Array | None], watch: Watcher | None = None) -> list[Array]:
        """Run as a subgraph of control flow, on arrays of any shape. Outputs may be views of ``values``."""
        arrays = [value for value in values if value is not None]
        if len(arrays) != len(self._input_infos):
            raise ModelError(
                f"{self.graph.name!r} takes {counted(len(self._input_infos), 'argument')}, got {len(arrays)}"
            )
        shapes = tuple([array.shape for array in arrays])
        recent = self._recent[1] if self._recent[0] == shapes else None
        prepared = self._prepare(shapes) if recent is None else recent
        if recent is None:
            self._recent = shapes, prepared
        else:
            self._calls.check_memory(recent.shaped.peak_bytes, recent.shaped.peak_name)
        if prepared.straight is not None and watch is None and not self._variables:
            found = dict(zip(self.graph.inputs, arrays, strict=False))
            prepared.straight(found)
            return [found[index] if index in found else self._stored(index) for index in self.graph.outputs]
        frame = self._execute(prepared, dict(zip(self.graph.inputs, arrays, strict=True)), None, watch)
        return [
            frame.value(index).copy() if index in self._variables else frame.value(index)
            for index in self.graph.outputs
        ]

    def _execute(self, prepared: Prepared, values: Values, observe: Observer | None, watch: Watcher | None) -> Frame:
        frame = Frame(prepared.shaped, values, self._variables, self._calls, observe, watched=watch is not None)
        if watch is not None:
            _show(watch, frame, self.graph.sources)
        for unit, step, dead, written in prepared.program:
            if step is None or observe is not None:
                unit.run(frame)
            else:
                step(values)
            if watch is not None:
                _show(watch, frame, unit.writes)
                if written:
                    _show(watch, frame, written)
            for index in dead:
                values.pop(index, None)
        return frame

    def _stored(self, index: int) -> Array:
        variable = self._variables.get(index)
        return self.graph.tensors[index].array() if variable is None else variable

    def _detached(self, value: Array) -> Array:
        """Copy ``value`` if it is read-only (a constant, an input, or a view of either) or part of a variable."""
        flags = value.flags
        if not flags.writeable:
            return value.copy()
        if self._variables and any(np.may_share_memory(value, variable) for variable in self._variables.values()):
            return value.copy()
        return value if flags.c_contiguous else np.ascontiguousarray(value)

    def _releases(self) -> list[tuple[int, ...]]:
        """Return, for each unit, the values that no later unit reads."""
        tensors = self.graph.tensors
        keep = {*self.graph.results, *(i for i, info in enumerate(tensors) if info.is_variable or info.is_const)}
        result: list[tuple[int, ...]] = []
        for unit in reversed(self.units):
            touched = dict.fromkeys((*unit.reads, *unit.writes))
            result.append(tuple(index for index in touched if index not in keep))
            keep.update(touched)
        return result[::-1]

    def _written_variables(self, unit: Unit) -> tuple[int, ...]:
        if not isinstance(unit, OperatorUnit):
            return ()  # ``writes`` of other units already has the variables
        return tuple(index for index in self.graph.nodes[unit.index].written if index in self._variable_infos)

    def _find_peak(self, shaped: SpecializedGraph) -> None:
        live = shaped.peak_bytes = sum(shaped.nbytes(index) for index in self.graph.sources)
        for unit, dead in zip(self.units, self._last_uses, strict=True):
            live += sum(shaped.nbytes(index) for index in unit.writes if index not in self._variable_infos)
            inside = live + unit.inner_bytes(shaped)
            if inside > shaped.peak_bytes:
                shaped.peak_bytes, shaped.peak_name = inside, shaped.tensors[unit.writes[0]].name
            live -= sum(shaped.nbytes(index) for index in dead)


class Prepared(NamedTuple):
    """A graph prepared for one set of input shapes.

    ``program``: for each unit, a step, the values to drop after the step, and the variables that the unit writes.

    If no unit needs a frame, ``straight`` runs all units, and ``quietly`` does so with numpy's warnings disabled.
    ``blas`` limits the threads of matrix products.
    """

    shaped: SpecializedGraph
    program: tuple[tuple[Unit, Step | None, tuple[int, ...], tuple[int, ...]], ...]
    straight: Step | None
    quietly: Step | None
    blas: AbstractContextManager[None]


def _straight(program: Sequence[tuple[Unit, Step | None, tuple[int, ...], tuple[int, ...]]]) -> Step | None:
    """Return one step that runs all of ``program``, or None if a unit has no step. The step is not thread-safe."""
    steps = [(step, dead) for _, step, dead, _ in program if step is not None]
    if len(steps) < len(program):
        return None

    def run(values: Values) -> None:
        for step, dead in steps:
            step(values)
            for index in dead:
                del values[index]

    return run


class HostExecutor(Executor):
    """Executor that runs every operator of ``graph`` with host kernels, in stored order."""

    def __init__(self, graph: Graph, **options: Any) -> None:
        super().__init__(graph, operator_units(graph, range(len(graph.nodes))), **options)


def _show(watch: Watcher, frame: Frame, tensors: Iterable[int]) -> None:
    for index in tensors:
        watch(index, frame.value(index))


def _limit_from_environment() -> int:
    text = os.environ.get(MAX_BYTES_VARIABLE, "")
    if not text:
        return DEFAULT_MAX_BYTES
    try:
        limit = bytes_of(text)
    except OptionError:
        limit = -1
    if limit < 0:
        raise OptionError(f"the variable {MAX_BYTES_VARIABLE} is {text!r}, expected a number of bytes")
    return limit


def decode_constants(graph: Graph) -> None:
    """Evaluate every DEQUANTIZE of a constant, so that kernels can prepare the result as a constant.

    A DEQUANTIZE that the kernel rejects stays, and fails in the run.
    """

    for item in graph.nodes:
        node = item.node
        source = node.operands[0] if node.spec.name == "DEQUANTIZE" else None
        if source is None or not source.is_const or node.results[0].is_const:
            continue
        try:
            (array,) = node.spec.kernel_function(node)([source.array()])
        except OdcError:
            continue
        result = node.results[0]
        contents = np.ascontiguousarray(array, result.info.numpy)
        contents.flags.writeable = False
        result.shape, result.data = contents.shape, memoryview(contents.tobytes())


def units_to_run(graph: Graph, units: Iterable[Unit]) -> tuple[Unit, ...]:
    """Return ``units``, except units that only compute constants for host kernels."""
    found = tuple(units)
    read = {i for unit in found if not isinstance(unit, OperatorUnit) for i in unit.reads}
    spare = {index for index, info in enumerate(graph.tensors) if info.is_const} - read
    return tuple(unit for unit in found if not unit.writes or not spare.issuperset(unit.writes))


_MOST_SUGGESTIONS = 3


class Capture:
    """Watcher for ``executor.run`` that keeps the tensors with the given names.

    Inputs and constants are allowed. If several tensors have the same name, the watcher keeps the first. Raises
    OptionError for an unknown name, and for a tensor that exists only inside a segment.
    """

    def __init__(self, executor: Executor, names: Iterable[str]) -> None:
        graph = executor.graph
        indices: dict[str, int] = {}
        for index, info in enumerate(graph.tensors):
            indices.setdefault(info.name, index)
        visible = {*graph.sources, *(tensor for unit in executor.units for tensor in unit.writes)}
        self._wanted = tuple(names)
        self._found: dict[str, Array] = {}
        self._names: dict[int, str] = {}
        for name in self._wanted:
            if name not in indices:
                close = difflib.get_close_matches(name, indices, _MOST_SUGGESTIONS)
                hint = f"close to it are {', '.join(map(repr, close))}" if close else "odc-dump lists its tensors"
                raise OptionError(f"the model has no tensor {name!r}", hint=hint)
            info = graph.tensors[indices[name]]
            if info.is_const:
                self._found[name] = info.array().copy()
            elif indices[name] not in visible:
                raise OptionError(
                    "the tensor is internal to the segment that computes it", tensor=name, hint="use the backend host"
                )
            else:
                self._names[indices[name]] = name

    def __call__(self, index: int, value: Array) -> None:
        """Keep a copy of tensor ``index`` if it was requested."""
        name = self._names.get(index)
        if name is not None:
            self._found[name] = value.copy()

    @property
    def values(self) -> dict[str, Array]:
        """The tensors of the last run, in the order of the given names."""
        return {name: self._found[name] for name in self._wanted}
