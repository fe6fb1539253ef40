"""The basic LSTM cell of TensorFlow Lite on codes: uint8 inputs and outputs, 16-bit gates and cell state.

Inputs and outputs have the scale 1/128 and the zero point 128, sums of gates are in Q3, the cell state in Q4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics import gates
from odc_mlir.numerics.fixed import multiply, quantize_multiplier, wrap32
from odc_mlir.numerics.gates import saturate16, shift16, srdhm16
from odc_mlir.numerics.matmul import Matrix, integer_matrix

Codes = NDArray[Any]

STATE_BITS = 4  # integer bits of the cell state
ZERO = 128  # zero point of inputs and outputs


@dataclass(frozen=True, slots=True)
class BasicCell:
    """Prepared weights ``[I + O, 4*O]`` without zero point, bias ``[4*O]``, and the factor to Q3."""

    matrix: Matrix
    bias: Codes
    multiplier: int
    exponent: int

    def sums(self, x: Codes) -> NDArray[np.int16]:
        """Return the sums of all gates ``[N, 4*O]`` for input and last output side by side, ``[N, I + O]``."""
        total = wrap32(self.matrix.product(x.astype(np.int32) - ZERO).astype(np.int64) + self.bias)
        return saturate16(multiply(total, self.multiplier, self.exponent).astype(np.int64)).astype(np.int16)


def basic_cell(weights: Codes, weight_zero: int, bias: Codes, bias_scale: float) -> BasicCell:
    """Prepare ``weights [4*O, I + O]`` and ``bias [4*O]``; sums have ``bias_scale``."""
    q, e = quantize_multiplier(float(np.float32(1 << 15 - gates.GATE_BITS) * np.float32(bias_scale)))
    return BasicCell(integer_matrix((weights.astype(np.int32) - weight_zero).T, ZERO), bias, q, e)


def basic_step(sums: NDArray[np.int16], state: Codes) -> tuple[NDArray[np.uint8], NDArray[np.int16]]:
    """Return output and new cell state ``[N, O]`` from sums ``[N, 4*O]``.

    The gates' order is input, modulation, forget, output.
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
