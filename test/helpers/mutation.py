"""Model files that are wrong in structured ways: a seed's records changed and encoded again without any check.

:class:`Seed` decodes a file into the nested records of the schema, which hold every field of every table.
:meth:`Seed.mutant` changes a few of them (shapes, element types, indices, options, opcodes, constants, subgraph
references, ...), so that what comes out is a well-formed flatbuffer with wrong contents, and sometimes changes offsets,
vtables, lengths and enum codes in the encoded bytes. The same seed and random numbers always give the same mutant.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from odc_mlir.errors import OdcError
from odc_mlir.formats.circle.reader import Decoder
from odc_mlir.formats.circle.schema import Schema, SchemaField, Table, schema_of
from odc_mlir.formats.circle.writer import Encoder

Record = dict[str, Any]

SMALL = (-2, -1, 0, 1, 2, 3, 4, 5, 7, 8, 16, 32, 33)
LARGE = (127, 255, 256, 1000, 4097, 65_535, 1 << 17, 1 << 20, 1 << 24, (1 << 31) - 1, -(1 << 31))
REALS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"), 3.4e38, 1e-45)
TEXTS = ("", "x", "main", "Erf", "\0", "é" * 40, "a\nb", "../model.circle", "%s{}")

_INDEX_FIELDS = ("inputs", "outputs", "intermediates")
_ENCODE_TRIES = 8


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file and what was done to its seed."""

    data: bytes
    steps: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Site:
    """A number in a file that gives it its structure: ``width`` bytes at ``position``."""

    kind: str
    position: int
    width: int


class Seed:
    """A good model file, decoded once."""

    def __init__(self, name: str, data: bytes) -> None:
        schema = schema_of(data[4:8])
        if schema is None:
            raise ValueError(f"{name} is not a model file")
        self.name = name
        self.data = data
        self.schema = schema
        self._record = Decoder(memoryview(data), schema).root()

    def mutant(self, rng: random.Random) -> Mutant:
        """The next mutant that ``rng`` leads to: records in most cases, bytes in some, both in a few."""
        style = rng.random()
        if style < 0.15:
            return self._bytes_changed(self.data, rng, [])
        data, steps = self._records_changed(rng)
        return self._bytes_changed(data, rng, steps) if style > 0.95 else Mutant(data, tuple(steps))

    def _records_changed(self, rng: random.Random) -> tuple[bytes, list[str]]:
        """Encoded records with one to three changes; changes that no file can hold are taken back."""
        for _ in range(_ENCODE_TRIES):
            record = _copied(self._record)
            mutator = _Mutator(self.schema, record, rng)
            steps = [mutator.change() for _ in range(rng.choice((1, 1, 1, 2, 2, 3)))]
            try:
                return Encoder(self.schema, len(self.data) + 4096).finish(record), steps
            except OdcError:
                continue
        return self.data, ["unchanged"]

    def _bytes_changed(self, data: bytes, rng: random.Random, steps: list[str]) -> Mutant:
        damaged, sites = bytearray(data), list(structure(data, self.schema))
        for _ in range(rng.choice((1, 1, 2, 3))):
            site = rng.choice(sites)
            old = int.from_bytes(damaged[site.position : site.position + site.width], "little")
            far = rng.choice((0, 1, 2, 4, len(data), len(data) - site.position, rng.randrange(len(data)), -1, 1 << 31))
            new = rng.choice((old + rng.choice((-8, -4, -1, 1, 4, 8)), old ^ 1 << rng.randrange(8 * site.width), far))
            low = new & ((1 << 8 * site.width) - 1)
            damaged[site.position : site.position + site.width] = low.to_bytes(site.width, "little")
            steps.append(f"{site.kind} at {site.position}: {old} -> {low}")
        return Mutant(bytes(damaged), tuple(steps))


def structure(data: bytes, schema: Schema) -> Iterator[Site]:
    """Every offset, vtable entry, vector length, enum code and union tag of a well-formed file, each once."""
    yield Site("root", 0, 4)
    pending = [(_target(data, 0), schema.tables[schema.root])]
    seen: set[int] = set()
    while pending:
        position, table = pending.pop()
        if position in seen:
            continue
        seen.add(position)
        vtable = position - struct.unpack_from("<i", data, position)[0]
        nbytes = struct.unpack_from("<H", data, vtable)[0]
        yield Site("vtable offset", position, 4)
        if vtable not in seen:
            seen.add(vtable)
            yield from (Site("vtable entry", vtable + at, 2) for at in range(0, nbytes, 2))
        offsets = struct.unpack_from(f"<{nbytes // 2 - 2}H", data, vtable + 4)
        for field in table.live:
            if field.slot < len(offsets) and (offset := offsets[field.slot]):
                tag = position + offsets[field.slot - 1] if field.kind == "union" else 0
                yield from _field_sites(data, schema, field, position + offset, tag, pending)


