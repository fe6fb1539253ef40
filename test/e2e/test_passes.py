"""The conformance corpus before and after passes on float models: nets that have something to fuse, and some others."""

from __future__ import annotations

import pytest

import odc_mlir
from helpers.corpus import Case, assert_close, cases
from helpers.data import golden_samples
from helpers.equivalence import results_of, transformed
from odc_mlir import pipelines

PASSES = f"circle-simplify,{','.join(pipelines.QUANTIZE_PREPARE)},circle-equalize-channels"
MADE_TO_BE_CHANGED = ("Net_", "Part_", "REGRESS_", "CSE_")
EVERY = 8  # one in so many of the others


def _chosen(case: Case) -> bool:
    name = case.model.stem
    return case.data.is_file() and (name.startswith(MADE_TO_BE_CHANGED) or sum(name.encode()) % EVERY == 0)


@pytest.mark.parametrize("case", cases(_chosen))
def test_outputs_stay(case: Case) -> None:
    after = transformed(odc_mlir.load(case.model), PASSES)
    for sample in golden_samples(case.data):
        for found, expected in zip(results_of(after, sample.inputs), sample.outputs, strict=True):
            assert_close(found, expected, case)
