"""What an object file defines for others and what it wants from them, read from its table of symbols."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_SYMTAB = 2
_LOCAL = 0
# Linkers make it themselves.
_OF_THE_LINKER = frozenset({"_GLOBAL_OFFSET_TABLE_"})


@dataclass(frozen=True)
class Symbols:
    """Names that a linker sees, in alphabetical order."""

    defined: tuple[str, ...]
    undefined: tuple[str, ...]


def read_symbols(code: bytes) -> Symbols | None:
    """The symbols of an ELF file that LLVM wrote; None for another format."""
    if not code.startswith(b"\x7fELF"):
        return None
    wide, order = code[4] == 2, "<" if code[5] == 1 else ">"
    (start,) = struct.unpack_from(order + ("Q" if wide else "I"), code, 0x28 if wide else 0x20)
    size, count = struct.unpack_from(order + "HH", code, 0x3A if wide else 0x2E)
    header = order + ("IIQQQQIIQQ" if wide else "10I")
    sections = [struct.unpack_from(header, code, start + index * size) for index in range(count)]
    found: dict[bool, set[str]] = {False: set(), True: set()}
    for _, kind, _, _, offset, length, link, *_ in sections:
        if kind != _SYMTAB:
            continue
        names = sections[link][4]
        for fields in struct.iter_unpack(order + ("IBBHQQ" if wide else "IIIBBH"), code[offset : offset + length]):
            name, info, section = (fields[0], fields[1], fields[3]) if wide else (fields[0], fields[3], fields[5])
            if info >> 4 != _LOCAL or (section == 0 and name):
                first = names + name
                found[section != 0].add(code[first : code.index(0, first)].decode())
    return Symbols(tuple(sorted(found[True])), tuple(sorted(found[False] - _OF_THE_LINKER)))
