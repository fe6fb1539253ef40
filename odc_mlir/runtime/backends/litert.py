"""LiteRT as a backend: its built-in optimised kernels on one thread, without delegates.

Each run of consecutive operators that LiteRT accepts becomes an interpreter, prepared once; our kernels run the other
operators. If all tensors must be visible, for comparisons, LiteRT's reference kernels are used where it has them. Its
results may differ from ours by rounding. Needs the package ai-edge-litert.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from odc_mlir.errors import OdcError, OptionError, UnsupportedError
from odc_mlir.formats.circle.schema import tflite_schema
from odc_mlir.formats.circle.writer import write_tflite
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Array, TensorInfo, Trait
from odc_mlir.quantizer.policy.readers import litert_misreads
from odc_mlir.runtime.backends.part import Part, cut_out
from odc_mlir.runtime.execution.executor import Executor
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.execution.specialization import SpecializedGraph, is_static
from odc_mlir.runtime.execution.units import Event, Frame, OperatorUnit, Unit, operator_units

_log = logging.getLogger(__name__)

# Exceptions of LiteRT for a rejected model, shape or value.
_REFUSALS = (RuntimeError, ValueError)


class LitertBackend:
    """LiteRT as a backend; ``all_tensors`` makes every computed tensor visible.

    LiteRT's reference kernels then run all operators that they accept, since optimised ones may round differently.
    Raises OptionError if ai-edge-litert is not installed.
    """

    name = "litert"

    def __init__(self, *, all_tensors: bool = False, strict: bool = False) -> None:
        self._all_tensors = all_tensors
        self._strict = strict
        self._litert = _import_litert()

    def units(self, graph: Graph, operators: Sequence[int]) -> list[Unit]:
        """Return a unit for each longest run of operators that LiteRT accepts, and one for each other operator."""
        tensors = _known_tensors(graph)
        result: list[Unit] = []
        for wanted, group in groupby(operators, lambda index: _may_take(graph.nodes[index], tensors)):
            indices = list(group)
            result += self._taken(graph, tensors, indices) if wanted else operator_units(graph, indices)
        if self._strict:
            _check_all(graph, result)
        return result

    def _taken(self, graph: Graph, tensors: Sequence[TensorInfo], operators: list[int]) -> list[Unit]:
        """Return units for consecutive ``operators``; our kernels run those that LiteRT rejects."""
        try:
            return [self._unit(graph, tensors, operators)]
        except (OdcError, *_REFUSALS) as error:
            if len(operators) == 1:
                _log.info("%s stays with our kernels: %s", graph.nodes[operators[0]].node.name, _first_line(error))
                return list(operator_units(graph, operators))
        alone = [self._is_taken_alone(graph, tensors, index) for index in operators]
        if all(alone):  # LiteRT rejects only the combination
            half = len(operators) // 2
            return [unit for part in (operators[:half], operators[half:]) for unit in self._taken(graph, tensors, part)]
        result: list[Unit] = []
        for wanted, group in groupby(zip(operators, alone, strict=True), lambda pair: pair[1]):
            indices = [index for index, _ in group]
            result += self._taken(graph, tensors, indices) if wanted else operator_units(graph, indices)
        return result

    def _is_taken_alone(self, graph: Graph, tensors: Sequence[TensorInfo], index: int) -> bool:
        try:
            self._unit(graph, tensors, [index])
        except (OdcError, *_REFUSALS) as error:
            _log.info("%s stays with our kernels: %s", graph.nodes[index].node.name, _first_line(error))
            return False
        return True

    def _unit(self, graph: Graph, tensors: Sequence[TensorInfo], operators: Sequence[int]) -> LitertUnit:
        """Return one unit for ``operators``; raise OdcError if TFLite cannot express them, and LiteRT's exceptions."""
        part = cut_out(graph, tensors, operators, all_tensors=self._all_tensors)
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
        """Return the unit with these kernels of LiteRT, prepared for inputs of ``shapes`` if known."""
        interpreter = self._litert.Interpreter(
            model_content=content, num_threads=1, experimental_op_resolver_type=kernels
        )
        unit = LitertUnit(part, interpreter, strict=self._strict)
        if shapes is not None:
            unit.resize(shapes)
        return unit


class LitertUnit:
    """A part of the graph in its own interpreter.

    ``failure`` is the last reason why our kernels ran the part, None if they never did; with ``strict`` that is an
    error.
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
        """Prepare for inputs of these shapes; raise LiteRT's exceptions."""
        if shapes != self._shapes:
            self._shapes = None  # until all of it has worked
            for index, shape in zip(self._inputs, shapes, strict=True):
                self._interpreter.resize_tensor_input(index, shape)
            self._interpreter.allocate_tensors()
            self._shapes = shapes

    def prepare(self, shaped: SpecializedGraph) -> None:
        """Resize to the known shapes; prepare our kernels if LiteRT rejects them."""
        if all(is_static(shaped.tensors[index].shape) for index in self.reads):
            try:
                self.resize([shaped.tensors[index].static_shape for index in self.reads])
            except _REFUSALS:
                for index in self.operators:
                    shaped.prepare(index)

    def inner_bytes(self, shaped: SpecializedGraph) -> int:
        """Return the peak of our kernels inside, in bytes: LiteRT reuses memory as they do."""
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
        """Run in LiteRT; if it rejects the inputs, run our kernels and keep the reason."""
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
    """Runs ``graph`` with LiteRT where it accepts operators; see :class:`LitertBackend`."""

    def __init__(
        self,
        graph: Graph,
        *,
        all_tensors: bool = False,
        strict: bool = False,
        max_bytes: int | None = None,
        resize: bool = False,
        context: Context | None = None,
    ) -> None:
        units = LitertBackend(all_tensors=all_tensors, strict=strict).units(graph, range(len(graph.nodes)))
        super().__init__(graph, units, max_bytes=max_bytes, resize=resize, context=context)

    @property
    def parts(self) -> tuple[LitertUnit, ...]:
        """The units that LiteRT runs."""
        return tuple(unit for unit in self.units if isinstance(unit, LitertUnit))

    @property
    def fallbacks(self) -> dict[str, str]:
        return {part.name: part.failure for part in self.parts if part.failure is not None}


def _check_all(graph: Graph, units: Sequence[Unit]) -> None:
    """Raise UnsupportedError unless LiteRT runs every operator."""
    for unit in units:
        if isinstance(unit, OperatorUnit):
            node = graph.nodes[unit.index].node
            raise UnsupportedError("LiteRT does not support this operator", op=node.spec.name, tensor=node.name)


def _import_litert() -> Any:
    try:
        from ai_edge_litert import interpreter
    except ImportError:
        raise OptionError(
            "the litert backend needs the package ai-edge-litert", hint="install odc-mlir with the extra litert"
        ) from None
    return interpreter


def _known_tensors(graph: Graph) -> Sequence[TensorInfo]:
    """Return the graph's tensors with inferred shapes if the input shapes are known."""
    infos = graph.input_infos()
    if all(is_static(info.shape) for info in infos):
        try:
            return SpecializedGraph(graph, [info.static_shape for info in infos]).tensors
        except OdcError:
            _log.debug("the shapes of %s cannot be inferred before a run", graph.name)
    return graph.tensors


def _may_take(item: GraphNode, tensors: Sequence[TensorInfo]) -> bool:
    """Return whether LiteRT may accept it: an operator of TFLite on arrays, without state and subgraphs."""
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
