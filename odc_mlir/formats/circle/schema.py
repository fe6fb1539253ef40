"""Tables, enums and unions of Circle and TFLite files, from ``circle-schema.json`` and ``tflite-delta.json``.

Enum values are lower-case schema names (``"same"``, ``"relu6"``). A ``TensorType`` value is thus a name of
:mod:`odc_mlir.ops.dtypes`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from struct import Struct
from types import MappingProxyType
from typing import Any, Literal

from odc_mlir.errors import ModelError

FieldKind = Literal["scalar", "enum", "string", "table", "union", "vector"]

# Longest list of allowed values in a message.
_LISTED = 32

OPERATOR_ENUM = "BuiltinOperator"

_SCALAR_FORMATS = {
    "bool": "?",
    "byte": "b",
    "ubyte": "B",
    "short": "h",
    "ushort": "H",
    "int": "i",
    "uint": "I",
    "long": "q",
    "ulong": "Q",
    "float": "f",
    "double": "d",
}


@dataclass(frozen=True, slots=True)
class Scalar:
    """A fixed-size little-endian number. ``dtype`` is numpy's name of the type."""

    name: str
    struct: Struct
    dtype: str

    @property
    def size(self) -> int:
        return self.struct.size


_SCALARS: Mapping[str, Scalar] = MappingProxyType(
    {
        name: Scalar(name, Struct("<" + code), "?" if code == "?" else f"<{code}")
        for name, code in _SCALAR_FORMATS.items()
    }
)


@dataclass(frozen=True)
class Enum:
    """Lower-case names and codes of one enum."""

    name: str
    scalar: Scalar
    codes: Mapping[str, int]

    @cached_property
    def names(self) -> Mapping[int, str]:
        return {code: name for name, code in self.codes.items()}

    def name_of(self, code: int) -> str:
        """Return the name of ``code``. Raises ModelError with the allowed values for an unknown one."""
        try:
            return self.names[code]
        except KeyError:
            raise ModelError(f"{code} is not a value of {self.name}; allowed: {_listing(self.codes)}") from None

    def code_of(self, name: str) -> int:
        """Return the code of ``name``. Raises ModelError with the allowed values for an unknown one."""
        try:
            return self.codes[name]
        except (KeyError, TypeError):
            raise ModelError(f"{name!r} is not a value of {self.name}; allowed: {_listing(self.codes)}") from None


@dataclass(frozen=True)
class Union:
    """Tags (1..255, or 0 for none) and table names of one union."""

    name: str
    tags: Mapping[str, int]

    @cached_property
    def tables(self) -> Mapping[int, str]:
        return {tag: table for table, tag in self.tags.items()}


@dataclass(frozen=True)
class SchemaField:
    """One field of a table.

    ``type``: name of the scalar, enum, table or union, or of a vector's elements.
    ``element``: kind of a vector's elements.
    ``scalar``: stored number of scalar and enum fields and elements.
    ``slot``: slot of the value. The preceding slot holds a union's tag.
    ``align``: alignment in bytes that the schema requires, or 0 for the alignment of the type.
    """

    name: str
    slot: int
    kind: FieldKind
    type: str
    element: FieldKind | None
    scalar: Scalar | None
    default: Any
    deprecated: bool
    align: int

    @property
    def empty(self) -> Any:
        """Default of an absent field in option records: empty vectors, strings and bytes instead of None."""
        if self.kind == "string":
            return ""
        if self.kind == "vector":
            return b"" if self.type == "ubyte" else ()
        return self.default


@dataclass(frozen=True)
class Table:
    """One table. ``fields`` are in slot order, without implicit union tags."""

    name: str
    fields: tuple[SchemaField, ...]

    @cached_property
    def live(self) -> tuple[SchemaField, ...]:
        """Fields that are not deprecated."""
        return tuple(field for field in self.fields if not field.deprecated)

    @cached_property
    def by_slot(self) -> Mapping[int, SchemaField]:
        return {field.slot: field for field in self.fields}

    @cached_property
    def by_name(self) -> Mapping[str, SchemaField]:
        return {field.name: field for field in self.fields}

    @cached_property
    def tag_slots(self) -> frozenset[int]:
        return frozenset(field.slot - 1 for field in self.fields if field.kind == "union")

    @cached_property
    def defaults(self) -> Mapping[str, Any]:
        """Field values of an empty table. Fields stored by reference are None."""
        return {field.name: field.default for field in self.live}

    @cached_property
    def slot_count(self) -> int:
        return 1 + max((field.slot for field in self.fields), default=-1)


@dataclass(frozen=True)
class Schema:
    """One of the two file formats."""

    name: Literal["circle", "tflite"]
    identifier: bytes
    root: str
    enums: Mapping[str, Enum]
    unions: Mapping[str, Union]
    tables: Mapping[str, Table]

    @property
    def label(self) -> str:
        return {"circle": "Circle", "tflite": "TFLite"}[self.name]

    @property
    def operators(self) -> Enum:
        """Builtin operators, with names in upper case as users write them (``CONV_2D``)."""
        return self.enums[OPERATOR_ENUM]


def circle_schema() -> Schema:
    """Return the schema of files with identifier ``CIR0``."""
    return _load("circle")


def tflite_schema() -> Schema:
    """Return the schema of files with identifier ``TFL3``."""
    return _load("tflite")


