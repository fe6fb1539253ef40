"""Compact form of programs (``docs/npu.md``, "Compact form"), and a reader for compact and plain programs.

Most instructions differ from a recent instruction in a few bytes of addresses and semaphores. The compact form stores
only these bytes. It expands to the bytes of :mod:`odc_mlir.isa.codec`.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import SimulationError
from odc_mlir.isa.codec import Instr, decode, decode_one, encode_one, malformed
from odc_mlir.isa.fields import GRANULE_BYTES
from odc_mlir.isa.instructions import LONGEST_BYTES

MARK = 0xFF  # first byte of a compact program; not an opcode
FARTHEST = 127  # largest distance of a reference, in instructions
WORD_BYTES = 8
_HEADER = struct.Struct("<BBH")
_VERSION = 1
_WORDS = LONGEST_BYTES // WORD_BYTES
_LOW_BITS = np.uint64(0x0101010101010101)
_BITS = [[bit for bit in range(8) if mask >> bit & 1] for mask in range(256)]  # set bits of each mask


class Code(NamedTuple):
    """A decoded program.

    ``sizes``: size of each instruction in the file, in bytes.
    ``history_bytes``: size of the expanded instructions that the fetch engine keeps for references, or None for plain
        programs.
    """

    instructions: tuple[Instr, ...]
    sizes: tuple[int, ...]
    history_bytes: int | None


def write_code(instructions: Iterable[Instr], history_bytes: int) -> bytes:
    """Encode a compact program. References reach back at most ``history_bytes`` of expanded instructions.

    Raises CompileError for instructions that cannot be encoded.
    """
    plain = [encode_one(instr) for instr in instructions]
    padded = b"".join(data.ljust(LONGEST_BYTES, b"\0") for data in plain)
    table = np.frombuffer(padded, np.uint8).reshape(len(plain), LONGEST_BYTES)
    references = _references(plain, table, history_bytes)
    bases = table[np.arange(len(plain)) - np.array(references, np.int64)]
    bases[[index for index, distance in enumerate(references) if not distance]] = 0
    differs = (table != bases).reshape(len(plain), _WORDS, WORD_BYTES)
    of_words = np.packbits(differs.any(axis=2), axis=1, bitorder="little")
    of_bytes = np.packbits(differs, axis=2, bitorder="little")[:, :, 0].tolist()
    parts = [_HEADER.pack(MARK, _VERSION, history_bytes // GRANULE_BYTES)]
    for data, distance, words, masks in zip(plain, references, of_words, of_bytes, strict=True):
        parts.append(bytes([distance]) if distance else bytes([0, len(data) // GRANULE_BYTES]))
        parts.append(words[: -(-len(data) // (8 * WORD_BYTES))].tobytes())
        parts += (
            bytes([mask]) + bytes(data[WORD_BYTES * word + bit] for bit in _BITS[mask])
            for word, mask in enumerate(masks)
            if mask
        )
    return b"".join(parts)


def _references(plain: Sequence[bytes], table: NDArray[np.uint8], history_bytes: int) -> list[int]:
    """Return the reference distance with the shortest code for each instruction, or 0 if none saves bytes."""
    count = len(plain)
    sizes = np.array([len(data) for data in plain], np.int64)
    ends = np.cumsum(sizes)
    starts = ends - sizes
    words = table.view(np.uint64)
    best = _change_bytes(words) + 1  # coded length without a reference
    chosen = np.zeros(count, np.int64)
    kinds = table[:, 0].astype(np.int64) << 8 | sizes // GRANULE_BYTES
    for kind in sorted(set(kinds.tolist())):  # np.unique would import numpy.ma
        members = np.flatnonzero(kinds == kind)
        rows = words[members, : (kind & 0xFF) * GRANULE_BYTES // WORD_BYTES]
        first, least = starts[members], best[members]
        nearest = chosen[members]
        near = np.arange(len(members))
        for back in range(1, len(members)):
            near = near[near >= back]  # drop instructions whose reference is too far
            distances = members[near] - members[near - back]
            kept = (distances <= FARTHEST) & (first[near] - first[near - back] <= history_bytes)
            near, distances = near[kept], distances[kept]
            if not len(near):
                break
            costs = _change_bytes(rows[near] ^ rows[near - back])
            better = costs < least[near]
            places = near[better]
            least[places], nearest[places] = costs[better], distances[better]
        chosen[members] = nearest
    found: list[int] = chosen.tolist()
    return found


def _change_bytes(differences: NDArray[np.uint64]) -> NDArray[np.int64]:
    bits = differences | differences >> 4
    bits |= bits >> 2
    bits |= bits >> 1
    counts = (bits & _LOW_BITS) * _LOW_BITS >> 56  # number of nonzero bytes: their sum ends up in the highest byte
    total: NDArray[np.int64] = (counts + (differences != 0)).sum(axis=1).astype(np.int64)
    return total


def read_code(code: bytes | memoryview) -> Code:
    """Return the program in ``code``, plain or compact. Raises SimulationError with the offset of malformed bytes."""
    view = memoryview(code)
    if bytes(view[:1]) == bytes([MARK]):
        return _ProgramExpander(view).read()
    instructions = decode(view)
    return Code(tuple(instructions), tuple(instr.size_bytes for instr in instructions), None)


class _ProgramExpander:
    def __init__(self, view: memoryview) -> None:
        self.data = bytes(view)
        self.offset = _HEADER.size
        self.expanded: list[bytes] = []
        self.ends: list[int] = []  # end offsets of expanded instructions, in bytes

    def read(self) -> Code:
        if len(self.data) < _HEADER.size:
            raise SimulationError("the compact program has no header")
        _, version, granules = _HEADER.unpack_from(self.data)
        if version != _VERSION:
            raise SimulationError(f"version {version} of the compact form is not known")
        history = granules * GRANULE_BYTES
        instructions, sizes = [], []
        while self.offset < len(self.data):
            start = self.offset
            data = self._expand(start, history)
            instr = decode_one(memoryview(data), 0, start)
            if instr.size_bytes != len(data):
                raise malformed(start, f"{instr.mnemonic} expands to {len(data)} bytes, not {instr.size_bytes}")
            instructions.append(instr)
            sizes.append(self.offset - start)
            self.expanded.append(data)
            self.ends.append((self.ends[-1] if self.ends else 0) + len(data))
        if sizes:
            sizes[0] += _HEADER.size
        return Code(tuple(instructions), tuple(sizes), history)

    def _expand(self, start: int, history: int) -> bytes:
        distance = self._take(start)
        if distance:
            if distance > min(len(self.expanded), FARTHEST):
                raise malformed(start, f"it refers to {distance} instructions back, of {len(self.expanded)}")
            base = bytearray(self.expanded[-distance])
            if self.ends[-1] - (self.ends[-distance] - len(base)) > history:
                raise malformed(start, f"it refers to {distance} instructions back, farther than {history} bytes")
        else:
            base = bytearray(self._take(start) * GRANULE_BYTES)
            if not 0 < len(base) <= LONGEST_BYTES:
                raise malformed(start, f"it is {len(base)} bytes long")
        words = sum(self._take(start) << 8 * byte for byte in range(-(-len(base) // (8 * WORD_BYTES))))
        if words >> len(base) // WORD_BYTES:
            raise malformed(start, "it changes bytes after its end")
        for word in range(len(base) // WORD_BYTES):
            if words >> word & 1:
                self._change(base, WORD_BYTES * word, start)
        return bytes(base)

    def _change(self, base: bytearray, first: int, start: int) -> None:
        mask = self._take(start)
        if not mask:
            raise malformed(start, "a word that changes has no byte that does")
        for index in range(first, first + WORD_BYTES):
            if mask >> index - first & 1:
                value = self._take(start)
                if value == base[index]:
                    raise malformed(start, f"byte {index} changes to what it is")
                base[index] = value

    def _take(self, start: int) -> int:
        if self.offset >= len(self.data):
            raise malformed(start, "it is cut off")
        self.offset += 1
        return self.data[self.offset - 1]
