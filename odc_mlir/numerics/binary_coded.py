"""Binary-coded weights: each row is a sum of a few vectors of signs, each with its own scale.

Rows come in clusters of ``(planes, rows)``. A cluster stores plane by plane, in each plane row by row, the signs of a
row as bits of int32 words; scales ``[planes * rows]`` are in the same order.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

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

    ``hidden`` is at most ``32 * W``.

    ``lowest_first``: the first sign of a word is its lowest bit, else its highest. ``one_is_plus``: a set bit means +1,
    else -1.
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
