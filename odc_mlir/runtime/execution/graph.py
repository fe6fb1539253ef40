"""A subgraph of a model file as nodes of the operator table: what the runtime executes.

The reader guarantees that indices are in range. Building the graph proves that each operator is known and fits its
table entry, and that operators stand in an order in which each operand exists before it is read. Subgraphs that control
flow calls become graphs too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePath
from typing import Any

from odc_mlir import ops
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.schema import called_subgraphs, default_options
from odc_mlir.ops.check import check_node
from odc_mlir.ops.custom import spec_of_code
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.infer.control import RUN_MODEL_CALLEE
from odc_mlir.ops.registry import CustomOps, default_custom_ops
from odc_mlir.ops.spec import Blockwise, Callee, Node, OpSpec, TensorInfo
from odc_mlir.runtime.execution.linking import ModelLocation, entry_of, read_linked


@dataclass(slots=True)
class GraphNode:
    """An operator with the tensor indices of its operands (-1 where one is left out) and results.

    ``calls`` are the graphs that control flow may run, by the index under which the operator knows them.
    """

    index: int
    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: Mapping[int, Graph] = field(default_factory=dict)

    @property
    def written(self) -> tuple[int, ...]:
        """The operands that the operator writes, variables or not."""
        return tuple(self.inputs[position] for position in self.node.mutated)


@dataclass(slots=True)
class Graph:
    """Subgraph ``subgraph`` of a model. ``nodes[i].index == i``; indices elsewhere point into ``tensors``."""

    name: str
    subgraph: int
    tensors: tuple[TensorInfo, ...]
    nodes: tuple[GraphNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom_ops: CustomOps = field(default_factory=default_custom_ops)
    metadata: Mapping[str, memoryview] = field(default_factory=dict)  # of the model, by name

    def input_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(self.tensors[i] for i in self.inputs)

    def output_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(self.tensors[i] for i in self.outputs)


def build_graph(model: Model, subgraph: int = 0, *, custom_ops: CustomOps | None = None) -> Graph:
    """The graph of one subgraph of ``model``; raises ModelError or UnsupportedError naming operator and tensor.

    ``custom_ops``: who computes custom operators that we do not know, the default registry unless given.
    """
    return _GraphBuilder(ModelLocation.of(model), default_custom_ops() if custom_ops is None else custom_ops, {}).graph(
        model, subgraph
    )


class _GraphBuilder:
    """Builds the graphs of one model, each once; ``site`` says where the model lies.

    ``linked`` are the graphs of other models' files, which RUN_MODEL calls, by file and subgraph.
    """

    def __init__(self, site: ModelLocation, custom_ops: CustomOps, linked: dict[tuple[PurePath, int], Graph]) -> None:
        self._site = site
        self._custom_ops = custom_ops
        self._linked = linked
        self._graphs: dict[int, Graph] = {}

    def graph(self, model: Model, subgraph: int) -> Graph:
        """The graph of ``subgraph``, and of everything that it calls."""
        if model.unknown:
            raise UnsupportedError(
                f"the model uses parts of a newer schema: {', '.join(model.unknown[:3])}",
                hint="it can be inspected, but neither run nor written",
            )
        if not 0 <= subgraph < len(model.subgraphs):
            raise ModelError(f"there is no subgraph {subgraph}, the model has {len(model.subgraphs)}")
        waiting = [subgraph]
        while waiting:
            index = waiting.pop()
            if index not in self._graphs:
                self._graphs[index] = self._bare_graph(model, index)
                waiting += _called(model.subgraphs[index].operators)
        if len(self._graphs) > 1:
            for index, graph in self._graphs.items():
                _forget_doubtful_shapes(graph, model.subgraphs[index], is_entry=index == subgraph)
        for index, graph in self._graphs.items():
            for item, operator in zip(graph.nodes, model.subgraphs[index].operators, strict=True):
                self._link(item, operator)
            _check_operators(graph)
        return self._graphs[subgraph]

    def _bare_graph(self, model: Model, index: int) -> Graph:
        """One subgraph, nothing of which is checked but the order of its operators."""
        record, constants = model.subgraphs[index], model.constants(index)
        named = record.named()
        tensors = tuple(tensor_info(named, constants, i) for i in range(len(named)))
        nodes = tuple(self._graph_node((index, i), operator, tensors) for i, operator in enumerate(record.operators))
        name = record.name or f"subgraph {index}"
        metadata = {key: model.buffers[buffer] for key, buffer in model.metadata}
        graph = Graph(name, index, tensors, nodes, record.inputs, record.outputs, self._custom_ops, metadata)
        _check_order(graph)
        return graph

    def _graph_node(self, place: tuple[int, int], operator: Operator, tensors: tuple[TensorInfo, ...]) -> GraphNode:
        def info(tensor: int) -> TensorInfo | None:
            return None if tensor == LEFT_OUT else tensors[tensor]

        name = tensors[operator.outputs[0]].name if operator.outputs else f"operator {place[1]}"
        spec = self._spec(operator, name)
        node = Node(
            spec=spec,
            operands=tuple(info(tensor) for tensor in operator.inputs),
            results=tuple(tensors[tensor] for tensor in operator.outputs),
            options=operator.options or default_options(spec.options),
            name=name,
            version=operator.version,
            custom_code=operator.custom_code,
            custom_options=bytes(operator.custom_options),
            intermediates=tuple(info(tensor) for tensor in operator.intermediates),
            mutating=operator.mutating_variable_inputs,
            place=place,
        )
        return GraphNode(place[1], node, operator.inputs, operator.outputs)

    def _spec(self, operator: Operator, name: str) -> OpSpec:
        """The table's entry for an operator; raises UnsupportedError where there is none for this version."""
        if operator.name == "CUSTOM":
            return spec_of_code(operator.custom_code, self._custom_ops)
        try:
            spec = ops.get(operator.name)
        except UnsupportedError as error:
            raise UnsupportedError(error.message, op=operator.label, tensor=name) from None
        if operator.version > spec.max_version:
            raise UnsupportedError(
                f"version {operator.version} of this operator is newer than {spec.max_version}, the newest supported",
                op=operator.label,
                tensor=name,
            )
        return spec

    def _link(self, item: GraphNode, operator: Operator) -> None:
        """Give an operator the graphs that it calls."""
        item.calls = {index: self._graphs[index] for index in _called([operator])}
        if operator.name == "RUN_MODEL":
            try:
                item.calls = {RUN_MODEL_CALLEE: self._other_model(item.node)}
            except OdcError as error:
                error.op, error.tensor = error.op or operator.label, error.tensor or item.node.name
                raise
        item.node.callees = {
            index: Callee(graph.name, graph.input_infos(), graph.output_infos()) for index, graph in item.calls.items()
        }

    def _other_model(self, node: Node) -> Graph:
        """The graph of the model file that RUN_MODEL's options name."""
        site = self._site.target(option(node, "location"))
        model = read_linked(site)
        key = site.chain[-1], entry_of(model, node.options)
        if key not in self._linked:
            self._linked[key] = _GraphBuilder(site, self._custom_ops, self._linked).graph(model, key[1])
        return self._linked[key]


