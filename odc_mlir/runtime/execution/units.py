"""Units of an execution (operators and compiled segments), the values of a run, and calls of subgraphs.

A graph is specialised for one set of input shapes: shapes are inferred and kernels prepared. An operator is prepared
once for each set of operand shapes. All graphs and runs share the prepared operators.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from odc_mlir.errors import AllocationError, ModelError, OdcError
from odc_mlir.formats.plan import Plan
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array, Execute, Node, Shape, TensorInfo
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.kernels.conditions import known_results, refusal
from odc_mlir.runtime.kernels.microscaling import prepare_kernel

if TYPE_CHECKING:
    from odc_mlir.runtime.execution.executor import Executor


T = TypeVar("T")

OperandShapes = tuple[Shape | None, ...]

# Number of operand shapes for which an operator stays prepared.
_VARIANTS_KEPT = 4


class Variant:
    """An operator for one set of operand shapes. The first access to ``kernel`` prepares it."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._kernel: Execute | None = None

    @property
    def kernel(self) -> Execute:
        """The prepared kernel. Raises OdcError if it cannot be prepared."""
        if self._kernel is None:
            self._kernel = guarded(self.node, "prepare", lambda: prepare_kernel(self.node))
        return self._kernel


class Variants:
    """The operators of ``graph`` by index and operand shapes.

    Kernels receive ``context``. ``callables`` returns the functions that run the subgraphs of an operator.
    """

    def __init__(
        self,
        graph: Graph,
        context: Context | None = None,
        callables: Callable[[GraphNode], Mapping[int, Execute]] | None = None,
    ) -> None:
        self.graph = graph
        self._context = Context(custom_ops=graph.custom_ops) if context is None else context
        self._callables = callables
        self._kept: list[OrderedDict[OperandShapes, Variant]] = [OrderedDict() for _ in graph.nodes]

    def get(self, index: int, shapes: OperandShapes) -> Variant:
        """Return operator ``index`` for operands of ``shapes``. Raises ModelError if the operator rejects these."""
        kept = self._kept[index]
        variant = kept.get(shapes)
        if variant is None:
            item = self.graph.nodes[index]
            operands = [
                info if info is None or info.shape == shape else replace(info, shape=shape)
                for info, shape in zip(item.node.operands, shapes, strict=True)
            ]
            variant = kept[shapes] = Variant(self.shaped(item, operands))
            if len(kept) > _VARIANTS_KEPT:
                kept.popitem(last=False)
        else:
            kept.move_to_end(shapes)
        return variant

    def shaped(self, item: GraphNode, operands: Sequence[TensorInfo | None]) -> Node:
        """Return the operator ``item`` for ``operands``. Raises ModelError if the operator rejects these."""
        subgraphs = self._callables(item) if item.calls and self._callables is not None else {}
        node = replace(item.node, operands=tuple(operands), context=self._context, subgraphs=subgraphs)
        types = guarded(node, "infer the shapes of", lambda: node.spec.infer_function(node))
        if len(types) != len(item.outputs):
            raise node.error(f"{len(item.outputs)} results are declared, the operator has {len(types)}")
        results = []
        for declared, result in zip(node.results, types, strict=True):
            if result.dtype != declared.dtype:
                raise node.error(
                    f"the result is declared as {declared.dtype}, the operator gives {result.dtype}",
                    tensor=declared.name,
                )
            results.append(replace(declared, shape=result.shape))
        node.results = tuple(results)
        return node


