"""How good outputs are, where the right answers are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array


def score(outputs: Sequence[Array], expected: Array) -> tuple[str, float]:
    """A metric's name and value for one output per sample.

    Integer labels, one per sample: ``top1_percent``, ties going to the lower class. Otherwise arrays of the outputs'
    size: ``psnr_db`` over all elements, for values between 0 and 1. Raises InputError when neither fits.
    """
    if len(outputs) != len(expected):
        raise InputError(f"there are {len(expected)} labels for {len(outputs)} samples")
    if expected.ndim == 1 and expected.dtype.kind in "iu":
        found = np.array([int(np.argmax(output)) for output in outputs])
        return "top1_percent", 100.0 * float(np.mean(found == expected))
    if expected.dtype.kind != "f" or any(o.size != e.size for o, e in zip(outputs, expected, strict=True)):
        raise InputError("the labels are neither classes nor arrays like the first output")
    pairs = zip(outputs, expected, strict=True)
    squares = np.concatenate([(o.ravel().astype(np.float64) - e.ravel().astype(np.float64)) ** 2 for o, e in pairs])
    with np.errstate(divide="ignore"):
        return "psnr_db", float(10.0 * np.log10(1.0 / squares.mean()))
