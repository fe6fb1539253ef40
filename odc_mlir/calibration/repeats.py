"""Samples that are there more than once: as many as there are of one, they are one observation."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from odc_mlir.ops.spec import Array

Sample = Sequence[Array]


def distinct(samples: Sequence[Sample], labels: Array | None = None) -> list[int]:
    """The places of the samples, of each the first.

    A sample with two different labels counts as two: one of them is wrong, which scores should show.
    """
    keys = [(digest(sample), None if labels is None else digest([labels[i]])) for i, sample in enumerate(samples)]
    first = {key: place for place, key in reversed(list(enumerate(keys)))}
    return sorted(first.values())


def digest(sample: Sample) -> bytes:
    """What two samples have alike if they are the same: equal numbers, as 0 and -0 are, or the same NaN."""
    hashed = hashlib.blake2b(digest_size=16)
    for array in map(np.asarray, sample):
        hashed.update(f"{array.shape}{array.dtype}".encode())
        if array.dtype.hasobject:
            hashed.update(repr(array.tolist()).encode())
        else:
            plain = array + array.dtype.type(0) if array.dtype.kind in "fc" else array  # -0 + 0 is 0
            hashed.update(np.ascontiguousarray(plain).tobytes())
    return hashed.digest()
