"""Backends that execute graphs on the host: our kernels, LiteRT (extra ``litert``) and onert (extra ``onert``).

LiteRT runs maximal sequences of consecutive operators that it accepts, on one thread and with no delegates. Our kernels
run all other operators. onert runs a whole model or nothing.
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from odc_mlir.errors import OdcError, OptionError, UnsupportedError, of_extra
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Quantization, SubGraph, Tensor
from odc_mlir.formats.circle.schema import tflite_schema
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array, TensorInfo, Trait
from odc_mlir.quantizer.policy.readers import litert_misreads
from odc_mlir.runtime.execution.executor import Executor, HostExecutor
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.units import (
    Event,
    Frame,
    OperatorUnit,
    SpecializedGraph,
    Unit,
    is_static,
    operator_units,
)


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive ``operators`` of a graph. ``inputs`` and ``outputs`` are tensor indices of the graph.

    ``model`` holds only these operators. ``local`` maps tensor indices of the graph to tensor indices of ``model``.
    """

    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    model: Model
    local: dict[int, int]


def cut_out(graph: Graph, tensors: Sequence[TensorInfo], operators: Sequence[int], *, all_tensors: bool) -> Part:
    """Return ``operators`` of ``graph`` as a part, with the shapes of ``tensors``.

    Outputs are the results that other operators read, or all results with ``all_tensors``. Constants belong to the
    part. An unknown dimension becomes 1, with -1 in the shape signature. An unknown rank becomes an empty shape.
    """
    nodes = [graph.nodes[index] for index in operators]
    made = [tensor for item in nodes for tensor in item.outputs]
    read = dict.fromkeys(tensor for item in nodes for tensor in item.inputs if tensor != LEFT_OUT)
    inputs = tuple(tensor for tensor in read if tensor not in made and not tensors[tensor].is_const)
    inside = set(operators)
    elsewhere = {*graph.results}
    for item in graph.nodes:
        if item.index not in inside:
            elsewhere.update(item.inputs)
    outputs = tuple(tensor for tensor in made if all_tensors or tensor in elsewhere) or nodes[-1].outputs
    local = {tensor: position for position, tensor in enumerate(dict.fromkeys((*inputs, *read, *made)))}
    model = Model(version=0, subgraphs=[SubGraph(graph.name)])
    subgraph = model.subgraphs[0]
    for tensor in local:
        subgraph.tensors.append(_tensor(tensors[tensor], model))
    subgraph.inputs = tuple(local[tensor] for tensor in inputs)
    subgraph.outputs = tuple(local[tensor] for tensor in outputs)
    subgraph.operators = [_operator(item, local) for item in nodes]
    return Part(tuple(operators), inputs, outputs, model, local)


def _tensor(info: TensorInfo, model: Model) -> Tensor:
    buffer = 0
    if info.data is not None:
        buffer = len(model.buffers)
        model.buffers.append(info.data)
    extents, quantization = info.shape or (), None
    shape = tuple(1 if dim is None else dim for dim in extents)
    signature = tuple(-1 if dim is None else dim for dim in extents) if None in extents else None
    if (quant := info.quant) is not None:
        scales, zero_points = np.asarray(quant.scales, np.float32), np.asarray(quant.zero_points, np.int64)
        quantization = Quantization(scales, zero_points, quant.axis)
    return Tensor(info.name, info.dtype, shape, signature, buffer, quantization)


def _operator(item: GraphNode, local: dict[int, int]) -> Operator:
    node = item.node
    return Operator(
        node.spec.name,
        node.version,
        node.custom_code,
        tuple(tensor if tensor == LEFT_OUT else local[tensor] for tensor in item.inputs),
        tuple(local[tensor] for tensor in item.outputs),
        node.spec.options,
        dict(node.options),
    )


_log = logging.getLogger(__name__)

# Exceptions of LiteRT for a rejected model, shape or value.
_REFUSALS = (RuntimeError, ValueError)


