"""Decoder of FlexBuffers, the schemaless format for options of custom operators.

A value is read from its end: the last byte is the width of the root, and the byte before is the root's type. Offsets
point backwards. All reads are bounds-checked. The number of bytes bounds the work, even if parts are shared.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from odc_mlir.errors import ModelError

MAX_DEPTH = 32

# Type numbers of the format: single values, then vectors with elements of the same type.
_NULL, _INT, _UINT, _FLOAT, _KEY, _STRING = range(6)
_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT, _MAP, _VECTOR = range(6, 11)
_BLOB, _BOOL, _VECTOR_BOOL = 25, 26, 36
_TYPED_VECTORS = {11: _INT, 12: _UINT, 13: _FLOAT, 14: _KEY, 15: _STRING, _VECTOR_BOOL: _BOOL}
_TUPLES = {16 + 3 * (length - 2) + kind: (kind + 1, length) for length in (2, 3, 4) for kind in range(3)}

_INTS = {1: "<b", 2: "<h", 4: "<i", 8: "<q"}
_UINTS = {1: "<B", 2: "<H", 4: "<I", 8: "<Q"}
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}


def decode(data: bytes) -> Any:
    """Return the value in ``data`` as a Python object. Raises ModelError for malformed data."""
    try:
        return _FlexDecoder(data).root()
    except (_MalformedError, struct.error, UnicodeDecodeError) as error:
        raise ModelError(f"the FlexBuffer is malformed: {error}") from None


def decode_map(data: bytes) -> Mapping[str, Any]:
    """Return the map in ``data``, or {} for no bytes. Raises ModelError for other values."""
    value = decode(data) if data else {}
    if not isinstance(value, dict):
        raise ModelError(f"the FlexBuffer holds a {type(value).__name__} where a map is expected")
    return value


class _MalformedError(Exception):
    """Malformed FlexBuffer."""


class _FlexDecoder:
    def __init__(self, data: bytes) -> None:
        self._data = data
        self._budget = 4 * len(data)

    def root(self) -> Any:
        if len(self._data) < 3:
            raise _MalformedError(f"{len(self._data)} bytes are too few")
        packed, width = self._data[-2], self._data[-1]
        return self._value(len(self._data) - 2 - width, width, packed, 0)

    def _value(self, place: int, width: int, packed: int, depth: int) -> Any:
        self._spend(1)
        if depth > MAX_DEPTH:
            raise _MalformedError(f"it is nested more than {MAX_DEPTH} deep")
        kind, below = packed >> 2, 1 << (packed & 3)
        if kind == _NULL:
            return None
        if kind in (_INT, _UINT, _FLOAT, _BOOL):
            return self._number(place, width, kind)
        target = self._target(place, width)
        if kind == _KEY:
            return self._text(target, self._data.find(b"\0", target))
        if kind in (_INDIRECT_INT, _INDIRECT_UINT, _INDIRECT_FLOAT):
            return self._number(target, below, kind - _INDIRECT_INT + _INT)
        if kind in (_STRING, _BLOB):
            length = self._size(target, below)
            return self._text(target, target + length) if kind == _STRING else self._bytes(target, length)
        return self._collection(kind, target, below, depth + 1)

    def _collection(self, kind: int, target: int, width: int, depth: int) -> Any:
        if kind in _TUPLES:
            element, length = _TUPLES[kind]
            return self._elements(target, width, length, element, depth)
        length = self._size(target, width)
        if kind in _TYPED_VECTORS:
            return self._elements(target, width, length, _TYPED_VECTORS[kind], depth)
        if kind not in (_VECTOR, _MAP):
            raise _MalformedError(f"type {kind} does not exist")
        self._spend(length)
        types = self._bytes(target + length * width, length)
        values = [self._value(target + i * width, width, types[i], depth) for i in range(length)]
        if kind == _VECTOR:
            return values
        keys_width = self._number(target - 2 * width, width, _UINT)
        keys = self._elements(self._target(target - 3 * width, width), keys_width, length, _KEY, depth)
        return dict(zip(keys, values, strict=True))

    def _elements(self, target: int, width: int, length: int, kind: int, depth: int) -> list[Any]:
        self._spend(length)
        return [self._value(target + i * width, width, kind << 2, depth) for i in range(length)]

    def _number(self, place: int, width: int, kind: int) -> Any:
        forms = _FLOATS if kind == _FLOAT else _INTS if kind == _INT else _UINTS
        if width not in forms:
            raise _MalformedError(f"a number of {width} bytes does not exist")
        (value,) = struct.unpack(forms[width], self._bytes(place, width))
        return bool(value) if kind == _BOOL else value

    def _size(self, target: int, width: int) -> int:
        size: int = self._number(target - width, width, _UINT)
        return size

    def _target(self, place: int, width: int) -> int:
        target: int = place - self._number(place, width, _UINT)
        return target

    def _text(self, start: int, end: int) -> str:
        return self._bytes(start, end - start).decode()

    def _bytes(self, start: int, count: int) -> bytes:
        if start < 0 or count < 0 or start + count > len(self._data):
            raise _MalformedError(f"bytes {start} to {start + count} are not in it")
        return self._data[start : start + count]

    def _spend(self, count: int) -> None:
        self._budget -= count
        if self._budget < 0:
            raise _MalformedError("its parts are referenced too often")
