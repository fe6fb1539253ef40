"""Export from the ``circle`` dialect to model records and files: ``export_model``.

This is the reverse of :mod:`.import_circle`. A segment is exported as the operators of its circle body, in order.
Operators of a segment are thus consecutive, and any Circle reader can run the file.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    NoneType,
    StringAttr,
    SymbolRefAttr,
    UnregisteredOp,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, SSAValue

from odc_mlir.dialects import circle
from odc_mlir.dialects.circle_options import RECORD_NAMES, ListOption, SymbolOption
from odc_mlir.dialects.circle_types import TensorFacts, sparsity_record
from odc_mlir.dialects.odc import SegmentOp, YieldOp, lowered_symbols, state_places
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats import source_lines, states
from odc_mlir.formats.circle.model import EMPTY, LEFT_OUT, Model, Operator, Quantization, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.formats.kinds import MODEL_BY_NAME
from odc_mlir.formats.outputs import check_output, write_output
from odc_mlir.formats.quantities import distinct
from odc_mlir.formats.states import StatePair
from odc_mlir.ops.spec import Shape
from odc_mlir.quantizer.policy.readers import litert_refuses_form, litert_refuses_node
from odc_mlir.support.blob import Blob
from odc_mlir.support.diagnostics import typed_errors
from odc_mlir.support.locations import value_name

STAGE = "export"

AttributeToTensor = Callable[[Attribute], int]

NO_ITEMS = ArrayAttr[Attribute]([])
Item = TypeVar("Item", bound=Attribute)

OperatorIndices = dict[Operation, tuple[int, int]]
"""Subgraph and operator index in the file, by operation."""


def export_model(module: ModuleOp) -> Model:
    """Return the records of a module in the ``circle`` dialect, including its segments.

    Raises ModelError for IR that is not a Circle model, and UnsupportedError for parts of a newer schema.
    """
    return export_with_operators(module)[0]


def export_with_operators(module: ModuleOp) -> tuple[Model, OperatorIndices]:
    """Return the records of a module, and the indices of all operators in the records."""
    with typed_errors(STAGE):
        unknown = module.attributes.get("circle.unknown")
        if unknown is not None:
            what = _items(unknown, "circle.unknown", StringAttr)
            raise UnsupportedError(f"the model uses a newer schema: {', '.join(item.data for item in what)}")
        return _Exporter(module).model()


def source_lines_of(module: ModuleOp) -> dict[str, str]:
    """Return the source lines that ``module`` declares, by tensor name."""
    entries = _items(module.attributes.get("circle.metadata", NO_ITEMS), "circle.metadata", DictionaryAttr)
    found = [entry for entry in entries if _field(entry, "name", StringAttr).data == source_lines.NAME]
    return source_lines.decode(_field(found[0], "data", circle.BlobAttr).data.data) if found else {}


def subgraph_name(function: FuncOp) -> str | None:
    """Return the name of the subgraph, which may differ from the function's symbol."""
    if "circle.unnamed" in function.attributes:
        return None
    name = function.attributes.get("circle.name")
    return name.data if isinstance(name, StringAttr) else function.sym_name.data


