"""LSTM operators: the cell on reals with float32 or 8-bit weights, the cell on codes, and the basic kernel.

The cell on codes has int8 input, weights and output, and an int16 cell state. The basic kernel runs one step with all
gates in one matrix, in float32, or in uint8 with an int16 cell state.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from odc_mlir.numerics import lstm as cells
from odc_mlir.numerics.lut import logistic
from odc_mlir.numerics.pieces import parts
from odc_mlir.ops.infer.common import check_elements, named, option, require_dtype, required
from odc_mlir.ops.infer.recurrent import BASIC_OPERANDS, gates_of, is_basic
from odc_mlir.ops.recurrent import DIRECTIONS, GATES, PEEPHOLE_GATES
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels import sequences
from odc_mlir.runtime.kernels.common import (
    check_scales,
    fetch,
    input_error,
    require_units_of_sums,
    scale_of,
    unsupported,
)

Values = Mapping[str, Array]

_NORM_EPSILON = np.float32(1e-8)
_Q3_SCALE = 2.0**-12  # scale of gates' arguments without normalisation
_NORM_SCALE = 2.0**-10  # scale of normalised values
_INTERMEDIATES = 5  # scales of the four gates before normalisation, and of the hidden values
_HIDDEN = 4
_WIDE_INTERMEDIATES = 12

# From input and last output (concatenated) and the cell state to results 0, 1 and 3.
LstmStep = Callable[[Array, Array], tuple[Array, Array, Array]]

_REAL = ("float32",) * 9
_CODES = ("uint8", "uint8", "uint8", "int32", "int16", "uint8", "int16", "uint8", "int16")
_LAST, _WEIGHTS, _BIAS, _STATE = range(1, BASIC_OPERANDS)
_POWER_TOLERANCE = 1e-3


def unidirectional_sequence_lstm(node: Node) -> Execute:
    """Run the cell over a sequence and update the two states."""
    return sequences.over_time(node, _layer(node))


def lstm(node: Node) -> Execute:
    """Run one step."""
    return _basic_lstm(node) if is_basic(node) else sequences.one_step(node, _layer(node))


def bidirectional_sequence_lstm(node: Node) -> Execute:
    """Run one layer forward and one backward in time."""
    require_dtype(node, node.operand(0), "float32")
    forward, backward = (_layer(node, direction) for direction in DIRECTIONS)
    return sequences.both_ways(node, forward, backward, "fw_aux_input_to_forget_weights")


def _layer(node: Node, direction: str = "") -> sequences.RecurrentLayer:
    x, out = node.operand(0), node.results[0]
    weights, recurrent = (required(node, f"{direction}{kind}_to_output_weights") for kind in ("input", "recurrent"))
    names = [f"{direction}{name}" for name in _cell_names()]
    cell_of: Callable[[sequences.Operands], sequences.Cell]
    if x.dtype == "int8" and not direction:
        cell_of = sequences.when_known(node, names, lambda values: integer_lstm(node, values))
    elif x.dtype == "float32":
        sequences.require_float(node, f"{direction}output_state", f"{direction}cell_state")
        cell_of = sequences.when_known(node, names, lambda values: _RealCell(node, values, direction))
    else:
        raise unsupported(node, f"an input of {x.dtype} with weights of {weights.dtype} is not supported")
    if out.dtype != x.dtype:
        raise unsupported(node, f"an input of {x.dtype} with a result of {out.dtype} is not supported")
    (units, features), outputs = weights.static_shape, recurrent.static_shape[-1]
    states = [(f"{direction}output_state", outputs, sequences.zero_of(out)), (f"{direction}cell_state", units, None)]
    return sequences.RecurrentLayer(node, cell_of, features, outputs, states)


def _cell_names() -> list[str]:
    gates = [
        f"{stem}{gate}{end}"
        for stem, end in (
            ("input_to_", "_weights"),
            ("aux_input_to_", "_weights"),
            ("recurrent_to_", "_weights"),
            ("", "_gate_bias"),
            ("", "_layer_norm_coefficients"),
        )
        for gate in GATES
    ]
    peepholes = [f"cell_to_{gate}_weights" for gate in PEEPHOLE_GATES]
    return [*gates, *peepholes, "projection_weights", "projection_bias"]


class _RealCell(sequences.RealCell):
    """A float32 cell. It adds sums in TFLite's order: bias, input, auxiliary input, output, cell."""

    def __init__(self, node: Node, values: Values, direction: str) -> None:
        self._node, self._values, self._direction = node, values, direction
        self._gates = gates_of(node, direction)
        self._activation = sequences.real_activation(node)
        self._cell_clip, self._output_clip = (np.float32(option(node, f"{part}_clip")) for part in ("cell", "proj"))
        self._inputs = self._stacked("input_to_{}_weights")
        self._aux = self._stacked("aux_input_to_{}_weights") if named(node, "fw_aux_input_to_forget_weights") else None
        self._recurrent = self._stacked("recurrent_to_{}_weights")
        self._peepholes = {gate: self._vector(f"cell_to_{gate}_weights") for gate in self._gates}
        self._biases = {gate: self._vector(f"{gate}_gate_bias") for gate in self._gates}
        self._norms = {gate: self._vector(f"{gate}_layer_norm_coefficients") for gate in self._gates}
        self._bias = self._first_bias()
        self._projection = self._product(["projection_weights"]) if self._has("projection_weights") else None
        self._projection_bias = self._vector("projection_bias")

    def _has(self, name: str) -> bool:
        return self._direction + name in self._values

    def _info(self, name: str) -> TensorInfo:
        return required(self._node, self._direction + name)

    def _product(self, names: Sequence[str]) -> sequences.Function:
        values = [self._values[self._direction + name] for name in names]
        return sequences.product(self._node, [self._info(name) for name in names], values)

    def _stacked(self, pattern: str) -> sequences.Function:
        return self._product([pattern.format(gate) for gate in self._gates])

    def _vector(self, name: str) -> Array | None:
        if not self._has(name):
            return None
        return sequences.real_vector(self._node, self._info(name), self._values[self._direction + name])

    def _first_bias(self) -> Array:
        """Return the initial sums: the biases, or zero for gates that add the bias after normalisation."""
        parts = []
        for gate in self._gates:
            bias = self._biases[gate]
            if bias is None:
                raise self._node.error(f"{self._direction}{gate}_gate_bias is required")
            parts.append(bias if self._norms[gate] is None else np.zeros_like(bias))
        return np.concatenate(parts)

    def step(self, inputs: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        hidden, cell = state
        sums = inputs + self._recurrent(hidden)
        parts = dict(zip(self._gates, np.split(sums, len(self._gates), axis=1), strict=True))
        forget = logistic(self._finished("forget", parts, cell))
        modulation = self._activation(self._finished("cell", parts, None))
        entry = logistic(self._finished("input", parts, cell)) if "input" in parts else np.float32(1) - forget
        cell = forget * cell
        cell += modulation * entry
        if self._cell_clip > 0:
            np.clip(cell, -self._cell_clip, self._cell_clip, out=cell)
        output = logistic(self._finished("output", parts, cell)) * self._activation(cell)
        return self._projected(output), cell

    def _finished(self, gate: str, parts: Mapping[str, Array], cell: Array | None) -> Array:
        """Return a gate's argument: the sums plus the peephole's contribution, normalised."""
        sums, peephole, norm, bias = parts[gate], self._peepholes[gate], self._norms[gate], self._biases[gate]
        if peephole is not None and cell is not None:
            sums = sums + peephole * cell
        if norm is None or bias is None:
            return sums
        centred = sums - sums.mean(axis=1, keepdims=True, dtype=np.float32)
        variance = (centred * centred).mean(axis=1, keepdims=True, dtype=np.float32)
        return np.asarray(centred * (np.float32(1) / np.sqrt(variance + _NORM_EPSILON)) * norm + bias)

    def _projected(self, output: Array) -> Array:
        if self._projection is None:
            return output
        projected = self._projection(output)
        if self._projection_bias is not None:
            projected += self._projection_bias
        if self._output_clip > 0:
            np.clip(projected, -self._output_clip, self._output_clip, out=projected)
        return projected


def integer_lstm(node: Node, values: Values) -> cells.IntegerLstm:
    """Return the cell's integer parameters. ``values`` holds weights and biases by name."""
    if len(node.intermediates) == _WIDE_INTERMEDIATES:
        raise unsupported(node, "cells with 8-bit sums of gates (12 intermediate tensors) are not supported")
    return _Scales(node, values).cell()


class _Scales:
    """The cell's integer parameters, derived from the scales of an operator's tensors."""

    def __init__(self, node: Node, values: Values) -> None:
        self._node, self._values = node, values
        out = node.results[0]
        self._x_scale, self._x_zero = scale_of(node, node.operand(0))
        state = named(node, "output_state") or out
        if state.dtype != "int8":
            raise unsupported(node, f"the output_state is {state.dtype}; it must be int8")
        self._h_scale, self._h_zero = scale_of(node, state)
        self._exponent, self._cell_scale = self._cell_state()

    def cell(self) -> cells.IntegerLstm:
        gates = gates_of(self._node)
        scale, zero = self._hidden()
        projection = self._projection(scale, zero)
        return cells.IntegerLstm(
            [self._gate(index, gate) if gate in gates else None for index, gate in enumerate(GATES)],
            cells.CellParameters(
                exponent=self._exponent,
                clip=cells.clip_code(option(self._node, "cell_clip"), self._cell_scale, 32767),
                hidden_factor=cells.hidden_factor(scale),
                hidden_zero=zero if projection is None else -zero,
                output_zero=self._h_zero,
                projection=projection,
            ),
        )

    def _cell_state(self) -> tuple[int, float]:
        info = named(self._node, "cell_state")
        if info is None:
            raise unsupported(self._node, "the cell_state is omitted; an integer cell needs its scale")
        if info.dtype != "int16":
            raise unsupported(self._node, f"the cell_state is {info.dtype}; it must be int16")
        scale, zero = scale_of(self._node, info)
        exponent = cells.cell_exponent(scale)
        if exponent is None or zero:
            allowed = f"2^{cells.CELL_EXPONENTS[0]} to 2^{cells.CELL_EXPONENTS[-1]}"
            raise unsupported(
                self._node,
                f"the cell_state has scale {scale:g} and zero point {zero}; "
                f"it must have a power of two from {allowed} and 0",
            )
        return exponent, scale

    def _hidden(self) -> tuple[float, int]:
        """Return scale and zero point of the hidden values. If there is no projection, the output's scale applies."""
        hidden = self._intermediate(_HIDDEN)
        if hidden is not None:
            return hidden
        if "projection_weights" in self._values:
            raise unsupported(self._node, "the intermediate tensor with the scale of hidden values is missing")
        return self._h_scale, self._h_zero

    def _intermediate(self, index: int) -> tuple[float, int] | None:
        infos = self._node.intermediates
        info = infos[index] if len(infos) == _INTERMEDIATES else None
        if info is None or info.quant is None:
            return None
        if not info.quant.per_tensor:
            raise self._node.error(f"the intermediate tensor {info.name!r} has {len(info.quant.scales)} scales")
        check_scales(self._node, info, info.quant.scales)
        return info.quant.scale, info.quant.zero_point

    def _weights(self, name: str, dtype: str) -> tuple[Array, float]:
        info = required(self._node, name)
        scale, zero = scale_of(self._node, info) if info.info.is_integer else (1.0, 0)
        if info.dtype != dtype or zero:
            raise unsupported(self._node, f"{name} is {info.dtype} with zero point {zero}; it must be {dtype} with 0")
        return self._values[name], scale

    def _bias(self, name: str, scale: float, weight_scale: float) -> Array | None:
        info = named(self._node, name)
        if info is not None and info.dtype != "int32":
            raise unsupported(self._node, f"{name} is {info.dtype}; it must be int32")
        if info is not None:
            require_units_of_sums(self._node, info, scale, weight_scale)
        return self._values.get(name)

    def _gate(self, index: int, gate: str) -> cells.Gate:
        norm = self._norm(gate)
        scale = _Q3_SCALE if norm is None else self._gate_scale(index, gate)
        weights, weight_scale = self._weights(f"input_to_{gate}_weights", "int8")
        bias = self._bias(f"{gate}_gate_bias", self._x_scale, weight_scale) if norm is None else None
        recurrent, recurrent_scale = self._weights(f"recurrent_to_{gate}_weights", "int8")
        if recurrent.ndim != 2:
            raise unsupported(self._node, f"recurrent_to_{gate}_weights is diagonal; integer cells need a matrix")
        peephole, peephole_scale = None, 1.0
        if f"cell_to_{gate}_weights" in self._values:
            peephole, peephole_scale = self._weights(f"cell_to_{gate}_weights", "int16")
        return cells.Gate(
            inputs=weights,
            input_bias=cells.bias_with_zero(weights, self._x_zero, bias),
            input_factor=cells.product_factor(weight_scale, self._x_scale, scale),
            recurrent=recurrent,
            recurrent_bias=cells.bias_with_zero(recurrent, self._h_zero),
            recurrent_factor=cells.product_factor(recurrent_scale, self._h_scale, scale),
            peephole=peephole,
            peephole_factor=cells.peephole_factor(self._exponent, peephole_scale, scale),
            norm=norm,
        )

    def _norm(self, gate: str) -> cells.GateNorm | None:
        name = f"{gate}_layer_norm_coefficients"
        if name not in self._values:
            return None
        weights, scale = self._weights(name, "int16")
        bias = self._bias(f"{gate}_gate_bias", _NORM_SCALE, scale)
        return None if bias is None else cells.gate_norm(weights, bias, scale)

    def _gate_scale(self, index: int, gate: str) -> float:
        found = self._intermediate(index)
        if found is None:
            raise unsupported(self._node, f"the intermediate tensor with the scale of the {gate} gate is missing")
        return found[0]

    def _projection(self, hidden_scale: float, hidden_zero: int) -> cells.Projection | None:
        if "projection_weights" not in self._values:
            return None
        weights, scale = self._weights("projection_weights", "int8")
        out_scale = scale_of(self._node, self._node.results[0])[0]
        return cells.Projection(
            weights=weights,
            bias=cells.bias_with_zero(weights, -hidden_zero, self._bias("projection_bias", hidden_scale, scale)),
            factor=cells.product_factor(scale, hidden_scale, self._h_scale),
            clip=cells.clip_code(option(self._node, "proj_clip"), out_scale, 127),
        )


def _basic_lstm(node: Node) -> Execute:
    """Run one step with weights ``[4*O, I + O]`` (gates: input, modulation, forget, output) and update the states."""
    infos = (*node.operands[:BASIC_OPERANDS], *node.results)
    dtypes = tuple("" if info is None else info.dtype for info in infos)
    if dtypes not in (_REAL, _CODES):
        raise unsupported(node, f"tensors of {', '.join(dtypes)} are not supported; {', '.join(_CODES)} or float32 are")
    last, weights, bias, state = (node.spec.operand_name(index) for index in (_LAST, _WEIGHTS, _BIAS, _STATE))
    prepare = _real_step if dtypes == _REAL else _integer_step
    x_of = fetch(node, 0)
    step_of = sequences.when_known(node, (weights, bias), lambda values: prepare(node, values[weights], values[bias]))
    outputs = node.operand(_WEIGHTS).static_shape[0] // 4

    def execute(operands: sequences.Operands) -> list[Array]:
        x = x_of(operands)
        check_elements(node, (x.shape[0], 4 * outputs), node.results[3].dtype)
        (old, output), (cell, contents) = (
            sequences.state_of(node, name, operands, x.shape[0], outputs) for name in (last, state)
        )
        together = np.concatenate([x, output], axis=1)
        if together.shape[1] != node.operand(_WEIGHTS).static_shape[1]:
            columns = node.operand(_WEIGHTS).static_shape[1] - output.shape[1]
            raise input_error(node, f"the input has the shape {list(x.shape)}; the weights need {columns} columns")
        step = step_of(operands)
        places = parts((len(x), 4 * outputs), (1,), sequences.BLOCK_ELEMENTS, (2, 1))
        found = [step(together[rows], contents[rows]) for rows, _ in places] or [step(together, contents)]
        result, new, sums = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        sequences.keep(old, result)
        sequences.keep(cell, new)
        return [result, new, together, sums]

    return execute


def _real_step(node: Node, weights: Array, bias: Array) -> LstmStep:
    def step(x: Array, state: Array) -> tuple[Array, Array, Array]:
        sums = x @ weights.T + bias
        entry, modulation, forget, output = np.split(sums, 4, axis=1)
        new = logistic(entry) * np.tanh(modulation) + logistic(forget) * state
        return logistic(output) * np.tanh(new), new, sums

    return step


def _integer_step(node: Node, weights: Array, bias: Array) -> LstmStep:
    for info in (node.operand(0), node.operand(_LAST), node.results[0]):
        if scale_of(node, info) != (1 / cells.ZERO, cells.ZERO):
            scale, zero = scale_of(node, info)
            raise unsupported(
                node, f"{info.name!r} has scale {scale:g} and zero point {zero}; it must have 1/128 and 128"
            )
    for info in (node.operand(_STATE), node.results[1]):
        scale, zero = scale_of(node, info)
        if abs(math.log2(scale) - (cells.STATE_BITS - 15)) >= _POWER_TOLERANCE or zero:
            raise unsupported(
                node, f"{info.name!r} has scale {scale:g} and zero point {zero}; it must have 2^-11 and 0"
            )
    bias_scale, bias_zero = scale_of(node, node.operand(_BIAS))
    if bias_zero:
        raise unsupported(node, f"the bias {node.operand(_BIAS).name!r} has the zero point {bias_zero}; it must have 0")
    cell = cells.basic_cell(weights, scale_of(node, node.operand(_WEIGHTS))[1], bias, bias_scale)

    def step(x: Array, state: Array) -> tuple[Array, Array, Array]:
        sums = cell.sums(x)
        return *cells.basic_step(sums, state), sums

    return step