def schema_of(identifier: bytes) -> Schema | None:
    """Return the schema with this four-byte file identifier, or None."""
    return next((schema for schema in (circle_schema(), tflite_schema()) if schema.identifier == identifier), None)


def options_fields(table: str) -> tuple[SchemaField, ...]:
    """Return the fields of a Circle options table such as ``"Conv2DOptions"``. Raises ModelError."""
    try:
        return circle_schema().tables[table].live
    except KeyError:
        raise ModelError(f"{table!r} is not a table of the Circle schema") from None


@cache
def _default_options(table: str) -> Mapping[str, Any]:
    return MappingProxyType({field.name: field.empty for field in options_fields(table)})


def default_options(table: str | None) -> dict[str, Any]:
    """Return a new options record with the defaults of all fields, or {} for None."""
    return dict(_default_options(table)) if table is not None else {}


@cache
def subgraph_fields(table: str | None) -> tuple[str, ...]:
    """Return the fields of an options table that are subgraph indices. Only names identify such fields."""
    known = circle_schema().tables.get(table or "")
    return (
        ()
        if known is None
        else tuple(field.name for field in known.live if "subgraph" in field.name and field.type in ("int", "uint"))
    )


def called_subgraphs(options_type: str | None, options: Mapping[str, Any]) -> list[int]:
    """Return the subgraphs in an operator's options, in the order of the schema's fields."""
    values = [options[name] for name in subgraph_fields(options_type)]
    return [index for value in values for index in (value if isinstance(value, tuple) else (value,))]


@cache
def _load(name: Literal["circle", "tflite"]) -> Schema:
    facts = _read_json("circle-schema.json")
    if name == "tflite":
        facts = _apply(facts, _read_json("tflite-delta.json"))
    enums = {entry["name"]: _enum(entry) for entry in facts["enums"]}
    unions = {entry["name"]: _union(entry) for entry in facts["unions"]}
    tables = {entry["name"]: _table(entry, enums, unions) for entry in facts["tables"]}
    return Schema(name, facts["file_identifier"].encode(), facts["root_type"], enums, unions, tables)


def _read_json(name: str) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(Path(__file__).with_name(name).read_text(encoding="utf-8"))
    return data


def _apply(base: dict[str, Any], delta: dict[str, Any]) -> dict[str, Any]:
    """Apply ``delta`` to ``base``: remove entries by name, then add entries and tables."""
    result = {**base, **{key: value for key, value in delta.items() if not isinstance(value, list)}}
    for section, key in (("enums", "values"), ("unions", "members"), ("tables", "fields")):
        entries = {entry["name"]: entry for entry in base[section]}
        for change in delta.get(section, ()):
            entry = entries.get(change["name"], {"name": change["name"], key: []})
            removed = set(change.get("remove", ()))
            kept = [item for item in entry[key] if _item_name(item) not in removed]
            entries[change["name"]] = {**entry, key: kept + list(change.get("add", ()))}
        result[section] = list(entries.values())
    return result


def _item_name(item: Any) -> str:
    name: str = item["name"] if isinstance(item, dict) else item[0]
    return name


def _enum(entry: dict[str, Any]) -> Enum:
    upper = entry["name"] == OPERATOR_ENUM
    codes = {(name if upper else name.lower()): code for name, code in entry["values"]}
    return Enum(entry["name"], _SCALARS[entry["underlying_type"]], codes)


def _union(entry: dict[str, Any]) -> Union:
    return Union(entry["name"], {name: tag for name, tag in entry["members"] if tag != 0})


def _table(entry: dict[str, Any], enums: Mapping[str, Enum], unions: Mapping[str, Union]) -> Table:
    fields = [_field(item, enums, unions) for item in entry["fields"] if item["kind"] != "union_tag"]
    return Table(entry["name"], tuple(sorted(fields, key=lambda field: field.slot)))


def _field(item: dict[str, Any], enums: Mapping[str, Enum], unions: Mapping[str, Union]) -> SchemaField:
    kind: FieldKind = item["kind"]
    type_name: str = item["type"].strip("[]")
    element = _kind_of(type_name, enums, unions) if kind == "vector" else None
    enum = enums.get(type_name)
    default = item["default"]
    if type_name == OPERATOR_ENUM:
        kind = "scalar"  # a single field cannot hold an operator code, so it is no enum value
    elif kind == "enum" and enum is not None:
        default = enum.name_of(default)
    return SchemaField(
        name=item["name"],
        slot=item["id"],
        kind=kind,
        type=type_name,
        element=element,
        scalar=enum.scalar if enum is not None else _SCALARS.get(type_name),
        default=default,
        deprecated=item.get("deprecated", False),
        align=item.get("force_align", 0),
    )


def _kind_of(type_name: str, enums: Mapping[str, Enum], unions: Mapping[str, Union]) -> FieldKind:
    if type_name in _SCALARS:
        return "scalar"
    if type_name in enums:
        return "enum"
    if type_name in unions:
        return "union"
    return "string" if type_name == "string" else "table"


def _listing(codes: Mapping[str, int]) -> str:
    shown = [f"{name} ({code})" for name, code in list(codes.items())[:_LISTED]]
    return ", ".join(shown) + (", ..." if len(codes) > _LISTED else "")
