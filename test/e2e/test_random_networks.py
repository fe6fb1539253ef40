"""Random networks: the NPU gives the codes of the host kernels, on every target, in every mode."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

import odc_mlir
from helpers.networks import RANGES, RandomNetwork
from odc_mlir import targets
from odc_mlir.formats.circle.reader import read_model

SEEDS = range(54)
PREFERENCES = ("performance", "memory", "compile-time")
CONFIGURATIONS = list(itertools.product(targets.names(), targets.MEMORY_MODES, PREFERENCES))


@pytest.mark.parametrize("seed", SEEDS)
def test_host_and_npu_agree(seed: int) -> None:
    model = RandomNetwork(seed).build(operators=3 + seed % 8)
    target, memory, prefer = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
    package = odc_mlir.compile(model, target=target, memory=memory, prefer=prefer)
    assert package.plan is not None
    assert package.plan.segments
    (given,) = package.inputs
    low, high = RANGES[given.dtype]
    random = np.random.default_rng(seed)
    for values in (random.integers(low, high + 1, given.shape), np.full(given.shape, low), np.full(given.shape, high)):
        inputs = [values.astype(given.dtype)]
        (expected,) = odc_mlir.run(model, inputs, backend="host")
        (found,) = odc_mlir.run(package, inputs, backend="npu", strict=True)
        np.testing.assert_array_equal(found, expected)


def test_the_networks_use_every_operator() -> None:
    """And do not collapse to constants: what they compare would be nothing."""
    used: Counter[str] = Counter()
    varied = 0
    for seed in SEEDS:
        model = RandomNetwork(seed).build(operators=3 + seed % 8)
        used.update(operator.name for operator in read_model(model).subgraphs[0].operators)
        subgraph = read_model(model).subgraphs[0]
        shape, dtype = subgraph.tensors[subgraph.inputs[0]].shape, subgraph.tensors[subgraph.inputs[0]].dtype
        low, high = RANGES[dtype]
        (output,) = odc_mlir.run(model, [np.random.default_rng(seed).integers(low, high + 1, shape).astype(dtype)])
        varied += len(np.unique(output)) > 2
    assert min(used.values()) >= 5, used
    assert varied > len(SEEDS) * 0.8