class SpecializedGraph:
    """``graph`` specialised for inputs of ``input_shapes``. Raises ModelError if an operator rejects the operands.

    ``tensors`` and ``nodes`` have the inferred shapes. A dimension that depends on values stays None. Operators in
    ``open`` have operands of unknown shape. Every run prepares these operators. The executor sets ``peak_bytes``, the
    peak of live activations of known shape, and ``peak_name``, the tensor computed at the peak.
    """

    def __init__(self, graph: Graph, input_shapes: Sequence[tuple[int, ...]], variants: Variants | None = None) -> None:
        self.graph = graph
        self.variants = Variants(graph) if variants is None else variants
        self.peak_bytes = 0
        self.peak_name = graph.name
        self.tensors: list[TensorInfo] = list(graph.tensors)
        for index, shape in zip(graph.inputs, input_shapes, strict=True):
            self.tensors[index] = replace(self.tensors[index], shape=shape)
        self._chosen = [self._choose(item) for item in graph.nodes]
        self.nodes: list[Node] = [variant.node for variant in self._chosen]
        self.open = frozenset(
            index
            for index, node in enumerate(self.nodes)
            if any(info is not None and not is_static(info.shape) for info in node.operands)
        )

    def _choose(self, item: GraphNode) -> Variant:
        variant = self.variants.get(item.index, tuple(None if i < 0 else self.tensors[i].shape for i in item.inputs))
        for index, result in zip(item.outputs, variant.node.results, strict=True):
            self.tensors[index] = result
        return variant

    def kernel(self, index: int) -> Execute:
        """Return the prepared kernel of operator ``index``. Raises OdcError if the preparation fails."""
        return self._chosen[index].kernel

    def prepare(self, index: int) -> None:
        """Prepare the kernel of operator ``index`` if all operand shapes are known. Raises OdcError if this fails."""
        if index not in self.open:
            self.kernel(index)

    def variant(self, index: int, operands: Sequence[Array | None] | None = None) -> Variant:
        """Return operator ``index`` for the shapes of ``operands``, or for the shapes known before the run."""
        if operands is None or index not in self.open:
            return self._chosen[index]
        shapes = (
            None if value is None or info is None else info.shape if info.is_const else value.shape
            for value, info in zip(operands, self.graph.nodes[index].node.operands, strict=True)
        )
        return self.variants.get(index, tuple(shapes))

    def nbytes(self, index: int) -> int:
        """Return the bytes of tensor ``index`` in memory, or 0 if its shape is unknown."""
        return known_nbytes(self.tensors[index])


def is_static(shape: Shape | None) -> bool:
    """Return whether every dimension is known."""
    return shape is not None and None not in shape


def known_nbytes(info: TensorInfo) -> int:
    """Return the bytes of a tensor in memory, or 0 if its shape is unknown."""
    return math.prod(info.static_shape) * info.info.numpy.itemsize if is_static(info.shape) else 0


def guarded(node: Node, action: str, call: Callable[[], T]) -> T:
    """Return the result of ``call()``. Convert every exception to an OdcError that names the operator."""
    try:
        return call()
    except OdcError as error:
        name_operator(node, error)
        raise
    except Exception as error:
        raise foreign_error(node, action, error) from error


def name_operator(node: Node, error: OdcError) -> None:
    """Add operator and tensor to an error that names neither."""
    error.op = error.op or node.spec.name
    error.tensor = error.tensor or node.name


def foreign_error(node: Node, action: str, error: Exception) -> OdcError:
    """Return an OdcError for ``error``, an exception of another class that an operator raised."""
    where = {"op": node.spec.name, "tensor": node.name}
    if isinstance(error, MemoryError):
        return AllocationError(f"not enough memory to {action} this operator", **where)
    return ModelError(f"cannot {action} this operator: {type(error).__name__}: {error}", **where)


@dataclass(frozen=True, slots=True)
class Event:
    """Execution of one unit: ``kind`` is host or segment, ``start_seconds`` a value of ``time.perf_counter``."""

    name: str
    op: str
    kind: str
    start_seconds: float
    seconds: float


Observer = Callable[[Event], None]

Watcher = Callable[[int, Array], None]
"""Function that receives the index and the array of each computed tensor, and must neither change nor keep the array.

It receives a variable after each operator that writes the variable.
"""

WatchCalls = Callable[[Graph], Watcher | None]
"""Function that returns the watcher for a call of a subgraph, or None."""


Values = dict[int, Array]
"""Tensors of a run by index: the inputs and the results so far."""

Step = Callable[[Values], None]
"""Function that runs a unit: it reads operands from the values of a run and adds the results."""

DirectRun = Callable[[Any], list[Array] | None]
"""Function that runs a whole graph. The result is None for inputs that it does not take."""


