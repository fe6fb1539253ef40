"""Documents, texts and files that are wrong in structured ways, for every format that is read.

What the mutators have in common: the result is mostly well formed on the outside (JSON that parses, a zip with right
checksums, an array file with a header) and wrong inside. The same random numbers always give the same damage.
"""

from __future__ import annotations

import io
import json
import random
import re
import socket
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from contextlib import chdir
from pathlib import Path
from typing import Any

TEXTS = (
    "",
    "x",
    "\0",
    "\x1b[2J",
    "é" * 40,
    "a\nb",
    "../x",
    "/etc/passwd",
    "%s{}",
    "1e999",
    "nan",
    "\u202e",
    "x" * 5000,
)
NUMBERS = (-1, 0, 1, 2, 7, 255, 256, 1 << 31, -(1 << 31), 1 << 63, 10**25, 0.5, -0.0, 1e300, -1e-300)
VALUES: tuple[Any, ...] = (None, True, False, [], {}, [[]], [None], {"": 0}, *TEXTS, *NUMBERS)
WORDS = (
    "", "0", "-1", "4294967296", "9" * 400, "1e400", "-inf", "nan", "0x", "true", '"', '"\\ff"', "[", "]", "{", "}",
    "<", ">", "=", ":", ",", "#", "é", "\x1b[2J", "\0", "x" * 300, "(" * 60, "[" * 3000, "?", "*", "!", "%0", "@main",
    "f32", "i8", "\n",
)  # fmt: skip
_WORD = re.compile(r"\d[\w.+-]*|\w+|\s+|.", re.DOTALL)

Rng = random.Random


def json_damage(text: bytes, rng: Rng) -> bytes:
    """A document with one to three nodes replaced, removed, doubled or swapped; now and then damaged text."""
    if rng.random() < 0.15:
        return text_damage(text, rng)
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # damaged before
        return text_damage(text, rng)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        document = changed(document, rng)
    try:
        data = json.dumps(document).encode()
    except (ValueError, RecursionError):
        return text
    if rng.random() < 0.05:  # a key given twice
        data = data.replace(b"{", b'{"model": 1, ', 1)
    return data


def changed(document: Any, rng: Rng) -> Any:
    """``document`` with a change at one place."""
    places: list[tuple[Any, Any]] = []

    def collect(node: Any) -> None:
        items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
        for key, value in items:
            places.append((node, key))
            collect(value)

    collect(document)
    if not places or rng.random() < 0.02:
        return rng.choice(VALUES)
    parent, key = rng.choice(places)
    other, at = rng.choice(places)
    action = rng.random()
    if action < 0.55:
        old = parent[key]
        near = [old + 1, old - 1, -old, old * 2] if type(old) in (int, float) else [[old], {"x": old}, str(old)]
        parent[key] = rng.choice((rng.choice(VALUES), rng.choice(near)))
    elif action < 0.7:
        del parent[key]
    elif action < 0.8:
        parent[key] = json.loads(json.dumps(other[at]))
    elif isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), json.loads(json.dumps(parent[key])))
    else:
        parent[rng.choice(("x", "", *parent))] = rng.choice(VALUES)
    return document


def text_damage(text: bytes, rng: Rng) -> bytes:
    """Words replaced, removed, doubled and swapped; lines too; now and then bytes that are no UTF-8."""
    words = _WORD.findall(text.decode("utf-8", "replace"))
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        at = rng.randrange(len(words))
        action = rng.random()
        if action < 0.4:
            words[at] = rng.choice(WORDS)
        elif action < 0.55:
            words[at] = rng.choice(words)
        elif action < 0.7:
            del words[at : at + rng.choice((1, 1, 2, 8))]
        elif action < 0.8:
            end = at + rng.choice((1, 3, 12, 40))
            words[at:at] = words[at:end]
        elif action < 0.9:
            words.insert(at, rng.choice(WORDS))
        else:
            other = rng.randrange(len(words))
            words[at], words[other] = words[other], words[at]
        if not words:
            return b""
    data = "".join(words).encode("utf-8", "replace")
    return bytes_damage(data, rng) if rng.random() < 0.05 else data


def bytes_damage(data: bytes, rng: Rng, near: int = 4096) -> bytes:
    """Bits flipped, words replaced, data cut or longer; most of it near either end."""
    if not data:
        return b"\0"
    action = rng.random()
    if action < 0.08:
        return data[: rng.randrange(len(data))]
    if action < 0.12:
        return data + data[: rng.randrange(64)]
    damaged = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 12))):
        span = min(near, len(data))
        at = rng.choice((rng.randrange(len(data)), rng.randrange(span), len(data) - 1 - rng.randrange(span)))
        if rng.random() < 0.5:
            damaged[at] = rng.choice((0, 255, 127, 128, damaged[at] ^ 1 << rng.randrange(8), rng.randrange(256)))
        else:
            word = rng.choice((0, 1, 4, len(data), 1 << 31, 0xFFFFFFFF, 0xFFFF, rng.randrange(1 << 16)))
            damaged[at : at + 4] = struct.pack("<I", word)[: len(damaged) - at]
    return bytes(damaged)


def zip_damage(data: bytes, rng: Rng, inner: Callable[[str, bytes], bytes]) -> bytes:
    """Members changed by ``inner`` in a well-formed archive, or the archive's own records damaged."""
    if rng.random() < 0.3:
        return _zip_records(data, rng)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    at = rng.randrange(len(members))
    name, content = members[at]
    action = rng.random()
    if action < 0.7:
        members[at] = (name, inner(name, content))
    elif action < 0.78:
        members[at] = (rng.choice(("", "x", name + "x", name.upper(), "../" + name, "a/" + name, "é.npy")), content)
    elif action < 0.86:
        del members[at]
    elif action < 0.92:
        members.append((name, content))
    else:
        members[at] = (name, rng.choice(members)[1])
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", rng.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for path, content in members:
            info = zipfile.ZipInfo(path or "_")
            info.compress_type = archive.compression
            if path not in archive.namelist():
                archive.writestr(info, content)
            else:
                _append_twice(archive, info, content)
    return buffer.getvalue()


