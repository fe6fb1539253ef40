"""Named arrays and a few plain facts as one compressed block of bytes, with a checksum."""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

_LENGTH = struct.Struct("<I")
_KINDS = "biufc"  # what an array may hold: plain numbers


class DamagedError(ValueError):
    """A block is cut short, altered, or none of ours."""


def can_pack(array: NDArray[Any]) -> bool:
    """Whether the elements are plain numbers, not strings or handles."""
    return array.dtype.kind in _KINDS


def pack(facts: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]], *, level: int = 1) -> bytes:
    """``facts`` (what JSON can hold) and ``arrays`` of plain numbers, little-endian; ``level`` is zlib's, 0 to 9."""
    plain = {name: np.ascontiguousarray(array, array.dtype.newbyteorder("<")) for name, array in arrays.items()}
    layout = [[name, array.dtype.str, list(arrays[name].shape)] for name, array in plain.items()]
    head = json.dumps([dict(facts), layout]).encode()
    content = b"".join([_LENGTH.pack(len(head)), head, *(array.tobytes() for array in plain.values())])
    return zlib.compress(content, level)


def unpack(data: bytes) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    """What :func:`pack` was given; raises DamagedError."""
    try:
        content = zlib.decompress(data)
        (length,) = _LENGTH.unpack_from(content)
        facts, layout = json.loads(content[_LENGTH.size : _LENGTH.size + length])
        arrays, offset = {}, _LENGTH.size + length
        for name, text, shape in layout:
            dtype = np.dtype(str(text))
            if dtype.kind not in _KINDS or any(dim < 0 for dim in shape):
                raise DamagedError(f"{name} is {text} {shape}")
            count = int(np.prod(shape, dtype=object))
            arrays[str(name)] = np.frombuffer(content, dtype, count, offset).reshape(shape)
            offset += count * dtype.itemsize
        return dict(facts), arrays
    except Exception as error:  # of three libraries, for bytes that may be anything
        raise DamagedError(str(error) or type(error).__name__) from error
