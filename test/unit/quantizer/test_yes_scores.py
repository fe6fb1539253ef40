"""Scores that users compare with a half: a detector calibrated on what it does not detect does not pass."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.policy.verdict import passed_text

COUNT, WIDTH = 32, 8


@cache
def detector(activation: str = "none", *, joined: bool = False, sign: float = 1.0) -> bytes:
    """A score of whether the first two inputs are both large, or where ``joined`` two of them in one output."""
    rng, builder = np.random.default_rng(2), ModelBuilder()
    x, scores = builder.tensor("x", (1, WIDTH)), []
    for name in ("a", "b") if joined else ("a",):
        logit, score = builder.tensor(f"{name}/logit", (1, 1)), builder.tensor(f"{name}/score", (1, 1))
        weights = rng.normal(size=(1, WIDTH)).astype(np.float32)
        weights[0, :2] = sign * rng.uniform(3.0, 3.2, 2)
        bias = builder.tensor(f"{name}/b", (1,), data=np.float32([-4.2 * sign]))
        constant = builder.tensor(f"{name}/w", weights.shape, data=weights)
        options = {"fused_activation_function": activation}
        builder.operator("FULLY_CONNECTED", [x, constant, bias], [logit], options=options)
        builder.operator("LOGISTIC", [logit], [score])
        scores.append(score)
    if joined:
        both = builder.tensor("both", (1, 2))
        builder.operator("CONCATENATION", scores, [both], options={"axis": 1})
        scores = [both]
    model = builder.finish([x], scores)
    for tensor in model.subgraphs[0].tensors:
        tensor.quantization = None
    return bytes(write_model(model))


def scenes(large: int) -> list[list[np.ndarray]]:
    """Samples of which so many of the first two inputs are large."""
    rng = np.random.default_rng(4)
    made = [rng.uniform(-0.1, 0.1, (1, WIDTH)).astype(np.float32) for _ in range(COUNT)]
    for number, x in enumerate(made):
        x[0, : 2 if large == 2 else 0] += 1.0
        x[0, number % 2] += large == 1
    return [[x] for x in made]


def _largest(made: Any) -> float:
    return max(float(odc_mlir.run(made.to_circle(), x)[0].max()) for x in scenes(2))


@pytest.mark.parametrize("joined", [False, True])
def test_a_detector_that_can_never_fire_does_not_pass(joined: bool) -> None:
    file = detector(joined=joined)
    assert max(float(odc_mlir.run(file, x)[0].max()) for x in scenes(1)) < 0.4
    made = odc_mlir.quantize(file, calibration=scenes(1), help=False)
    (problem,) = made.verdict["problems"]
    assert problem.startswith(f"scores of output '{'both' if joined else 'a/score'}' are 0.5 at most on any input")
    assert (made.passed, _largest(made)) == (False, 0.5)
    assert all(check["passed"] for check in made.verdict["limits"])


def test_an_alarm_that_can_never_be_off_does_not_pass() -> None:
    made = odc_mlir.quantize(detector(sign=-1.0), calibration=scenes(1), help=False)
    assert [text.split(":")[0] for text in made.verdict["problems"]] == [
        "scores of output 'a/score' are 0.5 at least on any input"
    ]


@pytest.mark.parametrize("joined", [False, True])
def test_room_lets_scores_reach_what_no_sample_has(joined: bool) -> None:
    made = odc_mlir.quantize(detector(joined=joined), calibration=scenes(1), help=False, output_room="on")
    verdict = made.verdict
    assert (verdict["passed"], verdict["certain"], verdict["problems"]) == (True, False, [])
    assert _largest(made) > 0.8
    assert "in no sample is a score of output " in passed_text(verdict)


def test_help_gives_such_room() -> None:
    """The network may not reach the other side within its ranges, which such samples do not show."""
    made = odc_mlir.quantize(detector(), calibration=scenes(1), mixed="off")
    assert (made.passed, made.verdict["certain"], made.verdict["choices"]["output_room"]) == (True, False, True)
    assert _largest(made) > 0.8


def test_samples_on_both_sides_leave_nothing_to_say() -> None:
    made = odc_mlir.quantize(detector(), calibration=[*scenes(1), *scenes(2)], help=False)
    assert (made.passed, made.verdict["samples"]["one_sided"], _largest(made) > 0.8) == (True, [], True)


def test_scores_that_the_model_itself_keeps_on_one_side_are_none() -> None:
    made = odc_mlir.quantize(detector("relu"), calibration=scenes(2), help=False)
    assert (made.verdict["problems"], made.verdict["samples"]["one_sided"]) == ([], [])


def test_values_of_16_bits_reach_both_sides() -> None:
    made = odc_mlir.quantize(detector(), calibration=scenes(1), help=False, scheme="int16x8")
    assert made.verdict["problems"] == []
    assert not made.verdict["certain"]


@pytest.mark.parametrize("scale", [1e4, 1e9, 1e30])
def test_logits_may_be_as_large_as_they_like(scale: float) -> None:
    """Their exponentials are no numbers."""
    samples = [[x * np.float32(scale)] for (x,) in scenes(1)]
    problems = odc_mlir.quantize(detector(), calibration=samples, help=False).verdict["problems"]
    assert [text for text in problems if text.startswith("scores of output 'a/score' are ")]
