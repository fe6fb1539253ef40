"""The conformance corpus: small models of every operator, imported, and run by the host kernels."""

from __future__ import annotations

import pytest

import odc_mlir
from helpers.corpus import Case, assert_close, cases
from helpers.data import golden_samples


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
