"""How good outputs are, where the right answers are known."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.errors import InputError
from odc_mlir.ops.spec import Array

_MOST_CLASSES = 1 << 31
LOWER_IS_BETTER = frozenset({"rmse", "mae"})


def score(outputs: Sequence[Array], expected: Array) -> tuple[str, float]:
    """A metric's name and value for one output per sample: the first of :func:`scores`."""
    return next(iter(scores(outputs, expected).items()))


def scores(outputs: Sequence[Array], expected: Array) -> dict[str, float]:
    """The measures that answers of this kind have, the one that decides first.

    Classes (see :func:`as_classes`), one per sample or one for each row of an output's last axis: ``top1_percent``,
    ties going to the lower class; the same for integers where the output has as many. Several numbers between 0 and 1
    for each sample, as pictures have them: ``psnr_db``. Other numbers, as many as the output has: ``rmse``, ``mae`` and
    ``r2``, the share of the answers' variance that is explained. Raises InputError when nothing of that fits.
    """
    if len(outputs) != len(expected):
        raise InputError(f"there are {len(expected)} labels for {len(outputs)} samples")
    expected = as_classes(outputs, expected)
    if (chosen := chosen_classes(outputs, expected)) is not None:
        return {"top1_percent": 100.0 * float(np.mean(chosen == expected.ravel()))}
    if expected.dtype.kind not in "fiu" or any(o.size != e.size for o, e in zip(outputs, expected, strict=True)):
        raise InputError(
            "the labels are neither class numbers nor arrays like the first output",
            hint="give a whole number from 0 for each sample or row, one-hot rows, or arrays of the output's shape",
        )
    given = np.stack([o.ravel().astype(np.float64) for o in outputs])
    wanted = expected.reshape(len(expected), -1).astype(np.float64)
    squares = float(np.square(given - wanted).mean())
    if expected.dtype.kind == "f" and wanted.shape[1] > 1 and wanted.min() >= 0.0 and wanted.max() <= 1.0:
        with np.errstate(divide="ignore"):
            return {"psnr_db": float(-10.0 * np.log10(squares))}
    spread = float(np.square(wanted - wanted.mean(axis=0)).mean())
    r2 = 1.0 - squares / spread if spread else float("nan")
    return {"rmse": float(np.sqrt(squares)), "mae": float(np.abs(given - wanted).mean()), "r2": r2}


def as_classes(outputs: Sequence[Array], expected: Array) -> Array:
    """``expected`` as class numbers, int64, where these are given as one-hot rows or as whole reals; else as it is.

    One-hot rows are as long as the outputs' last axis, each of zeros and a single one.
    """
    if len(outputs) != len(expected) or not len(outputs) or expected.dtype.kind not in "biuf":
        return expected
    width = _classes(outputs[0])
    if width and all(o.size == e.size and _classes(o) == width for o, e in zip(outputs, expected, strict=True)):
        rows = expected.reshape(-1, width)
        is_one_hot = ((rows == 0) | (rows == 1)).all() and (np.count_nonzero(rows, axis=1) == 1).all()
        return rows.argmax(axis=1).reshape(len(expected), -1) if is_one_hot else expected
    if expected.dtype.kind == "f" and _are_classes(outputs, expected):
        is_whole = (expected == np.floor(expected)).all() and np.abs(expected).max() < _MOST_CLASSES
        return expected.astype(np.int64) if is_whole else expected
    return expected


def chosen_classes(outputs: Sequence[Array], expected: Array) -> Array | None:
    """The answer, one for each element of ``expected``; None where these are no classes.

    That is the place of the largest element, or what an output of integers is itself.
    """
    if expected.dtype.kind not in "iu":
        return None
    if all(o.dtype.kind in "iu" and o.size == e.size for o, e in zip(outputs, expected, strict=True)):
        return np.concatenate([o.ravel() for o in outputs])
    if not _are_classes(outputs, expected):
        return None
    if _has_rows(outputs, expected):
        return np.concatenate([o.reshape(-1, o.shape[-1]).argmax(axis=1) for o in outputs])
    return np.array([int(np.argmax(o)) for o in outputs])


def _are_classes(outputs: Sequence[Array], expected: Array) -> bool:
    """Whether there are as many labels as rows of the outputs, or one for each output of several elements."""
    return _has_rows(outputs, expected) or (expected.ndim == 1 and all(o.size > 1 for o in outputs))


def _has_rows(outputs: Sequence[Array], expected: Array) -> bool:
    return all(_classes(o) * e.size == o.size for o, e in zip(outputs, expected, strict=True))


def _classes(output: Array) -> int:
    return output.shape[-1] if output.ndim and output.shape[-1] > 1 else 0
