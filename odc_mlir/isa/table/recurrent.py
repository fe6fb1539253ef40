"""Instructions of the vector engine for recurrent cells."""

from __future__ import annotations

from odc_mlir.isa.cost import Cost
from odc_mlir.isa.effects import Area, Effects, Values
from odc_mlir.isa.fields import Instruction, Queue
from odc_mlir.isa.table.shorthand import accumulator, count, flag, scale, signed, tile

ALL_GATES = ("input", "forget", "cell", "output")


def lstm_gates(v: Values) -> int:
    """How many gates an LSTM cell computes."""
    return len(ALL_GATES) - 1 if v.get("coupled") else len(ALL_GATES)


def _gates(v: Values) -> Effects:
    units, sums = v["units"], lstm_gates(v) * v["units"]
    cell = Area("cell", 2 * units)
    return Effects((Area("accumulators", sums), Area("input", 2 * sums), cell), (cell, Area("hidden", units)))


GATES = Instruction(
    "gates",
    0x44,
    Queue.VECTOR,
    (
        accumulator("accumulators", "last output times recurrent weights, [gate][unit]"),
        count("units", 16, "cell size"),
        tile("input", "what the inputs add, i16 in Q3, [gate][unit]"),
        tile("cell", "cell state, i16, updated"),
        tile("hidden", "hidden state written, i8"),
        flag("coupled", "there is no input gate: it is one minus the forget gate"),
        *(
            field
            for gate in ALL_GATES
            for field in scale(f"{gate}_gate", f"scale of the {gate} gate's accumulators, to Q3")
        ),
        signed("cell_exponent", 8, "power of two of the cell state's scale"),
        count("clip", 16, "largest cell state, 0: any"),
        *scale("out", "scale of the hidden state"),
        signed("out_zero", 16, "zero point of the hidden state"),
    ),
    "one step of an LSTM cell: gates, cell state and hidden state",
    _gates,
    Cost(
        """\
gates = 3 if coupled else 4
start = vector.softmax_start_cycles
shortest = 2 * (gates + 1) * units / vector.softmax_elements_per_cycle
lanes = (gates + 3) * units
accumulator_reads = gates * units
tile_reads = 2 * (gates + 1) * units
tile_writes = 3 * units"""
    ),
)
