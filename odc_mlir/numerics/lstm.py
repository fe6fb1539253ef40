"""Integer LSTM cells of TensorFlow Lite: 8-bit inputs and outputs, 16-bit gates and cell state.

Gates are computed in Q3 (3 integer bits), logistic functions and tangents of gates in Q0. Parameters of the full cell
are integers, derived from scales with the reference's float32 roundings. Inputs and outputs of the basic cell are uint8
with scale 1/128 and zero point 128. Its state is in Q4.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics import gates
from odc_mlir.numerics.fixed import multiply, quantize_multiplier, rdbpot, requantize, wrap32
from odc_mlir.numerics.gates import saturate16, shift16, srdhm16
from odc_mlir.numerics.matmul import Matrix, integer_matrix
from odc_mlir.numerics.pieces import row_slices
from odc_mlir.numerics.transcendental import inverse_sqrt

Codes = NDArray[Any]

GATES = INPUT, FORGET, CELL, OUTPUT = range(4)
CELL_EXPONENTS = range(-15, -8)  # exponents of the state's scale, because tanh accepts 0 to 6 integer bits

_LARGEST_CODE = 128
_NORM_FRACTION = 10  # extra fraction bits of normalised values
_LARGEST_GUARD = 10_000

STATE_BITS = 4  # integer bits of the basic cell's state
ZERO = 128  # zero point of the basic cell's inputs and outputs


@dataclass(frozen=True, slots=True)
class Factor:
    """Real factor ``multiplier * 2^(exponent - 31)``."""

    multiplier: int
    exponent: int


@dataclass(frozen=True, slots=True)
class GateNorm:
    """Layer normalisation of a gate: weights and bias ``[C]``, and the variance that replaces 0."""

    weights: Codes  # int16
    bias: Codes  # int32
    factor: Factor
    least_variance: int


@dataclass(frozen=True, slots=True)
class Gate:
    """A gate: weights ``[C, I]`` and ``[C, O]`` (int8), biases ``[C]`` with zero-point terms (int32).

    ``peephole``: int16 weights ``[C]`` of the cell state, or None.
    """

    inputs: Codes
    input_bias: Codes
    input_factor: Factor
    recurrent: Codes
    recurrent_bias: Codes
    recurrent_factor: Factor
    peephole: Codes | None = None
    peephole_factor: Factor = Factor(0, 0)
    norm: GateNorm | None = None


@dataclass(frozen=True, slots=True)
class Projection:
    """int8 weights ``[O, C]``, bias ``[O]`` with the term of the hidden zero point, and ``clip`` in codes."""

    weights: Codes
    bias: Codes
    factor: Factor
    clip: int


@dataclass(frozen=True, slots=True)
class CellParameters:
    """Parameters of the cell: ``exponent`` of the state's scale, ``clip`` in codes (0: none)."""

    exponent: int
    clip: int
    hidden_factor: Factor
    hidden_zero: int  # negated zero point of the hidden values (the results, if there is no projection)
    output_zero: int
    projection: Projection | None = None


class IntegerLstm:
    """Prepared cell. The input gate is None if it is coupled to the forget gate."""

    def __init__(self, gate_list: Sequence[Gate | None], cell: CellParameters) -> None:
        self.present = [index for index, gate in enumerate(gate_list) if gate is not None]
        self.gates: list[Gate] = [gate for gate in gate_list if gate is not None]
        self.cell = cell
        self._inputs = _Stack([(g.inputs, g.input_bias, g.input_factor) for g in self.gates])
        self._recurrent = _Stack([(g.recurrent, g.recurrent_bias, g.recurrent_factor) for g in self.gates])
        projection = cell.projection
        self._projection = None
        if projection is not None:
            self._projection = _Stack([(projection.weights, projection.bias, projection.factor)])

    def inputs(self, x: Codes, aux: Codes | None = None) -> Codes:
        """Return the contributions of inputs ``[N, I]`` to all gates, ``[N, gates * C]``, for any number of steps."""
        return saturate16(self._inputs.product(x).astype(np.int64))

    def step(self, inputs: Codes, state: tuple[Codes, ...]) -> tuple[Codes, ...]:
        """Return the new output ``[N, O]`` (int8) and cell state ``[N, C]`` (int16) of one step."""
        hidden, cell = state
        sums = saturate16(inputs + self._recurrent.product(hidden).astype(np.int64))
        columns = dict(zip(self.present, np.split(sums, len(self.gates), axis=1), strict=True))
        entry = self._finished(INPUT, columns, cell) if INPUT in columns else None
        forget, modulation = (self._finished(index, columns, cell) for index in (FORGET, CELL))
        new = next_cell(entry, forget, modulation, cell, self.cell.exponent, self.cell.clip)
        return self._output(hidden_products(self._finished(OUTPUT, columns, new), new, self.cell.exponent)), new

    def _finished(self, index: int, columns: dict[int, Codes], cell: Codes) -> NDArray[np.int16]:
        gate, sums = self.gates[self.present.index(index)], columns[index]
        if gate.peephole is not None:
            seen = multiply(gate.peephole.astype(np.int64) * cell, *_pair(gate.peephole_factor))
            sums = saturate16(sums + seen.astype(np.int64))
        return sums.astype(np.int16) if gate.norm is None else layer_norm(sums, gate.norm)

    def _output(self, products: Codes) -> Codes:
        """Return results ``[N, O]`` from products of output gate and tangent ``[N, C]`` (Q30)."""
        cell = self.cell
        hidden = requantize(products, *_pair(cell.hidden_factor), cell.hidden_zero, -128, 127, "int8")
        if cell.projection is None or self._projection is None:
            return hidden
        codes = np.clip(self._projection.product(hidden).astype(np.int64) + cell.output_zero, -128, 127)
        if cell.projection.clip:
            codes = np.clip(codes, -cell.projection.clip, cell.projection.clip)
        return codes.astype(np.int8)


