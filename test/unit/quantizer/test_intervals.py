"""Intervals of verdicts: they hold the truth about as often as they say, also where single samples decide."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import two_layers
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer import intervals
from odc_mlir.quantizer.intervals import FEWEST_TO_TRUST, Certainty, deciding, wilson
from odc_mlir.quantizer.measurement import Measurement, Powers
from odc_mlir.quantizer.policy.verdict import Limit
from odc_mlir.quantizer.reference import Reference
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.reporting.metrics import Errors


def _powers(count: int, noise: float = 0.0) -> list[Powers]:
    """Of one output's logits, and of itself, for so many samples."""
    return [Powers(np.ones((1, count)), np.full((1, count), noise))] * 2


def _sqnr(noise: np.ndarray) -> tuple[float, float]:
    """The interval of the SQNR of samples of power 1 with this noise each."""
    values = np.ones((len(noise), 1))
    pairs = [(a, a + np.sqrt(power)) for a, power in zip(values, noise, strict=True)]
    return intervals._of_output(pairs, None, np.zeros(len(noise)), intervals._Draws(len(noise)))["sqnr_db"]


@pytest.mark.parametrize("count", [8, 16, 48])
@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0])
def test_most_intervals_of_skewed_errors_hold_the_true_ratio(spread: float, count: int) -> None:
    random, held = np.random.default_rng(2), 0
    truth = 60.0 - 10.0 * np.log10(np.exp(spread**2 / 2))  # of the mean of exp(N(0, spread)), -60 dB
    for _ in range(60):
        low, high = _sqnr(1e-6 * np.exp(random.normal(0.0, spread, count)))
        held += low <= truth <= high
    assert held >= 0.93 * 60


def test_intervals_hold_what_one_sample_of_fifty_decides() -> None:
    """Noise of 2 % of the samples is spread over a wide range: what clipping does to values beyond the ranges."""
    random, held = np.random.default_rng(3), 0
    tail = 1e-4 * np.exp(np.random.default_rng(4).exponential(2.0, 100_000))
    truth = -10.0 * np.log10(np.minimum(tail, 1.0).mean())
    for _ in range(60):
        low, high = _sqnr(np.minimum(1e-4 * np.exp(random.exponential(2.0, 48)), 1.0))
        held += low <= truth <= high
    assert held >= 0.95 * 60


