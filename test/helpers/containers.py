"""Damaged containers, most of them with checksums that match, so that readers have to look at the contents."""

from __future__ import annotations

import binascii
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, field

from odc_mlir.isa import container

_HEADER = struct.Struct("<4sBBHIIHHIIHBB16sIQI")
_ROW = struct.Struct("<HBBIQQII")
_FIELDS = (
    "magic major minor header hardware flags count isa bytes arena alignment regions queues hash compiler zero crc"
)
_NAMES = _FIELDS.split()
_CODE, _CONSTANTS, _TENSORS, _MAP, _METADATA = 1, 2, 3, 5, 6

# Replacements in JSON: of values and in the middle of anything.
_VALUES = (
    *('0', '-0', '-1', '9223372036854775807', '9223372036854775808', '1e3', '1.0', '01', '1.', '.5', '-', '1e', '+1'),
    *("NaN", "Infinity", "-Infinity", "-Infinit", "true", "True", "null", "nul", "[]", "{}", "[[]]", "[1,2]", "[1,2,]"),
    *('"flash"', '"sram"', '"fl\\u0061sh"', '"\\ud800"', '"\\u12"', '"\\x"', '"\t"', "''", '"', "", "[0,0]", "[[0,0]]"),
    *('[[1,1]]', '[[0,9]]', '[["a"],[]]', '[[0]]', '{"a":1,"a":2}', "[" * 33 + "]" * 33, "[" * 31 + "]" * 31),
    *("1" * 4300, "1" * 4301, "1." + "1" * 5000, '"é"', '"\u2028"', "{1:2}", '{"a"}', '{"a":}', '[,]'),
)  # fmt: skip
_PIECES = (*'"\\{}[]:, \n0-ex', "\x00", "\x7f", "\\u0022", "\\\\", "\ufeff", "é", "//", "true", "1")
_NUMBERS = (
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    64,
    127,
    128,
    255,
    256,
    65535,
    1 << 28,
    (1 << 28) + 1,
    (1 << 32) - 1,
    (1 << 63),
    (1 << 64) - 1,
)


@dataclass
class _Parts:
    """A container in pieces: fields of the header, rows of the section table and the bodies of sections."""

    header: dict[str, int | bytes]
    kinds: list[int]
    bodies: list[bytes]
    rows: dict[int, dict[int, int]] = field(default_factory=dict)  # changes of rows by position

    @classmethod
    def of(cls, data: bytes) -> _Parts:
        header = dict(zip(_NAMES, _HEADER.unpack_from(data), strict=True))
        rows = [_ROW.unpack_from(data, _HEADER.size + _ROW.size * i) for i in range(header["count"])]
        return cls(header, [row[0] for row in rows], [data[row[4] : row[4] + row[5]] for row in rows])

    def build(self, changes: dict[str, int | bytes] | None = None, *, alignment: int = 128) -> bytes:
        """Return the file; ``changes`` are of the header, whose checksum matches unless it is among them."""
        offset, table, bodies = _HEADER.size + _ROW.size * len(self.kinds), b"", b""
        for position, (kind, body) in enumerate(zip(self.kinds, self.bodies, strict=True)):
            padding = -offset % alignment
            bodies += bytes(padding) + body
            row = [kind, 0 if kind == _CONSTANTS else 255, 7, 0, offset + padding, len(body), binascii.crc32(body), 0]
            for column, value in self.rows.get(position, {}).items():
                row[column] = value
            table += _ROW.pack(*row)
            offset += padding + len(body)
        made = {**self.header, "count": len(self.kinds), "bytes": offset} | (changes or {})
        head = _HEADER.pack(*(made[name] for name in _NAMES))
        if "crc" not in (changes or {}):
            head = head[:-4] + struct.pack("<I", container.header_checksum(head, table))
        return head + table + bodies


def _number(rng: random.Random, bits: int, old: int = 0) -> int:
    wanted = rng.choice((*_NUMBERS, old + 1, old - 1, old ^ 1 << rng.randrange(bits), rng.getrandbits(bits)))
    return wanted % (1 << bits)


