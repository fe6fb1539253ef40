"""RNN operators, fully connected layers with feedback, in float32 or with 8-bit weights."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from odc_mlir.ops.infer.common import check_elements, named, option, required
from odc_mlir.ops.recurrent import DIRECTIONS
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import sequences
from odc_mlir.runtime.kernels.common import fetch, input_error

Values = Mapping[str, Array]


class _RnnCell:
    """Cell of an RNN; an auxiliary input adds to its sums."""

    def __init__(self, node: Node, values: Values, direction: str) -> None:
        self._node, self._values = node, values
        self._activation = sequences.real_activation(node)
        self._inputs = self._product(f"{direction}input_weights")
        self._recurrent = self._product(f"{direction}recurrent_weights")
        self._bias = values[f"{direction}bias"]
        aux = f"{direction}aux_input_weights"
        self._aux = self._product(aux) if aux in values else None

    def _product(self, name: str) -> sequences.Function:
        return sequences.product(self._node, [required(self._node, name)], [self._values[name]])

    def inputs(self, x: Array, aux: Array | None = None) -> Array:
        sums = self._bias + self._inputs(x)
        if self._aux is not None and aux is not None:
            sums += self._aux(aux)
        return sums

    def step(self, inputs: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        return (self._activation(inputs + self._recurrent(state[0])),)


class _RnnLayer:
    """A cell with its weights and state, whose names start with ``direction``."""

    def __init__(self, node: Node, direction: str = "") -> None:
        self._node, self._state = node, f"{direction}hidden_state"
        sequences.require_float(node, "input", f"{direction}bias", self._state)
        names = [f"{direction}{name}" for name in ("input_weights", "recurrent_weights", "bias", "aux_input_weights")]
        self._cell_of = sequences.when_known(node, names, lambda values: _RnnCell(node, values, direction))
        self._units, self._features = required(node, names[0]).static_shape

    def run(self, operands: sequences.Operands, x: Array, *, aux: Array | None = None, backward: bool = False) -> Array:
        """Return results ``[T, N, U]`` for ``x [T, N, I]`` and update the state."""
        if x.shape[2] != self._features:
            raise input_error(self._node, f"the input has {x.shape[2]} features, the weights {self._features}")
        check_elements(self._node, (*x.shape[:2], self._units), "float32")
        out = np.empty((*x.shape[:2], self._units), np.float32)
        whole, contents = sequences.state_of(self._node, self._state, operands, x.shape[1], self._units)
        (last,) = sequences.through_time(self._cell_of(operands), x, (contents,), out, aux=aux, backward=backward)
        sequences.keep(whole, last)
        return out


def rnn(node: Node) -> Execute:
    """Run one step for ``x [N, I]``; the result is ``[N, U]``."""
    x_of, layer = fetch(node, 0), _RnnLayer(node)

    def execute(operands: sequences.Operands) -> list[Array]:
        x = x_of(operands)
        if x.ndim != 2:
            raise input_error(node, f"the input has the shape {list(x.shape)}; its rank must be 2")
        return [layer.run(operands, x[None])[0]]

    return execute


def unidirectional_sequence_rnn(node: Node) -> Execute:
    """Run the cell over ``x [T, N, I]`` (or ``[N, T, I]``) to ``[T, N, U]``."""
    x_of, layer = fetch(node, 0), _RnnLayer(node)

    def execute(operands: sequences.Operands) -> list[Array]:
        out = layer.run(operands, sequences.time_first(node, x_of(operands)))
        return [np.ascontiguousarray(sequences.time_first(node, out))]

    return execute


def bidirectional_sequence_rnn(node: Node) -> Execute:
    """Run one layer forward and one backward in time; results are concatenated or separate.

    An auxiliary input with its own weights adds to both layers; without weights it is the backward layer's input.
    """
    forward, backward = (_RnnLayer(node, direction) for direction in DIRECTIONS)
    x_of, aux_of, merge = fetch(node, 0), sequences.aux_source(node), bool(option(node, "merge_outputs"))
    beside = named(node, "fw_aux_input_weights") is not None

    def execute(operands: sequences.Operands) -> list[Array]:
        x, aux = sequences.both_inputs(node, operands, x_of, aux_of)
        more = aux if beside else None
        source = x if beside or aux is None else aux
        outs = [forward.run(operands, x, aux=more), backward.run(operands, source, aux=more, backward=True)]
        results = [np.concatenate(outs, axis=2)] if merge else outs
        return [np.ascontiguousarray(sequences.time_first(node, result)) for result in results]

    return execute
