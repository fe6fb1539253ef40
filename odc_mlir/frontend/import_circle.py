"""Import of model files into the ``circle`` dialect: ``import_model``, and ``load_module`` for any file with a model.

A subgraph becomes a function, and an operator becomes an operation. Constants precede the first user. Locations hold
names of tensors. The rest of the file becomes module attributes for :mod:`.export_circle`.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from xdsl.context import Context
from xdsl.dialects.builtin import (
    ArrayAttr,
    DictionaryAttr,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolRefAttr,
    UnitAttr,
    i32,
)
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Attribute, Block, Operation, OpResult, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects import circle
from odc_mlir.dialects.circle import mark_unverified, refine_function
from odc_mlir.dialects.circle_options import ListOption, SymbolOption
from odc_mlir.dialects.circle_types import NO_CONTENTS, NONE_TYPE, AnyTensor, sparsity_attribute
from odc_mlir.dialects.odc import set_states
from odc_mlir.dialects.quant import UniformQuantizedType
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats import states
from odc_mlir.formats.circle.model import LEFT_OUT, Model, Operator, Quantization, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.reader import identify, read_model
from odc_mlir.formats.circle.schema import circle_schema, default_options
from odc_mlir.ops.check import check_structure
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import Shape
from odc_mlir.support.blob import Blob
from odc_mlir.support.diagnostics import typed_errors, verify_module
from odc_mlir.support.locations import Positions, hint_of, name_loc, names_loc
from odc_mlir.support.text import parse_module

LOG = logging.getLogger(__name__)

STAGE = "import"

TensorToAttribute = Callable[[int], Attribute]

# Fields of a quantisation details table that are tensor indices (-1: none).
_TENSOR_FIELDS: Mapping[str, frozenset[str]] = {"BlockwiseQuantization": frozenset({"scales", "zero_points"})}


def import_model(model: Model, *, refine: bool = True, verify: bool = True) -> ModuleOp:
    """Return the module of ``model``: one function per subgraph in order, the first being the entry.

    If ``refine``, infer unknown and wrong result shapes, and mark operators that violate rules of the operator table.
    Marked operators can be printed and exported, but not executed. Raises ModelError for an inconsistent model,
    UnsupportedError for parts that the dialect cannot express.
    """
    for what in model.unknown:
        name = model.path or "the model"
        LOG.warning("%s uses a newer schema; it can be printed but not run or written: %s", name, what)
    with typed_errors(STAGE):
        module = _Importer(model).module()
        if refine:
            for function in module.body.block.ops:
                assert isinstance(function, FuncOp)
                refine_function(function)
        if verify:
            try:
                module.verify()
            except VerifyException:
                if not refine:
                    raise
                _mark_unverified(module)
                module.verify()
    return module


def _mark_unverified(module: ModuleOp) -> None:
    for op in module.walk():
        if isinstance(op, circle.CircleOp) and op.unverified is None:
            try:
                node = circle.node_of(op)
                check_structure(node)
                op.verify_()
            except ModelError:
                continue
            except VerifyException as error:
                mark_unverified(op, ModelError(str(error)))


def add_named(block: Block, op: Operation, name: str) -> OpResult:
    """Append an operation that is not an operator to ``block``, and return its result."""
    op.location, op.results[0].name_hint = name_loc(name), hint_of(name)
    block.add_op(op)
    return op.results[0]


def subgraph_symbols(model: Model) -> list[str]:
    """Return a distinct function name for each subgraph, if possible the subgraph's name."""
    symbols: list[str] = []
    for index, subgraph in enumerate(model.subgraphs):
        fallback = "main" if index == 0 else f"subgraph_{index}"
        name = subgraph.name or fallback
        while name in symbols:
            name = f"{name}_{index}"
        symbols.append(name)
    return symbols


