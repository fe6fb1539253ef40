"""LSTM and GRU step by step, as PyTorch's exporters write them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.ir import SSAValue

from helpers.float_nets import FloatNet
from helpers.rewrite_parts import ints, reshape

FEATURES, UNITS = 3, 2


class Steps:
    """What steps share: rows of the product with all inputs, and the layer that multiplies the state."""

    def __init__(self, n: FloatNet, gates: int, *, steps: int = 3, batch: int = 1) -> None:
        self.n, self.gates, self.steps, self.batch = n, gates, steps, batch
        x = n.real(steps, batch, FEATURES)
        self.rows = self.layer(x, n.weights(gates * UNITS, FEATURES), n.weights(gates * UNITS))
        self.weights, self.bias = n.weights(gates * UNITS, UNITS), n.weights(gates * UNITS)

    def layer(self, x: SSAValue, weights: SSAValue, bias: SSAValue) -> SSAValue:
        made: SSAValue = self.n.add("FULLY_CONNECTED", x, weights, bias, keep_num_dims=True)
        return made

    def row(self, step: int) -> SSAValue:
        size = self.gates * UNITS
        begin, extents = ints(self.n, step, 0, 0), ints(self.n, 1, self.batch, size)
        return reshape(self.n, self.n.add("SLICE", self.rows, begin, extents), self.batch, size)

    def of_state(self, state: SSAValue | None, *, offset: float = 0.0) -> SSAValue:
        """The state's part; before the first step that of zeros, which is the bias alone."""
        if state is not None:
            return self.layer(state, self.weights, self.bias)
        bias = self.n.array(self.bias) + np.float32(offset)
        return self.n.const(np.broadcast_to(bias, (1, self.batch, self.gates * UNITS)))

    def parts(self, value: SSAValue) -> Sequence[SSAValue]:
        axis = self.n.const(self.n.array(value).ndim - 1, "int32")
        found: Sequence[SSAValue] = self.n.add("SPLIT", axis, value, count=self.gates, num_splits=self.gates)
        return found

    def constants(self, offset: float) -> Sequence[SSAValue]:
        """What zeros contribute, gate by gate."""
        bias = (self.n.array(self.bias) + np.float32(offset)).reshape(self.gates, 1, 1, UNITS)
        return [self.n.const(np.broadcast_to(part, (1, self.batch, UNITS))) for part in bias]

    def zeros(self) -> SSAValue:
        return self.n.const(np.zeros((1, self.batch, UNITS)))


def lstm(
    n: FloatNet, *, steps: int = 3, batch: int = 1, ends: str = "all", offset: float = 0.0, skipped: int = -1
) -> SSAValue | Sequence[SSAValue]:
    """``ends``: what is read of the steps, ``all`` states joined, the ``last`` one, or the last ``cell`` too.

    ``offset``: what the first state contributes is not the bias of zeros; ``skipped``: a step that sees no state.
    """
    cell = Steps(n, 4, steps=steps, batch=batch)
    state, memory, states = None, cell.zeros(), []
    for step in range(steps):
        seen = cell.of_state(None if step == skipped else state, offset=offset if step == 0 else 0.0)
        inputs, forget, new, outputs = cell.parts(n.add("ADD", seen, cell.row(step)))
        kept = n.add("MUL", n.add("LOGISTIC", forget), memory)
        memory = n.add("ADD", kept, n.add("MUL", n.add("LOGISTIC", inputs), n.add("TANH", new)))
        state = n.add("MUL", n.add("LOGISTIC", outputs), n.add("TANH", memory))
        states.append(state)
    if ends == "cell":
        return states[-1], memory
    return states[-1] if ends == "last" else n.add("CONCATENATION", *states, axis=0)


def gru(
    n: FloatNet, *, steps: int = 3, batch: int = 1, ends: str = "all", offset: float = 0.0, swapped: bool = False
) -> SSAValue:
    """``ends`` and ``offset`` as above; ``swapped``: the update gate keeps what is new and drops what was."""
    cell = Steps(n, 3, steps=steps, batch=batch)
    state, states = cell.zeros(), []
    for step in range(steps):
        row = cell.parts(cell.row(step))
        part = cell.parts(cell.of_state(state)) if step else cell.constants(offset)
        reset, update = (n.add("LOGISTIC", n.add("ADD", part[k], row[k])) for k in (0, 1))
        new = n.add("TANH", n.add("ADD", row[2], n.add("MUL", part[2], reset)))
        change = n.add("SUB", new, state) if swapped else n.add("SUB", state, new)
        state = n.add("ADD", n.add("MUL", change, update), state if swapped else new)
        states.append(state)
    made: SSAValue = states[-1] if ends == "last" else n.add("CONCATENATION", *states, axis=0)
    return made