class _LitertUnits:
    """Factory of execution units for ``graph``.

    With ``all_tensors``, every computed tensor is visible. LiteRT then prefers reference kernels, because optimised
    kernels may round differently. Raises OptionError if ai-edge-litert is not installed.
    """

    def __init__(self, graph: Graph, *, all_tensors: bool, strict: bool) -> None:
        self._graph, self._tensors = graph, _known_tensors(graph)
        self._all_tensors = all_tensors
        self._strict = strict
        with of_extra("litert", OptionError, "the litert backend needs the package ai-edge-litert"):
            from ai_edge_litert import interpreter
        self._litert: Any = interpreter

    def units(self) -> list[Unit]:
        """Return a unit for each maximal sequence of operators that LiteRT accepts, and a unit for any other operator.

        In strict mode, raises UnsupportedError for an operator that LiteRT rejects.
        """
        graph = self._graph
        wanted = [_may_take(item, self._tensors) for item in graph.nodes]
        result = self._grouped(range(len(graph.nodes)), wanted)
        for unit in result if self._strict else ():
            if isinstance(unit, OperatorUnit):
                node = graph.nodes[unit.index].node
                raise UnsupportedError("LiteRT does not support this operator", op=node.spec.name, tensor=node.name)
        return result

    def _grouped(self, operators: Sequence[int], wanted: Sequence[bool]) -> list[Unit]:
        result: list[Unit] = []
        for is_wanted, group in groupby(zip(operators, wanted, strict=True), lambda pair: pair[1]):
            indices = [index for index, _ in group]
            result += self._taken(indices) if is_wanted else operator_units(self._graph, indices)
        return result

    def _taken(self, operators: list[int]) -> list[Unit]:
        unit = self._unit_or_none(operators)
        if unit is not None:
            return [unit]
        if len(operators) == 1:
            return list(operator_units(self._graph, operators))
        alone = [self._unit_or_none([index]) is not None for index in operators]
        if all(alone):  # LiteRT rejects only the combination
            half = len(operators) // 2
            return self._taken(operators[:half]) + self._taken(operators[half:])
        return self._grouped(operators, alone)

    def _unit_or_none(self, operators: list[int]) -> LitertUnit | None:
        try:
            return self._unit(operators)
        except (OdcError, *_REFUSALS) as error:
            if len(operators) == 1:
                name = self._graph.nodes[operators[0]].node.name
                _log.info("%s stays with our kernels: %s", name, _first_line(error))
            return None

    def _unit(self, operators: Sequence[int]) -> LitertUnit:
        """Return one unit for ``operators``. Raises OdcError if TFLite cannot express these, or LiteRT's exceptions."""
        tensors = self._tensors
        part = cut_out(self._graph, tensors, operators, all_tensors=self._all_tensors)
        content = write_tflite(part.model)
        shapes = [tensors[index].shape for index in part.inputs]
        known = [tensors[index].static_shape for index in part.inputs] if all(map(is_static, shapes)) else None
        kinds = self._litert.OpResolverType
        if self._all_tensors and (reference := getattr(kinds, "BUILTIN_REF", None)) is not None:
            try:
                return self._prepared(part, content, known, reference)
            except _REFUSALS as error:
                _log.info("%s: no reference kernel: %s", part.model.subgraphs[0].name, _first_line(error))
        return self._prepared(part, content, known, kinds.BUILTIN_WITHOUT_DEFAULT_DELEGATES)

    def _prepared(self, part: Part, content: bytes, shapes: list[tuple[int, ...]] | None, kernels: Any) -> LitertUnit:
        interpreter = self._litert.Interpreter(
            model_content=content, num_threads=1, experimental_op_resolver_type=kernels
        )
        unit = LitertUnit(part, interpreter, strict=self._strict)
        if shapes is not None:
            unit.resize(shapes)
        return unit


