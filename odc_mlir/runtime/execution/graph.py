"""Graphs for execution: a subgraph of a model file as nodes of the operator table.

The reader guarantees that indices are in range. Building a graph checks that every operator fits the table entry, and
that every operand exists before it is read. Subgraphs called by control flow and models named by RUN_MODEL also become
graphs. The path of the called model is relative to the folder of the calling model. It must stay inside this folder,
because a foreign model must not make the runtime read other files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePath, PurePosixPath
from typing import Any

from odc_mlir import ops
from odc_mlir.errors import ModelError, OdcError, UnsupportedError, located
from odc_mlir.formats import states as state_pairs
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.schema import called_subgraphs, default_options
from odc_mlir.ops.check import check_node
from odc_mlir.ops.control import RUN_MODEL_CALLEE
from odc_mlir.ops.custom import spec_of_code
from odc_mlir.ops.infer.common import option
from odc_mlir.ops.registry import CustomOps, default_custom_ops
from odc_mlir.ops.spec import Blockwise, Callee, Node, OpSpec, TensorInfo


@dataclass(slots=True)
class GraphNode:
    """An operator with the tensor indices of operands (-1 if omitted) and results.

    ``calls``: graphs that control flow may run, by subgraph index in the operator's options
    """

    index: int
    node: Node
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    calls: Mapping[int, Graph] = field(default_factory=dict)

    @property
    def written(self) -> tuple[int, ...]:
        """Tensor indices of the operands that the operator writes, including tensors that are not variables."""
        return tuple(self.inputs[position] for position in self.node.mutated)


@dataclass(frozen=True, slots=True)
class GraphState:
    """A state of a graph: the value of ``output`` at the end of a run is the value of ``input`` in the next run.

    ``initial``: the value of ``input`` in the first run
    """

    name: str
    input: int
    output: int
    initial: bytes


@dataclass(slots=True)
class Graph:
    """Subgraph ``subgraph`` of a model. ``nodes[i].index == i``. All other indices refer to ``tensors``.

    ``inputs`` and ``outputs`` belong to the application. They do not include ``states``.
    """

    name: str
    subgraph: int
    tensors: tuple[TensorInfo, ...]
    nodes: tuple[GraphNode, ...]
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    custom_ops: CustomOps = field(default_factory=default_custom_ops)
    metadata: Mapping[str, memoryview] = field(default_factory=dict)  # the model's metadata by name
    states: tuple[GraphState, ...] = ()

    @property
    def sources(self) -> tuple[int, ...]:
        """Tensors that have a value when a run starts: inputs and states."""
        return (*self.inputs, *(state.input for state in self.states))

    def available(self) -> set[int]:
        """Return the tensors that have a value before the first operator runs: sources, constants and variables."""
        return {*self.sources, *(i for i, info in enumerate(self.tensors) if info.is_const or info.is_variable)}

    def producers(self) -> dict[int, GraphNode]:
        """Return the operator that computes each tensor."""
        return {index: node for node in self.nodes for index in node.outputs}

    @property
    def results(self) -> tuple[int, ...]:
        """Tensors with values that outlive a run: outputs and states."""
        return (*self.outputs, *(state.output for state in self.states))

    def input_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(self.tensors[i] for i in self.inputs)

    def output_infos(self) -> tuple[TensorInfo, ...]:
        return tuple(self.tensors[i] for i in self.outputs)


def build_graph(model: Model, subgraph: int = 0, *, custom_ops: CustomOps | None = None, states: bool = False) -> Graph:
    """Build the graph of one subgraph of ``model``. Raises ModelError or UnsupportedError with operator and tensor.

    ``custom_ops``: registry of custom operators (default: the global one). ``states``: keep the states that the model
        declares, instead of exposing them as inputs and outputs. Raises OptionError if the states do not fit the model.
    """
    registry = default_custom_ops() if custom_ops is None else custom_ops
    graph = _GraphBuilder(ModelLocation.of(model), registry, {}).graph(model, subgraph)
    if states and subgraph == 0 and state_pairs.NAME in graph.metadata:
        _keep_states(graph, state_pairs.decode(graph.metadata[state_pairs.NAME]))
    return graph


def _keep_states(graph: Graph, pairs: Sequence[state_pairs.StatePair]) -> None:
    places = state_pairs.positions(pairs, graph.input_infos(), graph.output_infos())
    graph.states = tuple(
        GraphState(
            pair.input,
            graph.inputs[source],
            graph.outputs[place],
            state_pairs.initial_bytes(pair, graph.tensors[graph.inputs[source]]),
        )
        for pair, (place, source) in zip(pairs, places, strict=True)
    )
    graph.outputs = state_pairs.others(graph.outputs, (place for place, _ in places))
    graph.inputs = state_pairs.others(graph.inputs, (source for _, source in places))


class _GraphBuilder:
    """Builder of the graphs of one model. It builds a graph only once. ``site``: location of the model.

    ``linked``: graphs of other model files that RUN_MODEL calls, by file and subgraph
    """

    def __init__(self, site: ModelLocation, custom_ops: CustomOps, linked: dict[tuple[PurePath, int], Graph]) -> None:
        self._site = site
        self._custom_ops = custom_ops
        self._linked = linked
        self._graphs: dict[int, Graph] = {}

    def graph(self, model: Model, subgraph: int) -> Graph:
        """Build the graph of ``subgraph`` and the graphs of everything that it calls."""
        if model.unknown:
            hint = "it can be inspected, but neither run nor written"
            raise UnsupportedError(f"the model uses parts of a newer schema: {', '.join(model.unknown[:3])}", hint=hint)
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
        """Build one subgraph. Calls in the subgraph are not linked. Check only the order of operators."""
        record, constants = model.subgraphs[index], model.constants(index)
        named = record.named()
        tensors = tuple(tensor_info(named, constants, i) for i in range(len(named)))
        for signature in model.signatures:
            for alias, tensor in signature.inputs.items() if signature.subgraph == index else ():
                if tensor in record.inputs:
                    tensors[tensor].alias = alias
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
        site = self._site.target(option(node, "location"))
        model = read_linked(site)
        key = site.chain[-1], entry_of(model, node.options)
        if key not in self._linked:
            self._linked[key] = _GraphBuilder(site, self._custom_ops, self._linked).graph(model, key[1])
        return self._linked[key]


def _forget_doubtful_shapes(graph: Graph, record: SubGraph, *, is_entry: bool) -> None:
    """Set declared shapes that have no dimensions to unknown, for models in which subgraphs call subgraphs.

    Such tensors need not be scalars. Runs infer the shapes. Inputs and outputs of the model keep declared shapes.
    """
    settled = {*graph.inputs, *graph.outputs} if is_entry else set()
    for index, (info, tensor) in enumerate(zip(graph.tensors, record.tensors, strict=True)):
        if tensor.says_nothing and index not in settled and not info.is_const and not info.is_variable:
            info.shape = None


def _called(operators: Iterable[Operator]) -> list[int]:
    named = (index for item in operators for index in called_subgraphs(item.options_type, item.options))
    return list(dict.fromkeys(named))


def tensor_info(tensors: Sequence[Tensor], constants: Mapping[int, memoryview], index: int) -> TensorInfo:
    """Return the TensorInfo of tensor ``index`` among a subgraph's named ``tensors``.

    Raises ModelError for invalid quantisation parameters.
    """
    tensor, data = tensors[index], constants.get(index)
    # A constant without a shape is a scalar, even if it has a shape signature. Any other tensor without a shape gets
    # its shape in a run.
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
    """Convert ``info`` to a real-valued constant that consists of codes and block scales."""

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
    computed = {index for item in graph.nodes for index in item.outputs}
    for item in graph.nodes:
        # Ignore declared shapes of computed tensors. Some files have stale shapes, and runs infer all shapes.
        operands = tuple(
            replace(info, shape=None) if info is not None and index in computed else info
            for index, info in zip(item.inputs, item.node.operands, strict=True)
        )
        check_node(replace(item.node, operands=operands), result_types=False)


def _check_order(graph: Graph) -> None:
    """Raise ModelError for an operand that is read before it is produced, or a tensor that is produced twice.

    Custom operators may have scratch tensors, which nothing produces.
    """
    available = {i for i, tensor in enumerate(graph.tensors) if tensor.is_const or tensor.is_variable}
    produced = set(graph.inputs)
    if len(produced) != len(graph.inputs):
        raise ModelError("a tensor is a graph input twice", location=graph.name)
    for item in graph.nodes:
        for operand in item.inputs:
            is_read = operand != LEFT_OUT and operand not in available and operand not in produced
            if is_read and not item.node.custom_code:
                raise item.node.error(f"operand {graph.tensors[operand].name!r} is read before anything produces it")
        for result in item.outputs:
            if result in produced:
                raise item.node.error(f"result {graph.tensors[result].name!r} is produced twice or is a graph input")
            produced.add(result)
    for output in graph.outputs:
        if output not in available and output not in produced:
            raise ModelError("nothing produces this graph output", tensor=graph.tensors[output].name)


MAX_CHAIN = 16  # limit on the depth of models that run further models

_SUFFIXES = (".circle", ".tflite")


@dataclass(frozen=True, slots=True)
class ModelLocation:
    """Location of a model: the ``chain`` of files from the user's model to this model, empty for a model in memory.

    With ``siblings``, the files are members of the package that ``siblings`` holds.
    """

    chain: tuple[PurePath, ...] = ()
    siblings: Mapping[str, bytes] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def of(model: Model) -> ModelLocation:
        """Return the location of the user's model."""
        if model.path is None:
            return ModelLocation()
        if model.siblings is not None:
            return ModelLocation((PurePosixPath(model.path),), model.siblings)
        return ModelLocation((Path(model.path).resolve(),))

    def target(self, location: str) -> ModelLocation:
        """Return the location of the model that RUN_MODEL names. Raises ModelError if opening it is not allowed."""
        if not self.chain:
            raise UnsupportedError(
                f"the model {location!r} is relative to this model's folder, which is unknown",
                hint="run the model from its file, not from bytes",
            )
        if ";" in location:
            raise UnsupportedError(
                f"the list of model files {location!r} is for accelerators; only one file is supported"
            )
        if PurePosixPath(location).suffix.lower() not in _SUFFIXES:
            raise UnsupportedError(
                f"the model {location!r} has an unsupported format; supported are {', '.join(_SUFFIXES)}"
            )
        if "\\" in location or ".." in PurePosixPath(location).parts or PurePosixPath(location).is_absolute():
            raise ModelError(f"the location {location!r} leads out of the model's folder")
        path = self._resolved(location)
        if path in self.chain:
            raise ModelError(f"the model {location!r} runs itself: {' -> '.join(p.name for p in (*self.chain, path))}")
        if len(self.chain) >= MAX_CHAIN:
            raise ModelError(f"more than {MAX_CHAIN} models run one another")
        return ModelLocation((*self.chain, path), self.siblings)

    def _resolved(self, location: str) -> PurePath:
        folder = self.chain[-1].parent
        if self.siblings is not None:
            return folder / location
        path = Path(folder / location).resolve()
        if folder not in path.parents:
            raise ModelError(f"the location {location!r} leads out of the model's folder")
        return path


