"""Every model that compiles explains itself, by numbers that hold together.

Models of the corpus that compute with integers are compiled in test_npu_conformance.py, and those of the zoo in
test_npu.py, where their reports are checked too.
"""

from __future__ import annotations

import pytest

import odc_mlir
from helpers.corpus import Case, cases
from helpers.reports import check_report
from odc_mlir.errors import OdcError
from odc_mlir.runtime.report import build_report


@pytest.mark.parametrize("case", cases(lambda case: case.kind in ("float", "string")))
def test_corpus(case: Case) -> None:
    try:
        package = odc_mlir.compile(case.model)
    except OdcError:
        return  # what compiles is another test's concern
    check_report(build_report(package, quick=True))