def _forget_doubtful_shapes(graph: Graph, record: SubGraph, *, is_entry: bool) -> None:
    """Where subgraphs call one another, let a run tell the shapes of tensors for which the file gives no dimension.

    What a model takes and gives stays as it is declared.
    """
    settled = {*graph.inputs, *graph.outputs} if is_entry else set()
    for index, (info, tensor) in enumerate(zip(graph.tensors, record.tensors, strict=True)):
        if tensor.says_nothing and index not in settled and not info.is_const and not info.is_variable:
            info.shape = None


def _called(operators: Iterable[Operator]) -> list[int]:
    """The subgraphs that the options of ``operators`` name."""
    named = (index for item in operators for index in called_subgraphs(item.options_type, item.options))
    return list(dict.fromkeys(named))


def tensor_info(tensors: Sequence[Tensor], constants: Mapping[int, memoryview], index: int) -> TensorInfo:
    """Tensor ``index`` of a subgraph's ``tensors``, which have names, as operators see it.

    Raises ModelError where its quantisation cannot be.
    """
    tensor, data = tensors[index], constants.get(index)
    # A constant without a shape is a scalar, and none has open dimensions, whatever its signature says; anything else
    # without a shape has one that only a run can tell.
    shape = (tensor.shape or ()) if data is not None else tensor.effective_shape
    info = TensorInfo(
        name=tensor.name,
        dtype=tensor.dtype,
        shape=shape,
        quant=tensor.quant_params(),
        data=data,
        is_variable=tensor.is_variable,
        sparsity=None if data is None else tensor.sparsity,
    )
    if tensor.sparsity is not None and data is None:
        raise ModelError("only a constant can be stored sparse, this tensor is computed", tensor=info.name)
    details = None if tensor.quantization is None else tensor.quantization.details
    if details is not None and details[0] == "MXQuantization":
        info.mx_axis, info.quant = details[1]["axis"], None
    if details is not None and details[0] == "CustomQuantization":
        info.foreign_quant = details[0]
    if details is not None and details[0] == "BlockwiseQuantization":
        info.quant = None
        if data is not None:
            _code_by_blocks(info, details[1], tensors, constants)
    return info


def _code_by_blocks(
    info: TensorInfo, details: Mapping[str, Any], tensors: Sequence[Tensor], constants: Mapping[int, memoryview]
) -> None:
    """Make ``info`` the real constant that its codes and their block scales stand for."""

    def parameter(name: str) -> TensorInfo:
        index = details[name]
        if index not in constants or index >= len(tensors) or tensors[index].quantization is not None:
            raise ModelError(
                f"the {name} of blocks are tensor {index}, which is not a plain constant", tensor=info.name
            )
        return tensor_info(tensors, constants, index)

    zero_points = parameter("zero_points") if details["zero_points"] >= 0 else None
    info.blockwise = Blockwise(info.dtype, details["block_size"], parameter("scales"), zero_points)
    info.dtype = "float32"


def _check_operators(graph: Graph) -> None:
    """Each operator fits its table entry."""
    computed = {index for item in graph.nodes for index in item.outputs}
    for item in graph.nodes:
        # Declared shapes of computed tensors do not count: files exist where they are stale, and runs infer them.
        check_node(_without_shapes(item, computed), result_types=False)


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