def entry_of(model: Model, options: Mapping[str, Any]) -> int:
    """Return the subgraph of the signature that RUN_MODEL names (default: the first subgraph). Raises ModelError."""
    with located(options["location"]):
        return model.subgraph_of(options["signature"], ModelError) if options["signature"] else 0


def read_linked(site: ModelLocation) -> Model:
    """Read the model at ``site``. Raises ModelError."""
    path = site.chain[-1]
    if site.siblings is None:
        return read_model(str(path))
    try:
        return read_model(site.siblings[path.as_posix()])
    except KeyError:
        raise ModelError(f"the package has no model {path.as_posix()!r}") from None


def linked_files(model: Model) -> dict[str, bytes]:
    """Return the models that RUN_MODEL operators of ``model`` name, recursively, by path relative to ``model``.

    Raises ModelError for a model that cannot be opened.
    """
    found: dict[str, bytes] = {}
    _collect(model, ModelLocation.of(model), found)
    return found


def _collect(model: Model, site: ModelLocation, found: dict[str, bytes]) -> None:
    for operator in (operator for graph in model.subgraphs for operator in graph.operators):
        location = operator.options.get("location") if operator.name == "RUN_MODEL" else None
        if not location:
            continue
        target = site.target(location)
        name = target.chain[-1].relative_to(target.chain[0].parent).as_posix()
        if name not in found:
            linked = read_linked(target)
            path = target.chain[-1]
            found[name] = Path(path).read_bytes() if site.siblings is None else site.siblings[path.as_posix()]
            _collect(linked, target, found)