class _Stack:
    """Concatenated products of one operand with several matrices. Factors of matrices differ."""

    def __init__(self, parts: Sequence[tuple[Codes, Codes, Factor]]) -> None:
        rows = [len(weights) for weights, _, _ in parts]
        self._matrix: Matrix = integer_matrix(np.concatenate([w for w, _, _ in parts]).T, _LARGEST_CODE)
        self._bias = np.concatenate([bias for _, bias, _ in parts]).astype(np.int64)
        self._q = np.repeat([factor.multiplier for _, _, factor in parts], rows)
        self._e = np.repeat([factor.exponent for _, _, factor in parts], rows)

    def product(self, x: Codes) -> NDArray[np.int32]:
        out = np.empty((len(x), len(self._bias)), np.int32)
        for rows in row_slices(out):
            out[rows] = multiply(wrap32(self._matrix.product(x[rows]) + self._bias), self._q, self._e)
        return out


def next_cell(
    entry: Codes | None, forget: Codes, modulation: Codes, cell: Codes, exponent: int, clip: int
) -> NDArray[np.int16]:
    """Return the new cell state from the gates' arguments (int16, Q3) and the old state.

    ``entry`` is the input gate's argument, or None if the gate is one minus the forget gate. ``exponent``: exponent of
    the state's scale. ``clip`` is in codes, 0 for none.
    """
    kept = gates.logistic(forget).astype(np.int64)
    taken = gates.HIGH - kept if entry is None else gates.logistic(entry).astype(np.int64)
    added = rdbpot(taken * gates.tanh(modulation, gates.GATE_BITS), 30 + exponent)
    new = saturate16(rdbpot(kept * cell, 15) + added)
    return (np.clip(new, -clip, clip) if clip else new).astype(np.int16)


def hidden_products(output: Codes, cell: Codes, exponent: int) -> NDArray[np.int64]:
    """Return the output gate times the tangent of the new cell state, in Q30.

    ``output`` is the gate's argument in Q3.
    """
    return gates.logistic(output).astype(np.int64) * gates.tanh(cell, 15 + exponent)


