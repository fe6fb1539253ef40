"""The conformance corpus: small models of every operator, imported, and run by the host kernels."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import MISSING, Array, data_folder, golden_samples


@dataclass(frozen=True)
class Case:
    """One model of the corpus; tolerances are for its float outputs."""

    model: Path
    data: Path  # absent for models that can only be imported
    rtol: float
    atol: float


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


@pytest.mark.parametrize("case", cases(lambda case: case.data.is_file()))
def test_host(case: Case) -> None:
    for sample in golden_samples(case.data):
        outputs = odc_mlir.run(case.model, sample.inputs, backend="host")
        for found, expected in zip(outputs, sample.outputs, strict=True):
            assert_close(found, expected, case)


@pytest.mark.parametrize("case", cases(lambda case: True))
def test_import(case: Case) -> None:
    """Every model becomes a module that verifies, whether it can be run or not."""
    odc_mlir.import_model(case.model).verify()