class Unit:
    """Base of the steps of an execution. ``reads`` and ``writes`` are tensor indices of the graph."""

    __slots__ = ()

    reads: tuple[int, ...]
    writes: tuple[int, ...]

    def prepare(self, shaped: SpecializedGraph) -> Step | None:
        """Prepare kernels. Return the step that runs the unit with no frame, or None if the unit needs a frame."""

    def inner_bytes(self, shaped: SpecializedGraph) -> int:
        """Return the peak in bytes of live activations inside the unit, except operands and results of the unit."""
        return 0

    def run(self, frame: Frame) -> None:
        """Read ``reads`` from the frame, write ``writes`` to it, and call the observer."""


@dataclass(slots=True)
class OperatorUnit(Unit):
    """Unit that runs operator ``index`` of the graph by the host kernel."""

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

    def run(self, frame: Frame) -> None:
        frame.run_operator(self.index)


def _step(item: GraphNode, variant: Variant) -> Step:
    node, kernel = variant.node, variant.kernel
    gather = _gather(item)
    outputs = item.outputs
    only = outputs[0] if len(outputs) == 1 else None

    def step(values: Values) -> None:
        try:
            if only is None:
                values.update(zip(outputs, kernel(gather(values)), strict=True))
            else:
                (values[only],) = kernel(gather(values))  # half the time of the loop below
        except OdcError as error:
            name_operator(node, error)
            raise
        except Exception as error:
            raise foreign_error(node, "run", error) from error

    return step


def _gather(item: GraphNode) -> Callable[[Values], Sequence[Array | None]]:
    constants: list[Array | None] = [
        info.array() if info is not None and info.is_const else None for info in item.node.operands
    ]
    given = tuple((position, i) for position, i in enumerate(item.inputs) if i >= 0 and constants[position] is None)
    if len(given) == len(constants) > 1:
        return itemgetter(*(index for _, index in given))
    if len(given) == 1:
        ((position, only),) = given
        before, behind = constants[:position], constants[position + 1 :]
        return lambda values: [*before, values[only], *behind]

    def gather(values: Values) -> Sequence[Array | None]:
        operands = constants.copy()
        for position, index in given:
            operands[position] = values[index]
        return operands

    return gather


def operator_units(graph: Graph, operators: Iterable[int]) -> list[OperatorUnit]:
    """Return one unit per operator, in the order of ``operators``."""
    nodes = (graph.nodes[index] for index in operators)
    return [OperatorUnit(node.index, tuple(i for i in node.inputs if i >= 0), node.outputs) for node in nodes]


@dataclass(slots=True)
class Frame:
    """The values of one run: ``values`` of graph inputs and results of finished units.

    ``variables``: contents of variable tensors, which outlive the run
    ``watched``: whether a watcher also needs results that could stay on a device
    """

    shaped: SpecializedGraph
    values: Values
    variables: Values
    calls: Calls
    observe: Observer | None
    watched: bool = False

    def value(self, index: int) -> Array:
        """Return tensor ``index``: a value of the run, the contents of a variable, or a constant."""
        found = self.values.get(index)
        if found is None:
            found = self.variables.get(index)
        return self.shaped.tensors[index].array() if found is None else found

    def put(self, found: Mapping[int, Array]) -> None:
        """Set tensors to the arrays ``found``. For a variable, overwrite the contents."""
        for index, value in found.items():
            if index in self.variables:
                self.variables[index][...] = value
            else:
                self.values[index] = value

    def _operand(self, index: int, *, writable: bool) -> Array | None:
        """Return tensor ``index`` as an operand.

        An operator that writes the operand receives the variable itself, a copy of any other value, and no constant.
        All other operators receive a copy of a variable, because results may be views of operands.
        """
        if writable and self.shaped.tensors[index].is_const:
            return None
        value = self.value(index)
        return value.copy() if writable != (index in self.variables) else value

    def run_operator(self, index: int) -> None:
        """Run operator ``index`` by the host kernel. Errors name the operator."""
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
        """Run ``operators`` by host kernels in place of a unit, and keep only the results ``writes``."""
        for index in operators:
            self.run_operator(index)
        for index in operators:
            for tensor in self.shaped.graph.nodes[index].outputs:
                if tensor not in writes:
                    self.values.pop(tensor, None)

    def _variant(self, item: GraphNode, operands: Sequence[Array | None]) -> Variant:
        variant = self.shaped.variant(item.index, operands)
        if item.index in self.shaped.open:
            results = sum(map(known_nbytes, variant.node.results))
            self.calls.check_memory(self._live_bytes() + results, variant.node.name)
        return variant

    def _live_bytes(self) -> int:
        return sum(value.nbytes for value in self.values.values())


