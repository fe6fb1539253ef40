"""Instruction table: the only declaration of the NPU's instruction set.

A row in :mod:`odc_mlir.isa.table` declares fields, accessed areas and cost. These rows define encoder, decoder,
assembler, disassembler, IR operations, scheduling order, program checks, costs of the stepped simulator, tables in
``docs/npu.md`` and random test programs. ``docs/npu.md`` defines what each instruction computes.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterable
from importlib import import_module
from itertools import combinations

from odc_mlir.isa import table
from odc_mlir.isa.fields import STEP_BLOCK_BYTES, Instruction


def _rows() -> tuple[Instruction, ...]:
    found: dict[int, Instruction] = {}
    for item in pkgutil.iter_modules(table.__path__):
        for row in vars(import_module(f"{table.__name__}.{item.name}")).values():
            if isinstance(row, Instruction):
                found[id(row)] = row
    return in_order(found.values())


def in_order(rows: Iterable[Instruction]) -> tuple[Instruction, ...]:
    """Return ``rows`` sorted by opcode. Raises ValueError if two have the same opcode or mnemonic."""
    found = tuple(sorted(rows, key=lambda row: row.opcode))
    for one, other in combinations(found, 2):
        if one.opcode == other.opcode:
            raise ValueError(f"opcode {one.opcode:#04x} of {other.mnemonic} is {one.mnemonic}'s")
        if one.mnemonic == other.mnemonic:
            raise ValueError(f"{one.mnemonic} is the mnemonic of opcodes {one.opcode:#04x} and {other.opcode:#04x}")
    return found


INSTRUCTIONS = _rows()
LONGEST_BYTES = max(i.size_bytes for i in INSTRUCTIONS) + STEP_BLOCK_BYTES
# Largest size in compact form: reference, length, masks of words and bytes, and all bytes.
MOST_COMPACT_BYTES = 2 + 2 + LONGEST_BYTES // 8 + LONGEST_BYTES

BY_MNEMONIC = {i.mnemonic: i for i in INSTRUCTIONS}
BY_OPCODE = {i.opcode: i for i in INSTRUCTIONS}


def field_range(mnemonic: str, field: str) -> tuple[int, int]:
    """Return the smallest and largest value of a field."""
    return BY_MNEMONIC[mnemonic][field].range