class _Importer:
    """State of all subgraphs: symbols, and one blob per buffer."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.symbols = subgraph_symbols(model)
        self.blobs: dict[int, Blob] = {}

    def module(self) -> ModuleOp:
        model = self.model
        functions = [_SubgraphImporter(self, index).function() for index in range(len(model.subgraphs))]
        module = ModuleOp(list[Operation](functions), attributes=self._attributes())
        module.location = name_loc(self.symbols[0] if self.symbols else "empty")
        found = [self.model.buffers[buffer] for name, buffer in self.model.metadata if name == states.NAME]
        set_states(module, [pair for buffer in found for pair in states.decode(buffer)])
        return module

    def blob(self, buffer: int) -> circle.BlobAttr:
        if buffer not in self.blobs:
            self.blobs[buffer] = Blob(self.model.buffers[buffer])
        return circle.BlobAttr(self.blobs[buffer])

    def _attributes(self) -> dict[str, Attribute]:
        model = self.model
        # Circle and TFLite have independent version numbers, and we write Circle.
        version = model.version if model.schema == "circle" else 0
        attributes: dict[str, Attribute] = {"circle.version": IntegerAttr(version, i32)}
        if model.description is not None:
            attributes["circle.description"] = StringAttr(model.description)
        if model.signatures:
            attributes["circle.signatures"] = ArrayAttr([self._signature(entry) for entry in model.signatures])
        entries = [
            DictionaryAttr({"name": StringAttr(name), "data": self.blob(buffer)})
            for name, buffer in model.metadata
            if name != states.NAME
        ]
        if entries:
            attributes["circle.metadata"] = ArrayAttr(entries)
        if model.metadata_buffer:
            attributes["circle.metadata_buffer"] = ArrayAttr([self.blob(buffer) for buffer in model.metadata_buffer])
        if model.unknown:
            attributes["circle.unknown"] = ArrayAttr([StringAttr(what) for what in model.unknown])
        if any(tensor.has_rank for subgraph in model.subgraphs for tensor in subgraph.tensors):
            attributes["circle.has_rank"] = UnitAttr()
        return attributes

    def _signature(self, signature: Signature) -> DictionaryAttr:
        subgraph = self.model.subgraphs[signature.subgraph]
        return DictionaryAttr(
            {
                "key": StringAttr(signature.key),
                "subgraph": SymbolRefAttr(self.symbols[signature.subgraph]),
                "inputs": _positions(signature, signature.inputs, subgraph.inputs, "input"),
                "outputs": _positions(signature, signature.outputs, subgraph.outputs, "output"),
            }
        )


def _is_described(tensor: Tensor) -> bool:
    """Return whether the file describes more of a tensor than its element type. Unranked types cannot hold more."""
    quantization = tensor.quantization
    return quantization is not None and bool(
        quantization.scale.size or quantization.min.size or quantization.details is not None
    )


def _positions(signature: Signature, names: Mapping[str, int], tensors: tuple[int, ...], what: str) -> ArrayAttr[Any]:
    pairs = []
    for name, tensor in names.items():
        if tensor not in tensors:
            raise ModelError(
                f"{what} {name!r} of signature {signature.key!r} is tensor {tensor}, no {what} of its graph"
            )
        pairs.append(ArrayAttr([StringAttr(name), IntegerAttr(tensors.index(tensor), i32)]))
    return ArrayAttr(pairs)


class _SubgraphImporter:
    def __init__(self, importer: _Importer, index: int) -> None:
        self.importer = importer
        self.index = index
        self.subgraph: SubGraph = importer.model.subgraphs[index]
        self.tensors = self.subgraph.named()
        self.constants = importer.model.constants(index)
        self.block = Block()
        self.values: dict[int, SSAValue] = {}
        self.none: SSAValue | None = None
        self.describing: set[int] = set()

    def function(self) -> FuncOp:
        subgraph, symbol = self.subgraph, self.importer.symbols[self.index]
        self._arguments()
        for operator in subgraph.operators:
            self._operator(operator)
        terminator = ReturnOp(*map(self._value, subgraph.outputs))
        terminator.location = name_loc(symbol)
        self.block.add_op(terminator)
        function = FuncOp(symbol, (self.block.arg_types, list(terminator.operand_types)), Region(self.block))
        function.location = name_loc(symbol)
        if subgraph.name is None:
            function.attributes["circle.unnamed"] = UnitAttr()
        elif subgraph.name != symbol:
            function.attributes["circle.name"] = StringAttr(subgraph.name)
        if variables := [position for position, i in enumerate(subgraph.inputs) if self.tensors[i].is_variable]:
            function.attributes["circle.variable_inputs"] = ArrayAttr([IntegerAttr(p, i32) for p in variables])
        return function

    def _arguments(self) -> None:
        inputs = self.subgraph.inputs
        self.block = Block(arg_types=[self._type(self.tensors[index], self._shape(index)) for index in inputs])
        for index, argument in zip(inputs, self.block.args, strict=True):
            name = self.tensors[index].name
            if index in self.values:
                raise ModelError("this tensor is listed as graph input twice", tensor=name)
            argument.location, argument.name_hint = name_loc(name), hint_of(name)
            self.values[index] = argument

    def _operator(self, operator: Operator) -> None:
        cls = circle.op_class(operator.name)
        tensors = self.tensors
        outputs = [tensors[index] for index in operator.outputs]
        op = cls.make(
            [self._value(index, operator.label) for index in operator.inputs],
            [self._type(tensors[index], self._shape(index)) for index in operator.outputs],
            self._options(cls, operator),
            location=names_loc([tensor.name for tensor in outputs]) if outputs else name_loc(operator.label),
        )
        self.block.add_op(op)
        for index, tensor, result in zip(operator.outputs, outputs, op.results, strict=True):
            result.name_hint = hint_of(tensor.name)
            self.values[index] = result

    def _value(self, index: int, user: str = "") -> SSAValue:
        if index == LEFT_OUT:
            if self.none is None:
                self.none = add_named(self.block, circle.NoneOp(), "none")
            return self.none
        if (known := self.values.get(index)) is not None:
            return known
        tensor = self.tensors[index]
        if (data := self.constants.get(index)) is not None:
            sparsity = None if tensor.sparsity is None else sparsity_attribute(tensor.sparsity)
            type = self._type(tensor, _constant_shape(tensor, data))
            made: Operation = circle.ConstOp(self.importer.blob(tensor.buffer), type, sparsity)
        elif tensor.is_variable:
            made = circle.VariableOp(self._type(tensor, tensor.effective_shape))
        elif not user or user.startswith("CUSTOM"):  # an output that no operator computes, or a scratch tensor
            made = circle.UndefinedOp(self._type(tensor, tensor.effective_shape))
        else:
            raise ModelError("this tensor is used but nothing computes it", op=user, tensor=tensor.name)
        return self.values.setdefault(index, add_named(self.block, made, tensor.name))

    def _shape(self, index: int) -> Shape | None:
        """Return the known shape of a computed tensor, or None.

        Files with calls between subgraphs omit shapes that are known only at run time. Such tensors look like scalars.
        """
        tensor, model = self.tensors[index], self.importer.model
        if tensor.says_nothing and not _is_described(tensor) and len(model.subgraphs) > 1:
            is_entry = self.index == 0 or any(entry.subgraph == self.index for entry in model.signatures)
            if not (is_entry and index in (*self.subgraph.inputs, *self.subgraph.outputs)):
                return None
        return tensor.effective_shape

    def _type(self, tensor: Tensor, shape: Any) -> Attribute:
        if tensor.compression != "none":
            raise UnsupportedError(f"{tensor.compression} compression has no public definition", tensor=tensor.name)
        if tensor.variant_tensors:
            LOG.warning("tensor %r: the element types of its variants are dropped", tensor.name)
        return _type_of(tensor, shape, self._tensor_attribute)

    def _tensor_attribute(self, index: int) -> Attribute:
        """Return the attribute of a tensor without a value: an intermediate, or scales of block quantisation."""
        if index == LEFT_OUT:
            return NONE_TYPE
        tensor = self.tensors[index]
        if index in self.describing:
            raise ModelError("the quantisation of this tensor refers to itself", tensor=tensor.name)
        self.describing.add(index)
        data = self.constants.get(index)
        shape = tensor.effective_shape if data is None else _constant_shape(tensor, data)
        contents = NO_CONTENTS if data is None else self.importer.blob(tensor.buffer)
        attribute = circle.TensorAttr(StringAttr(tensor.name), self._type(tensor, shape), contents)
        self.describing.discard(index)
        return attribute

    def _options(self, cls: type[circle.CircleOp], operator: Operator) -> dict[str, Any]:
        table = cls.SPEC.options
        options = dict(operator.options)
        if operator.options_type != table:
            if operator.options != default_options(operator.options_type):
                found = f"has options {operator.options_type}, expected {table}"
                first = self.tensors[operator.outputs[0]].name if operator.outputs else ""
                raise ModelError(found, op=operator.label, tensor=first)
            options = default_options(table)
            options["options_table"] = operator.options_type or "none"
        symbols = self.importer.symbols
        for name, value in options.items():
            option = cls.OPTIONS[name]
            if isinstance(option, SymbolOption):
                options[name] = symbols[value]
            elif isinstance(option, ListOption) and isinstance(option.element, SymbolOption):
                options[name] = tuple(symbols[index] for index in value)
        return options | self._record(operator)

    def _record(self, operator: Operator) -> dict[str, Any]:
        intermediates = [self._tensor_attribute(index) for index in operator.intermediates]
        return {
            "version": operator.version if operator.version != 1 else None,
            "custom_code": operator.custom_code or None,
            "custom_options": operator.custom_options if len(operator.custom_options) else None,
            "mutating_variable_inputs": operator.mutating_variable_inputs or None,
            "intermediates": ArrayAttr(intermediates) if intermediates else None,
        }


_HEAD_BYTES = 8


def load_module(
    context: Context,
    source: str | os.PathLike[str] | bytes,
    name: str = "<input>",
    *,
    first_line: int = 1,
    verify: bool = True,
    positions: Positions | None = None,
) -> ModuleOp:
    """Return the module in a file or in its bytes. Raises ModelError for other content, and errors of reading.

    ``name`` and ``first_line`` describe the origin of the bytes for errors. ``positions`` receives the positions of
    operations.
    """
    if not isinstance(source, bytes):
        path = Path(source)
        try:
            with path.open("rb") as file:
                if identify(file.read(_HEAD_BYTES)) is not None:
                    return import_model(read_model(path), verify=verify)
                file.seek(0)
                source, name = file.read(), str(path)
        except OSError as error:
            raise ModelError(f"cannot read the model: {error.strerror}", location=str(path)) from error
    if identify(source[:_HEAD_BYTES]) is not None:
        return import_model(read_model(source), verify=verify)
    return _parse_text(context, source, name, first_line, verify, positions or Positions())


def _parse_text(
    context: Context, source: bytes, name: str, first_line: int, verify: bool, positions: Positions
) -> ModuleOp:
    try:
        text = source.decode()
    except UnicodeDecodeError as error:
        raise ModelError("neither a Circle nor a TFLite file nor MLIR text", location=name) from error
    module = parse_module(context, "\n" * (first_line - 1) + text, name, positions)
    if verify:
        verify_module(module, positions)
    return module


def _type_of(tensor: Tensor, shape: Shape | None, tensor_attribute: TensorToAttribute) -> AnyTensor:
    """Return the type of ``tensor`` with ``shape``. Raises ModelError for quantisation that does not fit.

    ``tensor_attribute`` returns the attribute of another tensor of the subgraph, which holds block scales.
    """
    quantization = tensor.quantization
    if quantization is None:
        return circle.tensor_type(tensor.dtype, shape)
    quant = tensor.quant_params()
    try:
        record = _record(tensor.name, quantization, tensor_attribute)
    except UnsupportedError as error:
        error.tensor = error.tensor or tensor.name
        raise
    is_plain = quant is None or UniformQuantizedType.expresses(tensor.dtype, quant)
    if shape is None and (record is not None or not is_plain):
        if not is_plain:
            raise ModelError("the quantisation of a tensor of unknown rank cannot be expressed", tensor=tensor.name)
        LOG.warning("tensor %r has unknown rank, its recorded range is dropped", tensor.name)
        record = None
    return circle.tensor_type(tensor.dtype, shape, quant, record)


def _record(name: str, quantization: Quantization, tensor_attribute: TensorToAttribute) -> circle.QuantRecord | None:
    low, high = tuple(quantization.min.tolist()), tuple(quantization.max.tolist())
    if len(low) != len(high):
        LOG.warning("tensor %r has %d minima and %d maxima, its recorded range is dropped", name, len(low), len(high))
        low = high = ()
    details = None
    if quantization.details is not None:
        table, fields = quantization.details
        if table not in circle_schema().unions["QuantizationDetails"].tags:
            raise UnsupportedError(f"Circle has no quantisation of kind {table}")
        attributes = {key: _detail(table, key, value, tensor_attribute) for key, value in fields.items()}
        details = (table, attributes)
    return circle.QuantRecord(min=low, max=high, details=details) if low or details is not None else None


def _detail(table: str, key: str, value: Any, tensor_attribute: TensorToAttribute) -> Attribute:
    if key in _TENSOR_FIELDS.get(table, ()) and value >= 0:
        return tensor_attribute(value)
    return IntegerAttr(value, i32) if isinstance(value, int) else circle.BlobAttr.of(value)


def _constant_shape(tensor: Tensor, data: memoryview) -> Shape | None:
    """Return the shape of a constant. It is static even if the shape signature has unknown dimensions.

    A constant without a shape is a scalar if it has as many bytes as an element.
    """
    shape = tensor.shape
    bits = DTYPES[tensor.dtype].bits
    return () if shape is None and bits and data.nbytes == (bits + 7) // 8 else shape
