"""Packed weights: GGML's blocks of 32 elements, and binary codes.

The elements of a block are neighbours along the last axis, with common half-precision parameters. In the 16 bytes of a
four-bit block, low nibbles hold the first 16 elements, and high nibbles hold the last 16 elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import round_half_away

BLOCK_ELEMENTS = 32
_NIBBLE_BYTES = BLOCK_ELEMENTS // 2


def _half(raw: NDArray[Any], offset: int) -> NDArray[np.float32]:
    field = np.ascontiguousarray(raw[..., offset : offset + 2])
    return field.view("<f2").astype(np.float32)


def _nibbles(raw: NDArray[Any], offset: int) -> NDArray[np.float32]:
    packed = raw[..., offset : offset + _NIBBLE_BYTES]
    return np.concatenate([packed & 15, packed >> 4], axis=-1).astype(np.float32)


def _bytes(raw: NDArray[Any], offset: int) -> NDArray[np.float32]:
    return raw[..., offset : offset + BLOCK_ELEMENTS].view(np.int8).astype(np.float32)


_DECODERS: dict[str, Callable[[NDArray[Any]], NDArray[np.float32]]] = {
    "ggml_q4_0": lambda raw: (_nibbles(raw, 2) - np.float32(8)) * _half(raw, 0),
    "ggml_q4_1": lambda raw: _nibbles(raw, 4) * _half(raw, 0) + _half(raw, 2),
    "ggml_q8_0": lambda raw: _bytes(raw, 2) * _half(raw, 0),
    "ggml_q8_1": lambda raw: _bytes(raw, 4) * _half(raw, 0),
}


def decode_blocks(raw: NDArray[np.uint8], dtype: str) -> NDArray[np.float32]:
    """Decode blocks ``[…, blocks, bytes per block]`` of ``dtype`` to float32 ``[…, 32 * blocks]``.

    Raises KeyError for element types other than GGML's block formats.
    """
    values = _DECODERS[dtype](raw)
    return values.reshape(*raw.shape[:-2], raw.shape[-2] * BLOCK_ELEMENTS)


def _q4_0(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Encode blocks ``[…, 32]``. The value of the largest magnitude gets code 0, which represents -8."""
    largest = np.take_along_axis(x, np.abs(x).argmax(-1, keepdims=True), -1)
    factors = largest / np.float32(-8)
    codes = np.clip(np.floor(x * _inverse(factors) + np.float32(8.5)), 0, 15).astype(np.uint8)
    packed = codes[..., :_NIBBLE_BYTES] | codes[..., _NIBBLE_BYTES:] << 4
    return np.concatenate([factors.astype("<f2").view(np.uint8), packed], axis=-1)


def _q8_0(x: NDArray[np.float32]) -> NDArray[np.uint8]:
    """Encode blocks ``[…, 32]``. The largest magnitude gets code 127 or -127."""
    factors = np.abs(x).max(axis=-1, keepdims=True) / np.float32(127)
    codes = round_half_away(x * _inverse(factors)).astype(np.int8)
    return np.concatenate([factors.astype("<f2").view(np.uint8), codes.view(np.uint8)], axis=-1)


ENCODERS: Mapping[str, Callable[[NDArray[np.float32]], NDArray[np.uint8]]] = {"ggml_q4_0": _q4_0, "ggml_q8_0": _q8_0}
"""Encoders of float32 ``[…, blocks, 32]`` to ``[…, blocks, bytes per block]``, by element type."""


def four_bit_groups(x: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float16]]:
    """Return codes from -7 to 7 of groups ``[…, elements]``, and the groups' factors ``[…, 1]``."""
    factors = (np.abs(x).max(axis=-1, keepdims=True) / np.float32(7)).astype(np.float16)
    codes = np.clip(round_half_away(x * _inverse(factors.astype(np.float32))), -7, 7)
    return codes.astype(np.int8), factors


def _inverse(factors: NDArray[np.float32]) -> NDArray[np.float32]:
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.float32(1) / factors
    return np.where(np.isfinite(inverse), inverse, np.float32(0))


def quantize_blocks(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """Round float32 rows ``[N, K]`` to values of 8-bit blocks (``ggml_q8_0``). K is a multiple of 32.

    Products with block weights are defined on these values. Codes are computed in float32. The factor of a block is
    then rounded to half precision.
    """
    blocks = x.reshape(len(x), -1, BLOCK_ELEMENTS)
    factors = np.abs(blocks).max(axis=-1, keepdims=True, initial=0) / np.float32(127)
    with np.errstate(divide="ignore", over="ignore"):
        inverse = np.where(factors == 0, np.float32(0), np.float32(1) / factors)
        codes = round_half_away(blocks * inverse).astype(np.float32)
        return np.asarray(codes * factors.astype(np.float16).astype(np.float32)).reshape(x.shape)


_WORD_BITS = 32


def decode_weights(
    scales: NDArray[Any],
    words: NDArray[np.int32],
    clusters: NDArray[Any],
    hidden: int,
    *,
    lowest_first: bool,
    one_is_plus: bool,
) -> NDArray[np.float32]:
    """Return float32 weights ``[O, hidden]`` from ``scales [R]``, ``words [R, W]`` and ``clusters [K, 2]``.

    A row is a sum of a few scaled vectors of signs. Rows form clusters of ``(planes, rows)``. A cluster stores planes
    in order, and a plane stores rows in order. The signs of a row are bits of int32 words. Scales are in the same
    order. ``hidden`` is at most ``32 * W``. The first sign of a word is its lowest bit if ``lowest_first``, else its
    highest bit. A set bit means +1 if ``one_is_plus``, else -1.
    """
    shifts = np.arange(_WORD_BITS, dtype=np.uint32)
    shifts = shifts if lowest_first else shifts[::-1]
    parts, base = [], 0
    for planes, rows in clusters.tolist():
        stored = slice(base, base + planes * rows)
        bits = words[stored].view(np.uint32)[:, :, None] >> shifts & np.uint32(1)
        signs = (bits.astype(np.int8) * 2 - 1).reshape(planes, rows, words.shape[1] * _WORD_BITS)[:, :, :hidden]
        factors = scales.reshape(-1)[stored].reshape(planes, rows)
        parts.append(np.einsum("qo,qoh->oh", factors if one_is_plus else -factors, signs, dtype=np.float32))
        base = stored.stop
    return np.concatenate(parts).astype(np.float32) if parts else np.zeros((0, hidden), np.float32)
