"""Plan and commands of an LSTM cell over a sequence, in plain order.

The plan divides the sequence into blocks of time steps, and the cell's units into groups. At the start of a block, one
matrix product multiplies the inputs of all steps by the input weights. In each step and for each group, a second
product multiplies the previous output by the recurrent weights. Instruction ``gates`` then computes cell state and
output.

During a block, the tile buffer contains the inputs ``[step][batch][feature]``, the products of inputs and weights
``[step][batch][group][gate][unit]`` (i16), the outputs ``[step][batch][unit]``, and the cell state ``[batch][unit]``
(i16), which ``gates`` updates. The first output is the last output of the previous block.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from odc_mlir.dialects import npu
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.isa.instructions import field_range
from odc_mlir.targets import Target
from odc_mlir.transforms.npu.schedule.constants import packed_channels, packed_records
from odc_mlir.transforms.npu.schedule.cost import instruction_bytes, instruction_cycles, step_cycles
from odc_mlir.transforms.npu.schedule.geometry import MAX_RUNS, parts
from odc_mlir.transforms.npu.schedule.layers import Layer, LayerTensor
from odc_mlir.transforms.npu.schedule.local import LocalMemories, Slot, Slots, flat, loop_fields
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, command
from odc_mlir.transforms.npu.schedule.tensor_ir import scale_fields
from odc_mlir.transforms.npu.schedule.window_tiling import TILE_ALIGNMENT

_GATES = ("input_gate", "forget_gate", "cell_gate", "output_gate")
_INT16 = np.iinfo(np.int16)


class LstmEmitter:
    """Commands of an LSTM cell."""

    def __init__(self, layer: Layer[npu.LstmOp], memories: LocalMemories) -> None:
        self.layer, self.op, self.pool, self.memories = layer, layer.op, memories.pool, memories
        self.plan = plan = plan_lstm(layer.op, memories.target, memories.tile_room)
        self.steps, self.batch, self.features, self.units = layer.op.sizes
        self.gates = layer.op.gates
        self.rows = self.gates * self.units
        self.groups = list(parts(self.units, plan.group))
        self.shapes = memories.target.array.shapes
        count = 1 if plan.block >= self.steps else 2
        inputs = Slot("inputs", (plan.block, self.batch, self.features))
        outputs = Slot("outputs", (plan.block + 1, self.batch, self.units))
        gates = Slot("gates", (plan.block, self.batch, self.rows), "i16")
        slots = memories.take(
            Space.TILE, [*[inputs] * count, *[outputs] * count, gates, Slot("cell", (self.batch, self.units), "i16")]
        )
        self.inputs, self.outputs = Slots(slots[:count]), Slots(slots[count : 2 * count])
        self.added, self.cell = slots[2 * count :]
        self.input_weights = self._slots("input_weights", plan.input_rows, self.features, stay=plan.inputs_stay)
        count = 1 if plan.inputs_stay else 2
        self.params = Slots(memories.take(Space.PARAM, [Slot("scales", (plan.input_rows,), "record")] * count))
        rows = self.rows if plan.recurrent_stays else self.gates * plan.group
        self.recurrent = self._slots("recurrent_weights", rows, self.units, stay=plan.recurrent_stays)
        self.loaded: set[int] = set()  # groups whose weights are loaded and stay

    def _slots(self, name: str, rows: int, columns: int, *, stay: bool) -> Slots:
        return Slots(self.memories.take(Space.WEIGHT, [Slot(name, (rows, columns))] * (1 if stay else 2)))

    def commands(self) -> Iterator[Command]:
        x, hidden, cell = self.layer.sources
        out, last_hidden, last_cell = self.layer.results
        step_bytes = self.batch * self.units
        yield flat("load", (cell.buffer, 0), (self.cell, 0), STATE_BYTES * step_bytes)
        before: Place | None = None
        for first, count in parts(self.steps, self.plan.block):
            inputs, outputs = self.inputs.take(), self.outputs.take()
            yield self._sequence("load", x, first, count, self.features, (inputs, 0))
            yield self._first_output(before, (outputs, 0), hidden)
            yield from self._input_products(inputs, count)
            for step in range(count):
                yield from self._step(outputs, step)
            yield self._sequence("store", out, first, count, self.units, (outputs, step_bytes))
            before = outputs, count * step_bytes
        assert before is not None, "sequences have steps"
        yield flat("store", (last_hidden.buffer, 0), before, step_bytes)
        yield flat("store", (last_cell.buffer, 0), (self.cell, 0), STATE_BYTES * step_bytes)

    def _first_output(self, before: Place | None, target: Place, hidden: LayerTensor) -> Command:
        size = self.batch * self.units
        if before is None:
            return flat("load", (hidden.buffer, 0), target, size)
        return command("vop", kind="copy", a_type="i8", b_type="i8", out_type="i8", size0=size, size1=1, size2=1,
                       a=before, a_stride0=1, output=target)  # fmt: skip

    def _sequence(self, mnemonic: str, tensor: LayerTensor, first: int, count: int, item: int, tile: Place) -> Command:
        """Return the transfer of ``count`` time steps from ``first``. The tile buffer holds them time-major."""
        memory = (tensor.buffer, first * item * (self.batch if self.op.time_major else 1))
        if self.op.time_major or self.batch == 1:
            return flat(mnemonic, memory, tile, count * self.batch * item)
        source, target = (tile, memory) if mnemonic == "store" else (memory, tile)
        levels = [(self.batch, self.steps * item, item), (count, item, self.batch * item)]
        if mnemonic == "store":  # a store's outer loop is the outer dimension in memory
            levels.reverse()
        return command(mnemonic, source=source, target=target, **loop_fields(item, *levels))

    def _input_products(self, inputs: Buffer, count: int) -> Iterator[Command]:
        order = np.array(list(unit_rows(self.units, self.gates, self.groups)))
        weights = np.frombuffer(self.op.input_weights.bytes, np.int8).reshape(self.rows, self.features)[order]
        bias = np.array(self.op.bias.values)[order]
        scales = np.repeat([scale.values for scale in self.op.input_scales], self.units, axis=0)[order]
        shape, pixels = self.plan.input_shape, count * self.batch
        for first, rows in parts(self.rows, self.plan.input_rows):
            part = slice(first, first + rows)
            slot, empty = self.input_weights.get(first)
            param, _ = self.params.get(first)
            if empty:
                yield self._load_weights(slot, 0, weights[part], shape)
                records = packed_records(bias[part], scales[part, 0], scales[part, 1])
                data = self.pool.get("scales", records)
                yield command("param", source=(data, 0), target=(param, 0), count=rows, form="full")
            yield command(
                "conv",
                **self._product_fields(inputs, 0, (slot, 0), shape, pixels, self.features, rows),
                init="bias",
                emit=1,
                out_type="i16",
                param=(param, 0),
                output=(self.added, GATE_BYTES * first),
                act_min=_INT16.min,
                act_max=_INT16.max,
            )

    def _load_weights(self, slot: Buffer, offset: int, rows: NDArray[np.int8], shape: int) -> Command:
        packed = packed_channels(rows.reshape(len(rows), 1, 1, -1), self.shapes[shape][1])
        data = self.pool.get("weights", packed)
        size = len(packed)
        return command("wload", source=(data, 0), target=(slot, offset), coded_bytes=size, coding="raw", bytes=size)

    def _product_fields(
        self, source: Buffer, offset: int, weights: Place, shape: int, pixels: int, depth: int, channels: int
    ) -> dict[str, int | str | Place]:
        """Return fields of a product of adjacent int8 pixels. Results are ``self.rows`` codes apart."""
        return {
            "in_type": "i8", "weight_type": "i8", "shape": shape, "multiplier": 1, "input": (source, offset),
            "in_stride_x": depth, "in_stride_y": depth, "in_channels": depth, "out_width": pixels,
            "out_height": 1, "channels": channels, "kernel_height": 1, "kernel_width": 1, "stride_y": 1,
            "stride_x": 1, "dilation_y": 1, "dilation_x": 1, "weights": weights,
            "out_stride_x": GATE_BYTES * self.rows, "out_stride_y": GATE_BYTES * self.rows,
        }  # fmt: skip

    def _step(self, outputs: Buffer, step: int) -> Iterator[Command]:
        batch, units, gates = self.batch, self.units, self.gates
        for number, (first, count) in enumerate(self.groups):
            weights, loads = self._recurrent_weights(number)
            yield from loads
            sums = number % 2 * batch * gates * self.plan.group
            yield command(
                "conv",
                **self._product_fields(
                    outputs, step * batch * units, weights, self.plan.recurrent_shape, batch, units, gates * count
                ),
                init="zero",
                in_zero=self.op.hidden_zero.value.data,
                out_type="i8",
                accumulators=(self.memories.accumulators, sums),
            )
            for row in range(batch):
                yield command(
                    "gates",
                    **self._gate_fields(),
                    accumulators=(self.memories.accumulators, sums + row * gates * count),
                    units=count,
                    input=(self.added, GATE_BYTES * ((step * batch + row) * self.rows + gates * first)),
                    cell=(self.cell, STATE_BYTES * (row * units + first)),
                    hidden=(outputs, ((step + 1) * batch + row) * units + first),
                )

    def _recurrent_weights(self, number: int) -> tuple[Place, list[Command]]:
        first, count = self.groups[number]
        slot, empty = self.recurrent.get(0 if self.plan.recurrent_stays else number)
        offset = self.gates * first * self.units if self.plan.recurrent_stays else 0
        if self.plan.recurrent_stays:
            empty = number not in self.loaded
            self.loaded.add(number)
        if not empty:
            return (slot, offset), []
        order = list(unit_rows(self.units, self.gates, [(first, count)]))
        rows = np.frombuffer(self.op.recurrent_weights.bytes, np.int8).reshape(self.rows, self.units)[order]
        return (slot, offset), [self._load_weights(slot, offset, rows, self.plan.recurrent_shape)]

    def _gate_fields(self) -> dict[str, int | str | Place]:
        op = self.op
        fields: dict[str, int | str | Place] = {
            "coupled": int(self.gates < len(_GATES)),
            "cell_exponent": op.cell_exponent.value.data,
            "clip": op.clip.value.data,
            "out_zero": op.product_zero.value.data,
            **scale_fields("out", op.out_scale),
        }
        for name, scale in zip(_GATES[-self.gates :], op.recurrent_scales, strict=True):
            fields |= scale_fields(name, scale)
        return fields


STATE_BYTES, GATE_BYTES = 2, 2  # bytes of a cell state, and of an input product
MOST_GROUPS = 8  # group counts to try; more groups only increase start-up costs
_TILE_SLOTS = 6  # two for inputs, two for outputs, gates, cell state


@dataclass(frozen=True, slots=True)
class LstmPlan:
    """Plan of an LSTM cell.

    ``block``: time steps whose inputs are in the tile buffer together. ``input_rows``: rows of the input weights that
    one instruction multiplies. ``group``: units for which one instruction multiplies recurrent weights.
    ``inputs_stay``, ``recurrent_stays``: whether all of these weights fit and are loaded once. ``*_shape``: array
    shapes. ``cycles``, ``program_bytes``: estimates for the whole sequence.
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
    """Return the plan of ``op`` with ``room`` bytes of the tile buffer. Raises CompileError if it does not fit."""
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
    """Return the rows of the input weights per instruction: all, or the rows that fit in half of ``room``."""
    entries = target.local.param_entries
    if s.rows * s.features <= room and s.rows <= entries:
        return s.rows
    rows = min(room // 2 // s.features, entries // 2)
    if rows < 1:
        raise CompileError(f"{s.features} inputs of the cell are too many for the weight buffer of {target.name}")
    return rows


def _most_units(s: _LstmSizes, target: Target, slot: int | None) -> int:
    """Return the largest group of units. Accumulators hold two groups, and ``slot`` bytes one group's weights."""
    most = target.local.accumulators // (2 * s.batch * s.gates)
    if slot is not None:
        most = min(most, slot // (s.gates * s.units))
    most = min(most, field_range("conv", "channels")[1] // s.gates)
    if most < 1:
        raise CompileError(f"{s.units} units and a batch of {s.batch} are too many for {target.name}")
    return most


def _group_sizes(units: int, most: int) -> list[int]:
    fewest = -(-units // most)
    return [-(-units // count) for count in range(fewest, fewest + MOST_GROUPS) if count <= units]


def _step(s: _LstmSizes, target: Target, group: int, *, stays: bool) -> tuple[int, int, float]:
    """Return (group, array shape, cycles of a time step). Products and gates of adjacent groups overlap."""
    shape, product = _product(target, s.batch, s.gates * group, s.units, emit=False)
    if not stays:
        product = max(product, s.gates * group * s.units / target.sram.bytes_per_cycle)
    gates = s.batch * instruction_cycles("gates", target, coupled=int(s.gates < len(_GATES)), units=group)
    count = -(-s.units // group)
    return group, shape, product + (count - 1) * max(product, gates) + gates + step_cycles(target)


def _product(target: Target, pixels: int, channels: int, depth: int, *, emit: bool) -> tuple[int, float]:
    fields = {"out_width": pixels, "out_height": 1, "channels": channels, "in_channels": depth, "in_stride_x": depth}
    ones = dict.fromkeys(("kernel_height", "kernel_width", "stride_y", "stride_x", "dilation_y", "dilation_x"), 1)
    cycles, shape = min(
        (instruction_cycles("conv", target, emit=int(emit), shape=shape, **fields, **ones), shape)
        for shape in range(len(target.array.shapes))
    )
    return shape, cycles


def unit_rows(units: int, gates: int, groups: list[tuple[int, int]]) -> Iterator[int]:
    """Yield the weight rows in the order ``[group][gate][unit]``, so that the sums of a group are adjacent."""
    for first, count in groups:
        for gate in range(gates):
            yield from range(gate * units + first, gate * units + first + count)
