"""Integer LSTM cells against scalar code, and what layer normalisation and parameters must obey."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from helpers import scalar_recurrent as scalar
from helpers.scalar import quantize_multiplier
from odc_mlir.numerics import lstm
from odc_mlir.numerics.lstm import (
    CELL,
    FORGET,
    INPUT,
    OUTPUT,
    CellParameters,
    Factor,
    Gate,
    IntegerLstm,
    Projection,
    basic_cell,
    basic_step,
)
from odc_mlir.numerics.transcendental import inverse_sqrt

Array = NDArray[Any]

NAMES = {INPUT: "input", FORGET: "forget", CELL: "cell", OUTPUT: "output"}
FEATURES, CELLS, OUTPUTS, BATCH, EXPONENT = 3, 4, 2, 3, -11
ZEROS = (-7, 5, -3)  # of input, output, hidden values


class Random:
    """A cell with random weights, as the package and as scalar code want it."""

    def __init__(self, seed: int, *, coupled: bool, peephole: bool, projection: bool) -> None:
        self.rng = np.random.default_rng(seed)
        self.weights: dict[str, Array] = {}
        self.vectors: dict[str, Array] = {}
        self.factors: dict[str, tuple[int, int]] = {"hidden": quantize_multiplier(2.0**-30 * 128)}
        self.out = OUTPUTS if projection else CELLS
        self.clips = (int(self.rng.integers(0, 2)) * 3000, int(self.rng.integers(0, 2)) * 60)
        gates = [None if coupled and index == INPUT else self.gate(name, peephole) for index, name in NAMES.items()]
        last = self.projection() if projection else None
        hidden_zero = -ZEROS[2] if projection else ZEROS[1]
        self.cell = IntegerLstm(
            gates, CellParameters(EXPONENT, self.clips[0], Factor(*self.factors["hidden"]), hidden_zero, ZEROS[1], last)
        )

    def matrix(self, name: str, *shape: int) -> tuple[Array, Factor]:
        self.weights[name] = self.rng.integers(-128, 128, shape).astype(np.int8)
        self.factors[name] = quantize_multiplier(float(self.rng.uniform(0.2, 0.9)))
        return self.weights[name], Factor(*self.factors[name])

    def vector(self, name: str, size: int, limit: int, dtype: str) -> Array:
        self.vectors[name] = self.rng.integers(-limit, limit, size).astype(dtype)
        return self.vectors[name]

    def gate(self, name: str, peephole: bool) -> Gate:
        inputs, input_factor = self.matrix(f"input_to_{name}_weights", CELLS, FEATURES)
        recurrent, recurrent_factor = self.matrix(f"recurrent_to_{name}_weights", CELLS, self.out)
        bias = self.vector(f"{name}_gate_bias", CELLS, 5000, "int32")
        seen = None
        if peephole and name != "cell":
            seen = self.vector(f"cell_to_{name}_weights", CELLS, 30000, "int16")
            self.factors[f"cell_to_{name}_weights"] = quantize_multiplier(2.0**-14)
        return Gate(
            inputs,
            lstm.bias_with_zero(inputs, ZEROS[0], bias),
            input_factor,
            recurrent,
            lstm.bias_with_zero(recurrent, ZEROS[1]),
            recurrent_factor,
            seen,
            Factor(*quantize_multiplier(2.0**-14)),
        )

    def projection(self) -> Projection:
        weights, factor = self.matrix("projection_weights", OUTPUTS, CELLS)
        factor = Factor(*quantize_multiplier(0.01))
        self.factors["projection_weights"] = (factor.multiplier, factor.exponent)
        bias = self.vector("projection_bias", OUTPUTS, 900, "int32")
        # Hidden codes carry the negated zero point, which the bias takes off.
        return Projection(weights, lstm.bias_with_zero(weights, -ZEROS[2], bias), factor, self.clips[1])

    def scalar_step(self, x: Array, h: Array, c: Array) -> tuple[list[int], list[int]]:
        return scalar.integer_step(
            x.tolist(),
            h.tolist(),
            c.tolist(),
            {name: values.tolist() for name, values in self.weights.items()},
            {name: values.tolist() for name, values in self.vectors.items()},
            self.factors,
            ZEROS,
            EXPONENT,
            self.clips,
        )


@pytest.mark.parametrize(("coupled", "peephole", "projection"), list(itertools.product([False, True], repeat=3)))
def test_steps_as_scalar(coupled: bool, peephole: bool, projection: bool) -> None:
    for seed in range(2):
        made = Random(seed, coupled=coupled, peephole=peephole, projection=projection)
        h = np.full((BATCH, made.out), ZEROS[1], np.int8)
        c = np.zeros((BATCH, CELLS), np.int16)
        for _ in range(3):
            x = made.rng.integers(-128, 128, (BATCH, FEATURES)).astype(np.int8)
            expected = [made.scalar_step(*row) for row in zip(x, h, c, strict=True)]
            h, c = made.cell.step(made.cell.inputs(x), (h, c))
            assert (h.dtype, c.dtype) == (np.int8, np.int16)
            assert (h.tolist(), c.tolist()) == ([row[0] for row in expected], [row[1] for row in expected])


@given(st.lists(st.integers(-32768, 32767), min_size=1, max_size=6), st.integers(0, 2**32 - 1))
def test_layer_norm_as_scalar(row: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    weights, bias = rng.integers(1, 30000, len(row)), rng.integers(-(2**20), 2**20, len(row))
    scale = float(np.float32(rng.uniform(1e-5, 1e-3)))
    norm = lstm.gate_norm(weights.astype(np.int16), bias.astype(np.int32), scale)
    found = lstm.layer_norm(np.array([row]), norm)
    mean = scalar.truncated(sum(row) * 1024, len(row))
    squares = sum(v * v for v in row) * (2**20 // len(row)) - mean * mean
    variance = scalar.truncated(squares, 2**20)
    q, e = inverse_sqrt(np.array([norm.least_variance if variance < 1 else variance]))
    assert found.dtype == np.int16
    assert found[0].tolist() == scalar.layer_norm(
        row, weights.tolist(), bias.tolist(), scale, root=(int(q[0]), int(e[0]))
    )


def test_layer_norm_is_close_to_real() -> None:
    rng = np.random.default_rng(1)
    x, weights = rng.integers(-9000, 9000, (4, 16)), rng.integers(8000, 16000, 16).astype(np.int16)
    scale = 2.0**-14
    found = lstm.layer_norm(x, lstm.gate_norm(weights, np.zeros(16, np.int32), scale)) / 4096
    real = (x - x.mean(axis=1, keepdims=True)) / x.std(axis=1, keepdims=True) * (weights * scale)
    assert np.abs(found - real).max() < 2e-3


def test_equal_sums_use_the_least_variance() -> None:
    norm = lstm.gate_norm(np.full(3, 100, np.int16), np.array([1024, 2048, -1024], np.int32), 0.25)
    assert norm.least_variance == 2500
    assert lstm.layer_norm(np.full((1, 3), 77), norm).tolist() == [[1024, 2048, -1024]]
    assert lstm.gate_norm(np.ones(1), np.ones(1), 1e-9).least_variance == 1


@pytest.mark.parametrize(
    ("scale", "exponent"),
    [(2.0**-15, -15), (2.0**-9, -9), (2.0**-11 * 1.0001, -11), (2.0**-16, None), (2.0**-8, None), (3e-4, None)],
)
def test_cell_scales(scale: float, exponent: int | None) -> None:
    assert lstm.cell_exponent(scale) == exponent


def test_parameters() -> None:
    assert lstm.clip_code(0.0, 0.1, 127) == 0
    assert lstm.clip_code(1.0, 0.3, 127) == 3
    assert lstm.clip_code(1000.0, 0.3, 127) == 127
    assert lstm.hidden_factor(2.0**-7) == Factor(*quantize_multiplier(2.0**-23))
    assert lstm.peephole_factor(-11, 2.0**-15, 2.0**-12) == Factor(*quantize_multiplier(2.0**-14))
    product = np.float32(np.float32(np.float32(0.1) * np.float32(0.3)) / np.float32(0.7))
    assert lstm.product_factor(0.1, 0.3, 0.7) == Factor(*quantize_multiplier(float(product)))
    weights = np.array([[1, 2], [-3, 4]], np.int8)
    assert lstm.bias_with_zero(weights, 10).tolist() == [-30, -10]
    assert lstm.bias_with_zero(weights, -10, np.array([1, 2], np.int32)).tolist() == [31, 12]


@given(st.lists(st.integers(-32768, 32767), min_size=4, max_size=4), st.integers(-32768, 32767))
def test_basic_step_as_scalar(sums: list[int], state: int) -> None:
    output, new = basic_step(np.array([sums], np.int16), np.array([[state]], np.int16))
    entry, forget, gate = (scalar.logistic(sums[i]) for i in (0, 2, 3))
    added = scalar.power(scalar.high_product(entry, scalar.tanh(sums[1], 3)), -4)
    expected = scalar.saturate(added + scalar.high_product(forget, state))
    result = scalar.high_product(gate, scalar.tanh(scalar.power(expected, 1), 3))
    assert new.tolist() == [[expected]]
    assert output.tolist() == [[max(-128, min(127, scalar.power(result, -8))) + 128]]


def test_basic_sums_as_scalar() -> None:
    rng = np.random.default_rng(2)
    weights, x = rng.integers(0, 256, (8, 5)).astype(np.uint8), rng.integers(0, 256, (3, 5)).astype(np.uint8)
    bias, scale = rng.integers(-9000, 9000, 8).astype(np.int32), float(np.float32(1.5e-4))
    found = basic_cell(weights, 119, bias, scale).sums(x)
    factor = quantize_multiplier(float(np.float32(4096) * np.float32(scale)))
    for row, codes in zip(found.tolist(), x.tolist(), strict=True):
        for value, column, offset in zip(row, weights.tolist(), bias.tolist(), strict=True):
            total = scalar.dot([v - 128 for v in codes], [w - 119 for w in column]) + offset
            assert value == scalar.saturate(scalar.multiply(total, *factor))
