"""Specialisation of a graph for one set of input shapes: inferred shapes and prepared kernels.

Operators are prepared once for each set of operand shapes. Graphs for different inputs share them, as do runs that
learn operand shapes on the way.
"""

from __future__ import annotations

import dataclasses
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from odc_mlir.errors import AllocationError, ModelError, OdcError
from odc_mlir.ops.context import Context
from odc_mlir.ops.spec import Execute, Node, Shape, TensorInfo
from odc_mlir.runtime.execution.graph import Graph, GraphNode
from odc_mlir.runtime.kernels.microscaling import prepare_kernel

T = TypeVar("T")

OperandShapes = tuple[Shape | None, ...]

# Number of operand shapes for which an operator stays prepared.
_VARIANTS_KEPT = 4


class Variant:
    """An operator for certain operand shapes; its kernel is prepared at the first access."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._kernel: Execute | None = None

    @property
    def kernel(self) -> Execute:
        """The prepared kernel; raises OdcError if it cannot be prepared."""
        if self._kernel is None:
            self._kernel = guarded(self.node, "prepare", lambda: prepare_kernel(self.node))
        return self._kernel


class Variants:
    """The operators of ``graph`` by index and operand shapes.

    Their kernels receive ``context``, and ``callables`` for the subgraphs that an operator may call.
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
        """Return operator ``index`` for operands of ``shapes``; raise ModelError if it rejects them."""
        kept = self._kept[index]
        variant = kept.get(shapes)
        if variant is None:
            variant = kept[shapes] = Variant(self._shaped(self.graph.nodes[index], shapes))
            if len(kept) > _VARIANTS_KEPT:
                kept.popitem(last=False)
        else:
            kept.move_to_end(shapes)
        return variant

    def _shaped(self, item: GraphNode, shapes: OperandShapes) -> Node:
        operands = tuple(
            info if info is None or info.shape == shape else dataclasses.replace(info, shape=shape)
            for info, shape in zip(item.node.operands, shapes, strict=True)
        )
        subgraphs = self._callables(item) if item.calls and self._callables is not None else {}
        node = dataclasses.replace(item.node, operands=operands, context=self._context, subgraphs=subgraphs)
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
            results.append(dataclasses.replace(declared, shape=result.shape))
        node.results = tuple(results)
        return node


class SpecializedGraph:
    """``graph`` with inputs of ``input_shapes``; raises ModelError if an operator rejects its operands.

    ``tensors[i]`` and ``nodes[i]`` are the graph's with inferred shapes; dimensions that depend on values stay None.
    Operators in ``open`` have operands of unknown shape, and are prepared in each run. ``peak_bytes`` is the peak of
    live activations, as far as shapes are known, and ``peak_name`` the tensor computed then; the executor sets them.
    """

    def __init__(self, graph: Graph, input_shapes: Sequence[tuple[int, ...]], variants: Variants | None = None) -> None:
        self.graph = graph
        self.variants = Variants(graph) if variants is None else variants
        self.peak_bytes = 0
        self.peak_name = graph.name
        self.tensors: list[TensorInfo] = list(graph.tensors)
        for index, shape in zip(graph.inputs, input_shapes, strict=True):
            self.tensors[index] = dataclasses.replace(self.tensors[index], shape=shape)
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
        """Return the prepared kernel of operator ``index``; raise OdcError if it cannot be prepared."""
        return self._chosen[index].kernel

    def prepare(self, index: int) -> None:
        """Prepare the kernel of operator ``index`` if its operand shapes are known; raise OdcError."""
        if index not in self.open:
            self.kernel(index)

    def variant(self, index: int) -> Variant:
        """Return operator ``index`` for the operand shapes known before the run."""
        return self._chosen[index]

    def nbytes(self, index: int) -> int:
        """Return the bytes of tensor ``index`` in memory; 0 if its shape is unknown."""
        return known_nbytes(self.tensors[index])


def is_static(shape: Shape | None) -> bool:
    """Return whether every dimension is known."""
    return shape is not None and None not in shape


def known_nbytes(info: TensorInfo) -> int:
    """Return the bytes of a tensor in memory; 0 if its shape is unknown."""
    return math.prod(info.static_shape) * info.info.numpy.itemsize if is_static(info.shape) else 0


def guarded(node: Node, action: str, call: Callable[[], T]) -> T:
    """Return the result of ``call()``; turn every exception into an OdcError that names the operator."""
    try:
        return call()
    except OdcError as error:
        name_operator(node, error)
        raise
    except Exception as error:
        raise foreign_error(node, action, error) from error


def name_operator(node: Node, error: OdcError) -> None:
    """Add operator and tensor to an error without them."""
    error.op = error.op or node.spec.name
    error.tensor = error.tensor or node.name


def foreign_error(node: Node, action: str, error: Exception) -> OdcError:
    """Return the OdcError for another exception of an operator."""
    where = {"op": node.spec.name, "tensor": node.name}
    if isinstance(error, MemoryError):
        return AllocationError(f"not enough memory to {action} this operator", **where)
    return ModelError(f"cannot {action} this operator: {type(error).__name__}: {error}", **where)
