"""A decoder's step with a cache that the token joins at a computed position."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import odc_mlir
from helpers.decode_step import decode_step
from odc_mlir.runtime import Session
from odc_mlir.runtime.package import Package
from odc_mlir.support.text import parse_module
from odc_mlir.universe import make_context

POSITIONS = 12


@pytest.fixture(scope="module")
def package() -> Package:
    module = parse_module(make_context(), decode_step(32, 2, POSITIONS))
    return odc_mlir.compile(module, target="npu-256", strict=True)


def test_a_step_is_one_segment(package: Package) -> None:
    assert package.report["segment_count"] == 1
    assert package.report["host_op_count"] == 0


@pytest.mark.parametrize("position", [-(1 << 31), -1, 0, 5, POSITIONS - 1, POSITIONS, (1 << 31) - 1])
def test_a_token_joins_the_cache_at_its_position(package: Package, position: int) -> None:
    random = np.random.default_rng(1)
    codes = [random.integers(-128, 128, spec.shape).astype(np.int8) for spec in package.inputs[:4]]
    inputs = [*codes, np.array([0, position, 0], np.int32)]
    found = odc_mlir.run(package, inputs, strict=True)
    for ours, host in zip(found, odc_mlir.run(package, inputs, backend="host"), strict=True):
        np.testing.assert_array_equal(ours, host)
    changed = (found[1] != codes[1]).any(axis=(0, 2))
    assert np.flatnonzero(changed).tolist() == [min(max(position, 0), POSITIONS - 1)]


def test_a_ring_of_rows_stays_on_the_device(package: Package) -> None:
    """The caches are states: a token changes a row where it is, and after the last row the first comes again."""
    module = parse_module(make_context(), decode_step(32, 2, POSITIONS))
    names = zip(package.outputs[1:], package.inputs[1:3], strict=True)
    ring = odc_mlir.compile(module, target="npu-256", strict=True, states=[f"{y.name}={x.name}" for y, x in names])
    random = np.random.default_rng(1)
    with Session(ring, "host") as host, Session(ring, strict=True) as npu:
        for step in range(POSITIONS + 2):
            codes = [random.integers(-128, 128, ring.inputs[at].shape).astype(np.int8) for at in (0, 1)]
            inputs = [*codes, np.array([0, step % POSITIONS, 0], np.int32)]
            np.testing.assert_array_equal(npu.infer(inputs)[0], host.infer(inputs)[0])
        for name, rows in host.get_state().items():
            np.testing.assert_array_equal(npu.get_state()[name], rows)
    moved = [each["cycles"] for each in ring.report["layers"] if each["op"] == "DYNAMIC_UPDATE_SLICE"]
    plain = [each["cycles"] for each in package.report["layers"] if each["op"] == "DYNAMIC_UPDATE_SLICE"]
    assert len(moved) == 2
    assert moved == plain, "an input that nothing else needs is changed where it is as well"


def _random_updates(random: Random) -> tuple[str, dict[str, str]]:
    """A function that replaces rows of tensors, compares them and keeps some as states, and these by output."""
    tensor = "tensor<1x8x4x!quant.uniform<i8:f32, 0.5>>"
    row = tensor.replace("8x4", "1x4")
    values, lines = ["%x", "%g", "%h"], []
    for number in range(random.randint(2, 8)):
        a, b = random.choice(values), random.choice(values)
        name = random.choice(["dynamic_update_slice", "maximum", "minimum"])
        operands, types = (f"{a}, %r, %p", f"{row}, tensor<3xi32>") if "slice" in name else (f"{a}, {b}", tensor)
        lines.append(f'%{number} = circle.{name}({operands}) : ({tensor}, {types}) -> {tensor} loc("y{number}")')
        values.append(f"%{number}")
    outputs = random.sample(values[3:], min(len(values) - 3, 3))
    inputs = ", ".join(f'%{name}: {tensor} loc("{name}")' for name in "xgh")
    results = ", ".join([tensor] * len(outputs))
    lines.insert(0, f'func.func @main({inputs}, %r: {row} loc("r"), %p: tensor<3xi32> loc("p")) -> ({results}) {{')
    lines.append(f"func.return {', '.join(outputs)} : {results}\n}}")
    return "\n".join(lines), {output.replace("%", "y"): state for output, state in zip(outputs, "gh", strict=False)}


@pytest.mark.parametrize("seed", range(0, 40, 10))
def test_rows_are_replaced_in_place_only_where_nothing_else_reads_them(seed: int) -> None:
    for number in range(seed, seed + 10):
        text, states = _random_updates(Random(number))
        module = parse_module(make_context(), text)
        odc_mlir.compile(module, states=states, placement={"strategy": "supported"}, verify="run")
