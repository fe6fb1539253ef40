"""64-bit FarmHash fingerprints of many keys of equal length, for hashed projections.

FarmHash's ``Fingerprint64`` defines the function and never changes. Keys of up to 16, 32, 64 and more bytes are mixed
differently. Arithmetic is modulo 2^64, on arrays with one entry per key.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Words = NDArray[np.uint64]

_K0 = np.uint64(0xC3A5C85C97CB3127)
_K1 = np.uint64(0xB492B66FBE98F273)
_K2 = np.uint64(0x9AE16A3B2F90404F)
_SEED = 81
_BLOCK_BYTES = 64


def _word(keys: NDArray[np.uint8], at: int, size: int = 8) -> Words:
    part = np.ascontiguousarray(keys[:, at : at + size])
    return part.view(f"<u{size}")[:, 0].astype(np.uint64)


def _rotate_right(x: Words, bits: int) -> Words:
    return (x >> np.uint64(bits)) | (x << np.uint64(64 - bits))


def _fold(x: Words) -> Words:
    return x ^ (x >> np.uint64(47))


def _mix(u: Words, v: Words, by: Words) -> Words:
    a = _fold((u ^ v) * by)
    return _fold((v ^ a) * by) * by


def _factor(keys: NDArray[np.uint8]) -> Words:
    return np.full(len(keys), _K2 + np.uint64(2 * keys.shape[1]))


def _up_to_16(keys: NDArray[np.uint8]) -> Words:
    count, size = keys.shape
    by = _factor(keys)
    if size >= 8:
        a, b = _word(keys, 0) + _K2, _word(keys, size - 8)
        return _mix(_rotate_right(b, 37) * by + a, (_rotate_right(a, 25) + b) * by, by)
    if size >= 4:
        return _mix(np.uint64(size) + (_word(keys, 0, 4) << np.uint64(3)), _word(keys, size - 4, 4), by)
    if size:
        a, b, c = (_word(keys, at, 1) for at in (0, size >> 1, size - 1))
        y, z = a + (b << np.uint64(8)), np.uint64(size) + (c << np.uint64(2))
        return _fold(y * _K2 ^ z * _K0) * _K2
    return np.full(count, _K2)


def _ends(keys: NDArray[np.uint8], first: np.uint64, by: Words) -> tuple[Words, Words, Words]:
    size = keys.shape[1]
    a, b = _word(keys, 0) * first, _word(keys, 8)
    c, d = _word(keys, size - 8) * by, _word(keys, size - 16) * _K2
    return _rotate_right(a + b, 43) + _rotate_right(c, 30) + d, a + _rotate_right(b + _K2, 18) + c, a


def _up_to_64(keys: NDArray[np.uint8]) -> Words:
    size, by = keys.shape[1], _factor(keys)
    if size <= 32:
        y, other, _ = _ends(keys, _K1, by)
        return _mix(y, other, by)
    y, other, a = _ends(keys, _K2, by)
    z = _mix(y, other, by)
    e, f = _word(keys, 16) * by, _word(keys, 24)
    g, h = (y + _word(keys, size - 32)) * by, (z + _word(keys, size - 24)) * by
    return _mix(_rotate_right(e + f, 43) + _rotate_right(g, 30) + h, e + _rotate_right(f + a, 18) + g, by)


def _pair(keys: NDArray[np.uint8], at: int, a: Words, b: Words) -> tuple[Words, Words]:
    w, x, y, z = (_word(keys, at + 8 * i) for i in range(4))
    a = a + w
    b = _rotate_right(b + a + z, 21)
    total = a + x + y
    return total + z, b + _rotate_right(total, 44) + a


def _long(keys: NDArray[np.uint8]) -> Words:
    count, size = keys.shape
    zero = np.zeros(count, np.uint64)
    x, y = zero + np.uint64(_SEED), zero + np.uint64(_SEED) * _K1 + np.uint64(113)
    z = _fold(y * _K2 + np.uint64(113)) * _K2
    v, w = (zero, zero), (zero, zero)
    x = x * _K2 + _word(keys, 0)
    blocks, rest = divmod(size - 1, _BLOCK_BYTES)

    def step(at: int, by: Any, scale: int) -> None:
        nonlocal x, y, z, v, w
        nine = np.uint64(scale)
        x = _rotate_right(x + y + v[0] + _word(keys, at + 8), 37) * by
        y = _rotate_right(y + v[1] + _word(keys, at + 48), 42) * by
        x = x ^ (w[1] * nine)
        y = y + v[0] * nine + _word(keys, at + 40)
        z = _rotate_right(z + w[0], 33) * by
        v = _pair(keys, at, v[1] * by, x + w[0])
        w = _pair(keys, at + 32, z + w[1], y + _word(keys, at + 16))
        x, z = z, x

    for block in range(blocks):
        step(block * _BLOCK_BYTES, _K1, 1)
    by = _K1 + ((z & np.uint64(0xFF)) << np.uint64(1))
    first = w[0] + np.uint64(rest)
    v = (v[0] + first, v[1])
    w = (first + v[0], w[1])
    step(size - _BLOCK_BYTES, by, 9)
    return _mix(_mix(v[0], w[0], by) + _fold(y) * _K0 + z, _mix(v[1], w[1], by) + x, by)


def fingerprint64(keys: NDArray[np.uint8]) -> Words:
    """Return fingerprints ``[n]`` of ``keys [n, length]``."""
    with np.errstate(over="ignore"):
        if keys.shape[1] <= 16:
            return _up_to_16(keys)
        return _up_to_64(keys) if keys.shape[1] <= _BLOCK_BYTES else _long(keys)
