"""RNN operators, fully connected layers with feedback, in float32 or with 8-bit weights."""

from __future__ import annotations

from collections.abc import Mapping

from odc_mlir.ops.infer.common import required
from odc_mlir.ops.recurrent import DIRECTIONS
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import sequences

Values = Mapping[str, Array]


class _RnnCell(sequences.RealCell):
    """Cell that adds an auxiliary input to the sums."""

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

    def step(self, inputs: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        return (self._activation(inputs + self._recurrent(state[0])),)


def _layer(node: Node, direction: str = "") -> sequences.RecurrentLayer:
    state = f"{direction}hidden_state"
    sequences.require_float(node, "input", f"{direction}bias", state)
    names = [f"{direction}{name}" for name in ("input_weights", "recurrent_weights", "bias", "aux_input_weights")]
    cell_of = sequences.when_known(node, names, lambda values: _RnnCell(node, values, direction))
    units, features = required(node, names[0]).static_shape
    return sequences.RecurrentLayer(node, cell_of, features, units, [(state, units, None)])


def rnn(node: Node) -> Execute:
    """Run one step."""
    return sequences.one_step(node, _layer(node))


def unidirectional_sequence_rnn(node: Node) -> Execute:
    """Run the cell over a sequence."""
    return sequences.over_time(node, _layer(node))


def bidirectional_sequence_rnn(node: Node) -> Execute:
    """Run one layer forward and one backward in time."""
    forward, backward = (_layer(node, direction) for direction in DIRECTIONS)
    return sequences.both_ways(node, forward, backward, "fw_aux_input_weights")
