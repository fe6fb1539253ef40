"""What takes long is done once: no model is made twice, and none is refined or placed where that decides nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import odc_mlir
from helpers.float_models import squeeze_excite
from odc_mlir.quantizer.building import CandidateBuilder
from odc_mlir.quantizer.stages import Candidate, FloatModel, Recipe, Statistics
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass

TARGET = "npu-256"


@pytest.fixture(scope="module")
def built() -> list[tuple[Any, ...]]:
    """What the models were made of that one search made."""
    found: list[tuple[Any, ...]] = []
    build = CandidateBuilder.build

    def spy(self: CandidateBuilder, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Candidate:
        found.append((self, model, recipe, statistics, len(self._samples)))
        return build(self, model, recipe, statistics)

    module, samples = squeeze_excite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CandidateBuilder, "build", spy)
        odc_mlir.quantize(module, calibration=samples, target=TARGET, metric="sqnr", limit=50.0, correction="on")
    return found


def test_no_model_is_made_twice(built: Sequence[tuple[Any, ...]]) -> None:
    made = Counter((id(a), id(model), recipe, id(by), count) for a, model, recipe, by, count in built)
    assert len(made) > 10
    assert max(made.values()) == 1


def test_models_that_only_tell_what_layers_cost_are_not_refined(built: Sequence[tuple[Any, ...]]) -> None:
    layers = max(len(recipe.precisions) for _, _, recipe, _, _ in built)
    all_wide = [recipe for _, _, recipe, _, _ in built if len(recipe.precisions) == layers]
    assert [recipe.correction for recipe in all_wide[:2]] == [False, False]


def test_what_the_target_says_of_a_model_is_asked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples = squeeze_excite()
    model = odc_mlir.quantize(module, calibration=samples, help=False).model
    plain, planned = (TargetRules(TARGET).judge(model, plan=plan) for plan in (False, True))
    assert planned.time_ns
    assert plain.time_ns is None
    rules, applied = TargetRules(TARGET), []
    apply = NpuChooseSegmentsPass.apply

    def spy(self: ModulePass, context: Context, op: ModuleOp) -> None:
        applied.append(op)
        apply(self, context, op)  # type: ignore[arg-type]

    monkeypatch.setattr(NpuChooseSegmentsPass, "apply", spy)
    assert [rules.judge(model, plan=plan) for plan in (True, False, True, False)] == [planned, plain] * 2
    assert len(applied) == 1
