"""Reader of Circle and TFLite files: ``read_model`` returns records.

Files are not trusted. Every access is checked against the file's end, common structures are decoded once, and the
file's size limits the number of visited bytes. The schema has no recursive table, which bounds the depth. All indices
are checked, so users of the records need no checks.

A decoded table is a dict of the schema's live fields: numbers, lower-case enum names, ``str``, ``memoryview`` (vectors
of ubyte), arrays, lists, ``(table name, record)`` for unions, and None for absent references.
"""

from __future__ import annotations

import mmap
import os
import stat
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, OdcError, UnsupportedError, located, of_system
from odc_mlir.formats.circle.model import (
    EMPTY,
    INDEX_WIDTHS,
    LEFT_OUT,
    Model,
    Operator,
    Quantization,
    Signature,
    SubGraph,
    Tensor,
    VariantSubType,
)
from odc_mlir.formats.circle.schema import Schema, SchemaField, Table, circle_schema, schema_of, subgraph_fields
from odc_mlir.ops.constants import MAX_ELEMENTS, MAX_RANK, encode_constant
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.sparse import DimMetadata, Sparsity

Record = dict[str, Any]

_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

# Limit on visited bytes, as a multiple of the file's size. Shared vtables and strings count once.
_BUDGET_FACTOR = 2
_BUDGET_SLACK_BYTES = 4096

# Limit on decoded tables, far above any real model. A table in memory is some hundred times larger than in the file.
MAX_TABLES = 1 << 21