class _Exporter:
    """State of all subgraphs: buffers, indices of functions, and the map from operations to records."""

    def __init__(self, module: ModuleOp) -> None:
        self.module = module
        lowered = set(lowered_symbols(module).values())
        self.functions = [self._function(op) for op in module.body.block.ops if op not in lowered]
        self.subgraphs = {function.sym_name.data: index for index, function in enumerate(self.functions)}
        self.has_rank = "circle.has_rank" in module.attributes
        self.buffers: list[memoryview] = [EMPTY]
        self.buffer_of: dict[Blob, int] = {}
        self.operators: OperatorIndices = {}

    @staticmethod
    def _function(op: Operation) -> FuncOp:
        if not isinstance(op, FuncOp) or op.is_declaration:
            raise ModelError(f"a module to export holds functions with bodies only, found {op.name}")
        return op

    def buffer(self, blob: Blob) -> int:
        """Return the index of a blob's buffer. Equal blobs share a buffer, and the first buffer is empty."""
        if blob.size == 0:
            return 0
        if blob not in self.buffer_of:
            self.buffer_of[blob] = len(self.buffers)
            self.buffers.append(blob.data)
        return self.buffer_of[blob]

    def symbol(self, name: str) -> int:
        if name not in self.subgraphs:
            raise ModelError(f"@{name} is not a function of this module")
        return self.subgraphs[name]

    def model(self) -> tuple[Model, OperatorIndices]:
        subgraphs = [_SubgraphExporter(self, index).subgraph() for index in range(len(self.functions))]
        attributes = self.module.attributes
        version, description = attributes.get("circle.version"), attributes.get("circle.description")
        model = Model(
            schema="circle",
            version=version.value.data if isinstance(version, IntegerAttr) else 0,
            description=description.data if isinstance(description, StringAttr) else None,
            subgraphs=subgraphs,
            metadata=[
                (_field(entry, "name", StringAttr).data, self.buffer(_field(entry, "data", circle.BlobAttr).data))
                for entry in self._list("circle.metadata", DictionaryAttr)
            ],
            metadata_buffer=tuple(
                self.buffer(blob.data) for blob in self._list("circle.metadata_buffer", circle.BlobAttr)
            ),
            signatures=[self._signature(entry, subgraphs) for entry in self._list("circle.signatures", DictionaryAttr)],
        )
        if pairs := self._states(subgraphs):
            model.metadata.append((states.NAME, self.buffer(Blob(memoryview(states.encode(pairs))))))
        model.buffers = self.buffers
        return model, self.operators

    def _states(self, subgraphs: Sequence[SubGraph]) -> list[StatePair]:
        places = state_places(self.module)
        named = subgraphs[0].named() if places else []
        return [
            StatePair(named[subgraphs[0].outputs[place]].name, named[subgraphs[0].inputs[source]].name, initial)
            for place, source, initial in places
        ]

    def _list(self, name: str, kind: type[Item]) -> list[Item]:
        return _items(self.module.attributes.get(name, NO_ITEMS), name, kind)

    def _signature(self, entry: DictionaryAttr, subgraphs: Sequence[SubGraph]) -> Signature:
        index = self.symbol(_field(entry, "subgraph", SymbolRefAttr).root_reference.data)
        graph = subgraphs[index]
        return Signature(
            _field(entry, "key", StringAttr).data,
            index,
            _named(entry, "inputs", graph.inputs),
            _named(entry, "outputs", graph.outputs),
        )


def _items(attribute: Attribute, name: str, kind: type[Item]) -> list[Item]:
    if not isinstance(attribute, ArrayAttr):
        raise ModelError(f"{name} must be an array, found {attribute}")
    found = [item for item in attribute if isinstance(item, kind)]
    if len(found) != len(attribute):
        raise ModelError(f"every entry of {name} must be a {kind.name}, found {attribute}")
    return found


def _field(entry: DictionaryAttr, key: str, kind: type[Item]) -> Item:
    value = entry.data.get(key)
    if not isinstance(value, kind):
        raise ModelError(f"{key} must be a {kind.name}, found {value} in {entry}")
    return value


def _named(entry: DictionaryAttr, key: str, tensors: Sequence[int]) -> dict[str, int]:
    named: dict[str, int] = {}
    for pair in _items(entry.data.get(key, NO_ITEMS), key, ArrayAttr):
        match tuple(pair):
            case (StringAttr() as name, IntegerAttr() as position) if 0 <= position.value.data < len(tensors):
                named[name.data] = tensors[position.value.data]
            case _:
                raise ModelError(f'{key} of a signature hold ["name", position below {len(tensors)}], found {pair}')
    return named


