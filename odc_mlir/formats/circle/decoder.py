"""Flatbuffer bytes to nested records, driven by the schema.

A decoded table is a dict with every live field of the schema: numbers, lower-case enum names, ``str``, ``memoryview``
(vectors of ubyte), read-only numpy arrays (vectors of other numbers), lists (vectors of enums, strings and tables),
``(table name, record)`` for unions, None for what is absent by reference.

Files come from anywhere, so nothing is trusted: every access is checked against the file's end, and what two offsets
share is decoded once. Bytes that are visited are charged against the file's size, so that overlapping or endlessly
shared structures end in an error instead of work or memory beyond the file's own magnitude. The schema has no
recursive table, which bounds the depth.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from odc_mlir.errors import ModelError, OdcError
from odc_mlir.formats.circle.schema import Schema, SchemaField, Table

Record = dict[str, Any]

_U8 = struct.Struct("<B")
_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I32 = struct.Struct("<i")

# Sharing that real writers use (vtables, strings) is charged once; the slack keeps tiny files out of trouble.
_BUDGET_FACTOR = 2
_BUDGET_SLACK_BYTES = 4096

# A decoded table takes some hundred times the bytes of the smallest stored one; no real model has as many.
MAX_TABLES = 1 << 21


class MalformedError(Exception):
    """Internal to reading: why a file is refused, while the path of the field grows outwards.

    ``error`` is the public class that it becomes; ``op`` and ``tensor`` name what it is about, where that is known.
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
        """The same error, seen from one level further out; ``step`` is ``.name``, ``[index]`` or ``name[index]``."""
        joint = "." if self.path and self.path[0] not in ".[" else ""
        self.path = f"{step}{joint}{self.path}"
        return self

    def public(self) -> OdcError:
        """The error that users see: path and reason on one line."""
        where = self.path.lstrip(".")
        return self.error(f"{where}: {self.reason}" if where else self.reason, op=self.op, tensor=self.tensor)


# What a vtable says: live field, its offset in the table, and the offset of its tag (0: there is none).
_Layout = list[tuple[SchemaField, int, int]]


class UnknownPart(NamedTuple):
    """Something that a newer schema may define: ``what`` names the slot, the tag or the table."""

    table: str
    what: str


class Decoder:
    """Decoder of one file; ``unknown`` collects fields outside the schema, without repeats."""

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
        """The record of the root table; raises MalformedError that names the first malformed field."""
        return self._table(self.schema.tables[self.schema.root], self._reference(0))

    def root_field(self, name: str) -> Any:
        """One field of the root table, None where it is absent; nothing else is looked at. Raises MalformedError."""
        table, position = self.schema.tables[self.schema.root], self._reference(0)
        for field, offset, _ in self._layout(table, position - self._read(_I32, position)):
            if field.name == name:
                return self._field(field, position + offset)
        return None

    def _charge(self, nbytes: int) -> None:
        self._budget -= nbytes
        if self._budget < 0:
            raise MalformedError(
                f"its structures overlap so much that decoding would visit more than {_BUDGET_FACTOR} times "
                f"the file's {self._size} bytes"
            )

    def _read(self, number: struct.Struct, position: int) -> Any:
        """One number; ``position`` may be anything."""
        if position < 0 or position + number.size > self._size:
            raise MalformedError(f"it points to byte {position}, but the file has {self._size}: truncated or corrupt")
        return number.unpack_from(self._data, position)[0]

    def _reference(self, position: int) -> int:
        """Where the offset stored at ``position`` points to."""
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
        layout = self._layouts.get((position, table.name))
        if layout is None:
            layout = self._layouts[position, table.name] = self._decode_layout(table, position)
        return layout

    def _decode_layout(self, table: Table, position: int) -> _Layout:
        nbytes: int = self._read(_U16, position)
        if nbytes < 4 or nbytes % 2 or position + nbytes > self._size:
            raise MalformedError(f"the vtable at byte {position} has an impossible size of {nbytes} bytes")
        self._charge(nbytes)
        offsets = struct.unpack_from(f"<{nbytes // 2 - 2}H", self._data, position + 4)
        found: _Layout = []
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
        """The value of a field that is neither a union nor absent."""
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
        """Decode a union member; a type tag without a value means a table of defaults, which writers omit."""
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
        """The bytes of the vector at ``position``, charged."""
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
            # Bytes other than 0 and 1 must not leak into a numpy bool.
            numbers = np.frombuffer(raw, field.scalar.dtype if field.type != "bool" else "u1")
            if field.element == "scalar":
                return numbers if field.type != "bool" else numbers != 0
            return [self._enum(field, code) for code in numbers.tolist()]
        entries = np.frombuffer(self._span(position, 4), "<u4")
        return [self._entry(field, index, position + 4 + 4 * index, int(e)) for index, e in enumerate(entries.tolist())]

    def _entry(self, field: SchemaField, index: int, position: int, offset: int) -> Any:
        """Element ``index`` of a vector of strings or tables; ``offset`` is stored at ``position``."""
        try:
            if offset == 0:
                raise MalformedError(f"the offset at byte {position} points to itself")
            if field.element == "string":
                return self._string(position + offset)
            return self._table(self.schema.tables[field.type], position + offset)
        except MalformedError as error:
            raise error.within(f"[{index}]") from None
