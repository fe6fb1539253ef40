"""Samples that are there more than once: they count as several, and say what one does."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.data import Data


def repeated(data: Data) -> list[str]:
    """What there is to say of samples to check on that are alike, or that ranges and codes are chosen by as well."""
    if data.held is data.fit:
        return []  # which is said where they are divided
    found, count = [], len(data.held)
    held, known = [_digest(sample) for sample in data.held], {_digest(sample) for sample in data.fit}
    if (seen := sum(key in known for key in held)) > 0:
        found.append(
            f"{seen} of {count} samples that the model is checked on are also among those that it is made by: "
            "the verdict says less of samples that it has not seen"
        )
    if (alike := count - len(set(held))) > 0:
        found.append(f"{alike} of {count} samples that the model is checked on repeat others, and say nothing new")
    return found


def all_are_repeated(data: Data) -> bool:
    """Whether all samples to check on are also among those that the model is made by."""
    known = {_digest(sample) for sample in data.fit}
    return data.held is data.fit or all(_digest(sample) in known for sample in data.held)


def _digest(sample: Sequence[Array]) -> bytes:
    """What two samples have alike if they are the same."""
    hashed = hashlib.blake2b(digest_size=16)
    for array in sample:
        hashed.update(f"{array.shape}{array.dtype}".encode())
        hashed.update(repr(array.tolist()).encode() if array.dtype.hasobject else array.tobytes())
    return hashed.digest()
