"""Each operator and variant alone: compiled, run on the simulator, equal to the host kernel bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import odc_mlir
from helpers.operator_cases import CASES, inputs_of, module_of
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