class LitertUnit(Unit):
    """A part of the graph in a separate LiteRT interpreter.

    ``failure``: the last reason why our kernels ran the part, or None. With ``strict``, a failure is an error.
    """

    def __init__(self, part: Part, interpreter: Any, *, strict: bool) -> None:
        self.name = part.model.subgraphs[0].tensors[part.local[part.outputs[-1]]].name
        self.operators = part.operators
        self.reads, self.writes = part.inputs, part.outputs
        self.failure: str | None = None
        self._interpreter = interpreter
        self._inputs = tuple(part.local[tensor] for tensor in part.inputs)
        self._outputs = tuple(part.local[tensor] for tensor in part.outputs)
        self._strict = strict
        self._shapes: list[tuple[int, ...]] | None = None

    def resize(self, shapes: list[tuple[int, ...]]) -> None:
        """Prepare for inputs of these shapes. Raises LiteRT's exceptions."""
        if shapes != self._shapes:
            self._shapes = None  # until all steps below have succeeded
            for index, shape in zip(self._inputs, shapes, strict=True):
                self._interpreter.resize_tensor_input(index, shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes

    def prepare(self, shaped: SpecializedGraph) -> None:
        """Resize to the known shapes. Prepare our kernels if LiteRT rejects the shapes."""
        if all(is_static(shaped.tensors[index].shape) for index in self.reads):
            try:
                self.resize([shaped.tensors[index].static_shape for index in self.reads])
            except _REFUSALS:
                for index in self.operators:
                    shaped.prepare(index)

    def inner_bytes(self, shaped: SpecializedGraph) -> int:
        """Return the peak in bytes of live activations with our kernels. LiteRT reuses memory in the same way."""
        items = [shaped.graph.nodes[index] for index in self.operators]
        last = {tensor: item.index for item in items for tensor in (*item.inputs, *item.outputs)}
        inner = {tensor for item in items for tensor in item.outputs} - set(self.writes)
        live = peak = 0
        for item in items:
            live += sum(shaped.nbytes(tensor) for tensor in inner.intersection(item.outputs))
            peak = max(peak, live)
            touched = inner.intersection((*item.inputs, *item.outputs))
            live -= sum(shaped.nbytes(tensor) for tensor in touched if last[tensor] == item.index)
        return peak

    def run(self, frame: Frame) -> None:
        """Run in LiteRT. If it rejects the inputs, run our kernels and keep the reason."""
        start = time.perf_counter()
        inputs = [frame.value(index) for index in self.reads]
        try:
            results = self._invoke(inputs)
        except _REFUSALS as error:
            if self._strict:
                raise UnsupportedError(f"rejected by LiteRT: {_first_line(error)}", tensor=self.name) from error
            self.failure = _first_line(error)
            _log.warning("%s: rejected by LiteRT: %s; our kernels run it this time", self.name, self.failure)
            frame.stand_in(self.operators, self.writes)
            return
        frame.values.update(zip(self.writes, results, strict=True))
        if frame.observe is not None:
            frame.observe(Event(self.name, "LITERT", "host", start, time.perf_counter() - start))

    def _invoke(self, inputs: Sequence[Array]) -> list[Array]:
        interpreter = self._interpreter
        self.resize([value.shape for value in inputs])
        for index, value in zip(self._inputs, inputs, strict=True):
            interpreter.set_tensor(index, value)
        interpreter.invoke()
        return [interpreter.get_tensor(index) for index in self._outputs]


class LitertExecutor(Executor):
    """Executor that runs in LiteRT all operators that LiteRT accepts."""

    def __init__(self, graph: Graph, *, all_tensors: bool = False, strict: bool = False, **options: Any) -> None:
        units = _LitertUnits(graph, all_tensors=all_tensors, strict=strict).units()
        super().__init__(graph, units, **options)

    @property
    def parts(self) -> tuple[LitertUnit, ...]:
        """The units that LiteRT runs."""
        return tuple(unit for unit in self.units if isinstance(unit, LitertUnit))

    @property
    def fallbacks(self) -> dict[str, str]:
        return {part.name: part.failure for part in self.parts if part.failure is not None}


def _known_tensors(graph: Graph) -> Sequence[TensorInfo]:
    infos = graph.input_infos()
    if all(is_static(info.shape) for info in infos):
        try:
            return SpecializedGraph(graph, [info.static_shape for info in infos]).tensors
        except OdcError:
            _log.debug("the shapes of %s cannot be inferred before a run", graph.name)
    return graph.tensors


def _may_take(item: GraphNode, tensors: Sequence[TensorInfo]) -> bool:
    """Return whether LiteRT may accept the operator: it is in TFLite, uses arrays, and has no state or subgraph."""
    spec = item.node.spec
    if spec.traits & {Trait.STATEFUL, Trait.CONTROL_FLOW} or item.node.mutated or item.calls:
        return False
    if spec.name == "CUSTOM" or spec.name not in tflite_schema().operators.codes:
        return False
    if litert_misreads(item.node):
        return False
    operands = [tensors[index] for index in (*item.inputs, *item.outputs) if index >= 0]
    return all(info.is_const or (_is_plain(info) and not info.is_variable) for info in operands)


def _is_plain(info: TensorInfo) -> bool:
    """Return whether LiteRT stores the tensor as we do: whole bytes per element, in the model's type."""
    plain = info.info.kind in ("float", "int", "uint", "bool", "complex")
    return plain and info.info.bits == 8 * info.info.numpy.itemsize


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


class OnertUnit(Unit):
    """All operators of a graph in a session of onert. Results get the shapes that the operators define.

    Only outputs are visible, because other tensors share memory. Raises OptionError if onert is not installed.
    """

    def __init__(self, graph: Graph) -> None:
        part = cut_out(graph, graph.tensors, range(len(graph.nodes)), all_tensors=False)
        self.name = graph.name
        self.operators = part.operators
        self.reads, self.writes = part.inputs, part.outputs
        with of_extra("onert", OptionError, "the onert backend needs the package onert"):
            from onert import infer
        self._infer: Any = infer
        self._model = bytes(write_model(part.model))
        self._session: Any = None
        self._shapes: list[tuple[int, ...]] | None = None
        self._results: list[tuple[int, ...] | None] = [None] * len(part.outputs)

    def prepare(self, shaped: SpecializedGraph) -> None:
        """Keep the shapes of results, since onert drops dimensions of some results."""
        known = [shaped.tensors[index] for index in self.writes]
        self._results = [info.static_shape if is_static(info.shape) else None for info in known]

    def run(self, frame: Frame) -> None:
        """Run the model. Raises UnsupportedError with onert's message."""
        start = time.perf_counter()
        inputs = [np.ascontiguousarray(frame.value(index)) for index in self.reads]
        try:
            results = self._invoke(inputs)
        except (RuntimeError, ValueError, KeyError) as error:
            self._session = None
            raise UnsupportedError(
                f"onert rejects the model: {_first_line(error)}", hint="run it on the host"
            ) from error
        frame.values.update(zip(self.writes, results, strict=True))
        if frame.observe is not None:
            frame.observe(Event(self.name, "ONERT", "host", start, time.perf_counter() - start))

    def _invoke(self, inputs: Sequence[Array]) -> list[Array]:
        shapes = [value.shape for value in inputs]
        if self._session is None or shapes != self._shapes:
            with tempfile.TemporaryDirectory(prefix="odc-onert-") as folder:  # a session maps the file into memory
                path = Path(folder, "model.circle")
                path.write_bytes(self._model)
                self._session, self._shapes = self._infer.session(str(path), "cpu"), shapes
        found = self._session.infer(list(inputs))
        return [
            np.array(value).reshape(shape) if shape is not None and value.size == np.prod(shape) else np.array(value)
            for value, shape in zip(found, self._results, strict=True)
        ]


def graph_executor(
    graph: Graph,
    backend: str,
    *,
    context: Context | None = None,
    all_tensors: bool = False,
    strict: bool = False,
    **options: Any,
) -> Executor:
    """Return an executor of ``graph`` on the backend ``host``, ``litert`` or ``onert``.

    ``context``: settings of our kernels. For LiteRT, ``all_tensors`` makes intermediate results visible, and ``strict``
        makes a fallback to our kernels an error. ``options``: see :class:`Executor`. Raises OptionError if the backend
        is not installed.
    """
    options["context"] = Context(custom_ops=graph.custom_ops) if context is None else context
    if backend == "host":
        return HostExecutor(graph, **options)
    if backend == "onert":
        return Executor(graph, [OnertUnit(graph)], **options)
    return LitertExecutor(graph, all_tensors=all_tensors, strict=strict, **options)