def _bytes(data: bytes, rng: random.Random) -> bytes:
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 5))):
        place = rng.randrange(len(made) + 1)
        action = rng.random()
        if action < 0.6 and place < len(made):
            made[place] = rng.choice((0, 1, 255, made[place] ^ 1 << rng.randrange(8), rng.randrange(256)))
        elif action < 0.8:
            del made[place : place + rng.choice((1, 2, 4, 32))]
        else:
            made[place:place] = rng.randbytes(rng.choice((1, 2, 4, 32)))
    return bytes(made)


def _header(parts: _Parts, rng: random.Random) -> bytes:
    sizes = {"B": 8, "H": 16, "I": 32, "Q": 64}
    name = rng.choice([name for name in _NAMES if name not in ("magic", "hash")])
    bits = sizes[[kind for kind in _HEADER.format if kind.isalpha() and kind != "s"][
        [name for name in _NAMES if name not in ("magic", "hash")].index(name)]]  # fmt: skip
    old = parts.header[name]
    assert isinstance(old, int)
    return parts.build({name: _number(rng, bits, old)})


def _row(parts: _Parts, rng: random.Random) -> bytes:
    column = rng.randrange(8)
    bits = (16, 8, 8, 32, 64, 64, 32, 32)[column]
    parts.rows = {rng.randrange(len(parts.kinds)): {column: _number(rng, bits, rng.choice((0, 64, 256, 512)))}}
    return parts.build()


def _sections(parts: _Parts, rng: random.Random) -> bytes:
    """Another number or order of sections, kinds of other versions."""
    place = rng.randrange(len(parts.kinds))
    action = rng.randrange(4)
    if action == 0:
        del parts.kinds[place], parts.bodies[place]
    elif action == 1:
        parts.kinds.insert(place, rng.choice((0, 1, 2, 3, 4, 5, 6, 7, 300)))
        parts.bodies.insert(place, rng.choice((b"", b"x", b"{}", parts.bodies[place])))
        parts.rows = {place: {3: rng.choice((0, 1, 2))}}
    elif action == 2:
        parts.bodies[place] = rng.choice((b"", b"\0", b"{}"))
    else:
        order = rng.sample(range(len(parts.kinds)), len(parts.kinds))
        parts.kinds, parts.bodies = [parts.kinds[i] for i in order], [parts.bodies[i] for i in order]
    return parts.build()


def _tensors(parts: _Parts, rng: random.Random) -> bytes:
    place = parts.kinds.index(_TENSORS)
    body = bytearray(parts.bodies[place])
    if rng.random() < 0.3:
        parts.bodies[place] = _bytes(bytes(body), rng)
        return parts.build()
    size = rng.choice((1, 1, 2, 4))
    where = rng.randrange(max(1, len(body) - 8))
    old = int.from_bytes(body[where : where + size], "little")
    body[where : where + size] = _number(rng, 8 * size, old).to_bytes(size, "little")
    parts.bodies[place] = bytes(body)
    return parts.build()


def _json(parts: _Parts, rng: random.Random) -> bytes:
    place = parts.kinds.index(rng.choice((_MAP, _METADATA)))
    text = parts.bodies[place].decode()
    for _ in range(rng.choice((1, 1, 2))):
        action = rng.random()
        where = rng.randrange(len(text) + 1)
        if action < 0.6:  # another value behind a key, or another member
            colons = [i for i, c in enumerate(text) if c == ":"]
            start = rng.choice(colons) + 1 if colons else 0
            end = min((i for i in (text.find(c, start) for c in ",}") if i > 0), default=len(text))
            text = text[:start] + rng.choice(_VALUES) + text[end:]
        elif action < 0.7:
            text = text[:where] + text[where + rng.choice((1, 2, 9)) :]
        elif action < 0.8:
            key = rng.choice(
                ("states", "results", "memory", "target", "operators", "name", "ranges", "x", "t\\u0061rget")
            )
            text = text.replace("{", f'{{"{key}":{rng.choice(_VALUES)},', 1)
        else:
            text = text[:where] + rng.choice(_PIECES) + text[where:]
    data = text.encode()
    parts.bodies[place] = _bytes(data, rng) if rng.random() < 0.1 else data
    return parts.build()


