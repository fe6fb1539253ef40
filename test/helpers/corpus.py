"""The conformance corpus of the test data folder: its models as parameters, and how close results must be."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.data import MISSING, Array, data_folder


@dataclass(frozen=True)
class Case:
    """One model of the corpus; tolerances are for its float outputs."""

    model: Path
    data: Path  # absent for models that can only be imported
    rtol: float
    atol: float
    kind: str = ""  # element types that it computes with, as the corpus says: float, int8, uint8, int, mixed ...


def cases(wanted: Callable[[Case], bool]) -> list[Any]:
    """The ``wanted`` models of the corpus as parameters; one skipped parameter where there is no corpus."""
    root = data_folder()
    if root is None or not (root / "conformance").is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=MISSING), id="no-test-data")]
    corpus = root / "conformance"
    with (corpus / "index.csv").open(newline="") as stream:
        found = [
            Case(
                corpus / "models" / f"{row['name']}.circle",
                corpus / "data" / f"{row['name']}.npz",
                float(row["rtol"] or 1e-4),
                float(row["atol"] or 1e-5),
                row["kind"],
            )
            for row in csv.DictReader(stream)
        ]
    return [pytest.param(case, id=case.model.stem) for case in found if wanted(case)]


def assert_close(found: Array, expected: Array, case: Case) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=case.rtol, atol=case.atol)
    else:
        np.testing.assert_array_equal(found, expected)
