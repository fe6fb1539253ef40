"""A graph made ready for the shapes of one set of inputs: all shapes that follow from them, and prepared kernels."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

from odc_mlir.errors import AllocationError, ModelError, OdcError
from odc_mlir.ops.spec import Execute, Node, Shape, TensorInfo
from odc_mlir.runtime.graph import Graph, GraphNode

T = TypeVar("T")


class ShapedGraph:
    """``graph`` with its inputs fixed to ``input_shapes``; raises ModelError where an operator refuses its operands.

    ``tensors[i]`` and ``nodes[i]`` are the graph's with inferred shapes; dimensions that depend on values stay None.
    """

    def __init__(self, graph: Graph, input_shapes: Sequence[tuple[int, ...]]) -> None:
        self.graph = graph
        self.tensors: list[TensorInfo] = list(graph.tensors)
        for index, shape in zip(graph.inputs, input_shapes, strict=True):
            self._set_shape(index, shape)
        self.nodes: list[Node] = [self._shaped(item) for item in graph.nodes]
        self._kernels: list[Execute | None] = [None] * len(self.nodes)

    def _set_shape(self, index: int, shape: Shape | None) -> None:
        if self.tensors[index].shape != shape:
            self.tensors[index] = dataclasses.replace(self.tensors[index], shape=shape)

    def _shaped(self, item: GraphNode) -> Node:
        operands = tuple(None if i < 0 else self.tensors[i] for i in item.inputs)
        node = dataclasses.replace(item.node, operands=operands)
        types = guarded(node, "infer the shapes of", lambda: node.spec.infer_function(node))
        if len(types) != len(item.outputs):
            raise node.error(f"{len(item.outputs)} results are declared, the operator has {len(types)}")
        for index, result in zip(item.outputs, types, strict=True):
            declared = self.tensors[index]
            if result.dtype != declared.dtype:
                raise node.error(
                    f"the result is declared as {declared.dtype}, the operator gives {result.dtype}",
                    tensor=declared.name,
                )
            self._set_shape(index, result.shape)
        node.results = tuple(self.tensors[i] for i in item.outputs)
        return node

    def kernel(self, index: int) -> Execute:
        """The prepared kernel of operator ``index``; raises OdcError when it cannot be prepared."""
        kernel = self._kernels[index]
        if kernel is None:
            node = self.nodes[index]
            kernel = self._kernels[index] = guarded(node, "prepare", lambda: node.spec.kernel_function(node))
        return kernel

    def nbytes(self, index: int) -> int:
        """Bytes of tensor ``index`` in memory; 0 while its shape is unknown."""
        info = self.tensors[index]
        if info.shape is None or any(dim is None for dim in info.shape):
            return 0
        return math.prod(info.static_shape) * info.info.numpy.itemsize


def guarded(node: Node, action: str, call: Callable[[], T]) -> T:
    """The result of ``call()``; every exception leaves as an OdcError that names the operator."""
    try:
        return call()
    except OdcError as error:
        error.op = error.op or node.spec.name
        error.tensor = error.tensor or node.name
        raise
    except MemoryError as error:
        where = {"op": node.spec.name, "tensor": node.name}
        raise AllocationError(f"not enough memory to {action} this operator", **where) from error
    except Exception as error:
        kind = f"{type(error).__name__}: {error}"
        raise ModelError(f"cannot {action} this operator: {kind}", op=node.spec.name, tensor=node.name) from error
