"""TensorFlow's random numbers: the counter-based generator Philox4x32-10, and distributions of its words.

Source: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). A generator yields blocks of four 32-bit
words. A draw of n numbers consumes whole blocks, so the next draw starts with a new block.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.pieces import row_slices

Array = NDArray[Any]

_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_WEYL = (0x9E3779B9, 0xBB67AE85)
_ROUNDS = 10
_WORD = np.uint64(32)
_MASK = np.uint64(0xFFFFFFFF)

# Blocks that TensorFlow's multinomial operator consumes per sample. Samples are rounded up to a multiple of 4.
_SKIPPED_PER_SAMPLE = 2 * 256

_CHUNK_BLOCKS = 1 << 15  # number of blocks computed at a time


@dataclass(slots=True)
class Philox:
    """Generator with a 64-bit ``key`` and the 128-bit ``counter`` of the next block."""

    key: int
    counter: int

    @staticmethod
    def seeded(seed: int, seed2: int) -> Philox:
        """Return TensorFlow Lite's generator. The first seed is the key, the second the counter's upper half."""
        return Philox(_narrow(seed) % (1 << 64), (_narrow(seed2) % (1 << 64)) << 64)

    def words(self, count: int) -> NDArray[np.uint32]:
        """Return ``[ceil(count / 4), 4]`` words and advance the counter."""
        blocks = -(-count // 4)
        result = np.empty((blocks, 4), np.uint32)
        for start in range(0, blocks, _CHUNK_BLOCKS):
            part = result[start : start + _CHUNK_BLOCKS]
            part[...] = _blocks(self.key, self.counter, len(part))
            self.counter = (self.counter + len(part)) % (1 << 128)
        return result


def _narrow(seed: int) -> int:
    """Return the low 32 bits as a signed number, as TensorFlow Lite stores seeds."""
    return (seed + (1 << 31)) % (1 << 32) - (1 << 31)


def _blocks(key: int, counter: int, count: int) -> Array:
    low = np.arange(count, dtype=np.uint64) + np.uint64(counter % (1 << 64))
    high = np.uint64(counter >> 64) + (low < np.uint64(counter % (1 << 64)))  # the low half may have wrapped
    words = [low & _MASK, low >> _WORD, high & _MASK, high >> _WORD]
    keys = [key % (1 << 32), key >> 32]
    for _ in range(_ROUNDS):
        products = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [
            (products[1] >> _WORD) ^ words[1] ^ np.uint64(keys[0]),
            products[1] & _MASK,
            (products[0] >> _WORD) ^ words[3] ^ np.uint64(keys[1]),
            products[0] & _MASK,
        ]
        keys = [(value + step) % (1 << 32) for value, step in zip(keys, _WEYL, strict=True)]
    return np.stack(words, axis=1).astype(np.uint32)


def scrambled(seed: int, seed2: int) -> Philox:
    """Return the generator of TensorFlow's stateless operators. The state is a block computed from the two seeds."""
    mixed = _blocks(0x02461E293EC8F720, seed % (1 << 64) | (seed2 % (1 << 64)) << 64, 1)[0].tolist()
    return Philox(mixed[0] | mixed[1] << 32, (mixed[2] | mixed[3] << 32) << 64)


def unit_floats(words: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Return 23 bits of each word as a float32 in [0, 1), in the memory of ``words``."""
    words &= np.uint32(0x7FFFFF)
    words |= np.uint32(127 << 23)
    units = words.view(np.float32)
    units -= np.float32(1)
    return units


def unit_doubles(words: NDArray[np.uint32]) -> NDArray[np.float64]:
    """Return 52 bits of each pair of neighbouring words as a float64 in [0, 1)."""
    pairs = words.reshape(-1, 2).astype(np.uint64)
    mantissa = ((pairs[:, 0] & np.uint64(0xFFFFF)) << _WORD) | pairs[:, 1] | np.uint64(1023 << 52)
    return np.asarray(mantissa.view(np.float64) - 1)


def uniform(generator: Philox, count: int) -> NDArray[np.float32]:
    """Return ``count`` numbers, uniform in [0, 1)."""
    return unit_floats(generator.words(count)).reshape(-1)[:count]


def normal(generator: Philox, count: int) -> NDArray[np.float32]:
    """Return ``count`` standard normal numbers, two from every two words (Box and Muller's method)."""
    units = unit_floats(generator.words(count)).reshape(-1, 2)
    for rows in row_slices(units):
        angle = np.float32(2 * math.pi) * units[rows, 1]
        radius = np.sqrt(np.float32(-2) * np.log(np.maximum(units[rows, 0], np.float32(1e-7))))
        units[rows, 0], units[rows, 1] = np.sin(angle) * radius, np.cos(angle) * radius
    return units.reshape(-1)[:count]


def multinomial(generator: Philox, logits: Array, samples: int) -> NDArray[np.int64]:
    """Draw classes ``[batch, samples]`` with the probabilities of ``logits [batch, classes]``.

    Each draw uses two words. Classes with non-finite logits are never drawn, and every row needs a finite logit.
    Afterwards the generator skips more words than the draws used, as TensorFlow's does.
    """
    words = Philox(generator.key, generator.counter).words(2 * logits.shape[0] * samples)
    generator.counter = (generator.counter + logits.shape[0] * -(-samples // 4) * 4 * _SKIPPED_PER_SAMPLE) % (1 << 128)
    units = unit_doubles(words)[: logits.shape[0] * samples].reshape(-1, samples)
    finite = np.isfinite(logits)
    largest = np.max(logits, axis=1, keepdims=True, initial=-np.inf, where=finite)
    weights = np.where(finite, np.exp(np.where(finite, logits, 0).astype(np.float64) - largest), 0)
    sums = np.cumsum(weights, axis=1)
    rows = [np.searchsorted(row, unit * row[-1], side="right") for row, unit in zip(sums, units, strict=True)]
    return np.array(rows, np.int64).reshape(-1, samples)