def _field_sites(
    data: bytes, schema: Schema, field: SchemaField, position: int, tag: int, pending: list[tuple[int, Table]]
) -> Iterator[Site]:
    if field.kind == "enum" and field.scalar is not None:
        yield Site("enum", position, field.scalar.size)
    if field.kind in ("scalar", "enum"):
        return
    yield Site("offset", position, 4)
    target = _target(data, position)
    if field.kind in ("string", "vector"):
        yield Site("length", target, 4)
    if field.kind == "table":
        pending.append((target, schema.tables[field.type]))
    elif field.kind == "union":
        yield Site("tag", tag, 1)
        pending.append((target, schema.tables[schema.unions[field.type].tables[data[tag]]]))
    elif field.element == "table":
        for at in range(target + 4, target + 4 + 4 * struct.unpack_from("<I", data, target)[0], 4):
            yield Site("offset", at, 4)
            pending.append((_target(data, at), schema.tables[field.type]))


def _target(data: bytes, position: int) -> int:
    return position + int(struct.unpack_from("<I", data, position)[0])


def _copied(value: Any) -> Any:
    """Records and lists copied, so that nothing is shared but numbers, texts and bytes."""
    if isinstance(value, dict):
        return {name: _copied(entry) for name, entry in value.items()}
    if isinstance(value, tuple):
        return tuple(_copied(entry) for entry in value)
    if isinstance(value, list):
        return [_copied(entry) for entry in value]
    return value.tolist() if isinstance(value, np.ndarray) else value