@pytest.mark.parametrize("kind", ["SOFTMAX", "LOGISTIC"])
@pytest.mark.parametrize("count", [16, 48])
@pytest.mark.parametrize("bits", [8, 16])
def test_intervals_hold_though_nearly_all_scores_are_sure(kind: str, count: int, bits: int) -> None:
    """Of these the codes are the same for all samples; errors of logits show in the few others."""
    builder, random, held, error = ModelBuilder(), np.random.default_rng(9), 0, 0.2
    x, y = (builder.tensor(name, (1, 2)) for name in "xy")
    options = {"options": {"beta": 1.0}} if kind == "SOFTMAX" else {}
    builder.operator(kind, [x], [y], **options)
    graph = build_graph(read_model(model_bytes(builder.finish([x], [y]))))

    def drawn(number: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        logits = random.normal(0.0, 60.0, (number, 1, 2)).astype(np.float32)
        logits = logits if kind == "LOGISTIC" else logits * np.float32([1.0, 0.0])
        others = logits + random.normal(0.0, error, logits.shape).astype(np.float32)
        right, found = (odc_mlir.run(write_model(wide), [v.reshape(number, 2)])[0] for v in (logits, others))
        codes = np.minimum(np.round(found * 2.0**bits), 2.0**bits - 1.0)
        return logits, right.reshape(logits.shape), codes.reshape(logits.shape) / 2.0**bits

    wide_builder = ModelBuilder()
    a, b = (wide_builder.tensor(name, (1, 2), signature=(-1, 2)) for name in "xy")
    wide_builder.operator(kind, [a], [b], **options)
    wide = wide_builder.finish([a], [b])
    _, right, found = drawn(200_000)
    truth = 10.0 * np.log10((right**2).sum() / ((right - found) ** 2).sum())
    for _ in range(60):
        logits, _, found = drawn(count)
        reference = Reference(graph, [[value] for value in logits])
        measured = Measurement(
            [Errors(2, 1, max_abs=1.0)], *_powers(count, 2 * error**2), ["y"], decided={}, reals=[[v] for v in found]
        )
        low, high = intervals.intervals_of(reference, measured)["sqnr_db"]
        held += low <= truth <= high
    assert held >= 0.9 * 60


def test_even_errors_have_narrow_intervals_and_uneven_ones_wide() -> None:
    random = np.random.default_rng(5)
    even, uneven = (_sqnr(1e-4 * np.exp(random.normal(0.0, spread, 48))) for spread in (0.1, 2.0))
    assert even[1] - even[0] < 1.0
    assert uneven[1] - uneven[0] > 8.0


def test_an_interval_becomes_narrower_with_more_samples_and_never_reaches_below_the_signal() -> None:
    widths = [high - low for low, high in (_sqnr(np.full(count, 1e-4)) for count in (4, 16, 64))]
    assert widths[0] > 2 * widths[1] > 4 * widths[2] > 0
    assert _sqnr(np.full(2, 0.5))[0] >= 0.0


def test_many_samples_tell_that_a_tail_becomes_lighter() -> None:
    """Widths of skewed errors shrink with more samples, and still hold the truth."""
    random, truth = np.random.default_rng(8), 60.0 - 10.0 * np.log10(np.exp(2.0))
    widths = {}
    for count in (100, 1600):
        found = [_sqnr(1e-6 * np.exp(random.normal(0.0, 2.0, count))) for _ in range(20)]
        assert sum(low <= truth <= high for low, high in found) >= 19
        widths[count] = np.median([high - low for low, high in found])
    assert 3.0 * widths[1600] < widths[100] < 20.0


def test_the_range_of_few_samples_could_be_another() -> None:
    random = np.random.default_rng(6)
    values = random.normal(size=(48, 1))
    seen = np.full(1000, np.ptp(values))
    found = [intervals._Draws(48).spans(list(values), count, seen) for count in (8, 40)]
    assert found[0].std() > found[1].std() > 0
    for spans in found:  # others exceed what was seen as often as they fall short of it
        assert np.median(spans) == pytest.approx(seen[0], rel=1e-3)
        assert spans.min() < seen[0] < spans.max()


@pytest.mark.parametrize(
    ("share", "count", "low", "high"), [(1.0, 16, 0.806, 1.0), (0.5, 100, 0.404, 0.596), (0.0, 4, 0.0, 0.49)]
)
def test_shares_are_never_certain(share: float, count: int, low: float, high: float) -> None:
    assert wilson(share, count) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize("correlated", [True, False])
@pytest.mark.parametrize(("count", "share"), [(16, 0.9), (48, 0.9), (48, 0.95), (160, 0.99)])
def test_intervals_of_shares_hold_the_truth_though_rows_of_a_sample_agree(
    count: int, share: float, correlated: bool, rows: int
) -> None:
    """In at least 90 %, if all rows of a sample are right or wrong together as well."""
    builder, random, held = ModelBuilder(), np.random.default_rng(7), 0
    x, y = (builder.tensor(name, (1, rows, 2)) for name in "xy")
    builder.operator("SOFTMAX", [x], [y], options={"beta": 1.0})
    graph = build_graph(read_model(model_bytes(builder.finish([x], [y]))))
    sample = np.tile(np.array([3.0, -3.0], np.float32), (1, rows, 1))
    reference = Reference(graph, [[sample]] * count)
    right = reference.outputs[0][0]
    for _ in range(100):
        wrong = random.random((count, 1 if correlated else rows)) >= share
        found = [[np.where(np.resize(row, rows)[:, None], right[..., ::-1], right)] for row in wrong]
        alike = float(1.0 - wrong.mean())
        measured = Measurement(
            [Errors(right.size, 1, max_abs=1.0, top1_match=alike)],
            *_powers(count),
            ["y"],
            decided={0: alike},
            reals=found,
        )
        ends = intervals.intervals_of(reference, measured)
        assert ends["top1_match"] == ends["top1_decided"]
        held += ends["top1_match"][0] <= share <= ends["top1_match"][1]
    assert held >= 90


def test_a_loss_of_no_answer_is_not_certain() -> None:
    """Of answers that all stay right, others may still be lost."""
    labels = np.arange(100) % 4
    right = [[np.eye(4)[label][None]] for label in labels]

    def drops(wrong: int) -> Any:
        found = [[np.roll(row[0], place < wrong)] for place, row in enumerate(right)]
        reference, measured = (
            SimpleNamespace(labels=labels, outputs=right, answers=_firsts),
            SimpleNamespace(reals=found),
        )
        return intervals._drops(reference, measured)  # type: ignore[arg-type]

    assert drops(0) == (pytest.approx(-2.72, abs=0.01), pytest.approx(2.72, abs=0.01))
    assert drops(10) == (pytest.approx(3.43, abs=0.01), pytest.approx(16.2, abs=0.1))


@pytest.mark.parametrize("rows", [1, 16])
@pytest.mark.parametrize(("count", "lost"), [(16, 0.1), (64, 0.05), (160, 0.02)])
def test_intervals_of_a_loss_hold_the_truth_though_rows_of_a_sample_are_lost_together(
    count: int, lost: float, rows: int
) -> None:
    random, held = np.random.default_rng(9), 0
    labels = np.zeros((count, rows), np.int64)
    right, wrong = (np.tile(np.eye(2)[label], (1, rows, 1)) for label in (0, 1))
    reference = SimpleNamespace(labels=labels, outputs=[[right]] * count, answers=_firsts)
    for _ in range(100):
        found = [[wrong if is_lost else right] for is_lost in random.random(count) < lost]
        low, high = intervals._drops(reference, SimpleNamespace(reals=found))  # type: ignore[arg-type]
        held += low <= 100.0 * lost <= high
    assert held >= 90


def _firsts(outputs: list[list[np.ndarray]]) -> list[np.ndarray]:
    return [found[0] for found in outputs]


def test_an_output_of_one_number_has_no_largest_element_and_no_interval_of_it() -> None:
    rng = np.random.default_rng(5)
    builder, x, y = two_layers(1, 1.0, rng)
    samples = [[rng.normal(size=(1, 8)).astype(np.float32)] for _ in range(12)]
    made = odc_mlir.quantize(bytes(write_model(builder.finish([x], [y]))), calibration=samples, help=False)
    assert made.verdict["metrics"]["top1_match"] is None
    assert "top1_match" not in made.verdict["intervals"]


@pytest.mark.parametrize(("count", "wanted"), [(2, 8), (3, 12), (12, 24)])
def test_no_fewer_samples_are_advised_than_are_trusted(count: int, wanted: int) -> None:
    limit = Limit("mpeir", 0.1)
    certainty = Certainty({limit.key: (0.05, 0.2)}, count, lambda count: {limit.key: (0.05, 0.05 + 0.1 / count)})
    assert wanted >= FEWEST_TO_TRUST
    assert deciding([limit], certainty) == {limit.key: wanted}
