"""Random networks divided at random: whatever runs where, the codes are the same; the plan binds the right tensors."""

from __future__ import annotations

import random

import numpy as np
import pytest

import odc_mlir
from helpers.networks import RANGES, RandomNetwork
from odc_mlir import compiler, pipelines
from odc_mlir.backends import NpuBackend
from odc_mlir.formats.plan import SegmentStep
from odc_mlir.runtime.package import Package
from odc_mlir.transforms.common.placement import operators, place_on_host
from odc_mlir.transforms.partition.npu_form_segments import NpuFormSegmentsPass
from odc_mlir.transforms.partition.npu_outline_segments import NpuOutlineSegmentsPass
from odc_mlir.transforms.partition.odc_set_target import OdcSetTargetPass
from odc_mlir.universe import make_context

SEEDS = range(100, 124)


def divided(model: bytes, seed: int) -> Package:
    """The package of ``model`` with about a third of its operators kept on the host."""
    chance, context, options = random.Random(seed), make_context(), OdcSetTargetPass()
    module = odc_mlir.load(model)
    before = ("circle-infer-shapes", "odc-fix-batch", "npu-mark-supported")
    passes = [options, *(pipelines.find_pass(name)() for name in before)]
    pipelines.run_passes(context, module, [("test", item) for item in passes])
    for op in operators(module):
        if chance.random() < 0.35:
            place_on_host(op, "test: chance")
    last = (NpuFormSegmentsPass(), NpuOutlineSegmentsPass())
    pipelines.run_passes(context, module, [("test", item) for item in last])
    return Package(compiler.package_of(context, module, NpuBackend("npu-256"), strict=True))


@pytest.mark.parametrize("seed", SEEDS)
def test_every_division_gives_the_same_codes(seed: int) -> None:
    model = RandomNetwork(seed).build(operators=6 + seed % 8)
    package = divided(model, seed)
    (given,) = package.inputs
    low, high = RANGES[given.dtype]
    inputs = [np.random.default_rng(seed).integers(low, high + 1, given.shape).astype(given.dtype)]
    (expected,) = odc_mlir.run(model, inputs, backend="host")
    (found,) = odc_mlir.run(package, inputs, backend="npu", strict=True)
    np.testing.assert_array_equal(found, expected)


def test_the_divisions_are_various() -> None:
    plans = [divided(RandomNetwork(seed).build(operators=6 + seed % 8), seed).plan for seed in SEEDS]
    segments = [len(plan.segments) for plan in plans if plan is not None]
    results = [len(s.outputs) for plan in plans if plan is not None for s in plan.steps if isinstance(s, SegmentStep)]
    assert max(segments) >= 3
    assert max(results) >= 2