# Positions of the operands from which an operator copies elements to the result.
_PASSED_ON = {
    **dict.fromkeys(("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "CAST", "TRANSPOSE", "SLICE", "STRIDED_SLICE"), (0,)),
    **dict.fromkeys(("TILE", "BROADCAST_TO", "REVERSE_V2", "UNPACK", "SPLIT_V", "GATHER", "GATHER_ND"), (0,)),
    "SPLIT": (1,),
}
_JOINED = ("CONCATENATION", "PACK")  # operators that copy all their operands


def index_limits(graph: Graph) -> tuple[int | None, ...]:
    """Return for each input the exclusive upper limit on indices, or None if the input holds no indices."""
    limits: dict[int, int] = {}
    for item in reversed(graph.nodes):
        for place, tensor in enumerate(item.inputs):
            found = _limit(item, place, limits)
            if found is not None and tensor >= 0:
                limits[tensor] = min(found, limits.get(tensor, found))
    return tuple(limits.get(tensor) for tensor in graph.inputs)


def _limit(item: GraphNode, place: int, limits: dict[int, int]) -> int | None:
    name = item.node.spec.name
    if place == (0 if name == "EMBEDDING_LOOKUP" else 1) and name in ("GATHER", "GATHER_ND", "EMBEDDING_LOOKUP"):
        return _extent(item, name)
    if name in _JOINED or place in _PASSED_ON.get(name, ()):
        return min((limits[tensor] for tensor in item.outputs if tensor in limits), default=None)
    return None


def _extent(item: GraphNode, name: str) -> int | None:
    table = item.node.operands[1 if name == "EMBEDDING_LOOKUP" else 0]
    shape = None if table is None else table.shape
    if not shape:
        return None
    if name == "EMBEDDING_LOOKUP":
        return shape[0]
    if name == "GATHER":
        return shape[int(item.node.options.get("axis") or 0) % len(shape)]
    indices = item.node.operands[1]
    depth = None if indices is None or not indices.shape else indices.shape[-1]
    known = [extent for extent in shape[:depth] if extent is not None]
    return min(known) if depth is not None and known else None
