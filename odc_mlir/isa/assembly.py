"""Assembly text: one instruction a line, ``field=value``, fields that are zero left out.

    load  source=arena:0x40 size0=24 size1=1 size2=1 wait=3 post=4,5   ; a comment
    sync@mac  wait=4
    copy  source=constants:0x0 target=arena:0x0 bytes=64 step.source=64 step.target=0

``field`` takes a number (any Python base prefix), an enum name, or ``region:offset`` for memory addresses. ``wait`` and
``post`` list semaphores, ``step.field`` gives an address step; an instruction with any step has a step block.
:func:`disassemble` writes exactly this form and :func:`assemble` reads it back to equal instructions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from odc_mlir.errors import CompileError
from odc_mlir.isa.codec import Instr, address, make, spec_of, split_address
from odc_mlir.isa.fields import Kind, Region

_REGIONS = {region.name.lower(): int(region) for region in Region}
_REGION_NAMES = {number: name for name, number in _REGIONS.items()}


def disassemble(instructions: Iterable[Instr]) -> str:
    """The text of a program, one instruction a line, with a final newline."""
    return "".join(f"{format_instruction(instr)}\n" for instr in instructions)


def format_instruction(instr: Instr) -> str:
    """One instruction as text, without a newline."""
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
    """The program that ``text`` describes; raises CompileError that names the line."""
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
