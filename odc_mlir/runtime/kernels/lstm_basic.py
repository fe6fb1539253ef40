"""The basic LSTM kernel: one step with all gates in one matrix, in float32 or in uint8 with an int16 cell state."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from odc_mlir.numerics.lstm import STATE_BITS, ZERO, basic_cell, basic_step
from odc_mlir.numerics.lut import logistic
from odc_mlir.numerics.pieces import parts
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.infer.lstm import BASIC_OPERANDS
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, input_error, scale_of, unsupported
from odc_mlir.runtime.kernels.sequences import BLOCK_ELEMENTS, Operands, keep, state_of, when_known

# Input beside last output, cell state -> results 0, 1, 3.
LstmStep = Callable[[Array, Array], tuple[Array, Array, Array]]

_REAL = ("float32",) * 9
_CODES = ("uint8", "uint8", "uint8", "int32", "int16", "uint8", "int16", "uint8", "int16")
_LAST, _WEIGHTS, _BIAS, _STATE = range(1, BASIC_OPERANDS)
_POWER_TOLERANCE = 1e-3


def basic_lstm(node: Node) -> Execute:
    """Run one step of input ``[N, I]`` with weights ``[4*O, I + O]`` and bias ``[4*O]``.

    The gates' order is input, modulation, forget, output. Results are output and cell state ``[N, O]``, input and last
    output side by side, and sums of gates. The step updates last output and cell state.
    """
    infos = (*node.operands[:BASIC_OPERANDS], *node.results)
    dtypes = tuple("" if info is None else info.dtype for info in infos)
    if dtypes not in (_REAL, _CODES):
        raise unsupported(node, f"tensors of {', '.join(dtypes)} are not supported; {', '.join(_CODES)} or float32 are")
    last, weights, bias, state = (node.spec.operand_name(index) for index in (_LAST, _WEIGHTS, _BIAS, _STATE))
    prepare = _real_step if dtypes == _REAL else _integer_step
    x_of = fetch(node, 0)
    step_of = when_known(node, (weights, bias), lambda values: prepare(node, values[weights], values[bias]))
    outputs = node.operand(_WEIGHTS).static_shape[0] // 4

    def execute(operands: Operands) -> list[Array]:
        x = x_of(operands)
        check_elements(node, (x.shape[0], 4 * outputs), node.results[3].dtype)
        (old, output), (cell, contents) = (
            state_of(node, name, operands, x.shape[0], outputs) for name in (last, state)
        )
        together = np.concatenate([x, output], axis=1)
        if together.shape[1] != node.operand(_WEIGHTS).static_shape[1]:
            raise input_error(node, f"the input has the shape {list(x.shape)}; the weights do not fit")
        step = step_of(operands)
        places = parts((len(x), 4 * outputs), (1,), BLOCK_ELEMENTS, (2, 1))
        found = [step(together[rows], contents[rows]) for rows, _ in places] or [step(together, contents)]
        result, new, sums = found[0] if len(found) == 1 else map(np.concatenate, zip(*found, strict=True))
        keep(old, result)
        keep(cell, new)
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
        if scale_of(node, info) != (1 / ZERO, ZERO):
            scale, zero = scale_of(node, info)
            raise unsupported(
                node, f"{info.name!r} has scale {scale:g} and zero point {zero}; it must have 1/128 and 128"
            )
    for info in (node.operand(_STATE), node.results[1]):
        scale, zero = scale_of(node, info)
        if abs(math.log2(scale) - (STATE_BITS - 15)) >= _POWER_TOLERANCE or zero:
            raise unsupported(
                node, f"{info.name!r} has scale {scale:g} and zero point {zero}; it must have 2^-11 and 0"
            )
    bias_scale, bias_zero = scale_of(node, node.operand(_BIAS))
    if bias_zero:
        raise unsupported(node, f"the bias {node.operand(_BIAS).name!r} has the zero point {bias_zero}; it must have 0")
    cell = basic_cell(weights, scale_of(node, node.operand(_WEIGHTS))[1], bias, bias_scale)

    def step(x: Array, state: Array) -> tuple[Array, Array, Array]:
        sums = cell.sums(x)
        return *basic_step(sums, state), sums

    return step