def layer_norm(x: Codes, norm: GateNorm) -> NDArray[np.int16]:
    """Normalise rows of int16 codes ``[N, C]``, then apply weights and bias. The result is in Q3."""
    x = x.astype(np.int64)
    count = x.shape[1]
    mean = _truncated(x.sum(axis=1, keepdims=True) << _NORM_FRACTION, count)
    squares = (x * x).sum(axis=1, keepdims=True) * ((1 << 2 * _NORM_FRACTION) // count)
    variance = wrap32(_truncated(squares - mean * mean, 1 << 2 * _NORM_FRACTION)).astype(np.int64)
    q, e = inverse_sqrt(np.where(variance < 1, norm.least_variance, variance))
    normal = multiply((x << _NORM_FRACTION) - mean, q, e).astype(np.int64)
    weighted = wrap32(normal * norm.weights + norm.bias).astype(np.int64)
    half = 1 << _NORM_FRACTION - 1
    rounded = _truncated(np.where(weighted > 0, weighted + half, weighted - half), 1 << _NORM_FRACTION)
    scaled = multiply(rounded, norm.factor.multiplier, norm.factor.exponent + 12)
    return saturate16(scaled.astype(np.int64)).astype(np.int16)


def _truncated(a: NDArray[np.int64], b: int) -> NDArray[np.int64]:
    return np.asarray(np.sign(a) * (np.abs(a) // b))


def _pair(factor: Factor) -> tuple[int, int]:
    return factor.multiplier, factor.exponent


def bias_with_zero(weights: Codes, zero_point: int, bias: Codes | None = None) -> NDArray[np.int32]:
    """Return the bias ``bias - zero_point * row sums``, ``[rows]``, for inputs with a zero point."""
    sums = weights.astype(np.int64).sum(axis=1) * -zero_point
    return wrap32(sums if bias is None else sums + bias)


def product_factor(a: float, b: float, result: float) -> Factor:
    """Return the factor ``a * b / result``, rounded to float32 after each step."""
    product = np.float32(np.float32(a) * np.float32(b))
    return Factor(*quantize_multiplier(float(np.float32(product / np.float32(result)))))


def peephole_factor(cell_exponent: int, weights: float, result: float) -> Factor:
    """Return the factor ``2^cell_exponent * weights / result``, rounded to float32 once."""
    exact = math.ldexp(float(np.float32(weights)), cell_exponent) / float(np.float32(result))
    return Factor(*quantize_multiplier(float(np.float32(exact))))


def hidden_factor(scale: float) -> Factor:
    """Return the factor of a product of two Q0 numbers for results with ``scale``."""
    return Factor(*quantize_multiplier(float(np.float32(2.0**-30 / float(np.float32(scale))))))


def clip_code(limit: float, scale: float, largest: int) -> int:
    """Return a clipping bound as a code, truncated, or 0 for none."""
    return int(min(float(np.float32(limit) / np.float32(scale)), largest)) if limit > 0 else 0


def gate_norm(weights: Codes, bias: Codes, scale: float) -> GateNorm:
    """Return the layer normalisation with ``weights`` of this scale."""
    least = max(1, int(np.float32(_LARGEST_GUARD) * np.float32(scale)))
    return GateNorm(weights, bias, Factor(*quantize_multiplier(float(np.float32(scale)))), least)


def cell_exponent(scale: float) -> int | None:
    """Return the exponent of a cell state's scale, or None unless it is a valid power of two."""
    power = math.log2(scale)
    nearest = round(power)
    return nearest if abs(power - nearest) < 1e-3 and nearest in CELL_EXPONENTS else None


@dataclass(frozen=True, slots=True)
class BasicCell:
    """Prepared weights ``[I + O, 4*O]`` minus zero point, bias ``[4*O]``, and the factor from sums to Q3."""

    matrix: Matrix
    bias: Codes
    multiplier: int
    exponent: int

    def sums(self, x: Codes) -> NDArray[np.int16]:
        """Return the sums of all gates ``[N, 4*O]`` for the concatenated input and last output ``[N, I + O]``."""
        total = wrap32(self.matrix.product(x.astype(np.int32) - ZERO).astype(np.int64) + self.bias)
        return saturate16(multiply(total, self.multiplier, self.exponent).astype(np.int64)).astype(np.int16)


def basic_cell(weights: Codes, weight_zero: int, bias: Codes, bias_scale: float) -> BasicCell:
    """Prepare ``weights [4*O, I + O]`` and ``bias [4*O]``. Sums have ``bias_scale``."""
    q, e = quantize_multiplier(float(np.float32(1 << 15 - gates.GATE_BITS) * np.float32(bias_scale)))
    return BasicCell(integer_matrix((weights.astype(np.int32) - weight_zero).T, ZERO), bias, q, e)


def basic_step(sums: NDArray[np.int16], state: Codes) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Return output and new cell state ``[N, O]`` from sums ``[N, 4*O]``.

    The order of gates is input, modulation, forget, output.
    """
    entry, modulation, forget, output = (np.ascontiguousarray(part) for part in np.split(sums, 4, axis=1))
    added = srdhm16(_wide(gates.logistic(entry)), _wide(gates.tanh(modulation, gates.GATE_BITS)))
    kept = srdhm16(_wide(gates.logistic(forget)), _wide(state))
    new = saturate16(shift16(added, -STATE_BITS) + kept)
    argument = shift16(new, STATE_BITS - gates.GATE_BITS).astype(np.int16)
    result = srdhm16(_wide(gates.logistic(output)), _wide(gates.tanh(argument, gates.GATE_BITS)))
    codes = np.clip(shift16(result, -8), -ZERO, ZERO - 1) + ZERO
    return codes.astype(np.uint8), new.astype(np.int16)


def _wide(x: Codes) -> NDArray[np.int64]:
    return x.astype(np.int64)
