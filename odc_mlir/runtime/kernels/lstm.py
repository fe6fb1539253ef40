"""LSTM operators on real numbers, with float32 or 8-bit weights; integer cells are in lstm_integer.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from odc_mlir.numerics.lut import logistic
from odc_mlir.ops.infer.common import check_elements, option, required
from odc_mlir.ops.infer.lstm import gates_of, has_aux_weights, is_basic
from odc_mlir.ops.recurrent import DIRECTIONS, GATES, PEEPHOLE_GATES
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels import sequences
from odc_mlir.runtime.kernels.common import fetch, input_error, unsupported
from odc_mlir.runtime.kernels.lstm_basic import basic_lstm
from odc_mlir.runtime.kernels.lstm_integer import integer_cell

Values = Mapping[str, Array]

_NORM_EPSILON = np.float32(1e-8)


def unidirectional_sequence_lstm(node: Node) -> Execute:
    """Run the cell over ``x [T, N, I]`` (or ``[N, T, I]``) to ``[T, N, O]``; update both states."""
    x_of, layer = fetch(node, 0), _LstmLayer(node)

    def execute(operands: sequences.Operands) -> list[Array]:
        out = layer.run(operands, sequences.time_first(node, x_of(operands)))
        return [np.ascontiguousarray(sequences.time_first(node, out))]

    return execute


def lstm(node: Node) -> Execute:
    """Run one step for ``x [N, I]``; the result is ``[N, O]``."""
    if is_basic(node):
        return basic_lstm(node)
    x_of, layer = fetch(node, 0), _LstmLayer(node)

    def execute(operands: sequences.Operands) -> list[Array]:
        x = x_of(operands)
        if x.ndim != 2:
            raise input_error(node, f"the input has the shape {list(x.shape)}; its rank must be 2")
        return [layer.run(operands, x[None])[0]]

    return execute


def bidirectional_sequence_lstm(node: Node) -> Execute:
    """Run one layer forward and one backward in time; results are concatenated or separate.

    An auxiliary input with its own weights adds to both layers; without weights it is the backward layer's input.
    """
    if node.operand(0).dtype != "float32":
        raise unsupported(node, f"an input of {node.operand(0).dtype} is not supported; float32 is")
    forward, backward = (_LstmLayer(node, direction) for direction in DIRECTIONS)
    x_of, aux_of, merge = fetch(node, 0), sequences.aux_source(node), bool(option(node, "merge_outputs"))
    beside = has_aux_weights(node)

    def execute(operands: sequences.Operands) -> list[Array]:
        x, aux = sequences.both_inputs(node, operands, x_of, aux_of)
        more = aux if beside else None
        source = x if beside or aux is None else aux
        outs = [forward.run(operands, x, aux=more), backward.run(operands, source, aux=more, backward=True)]
        results = [np.concatenate(outs, axis=2)] if merge else outs
        return [np.ascontiguousarray(sequences.time_first(node, result)) for result in results]

    return execute


class _LstmLayer:
    """A cell of an operator with its weights and state, whose names start with ``direction``."""

    def __init__(self, node: Node, direction: str = "") -> None:
        self._node = node
        x, out = node.operand(0), node.results[0]
        weights, recurrent = (required(node, f"{direction}{kind}_to_output_weights") for kind in ("input", "recurrent"))
        names = [f"{direction}{name}" for name in _cell_names()]
        self._cell_of: Callable[[sequences.Operands], sequences.Cell]
        if x.dtype == "int8" and not direction:
            self._cell_of = sequences.when_known(node, names, lambda values: integer_cell(node, values))
        elif x.dtype == "float32":
            sequences.require_float(node, f"{direction}output_state", f"{direction}cell_state")
            self._cell_of = sequences.when_known(node, names, lambda values: _RealCell(node, values, direction))
        else:
            raise unsupported(node, f"an input of {x.dtype} with weights of {weights.dtype} is not supported")
        if out.dtype != x.dtype:
            raise unsupported(node, f"an input of {x.dtype} with a result of {out.dtype} is not supported")
        (cells, self._features), self._outputs = weights.static_shape, recurrent.static_shape[-1]
        self._states = (
            (f"{direction}output_state", self._outputs, sequences.zero_of(out)),
            (f"{direction}cell_state", cells, None),
        )
        for name, size, _ in self._states:
            sequences.require_state(node, name, size)

    def run(self, operands: sequences.Operands, x: Array, *, aux: Array | None = None, backward: bool = False) -> Array:
        """Return results ``[T, N, O]`` for ``x [T, N, I]`` and update the state."""
        node, shape = self._node, (*x.shape[:2], self._outputs)
        if x.shape[2] != self._features:
            raise input_error(node, f"the input has {x.shape[2]} features, the weights {self._features}")
        check_elements(node, shape, node.results[0].dtype)
        out = np.empty(shape, node.results[0].info.numpy)
        states = [sequences.state_of(node, name, operands, x.shape[1], size, zero) for name, size, zero in self._states]
        found = sequences.through_time(
            self._cell_of(operands), x, tuple(part for _, part in states), out, aux=aux, backward=backward
        )
        for (whole, _), contents in zip(states, found, strict=True):
            sequences.keep(whole, contents)
        return out


def _cell_names() -> list[str]:
    """Return the names of a cell's operands, without direction."""
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


class _RealCell:
    """A float32 cell. Sums are added in TFLite's order: bias, input, auxiliary input, output, cell."""

    def __init__(self, node: Node, values: Values, direction: str) -> None:
        self._node, self._values, self._direction = node, values, direction
        self._gates = gates_of(node, direction)
        self._activation = sequences.real_activation(node)
        self._cell_clip, self._output_clip = (np.float32(option(node, f"{part}_clip")) for part in ("cell", "proj"))
        self._inputs = self._stacked("input_to_{}_weights")
        self._aux = self._stacked("aux_input_to_{}_weights") if has_aux_weights(node) else None
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
        """Return the initial sums: biases, except of gates that add them after normalisation."""
        parts = []
        for gate in self._gates:
            bias = self._biases[gate]
            if bias is None:
                raise self._node.error(f"{self._direction}{gate}_gate_bias is required")
            parts.append(bias if self._norms[gate] is None else np.zeros_like(bias))
        return np.concatenate(parts)

    def inputs(self, x: Array, aux: Array | None = None) -> Array:
        sums = self._bias + self._inputs(x)
        if self._aux is not None and aux is not None:
            sums += self._aux(aux)
        return sums

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
        """Return a gate's argument: its sums plus the peephole's contribution, normalised."""
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
