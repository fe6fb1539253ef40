"""Judging on all samples by models that each lack some of them."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.float_models import rescaled_mobilenet
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.quantizer import refinement
from odc_mlir.quantizer.evaluator import JUDGES, Evaluator, Folds
from odc_mlir.quantizer.execution import Stepper
from odc_mlir.quantizer.models import FloatModel, Recipe, prepare
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.reference import Reference
from odc_mlir.quantizer.refinement import Samples
from odc_mlir.quantizer.samples import split
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.recording import record


@pytest.fixture(name="made", scope="module")
def _made() -> tuple[Graph, FloatModel, list[list[np.ndarray]]]:
    module, samples = rescaled_mobilenet()
    return build_graph(export_model(module)), prepare(module), [list(sample) for sample in samples][:10]


def test_a_sample_is_judged_by_a_model_without_it(made: tuple[Graph, FloatModel, list[list[np.ndarray]]]) -> None:
    """A loud sample is clipped by the one model that lacks it, and widens the ranges of the others."""
    original, model, samples = made
    loud = [[64.0 * value for value in samples[0]], *samples[1:]]
    options = make_options(scheme="int8")
    noise, quiet = (
        Folds(Reference(original, every), options).judge(model, Recipe()).results.noise[0] for every in (loud, samples)
    )
    assert noise[0] > 100 * quiet[0]
    others = np.arange(len(samples)) % JUDGES != 0  # judged by models that know the loud one
    assert np.all(noise[others] > quiet[others])


def test_verdicts_are_by_models_that_lack_few_samples_and_choices_by_two(
    made: tuple[Graph, FloatModel, list[list[np.ndarray]]],
) -> None:
    """Of 16 samples one is loud: what judges it does not know it, most others know it as the result does."""
    original, _, samples = made
    every = [[(1.0 + 0.01 * place) * value for value in samples[place % len(samples)]] for place in range(16)]
    loud = split(every).held[3][0]
    every = [[64.0 * value if value is loud else value for value in sample] for sample in every]
    data, options = split(every), make_options(scheme="int8")
    model = prepare(rescaled_mobilenet()[0])
    evaluator = Evaluator(original, model, data, options, None)
    evaluator.record(model)
    built = evaluator.built(model, Recipe())
    itself = built.measured.results.noise[0]
    of_all = evaluator.measured_itself(built.candidate).results.noise[0]
    found = evaluator.measured_unseen(model, built.candidate).results.noise[0]
    place = next(i for i, sample in enumerate(evaluator.judging.samples) if sample[0] is data.held[3][0])
    assert found[place] > 10 * of_all[place]
    knowing = np.arange(len(found)) % JUDGES != place % JUDGES
    assert (len(found), knowing.sum()) == (16, 14)
    assert np.all(found[knowing] > of_all[knowing] / 2)
    # choices are judged by two models: all of the half with the loud one is judged by what does not know it
    halves = evaluator.measured_by_halves(model, built.candidate).results.noise[0]
    others = np.arange(len(halves)) != 3
    quiet = np.arange(len(halves)) % 2 == 1
    assert halves[3] > 10 * itself[3]
    assert np.all(halves[quiet & others] < 0.9 * itself[quiet & others])
    assert np.all(halves[~quiet] > itself[~quiet] / 2)


def test_with_statistics_nothing_is_clipped(made: tuple[Graph, FloatModel, list[list[np.ndarray]]]) -> None:
    original, model, samples = made
    loud = [[64.0 * value for value in samples[0]], *samples[1:]]
    folds = Folds(Reference(original, loud), make_options(scheme="int8"))
    every = record(HostExecutor(model.graph), loud).statistics()
    alone, known = folds.judge(model, Recipe()), folds.measure(model, Recipe(), every)
    assert known.results.noise[0][0] < alone.results.noise[0][0] / 10


def test_there_are_no_more_folds_than_samples(made: tuple[Graph, FloatModel, list[list[np.ndarray]]]) -> None:
    original, model, samples = made
    folds = Folds(Reference(original, samples[:2]), make_options(scheme="int8"))
    assert folds.count(JUDGES) == 2
    assert folds.judge(model, Recipe()).reals[0]


def test_what_a_model_shows_its_judges_is_learnt_once(
    made: tuple[Graph, FloatModel, list[list[np.ndarray]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The float model runs once for all judges, and not again for those of other ranges, who find the same codes."""
    original, model, samples = made
    recipes = [Recipe(rounding=True, correction=True, headroom=part) for part in (0.0, 0.1)]
    options, runs = make_options(scheme="int8"), []
    anew = [Folds(Reference(original, samples), options).judge(model, recipe) for recipe in recipes]

    class Spy(Stepper):
        def __init__(self, graph: Graph, samples: Samples) -> None:
            runs.append(graph)
            super().__init__(graph, samples)

    monkeypatch.setattr(refinement, "Stepper", Spy)
    folds = Folds(Reference(original, samples), options)
    for recipe, expected in zip(recipes, anew, strict=True):
        found = folds.judge(model, recipe)
        np.testing.assert_array_equal(found.results.noise, expected.results.noise)
    assert sum(graph is model.graph for graph in runs) == 1
    assert len(runs) == 1 + 2 * JUDGES