class _SubgraphExporter:
    """Exporter of one function: one tensor per value in order of definition, one operator per operation."""

    def __init__(self, exporter: _Exporter, index: int) -> None:
        self.exporter = exporter
        self.index = index
        self.function = exporter.functions[index]
        self.tensors: list[Tensor] = []
        self.operators: list[Operator] = []
        self.indices: dict[SSAValue, int] = {}
        self.described: dict[Attribute, int] = {}

    def subgraph(self) -> SubGraph:
        function = self.function
        variables = function.attributes.get("circle.variable_inputs")
        positions = _items(variables or NO_ITEMS, "circle.variable_inputs", IntegerAttr)
        variable = {position.value.data for position in positions}
        for position, argument in enumerate(function.args):
            self._tensor(argument, is_variable=position in variable)
        outputs = self._block(function.body.block)
        return SubGraph(
            name=subgraph_name(function),
            tensors=self.tensors,
            inputs=tuple(self.indices[argument] for argument in function.args),
            outputs=outputs,
            operators=self.operators,
        )

    def _block(self, block: Block) -> tuple[int, ...]:
        for op in block.ops:
            if isinstance(op, ReturnOp | YieldOp):
                return tuple(self._index(operand) for operand in op.operands)
            self._operation(op)
        raise ModelError(f"@{self.function.sym_name.data} has no terminator")

    def _operation(self, op: Operation) -> None:
        if isinstance(op, circle.CircleOp):
            self._operator(op)
        elif isinstance(op, circle.ConstOp):
            sparsity = None if op.sparsity is None else sparsity_record(op.sparsity)
            self._tensor(op.result, buffer=self.exporter.buffer(op.blob), sparsity=sparsity)
        elif isinstance(op, circle.VariableOp):
            self._tensor(op.result, is_variable=True)
        elif isinstance(op, circle.UndefinedOp):
            self._tensor(op.result)
        elif isinstance(op, circle.NoneOp):
            self.indices[op.result] = LEFT_OUT
        elif isinstance(op, SegmentOp):
            block = op.circle_block
            for argument, operand in zip(block.args, op.operands, strict=True):
                self.indices[argument] = self._index(operand)
            for result, index in zip(op.results, self._block(block), strict=True):
                self.indices[result] = index
        else:
            name = op.op_name.data if isinstance(op, UnregisteredOp) else op.name
            raise ModelError(f"{name} is not an operation of a Circle model")

    def _operator(self, op: circle.CircleOp) -> None:
        inputs = tuple(self._index(operand) for operand in op.operands)
        outputs = tuple(self._tensor(result) for result in op.results)
        self.exporter.operators[op] = (self.index, len(self.operators))
        options = {name: self._option(op, name) for name in op.properties if name not in RECORD_NAMES}
        table = op.option("options_table")
        custom = op.properties.get("custom_options")
        self.operators.append(
            Operator(
                name=op.SPEC.name,
                version=op.option("version") or 1,
                custom_code=op.option("custom_code") or "",
                inputs=inputs,
                outputs=outputs,
                options_type=op.SPEC.options if table is None else None if table == "none" else table,
                options=options if table is None else default_options(None if table == "none" else table),
                custom_options=custom.bytes if isinstance(custom, circle.BlobAttr) else EMPTY,
                mutating_variable_inputs=op.option("mutating_variable_inputs") or (),
                intermediates=tuple(self._described(item) for item in op.option("intermediates") or ()),
            )
        )

    def _option(self, op: circle.CircleOp, name: str) -> Any:
        option, value = op.OPTIONS[name], op.option(name)
        if isinstance(option, SymbolOption):
            return self.exporter.symbol(value)
        if isinstance(option, ListOption) and isinstance(option.element, SymbolOption):
            return tuple(self.exporter.symbol(symbol) for symbol in value)
        return value

    def _index(self, value: SSAValue) -> int:
        if value not in self.indices:
            raise ModelError("this tensor is used before it is computed", tensor=value_name(value))
        return self.indices[value]

    def _tensor(self, value: SSAValue, **fields: Any) -> int:
        self.indices[value] = index = self._add(value_name(value), value.type, **fields)
        return index

    def _add(self, name: str, type: Attribute, **fields: Any) -> int:
        facts = circle.tensor_facts(type)
        quantization = _quantization(facts, self._described)
        shape, signature = _file_shape(facts.shape)
        tensor = Tensor(name, facts.dtype, shape, signature, quantization=quantization, **fields)
        tensor.has_rank = self.exporter.has_rank and shape is not None
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    def _described(self, attribute: Attribute) -> int:
        if isinstance(attribute, NoneType):
            return LEFT_OUT
        if not isinstance(attribute, circle.TensorAttr):
            raise ModelError(f"expected a #circle.tensor, found {attribute}")
        if attribute not in self.described:
            contents = attribute.contents
            buffer = self.exporter.buffer(contents.data) if isinstance(contents, circle.BlobAttr) else 0
            self.described[attribute] = self._add(attribute.tensor_name.data, attribute.type, buffer=buffer)
        return self.described[attribute]


def _quantization(facts: TensorFacts, tensor_index: AttributeToTensor) -> Quantization | None:
    record = facts.record or circle.QuantRecord()
    if facts.quant is None and facts.record is None:
        return None
    quantization = Quantization(
        min=np.array(record.min, np.float32),
        max=np.array(record.max, np.float32),
        details=None if record.details is None else _details_record(*record.details, tensor_index),
    )
    if facts.quant is not None:
        quantization.scale = np.array(facts.quant.scales, np.float32)
        quantization.zero_point = np.array(facts.quant.zero_points, np.int64)
        quantization.axis = facts.quant.axis
    return quantization