class MalformedError(Exception):
    """Internal error of the reader: reason for the rejection of a file, and path of the field.

    ``error`` is the class of the public error. ``op`` and ``tensor`` are the names of operator and tensor, if known.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str = "",
        op: str | None = None,
        tensor: str | None = None,
        error: type[OdcError] = ModelError,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path
        self.op = op
        self.tensor = tensor
        self.error = error

    def within(self, step: str) -> MalformedError:
        """Return the error with a longer path. ``step`` is ``.name``, ``[index]`` or ``name[index]``."""
        joint = "." if self.path and self.path[0] not in ".[" else ""
        self.path = f"{step}{joint}{self.path}"
        return self

    def public(self) -> OdcError:
        """Return the error for users, with path and reason on one line."""
        where = self.path.lstrip(".")
        return self.error(f"{where}: {self.reason}" if where else self.reason, op=self.op, tensor=self.tensor)


@contextmanager
def public_errors() -> Iterator[None]:
    """Convert a MalformedError in this block to the error for users."""
    try:
        yield
    except MalformedError as error:
        raise error.public() from None


@contextmanager
def within(step: str, *, op: str | None = None, tensor: str | None = None) -> Iterator[None]:
    """Extend the path of a MalformedError in this block by ``step``, and name operator or tensor."""
    try:
        yield
    except MalformedError as error:
        error.op, error.tensor = op or error.op, error.tensor if tensor is None else tensor
        raise error.within(step) from None


# An entry of a vtable: live field, offset of the field in the table, and offset of the tag (0: no tag).
_Layout = list[tuple[SchemaField, int, int]]


class UnknownPart(NamedTuple):
    """A slot, tag or table that our schema lacks. A newer schema may define it."""

    table: str
    what: str


class Decoder:
    """Decoder of one file. ``unknown`` collects fields that the schema lacks, without duplicates."""

    def __init__(self, data: memoryview, schema: Schema) -> None:
        self.schema = schema
        self.unknown: dict[UnknownPart, None] = {}
        self._data = data
        self._size = len(data)
        self._budget = _BUDGET_FACTOR * self._size + _BUDGET_SLACK_BYTES
        self._tables: dict[tuple[int, str], Record] = {}
        self._vectors: dict[tuple[int, str, str], Any] = {}
        self._strings: dict[int, str] = {}
        self._layouts: dict[tuple[int, str], _Layout] = {}

    def root(self) -> Record:
        """Return the record of the root table. Raises MalformedError with the first malformed field."""
        return self._table(self.schema.tables[self.schema.root], self._reference(0))

    def _charge(self, nbytes: int) -> None:
        self._budget -= nbytes
        if self._budget < 0:
            raise MalformedError(
                f"its structures overlap so much that decoding would visit more than {_BUDGET_FACTOR} times "
                f"the file's {self._size} bytes"
            )

    def _read(self, number: struct.Struct, position: int) -> Any:
        if position < 0 or position + number.size > self._size:
            raise MalformedError(f"it points to byte {position}, but the file has {self._size}: truncated or corrupt")
        return number.unpack_from(self._data, position)[0]

    def _reference(self, position: int) -> int:
        offset: int = self._read(_U32, position)
        if offset == 0:
            raise MalformedError(f"the offset at byte {position} points to itself")
        return position + offset

    def _table(self, table: Table, position: int) -> Record:
        record = self._tables.get((position, table.name))
        if record is not None:
            return record
        self._charge(_I32.size)
        if len(self._tables) >= MAX_TABLES:
            raise MalformedError(f"the file has more than {MAX_TABLES} tables")
        layout = self._layout(table, position - self._read(_I32, position))
        record = dict(table.defaults)
        for field, offset, tag_offset in layout:
            try:
                if field.kind == "union":
                    record[field.name] = self._union(field, position, offset, tag_offset)
                else:
                    record[field.name] = self._field(field, position + offset)
            except MalformedError as error:
                raise error.within(f".{field.name}") from None
        self._tables[position, table.name] = record
        return record

    def _layout(self, table: Table, position: int) -> _Layout:
        if (known_layout := self._layouts.get((position, table.name))) is not None:
            return known_layout
        nbytes: int = self._read(_U16, position)
        if nbytes < 4 or nbytes % 2 or position + nbytes > self._size:
            raise MalformedError(f"the vtable at byte {position} has an impossible size of {nbytes} bytes")
        self._charge(nbytes)
        offsets = struct.unpack_from(f"<{nbytes // 2 - 2}H", self._data, position + 4)
        found = self._layouts[position, table.name] = []
        for field in table.live:
            offset = offsets[field.slot] if field.slot < len(offsets) else 0
            tag_offset = offsets[field.slot - 1] if field.kind == "union" and field.slot <= len(offsets) else 0
            if offset or tag_offset:
                found.append((field, offset, tag_offset))
        known = table.by_slot.keys() | table.tag_slots
        for slot, offset in enumerate(offsets):
            if offset and slot not in known:
                self.unknown[UnknownPart(table.name, f"field in slot {slot}")] = None
        return found

    def _field(self, field: SchemaField, position: int) -> Any:
        if field.kind == "scalar" and field.scalar is not None:
            return self._read(field.scalar.struct, position)
        if field.kind == "enum" and field.scalar is not None:
            return self._enum(field, self._read(field.scalar.struct, position))
        target = self._reference(position)
        if field.kind == "string":
            return self._string(target)
        if field.kind == "table":
            return self._table(self.schema.tables[field.type], target)
        return self._vector(field, target)

    def _enum(self, field: SchemaField, code: int) -> str:
        try:
            return self.schema.enums[field.type].name_of(code)
        except ModelError as error:
            raise MalformedError(error.message) from None

    def _union(self, field: SchemaField, position: int, offset: int, tag_offset: int) -> tuple[str, Record] | None:
        """Decode a union member. Writers omit an empty table, so a tag without a value is a table of defaults."""
        tag = self._read(_U8, position + tag_offset) if tag_offset else 0
        if tag == 0:
            return None
        name = self.schema.unions[field.type].tables.get(tag)
        if name is None:
            self.unknown[UnknownPart(field.type, f"member with tag {tag}")] = None
            return f"UNKNOWN_{tag}", {}
        table = self.schema.tables[name]
        record = self._table(table, self._reference(position + offset)) if offset else dict(table.defaults)
        return name, record

    def _string(self, position: int) -> str:
        text = self._strings.get(position)
        if text is None:
            raw = self._span(position, 1)
            try:
                text = str(raw, "utf-8")
            except UnicodeDecodeError as error:
                raise MalformedError(f"the string at byte {position} is not UTF-8 ({error.reason})") from None
            self._strings[position] = text
        return text

    def _span(self, position: int, element_bytes: int) -> memoryview:
        count: int = self._read(_U32, position)
        start = position + 4
        if count * element_bytes > self._size - start:
            raise MalformedError(
                f"a vector of {count} elements at byte {position} is longer than the file of {self._size} bytes"
            )
        self._charge(4 + count * element_bytes)
        return self._data[start : start + count * element_bytes]

    def _vector(self, field: SchemaField, position: int) -> Any:
        key = (position, field.type, field.element or "")
        value = self._vectors.get(key)
        if value is None:
            value = self._vectors[key] = self._decode_vector(field, position)
        return value

    def _decode_vector(self, field: SchemaField, position: int) -> Any:
        if field.element in ("scalar", "enum") and field.scalar is not None:
            raw = self._span(position, field.scalar.size)
            if field.type == "ubyte":
                return raw
            # A numpy bool must not contain bytes other than 0 and 1.
            numbers = np.frombuffer(raw, field.scalar.dtype if field.type != "bool" else "u1")
            if field.element == "scalar":
                return numbers if field.type != "bool" else numbers != 0
            return [self._enum(field, code) for code in numbers.tolist()]
        entries = np.frombuffer(self._span(position, 4), "<u4")
        return [self._entry(field, index, position + 4 + 4 * index, int(e)) for index, e in enumerate(entries.tolist())]

    def _entry(self, field: SchemaField, index: int, position: int, offset: int) -> Any:
        try:
            if offset == 0:
                raise MalformedError(f"the offset at byte {position} points to itself")
            if field.element == "string":
                return self._string(position + offset)
            return self._table(self.schema.tables[field.type], position + offset)
        except MalformedError as error:
            raise error.within(f"[{index}]") from None


def check_model(model: Model) -> None:
    """Raise MalformedError for an invalid index or shape, or for a tensor that is used before it has a value."""
    if not model.subgraphs:
        raise MalformedError("the model has none", path="subgraphs")
    check_indices(model.metadata_buffer, len(model.buffers), "metadata_buffer", "a buffer")
    for position, (_, buffer) in enumerate(model.metadata):
        check_index(buffer, len(model.buffers), f"metadata[{position}].buffer", "a buffer")
    for position, signature in enumerate(model.signatures):
        _check_signature(model, signature, f"signature_defs[{position}]")
    for index, subgraph in enumerate(model.subgraphs):
        with within(f"subgraphs[{index}]"):
            _check_subgraph(model, subgraph)
            _check_order(subgraph, model.constants(index).keys())


def check_index(index: int, count: int, path: str, things: str, *, low: int = 0) -> None:
    """Raise MalformedError at ``path`` for an index outside of ``low`` .. ``count - 1``."""
    if not low <= index < count:
        allowed = f"{low} to {count - 1}" if count else "none, because there are none"
        raise MalformedError(f"{index} is not an index of {things}; allowed: {allowed}", path=path)


def check_indices(indices: Iterable[int], count: int, field: str, things: str, *, low: int = 0) -> None:
    """Raise MalformedError at ``field`` for an index outside of ``low`` .. ``count - 1``."""
    for position, index in enumerate(indices):
        if not low <= index < count:
            check_index(index, count, f"{field}[{position}]", things, low=low)


def _check_signature(model: Model, signature: Signature, path: str) -> None:
    check_index(signature.subgraph, len(model.subgraphs), f"{path}.subgraph_index", "a subgraph")
    count = len(model.subgraphs[signature.subgraph].tensors)
    check_indices(signature.inputs.values(), count, f"{path}.inputs", "a tensor")
    check_indices(signature.outputs.values(), count, f"{path}.outputs", "a tensor")


def _check_subgraph(model: Model, subgraph: SubGraph) -> None:
    for index, tensor in enumerate(subgraph.tensors):
        with within(f"tensors[{index}]", tensor=tensor.name):
            check_index(tensor.buffer, len(model.buffers), "buffer", "a buffer")
            _check_shape(tensor)
            if tensor.is_variable and len(model.buffers[tensor.buffer]):
                raise MalformedError("a variable starts at zero, so its buffer must be empty", path="buffer")
    count = len(subgraph.tensors)
    check_indices(subgraph.inputs, count, "inputs", "a tensor")
    check_indices(subgraph.outputs, count, "outputs", "a tensor")
    for index, operator in enumerate(subgraph.operators):
        with within(f"operators[{index}]", op=operator.label):
            check_indices(operator.inputs, count, "inputs", "a tensor", low=LEFT_OUT)
            check_indices(operator.outputs, count, "outputs", "a tensor")
            check_indices(operator.intermediates, count, "intermediates", "a tensor", low=LEFT_OUT)
            for name in subgraph_fields(operator.options_type):
                value = operator.options.get(name, ())
                called = value if isinstance(value, tuple) else (value,)
                check_indices(called, len(model.subgraphs), name, "a subgraph")


def _check_shape(tensor: Tensor) -> None:
    shape, signature = tensor.shape, tensor.shape_signature
    for name, dims in (("shape", shape), ("shape_signature", signature)):
        if dims is None:
            continue
        if min(dims, default=0) < -1:
            raise MalformedError(f"{list(dims)} has a negative dimension other than -1 (unknown)", path=name)
        if len(dims) > MAX_RANK:
            raise MalformedError(f"the rank is {len(dims)}; at most {MAX_RANK} is supported", path=name)
        if prod(max(dim, 1) for dim in dims) > MAX_ELEMENTS:
            raise MalformedError(
                f"{list(dims)} has more elements than are supported, at most {MAX_ELEMENTS}", path=name
            )
    if shape is not None and signature and len(signature) != len(shape):
        raise MalformedError(f"{list(signature)} has another rank than the shape {list(shape)}", path="shape_signature")


def _check_order(subgraph: SubGraph, constants: Iterable[int]) -> None:
    """Check that a tensor has one definition, before the first use.

    Outputs of some files have no definition. A run reports such an output.
    """
    defined = {LEFT_OUT, *constants, *subgraph.inputs}
    defined |= {index for index, tensor in enumerate(subgraph.tensors) if tensor.is_variable}
    computed = {index for operator in subgraph.operators for index in operator.outputs}
    # Custom operators of other compilers have scratch buffers as operands. Nothing computes these buffers.
    customs = [operator for operator in subgraph.operators if operator.name == "CUSTOM"]
    defined |= {index for operator in customs for index in operator.inputs if index not in computed}
    names = [tensor.name for tensor in subgraph.tensors]
    for position, operator in enumerate(subgraph.operators):
        with within(f"operators[{position}]", op=operator.label):
            for index in operator.inputs:
                if index not in defined:
                    raise MalformedError(f"tensor {index} is used before it has a value", tensor=names[index])
            for index in operator.outputs:
                if index in defined:
                    raise MalformedError(
                        f"tensor {index} is computed although it has a value already", tensor=names[index]
                    )
                defined.add(index)


# Larger files are mapped, because reading would double the memory. Smaller files are read, because truncation of a
# mapped file crashes the process.
MAP_BYTES = 64 << 20

# `deprecated_builtin_code` of operators whose code does not fit in a byte.
_EXTENDED_CODE = 127

# Offset of a buffer in a file that its writer did not finish.
_UNFINISHED_OFFSET = 1


def identify(head: bytes | memoryview) -> str | None:
    """Return ``"circle"`` or ``"tflite"`` by the file identifier in bytes 4..7, else None."""
    schema = schema_of(bytes(head[4:8]))
    return schema.name if schema is not None else None


def read_model(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Model:
    """Return the model in a ``.circle`` or ``.tflite`` file or in its bytes. Constants are views of the bytes.

    Raises ModelError for an unreadable or malformed file, UnsupportedError for parts that Circle cannot express.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read_bytes(memoryview(source).cast("B").toreadonly())
    with located(os.fspath(source)):
        model = _read_bytes(_load(os.fspath(source)))
        model.path = os.fspath(source)
        return model


