"""Part of a graph as a separate model, for programs that run model files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Quantization, SubGraph, Tensor
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.execution.graph import Graph, GraphNode


@dataclass(frozen=True, slots=True)
class Part:
    """Consecutive ``operators``; ``inputs`` and ``outputs`` are tensors of the graph.

    ``model`` is the part alone, with tensors numbered by ``local``.
    """

    operators: tuple[int, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    model: Model
    local: dict[int, int]


def cut_out(graph: Graph, tensors: Sequence[TensorInfo], operators: Sequence[int], *, all_tensors: bool) -> Part:
    """Return ``operators`` of ``graph`` as a part, with the shapes of ``tensors``.

    Outputs are the results that other operators read, or all results with ``all_tensors``. Constants belong to the
    part. An unknown dimension is written as 1 with -1 in the signature, an unknown rank as no dimension.
    """
    nodes = [graph.nodes[index] for index in operators]
    made = [tensor for item in nodes for tensor in item.outputs]
    read = dict.fromkeys(tensor for item in nodes for tensor in item.inputs if tensor != LEFT_OUT)
    inputs = tuple(tensor for tensor in read if tensor not in made and not tensors[tensor].is_const)
    inside = set(operators)
    elsewhere = {*graph.outputs}
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
    shape = tuple(1 if dim is None else dim for dim in info.shape or ())
    signature = tuple(-1 if dim is None else dim for dim in info.shape or ()) if None in (info.shape or ()) else None
    return Tensor(info.name, info.dtype, shape, signature, buffer, _quantization(info))


def _quantization(info: TensorInfo) -> Quantization | None:
    if info.quant is None:
        return None
    scales, zero_points = np.asarray(info.quant.scales, np.float32), np.asarray(info.quant.zero_points, np.int64)
    return Quantization(scales, zero_points, info.quant.axis)


def _operator(item: GraphNode, local: dict[int, int]) -> Operator:
    node: Node = item.node
    return Operator(
        node.spec.name,
        node.version,
        node.custom_code,
        tuple(tensor if tensor == LEFT_OUT else local[tensor] for tensor in item.inputs),
        tuple(local[tensor] for tensor in item.outputs),
        node.spec.options,
        dict(node.options),
    )