def _details_record(
    table: str, fields: Mapping[str, Attribute], tensor_index: AttributeToTensor
) -> tuple[str, dict[str, Any]]:
    values: dict[str, Any] = {}
    for key, attribute in fields.items():
        if isinstance(attribute, IntegerAttr):
            values[key] = attribute.value.data
        elif isinstance(attribute, circle.BlobAttr):
            values[key] = bytes(attribute.bytes)
        else:
            values[key] = tensor_index(attribute)
    return table, values


def _file_shape(shape: Shape | None) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
    """Return shape and signature of the file. Unknown dimensions are 1 in the shape, -1 in the signature."""
    if shape is None:
        return None, None
    if None not in shape:
        return tuple(dim for dim in shape if dim is not None), None
    return tuple(1 if dim is None else dim for dim in shape), tuple(-1 if dim is None else dim for dim in shape)


_OTHER_READER = "write a .circle file, or with any_reader (--any-reader) a .tflite file for another reader"


class ModelFile:
    """Base class of results with a ``model`` that can be written as Circle or TFLite file.

    ``of_codes`` is advice for operators that LiteRT supports, but not on codes.
    """

    model: ModuleOp
    of_codes: ClassVar[str] = ""

    def to_circle(self) -> bytes:
        """Return the model as a Circle file."""
        return bytes(write_model(export_model(self.model)))

    def to_tflite(self, *, any_reader: bool = False) -> bytes:
        """Return the model as a TFLite file.

        Raises UnsupportedError for parts that TFLite cannot express. Unless ``any_reader``, LiteRT must run all parts.
        """
        return _tflite_file(self.model, any_reader, self.of_codes)

    def save(self, path: str | os.PathLike[str], overwrite: bool = False, *, any_reader: bool = False) -> None:
        """Write the model as a .circle or .tflite file, by the suffix. Raises OptionError for another suffix.

        A model that this project wrote is replaced, any other file only with ``overwrite``.
        """
        save_module(self.model, path, overwrite=overwrite, any_reader=any_reader, of_codes=self.of_codes)


def save_module(
    module: ModuleOp,
    path: str | os.PathLike[str],
    *,
    overwrite: bool = False,
    any_reader: bool = False,
    of_codes: str = "",
) -> None:
    """Write a module as a .circle or .tflite file, like :meth:`ModelFile.save`."""
    check_output(path, MODEL_BY_NAME, overwrite=overwrite)
    if is_tflite(path):
        data = _tflite_file(module, any_reader, of_codes)
    else:
        data = bytes(write_model(export_model(module)))
    write_output(path, data, MODEL_BY_NAME, overwrite=overwrite)


def is_tflite(path: str | os.PathLike[str]) -> bool:
    """Return whether a path has the suffix of TFLite files."""
    return Path(path).suffix.lower() == ".tflite"


def _tflite_file(module: ModuleOp, any_reader: bool, of_codes: str) -> bytes:
    if not any_reader:
        _check_litert_runs(module, of_codes)
    model = export_model(module)
    if not model.signatures and model.subgraphs:
        graph = model.subgraphs[0]
        inputs, outputs = (_by_name(graph, indices) for indices in (graph.inputs, graph.outputs))
        model.signatures.append(Signature("serving_default", 0, inputs, outputs))
    return bytes(write_tflite(model))


def _by_name(graph: SubGraph, indices: Sequence[int]) -> dict[str, int]:
    names = [graph.tensors[index].name or "" for index in indices]
    return dict(zip(distinct(names, [f"{name or 'tensor'}_{i}" for i, name in enumerate(names)]), indices, strict=True))


def _check_litert_runs(module: ModuleOp, of_codes: str) -> None:
    for op in module.walk():
        if isinstance(op, circle.UndefinedOp):
            raise UnsupportedError(
                "no operator computes this tensor, so LiteRT returns the previous contents of its memory",
                tensor=value_name(op.results[0]),
                hint=_OTHER_READER,
            )
        if not isinstance(op, circle.CircleOp):
            continue
        node = circle.node_of(op)
        refused = litert_refuses_node(node)
        if (seen := refused or litert_refuses_form(node)) is not None:
            raise UnsupportedError(
                f"{seen}, so the model cannot be a .tflite file",
                op=node.spec.name,
                tensor=node.results[0].name if node.results else None,
                hint=f"{of_codes if refused else ''}{_OTHER_READER}",
            )