def _load(path: str) -> memoryview:
    with of_system("the model file cannot be read", ModelError):
        # Without this flag, opening a pipe waits for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelError("this is not a regular file")
            if status.st_size >= MAP_BYTES:
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            return memoryview(file.read())


def _read_bytes(data: memoryview) -> Model:
    with public_errors():
        return _reader_of(data).read()


def _reader_of(data: memoryview) -> _RecordReader:
    schema = schema_of(bytes(data[4:8]))
    if schema is None:
        seen = f"its bytes 4 to 7 are {bytes(data[4:8])!r}" if len(data) >= 8 else f"it has only {len(data)} bytes"
        hint = "export models of other formats, such as ONNX, again: to TFLite, or with PyTorch (docs/models.md)"
        text = f"this is no Circle or TFLite model: {seen}; the identifier CIR0 or TFL3 is expected there"
        raise ModelError(text, hint=hint)
    return _RecordReader(data, schema)


class _RecordReader:
    """Converter of decoded tables to records. The size of the file bounds the number of records."""

    def __init__(self, data: memoryview, schema: Schema) -> None:
        self._data = data
        self._schema = schema
        self.decoder = Decoder(data, schema)
        # Every record has an offset of four bytes in the file, unless several owners share a vector of records.
        self._budget = min(len(data) // 4 + 64, MAX_TABLES)
        self._tuples: dict[int, tuple[Any, ...]] = {}
        self._unknown: dict[str, None] = {}
        self._buffers: list[memoryview] = []
        self._codes: list[tuple[str, int, str]] = []

    def read(self) -> Model:
        root = self.decoder.root()
        self._buffers = self._each(root["buffers"], "buffers", self._buffer) or [EMPTY]
        self._codes = self._each(root["operator_codes"], "operator_codes", self.operator_code)
        model = Model(self._schema.name, root["version"], root["description"], buffers=self._buffers)
        model.subgraphs = self._each(root["subgraphs"], "subgraphs", self._subgraph)
        model.metadata = self._each(root["metadata"], "metadata", lambda r: (r["name"] or "", r["buffer"]))
        model.metadata_buffer = self._tuple(root["metadata_buffer"])
        model.signatures = self._each(root["signature_defs"], "signature_defs", self._signature)
        check_model(model)
        self._note(root, "external_buffers", "Model")
        model.unknown = [f"{part.what} of {part.table}" for part in self.decoder.unknown] + list(self._unknown)
        return model

    def _each(self, records: Sequence[Record] | None, name: str, convert: Callable[[Record], Any]) -> list[Any]:
        entries = records or ()
        self._budget -= len(entries)
        if self._budget < 0:
            raise MalformedError(f"tables are referenced too often for a file of {len(self._data)} bytes", path=name)
        converted = []
        for index, record in enumerate(entries):
            with within(f"{name}[{index}]"):
                converted.append(convert(record))
        return converted

    def _tuple(self, vector: Any) -> tuple[Any, ...]:
        """Return a decoded vector as a tuple. A common vector becomes a common tuple."""
        if vector is None:
            return ()
        # Keyed by identity: the decoder keeps every vector alive as long as this reader.
        found = self._tuples.get(id(vector))
        if found is None:
            found = tuple(vector.tolist()) if isinstance(vector, np.ndarray) else tuple(vector)
            self._tuples[id(vector)] = found
        return found

    def _note(self, record: Record, name: str, table: str) -> None:
        value = record.get(name)
        if len(value) if isinstance(value, (list, memoryview, np.ndarray)) else value:
            self._unknown[f"{name} of {table}"] = None

    def _buffer(self, record: Record) -> memoryview:
        data: memoryview | None = record["data"]
        return data if data is not None else self._outside(record["offset"], record["size"])

    def _outside(self, offset: int, size: int) -> memoryview:
        if offset == 0:
            return EMPTY
        if offset == _UNFINISHED_OFFSET:
            raise MalformedError("offset 1 marks a file whose writer did not finish it")
        if offset + size > len(self._data):
            raise MalformedError(f"bytes {offset} to {offset + size} lie outside the file of {len(self._data)} bytes")
        return self._data[offset : offset + size]

    def operator_code(self, record: Record) -> tuple[str, int, str]:
        """Return name, version and custom code of an operator.

        Circle reads the wide field only if the narrow field is 127. TFLite uses the larger value.
        """
        narrow, wide = record["deprecated_builtin_code"], record["builtin_code"]
        code = max(narrow, wide) if self._schema.name == "tflite" else narrow
        if self._schema.name == "circle" and narrow == _EXTENDED_CODE:
            code = wide
            if wide < _EXTENDED_CODE:
                raise MalformedError(f"builtin_code {wide} contradicts deprecated_builtin_code {narrow}")
        name = self._schema.operators.names.get(code)
        if name is None:
            if code < 0:
                raise MalformedError(f"builtin code {code} is not an operator of the {self._schema.name} schema")
            name = f"BUILTIN_{code}"
            self._unknown[f"operator with builtin code {code}"] = None
        return name, record["version"], record["custom_code"] or ""

    def _subgraph(self, record: Record) -> SubGraph:
        return SubGraph(
            name=record["name"],
            tensors=self._each(record["tensors"], "tensors", self._tensor),
            inputs=self._tuple(record["inputs"]),
            outputs=self._tuple(record["outputs"]),
            operators=self._each(record["operators"], "operators", self._operator),
            debug_metadata_index=record["debug_metadata_index"],
        )

    def _tensor(self, record: Record) -> Tensor:
        name: str = record["name"] or ""
        with within("", tensor=name):
            self._note(record, "external_buffer", "Tensor")
            compression = record.get("compression_type", "none")
            if compression != "none":
                self._unknown[f"{compression} compression of tensor {name!r}"] = None
            shape = None if record["shape"] is None else self._tuple(record["shape"])
            signature = None if record["shape_signature"] is None else self._tuple(record["shape_signature"])
            dtype, buffer = record["type"], record["buffer"]
            if dtype == "int2" and 0 < buffer < len(self._buffers):  # Circle has no such type
                dtype, buffer = "int4", self._four_bits(buffer, prod(shape or ()))
            return Tensor(
                name=name,
                dtype=_dtype(dtype),
                shape=shape,
                shape_signature=signature,
                buffer=buffer,
                quantization=self._quantization(record["quantization"]),
                is_variable=record["is_variable"],
                sparsity=self._sparsity(record["sparsity"]),
                has_rank=record["has_rank"],
                variant_tensors=tuple(self._each(record["variant_tensors"], "variant_tensors", self._variant)),
                compression=compression,
            )

    def _four_bits(self, buffer: int, count: int) -> int:
        """Add a buffer with ``count`` two-bit integers of ``buffer`` as four-bit integers, and return the index."""
        pairs = np.frombuffer(self._buffers[buffer], np.uint8)[:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
        self._buffers.append(memoryview(encode_constant((pairs.reshape(-1)[:count] ^ 2).view(np.int8) - 2, "int4")))
        return len(self._buffers) - 1

    def _quantization(self, record: Record | None) -> Quantization | None:
        if record is None:
            return None
        details = record["details"]
        if details is not None:
            details = (details[0], self._options(*details))
        return Quantization(
            scale=_array(record["scale"], "<f4"),
            zero_point=_array(record["zero_point"], "<i8"),
            axis=record["quantized_dimension"],
            min=_array(record["min"], "<f4"),
            max=_array(record["max"], "<f4"),
            details=details,
        )

    def _sparsity(self, record: Record | None) -> Sparsity | None:
        if record is None:
            return None
        dims = self._each(record["dim_metadata"], "sparsity.dim_metadata", _dim_metadata)
        return Sparsity(self._tuple(record["traversal_order"]), self._tuple(record["block_map"]), tuple(dims))

    def _variant(self, record: Record) -> VariantSubType:
        shape = None if record["shape"] is None else self._tuple(record["shape"])
        return VariantSubType(_dtype(record["type"]), shape, record["has_rank"])

    def _operator(self, record: Record) -> Operator:
        check_index(record["opcode_index"], len(self._codes), "opcode_index", "an operator code")
        name, version, custom_code = self._codes[record["opcode_index"]]
        first, second = record["builtin_options"], record["builtin_options_2"]
        if first is not None and second is not None:
            raise MalformedError(f"it has two tables of options, {first[0]} and {second[0]}", op=name)
        member, fields = first or second or (None, {})
        custom = record["custom_options"]
        return Operator(
            name=name,
            version=version,
            custom_code=custom_code,
            inputs=self._tuple(record["inputs"]),
            outputs=self._tuple(record["outputs"]),
            options_type=member,
            options=self._options(member, fields),
            custom_options=custom
            if custom is not None
            else self._outside(record["large_custom_options_offset"], record["large_custom_options_size"]),
            custom_options_format=record["custom_options_format"],
            mutating_variable_inputs=self._tuple(record["mutating_variable_inputs"]),
            intermediates=self._tuple(record["intermediates"]),
            debug_metadata_index=record["debug_metadata_index"],
        )

    def _options(self, table: str | None, record: Record) -> dict[str, Any]:
        if table is None or table not in self._schema.tables:
            return {}
        fields = self._schema.tables[table].live
        circle = circle_schema().tables.get(table)
        if circle is not None:
            for name in record.keys() - circle.by_name.keys():
                self._note(record, name, table)
            fields = circle.live
        return {field.name: self._option(field, record[field.name]) for field in fields}

    def _option(self, field: SchemaField, value: Any) -> Any:
        if value is None:
            return field.empty
        if field.kind != "vector":
            return value
        return bytes(value) if field.type == "ubyte" else self._tuple(value)

    def _signature(self, record: Record) -> Signature:
        return Signature(
            key=record["signature_key"] or "",
            subgraph=record["subgraph_index"],
            inputs=self._named(record, "inputs"),
            outputs=self._named(record, "outputs"),
        )

    def _named(self, record: Record, field: str) -> dict[str, int]:
        pairs = self._each(record[field], field, lambda item: (item["name"] or "", item["tensor_index"]))
        if len(names := dict(pairs)) != len(pairs):
            raise MalformedError("the signature gives one name twice", path=field)
        return names


def _dtype(name: str) -> str:
    if name not in DTYPES:
        raise MalformedError(f"element type {name} has no equal in Circle", path="type", error=UnsupportedError)
    return name


def _array(vector: NDArray[Any] | None, dtype: str) -> NDArray[Any]:
    return vector if vector is not None else np.empty(0, dtype)


def _dim_metadata(record: Record) -> DimMetadata:
    segments, indices = _index_vector(record["array_segments"]), _index_vector(record["array_indices"])
    return DimMetadata(record["format"], record["dense_size"], segments, indices)


def _index_vector(union: tuple[str, Record] | None) -> NDArray[Any] | None:
    if union is None or not union[1]:
        return None
    member, record = union
    width = INDEX_WIDTHS[member]
    return np.frombuffer(record["values"], width) if record["values"] is not None else np.empty(0, width)