def damaged(data: bytes, rng: random.Random) -> bytes:
    """Return the container ``data`` with a few changes, some of which readers have to accept."""
    if rng.random() < 0.15:
        return _bytes(data, rng)
    kinds: tuple[Callable[[_Parts, random.Random], bytes], ...] = (
        _header,
        _row,
        _sections,
        _tensors,
        _tensors,
        _json,
        _json,
    )
    return rng.choice(kinds)(_Parts.of(data), rng)


def edge_cases(data: bytes) -> list[bytes]:
    """Return the container ``data`` with other values at all places of its JSON, and with parts cut or moved."""
    found = []
    for place, kind in enumerate(_Parts.of(data).kinds):
        body = _Parts.of(data).bodies[place]
        others = [body[:size] for size in range(len(body))]  # at the end of the file, where nothing is behind it
        if kind in (_MAP, _METADATA):
            others += _with_other_values(body)
        if kind == _METADATA:
            others += [body[:-1] + b',"extra":"' + text + b'"}' for text in _byte_sequences()]
        for other in others:
            parts = _Parts.of(data)
            for items in (parts.kinds, parts.bodies):
                items.append(items.pop(place))
            parts.bodies[-1] = other
            found.append(parts.build())
    for log2 in (0, 3, 6, 7, 8):
        for alignment in (8, 64):
            parts = _Parts.of(data)
            parts.rows = {position: {2: log2} for position in range(len(parts.kinds))}
            found.append(parts.build(alignment=alignment))
    found += [_longer(data, size) for size in (1, 64, 128)]
    parts = _Parts.of(data)  # a section that readers may skip, at the start of the next one
    parts.rows = {0: {3: 1, 5: 8, 6: binascii.crc32(parts.bodies[0][:8])}}
    parts.kinds.insert(0, 9)
    parts.bodies.insert(0, b"")
    return [*found, parts.build()]


def _with_other_values(body: bytes) -> list[bytes]:
    text = body.decode()
    starts = [i + 1 for i, c in enumerate(text) if c == ":"]
    ends = [min(i for i in (text.find(c, start) for c in ",}") if i > 0) for start in starts]
    return [(text[:a] + value + text[b:]).encode() for a, b in zip(starts, ends, strict=True) for value in _VALUES]


def _byte_sequences() -> list[bytes]:
    """Return bytes of which some are UTF-8, at all limits of its forms."""
    leads = bytes.fromhex("7f 80 bf c0 c1 c2 df e0 e1 ec ed ee ef f0 f1 f3 f4 f5 ff")
    seconds = bytes.fromhex("7f 80 8f 90 9f a0 bf c0")
    tails = [b"", b"\x80", b"\xbf\x80", b"\x80\x7f", b"\xc0\x80"]
    return [bytes([lead, second]) + tail for lead in leads for second in seconds for tail in tails]


def _longer(data: bytes, size: int) -> bytes:
    """Return the container with zeros behind the last section, which its header counts."""
    return _Parts.of(data).build({"bytes": len(data) + size}) + bytes(size)


def small_container() -> bytes:
    """Return a container with several inputs, outputs, a state and operators, far smaller than a model's."""
    digest = bytes(range(32))
    kept = container.TensorRecord("kept", "int16", (1, 4), 0.25, 0, 1, 0)
    return container.write(
        container.Container(
            code=b"\x10" * 32,
            constants=b"\x07" * 40,
            inputs=(container.TensorRecord("größe", "int8", (1, 2, 3), 0.5, -128, 2, 0), kept),
            outputs=(container.TensorRecord("y", "int64", (), None, 0, 3, 8), kept),
            operators=(
                container.MapEntry("a", "ADD", 3, 0, ((0, 1), (2, 5))),
                container.MapEntry("b", "MUL", 0, 0, ()),
            ),
            target_digest=digest,
            arena_bytes=64,
            metadata={
                "target": "npu-256", "target_version": 1, "memory": "flash", "states": [[1, 1]],
                "results": [["a"], ["b", "c"]], "extra": "é",
            },
        )
    )  # fmt: skip
