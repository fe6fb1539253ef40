"""Arithmetic of native kernels is that of numerics, number by number."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from xdsl.dialects.builtin import ModuleOp

from helpers.native import native_function
from odc_mlir.codegen.machine import import_llvm, resolve, target_machine
from odc_mlir.emitter.native_segment import llvm_text
from odc_mlir.numerics.fixed import INT32_MAX, multiply, requantize
from odc_mlir.transforms.native.convert_native_to_llvm import convert_functions
from odc_mlir.transforms.native.kernels import registry
from odc_mlir.transforms.native.kernels.loops import BYTES, INDEX, WORDS, Loops, buffer, i8, i16
from odc_mlir.transforms.native.kernels.registry import LANES
from odc_mlir.transforms.native.lowering.arithmetic import scaling_fields
from odc_mlir.universe import make_context

Array = NDArray[Any]

EDGES = [0, 1, -1, 2, -2, 255, -255, (1 << 29) - 1, 1 << 29, -(1 << 29), (1 << 30) - 1, 1 - (1 << 30)]
MULTIPLIERS = [1 << 30, (1 << 30) + 1, INT32_MAX, INT32_MAX - 1, 1518500250]


@cache
def _scale() -> Callable[..., None]:
    """A function ``(sums, fields, result, count)``: every sum by its own multiplier."""
    helper = registry.Helpers("")["scale"]
    w = Loops("run", {"sums": WORDS, "fields": WORDS, "result": WORDS, "count": INDEX})

    def chunk(i: Any) -> None:
        fields = [w.load_lanes(w["fields"], w.add(w.mul(w["count"], n), i), LANES) for n in range(4)]
        w.store_lanes(w.call(helper, w.load_lanes(w["sums"], i, LANES), *fields), w["result"], i)

    w.each(0, w["count"], LANES, chunk)
    return native_function(w.finish(), [helper])


def scaled(sums: Array, q: Array, e: Array) -> Array:
    """``sums`` by native code, padded to whole vectors."""
    size = -(-sums.size // LANES) * LANES
    values, fields, result = np.zeros(size, np.int32), np.zeros((4, size), np.int32), np.zeros(size, np.int32)
    values[: sums.size] = sums
    for row, numbers in zip(fields, scaling_fields(q, e), strict=True):
        row[: sums.size] = numbers
    _scale()(values, fields, result, size)
    return result[: sums.size]


def test_scaling_at_every_edge() -> None:
    grid = np.array(np.meshgrid(EDGES, MULTIPLIERS, -np.arange(32)), np.int64).reshape(3, -1)
    sums, q, e = grid[:, np.abs(grid[0]) < (1 << 30)]
    np.testing.assert_array_equal(scaled(sums, q, e), multiply(sums, q, e))


def test_scaling_around_every_tie() -> None:
    """Sums that lie on, just below and just above what rounds another way, of both signs."""
    e = np.repeat(-np.arange(1, 24), 6 * 64)
    whole = np.tile(np.repeat(np.arange(64), 6), 23)
    shift = -e
    tie = ((2 * whole + 1) << shift) >> 1
    sums = (np.tile([-1, 0, 1, -1, 0, 1], 23 * 64) + tie) * np.tile([1, 1, 1, -1, -1, -1], 23 * 64)
    keep = np.abs(sums) < (1 << 29)
    sums, e = sums[keep], e[keep]
    q = np.full(sums.size, INT32_MAX)
    np.testing.assert_array_equal(scaled(sums, q, e), multiply(sums, q, e))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_scaling_anything(seed: int) -> None:
    random = np.random.default_rng(seed)
    sums = random.integers(-(1 << 30) + 1, 1 << 30, 1024) >> random.integers(0, 28, 1024)
    q, e = random.integers(1 << 30, 1 << 31, 1024), -random.integers(0, 32, 1024)
    np.testing.assert_array_equal(scaled(sums, q, e), multiply(sums, q, e))


def test_requantising_clamps_and_shifts() -> None:
    helper = registry.Helpers("")["scale"]
    w = Loops("run", {"sums": WORDS, "fields": WORDS, "result": BYTES})
    fields = [w.load_lanes(w["fields"], w.constant(n * LANES), LANES) for n in range(7)]
    total = w.call(helper, w.load_lanes(w["sums"], w.constant(0), LANES), *fields[:4])
    w.store_lanes(registry.within(w, total, fields[4:], i8), w["result"], w.constant(0))
    run = native_function(w.finish(), [helper])
    sums = np.array([-5000, -129, -128, -3, -2, -1, 0, 1, 2, 3, 126, 127, 128, 129, 250, 5000], np.int32)
    q, e, result = 1 << 30, -1, np.zeros(LANES, np.uint8)
    numbers = [*scaling_fields(q, e), 7, 3, 250]
    run(sums, np.repeat(np.array(numbers, np.int32), LANES), result)
    np.testing.assert_array_equal(result, requantize(sums, q, e, 7, 3, 250, np.uint8))


@pytest.mark.parametrize(
    ("target", "instructions"),
    [("aarch64-dotprod", {"sdot"}), ("aarch64-i8mm", {"usdot", "sudot"})],  # by whether x or the weights come first
)
def test_products_of_other_processors(target: str, instructions: set[str]) -> None:
    """What they compute is seen where whole models run under an emulator."""
    machine = resolve(target)
    helper = registry.Helpers(machine.dot)["dot"]
    helper.properties.pop("sym_visibility", None)
    module = ModuleOp([helper])
    convert_functions(make_context(), module)
    generator, parsed = target_machine(machine), import_llvm().parse_assembly(llvm_text(module))
    parsed.triple, parsed.data_layout = machine.triple, str(generator.target_data)
    found = {line.split()[0] for line in generator.emit_assembly(parsed).splitlines() if line.split()}
    assert found & instructions


KINDS = [("portable", None), ("shifts", None), ("madd", "avx2"), ("vnni", "avx512vnni")]


@pytest.mark.parametrize(("kind", "feature"), KINDS)
def test_dot_products(kind: str, feature: str | None) -> None:
    _skip_without(feature)
    helper = registry.Helpers(kind)["dot"]
    w = Loops("run", {"x": BYTES, "weights": BYTES, "sums": WORDS})
    first = w.constant(0)
    arguments = [w.load_lanes(w["sums"], first, LANES), w.load_lanes(w["x"], first, 4)]
    w.store_lanes(w.call(helper, *arguments, w.load_lanes(w["weights"], first, 4 * LANES)), w["sums"], first)
    run = native_function(w.finish(), [helper])
    random = np.random.default_rng(3)
    for x in (random.integers(0, 256, 4), np.full(4, 255)):
        for weights in (random.integers(-128, 128, (LANES, 4)), np.full((LANES, 4), -128), np.full((LANES, 4), 127)):
            sums = random.integers(-1000, 1000, LANES).astype(np.int32)
            expected = sums + weights @ x
            run(x.astype(np.uint8), weights.astype(np.int8), sums)
            np.testing.assert_array_equal(sums, expected)


KINDS = [("portable", None), ("shifts", None), ("madd", "avx2"), ("vnni", "avx512vnni")]


@pytest.mark.parametrize(("kind", "feature"), KINDS)
def test_dot_products_of_pairs(kind: str, feature: str | None) -> None:
    _skip_without(feature)
    helper = registry.Helpers(kind)["dot_pairs"]
    w = Loops("run", {"x": buffer(i16), "weights": buffer(i16), "sums": WORDS})
    first = w.constant(0)
    arguments = [w.load_lanes(w["sums"], first, LANES), w.load_lanes(w["x"], first, 2)]
    w.store_lanes(w.call(helper, *arguments, w.load_lanes(w["weights"], first, 2 * LANES)), w["sums"], first)
    run = native_function(w.finish(), [helper])
    random = np.random.default_rng(3)
    for x in (random.integers(-30000, 30000, 2), np.array([-32768, 32767])):
        for weights in (random.integers(-128, 128, (LANES, 2)), *(np.full((LANES, 2), end) for end in (-32768, 32767))):
            sums = random.integers(-1000, 1000, LANES).astype(np.int32)
            expected = (sums + weights @ x).astype(np.int32)
            run(x.astype(np.int16), weights.astype(np.int16), sums)
            np.testing.assert_array_equal(sums, expected)


def _skip_without(feature: str | None) -> None:
    """Skip where this machine cannot run code that needs ``feature``."""
    from odc_mlir.codegen.machine import running_features

    if feature is not None and feature not in running_features():
        pytest.skip(f"this machine has no {feature}")