def _append_twice(archive: zipfile.ZipFile, info: zipfile.ZipInfo, content: bytes) -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        archive.writestr(info, content)


def _zip_records(data: bytes, rng: Rng) -> bytes:
    """Fields of the local headers, the directory and its end replaced."""
    damaged = bytearray(data)
    starts = [match.start() for match in re.finditer(rb"PK(\x01\x02|\x03\x04|\x05\x06)", data)]
    for _ in range(rng.choice((1, 1, 2, 3))):
        at = rng.choice(starts) + rng.choice(range(4, 46, 2))
        width = rng.choice((2, 4))
        value = rng.choice((0, 1, 4, 0xFFFF, 0xFFFFFFFF, len(data), rng.randrange(1 << 16)))
        damaged[at : at + width] = struct.pack("<I", value)[:width][: max(0, len(damaged) - at)]
    return bytes(damaged)


def npy_damage(data: bytes, rng: Rng) -> bytes:
    """An array file with another header, or damaged bytes."""
    if rng.random() < 0.2 or data[:6] != b"\x93NUMPY":
        return bytes_damage(data, rng, 128)
    size = struct.unpack_from("<H", data, 8)[0]
    header, body = data[10 : 10 + size].decode("latin-1"), data[10 + size :]
    action = rng.random()
    if action < 0.3:
        shape = rng.choice(
            ("()", "(0,)", "(-1,)", "(1,)", "(4294967296,)", f"({1 << 62},)", "(3, 1, 8, 8)", "(1.5,)", "None")
        )
        header = re.sub(r"\([^)]*\)", lambda _: shape, header)
    elif action < 0.6:
        kinds = (
            "<f8",
            "<f2",
            ">f4",
            "|O",
            "|S0",
            "<U4",
            "|V3",
            "<M8[s]",
            "<c8",
            "|b1",
            "<i8",
            ",,",
            "x",
            "<f4, <i4",
            "|S99999999",
        )
        header = re.sub(r"'[<>|=][^']*'", lambda _: repr(rng.choice(kinds)), header)
    else:
        header = text_damage(header.encode("latin-1"), rng).decode("latin-1", "replace")
    coded = header.encode("latin-1", "replace")[:65535]
    version = rng.choice((b"\x01\x00", b"\x01\x00", b"\x02\x00", b"\x03\x00", b"\x09\x00"))
    length = struct.pack("<H" if version == b"\x01\x00" else "<I", len(coded))
    return b"\x93NUMPY" + version + length + coded + body


def sqlite_damage(path: Path, rng: Rng) -> None:
    """Cells of other types and contents, rows and tables gone; or damaged pages."""
    if rng.random() < 0.25:
        path.write_bytes(bytes_damage(path.read_bytes(), rng, 512))
        return
    database = sqlite3.connect(path, isolation_level=None)
    try:
        for _ in range(rng.choice((1, 1, 2, 3))):
            table = rng.choice(("about", "batches", "tensors", "samples"))
            action = rng.random()
            try:
                columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
                rows = [row[0] for row in database.execute(f"SELECT rowid FROM {table}")]
                if action < 0.7 and columns and rows:
                    column, row = rng.choice(columns), rng.choice(rows)
                    old = database.execute(f"SELECT {column} FROM {table} WHERE rowid = ?", (row,)).fetchone()[0]
                    database.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (_cell(old, rng), row))
                elif action < 0.8 and rows:
                    database.execute(f"DELETE FROM {table} WHERE rowid = ?", (rng.choice(rows),))
                elif action < 0.88 and columns:
                    database.execute(f"ALTER TABLE {table} RENAME COLUMN {rng.choice(columns)} TO other")
                elif action < 0.94:
                    database.execute(f"PRAGMA user_version = {rng.choice((0, 2, 99, -1))}")
                else:
                    database.execute(f"DROP TABLE {table}")
            except (sqlite3.Error, zlib.error):
                continue
    finally:
        database.close()


def _cell(old: Any, rng: Rng) -> Any:
    if isinstance(old, bytes) and rng.random() < 0.7:
        return _packed_damage(old, rng)
    if isinstance(old, str) and old[:1] in ("[", "{") and rng.random() < 0.7:
        return json_damage(old.encode(), rng).decode("utf-8", "replace")
    return rng.choice((None, "", "x", b"", b"\xff" * 8, 0, -1, 1 << 62, 0.5, "é", "[" * 3000))


def _packed_damage(data: bytes, rng: Rng) -> bytes:
    """What calibration/statistics.py wrote, with other facts, layout or numbers, compressed again."""
    content = zlib.decompress(data)
    (length,) = struct.unpack_from("<I", content)
    head, body = content[4 : 4 + length], content[4 + length :]
    if rng.random() < 0.7:
        head = json_damage(head, rng)
    else:
        body = bytes_damage(body, rng) if body else b"\0" * 8
    return zlib.compress(struct.pack("<I", len(head)) + head + body, 1)


def make_socket(path: Path) -> None:
    """Put a socket there; its address is relative, as a whole path may be too long for one."""
    with socket.socket(socket.AF_UNIX) as made, chdir(path.parent):
        made.bind(path.name)
