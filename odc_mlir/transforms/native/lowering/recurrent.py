"""Lowering of LSTM cells over sequences, whose state continues from run to run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.numerics import gates as functions
from odc_mlir.numerics.fixed import Requantizer
from odc_mlir.numerics.lstm import Factor
from odc_mlir.ops.infer.common import constants, named, option, position, required
from odc_mlir.ops.infer.recurrent import gates_of
from odc_mlir.ops.recurrent import GATES
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.common import fused_activation
from odc_mlir.runtime.kernels.lstm import integer_lstm
from odc_mlir.transforms.native.kernels.registry import LANES
from odc_mlir.transforms.native.lowering.arithmetic import check_sums, multiply_floats, pack, scaling_fields
from odc_mlir.transforms.native.lowering.moves import Windows
from odc_mlir.transforms.native.lowering.segment_writer import (
    BIAS,
    EmitCalls,
    KernelPattern,
    SegmentFunction,
    count,
    refusal,
    size_bytes,
)

_STATES = ("output_state", "cell_state")
_OTHERS = ("cell_to_", "projection_", "_layer_norm_coefficients")
_CODES = 1 << 16


class LowerSequenceLstmToKernels(KernelPattern):
    """Lower UNIDIRECTIONAL_SEQUENCE_LSTM of ``[T, N, I]`` or ``[N, T, I]`` with four gates and no optional features."""

    operators = ("UNIDIRECTIONAL_SEQUENCE_LSTM",)

    @classmethod
    def plan(cls, node: Node) -> EmitCalls:
        if len(gates_of(node)) < len(GATES):
            raise refusal(node, "a cell whose input gate is coupled to the forget gate has no native kernel")
        for index, info in enumerate(node.operands):
            name = node.spec.operand_name(index)
            if info is not None and any(part in name for part in _OTHERS):
                raise refusal(node, f"a cell with {name} has no native kernel")
            if info is not None and index and not info.is_const and index not in node.mutated:
                raise refusal(node, f"computed {name} have no native kernel")
        sizes = _SequenceSizes(node)
        for name in _STATES:
            state = named(node, name)
            if state is None or state.is_const:
                raise refusal(node, f"a cell without a variable for its {name} has no native kernel")
            if count(state) != sizes.sequences * sizes.channels:
                raise refusal(node, f"the {name} has {count(state)} elements for {sizes.sequences} sequences")
        if len(required(node, "recurrent_to_output_weights").static_shape) != 2:
            raise refusal(node, "diagonal weights have no native kernel")
        if fused_activation(node) != "tanh":
            raise refusal(node, f"a cell with the activation {fused_activation(node)} has no native kernel")
        return _on_codes(node, sizes) if node.operand(0).dtype == "int8" else _on_reals(node, sizes)


class _SequenceSizes:
    def __init__(self, node: Node) -> None:
        self.outer, self.inner, self.features = node.operand(0).static_shape
        self.channels = node.results[0].static_shape[-1]
        self.padded = -(-self.channels // LANES) * LANES
        self.time_outer = bool(option(node, "time_major"))
        self.steps, self.sequences = (self.outer, self.inner) if self.time_outer else (self.inner, self.outer)
        self.arguments = {"outer": self.outer, "inner": self.inner, "channels": self.channels, "padded": self.padded}

    def by_gate(self, parts: list[NDArray[Any]]) -> NDArray[Any]:
        """Concatenate the arrays of the gates along the first axis, padded to ``padded`` channels with zeros."""
        found = np.zeros((len(GATES), self.padded, *parts[0].shape[1:]), parts[0].dtype)
        for place, part in zip(found, parts, strict=True):
            place[: self.channels] = part
        return found.reshape(len(GATES) * self.padded, *parts[0].shape[1:])

    def begin(self, segment: SegmentFunction, place: int, info: TensorInfo, places: int) -> SSAValue:
        """Return a buffer with ``places`` padded rows per sequence. The first row to read holds operand ``place``."""
        size = info.info.numpy.itemsize
        row, padded = self.channels * size, self.padded * size
        target = segment.allocate(places * self.sequences * padded)
        second = self.steps % 2 if places > 1 else 0
        self._copy(segment, segment.operand(place), target, row, padded, second * self.sequences * padded)
        return target

    def end(self, segment: SegmentFunction, held: SSAValue, place: int, info: TensorInfo) -> None:
        """Update the state in operand ``place`` with the first rows, which the last step has written."""
        result, size = segment.allocate(size_bytes(info)), info.info.numpy.itemsize
        self._copy(segment, held, result, self.padded * size, self.channels * size, 0)
        segment.update(place, result)

    def _copy(
        self, segment: SegmentFunction, source: SSAValue, target: SSAValue, input_pitch: int, pitch: int, first: int
    ) -> None:
        sizes = {"rows": self.sequences, "row_bytes": min(input_pitch, pitch), "input_pitch": input_pitch}
        segment.call("copy_rows", {}, input=source, output=target, **sizes, first=first, pitch=pitch)


def _with_states(
    node: Node, sizes: _SequenceSizes, emit_cell: Callable[[SegmentFunction, SSAValue, SSAValue], None]
) -> EmitCalls:
    """Plan a cell and the updates of its states. ``emit_cell`` gets buffers of the hidden state and the cell state."""
    (hidden_place, hidden_info), (cell_place, cell_info) = (
        (place, node.operand(place)) for place in (position(node, name) for name in _STATES)
    )

    def emit(segment: SegmentFunction) -> None:
        hidden = sizes.begin(segment, hidden_place, hidden_info, 2)
        cell = sizes.begin(segment, cell_place, cell_info, 1)
        emit_cell(segment, hidden, cell)
        sizes.end(segment, hidden, hidden_place, hidden_info)
        sizes.end(segment, cell, cell_place, cell_info)

    return emit


def _on_reals(node: Node, sizes: _SequenceSizes) -> EmitCalls:
    if node.operand(0).dtype != "float32":
        raise refusal(node, f"an input of {node.operand(0).dtype} has no native kernel")
    values = constants(node)
    if any(array.dtype != np.float32 for array in values.values()):
        raise refusal(node, "integer weights have no native kernel for float cells")
    clip = float(option(node, "cell_clip"))
    inputs, recurrent = (
        sizes.by_gate([values[f"{kind}_to_{gate}_weights"] for gate in GATES]) for kind in ("input", "recurrent")
    )
    bias = sizes.by_gate([values[f"{gate}_gate_bias"] for gate in GATES])
    rows = Windows.of_rows(sizes.outer * sizes.inner, sizes.features)

    def emit(segment: SegmentFunction, hidden: SSAValue, cell: SSAValue) -> None:
        ahead = segment.allocate(4 * rows.pixels * len(bias))
        multiply_floats(segment, rows, len(bias), weights=inputs, bias=bias, output=ahead)
        options = {"time_outer": int(sizes.time_outer), "clip": int(clip > 0)}
        buffers = {"input": ahead, "hidden": hidden, "cell": cell}
        numbers = {"clip": clip, **sizes.arguments}
        segment.call("lstm_reals", options, **buffers, weights=recurrent.T, output=node.results[0], **numbers)

    return _with_states(node, sizes, emit)


def _on_codes(node: Node, sizes: _SequenceSizes) -> EmitCalls:
    prepared = integer_lstm(node, constants(node))
    cell, gates = prepared.cell, prepared.gates
    if cell.hidden_factor.exponent > 0:
        raise refusal(node, "a scale ratio above 1 has no native kernel")
    input_table = _table(node, sizes, [(g.inputs, g.input_bias, g.input_factor) for g in gates])
    table = _table(node, sizes, [(g.recurrent, g.recurrent_bias, g.recurrent_factor) for g in gates])
    shift = 30 + cell.exponent
    low, high = (-cell.clip, cell.clip) if cell.clip else (functions.LOW, functions.HIGH)
    scaling = [int(number) for number in scaling_fields(cell.hidden_factor.multiplier, cell.hidden_factor.exponent)]
    fields = [(1 << shift) >> 1, shift, low, high, *scaling, cell.hidden_zero + BIAS]
    codes = np.arange(_CODES, dtype=np.uint16).view(np.int16)

    def emit(segment: SegmentFunction, hidden: SSAValue, state: SSAValue) -> None:
        tables = segment.stored(
            {
                "input_weights": _packed(sizes, [gate.inputs for gate in gates]),
                "input_table": input_table,
                "weights": _packed(sizes, [gate.recurrent for gate in gates]),
                "table": table,
                "fields": np.array(fields, np.int32),
                "logistic": functions.logistic(codes),
                "tanh": functions.tanh(codes, functions.GATE_BITS),
                "cell_tanh": functions.tanh(codes, 15 + cell.exponent),
            }
        )
        segment.call(
            "lstm_codes",
            {"time_outer": int(sizes.time_outer)},
            input=segment.operand(0),
            **tables,
            gates=segment.allocate(len(GATES) * sizes.padded * 4),
            hidden=hidden,
            cell=state,
            output=node.results[0],
            features=sizes.features,
            **sizes.arguments,
        )

    return _with_states(node, sizes, emit)


def _packed(sizes: _SequenceSizes, parts: list[NDArray[Any]]) -> NDArray[np.int8]:
    matrix = sizes.by_gate(parts)
    return pack(matrix.astype(np.int8), 1, 4, LANES)


def _table(
    node: Node, sizes: _SequenceSizes, parts: list[tuple[NDArray[Any], NDArray[Any], Factor]]
) -> NDArray[np.int32]:
    """Return the fields of every channel of all gates. Biases compensate for the offset of stored values."""
    biases, scaled = [], []
    for weights, given, factor in parts:
        wide = weights.astype(np.int64)
        bias = given.astype(np.int64) - BIAS * wide.sum(axis=1)
        left, exponent = max(factor.exponent, 0), min(factor.exponent, 0)
        scaling = Requantizer(factor.multiplier, exponent, 0, functions.LOW, functions.HIGH, "int16")
        check_sums(node, wide << left, bias << left, scaling)
        biases.append(bias)
        numbers = (*scaling_fields(factor.multiplier, exponent), left)
        scaled.append([np.full(len(bias), number) for number in numbers])
    columns = [sizes.by_gate(biases), *(sizes.by_gate(list(column)) for column in zip(*scaled, strict=True))]
    return np.stack(columns).astype(np.int32)
