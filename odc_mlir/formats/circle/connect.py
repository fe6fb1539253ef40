"""Joining of the models in a package to one model, with the connections in the manifest.

The result is an ordinary model. If an output and the connected input differ in element type or quantisation, a
conversion is inserted between them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from pathlib import PurePosixPath

from odc_mlir.errors import PackageError, located
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.circle.model import EMPTY, LEFT_OUT, Model, Operator, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import called_subgraphs, default_options, subgraph_fields
from odc_mlir.formats.manifest import IoIndex, Manifest
from odc_mlir.ops.infer.common import compatible


def connect(models: Sequence[Model], manifest: Manifest, location: str) -> Model:
    """Connect the models of a package to one model. ``manifest`` gives inputs and outputs in order.

    Signatures are dropped. Raises PackageError for an index out of range, an input with no or several sources, cycles,
    and connections of different shapes.
    """
    with located(location):
        return _Joint(models, manifest).join()


def join_signatures(models: Mapping[str, Model]) -> Model:
    """Join ``models``: the first subgraph of each becomes a signature with the model's name.

    Equal buffers are stored once. Metadata, such as declared states, come from the first model.
    """
    result = Model(version=max(model.version for model in models.values()), buffers=[EMPTY])
    known = {content_digest(EMPTY): 0}
    for key, model in models.items():
        places = [known.setdefault(content_digest(data), len(known)) for data in model.buffers]
        fresh = dict(zip(places, model.buffers, strict=True))
        result.buffers += [fresh[place] for place in range(len(result.buffers), len(known))]
        first = len(result.subgraphs)
        calls = {index: first + index for index, _ in enumerate(model.subgraphs)}
        result.subgraphs += [_relocated(graph, places, calls) for graph in model.subgraphs]
        entry = result.subgraphs[first]
        named = [{entry.tensors[at].name: at for at in ends} for ends in (entry.inputs, entry.outputs)]
        own = (signature for signature in model.signatures if signature.subgraph == 0)
        result.signatures.append(replace(next(own, Signature(key, 0, *named)), key=key, subgraph=first))
        result.unknown += model.unknown
        result.metadata = result.metadata if first else [(name, places[at]) for name, at in model.metadata]
    return result


class _Joint:
    """Builder of the joint model. ``_tensors[m]`` maps tensors of model ``m`` to the joint subgraph."""

    def __init__(self, models: Sequence[Model], manifest: Manifest) -> None:
        self._models = models
        self._manifest = manifest
        self._entries = self._find_entries()
        self._main = SubGraph("main")
        self._result = Model(version=max(model.version for model in models), subgraphs=[self._main], buffers=[EMPTY])
        self._tensors: list[dict[int, int]] = [{} for _ in models]
        self._feeds = self._find_feeds()
        names = Counter(tensor.name for index, _ in enumerate(models) for tensor in self._entry(index).tensors)
        self._taken = {name for name, count in names.items() if count > 1}

    def join(self) -> Model:
        for index in self._order():
            self._add_model(index)
        given = [
            (item.model, self._io(item, self._entry(item.model).inputs, "inputs")) for item in self._manifest.inputs
        ]
        self._main.inputs = tuple(self._tensors[model][tensor] for model, tensor in given)
        self._main.outputs = tuple(self._tensors[item.model][self._output(item)] for item in self._manifest.outputs)
        self._result.unknown = [part for model in self._models for part in model.unknown]
        return self._result

    def _find_entries(self) -> list[int]:
        named: list[set[int]] = [set() for _ in self._models]
        for item in self._manifest.io_indices():
            if item.model >= len(self._models):
                raise PackageError(f"{item} names model {item.model}, the package has {len(self._models)}")
            if item.subgraph >= len(self._models[item.model].subgraphs):
                raise PackageError(f"{item} names a subgraph that {self._manifest.models[item.model]!r} does not have")
            named[item.model].add(item.subgraph)
        for model, found in zip(self._manifest.models, named, strict=True):
            if len(found) > 1:
                raise PackageError(f"{model!r} has entry points in subgraphs {sorted(found)}; one is allowed")
        return [min(found, default=0) for found in named]

    def _entry(self, model: int) -> SubGraph:
        return self._models[model].subgraphs[self._entries[model]]

    def _output(self, item: IoIndex) -> int:
        return self._io(item, self._entry(item.model).outputs, "outputs")

    def _io(self, item: IoIndex, tensors: Sequence[int], what: str) -> int:
        if item.io >= len(tensors):
            raise PackageError(f"{item}: {self._manifest.models[item.model]!r} has {len(tensors)} {what}")
        return tensors[item.io]

    def _find_feeds(self) -> dict[IoIndex, IoIndex]:
        feeds: dict[IoIndex, IoIndex] = {}
        for edge in self._manifest.connections:
            self._output(edge.source)
            for target in edge.targets:
                if target in feeds:
                    raise PackageError(f"the input {target} is connected twice")
                feeds[target] = edge.source
        given = set(self._manifest.inputs)
        for index, model in enumerate(self._manifest.models):
            entry = self._entry(index)
            for io in range(len(entry.inputs)):
                item = IoIndex(index, self._entries[index], io)
                if item not in feeds and item not in given:
                    name = entry.tensors[entry.inputs[io]].name
                    raise PackageError(f"nothing is connected to input {item} ({name!r}) of {model!r}")
        return feeds

    def _order(self) -> list[int]:
        """Sort the models by connections. Independent models keep the manifest's order."""
        needs = TopologicalSorter({index: set[int]() for index, _ in enumerate(self._models)})
        for target, source in self._feeds.items():
            needs.add(target.model, source.model)
        order: list[int] = []
        try:
            needs.prepare()
            while needs.is_active():
                ready = sorted(needs.get_ready())
                order += ready
                needs.done(*ready)
        except CycleError as error:
            names = ", ".join(self._manifest.models[index] for index in error.args[1])
            raise PackageError(f"the models are connected in a cycle: {names}") from None
        return order

    def _add_model(self, index: int) -> None:
        model, entry = self._models[index], self._entry(index)
        count = len(self._result.buffers)
        buffers = [0, *range(count, count + len(model.buffers) - 1)]
        self._result.buffers += model.buffers[1:]
        subgraphs = self._add_subgraphs(model, self._entries[index], buffers)
        fed = self._connect_inputs(index)
        stem = PurePosixPath(self._manifest.models[index]).stem
        for position, tensor in enumerate(entry.tensors):
            if position in fed:
                self._tensors[index][position] = fed[position]
                continue
            name = f"{stem}/{tensor.name}" if tensor.name in self._taken else tensor.name
            self._tensors[index][position] = self._new_tensor(replace(tensor, buffer=buffers[tensor.buffer], name=name))
        for position in range(len(entry.tensors)):
            if position not in fed:
                _renumber_blocks(self._main.tensors[self._tensors[index][position]], self._tensors[index])
        self._main.operators += [_moved(op, self._tensors[index], subgraphs) for op in entry.operators]

    def _add_subgraphs(self, model: Model, entry: int, buffers: Sequence[int]) -> dict[int, int]:
        operators = [operator for graph in model.subgraphs for operator in graph.operators]
        called = {index for item in operators for index in called_subgraphs(item.options_type, item.options)}
        kept = [index for index, _ in enumerate(model.subgraphs) if index != entry or index in called]
        moved = {index: len(self._result.subgraphs) + position for position, index in enumerate(kept)}
        self._result.subgraphs += [_relocated(model.subgraphs[index], buffers, moved) for index in kept]
        return moved

    def _connect_inputs(self, index: int) -> dict[int, int]:
        entry = self._entry(index)
        fed: dict[int, int] = {}
        for io, tensor in enumerate(entry.inputs):
            source = self._feeds.get(IoIndex(index, self._entries[index], io))
            if source is not None:
                made = self._tensors[source.model][self._output(source)]
                fed[tensor] = self._converted(made, entry.tensors[tensor])
        return fed

    def _converted(self, made: int, wanted: Tensor) -> int:
        source = self._main.tensors[made]
        if not compatible(source.effective_shape, wanted.effective_shape):
            raise PackageError(
                f"{source.name!r} has the shape {source.shape}, but {wanted.name!r}, which it feeds, {wanted.shape}"
            )
        quants = source.quant_params(), wanted.quant_params()
        if source.dtype == wanted.dtype and (source.dtype == "float32" or quants[0] == quants[1]):
            return made
        if quants[0] is not None and quants[1] is None and wanted.dtype == "float32":
            kind = "DEQUANTIZE"
        elif quants[1] is not None and (quants[0] is not None or source.dtype == "float32"):
            kind = "QUANTIZE"
        elif quants == (None, None):
            kind = "CAST"
        else:
            raise PackageError(
                f"{source.name!r} ({source.dtype}) cannot be converted to {wanted.name!r} ({wanted.dtype}): "
                "one is quantised, the other is not"
            )
        target = self._new_tensor(
            replace(source, name=f"{source.name}_{wanted.dtype}", dtype=wanted.dtype, quantization=wanted.quantization)
        )
        table = f"{kind.capitalize()}Options"
        options = default_options(table)
        if kind == "CAST":
            options |= {"in_data_type": source.dtype, "out_data_type": wanted.dtype}
        self._main.operators.append(
            Operator(kind, inputs=(made,), outputs=(target,), options_type=table, options=options)
        )
        return target

    def _new_tensor(self, tensor: Tensor) -> int:
        self._main.tensors.append(tensor)
        return len(self._main.tensors) - 1


