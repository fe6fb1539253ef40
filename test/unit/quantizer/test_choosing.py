"""What must be shown before help is kept, beyond a gain on the samples held back."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

import odc_mlir
from helpers.float_models import squeeze_excite
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.choosing import Choosing
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.making import BestCandidate
from odc_mlir.quantizer.stages import Recipe


def _measured(*, holds: bool) -> Any:
    return SimpleNamespace(confirms=lambda other, least_db: holds)


def _choice(ranges: str) -> Any:
    return BestCandidate(None, Recipe(ranges=ranges), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize("of_all", [True, False])
def test_other_ranges_must_be_as_good_on_all_samples(of_all: bool) -> None:
    """Few of those held back may have what ranges clip."""
    making = SimpleNamespace(
        options=None,
        data=SimpleNamespace(separate=False),
        foreseen=0,
        measured_by_halves=lambda model, candidate: _measured(holds=True),
        measured_itself=lambda candidate: _measured(holds=of_all),
    )
    choosing = Choosing(making, {}, [])  # type: ignore[arg-type]
    assert choosing._holds_others(_choice("percentile"), _choice("minmax")) is of_all


@pytest.mark.parametrize("holds", [True, False])
def test_corrections_after_a_search_keep_what_it_confirmed(holds: bool) -> None:
    found, better = _choice("minmax"), _choice("minmax")
    driver: Any = object.__new__(Driver)
    driver.options, driver.search_limits = SimpleNamespace(max_bytes=None), ()
    driver.making = SimpleNamespace(steps=[{"kept": True}])
    driver.widening = SimpleNamespace(chosen=SimpleNamespace(precisions={}), replace_chosen=lambda tried: None)
    driver._tried = lambda precisions, candidate: SimpleNamespace(holds=lambda limits: True)
    driver._holds_unseen = lambda candidate: holds or candidate is found.candidate
    made = driver._corrected(SimpleNamespace(better=lambda *given: better), found)
    assert made is (better if holds else found).candidate
    assert driver.making.steps[-1]["kept"] is holds


def test_weights_that_are_rounded_alone_still_get_scales_that_fit() -> None:
    """Neither the scales nor corrections help enough alone for the samples held back to tell."""
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(bytes(write_model(export_model(module))), calibration=samples, scheme="int8_wo")
    kept = {step["step"]: step["kept"] for step in made.verdict["steps"]}
    assert kept["rounding"]
    assert not kept["scales"]
    assert kept["scales, rounding, correction"]
