"""``.cpu`` files: object code, packed constants and calling convention of a segment.

Layout: magic, length of the header as 8 bytes, SHA-256 of the rest of the file, header (JSON), object code, constants.
Numbers are little-endian.
"""

from __future__ import annotations

import hashlib
import json
import math
from dataclasses import astuple, dataclass, fields
from typing import Any, TypeVar

from odc_mlir.errors import PackageError, parsing
from odc_mlir.ops.dtypes import DTYPES

MAGIC = b"ODCCPU\x00\x02"
SUFFIX = ".cpu"
BARRIER = "odc_barrier"  # function of the object code that parts of a segment call to wait for one another
ALIGNMENT_BYTES = 64  # alignment of all buffers: a cache line, which is also the longest register
SLACK_BYTES = 256  # bytes after every buffer that kernels may access with whole registers
_HEADER = len(MAGIC) + 8 + 32
_SIZES = ("arena_bytes", "scratch_bytes", "alignment_bytes", "slack_bytes")
_BODY = ("code", "constants")  # fields that follow the header
_MAX_ALIGNMENT_BYTES = 4096
_MAX_SLACK_BYTES = 1 << 20
_MAX_BUFFER_BYTES = 1 << 34
_Value = TypeVar("_Value", str, int)


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a loaded program: name, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NativeSegment:
    """One segment: object code, constants and calling convention.

    ``entry`` takes pointers to inputs, outputs, arena and constants, aligned to ``alignment_bytes``. It may read
    ``slack_bytes`` after each of these buffers, and write ``slack_bytes`` after outputs and arena. ``part_entry`` is
    the entry for several threads, or "" for a segment that is not divided. It also takes pointers to ``scratch_bytes``
    per thread and to a 64-bit zero, the index of the calling thread, and the number of threads.
    """

    target: str
    triple: str
    features: tuple[str, ...]
    entry: str
    part_entry: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_bytes: int
    scratch_bytes: int
    alignment_bytes: int
    slack_bytes: int
    code: bytes
    constants: bytes

    def to_bytes(self) -> bytes:
        """Return the file. Equal segments give equal bytes."""
        names = [field.name for field in fields(self) if field.name not in _BODY]
        header: dict[str, Any] = {name: getattr(self, name) for name in names}
        header |= {"code_bytes": len(self.code), "constants_bytes": len(self.constants)}
        text = json.dumps(header, ensure_ascii=False, separators=(",", ":"), default=astuple).encode()
        body = b"".join((text, self.code, self.constants))
        return b"".join((MAGIC, len(text).to_bytes(8, "little"), hashlib.sha256(body).digest(), body))


def _check_magic(data: bytes) -> None:
    if data[: len(MAGIC)] != MAGIC:
        raise PackageError("it is no .cpu file of this version", hint="compile the model again")


def read_stamps(data: bytes) -> tuple[str, str, tuple[str, ...]]:
    """Return target, triple and features of a file without reading more. Raises PackageError."""
    _check_magic(data)
    length = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    with parsing("the .cpu file is malformed", PackageError, hint="compile the model again"):
        header = json.loads(bytes(memoryview(data)[_HEADER : _HEADER + length]))
        target, triple = (_as(str, header[key]) for key in ("target", "triple"))
        return target, triple, tuple(_as(str, name) for name in header["features"])


def check_whole(data: bytes) -> None:
    """Compare a file with the checksum, without parsing. Raises PackageError."""
    _check_magic(data)
    body = memoryview(data)[_HEADER:]
    if len(data) < _HEADER or hashlib.sha256(body).digest() != data[len(MAGIC) + 8 : _HEADER]:
        raise PackageError("the .cpu file is damaged: its checksum is wrong", hint="compile the model again")


def parse_native_segment(data: bytes) -> NativeSegment:
    """Return the segment in the bytes of a ``.cpu`` file. Raises PackageError if it is damaged."""
    check_whole(data)
    length = int.from_bytes(data[len(MAGIC) : len(MAGIC) + 8], "little")
    body = memoryview(data)[_HEADER:]
    with parsing("the .cpu file is malformed", PackageError, hint="compile the model again"):
        header = json.loads(bytes(body[:length]))
        sizes: dict[str, Any] = {key: _as(int, header[key]) for key in (*_SIZES, "code_bytes", "constants_bytes")}
        end = length + sizes.pop("code_bytes")
        whole = end + sizes.pop("constants_bytes")
        if len(body) != whole or not length <= end <= whole or min(sizes.values()) < 0:
            raise ValueError("its parts do not add up")
        alignment_bytes, slack_bytes = sizes["alignment_bytes"], sizes["slack_bytes"]
        if alignment_bytes & (alignment_bytes - 1) or not ALIGNMENT_BYTES <= alignment_bytes <= _MAX_ALIGNMENT_BYTES:
            raise ValueError(f"no buffer can be aligned to {alignment_bytes} bytes")
        if not SLACK_BYTES <= slack_bytes <= _MAX_SLACK_BYTES:
            raise ValueError(f"{slack_bytes} bytes of slack, at least {SLACK_BYTES} are needed")
        if max(sizes["arena_bytes"], sizes["scratch_bytes"]) > _MAX_BUFFER_BYTES:
            raise ValueError(f"an arena of {sizes['arena_bytes']} bytes, scratch of {sizes['scratch_bytes']}")
        texts: dict[str, Any] = {key: _as(str, header[key]) for key in ("target", "triple", "entry", "part_entry")}
        return NativeSegment(
            **texts,
            **sizes,
            features=tuple(_as(str, name) for name in header["features"]),
            inputs=tuple(_port(*port) for port in header["inputs"]),
            outputs=tuple(_port(*port) for port in header["outputs"]),
            code=bytes(body[length:end]),
            constants=bytes(body[end:]),
        )


def _port(name: str, dtype: str, dims: list[object]) -> Port:
    shape = tuple(_as(int, dim) for dim in dims)
    if _as(str, dtype) not in DTYPES or DTYPES[dtype].numpy.hasobject:
        raise ValueError(f"{name!r} is of the unknown type {dtype!r}")
    if min(shape, default=1) < 0 or math.prod(shape) > _MAX_BUFFER_BYTES // DTYPES[dtype].numpy.itemsize:
        raise ValueError(f"{name!r} has the shape {list(shape)}, at most {_MAX_BUFFER_BYTES} bytes are allowed")
    return Port(_as(str, name), dtype, shape)


def _as(kind: type[_Value], value: object) -> _Value:
    if type(value) is not kind:
        raise ValueError(f"{value!r} is no {kind.__name__}")
    return value