MAX_BYTES_VARIABLE = "ODC_MAX_ACTIVATION_BYTES"
MAX_DEPTH = 32  # limit on nested calls; deeper nesting is reported as endless recursion

# Limit on the subgraph runs of one operator, including nested loops and calls: some seconds of empty calls. Without the
# limit, a short file could cause endless runs by nested calls.
MAX_CALLS = 1 << 17


class MakeExecutor(Protocol):
    """Function that creates the executor of a subgraph."""

    def __call__(self, graph: Graph, *, calls: Calls) -> Executor: ...


class Calls:
    """Data shared by the executors of a model and of its subgraphs.

    The first call of a subgraph creates the executor. ``max_bytes`` limits the activations of all active calls.
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
        """Drop the current run. The thread of the run does not exist in this forked process."""
        self._depth = self._count = self._outer_bytes = 0
        self._watch = None
        self._executors = {}

    def callables(self, graphs: Mapping[int, Graph]) -> Mapping[int, Execute]:
        """Return the functions that run ``graphs``, with the same keys."""
        return {index: partial(self._call, graph) for index, graph in graphs.items()}

    def _call(self, graph: Graph, values: Sequence[Array | None]) -> Sequence[Array]:
        self._count += 1
        if self._count > MAX_CALLS:
            raise ModelError(f"the operator runs subgraphs more than {MAX_CALLS} times", location=graph.name)
        # The model's graph refers to all of these graphs, so ids stay unique.
        executor = self._executors.get(id(graph))
        if executor is None:
            executor = self._executors[id(graph)] = self._make(graph, calls=self)
        return executor.call(values, None if self._watch is None else self._watch(graph))

    @contextmanager
    def watched(self, watch: WatchCalls | None) -> Iterator[None]:
        """Use ``watch`` to create a watcher for each call, while the context is active."""
        before, self._watch = self._watch, watch
        try:
            yield
        finally:
            self._watch = before

    @contextmanager
    def below(self, live_bytes: int) -> Iterator[None]:
        """Enter an operator that calls subgraphs, with ``live_bytes`` of activations. Limit the depth to MAX_DEPTH."""
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
        """Raise AllocationError if the live activations of all calls exceed ``max_bytes``.

        ``live_bytes``: live activations of the innermost call. ``name``: the tensor to compute next.
        """
        total = live_bytes + self._outer_bytes
        if total > self.max_bytes:
            raise AllocationError(
                f"the activations need {total} bytes at this operator, more than the limit of {self.max_bytes}",
                tensor=name,
                hint=f"raise max_bytes or the variable {MAX_BYTES_VARIABLE} if this is meant",
            )


def require_kernels(graph: Graph, plan: Plan | None) -> None:
    """Raise an error for the first operator that ``plan`` assigns to host kernels but that no host kernel can run."""
    on_target = {index for step in plan.segments for index in step.operators} if plan is not None else set()
    shapes = [tuple(1 if extent is None else extent for extent in info.shape or ()) for info in graph.input_infos()]
    shaped, available = SpecializedGraph(graph, shapes), graph.available()
    for item in graph.nodes:
        for operand in item.inputs:  # custom operators may have scratch tensors without a value
            if operand >= 0 and operand not in available:
                raise item.node.error(f"operand {graph.tensors[operand].name!r} is read before anything produces it")
        available.update(item.outputs)
    tensors = list(shaped.tensors)
    for item, node in zip(graph.nodes, shaped.nodes, strict=True):
        if shaped.open:
            with suppress(OdcError):  # inputs of other sizes than 1 may fit
                node = shaped.variants.shaped(item, [None if i < 0 else tensors[i] for i in item.inputs])
                for index, info in zip(item.outputs, guarded(node, "run", partial(known_results, node)), strict=True):
                    tensors[index] = info
        if item.index not in on_target and (error := refusal(node)) is not None:
            raise error
    for called in (called for item in graph.nodes for called in item.calls.values()):
        if all(is_static(info.shape) for info in called.input_infos()):
            require_kernels(called, None)
