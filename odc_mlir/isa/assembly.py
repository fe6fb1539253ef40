"""Assembly text of programs, and the text form of a ``.npu`` file.

A line holds an instruction with fields ``field=value``. Zero fields are omitted::

    load  source=arena:0x40 size0=24 size1=1 size2=1 wait=3 post=4,5   ; a comment
    sync@mac  wait=4
    copy  source=constants:0x0 target=arena:0x0 bytes=64 step.source=64 step.target=0

A value is a number (with any Python base prefix), an enum name, or ``region:offset`` for memory addresses. ``wait`` and
``post`` list semaphores. ``step.field`` is an address step, for which the instruction gets a step block.

The text form of a file begins with lines of directives (``.metadata {…}``, ``.input {…}``, ``.bytes 0102…``) and
assembles to the same bytes. A listing without the ``.bytes`` lines cannot be assembled.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from odc_mlir.errors import CompileError
from odc_mlir.isa import codec
from odc_mlir.isa.codec import Instr, address, make, spec_of, split_address
from odc_mlir.isa.compact import read_code, write_code
from odc_mlir.isa.container import Container, MapEntry, TensorRecord
from odc_mlir.isa.fields import Kind, Region

_REGIONS = {region.name.lower(): int(region) for region in Region}
_REGION_NAMES = {number: name for name, number in _REGIONS.items()}


def disassemble(instructions: Iterable[Instr]) -> str:
    """Return the text of a program, one instruction per line, with a final newline."""
    return "".join(f"{format_instruction(instr)}\n" for instr in instructions)


def format_instruction(instr: Instr) -> str:
    """Return the text of an instruction, without a newline."""
    spec = instr.spec
    words = [spec.mnemonic if spec.queue is not None else f"{spec.mnemonic}@{instr.queue.name.lower()}"]
    for field in spec.fields:
        value = instr[field.name]
        if not value:
            continue
        if field.kind is Kind.ENUM:
            text = field.values[value]
        elif field.kind is Kind.MEMORY:
            region, offset = split_address(value)
            text = f"{_REGION_NAMES.get(region, f'region{region}')}:{offset:#x}"
        else:
            text = str(value)
        words.append(f"{field.name}={text}")
    if instr.steps is not None:
        words += [f"step.{field.name}={step}" for field, step in zip(spec.addresses, instr.steps, strict=True)]
    words += [f"wait={','.join(map(str, instr.waits))}"] if instr.waits else []
    words += [f"post={','.join(map(str, instr.posts))}"] if instr.posts else []
    return " ".join(words)


def assemble(text: str) -> list[Instr]:
    """Parse a program. Raises CompileError with the line number."""
    instructions = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.partition(";")[0].split()
        if not words:
            continue
        try:
            instructions.append(_assemble_one(words))
        except CompileError as error:
            raise CompileError(error.message, location=f"line {number}", hint=error.hint) from error
    return instructions


def _assemble_one(words: list[str]) -> Instr:
    mnemonic, _, queue = words[0].partition("@")
    kinds = {field.name: field.kind for field in spec_of(mnemonic).fields}
    fields: dict[str, Any] = {}
    tokens: dict[str, list[int]] = {"wait": [], "post": []}
    steps: dict[str, int] = {}
    seen: set[str] = set()
    for word in words[1:]:
        key, separator, value = word.partition("=")
        if not separator or not value:
            raise CompileError(f"expected field=value, found {word!r}")
        if key in seen:
            raise CompileError(f"{key} is given twice")
        seen.add(key)
        if key in tokens:
            tokens[key] = [_number(key, item) for item in value.split(",")]
        elif key.startswith("step."):
            steps[key.removeprefix("step.")] = _number(key, value)
        elif kinds.get(key) is Kind.ENUM and not value[0].isdigit():
            fields[key] = value
        elif kinds.get(key) is Kind.MEMORY:
            fields[key] = _memory(key, value)
        else:
            fields[key] = _number(key, value)
    reserved = {"waits", "posts", "queue", "steps", "mnemonic"} & set(fields)
    if reserved:
        raise CompileError(f"instruction {mnemonic} has no field {min(reserved)!r}")
    return make(
        mnemonic, waits=tokens["wait"], posts=tokens["post"], queue=queue or None, steps=steps or None, **fields
    )


def _number(key: str, text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise CompileError(f"{key} is {text!r}, which is not a number") from None


def _memory(key: str, text: str) -> int:
    name, separator, offset = text.partition(":")
    region = _REGIONS.get(name)
    if region is None and name.startswith("region") and name.removeprefix("region").isdecimal():
        region = int(name.removeprefix("region"))
    if not separator or region is None:
        raise CompileError(f"{key} is {text!r}, expected region:offset", hint=f"regions: {', '.join(_REGIONS)}")
    return address(region, _number(key, offset))


_LINE_BYTES = 48
_REPEATED = ("input", "output", "operator", "bytes")
_SINGLE = ("metadata", "target_digest", "source_hash", "compiler_version", "arena_bytes", "constants")
_OPTIONAL = "history_bytes"


def write_listing(container: Container, *, data: bool = True) -> str:
    """Return the text of a program. Without ``data``, it omits the bytes of constants."""
    lines = [
        f".metadata {_json(dict(container.metadata), in_order=True)}",  # keys in the order of the file
        f".target_digest {container.target_digest.hex()}",
        f".source_hash {container.source_hash.hex()}",
        f".compiler_version {'.'.join(map(str, container.compiler_version))}",
        f".arena_bytes {container.arena_bytes}",
    ]
    code = read_code(container.code)
    if code.history_bytes is not None:
        lines.append(f".{_OPTIONAL} {code.history_bytes}")
    for name, records in (
        ("input", container.inputs),
        ("output", container.outputs),
        ("operator", container.operators),
    ):
        lines += [f".{name} {_json(asdict(record))}" for record in records]
    lines.append(f".constants {len(container.constants)}")
    if data:
        constants = memoryview(container.constants)
        starts = range(0, len(constants), _LINE_BYTES)
        lines += [f".bytes {constants[start : start + _LINE_BYTES].hex()}" for start in starts]
    return "\n".join(lines) + "\n" + disassemble(code.instructions)


def read_listing(text: str) -> Container:
    """Parse a listing. Raises CompileError with the line number."""
    directives: dict[str, list[tuple[int, str]]] = {name: [] for name in (*_SINGLE, _OPTIONAL, *_REPEATED)}
    code: list[str] = []
    for number, line in enumerate(text.split("\n"), 1):
        code.append("" if line.startswith(".") else line)  # keeps line numbers in errors
        if line.startswith("."):
            name, _, value = line[1:].partition(" ")
            if name not in directives:
                raise CompileError(f"unknown directive .{name}", location=f"line {number}")
            if name in (*_SINGLE, _OPTIONAL) and directives[name]:
                raise CompileError(
                    f"a second .{name}", location=f"line {number}", hint="a listing must hold one program"
                )
            directives[name].append((number, value))
    if missing := [name for name in _SINGLE if not directives[name]]:
        raise CompileError(f"the listing has no .{missing[0]}")

    def single(name: str, parse: Callable[[str], Any]) -> Any:
        return _parsed(name, *directives[name][0], parse)

    constants = b"".join(_parsed("bytes", number, value, bytes.fromhex) for number, value in directives["bytes"])
    if len(constants) != single("constants", int):
        raise CompileError(
            f"the constants are {directives['constants'][0][1]} bytes, the listing holds {len(constants)}",
            hint="write the listing with its constants",
        )
    program = assemble("\n".join(code))
    return Container(
        code=write_code(program, single(_OPTIONAL, int)) if directives[_OPTIONAL] else codec.encode(program),
        constants=constants,
        inputs=_records("input", directives["input"], _tensor),
        outputs=_records("output", directives["output"], _tensor),
        operators=_records("operator", directives["operator"], _operator),
        target_digest=single("target_digest", bytes.fromhex),
        arena_bytes=single("arena_bytes", int),
        metadata=single("metadata", _object),
        source_hash=single("source_hash", bytes.fromhex),
        compiler_version=single("compiler_version", _version),
    )


def _json(value: object, *, in_order: bool = False) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, sort_keys=in_order)


def _parsed(name: str, number: int, value: str, parse: Callable[[str], Any]) -> Any:
    try:
        return parse(value)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise CompileError(f".{name} is malformed: {error}", location=f"line {number}") from None


def _records(name: str, lines: list[tuple[int, str]], parse: Callable[[str], Any]) -> tuple[Any, ...]:
    return tuple(_parsed(name, number, value, parse) for number, value in lines)


def _object(text: str) -> dict[str, Any]:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("expected an object")
    return value


def _version(text: str) -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in text.split("."))
    return major, minor, patch


def _fields(text: str, record: type[Any], kinds: Mapping[str, type | tuple[type, ...]]) -> dict[str, Any]:
    value = _object(text)
    if value.keys() != {field.name for field in fields(record)}:
        raise ValueError(f"expected the fields {', '.join(field.name for field in fields(record))}")
    for name, kind in kinds.items():
        if not isinstance(value[name], kind) or isinstance(value[name], bool):
            wanted = " or ".join(item.__name__ for item in (kind if isinstance(kind, tuple) else (kind,)))
            raise ValueError(f"{name} is {value[name]!r}, expected {wanted}")
    return value


def _integers(value: object, what: str) -> tuple[int, ...]:
    if not isinstance(value, list) or any(type(item) is not int for item in value):
        raise ValueError(f"{what} is {value!r}, expected a list of whole numbers")
    return tuple(value)


def _tensor(text: str) -> TensorRecord:
    kinds = {"name": str, "dtype": str, "zero_point": int, "region": int, "offset": int}
    value = _fields(text, TensorRecord, {**kinds, "scale": (int, float, type(None))})
    return TensorRecord(**{**value, "shape": _integers(value["shape"], "shape")})


def _operator(text: str) -> MapEntry:
    value = _fields(text, MapEntry, {"name": str, "kind": str, "macs": int, "recomputed_macs": int, "ranges": list})
    spans = [_integers(span, "a range") for span in value["ranges"]]
    if any(len(span) != 2 for span in spans):
        raise ValueError("a range is a first instruction and a count")
    return MapEntry(**{**value, "ranges": tuple((first, count) for first, count in spans)})
