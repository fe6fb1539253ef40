"""What takes long is done once: no model is made twice, and none is refined or placed where that decides nothing."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

import odc_mlir
from helpers.float_models import squeeze_excite
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer import candidates
from odc_mlir.quantizer.candidates import CandidateBuilder
from odc_mlir.quantizer.models import Candidate, FloatModel, Recipe, prepare
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.ranges import Statistics
from odc_mlir.quantizer.refinement import RefinementCache
from odc_mlir.quantizer.target import TargetRules
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.recording import record
from odc_mlir.transforms.partition.npu_choose_segments import NpuChooseSegmentsPass

TARGET = "npu-256"


class _Spy:
    """What the models of one search were made of: all of them, and those that were not there already."""

    def __init__(self) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.rounded: list[tuple[Any, ...]] = []


@pytest.fixture(scope="module")
def search() -> _Spy:
    found, build, rounded = _Spy(), CandidateBuilder.build, CandidateBuilder._rounded

    def note_asked(
        self: CandidateBuilder,
        model: FloatModel,
        recipe: Recipe,
        statistics: Statistics,
        known: RefinementCache | None = None,
    ) -> Candidate:
        found.asked.append((self, model, recipe, statistics))
        return build(self, model, recipe, statistics, known)

    def note_rounded(self: CandidateBuilder, model: FloatModel, recipe: Recipe, statistics: Statistics) -> Candidate:
        found.rounded.append((self, model, recipe, statistics))
        return rounded(self, model, recipe, statistics)

    module, samples = squeeze_excite()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CandidateBuilder, "build", note_asked)
        patch.setattr(CandidateBuilder, "_rounded", note_rounded)
        odc_mlir.quantize(module, calibration=samples, target=TARGET, metric="sqnr", limit=50.0, correction="on")
    return found


def test_models_that_differ_in_refined_codes_alone_are_rounded_once(search: _Spy) -> None:
    made = Counter((id(builder), id(model), recipe, id(by)) for builder, model, recipe, by in search.rounded)
    assert max(made.values()) == 1
    assert len(search.asked) > len(made) > 10
    assert not any(recipe.rounding or recipe.correction for _, _, recipe, _ in search.rounded)


def test_models_that_only_tell_what_layers_cost_are_not_refined(search: _Spy) -> None:
    layers = max(len(recipe.precisions) for _, _, recipe, _ in search.asked)
    all_wide = [recipe for _, _, recipe, _ in search.asked if len(recipe.precisions) == layers]
    assert [recipe.correction for recipe in all_wide[:2]] == [False, False]


def test_of_candidates_without_refined_codes_the_last_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    module, samples = squeeze_excite()
    model = prepare(module)
    model.records = record(HostExecutor(model.graph), samples)
    builder = CandidateBuilder(make_options(scheme="int8"), samples)
    recipes = [Recipe(headroom=part) for part in (0.0, 0.1, 0.2)]

    def built(number: int) -> Candidate:
        return builder.build(model, recipes[number], model.fitted)

    first = built(0)
    size = builder._unrefined[next(iter(builder._unrefined))][-1]
    assert size > 0
    monkeypatch.setattr(candidates, "_MOST_KEPT", 2 * size)
    second = built(1)
    assert built(0) is first
    built(2)
    assert built(0) is first
    again = built(1)
    assert again is not second
    assert write_model(export_model(again.module)) == write_model(export_model(second.module))
    monkeypatch.setattr(candidates, "_MOST_KEPT", 0)
    assert built(2) is built(2)


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
