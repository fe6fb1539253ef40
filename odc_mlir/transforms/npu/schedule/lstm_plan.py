"""How an LSTM cell is cut: blocks of time steps, groups of units, and what stays in the weight buffer.

What the inputs add to the gates is one matrix product over all steps of a block. Then, step by step, the recurrent
weights of a group of units are multiplied with the last output, and ``gates`` makes cell state and output of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.isa.instructions import field_range
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.cost import ArrayWork, conv_cycles, instruction_bytes, step_cycles
from odc_mlir.transforms.npu.schedule.geometry import MAX_RUNS, parts
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT

STATE_BYTES, GATE_BYTES = 2, 2  # of a cell state, and of what the inputs add to a gate
MOST_GROUPS = 8  # of units whose weights all stay: more only cost starts
_TILE_SLOTS = 6  # inputs and outputs twice, gates, cell state


@dataclass(frozen=True, slots=True)
class LstmPlan:
    """``block``: time steps whose inputs lie in the tile buffer together.

    ``input_rows``: rows of the input weights that are multiplied by one instruction; ``group``: units whose recurrent
    weights are. Either are loaded once where all of them fit (``*_stay``), else again and again. ``*_shape``: array
    shapes. ``cycles``: an estimate for the whole sequence; ``program_bytes`` likewise.
    """

    block: int
    input_rows: int
    input_shape: int
    inputs_stay: bool
    group: int
    recurrent_shape: int
    recurrent_stays: bool
    cycles: float
    program_bytes: float

    def groups(self, units: int) -> list[tuple[int, int]]:
        """(first, count) of the units of each group."""
        return list(parts(units, self.group))


@dataclass(frozen=True, slots=True)
class _LstmSizes:
    steps: int
    batch: int
    features: int
    units: int
    gates: int

    @property
    def rows(self) -> int:
        return self.gates * self.units


def plan_lstm(op: npu.LstmOp, target: Target, room: int) -> LstmPlan:
    """The plan of ``op`` with ``room`` bytes of the tile buffer; CompileError where a local memory is too small."""
    s = _LstmSizes(*op.sizes, op.gates)
    block = _block(s, target, room)
    total = target.local.weight_bytes
    recurrent = s.rows * s.units
    input_room = max(total - recurrent, total // 4)
    input_rows = min(_rows(s, input_room, target), s.rows)
    recurrent_stays = recurrent <= total - min(input_room, s.rows * s.features)
    input_shape, input_cycles = _product(target, block * s.batch, input_rows, s.features, emit=True)
    most = _most_units(s, target, None if recurrent_stays else (total - input_room) // 2)
    group, recurrent_shape, step = min(
        (_step(s, target, group, stays=recurrent_stays) for group in _group_sizes(s.units, most)),
        key=lambda found: found[2],
    )
    port = target.sram.bytes_per_cycle
    blocks = -(-s.steps // block)
    inputs = blocks * -(-s.rows // input_rows) * input_cycles
    moved = s.steps * s.batch * (s.features + s.units) / port + 2 * target.sram.read_latency_cycles
    weights = (recurrent * recurrent_stays + s.rows * s.features) / port
    size = sum(map(instruction_bytes, ("conv", "gates", "wload"))) * -(-s.units // group)
    return LstmPlan(
        block,
        input_rows,
        input_shape,
        input_rows == s.rows,
        group,
        recurrent_shape,
        recurrent_stays,
        s.steps * step + inputs + moved + weights,
        size,
    )


def _block(s: _LstmSizes, target: Target, room: int) -> int:
    """Time steps of a block; all where they fit."""
    held = s.batch * (STATE_BYTES + 2) * s.units + _TILE_SLOTS * TILE_ALIGNMENT
    step = s.batch * (2 * s.features + GATE_BYTES * s.rows + 2 * s.units)
    most = min((room - held) // step, MAX_RUNS // s.batch)
    if most < 1:
        raise CompileError(
            f"a time step of the cell takes {held + step} bytes of the tile buffer, {target.name} has {room} for it"
        )
    blocks = -(-s.steps // most)
    return -(-s.steps // blocks)


def _rows(s: _LstmSizes, room: int, target: Target) -> int:
    """Rows of the input weights that one instruction multiplies: all, or as many as two slots of ``room`` hold."""
    entries = target.local.param_entries
    if s.rows * s.features <= room and s.rows <= entries:
        return s.rows
    rows = min(room // 2 // s.features, entries // 2)
    if rows < 1:
        raise CompileError(f"{s.features} inputs of the cell are too many for the weight buffer of {target.name}")
    return rows


def _most_units(s: _LstmSizes, target: Target, slot: int | None) -> int:
    """Units of a group: as many as accumulators hold twice, and ``slot`` bytes of weights where they do not stay."""
    most = target.local.accumulators // (2 * s.batch * s.gates)
    if slot is not None:
        most = min(most, slot // (s.gates * s.units))
    most = min(most, field_range("conv", "channels")[1] // s.gates)
    if most < 1:
        raise CompileError(f"{s.units} units and a batch of {s.batch} are too many for {target.name}")
    return most


def _group_sizes(units: int, most: int) -> list[int]:
    """Sizes to try: the largest that fits, and some smaller ones, which let array and vector engine overlap."""
    fewest = -(-units // most)
    return [-(-units // count) for count in range(fewest, fewest + MOST_GROUPS) if count <= units]


def _step(s: _LstmSizes, target: Target, group: int, *, stays: bool) -> tuple[int, int, float]:
    """(group, array shape, cycles of a time step): products and gates of groups overlap, but for the first and last."""
    shape, product = _product(target, s.batch, s.gates * group, s.units, emit=False)
    if not stays:
        product = max(product, s.gates * group * s.units / target.sram.bytes_per_cycle)
    gates = s.batch * gates_cycles(target, group, s.gates)
    count = -(-s.units // group)
    return group, shape, product + (count - 1) * max(product, gates) + gates + step_cycles(target)


def _product(target: Target, pixels: int, channels: int, depth: int, *, emit: bool) -> tuple[int, float]:
    """The fastest array shape for a matrix product, and its cycles."""
    work = ArrayWork(pixels, channels, depth, depth, 1, emit=emit, accumulate=not emit)
    found = [(conv_cycles(target, shape, work), shape) for shape in range(len(target.array.shapes))]
    cycles, shape = min(found)
    return shape, cycles


def gates_cycles(target: Target, units: int, gates: int) -> float:
    """Cycles of one ``gates`` instruction."""
    vector = target.vector
    functions = 2 * (gates + 1) * units / vector.softmax_elements_per_cycle
    return vector.softmax_start_cycles + max(functions, (gates + 3) * units / vector.requant_lanes)


def unit_rows(units: int, gates: int, groups: list[tuple[int, int]]) -> Iterator[int]:
    """Rows of the weights in the order ``[group][gate][unit]``, in which sums lie side by side."""
    for first, count in groups:
        for gate in range(gates):
            yield from range(gate * units + first, gate * units + first + count)
