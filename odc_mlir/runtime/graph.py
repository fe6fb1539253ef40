"""A subgraph of a model file as nodes of the operator table: what the runtime executes.

The reader guarantees that indices are in range. Building the graph proves that each operator is known and fits its
table entry, and that operators stand in an order in which each operand exists before it is read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from odc_mlir import ops
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Tensor
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.ops.check import check_node
from odc_mlir.ops.spec import Node, TensorInfo


@dataclass(slots=True)
class GraphNode:
    """An operator with the tensor indices of its operands (-1 where one is left out) and results."""

    index: int
    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


@dataclass(slots=True)
class Graph:
    """Subgraph ``subgraph`` of a model. ``nodes[i].index == i``; indices elsewhere point into ``tensors``."""

    name: str
    subgraph: int
    tensors: tuple[TensorInfo, ...]
    nodes: tuple[GraphNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]

    def input_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(self.tensors[i] for i in self.inputs)

    def output_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(self.tensors[i] for i in self.outputs)


def build_graph(model: Model, subgraph: int = 0) -> Graph:
    """The graph of one subgraph of ``model``; raises ModelError or UnsupportedError naming operator and tensor."""
    if model.unknown:
        raise UnsupportedError(
            f"the model uses parts of a newer schema: {', '.join(model.unknown[:3])}",
            hint="it can be inspected, but neither run nor written",
        )
    if not 0 <= subgraph < len(model.subgraphs):
        raise ModelError(f"there is no subgraph {subgraph}, the model has {len(model.subgraphs)}")
    record = model.subgraphs[subgraph]
    constants = model.constants(subgraph)
    tensors = tuple(_tensor_info(index, tensor, constants.get(index)) for index, tensor in enumerate(record.tensors))
    nodes = tuple(_graph_node(index, operator, tensors) for index, operator in enumerate(record.operators))
    graph = Graph(record.name or f"subgraph {subgraph}", subgraph, tensors, nodes, record.inputs, record.outputs)
    _check_order(graph)
    computed = {index for item in nodes for index in item.outputs}
    for item in nodes:
        # Declared shapes of computed tensors do not count: files exist where they are stale, and runs infer them.
        check_node(_without_shapes(item, computed), result_types=False)
    return graph


def _tensor_info(index: int, tensor: Tensor, data: memoryview | None) -> TensorInfo:
    name = tensor.name or f"tensor {index}"
    if data is not None and tensor.sparsity is not None:
        raise UnsupportedError("sparse constants are not supported yet", tensor=name)
    # A constant without a shape is a scalar, and none has open dimensions, whatever its signature says; anything else
    # without a shape has one that only a run can tell.
    shape = (tensor.shape or ()) if data is not None else tensor.effective_shape
    return TensorInfo(
        name=name,
        dtype=tensor.dtype,
        shape=shape,
        quant=tensor.quant_params(),
        data=data,
        is_variable=tensor.is_variable,
    )


def _graph_node(index: int, operator: Operator, tensors: tuple[TensorInfo, ...]) -> GraphNode:
    def info(tensor: int) -> TensorInfo | None:
        return None if tensor == LEFT_OUT else tensors[tensor]

    where = {"op": operator.label, "tensor": tensors[operator.outputs[0]].name if operator.outputs else None}
    if operator.name == "CUSTOM":
        raise UnsupportedError("custom operators are not supported yet", **where)
    try:
        spec = ops.get(operator.name)
    except UnsupportedError as error:
        raise UnsupportedError(error.message, **where) from None
    if operator.version > spec.max_version:
        raise UnsupportedError(
            f"version {operator.version} of this operator is newer than {spec.max_version}, the newest known here",
            **where,
        )
    node = Node(
        spec=spec,
        operands=tuple(info(tensor) for tensor in operator.inputs),
        results=tuple(tensors[tensor] for tensor in operator.outputs),
        options=operator.options or default_options(spec.options),
        name=where["tensor"] or f"operator {index}",
        version=operator.version,
        custom_code=operator.custom_code,
        custom_options=bytes(operator.custom_options),
        intermediates=tuple(info(tensor) for tensor in operator.intermediates),
    )
    return GraphNode(index, node, operator.inputs, operator.outputs)


def _without_shapes(item: GraphNode, computed: set[int]) -> Node:
    """The operator with unknown shapes for operands that are ``computed``."""
    pairs = zip(item.inputs, item.node.operands, strict=True)
    operands = tuple(
        replace(info, shape=None) if info is not None and index in computed else info for index, info in pairs
    )
    return replace(item.node, operands=operands)


def _check_order(graph: Graph) -> None:
    """Each operand is a graph input, constant, variable or an earlier result; nothing is produced twice."""
    available = {i for i, tensor in enumerate(graph.tensors) if tensor.is_const or tensor.is_variable}
    produced = set(graph.inputs)
    if len(produced) != len(graph.inputs):
        raise ModelError("a tensor is a graph input twice", location=graph.name)
    for item in graph.nodes:
        for operand in item.inputs:
            if operand != LEFT_OUT and operand not in available and operand not in produced:
                raise item.node.error(f"operand {graph.tensors[operand].name!r} is read before anything produces it")
        for result in item.outputs:
            if result in produced:
                raise item.node.error(f"result {graph.tensors[result].name!r} is produced twice or is a graph input")
            produced.add(result)
    for output in graph.outputs:
        if output not in available and output not in produced:
            raise ModelError("nothing produces this graph output", tensor=graph.tensors[output].name)
