"""The conformance corpus: small models of every operator, run by the host kernels.

A model whose operators are all in the table must give the expected values, or be refused for a reason that stands
below; a model with an operator that the table lacks must be refused by name. Nothing is approximated, nothing crashes.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import MISSING, Array, data_folder, golden_samples
from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.ops import all_specs

# Models with known operators that are refused all the same, and what the message says.
REFUSED = {
    "CircleFullyConnected_U4_002": "float32 activations with uint4 weights",
    "FullyConnected_I4_002": "float32 activations with int4 weights",
    "FullyConnected_U8_000": "float32 activations with uint8 weights",
    "Logistic_U8_000": "zero point -128 of 'ifm' is outside uint8's 0 to 255",
}


@dataclass(frozen=True)
class Case:
    """One model of the corpus; tolerances are for its float outputs."""

    name: str
    operators: frozenset[str]
    corpus: Path
    rtol: float
    atol: float

    @property
    def model(self) -> Path:
        return self.corpus / "models" / f"{self.name}.circle"

    @property
    def data(self) -> Path:
        return self.corpus / "data" / f"{self.name}.npz"


def cases() -> list[Any]:
    """Every model of the corpus as a parameter; one skipped parameter where there is no corpus."""
    root = data_folder()
    if root is None or not (root / "conformance").is_dir():
        return [pytest.param(None, marks=pytest.mark.skip(reason=MISSING), id="no-test-data")]
    corpus = root / "conformance"
    with (corpus / "index.csv").open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    return [
        pytest.param(
            Case(
                row["name"],
                frozenset(row["ops"].split()),
                corpus,
                float(row["rtol"] or 1e-4),
                float(row["atol"] or 1e-5),
            ),
            id=row["name"],
        )
        for row in rows
    ]


def assert_close(found: Array, expected: Array, case: Case) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind == "f":
        np.testing.assert_allclose(found, expected, rtol=case.rtol, atol=case.atol)
    else:
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("case", cases())
def test_host(case: Case) -> None:
    missing = sorted(case.operators - set(all_specs()))
    samples = list(golden_samples(case.data)) if case.data.is_file() else []
    if missing or case.name in REFUSED:
        with pytest.raises(OdcError if case.name in REFUSED else UnsupportedError) as raised:
            odc_mlir.run(case.model, samples[0].inputs if samples else [], backend="host")
        assert case.name not in REFUSED or REFUSED[case.name] in str(raised.value)
        return
    for sample in samples:
        outputs = odc_mlir.run(case.model, sample.inputs, backend="host")
        for found, expected in zip(outputs, sample.outputs, strict=True):
            assert_close(found, expected, case)


@pytest.mark.parametrize("case", cases())
def test_import(case: Case) -> None:
    """Every model becomes a module that verifies, whether it can be run or not."""
    odc_mlir.import_model(case.model).verify()
