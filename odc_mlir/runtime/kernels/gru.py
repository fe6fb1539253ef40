"""GRU in float32, in ONE's form: the reset gate multiplies the product of weights and state."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from odc_mlir.numerics.lut import logistic
from odc_mlir.ops.infer.common import check_elements, option, position, required
from odc_mlir.ops.infer.recurrent import gru_matrices
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, fused_activation, input_error, unsupported
from odc_mlir.runtime.kernels.sequences import Operands, require_float, through_time, when_known

Values = Mapping[str, Array]

_SMALL_ARGUMENT = np.float32(-9)  # for smaller arguments e^x replaces the logistic function


def gru(node: Node) -> Execute:
    """Run the cell over ``x [T, N, I]``. Return the last state ``[N, n]`` or all states ``[T, N, n]``.

    The first axis is time. ``time_major`` is ignored as in ONE's kernels.
    """
    if fused_activation(node) not in ("none", "tanh"):
        raise unsupported(node, f"the activation {fused_activation(node)!r} is not supported; tanh is")
    by_state, by_input = gru_matrices(node)
    names = [name for stem in (by_input, by_state) for name in (stem, f"{stem}_bias")]
    require_float(node, "input", "state", *names)
    x_of, state_of = fetch(node, 0), fetch(node, position(node, "state"))
    cell_of = when_known(node, names, lambda values: _GruCell(values, by_state, by_input))
    (_, features), (_, units) = required(node, by_input).static_shape, required(node, by_state).static_shape
    declared, whole = node.results[0].shape, bool(option(node, "return_sequences"))

    def execute(operands: Operands) -> list[Array]:
        x, state = x_of(operands), state_of(operands)
        if x.ndim != 3 or x.shape[2] != features or state.shape != (x.shape[1], units):
            raise input_error(
                node, f"the input {list(x.shape)}, the state {list(state.shape)} and the weights do not fit together"
            )
        check_elements(node, (*x.shape[:2], units), "float32")
        out = np.empty((*x.shape[:2], units), np.float32)
        (last,) = through_time(cell_of(operands), [x], (state,), out)
        if declared is not None and len(declared) == 2:
            return [last.copy()]
        return [out if whole else last[None].copy()]

    return execute


class _GruCell:
    """Cell with matrices for the gates in the order update, reset, new state."""

    def __init__(self, values: Values, by_state: str, by_input: str) -> None:
        self._inputs, self._input_bias = values[by_input].T, values.get(f"{by_input}_bias", np.float32(0))
        self._states, self._state_bias = values[by_state].T, values.get(f"{by_state}_bias", np.float32(0))

    def inputs(self, x: Array, aux: Array | None = None) -> Array:
        return np.asarray(x @ self._inputs + self._input_bias)

    def step(self, inputs: Array, state: tuple[Array, ...]) -> tuple[Array, ...]:
        old = state[0]
        update, reset, new = np.split(inputs, 3, axis=1)
        seen_update, seen_reset, seen = np.split(old @ self._states + self._state_bias, 3, axis=1)
        z, r = _logistic(update + seen_update), _logistic(reset + seen_reset)
        candidate = np.tanh(new + r * seen)
        return (z * old + (np.float32(1) - z) * candidate,)


def _logistic(x: Array) -> Array:
    return np.where(x < _SMALL_ARGUMENT, np.exp(np.minimum(x, 0)), logistic(x))
