"""The vector engine on recurrent cells: one step of an LSTM."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.isa.table.recurrent import lstm_gates
from odc_mlir.numerics import lstm
from odc_mlir.numerics.fixed import multiply, requantize, wrap32
from odc_mlir.numerics.gates import saturate16
from odc_mlir.simulator.boxes import Box
from odc_mlir.simulator.engines.machine import DTYPES, InstructionCost, Machine, Values, check_scale, require, typed

GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate")
PASSES = 2  # of each logistic function and tangent through the exponential unit: exponential, reciprocal
_INT16 = DTYPES[2]


def gates(m: Machine, v: Values) -> InstructionCost:
    """Gates, cell state and hidden state of ``units`` units of an LSTM cell."""
    units, count = v["units"], lstm_gates(v)
    require(units > 0, "computes nothing: units is 0")
    exponents = lstm.CELL_EXPONENTS
    require(
        v["cell_exponent"] in exponents,
        f"cell_exponent is {v['cell_exponent']}, allowed: {exponents[0]}..{exponents[-1]}",
    )
    require(v["clip"] < 1 << 15, f"clip is {v['clip']}, no cell state is as large")
    scales = [check_scale(v, name) for name in GATES[-count:]]
    hidden_scale = check_scale(v, "out")
    vector, functions = m.target.vector, count + 1  # a function of each gate, and the tangent of the cell state
    work = InstructionCost(
        start=vector.softmax_start_cycles,
        shortest=PASSES * functions * units / vector.softmax_elements_per_cycle,
        lanes=(count + 3) * units,  # sums of gates, both products of the cell state, the hidden state
    )
    sums = m.access.read(m.memories.accumulators, Box(v["accumulators"], count * units))
    m.access.read(m.memories.tile, Box(v["input"], 2 * count * units))
    state = Box(v["cell"], 2 * units)
    m.access.read(m.memories.tile, state)
    cell_out = m.access.write(m.memories.tile, state, in_place=state)
    hidden_out = m.access.write(m.memories.tile, Box(v["hidden"], units))
    data = m.memories.tile.data
    if sums is None or cell_out is None or hidden_out is None or data is None:
        return work
    added = typed(data, _INT16, v["input"], (count, units), (2 * units, 2))
    cell = typed(data, _INT16, v["cell"], (units,), (2,))
    arguments = _arguments(sums.reshape(count, units), added, scales)
    entry = arguments[0] if count == len(GATES) else None
    forget, modulation, output = arguments[-3:]
    new = lstm.next_cell(entry, forget, modulation, cell, v["cell_exponent"], v["clip"])
    products = lstm.hidden_products(output, new, v["cell_exponent"])
    cell_out[...] = new.view(np.uint8)
    hidden_out[...] = requantize(products, *hidden_scale, v["out_zero"], -128, 127, "int8").view(np.uint8)
    return work


def _arguments(sums: NDArray[Any], added: NDArray[Any], scales: list[tuple[int, int]]) -> list[NDArray[np.int16]]:
    """For each gate its argument in Q3, ``[units]``."""
    return [
        saturate16(multiply(wrap32(own), *scale).astype(np.int64) + part).astype(np.int16)
        for own, part, scale in zip(sums, added, scales, strict=True)
    ]
