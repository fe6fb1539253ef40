"""Samples that hardly vary outputs: what follows them is no proof, and what does not has failed."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.errors import AccuracyError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.policy.verdict import R2_LIMIT, describe
from odc_mlir.quantizer.quantize import Quantized
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.graph import build_graph

COUNT = 32
Samples = list[list[np.ndarray]]


def _file(builder: ModelBuilder, inputs: list[int], outputs: list[int]) -> bytes:
    model = builder.finish(inputs, outputs)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model))


@cache
def detector() -> bytes:
    """Four reals, and a score that the first input decides."""
    rng = np.random.default_rng(2)
    builder = ModelBuilder()
    widths = {"x": 8, "box": 4, "logit": 1, "score": 1}
    x, box, logit, score = (builder.tensor(name, (1, width)) for name, width in widths.items())
    weights = rng.normal(size=(4, 8)).astype(np.float32)
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("box/w", (4, 8), data=weights), -1], [box])
    of_first = np.float32([[12, *[0.0] * 7]])
    minus = builder.tensor("logit/b", (1,), data=np.float32([-8]))
    builder.operator("FULLY_CONNECTED", [x, builder.tensor("logit/w", (1, 8), data=of_first), minus], [logit])
    builder.operator("LOGISTIC", [logit], [score])
    return _file(builder, [x], [box, score])


def scenes(positive: int) -> Samples:
    """Samples of which every so many-th has something to detect."""
    rng = np.random.default_rng(4)
    made = [rng.normal(size=(1, 8)).astype(np.float32) for _ in range(COUNT)]
    for number, x in enumerate(made):
        x[0, 0] = 0.05 * x[0, 0] + (positive > 0 and number % positive == 0)
    return [[x] for x in made]


@cache
def classifier() -> tuple[bytes, Samples]:
    """Two layers, of which the last has shares of six classes."""
    rng = np.random.default_rng(6)
    builder = ModelBuilder()
    widths = {"x": 8, "hidden": 16, "logits": 6, "y": 6}
    x, hidden, logits, y = (builder.tensor(name, (1, width)) for name, width in widths.items())
    for name, source, result, shape in (("a", x, hidden, (16, 8)), ("b", hidden, logits, (6, 16))):
        weights, bias = rng.normal(size=shape).astype(np.float32), rng.normal(size=shape[:1]).astype(np.float32)
        constants = [
            builder.tensor(f"{name}/w", shape, data=weights),
            builder.tensor(f"{name}/b", shape[:1], data=bias),
        ]
        builder.operator("FULLY_CONNECTED", [source, *constants], [result])
    builder.operator("SOFTMAX", [logits], [y], options={"beta": 1.0})
    return _file(builder, [x], [y]), [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(2 * COUNT)]


def scaled(factor: float, **options: object) -> Quantized:
    """The classifier with samples in a unit that makes them small."""
    file, samples = classifier()
    given = [[factor * x] for (x,) in samples]
    return odc_mlir.quantize(file, calibration=given, help=False, **options)


def test_a_score_that_nothing_raises_is_lost() -> None:
    """All errors are far below the limit, and the quantised detector never fires."""
    made = odc_mlir.quantize(detector(), calibration=scenes(0), help=False)
    problem, never = made.verdict["problems"]
    assert never.startswith("scores of output 'score' are 0.5 at most on any input")
    assert problem.startswith("output 'score' varies in the float model and is lost in the quantised one, by 0.00")
    assert problem.endswith("only: give samples for which it varies as it does in use")
    assert [check["passed"] for check in made.verdict["limits"]] == [True]
    assert not made.verdict["samples"]["telling"]
    with pytest.raises(AccuracyError, match=r"^the quantised model failed: output 'score' varies"):
        made.require_passed()


@pytest.mark.parametrize("limit", [{}, {"metric": "mae", "limit": 0.5}])
def test_what_is_lost_passes_by_no_limit(limit: dict[str, object]) -> None:
    assert not odc_mlir.quantize(detector(), calibration=scenes(0), help=False, **limit).passed


@pytest.mark.parametrize("scheme", ["int8", "int16x8"])
def test_a_score_that_some_samples_raise_is_told(scheme: str) -> None:
    verdict = odc_mlir.quantize(detector(), calibration=scenes(2), help=False, scheme=scheme).verdict
    assert (verdict["passed"], verdict["certain"], verdict["samples"]["telling"]) == (True, True, True)
    assert min(output["r2"] for output in verdict["outputs"]) > 0.99


@pytest.mark.parametrize(("factor", "scheme", "follows"), [(0.003, "int8", False), (0.0035, "int16x8", True)])
def test_outputs_that_constants_nearly_match_must_be_followed(factor: float, scheme: str, follows: bool) -> None:
    made = scaled(factor, scheme=scheme)
    verdict, text = made.verdict, "constant outputs would keep all limits but R² as well, or nearly"
    assert [check["metric"] for check in verdict["limits"]] == ["mpeir", "top1_match", "r2"]
    assert [check["passed"] for check in verdict["limits"]] == [True, True, follows]
    assert (verdict["passed"], verdict["certain"]) == (follows, False)
    assert (verdict["samples"]["outputs_vary"], verdict["samples"]["telling"]) == (False, False)
    (said,) = [found for found in verdict["findings" if follows else "problems"] if found.startswith(text)]
    assert "give some for which outputs vary" in said
    first = describe(verdict)
    assert first.startswith("passed on 64 samples (on others ") if follows else "failed: " + text
    assert text in first
    if not follows:
        with pytest.raises(AccuracyError) as raised:
            made.require_passed()
        assert raised.value.hint is None  # the problem has it
    assert f"; {text}" in made.report_html() or not follows


@pytest.mark.parametrize("problems", [[], ["output 'y' is lost: give layers more bits"]])
@pytest.mark.parametrize("vary", [True, False])  # columns in several units may
def test_a_limit_that_nobody_asked_for_is_not_to_be_lowered(vary: bool, problems: list[str]) -> None:
    made = scaled(0.003)
    samples = made.verdict["samples"] | {"outputs_vary": vary}
    with pytest.raises(AccuracyError) as raised:
        replace(made, verdict=made.verdict | {"samples": samples, "problems": problems}).require_passed()
    assert raised.value.hint == "give samples for which outputs vary as they do in use"


@pytest.mark.parametrize(("taken", "advised"), [({"a": "float"}, True), ({"a": "float", "b": "int16x8"}, False)])
def test_no_advice_names_a_model_that_the_search_would_not_choose(taken: dict[str, str], advised: bool) -> None:
    """One that leaves no layer in the scheme."""
    made = scaled(0.003)
    point = {"layers": len(taken), "precisions": taken, "time_ns": None, "bytes": 99, "share": 0.09, "holds": True}
    limits = [check | {"passed": check["metric"] != "mpeir", "interval": None} for check in made.verdict["limits"]]
    verdict = made.verdict | {"scheme": {"a": "int8", "b": "int8"}, "front": [point], "problems": [], "limits": limits}
    with pytest.raises(AccuracyError) as raised:
        replace(made, verdict=verdict).require_passed()
    assert raised.value.hint is not None
    assert ("--min-coverage 0.09 (in Python min_coverage) lets" in raised.value.hint) is advised


def test_outputs_that_vary_need_not_be_followed_so_closely() -> None:
    verdict = scaled(1.0).verdict
    assert [check["metric"] for check in verdict["limits"]] == ["mpeir", "top1_match"]
    assert verdict["samples"]["outputs_vary"]
    assert verdict["metrics"]["r2"] > R2_LIMIT.bound


def test_a_limit_that_is_given_counts_alone() -> None:
    verdict = scaled(0.01, metric="sqnr", limit=30.0).verdict
    assert [check["metric"] for check in verdict["limits"]] == ["sqnr_db"]


def test_what_is_explained_is_the_part_of_the_variance() -> None:
    file, samples = classifier()
    made = odc_mlir.quantize(file, calibration=samples[COUNT:], evaluation=samples[:COUNT], help=False, metric="r2")
    wanted, found = (
        np.concatenate([odc_mlir.run(model, list(x))[0] for x in samples[:COUNT]]) for model in (file, made.to_circle())
    )
    noise = np.square(wanted - found).sum() / np.square(wanted - wanted.mean(axis=0)).sum()
    assert made.verdict["limits"][0]["value"] == pytest.approx(1.0 - noise, abs=1e-6)
    assert made.verdict["limits"][0]["limit"] == R2_LIMIT.bound
    low, high = made.verdict["limits"][0]["interval"]
    assert low < made.verdict["limits"][0]["value"] <= high < 1.0


@pytest.mark.parametrize("spread", [1.0, 1e-2])
def test_columns_of_samples_nearly_alike_are_no_units_of_their_own(spread: float) -> None:
    """Outputs that hardly vary seem to have columns of several sizes."""
    builder, rng = ModelBuilder(), np.random.default_rng(6)
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    weights = builder.tensor(
        "w", (4, 8), data=(rng.normal(size=(4, 8)) * [[1], [10], [100], [1000]]).astype(np.float32)
    )
    builder.operator("FULLY_CONNECTED", [x, weights, builder.tensor("b", (4,), data=np.zeros(4, np.float32))], [y])
    graph = build_graph(read_model(_file(builder, [x], [y])))
    samples = [[(1 + spread * rng.normal(size=(1, 8))).astype(np.float32)] for _ in range(COUNT)]
    reference = Reference(graph, samples)
    assert reference.splits(0)
    assert reference.varies_in_units(0) is (spread == 1.0)