def _relocated(graph: SubGraph, buffers: Sequence[int], subgraphs: dict[int, int]) -> SubGraph:
    same = {index: index for index, _ in enumerate(graph.tensors)}
    tensors = [replace(tensor, buffer=buffers[tensor.buffer]) for tensor in graph.tensors]
    return replace(graph, tensors=tensors, operators=[_moved(item, same, subgraphs) for item in graph.operators])


def _renumber_blocks(tensor: Tensor, tensors: dict[int, int]) -> None:
    quantization = tensor.quantization
    if quantization is None or quantization.details is None or quantization.details[0] != "BlockwiseQuantization":
        return
    table, fields = quantization.details
    moved = {name: tensors.get(fields[name], fields[name]) for name in ("scales", "zero_points")}
    tensor.quantization = replace(quantization, details=(table, fields | moved))


def _moved(operator: Operator, tensors: dict[int, int], subgraphs: dict[int, int]) -> Operator:
    def indices(old: Sequence[int]) -> tuple[int, ...]:
        return tuple(LEFT_OUT if index == LEFT_OUT else tensors[index] for index in old)

    def callee(old: int) -> int:
        return subgraphs.get(old, old)  # invalid indices stay unchanged for the graph's checks

    options = dict(operator.options)
    for name in subgraph_fields(operator.options_type):
        value = options[name]
        options[name] = tuple(map(callee, value)) if isinstance(value, tuple) else callee(value)
    return replace(
        operator,
        inputs=indices(operator.inputs),
        outputs=indices(operator.outputs),
        intermediates=indices(operator.intermediates),
        options=options,
    )
