"""Room in the ranges of outputs for rare values that samples do not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import ModuleOp

from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import OptionError
from odc_mlir.quantizer.candidates import has_outputs_with_tails, with_output_room
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.runtime.api import open_executor
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.quant.common.ir import main_function, operators

Samples = list[list[np.ndarray]]
WIDTH = 8


def _rates() -> bytes:
    """A rate, the exponential of a small network of the input."""
    builder, rng = ModelBuilder(), np.random.default_rng(1)
    first = at = builder.tensor("x", (1, WIDTH))
    for number, size in enumerate((16, 1)):
        weights = (rng.normal(size=(size, at_size(number))) / np.sqrt(at_size(number))).astype(np.float32)
        constant = builder.tensor(f"w{number}", weights.shape, data=weights)
        made = builder.tensor(f"y{number}", (1, size))
        options = {"fused_activation_function": "relu" if number == 0 else "none"}
        builder.operator("FULLY_CONNECTED", [at, constant, -1], [made], options=options)
        at = made
    rate = builder.tensor("rate", (1, 1))
    builder.operator("EXP", [at], [rate])
    return bytes(model_bytes(builder.finish([first], [rate])))


def at_size(number: int) -> int:
    return (WIDTH, 16)[number]


def _samples(count: int, seed: int) -> Samples:
    rng = np.random.default_rng(seed)
    return [[(1.5 * rng.normal(size=(1, WIDTH))).astype(np.float32)] for _ in range(count)]


def _sqnr_db(model: bytes, quantised: bytes, samples: Samples) -> float:
    executors = [open_executor(file) for file in (model, quantised)]
    pairs = [[executor.run(sample)[0] for executor in executors] for sample in samples]
    return float(10 * np.log10(sum((a**2).sum() for a, _ in pairs) / sum(((a - b) ** 2).sum() for a, b in pairs)))


def _made(seed: int = 2, **options: Any) -> Any:
    return quantize(_rates(), calibration=_samples(48, seed), mixed="off", **options)


def test_room_for_rare_values_pays_on_samples_that_were_not_seen() -> None:
    """On the average: samples that happen to have the largest of all need none."""
    unseen, gains = _samples(1000, 99), []
    for seed in range(6):
        without, wanted = (_made(seed, output_room=how, help=False) for how in ("off", "on"))
        assert [made.verdict["choices"]["output_room"] for made in (without, wanted)] == [False, True]
        dbs = [_sqnr_db(_rates(), made.to_circle(), unseen) for made in (without, wanted)]
        gains.append(dbs[1] - dbs[0])
    assert np.mean(gains) > 3.0


def test_help_tries_whether_room_is_worth_its_steps() -> None:
    made = _made()
    (step,) = (step for step in made.verdict["steps"] if step["step"] == "output room")
    assert made.verdict["choices"]["output_room"] == step["kept"]


def test_the_interval_tells_that_rare_values_are_cut_off() -> None:
    """Of a model whose range ends where samples do, none of which shows what lies beyond."""
    made = _made(output_room="off", headroom=0.0)
    low, high = made.verdict["intervals"]["sqnr_db"]
    assert low <= _sqnr_db(_rates(), made.to_circle(), _samples(2000, 99)) <= high


def test_what_is_asked_for_is_not_tried() -> None:
    for made in (_made(output_room="off"), _made(help=False)):
        assert not any(step["step"] == "output room" for step in made.verdict["steps"])
        assert made.verdict["choices"]["output_room"] is False


def test_weights_alone_have_no_ranges() -> None:
    with pytest.raises(OptionError, match="touches weights only"):
        _made(scheme="int8_wo", output_room="on")


@pytest.mark.parametrize(
    ("kind", "scores", "most"),
    [("EXP", 1.0, 60.0), ("LOGISTIC", 1.0, 6.3), ("TANH", 1.0, 5.0), ("SOFTMAX", 0.95, 5.0), ("SOFTMAX", 0.8, 60.0)],
)
def test_what_saturates_gets_no_room_beyond(kind: str, scores: float, most: float) -> None:
    """Codes of 0 to 1 are the same from a logit of 6.2 on; 5 was seen. SOFTMAX has one scale, but no more to tell where
    many scores are nearly one."""
    module = _scored([kind])
    function = main_function(module)
    assert function is not None
    (name,) = (value_name(op.results[0]) for op in operators(function) if op.SPEC.name == "FULLY_CONNECTED")
    (result,) = (value_name(op.results[0]) for op in operators(function) if op.SPEC.name == kind)
    largest = np.array([0.1] * 12 + [0.5, 1.0, 2.0, 5.0])
    seen = {name: TensorStatistics.of_extremes(-largest / 5, largest), result: _seen_scores(scores)}
    found = with_output_room(function, {name: (-1.0, 5.0)}, seen, 8)
    assert (found[name][1] > 6.3) == (most == 60.0)
    assert 5.0 <= found[name][1] <= most


@pytest.mark.parametrize(
    ("kinds", "score", "takes"),
    [(("SOFTMAX",), 0.95, False), (("SOFTMAX",), 0.8, True), (("SOFTMAX", "EXP"), 0.95, True), ((), 0.95, True)],
)
def test_scores_of_softmax_alone_ask_for_no_room(kinds: tuple[str, ...], score: float, takes: bool) -> None:
    module = _scored(kinds)
    function = main_function(module)
    assert function is not None
    seen = {value_name(op.results[0]): _seen_scores(score) for op in operators(function)}
    assert has_outputs_with_tails(module, seen) is takes
    assert has_outputs_with_tails(module, {})


def _scored(kinds: Sequence[str]) -> ModuleOp:
    net = FloatNet(1)
    value = net.add("FULLY_CONNECTED", net.real(1, 8), net.const(np.ones((4, 8))), None)
    for kind in kinds:
        value = net.add(kind, value)
    return net.module(value)


def _seen_scores(largest: float) -> TensorStatistics:
    """A third of the samples has so large a score."""
    return TensorStatistics.of_extremes(np.zeros(16), np.array([0.5] * 10 + [largest] * 6))