class _Mutator:
    """Changes one record tree in place."""

    def __init__(self, schema: Schema, record: Record, rng: random.Random) -> None:
        self.schema, self.model, self.rng = schema, record, rng
        self.changes: tuple[tuple[int, Callable[[], str]], ...] = (
            (3, self.any_field),
            (4, self.constant),
            (3, self.shape),
            (2, self.dimension_everywhere),
            (1, self.signature_shape),
            (2, self.dtype),
            (1, self.dtype_everywhere),
            (1, self.buffer),
            (2, self.quantization),
            (4, self.operands),
            (4, self.option),
            (2, self.opcode),
            (1, self.options_table),
            (2, self.operators),
            (1, self.graph_ends),
            (1, self.variable),
            (1, self.sparsity),
            (1, self.signature),
            (1, self.callee),
        )

    def change(self) -> str:
        """Apply one change that is possible here; says which."""
        weights = [weight for weight, _ in self.changes]
        while True:
            (_, change) = self.rng.choices(self.changes, weights)[0]
            try:
                return f"{change.__name__}: {change()}"
            except (IndexError, KeyError, TypeError, ValueError):  # the model has nothing of that kind
                continue

    def number(self, old: Any = 0) -> int:
        """A number near ``old``, a small one, or now and then a large one."""
        near = int(old) + self.rng.choice((-1, 1, 2))
        return self.rng.choice((near, near, self.rng.choice(SMALL), self.rng.choice(SMALL), self.rng.choice(LARGE)))

    def graph(self) -> Record:
        return self.rng.choice(self.model["subgraphs"])

    def tensor(self) -> Record:
        return self.rng.choice(self.graph()["tensors"])

    def operator(self) -> Record:
        return self.rng.choice([op for graph in self.model["subgraphs"] for op in graph["operators"] or ()])

    def numbers(self, values: list[Any]) -> list[Any]:
        """A list of integers with one entry changed, added or removed."""
        values = list(values or ())
        at = self.rng.randrange(len(values) + 1)
        action = self.rng.random()
        if action < 0.7 and at < len(values):
            values[at] = self.number(values[at])
        elif action < 0.85:
            values.insert(at, self.number())
        elif at < len(values):
            del values[at]
        else:
            values.reverse()
        return values

    def any_field(self) -> str:
        """One field of one table, whichever."""
        table, record = self.rng.choice(list(self._tables(self.schema.tables[self.schema.root], self.model)))
        field = self.rng.choice(table.live)
        old = record.get(field.name)
        record[field.name] = self._value(field, old)
        return f"{table.name}.{field.name}: {old!r:.40} -> {record[field.name]!r:.40}"

    def _tables(self, table: Table, record: Record) -> Iterator[tuple[Table, Record]]:
        yield table, record
        for field in table.live:
            value = record.get(field.name)
            if value is None:
                continue
            if field.kind == "union":
                yield from self._tables(self.schema.tables[value[0]], value[1])
            elif field.kind == "table":
                yield from self._tables(self.schema.tables[field.type], value)
            elif field.element == "table":
                for entry in value:
                    yield from self._tables(self.schema.tables[field.type], entry)

    def _value(self, field: SchemaField, old: Any) -> Any:
        if field.kind == "scalar" and field.scalar is not None:
            if field.type in ("float", "double"):
                return self.rng.choice(REALS)
            return not old if field.type == "bool" else self.number(old)
        if field.kind == "enum":
            return self.rng.choice(list(self.schema.enums[field.type].codes))
        if field.kind == "string":
            return self.rng.choice((None, *TEXTS))
        if field.kind == "union":
            name = self.rng.choice(list(self.schema.unions[field.type].tags))
            return self.rng.choice((None, (name, {})))
        if field.kind == "table":
            return self.rng.choice((None, {}))
        return self._vector(field, old)

    def _vector(self, field: SchemaField, old: Any) -> Any:
        if field.element in ("table", "string"):
            entries = list(old or ())
            if not entries:
                return [{} if field.element == "table" else "x"]
            at = self.rng.randrange(len(entries))
            return self.rng.choice((None, [], entries[:at], entries + [_copied(entries[at])], entries[::-1]))
        if field.type == "ubyte":
            return self._damaged(bytes(old or b""))
        if field.type in ("float", "double"):
            return self.rng.choice((None, [], [self.rng.choice(REALS)], [self.rng.choice(REALS)] * len(old or ())))
        if field.type == "bool":
            return [not value for value in old or (True,)]
        return self.rng.choice((None, [], self.numbers(old))) if field.element == "scalar" else old

    def _damaged(self, data: bytes) -> bytes:
        """Bytes with words replaced, cut or longer."""
        damaged = bytearray(data)
        action = self.rng.random()
        if action < 0.1 or not damaged:
            return bytes(damaged) + bytes(self.rng.choice((1, 4, 8, 16)))
        if action < 0.2:
            return bytes(damaged[: self.rng.randrange(len(damaged))])
        for _ in range(self.rng.choice((1, 1, 2, 4))):
            width, code = self.rng.choice(((4, "<i"), (4, "<i"), (4, "<f"), (8, "<q"), (1, "<b")))
            at = self.rng.randrange(len(damaged)) // width * width
            if at + width > len(damaged):
                continue
            old = struct.unpack_from(code, damaged, at)[0]
            new = self.rng.choice(REALS) if code == "<f" else self.number(old)
            low, high = -(1 << 8 * width - 1), (1 << 8 * width - 1) - 1
            struct.pack_into(code, damaged, at, new if code == "<f" else min(max(int(new), low), high))
        return bytes(damaged)

    def constant(self) -> str:
        """Contents of a buffer; short ones, which are shapes, axes and sizes, as often as weights."""
        full = [entry for entry in self.model["buffers"] if entry.get("data") is not None and len(entry["data"])]
        short = [entry for entry in full if len(entry["data"]) <= 64]
        entry = self.rng.choice(short if short and self.rng.random() < 0.7 else full)
        old = bytes(entry["data"])
        entry["data"] = self._damaged(old)
        return f"{len(old)} bytes {old[:16].hex()} -> {entry['data'][:16].hex()}"

    def shape(self) -> str:
        tensor = self.tensor()
        old, tensor["shape"] = tensor["shape"], self.numbers(tensor["shape"])
        if self.rng.random() < 0.5:
            tensor["shape_signature"] = None
        return f"{tensor['name']}: {old} -> {tensor['shape']}"

    def dimension_everywhere(self) -> str:
        """One size in all tensors of a graph, so that shapes keep fitting one another."""
        tensors = [tensor for tensor in self.graph()["tensors"] if tensor["shape"]]
        old = self.rng.choice(self.rng.choice(tensors)["shape"])
        new = abs(self.number(old))
        for tensor in tensors:
            tensor["shape"] = [new if dim == old else dim for dim in tensor["shape"]]
        return f"{old} -> {new}"

    def signature_shape(self) -> str:
        tensor = self.tensor()
        dims = [self.rng.choice((dim, -1)) for dim in tensor["shape"]]
        tensor["shape_signature"] = self.numbers(dims) if self.rng.random() < 0.2 else dims
        return f"{tensor['name']}: {tensor['shape_signature']}"

    def dtype(self) -> str:
        tensor = self.tensor()
        old, tensor["type"] = tensor["type"], self.rng.choice(list(self.schema.enums["TensorType"].codes))
        return f"{tensor['name']}: {old} -> {tensor['type']}"

    def dtype_everywhere(self) -> str:
        """One element type in all tensors of a graph, so that types keep fitting one another."""
        tensors = self.graph()["tensors"]
        old, new = self.rng.choice(tensors)["type"], self.rng.choice(list(self.schema.enums["TensorType"].codes))
        for tensor in tensors:
            tensor["type"] = new if tensor["type"] == old else tensor["type"]
        return f"{old} -> {new}"

    def buffer(self) -> str:
        tensor = self.tensor()
        old, tensor["buffer"] = tensor["buffer"], self.rng.randrange(len(self.model["buffers"]) + 1)
        return f"{tensor['name']}: {old} -> {tensor['buffer']}"

    def quantization(self) -> str:
        tensor = self.tensor()
        record = tensor["quantization"] = tensor["quantization"] or {}
        count = self.rng.choice((1, 1, 2, *(tensor["shape"] or (1,))))
        name = self.rng.choice(("scale", "zero_point", "quantized_dimension", "details", "min"))
        record[name] = {
            "scale": [self.rng.choice((*REALS, 0.1, 0.02)) for _ in range(min(abs(count), 64))],
            "zero_point": [self.number() for _ in range(min(abs(count), 64))],
            "quantized_dimension": self.number(),
            "details": self.rng.choice((None, *((tag, {}) for tag in self.schema.unions["QuantizationDetails"].tags))),
            "min": [self.rng.choice(REALS)],
        }[name]
        return f"{tensor['name']}.{name}: {record[name]!r:.60}"

    def operands(self) -> str:
        """Operands or results left out, swapped, repeated, added, or other tensors in their place."""
        operator, name = self.operator(), self.rng.choice(("inputs", "inputs", "outputs", "intermediates"))
        old = list(operator[name] or ())
        at, tensor = self.rng.randrange(len(old) + 1), self.rng.randrange(len(self.graph()["tensors"]))
        operator[name] = self.rng.choice(
            (
                [*old[:at], tensor, *old[at + 1 :]],
                [*old[:at], -1, *old[at + 1 :]],
                [*old[:at], tensor, *old[at:]],
                old[:at] + old[at + 1 :],
                old[::-1],
                self.numbers(old),
            )
        )
        return f"{name} {old} -> {operator[name]}"

    def option(self) -> str:
        """One field of one operator's options."""
        operator = self.operator()
        options = operator["builtin_options"] or operator["builtin_options_2"]
        if options is None:
            operator["custom_options"] = self._damaged(bytes(operator["custom_options"] or b""))
            return "custom options"
        field = self.rng.choice(self.schema.tables[options[0]].live)
        old, options[1][field.name] = options[1].get(field.name), self._value(field, options[1].get(field.name))
        return f"{options[0]}.{field.name}: {old!r:.40} -> {options[1][field.name]!r:.40}"

    def opcode(self) -> str:
        """Another operator for all uses of a code, sometimes with the options that it expects."""
        code = self.rng.choice(self.model["operator_codes"])
        name = self.rng.choice(sorted(self.schema.operators.codes))
        number = self.schema.operators.codes[name]
        code["builtin_code"], code["deprecated_builtin_code"] = number, min(number, 127)
        if self.rng.random() < 0.7:
            from odc_mlir import ops

            table = ops.get(name).options if name in ops.all_specs() else None
            for operator in (op for graph in self.model["subgraphs"] for op in graph["operators"] or ()):
                if self.model["operator_codes"][operator["opcode_index"]] is code:
                    self._set_options(operator, table)
        if self.rng.random() < 0.2:
            code["version"], code["custom_code"] = self.number(), self.rng.choice(TEXTS)
        return name

    def options_table(self) -> str:
        tables = [tag for union in ("BuiltinOptions", "BuiltinOptions2") for tag in self.schema.unions[union].tags]
        table = self.rng.choice((None, *tables))
        self._set_options(self.operator(), table)
        return str(table)

    def _set_options(self, operator: Record, table: str | None) -> None:
        second = table is not None and table in self.schema.unions["BuiltinOptions2"].tags
        known = table is not None and (second or table in self.schema.unions["BuiltinOptions"].tags)
        record = {}
        if known and table is not None:
            for field in self.schema.tables[table].live:
                if self.rng.random() < 0.3:
                    record[field.name] = self._value(field, field.empty)
        operator["builtin_options"] = (table, record) if known and not second else None
        operator["builtin_options_2"] = (table, record) if second else None

    def operators(self) -> str:
        """Order, repetition and removal of operators."""
        graph = self.graph()
        old = graph["operators"]
        at, other = self.rng.randrange(len(old)), self.rng.randrange(len(old))
        action = self.rng.choice(("remove", "repeat", "swap", "move"))
        if action == "remove":
            del old[at]
        elif action == "repeat":
            old.insert(other, _copied(old[at]))
        elif action == "swap":
            old[at], old[other] = old[other], old[at]
        else:
            self.rng.choice(self.model["subgraphs"])["operators"].append(old.pop(at))
        return f"{action} {at} {other}"

    def graph_ends(self) -> str:
        graph, name = self.graph(), self.rng.choice(("inputs", "outputs"))
        tensor = self.rng.randrange(len(graph["tensors"]))
        old = list(graph[name] or ())
        graph[name] = self.rng.choice(([*old, tensor], old[1:], self.numbers(old), old + old, old[::-1], [tensor]))
        return f"{name} {old} -> {graph[name]}"

    def variable(self) -> str:
        tensor = self.tensor()
        tensor["is_variable"] = not tensor["is_variable"]
        return f"{tensor['name']}: {tensor['is_variable']}"

    def sparsity(self) -> str:
        """A sparse layout for a constant, or a change of the one that is there."""
        tensor = self.tensor()
        rank = len(tensor["shape"])
        levels = []
        for position in range(rank + self.rng.choice((0, 0, 0, 1))):
            size = self.rng.choice((tensor["shape"][min(position, rank - 1)], self.number()))
            level: Record = {"format": self.rng.choice(("dense", "sparse_csr")), "dense_size": size}
            if level["format"] != "dense":
                table = self.rng.choice(list(self.schema.unions["SparseIndexVector"].tags))
                values = [abs(self.rng.choice(SMALL)) for _ in range(self.rng.randrange(6))]
                data: Any = bytes(values) if table == "Uint8Vector" else values
                level["array_segments"], level["array_indices"] = (table, {"values": data}), (table, {"values": data})
            levels.append(level)
        order = list(range(len(levels)))
        tensor["sparsity"] = {
            "traversal_order": self.rng.choice((order, order[::-1], self.numbers(order), None)),
            "block_map": self.rng.choice((None, [0], self.numbers([0]))),
            "dim_metadata": levels,
        }
        return str(tensor["name"])

    def signature(self) -> str:
        signatures = self.model["signature_defs"] = list(self.model["signature_defs"] or ())
        if not signatures or self.rng.random() < 0.3:
            maps = [{"name": self.rng.choice(TEXTS), "tensor_index": abs(self.number())} for _ in range(2)]
            signatures.append({"inputs": maps, "outputs": maps, "signature_key": "x", "subgraph_index": 0})
            return "added"
        entry = self.rng.choice(signatures)
        name = self.rng.choice(("inputs", "outputs", "subgraph_index", "signature_key"))
        if name in ("inputs", "outputs"):
            self.rng.choice(entry[name])["tensor_index"] = abs(self.number())
        else:
            entry[name] = abs(self.number()) if name == "subgraph_index" else self.rng.choice(TEXTS)
        return name

    def callee(self) -> str:
        """Which subgraph control flow runs; its own one too."""
        count = len(self.model["subgraphs"])
        flows = []
        for operator in (op for graph in self.model["subgraphs"] for op in graph["operators"] or ()):
            options = operator["builtin_options"] or operator["builtin_options_2"]
            if options is not None and (names := [name for name in options[1] if name.endswith("subgraph_index")]):
                flows.append((options[1], names))
        options, names = self.rng.choice(flows)
        name = self.rng.choice(names)
        options[name] = self.rng.choice((self.rng.randrange(count + 1), self.number(options[name])))
        return f"{name} {options[name]}"
