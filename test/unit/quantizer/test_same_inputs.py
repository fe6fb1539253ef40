"""Inputs that no sample varies: the verdict says so where outputs depend on them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.quantizer.policy.verdict import unshown
from odc_mlir.tools.odc_quantize import summary

SIZE = 16


def _masked(kind: str) -> bytes:
    """``y`` of what a mask leaves of ``x``; of an ``idle`` input nothing reaches the output."""
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, mask, idle, h, z, y = (builder.tensor(name, (1, SIZE)) for name in ("x", "mask", "idle", "h", "z", "y"))
    zeros = builder.tensor("zeros", (1, SIZE), data=np.zeros((1, SIZE), np.float32))
    weights = builder.tensor("w", (SIZE, SIZE), data=rng.normal(size=(SIZE, SIZE)).astype(np.float32))
    nothing = builder.tensor("nothing", (1, SIZE))
    builder.operator(kind, [x, mask], [h])
    builder.operator("MUL", [idle, zeros], [nothing])
    builder.operator("ADD", [h, nothing], [z])
    builder.operator("FULLY_CONNECTED", [z, weights, -1], [y])
    return write_model(builder.finish([x, mask, idle], [y]))


@pytest.mark.parametrize(("kind", "value", "used"), [("MUL", 1.0, 0.0), ("ADD", 0.0, -8.0)])
def test_a_mask_that_samples_never_use_is_a_reservation(kind: str, value: float, used: float) -> None:
    rng = np.random.default_rng(1)

    def samples(varies: bool) -> list[list[np.ndarray]]:
        masks = np.where((rng.random((32, 1, SIZE)) < 0.5) & varies, used, value).astype(np.float32)
        return [[rng.normal(size=(1, SIZE)).astype(np.float32), m, np.ones((1, SIZE), np.float32)] for m in masks]

    options: dict[str, Any] = {"help": False, "limit": 0.2}
    never, sometimes = (odc_mlir.quantize(_masked(kind), calibration=samples(v), **options) for v in (False, True))
    text = "passed on 32 samples (input 'mask' was the same in all of them)"
    assert (never.passed, never.verdict["certain"], never.verdict["samples"]["same_inputs"]) == (True, False, ["mask"])
    assert next(iter(summary("m", never.verdict))) == f"m: int8, {text}"
    assert text in repr(never)
    assert "as measured; input &#x27;mask&#x27; was the same in all of them" in never.report_html()
    assert [t for t in never.verdict["findings"] if t.startswith("give samples in which input 'mask' varies")]
    assert unshown(never.verdict["samples"]) == ["input 'mask' was the same in all of them"]
    assert sometimes.verdict["certain"]
    assert sometimes.verdict["samples"]["same_inputs"] == []
    assert unshown(sometimes.verdict["samples"]) == unshown(None) == []


def test_inputs_for_which_nothing_else_can_be_run_are_no_reservation() -> None:
    rng, builder = np.random.default_rng(0), ModelBuilder()
    x, shape, h = builder.tensor("x", (1, SIZE)), builder.tensor("shape", (2,), "int32"), builder.tensor("h", (4, 4))
    y = builder.tensor("y", (4, 4))
    weights = builder.tensor("w", (4, 4), data=rng.normal(size=(4, 4)).astype(np.float32))
    builder.operator("RESHAPE", [x, shape], [h])
    builder.operator("FULLY_CONNECTED", [h, weights, -1], [y])
    samples = [[rng.normal(size=(1, SIZE)).astype(np.float32), np.array([4, 4], np.int32)] for _ in range(16)]
    made = odc_mlir.quantize(write_model(builder.finish([x, shape], [y])), calibration=samples, help=False)
    assert made.verdict["samples"]["same_inputs"] == []
