"""Room in ranges for values beyond those that samples have shown."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder, model_bytes
from odc_mlir.quantizer import evaluator, help, reference
from odc_mlir.quantizer.help import HelpSearch
from odc_mlir.quantizer.quantize import quantize
from odc_mlir.runtime.api import open_executor

Samples = list[list[np.ndarray]]
WIDTH = 32


def _layers() -> bytes:
    """Three layers with rectifiers between them."""
    builder, rng = ModelBuilder(), np.random.default_rng(1)
    first = at = builder.tensor("x", (1, WIDTH))
    for number in range(3):
        weights = (rng.normal(size=(WIDTH, WIDTH)) / np.sqrt(WIDTH / 2)).astype(np.float32)
        constant = builder.tensor(f"w{number}", weights.shape, data=weights)
        made = builder.tensor(f"y{number}", (1, WIDTH))
        activation = "relu" if number < 2 else "none"
        builder.operator(
            "FULLY_CONNECTED", [at, constant, -1], [made], options={"fused_activation_function": activation}
        )
        at = made
    return bytes(model_bytes(builder.finish([first], [at])))


def _samples(count: int, spread: float, seed: int) -> Samples:
    """Noise whose size differs from sample to sample by this much."""
    rng = np.random.default_rng(seed)
    sizes = np.exp(spread * rng.normal(size=count))
    return [[(size * rng.normal(size=(1, WIDTH))).astype(np.float32)] for size in sizes]


def _sqnr_db(model: bytes, quantised: bytes, samples: Samples) -> float:
    executors = [open_executor(file) for file in (model, quantised)]
    pairs = [[executor.run(sample)[0] for executor in executors] for sample in samples]
    return float(10 * np.log10(sum((a**2).sum() for a, _ in pairs) / sum(((a - b) ** 2).sum() for a, b in pairs)))


def _tried(verdict: dict[str, Any]) -> list[float]:
    return [step["value"] for step in verdict["steps"] if step["step"] == "headroom"]


def test_ranges_are_wider_where_few_samples_leave_others_out() -> None:
    model, samples, unseen = _layers(), _samples(24, 0.5, 1), _samples(100, 0.5, 99)
    found, tight = (quantize(model, calibration=samples, mixed="off", headroom=room) for room in (None, 0.0))
    assert _tried(found.verdict)
    assert found.verdict["choices"]["headroom"] > 0.0
    assert _sqnr_db(model, found.to_circle(), unseen) > _sqnr_db(model, tight.to_circle(), unseen) + 3.0


def test_samples_to_check_on_do_not_take_the_place_of_room() -> None:
    """They choose no range: few that do leave others out as much as without them."""
    model, samples = _layers(), _samples(40, 0.5, 1)
    found = quantize(model, calibration=samples[:24], evaluation=samples[24:], mixed="off")
    assert found.verdict["choices"]["headroom"] > 0.0
    assert any(step["step"] == "output room" for step in found.verdict["steps"])


@pytest.mark.parametrize("chosen", [{"headroom": 0.0}, {"help": False}])
def test_what_is_asked_for_is_not_tried(chosen: dict[str, Any]) -> None:
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), mixed="off", **chosen)
    assert not _tried(made.verdict)
    assert made.verdict["choices"]["headroom"] == 0.0


def test_ranges_that_hold_other_samples_stay() -> None:
    """Each of 120 samples is one of eight, a little smaller each time."""
    known = _samples(8, 0.5, 1)
    made = quantize(_layers(), calibration=[[0.98**turn * sample[0]] for turn in range(15) for sample in known])
    assert not _tried(made.verdict)


@pytest.mark.parametrize(("count", "headrooms"), [(16, [0.1, 0.3]), (48, [0.1]), (99, [0.1]), (100, [])])
def test_few_samples_are_presumed_to_show_too_little(
    count: int, headrooms: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(help, "_LEAST_LOST_DB", 100.0)  # nothing shows it
    made = quantize(_layers(), calibration=_samples(count, 0.2, 1), mixed="off")
    assert _tried(made.verdict) == headrooms
    assert made.verdict["choices"]["headroom"] == (headrooms or [0.0])[-1]


@pytest.mark.parametrize(("count", "headrooms"), [(16, [3.0, 7.0]), (48, [3.0]), (100, [])])
def test_16_bits_have_more_room(count: int, headrooms: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help, "_LEAST_LOST_DB", 100.0)
    made = quantize(_layers(), scheme="int16x8", calibration=_samples(count, 0.2, 1), mixed="off")
    assert _tried(made.verdict) == headrooms
    assert made.verdict["choices"]["headroom"] == (headrooms or [1.0])[-1]


def test_few_samples_leave_out_more_than_twice_as_large_values() -> None:
    model, samples, unseen = _layers(), _samples(12, 0.8, 1), _samples(200, 0.8, 99)
    found, tight = (
        quantize(model, scheme="int16x8", calibration=samples, mixed="off", headroom=room) for room in (None, 1.0)
    )
    assert _sqnr_db(model, found.to_circle(), unseen) > _sqnr_db(model, tight.to_circle(), unseen) + 3.0


def test_room_that_does_harm_is_not_kept_of_few_samples_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help, "HEADROOMS", (8.0,))
    monkeypatch.setattr(help, "_PRESUMED", {8.0: (99, math.inf)})
    made = quantize(_layers(), calibration=_samples(24, 0.2, 1), mixed="off")
    assert _tried(made.verdict) == [8.0]
    assert made.verdict["choices"]["headroom"] == 0.0


def test_room_that_costs_all_samples_much_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the few held back leave in doubt: where ranges hold all values, wider ones make steps coarser."""
    monkeypatch.setattr(HelpSearch, "is_worse_unseen", lambda *trials: False)
    samples = [[0.98**turn * sample[0]] for turn in range(12) for sample in _samples(4, 0.5, 1)]
    made = quantize(_layers(), calibration=samples, mixed="off", output_room="off")
    assert _tried(made.verdict) == [0.1]
    assert made.verdict["choices"]["headroom"] == 0.0


