"""Each operator and variant alone: compiled, run on the simulator, equal to the host kernel bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import odc_mlir
from helpers.operator_cases import CASES, inputs_of, module_of
from helpers.random_operators import RandomOperators
from odc_mlir import targets
from odc_mlir.interpreters.module import run_module

CONFIGURATIONS = list(itertools.product(targets.names(), targets.MEMORY_MODES))


@pytest.mark.parametrize(
    ("name", "target", "memory"),
    [(name, *CONFIGURATIONS[index % len(CONFIGURATIONS)]) for index, name in enumerate(CASES)],
)
def test_operator(name: str, target: str, memory: str) -> None:
    module = module_of(name)
    inputs = inputs_of(module)
    package = odc_mlir.compile(module, target=target, memory=memory, strict=True, placement={"strategy": "supported"})
    found = odc_mlir.run(package, inputs, strict=True)
    for ours, expected in zip(found, run_module(module, inputs), strict=True):
        assert ours.dtype == expected.dtype
        np.testing.assert_array_equal(ours, expected)


def compare_random(seed: int, count: int, *, wide: bool) -> None:
    """Random operators give the host's integers; most of them are placed."""
    operators = RandomOperators(seed, count, wide=wide)
    target, memory = CONFIGURATIONS[seed % len(CONFIGURATIONS)]
    package = odc_mlir.compile(operators.model, target=target, memory=memory, placement={"strategy": "supported"})
    inputs = operators.inputs(seed)
    found = odc_mlir.run(package, inputs, strict=True)
    for name, one, other in zip(operators.names, found, odc_mlir.run(operators.model, inputs), strict=True):
        np.testing.assert_array_equal(one, other, err_msg=f"seed {seed}: {name}")
    assert package.plan is not None
    assert len(package.plan.host_reasons) <= 0.35 * count


@pytest.mark.parametrize(("seed", "wide"), [(0, False), (1, True), (2, True)])
def test_random_operators(seed: int, wide: bool) -> None:
    compare_random(seed, 24, wide=wide)


@pytest.mark.soak
@pytest.mark.timeout(390)
@pytest.mark.parametrize("wide", [False, True])
def test_many_random_operators(wide: bool) -> None:
    """1,000 each."""
    for seed in range(100, 150):
        compare_random(seed, 20, wide=wide)
