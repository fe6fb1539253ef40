"""Model file to records: ``read_model``.

The file identifier decides between the Circle and the TFLite schema; both give the same records, with Circle's names.
Everything that indexes something is checked here, so that users of the records need not: operator codes, tensors,
buffers, subgraphs, and that each tensor is computed once and before it is used. What a newer schema defines, or has no
public definition, is listed in ``Model.unknown``.
"""

from __future__ import annotations

import mmap
import os
import stat
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.checks import check_index, check_model
from odc_mlir.formats.circle.decoder import MAX_TABLES, Decoder, MalformedError, Record
from odc_mlir.formats.circle.model import (
    EMPTY,
    INDEX_WIDTHS,
    DimMetadata,
    Model,
    Operator,
    Quantization,
    Signature,
    Sparsity,
    SubGraph,
    Tensor,
    VariantSubType,
)
from odc_mlir.formats.circle.schema import Schema, SchemaField, circle_schema, schema_of
from odc_mlir.ops.dtypes import DTYPES

# Larger files are mapped: reading them whole would double their memory. Smaller ones are read, so that a file that is
# truncated in place while we use it cannot crash the process.
MAP_BYTES = 64 << 20

# `deprecated_builtin_code` of operators whose code does not fit in a byte.
_EXTENDED_CODE = 127

# Offset of a buffer whose writer never finished the file.
_UNFINISHED_OFFSET = 1


def identify(head: bytes | memoryview) -> str | None:
    """``"circle"`` or ``"tflite"`` by the file identifier in bytes 4..7, None for any other content."""
    schema = schema_of(bytes(head[4:8]))
    return schema.name if schema is not None else None


