"""Each operator and variant alone: compiled, run on the simulator, equal to the host kernel bit for bit."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import odc_mlir
from helpers.interpreting import run_module
from helpers.models import ModelBuilder, model_bytes
from helpers.operator_cases import CASES, inputs_of, module_of
from helpers.random_operators import RandomOperators
from odc_mlir import targets
from odc_mlir.errors import InputError
from odc_mlir.runtime.execution.plan import PlanExecutor

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


def test_a_number_of_no_row_is_refused_as_host_kernels_do() -> None:
    """And nothing but that run is."""
    module = module_of("gather-i32-i8-of-20x24-axis-0")
    (places,) = inputs_of(module)
    package = odc_mlir.compile(module, strict=True, placement={"strategy": "supported"})
    executor, said = package.executor(), []
    for backend in ("host", "npu"):
        with pytest.raises(InputError, match="index -1 is out of range; allowed are 0 to 19") as raised:
            odc_mlir.run(package, [np.full_like(places, -1)], backend=backend)
        said.append(str(raised.value))
    assert said[0] == said[1]
    with pytest.raises(InputError):
        executor.run([np.full_like(places, 20)])
    np.testing.assert_array_equal(executor.run([places])[0], run_module(module, [places])[0])
    assert isinstance(executor, PlanExecutor)
    assert not executor.fallbacks


# A case of each of some operators whose operands and results have one scale.
MOVING = (
    "average-pool",
    "bilinear",
    "dynamic-update-slice",
    "gather-i32-u8-of-2x6x5-axis-1",
    "maximum",
    "nearest",
    "pad",
    "reduce-min",
    "select-v2-broadcast",
)


@pytest.mark.parametrize("name", MOVING)
def test_scales_that_differ_by_rounding_are_one(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    types, body, result = CASES[name]
    next_scale = result.replace("0.05:", "0.0500000037:")
    assert next_scale != result
    monkeypatch.setitem(CASES, name, (types, next_scale.join(body.rsplit(result, 1)), next_scale))
    module = module_of(name)
    package = odc_mlir.compile(module, strict=True, placement={"strategy": "supported"})
    inputs = inputs_of(module)
    for ours, expected in zip(odc_mlir.run(package, inputs), run_module(module, inputs), strict=True):
        np.testing.assert_array_equal(ours, expected)


# scale of the bias, scales of the weights, codes of the bias, codes of the bias in units of sums
UNITS = {
    "zeros": ("0.7", "0.5, 0.25, 0.125", [0, 0, 0], [0, 0, 0]),
    "other": ("0.125", "0.5, 0.25, 0.125", [16, -16, 8], [8, -16, 16]),
    "empty-channel": ("{0.25, 0.0, 0.0625}", "0.5, 0.0, 0.125", [16, 0, 8], [16, 0, 8]),
}


@pytest.mark.parametrize("target", ["npu-256", "cpu", "host"])
@pytest.mark.parametrize("case", UNITS)
def test_units_of_a_bias(case: str, target: str) -> None:
    """Zero has no unit, other units are converted, and a channel without weights may have the scale 0."""
    builder = ModelBuilder()
    scale, weights, bias, sums = UNITS[case]
    codes = np.array([[1, 2], [0, 0] if case == "empty-channel" else [3, -4], [5, 6]], np.int8)
    x = builder.tensor("x", (1, 2), "int8", quant=(0.5, 0))
    w = builder.tensor("w", (3, 2), "int8", data=codes, quant=(0.5, 0))
    b = builder.tensor("b", (3,), "int32", data=np.array(bias, np.int32), quant=(0.5, 0))
    y = builder.tensor("y", (1, 3), "int8", quant=(0.5, 3))
    for index, text in ((w, weights), (b, scale)):
        scales = [float(item) for item in text.strip("{}").split(",")]
        quantization = builder.subgraph.tensors[index].quantization
        assert quantization is not None
        quantization.scale, quantization.zero_point = np.array(scales, np.float32), np.zeros(len(scales), np.int64)
    builder.operator("FULLY_CONNECTED", [x, w, b], [y])
    model = model_bytes(builder.finish([x], [y]))
    rows = np.array([[8, -4]], np.int8)
    placement = None if target == "cpu" else {"strategy": "supported"}
    source = model if target == "host" else odc_mlir.compile(model, target=target, strict=True, placement=placement)
    (found,) = odc_mlir.run(source, [rows])
    factors = np.array([float(item) for item in weights.split(",")])
    np.testing.assert_array_equal(found[0], (codes.astype(int) @ rows[0] + sums) * factors + 3)
