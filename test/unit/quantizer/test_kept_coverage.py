"""Help keeps no step that leaves products in float which are codes without it: a reader may not run its scales."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.help import HelpSearch
from odc_mlir.quantizer.quantize import Quantized

PIXELS, HIDDEN, EMBEDDED, COUNT = 64, 64, 16, 64


@cache
def siamese() -> tuple[bytes, list[list[np.ndarray]]]:
    """Two pictures through the same two layers, and a score of their difference.

    Some pixels are hardly ever lit. In units of their standard deviations they reach so far that one step of a product
    of 4-bit weights is more than one of its sum, for which LiteRT has no FULLY_CONNECTED.
    """
    rng, builder = np.random.default_rng(0), ModelBuilder()

    def constant(name: str, *shape: int) -> int:
        data = rng.normal(size=shape) / np.sqrt(shape[-1])
        return builder.tensor(name, shape, data=data.astype(np.float32))

    first, second, last = (
        constant(name, *shape)
        for name, shape in (("first", (HIDDEN, PIXELS)), ("second", (EMBEDDED, HIDDEN)), ("last", (1, EMBEDDED)))
    )
    inputs, embedded = [], []
    for side in "ab":
        x, hidden, found = (
            builder.tensor(f"{name}_{side}", (1, size))
            for name, size in (("x", PIXELS), ("hidden", HIDDEN), ("embedded", EMBEDDED))
        )
        relu: dict[str, Any] = {"fused_activation_function": "relu"}
        builder.operator("FULLY_CONNECTED", [x, first, -1], [hidden], options=relu)
        builder.operator("FULLY_CONNECTED", [hidden, second, -1], [found])
        inputs.append(x)
        embedded.append(found)
    difference, square = builder.tensor("difference", (1, EMBEDDED)), builder.tensor("square", (1, EMBEDDED))
    y = builder.tensor("y", (1, 1))
    builder.operator("SUB", embedded, [difference])
    builder.operator("MUL", [difference, difference], [square])
    builder.operator("FULLY_CONNECTED", [square, last, -1], [y])
    lit = np.geomspace(0.004, 0.6, PIXELS)

    def picture() -> np.ndarray:
        return ((rng.random((1, PIXELS)) < lit) * rng.random((1, PIXELS))).astype(np.float32)

    return bytes(write_model(builder.finish(inputs, [y]))), [[picture(), picture()] for _ in range(COUNT)]


def quantised(**options: Any) -> Quantized:
    file, samples = siamese()
    return odc_mlir.quantize(file, calibration=samples, scheme="int8x4", mixed="off", **options)


def share(made: Quantized) -> float:
    return float(made.verdict["coverage"]["share"])


def test_a_normalisation_out_of_the_readers_reach_is_not_kept() -> None:
    """It is measured as better, because most products stay float."""
    made = quantised(reader="litert")
    assert share(made) == 1.0
    assert made.verdict["choices"]["normalize"] == "off"
    better = [step for step in made.verdict["steps"] if step["step"].startswith("normalize") and step["value"]]
    assert better
    assert not any(step["kept"] for step in better)


def test_who_asks_for_it_gets_it_and_is_told_what_stays_float() -> None:
    made = quantised(reader="litert", normalize="on", equalize="none")
    assert share(made) < 0.5
    assert made.verdict["float_reasons"]["hidden_a"] == "LiteRT has no kernel for scales like these"


def test_a_step_that_gives_enough_products_codes_is_kept_whatever_it_loses() -> None:
    """Without it the model could not pass: what is real for lack of a kernel is no accuracy to keep."""
    made = quantised(reader="litert", normalize="on")
    assert made.passed
    assert share(made) > 0.5
    (step,) = (step for step in made.verdict["steps"] if (step["step"], step["value"]) == ("equalize", "weights"))
    assert step["kept"]
    assert step["quality_db"] < made.verdict["steps"][0]["quality_db"]


def test_no_step_is_kept_that_leaves_more_in_float(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the step: here every model that is tried leaves more than the best so far."""
    assert _choices_kept()
    monkeypatch.setattr(HelpSearch, "loses_layers", lambda *_: True)
    assert not _choices_kept()


def _choices_kept() -> list[str]:
    """The steps that something else than what is tried first was kept in."""
    firsts = (False, "none", "minmax")
    return [step["step"] for step in quantised().verdict["steps"] if step["kept"] and step["value"] not in firsts]