def read_model(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> Model:
    """The model in a ``.circle`` or ``.tflite`` file or in its bytes; constants are views of those bytes.

    Raises ModelError for a file that cannot be read or is malformed, UnsupportedError for what Circle cannot express.
    """
    if isinstance(source, (bytes, bytearray, memoryview)):
        return _read_bytes(memoryview(source).cast("B").toreadonly())
    try:
        model = _read_bytes(_load(os.fspath(source)))
        model.path = os.fspath(source)
        return model
    except OdcError as error:
        error.location = error.location or os.fspath(source)
        raise


def _load(path: str) -> memoryview:
    """The bytes of a regular file."""
    try:
        # Opening a pipe without this flag would wait for a writer.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))
        with open(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ModelError("this is not a regular file")
            if status.st_size >= MAP_BYTES:
                return memoryview(mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ))
            return memoryview(file.read())
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ModelError(f"the model file cannot be read: {reason}") from None


def _read_bytes(data: memoryview) -> Model:
    schema = schema_of(bytes(data[4:8]))
    if schema is None:
        seen = f"its bytes 4 to 7 are {bytes(data[4:8])!r}" if len(data) >= 8 else f"it has only {len(data)} bytes"
        raise ModelError(f"this is no Circle or TFLite model: {seen}; the identifier CIR0 or TFL3 is expected there")
    try:
        return _RecordReader(data, schema).read()
    except MalformedError as error:
        raise error.public() from None


def read_operator_codes(data: bytes | memoryview) -> list[tuple[str, int]]:
    """Name and version of each kind of operator of a model file; nothing else of it is read. Raises ModelError."""
    view = memoryview(data)
    schema = schema_of(bytes(view[4:8]))
    if schema is None:
        raise ModelError("this is no Circle or TFLite model", hint="the identifier CIR0 or TFL3 is expected")
    try:
        reader = _RecordReader(view, schema)
        return [reader.operator_code(record)[:2] for record in reader.decoder.root_field("operator_codes") or ()]
    except MalformedError as error:
        raise error.public() from None


class _RecordReader:
    """Turns decoded tables into records; ``_budget`` bounds the number of records by the size of the file."""

    def __init__(self, data: memoryview, schema: Schema) -> None:
        self._data = data
        self._schema = schema
        self.decoder = Decoder(data, schema)
        # A record costs its file an offset of four bytes, unless a vector of them is shared by many owners.
        self._budget = min(len(data) // 4 + 64, MAX_TABLES)
        self._tuples: dict[int, tuple[Any, ...]] = {}
        self._unknown: dict[str, None] = {}
        self._buffers: list[memoryview] = []
        self._codes: list[tuple[str, int, str]] = []

    def read(self) -> Model:
        """The checked model; raises MalformedError."""
        root = self.decoder.root()
        self._buffers = self._each(root["buffers"], "buffers", self._buffer) or [EMPTY]
        self._codes = self._each(root["operator_codes"], "operator_codes", self.operator_code)
        model = Model(self._schema.name, root["version"], root["description"], buffers=self._buffers)
        model.subgraphs = self._each(root["subgraphs"], "subgraphs", self._subgraph)
        model.metadata = self._each(root["metadata"], "metadata", _metadata)
        model.metadata_buffer = self._tuple(root["metadata_buffer"])
        model.signatures = self._each(root["signature_defs"], "signature_defs", self._signature)
        check_model(model)
        self._note(root, "external_buffers", "Model")
        model.unknown = [f"{part.what} of {part.table}" for part in self.decoder.unknown] + list(self._unknown)
        return model

    def _each(self, records: Sequence[Record] | None, name: str, convert: Callable[[Record], Any]) -> list[Any]:
        """Every entry of a vector of tables, converted; errors say which entry."""
        entries = records or ()
        self._budget -= len(entries)
        if self._budget < 0:
            raise MalformedError(
                f"tables are shared more often than makes sense in a file of {len(self._data)} bytes", path=name
            )
        converted = []
        for index, record in enumerate(entries):
            try:
                converted.append(convert(record))
            except MalformedError as error:
                raise error.within(f"{name}[{index}]") from None
        return converted

    def _tuple(self, vector: Any) -> tuple[Any, ...]:
        """A decoded vector as a tuple, () for None; a shared vector gives a shared tuple."""
        if vector is None:
            return ()
        # Keyed by identity: the decoder keeps every vector alive as long as this reader.
        found = self._tuples.get(id(vector))
        if found is None:
            found = tuple(vector.tolist()) if isinstance(vector, np.ndarray) else tuple(vector)
            self._tuples[id(vector)] = found
        return found

    def _note(self, record: Record, name: str, table: str) -> None:
        """Remember that the file sets a field for which Circle has no place."""
        value = record.get(name)
        if len(value) if isinstance(value, (list, memoryview, np.ndarray)) else value:
            self._unknown[f"{name} of {table}"] = None

    def _buffer(self, record: Record) -> memoryview:
        data: memoryview | None = record["data"]
        return data if data is not None else self._outside(record["offset"], record["size"])

    def _outside(self, offset: int, size: int) -> memoryview:
        """Bytes of a large model, which lie behind the flatbuffer; offsets count from the start of the file."""
        if offset == 0:
            return EMPTY
        if offset == _UNFINISHED_OFFSET:
            raise MalformedError("offset 1 marks a file whose writer did not finish it")
        if offset + size > len(self._data):
            raise MalformedError(f"bytes {offset} to {offset + size} lie outside the file of {len(self._data)} bytes")
        return self._data[offset : offset + size]

    def operator_code(self, record: Record) -> tuple[str, int, str]:
        """Name, version and custom code. Circle ignores the wide field unless the narrow one is 127; TFLite takes
        the larger of both."""
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
        try:
            self._note(record, "external_buffer", "Tensor")
            compression = record.get("compression_type", "none")
            if compression != "none":
                self._unknown[f"{compression} compression of tensor {name!r}"] = None
            shape = None if record["shape"] is None else self._tuple(record["shape"])
            signature = None if record["shape_signature"] is None else self._tuple(record["shape_signature"])
            return Tensor(
                name=name,
                dtype=_dtype(record["type"]),
                shape=shape,
                shape_signature=signature,
                buffer=record["buffer"],
                quantization=self._quantization(record["quantization"]),
                is_variable=record["is_variable"],
                sparsity=self._sparsity(record["sparsity"]),
                has_rank=record["has_rank"],
                variant_tensors=tuple(self._each(record["variant_tensors"], "variant_tensors", self._variant)),
                compression=compression,
            )
        except MalformedError as error:
            error.tensor = name
            raise

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
        """A union member's fields as plain values: tuples, bytes and strings where the decoder has None or arrays."""
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
            inputs=_named(self._each(record["inputs"], "inputs", _tensor_map), "inputs"),
            outputs=_named(self._each(record["outputs"], "outputs", _tensor_map), "outputs"),
        )


def _metadata(record: Record) -> tuple[str, int]:
    return record["name"] or "", record["buffer"]


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
    """Indices of a sparse level in their stored width."""
    if union is None or not union[1]:
        return None
    member, record = union
    width = INDEX_WIDTHS[member]
    return np.frombuffer(record["values"], width) if record["values"] is not None else np.empty(0, width)


def _tensor_map(record: Record) -> tuple[str, int]:
    return record["name"] or "", record["tensor_index"]


def _named(pairs: list[tuple[str, int]], path: str) -> dict[str, int]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise MalformedError("the signature gives one name twice", path=path)
    return names
