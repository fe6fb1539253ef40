"""Numbers that a quantised model does not give where the float model has some: an error as large as what is missing.

NaN and infinities, as behind a division by what rounds to zero, have no distance from anything. Without them a model
that gives next to nothing would be measured by the few values that are left.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.ops.spec import Array


def tells(outputs: Sequence[Array]) -> bool:
    """Whether there is something to measure in each of a sample's ``outputs``: finite values, and none that is NaN.

    Infinities may be meant, as where a mask hides scores; what is no number has no distance, and no largest one.
    """
    reals = (array for array in outputs if array.dtype.kind == "f" and array.size)
    return all(bool(np.isfinite(array).any()) and not np.isnan(array).any() for array in reals)


def nothing(expected: Array) -> Array:
    """What a model has instead of ``expected`` of a sample that a kernel refuses: no number, and no right answer."""
    if expected.dtype.kind in "biu":
        return np.asarray(np.bitwise_xor(expected, expected.dtype.type(1)))
    return np.full_like(expected, np.nan) if expected.dtype.kind == "f" else np.zeros_like(expected)


def completed(expected: Array, found: Array) -> tuple[Array, bool]:
    """``found`` with zeros for the numbers that it lacks beside ``expected``, and whether it lacks any."""
    if found.dtype.kind != "f" or found.shape != expected.shape:
        return found, False
    finite = np.isfinite(found)
    lacks = ~finite if finite.all() else ~finite & np.isfinite(expected)
    return (np.where(lacks, found.dtype.type(0), found), True) if lacks.any() else (found, False)


def all_completed(expected: Sequence[Array], found: Sequence[Array] | None) -> tuple[list[Array], bool]:
    """The same of all outputs of a sample; None of one that cannot be run."""
    pairs = list(map(completed, expected, map(nothing, expected) if found is None else found))
    return [array for array, _ in pairs], found is None or any(lacks for _, lacks in pairs)


def exceeds(expected: Array, found: Array) -> bool:
    """Whether ``found`` has numbers where ``expected`` has none."""
    if expected.dtype.kind != "f" or found.shape != expected.shape:
        return False
    finite = np.isfinite(expected)
    return not finite.all() and bool((np.isfinite(found) & ~finite).any())
