"""The help table: which changes are tried, and which are kept."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import squeeze_excite
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer.driver import Driver
from odc_mlir.quantizer.evaluator import Folds, MeasuredCandidate
from odc_mlir.quantizer.help import OF_VALUES, OF_WEIGHTS
from odc_mlir.quantizer.measurement import Measurement
from odc_mlir.quantizer.models import FloatModel, Recipe
from odc_mlir.quantizer.quantize import quantize


def _trial() -> Any:
    return MeasuredCandidate(None, Recipe(), SimpleNamespace(), SimpleNamespace())  # type: ignore[arg-type]


@pytest.mark.parametrize("holds", [True, False])
def test_corrections_after_a_search_keep_what_it_confirmed(holds: bool) -> None:
    found, better = _trial(), _trial()
    driver: Any = object.__new__(Driver)
    driver.options, driver.search_limits = SimpleNamespace(max_bytes=None, max_time_ms=None), ()
    driver.evaluator = SimpleNamespace(steps=[{"kept": True}])
    driver.precision_search = SimpleNamespace(chosen=SimpleNamespace(precisions={}), replace_chosen=lambda tried: None)
    driver.tried = lambda precisions, candidate: SimpleNamespace(holds=lambda limits: True)
    driver.holds_unseen = lambda candidate: holds or candidate is found.candidate
    made = driver._corrected(SimpleNamespace(tried=lambda *given: better), found)
    assert made is (better if holds else found).candidate
    assert driver.evaluator.steps[-1]["kept"] is holds


def test_rows_of_help_have_names_of_their_own() -> None:
    for rows in (OF_VALUES, OF_WEIGHTS):
        assert len({row.name for row in rows}) == len(rows)


def test_weights_that_are_rounded_alone_still_get_scales_that_fit() -> None:
    """Neither the scales nor corrections help enough alone for the samples held back to tell."""
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(bytes(write_model(export_model(module))), calibration=samples, scheme="int8_wo")
    kept = {step["step"]: step["kept"] for step in made.verdict["steps"]}
    assert kept["rounding"]
    assert not kept["scales"]
    assert kept["scales, rounding, correction"]


@pytest.mark.parametrize("count", [8, 17, 64])
def test_samples_round_weights_alone_unless_that_does_harm(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those held back leave gains in doubt."""
    monkeypatch.setattr(Measurement, "better_than", lambda *_: False)
    file, samples = _dense_of_noise(count)
    choices = quantize(file, scheme="int8_wo", calibration=samples).verdict["choices"]
    assert choices["rounding"]
    assert choices["correction"]


def test_rounding_that_does_harm_is_not_kept_of_few_samples_either(monkeypatch: pytest.MonkeyPatch) -> None:
    def judged(folds: Folds, model: FloatModel, recipe: Recipe, statistics: Any) -> Any:
        return SimpleNamespace(better_than=lambda other, least_db: not recipe.rounding)

    monkeypatch.setattr(Measurement, "better_than", lambda *_: False)
    monkeypatch.setattr(Folds, "measure", judged)
    file, samples = _dense_of_noise(8)
    assert not quantize(file, scheme="int8_wo", calibration=samples).verdict["choices"]["rounding"]


@pytest.mark.parametrize(
    ("scheme", "correction", "rounds"),
    [("int8", "on", True), ("int8", "off", True), ("int16x8", "on", False), ("int16x8", "off", True)],
)
def test_rounding_is_presumed(scheme: str, correction: str, rounds: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside a correction where values have 8 bits."""
    monkeypatch.setattr(Measurement, "better_than", lambda *_: False)
    file, samples = _dense_of_noise(17)
    made = quantize(file, scheme=scheme, calibration=samples, correction=correction, mixed="off")
    assert made.verdict["choices"]["rounding"] is rounds


def _dense_of_noise(count: int) -> tuple[bytes, list[list[np.ndarray]]]:
    rng, builder = np.random.default_rng(7), ModelBuilder()
    x, y = builder.tensor("x", (1, 16)), builder.tensor("y", (1, 16))
    weights = rng.normal(size=(16, 16)).astype(np.float32)
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("w", (16, 16), data=weights), -1], [y])
    samples = [[rng.normal(size=(1, 16)).astype(np.float32)] for _ in range(count)]
    return bytes(model_bytes(builder.finish([x], [y]))), samples
