"""Nested records to flatbuffer bytes, driven by the schema: the decoder's opposite.

Takes what :mod:`odc_mlir.formats.circle.decoder` gives, and tuples where that has arrays or lists. None leaves a field
out, an empty vector or string is written. The same records always give the same bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import flatbuffers
import numpy as np
from flatbuffers import number_types
from numpy.typing import NDArray

from odc_mlir.errors import ModelError, OdcError
from odc_mlir.formats.circle.decoder import MalformedError
from odc_mlir.formats.circle.schema import Schema, SchemaField, Table

_FLAGS = {
    "bool": number_types.BoolFlags,
    "byte": number_types.Int8Flags,
    "ubyte": number_types.Uint8Flags,
    "short": number_types.Int16Flags,
    "ushort": number_types.Uint16Flags,
    "int": number_types.Int32Flags,
    "uint": number_types.Uint32Flags,
    "long": number_types.Int64Flags,
    "ulong": number_types.Uint64Flags,
    "float": number_types.Float32Flags,
    "double": number_types.Float64Flags,
}

_OFFSET_BYTES = 4


class _TableField(NamedTuple):
    """One entry of a table that is about to be written; ``flags`` None marks an offset."""

    nbytes: int
    slot: int
    value: Any
    flags: Any = None
    default: Any = 0


class Encoder:
    """Encodes one file. ``size_hint_bytes`` spares the builder from growing step by step."""

    def __init__(self, schema: Schema, size_hint_bytes: int = 1024) -> None:
        self._schema = schema
        self._builder = flatbuffers.Builder(size_hint_bytes)
        self._strings: dict[str, int] = {}
        self._byte_vectors: dict[tuple[object, int], int] = {}
        self._number_vectors: dict[tuple[bytes, int, int], int] = {}
        # Keeps shared bytes alive, so that an address stays unique while it is a key.
        self._held: list[memoryview] = []

    def finish(self, record: Mapping[str, Any]) -> bytes:
        """The file with ``record`` as its root; raises ModelError for a value that its field cannot hold."""
        try:
            root = self._table(self._schema.tables[self._schema.root], record)
            self._builder.Finish(root, self._schema.identifier)
        except MalformedError as error:
            raise error.public() from None
        except flatbuffers.builder.BuilderSizeError:
            raise ModelError("the model does not fit in one flatbuffer of 2 GiB") from None
        return bytes(memoryview(self._builder.Bytes)[self._builder.Head() :])  # ``Output`` would be one copy more

    def _table(self, table: Table, record: Mapping[str, Any]) -> int:
        stray = record.keys() - table.by_name.keys()
        if stray:
            raise MalformedError(f"{sorted(stray)[0]!r} is not a field of {table.name}")
        slots: list[_TableField] = []
        for field in table.live:
            value = record.get(field.name)
            if value is not None:
                try:
                    slots += self._slots(field, value)
                except MalformedError as error:
                    raise error.within(f".{field.name}") from None
                except (struct.error, TypeError, ValueError, OverflowError) as error:
                    raise MalformedError(f"{value!r:.60} cannot be stored: {error}", path=f".{field.name}") from None
        self._builder.StartObject(table.slot_count)
        for entry in sorted(slots, key=lambda entry: -entry.nbytes):  # wide ones first: least padding
            if entry.flags is None:
                self._builder.PrependUOffsetTRelativeSlot(entry.slot, entry.value, 0)
            else:
                self._builder.PrependSlot(entry.flags, entry.slot, entry.value, entry.default)
        return int(self._builder.EndObject())

    def _slots(self, field: SchemaField, value: Any) -> list[_TableField]:
        """Return the slots of a field, after writing the objects that it refers to."""
        if field.kind in ("scalar", "enum") and field.scalar is not None:
            default = self._code(field, field.default)
            return [
                _TableField(field.scalar.size, field.slot, self._code(field, value), _FLAGS[field.scalar.name], default)
            ]
        if field.kind != "union":
            return [_TableField(_OFFSET_BYTES, field.slot, self._object(field, value))]
        name, record = value
        tag = self._schema.unions[field.type].tags.get(name)
        if tag is None:
            raise MalformedError(f"{name!r} is not a member of {field.type}")
        table = self._table(self._schema.tables[name], record)
        return [_TableField(1, field.slot - 1, tag, _FLAGS["ubyte"], 0), _TableField(_OFFSET_BYTES, field.slot, table)]

    def _code(self, field: SchemaField, value: Any) -> Any:
        """The number stored for a scalar or enum value, range-checked."""
        if field.kind == "enum" or field.element == "enum":
            try:
                return self._schema.enums[field.type].code_of(value)
            except OdcError as error:
                raise MalformedError(error.message) from None
        if field.scalar is not None:
            field.scalar.struct.pack(value)
        return value

    def _object(self, field: SchemaField, value: Any) -> int:
        """Offset of a string, table or vector."""
        if field.kind == "string":
            return self._string(value)
        if field.kind == "table":
            return self._table(self._schema.tables[field.type], value)
        if field.element in ("string", "table"):
            return self._offsets([self._entry(field, index, item) for index, item in enumerate(value)])
        if field.type == "ubyte":
            return self._bytes(value if isinstance(value, bytes) else memoryview(value).cast("B"), max(field.align, 1))
        return self._numbers(field, value)

    def _entry(self, field: SchemaField, index: int, item: Any) -> int:
        try:
            return (
                self._string(item) if field.element == "string" else self._table(self._schema.tables[field.type], item)
            )
        except MalformedError as error:
            raise error.within(f"[{index}]") from None

    def _string(self, text: str) -> int:
        if text not in self._strings:
            self._strings[text] = self._builder.CreateString(text)
        return self._strings[text]

    def _offsets(self, targets: Sequence[int]) -> int:
        self._builder.StartVector(_OFFSET_BYTES, len(targets), _OFFSET_BYTES)
        for target in reversed(targets):
            self._builder.PrependUOffsetTRelative(target)
        return int(self._builder.EndVector())

    def _bytes(self, data: bytes | memoryview, align: int) -> int:
        """A vector of ubyte. Views of the same bytes are written once, and so are equal ``bytes`` objects: what is
        shared must not depend on whether the reader or somebody else made the records."""
        key: tuple[object, int]
        if isinstance(data, bytes):
            key = (data, align)
        else:
            self._held.append(data)
            key = ((np.frombuffer(data, np.uint8).ctypes.data, len(data)) if len(data) else b"", align)
        if key not in self._byte_vectors:
            self._byte_vectors[key] = self._paste(data, 1, len(data), align)
        return self._byte_vectors[key]

    def _numbers(self, field: SchemaField, values: Sequence[Any] | NDArray[Any]) -> int:
        if field.scalar is None:
            raise MalformedError(f"vectors of {field.type} are not supported")
        if not isinstance(values, np.ndarray):
            values = np.array([self._code(field, value) for value in values], field.scalar.dtype)
        elif values.dtype != np.dtype(field.scalar.dtype) or values.ndim != 1:
            raise MalformedError(
                f"an array {values.dtype}{list(values.shape)} where a {field.scalar.dtype} vector goes"
            )
        # Equal ones are written once: shapes, index lists and zero points per channel repeat a lot.
        key = values.tobytes(), field.scalar.size, max(field.align, field.scalar.size)
        if key not in self._number_vectors:
            self._number_vectors[key] = self._paste(key[0], key[1], len(values), key[2])
        return self._number_vectors[key]

    def _paste(self, data: bytes | memoryview, element_bytes: int, count: int, align: int) -> int:
        """A vector of ready bytes; the builder's own functions take one element at a time or cannot align."""
        builder = self._builder
        builder.StartVector(element_bytes, count, align)
        builder.head -= len(data)
        builder.Bytes[builder.head : builder.head + len(data)] = data
        return int(builder.EndVector())