def test_more_room_is_not_tried_where_some_of_it_does_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(help, "HEADROOMS", (-0.3, 0.3))
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), mixed="off")
    assert _tried(made.verdict) == [-0.3]
    assert made.verdict["choices"]["headroom"] == 0.0


@pytest.mark.parametrize("is_large", [False, True])
def test_room_that_is_only_presumed_to_help_asks_large_models_for_no_more(
    is_large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(help, "HEADROOMS", (0.001, 0.3))  # the first changes next to nothing
    monkeypatch.setattr(help, "_PRESUMED", {0.001: (99, math.inf), 0.3: (99, math.inf)})
    monkeypatch.setattr(evaluator, "_MOST_JUDGING_MACS", 0 if is_large else 1 << 30)
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), mixed="off")
    first = next(step for step in made.verdict["steps"] if step["step"] == "headroom")
    assert (first["value"], first["kept"]) == (0.001, True)
    assert _tried(made.verdict) == ([0.001] if is_large else [0.001, 0.3])
    assert made.verdict["choices"]["headroom"] == (0.001 if is_large else 0.3)


def test_room_is_judged_on_all_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those held back are few, and may all be smaller than one that chose the ranges."""
    sizes: list[int] = []
    measure = reference.Reference.measure

    def counted(self: Any, *graphs: Any, **options: Any) -> Any:
        if len(graphs) > 1:  # models that lack some samples
            sizes.append(len(self.samples))
        return measure(self, *graphs, **options)

    monkeypatch.setattr(reference.Reference, "measure", counted)
    off = {"equalize": "none", "ranges": "minmax", "normalize": "off", "rounding": "off", "correction": "off"}
    made = quantize(_layers(), calibration=_samples(24, 0.5, 1), output_room="off", mixed="off", **off)
    assert _tried(made.verdict) == list(help.HEADROOMS)
    assert sizes == [24, 24, 24]  # as they were, and with either room
