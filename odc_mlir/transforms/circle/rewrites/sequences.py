"""Fusion of unrolled LSTM and GRU steps to operators for sequences, and of rotary position embeddings.

A FULLY_CONNECTED over the sequence computes the products with all inputs. Each step reads one row of the result. A step
of LSTM::

    pre = row + FULLY_CONNECTED(h)              # four adjacent gates
    c'  = logistic(f) * c + logistic(i) * tanh(g)
    h'  = logistic(o) * tanh(c')

A step of GRU, where ``x*`` are parts of the row and ``h*`` parts of ``FULLY_CONNECTED(h)``::

    n  = tanh(xn + logistic(xr + hr) * hn)
    h' = (h - n) * logistic(xz + hz) + n

In the first step, FULLY_CONNECTED of the zero state may be folded into the layer's bias.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from xdsl.ir import Operation, OpResult, SSAValue
from xdsl.pattern_rewriter import PatternRewriter
from xdsl.rewriter import InsertPoint

from odc_mlir.dialects.circle import CircleOp, NoneOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common import rewriting


class GateColumns(NamedTuple):
    """Sum of columns of two values. ``places``: number of the column block in each, None for a whole constant."""

    parts: tuple[SSAValue, SSAValue]
    places: tuple[int | None, int | None]


class RecurrentStep(NamedTuple):
    """One step.

    ``before``, ``after``: old and new state, for LSTM the cell state. ``state``: output. ``gates`` are in the order of
    the operator that replaces the steps.
    """

    before: SSAValue
    after: SSAValue
    state: SSAValue
    gates: tuple[GateColumns, ...]


@dataclass(frozen=True)
class Unrolled:
    """Sequence of steps.

    ``inputs``: layer that multiplies all inputs at once. ``recurrent``: layer that multiplies the state. ``rows``:
    positions of the gates' rows in ``inputs`` and ``recurrent``, in the operator's order of gates.
    """

    inputs: rewriting.WeightedLayer
    recurrent: rewriting.WeightedLayer
    rows: tuple[int, ...]
    steps: tuple[RecurrentStep, ...]

    @property
    def states(self) -> tuple[SSAValue, ...]:
        return tuple(step.state for step in self.steps)

    @property
    def units(self) -> int:
        """Number of elements of the state."""
        weights = self.recurrent.real_weights()
        assert weights is not None
        return int(weights.shape[1])

    def members(self) -> tuple[CircleOp, ...]:
        """Return the operators of all steps, including operators that read rows."""
        found: dict[CircleOp, None] = {}
        for state in self.states:
            stops = [self.inputs.result, *(step.state for step in self.steps if step.state is not state)]
            found |= dict.fromkeys(rewriting.between(state, stops))
        return tuple(found)


Match = Callable[[CircleOp], RecurrentStep | None]


def _unrolled(op: CircleOp, match: Match) -> Unrolled | None:
    first = match(op) if rewriting.is_real(op.results[0]) else None
    before = None if first is None else rewriting.plain(rewriting.viewed(first.before), "ADD")
    if first is None or (before is not None and match(before) is not None):
        return None
    steps = [first]
    while (found := _next(steps[-1], match)) is not None:
        steps.append(found)
    if len(steps) < 2:
        return None
    recurrent = _layer_of(steps[1], first.state)
    if recurrent is None:
        return None
    rows = _rows(steps, recurrent)
    inputs = None if rows is None else _inputs(steps, recurrent)
    return None if rows is None or inputs is None else Unrolled(inputs, recurrent, rows, tuple(steps))


def _next(step: RecurrentStep, match: Match) -> RecurrentStep | None:
    sums = dict.fromkeys(
        total
        for use in step.after.uses
        for reader in _readers(use.operation, "MUL", "SUB")
        for product in ([reader] if reader.SPEC.name == "MUL" else _readers_of(reader.results[0], "MUL"))
        for total in _readers_of(product.results[0], "ADD")
    )
    found = [made for op in sums if (made := match(op)) is not None and made.before is step.after]
    return found[0] if len(found) == 1 else None


def _readers(op: object, *names: str) -> list[CircleOp]:
    return [op] if isinstance(op, CircleOp) and op.SPEC.name in names and op.unverified is None else []


def _readers_of(value: SSAValue, *names: str) -> Iterator[CircleOp]:
    for use in value.uses:
        yield from _readers(use.operation, *names)


def _lstm_step(op: CircleOp) -> RecurrentStep | None:
    for kept, new in rewriting.pairs(op):
        products = rewriting.plain(kept, "MUL"), rewriting.plain(new, "MUL")
        if products[0] is None or products[1] is None:
            continue
        inputs, cells = _logistic_and(products[1], "TANH"), _logistic_and(products[0])
        outputs = _output_of(op.results[0])
        if inputs is None or cells is None or outputs is None or inputs[1] is None:
            continue
        candidate = rewriting.producer(inputs[1], "TANH")
        assert candidate is not None
        gates = [_side_by_side(v) for v in (inputs[0], cells[0], candidate.operands[0], outputs[1])]
        if all(gate is not None for gate in gates):
            return RecurrentStep(cells[1], op.results[0], outputs[0], tuple(gate for gate in gates if gate is not None))
    return None


def _logistic_and(product: CircleOp, *names: str) -> tuple[SSAValue, SSAValue] | None:
    """Return ``x`` and ``y`` if ``product`` is ``logistic(x) * y``, and an operator of ``names`` computes ``y``."""
    for gate, other in rewriting.pairs(product):
        inner = rewriting.producer(gate, "LOGISTIC")
        if inner is not None and (not names or rewriting.producer(other, *names) is not None):
            return inner.operands[0], other
    return None


def _output_of(cell: SSAValue) -> tuple[SSAValue, SSAValue] | None:
    """Return the value ``logistic(o) * tanh(cell)``, and ``o``."""
    for tanh in _readers_of(cell, "TANH"):
        for product in _readers_of(tanh.results[0], "MUL"):
            found = _logistic_and(product, "TANH") if rewriting.plain(product.results[0], "MUL") is not None else None
            if found is not None and found[1] is tanh.results[0]:
                return product.results[0], found[0]
    return None


def _side_by_side(value: SSAValue) -> GateColumns | None:
    found = _columns(value)
    total = None if found is None else rewriting.plain(rewriting.viewed(found[0]), "ADD")
    if found is None or total is None:
        return None
    return GateColumns((total.operands[0], total.operands[1]), (found[1], found[1]))


def _gru_step(op: CircleOp) -> RecurrentStep | None:
    for product, new in rewriting.pairs(op):
        weighted, candidate = rewriting.plain(product, "MUL"), rewriting.producer(new, "TANH")
        total = None if candidate is None else rewriting.plain(candidate.operands[0], "ADD")
        update = None if weighted is None else _logistic_and(weighted, "SUB")
        if total is None or update is None:
            continue
        change = rewriting.plain(update[1], "SUB")
        if change is None or change.operands[1] is not new:
            continue
        for by_input, by_state in rewriting.pairs(total):
            gated = rewriting.plain(by_state, "MUL")
            reset = None if gated is None else _logistic_and(gated)
            if reset is None:
                continue
            gates = _sum_of_columns(update[0]), _sum_of_columns(reset[0]), _gate(by_input, reset[1])
            if gates[0] is not None and gates[1] is not None and gates[2] is not None:
                return RecurrentStep(change.operands[0], op.results[0], op.results[0], (gates[0], gates[1], gates[2]))
    return None


def _sum_of_columns(value: SSAValue) -> GateColumns | None:
    total = rewriting.plain(value, "ADD")
    return None if total is None else _gate(total.operands[0], total.operands[1])


def _gate(left: SSAValue, right: SSAValue) -> GateColumns | None:
    parts = [(value, None) if rewriting.constant(value) is not None else _columns(value) for value in (left, right)]
    if parts[0] is None or parts[1] is None:
        return None
    return GateColumns((parts[0][0], parts[1][0]), (parts[0][1], parts[1][1]))


def _columns(value: SSAValue) -> tuple[SSAValue, int] | None:
    """Return the source and the block's number if ``value`` is one of several equal blocks of columns."""
    if not isinstance(value, OpResult) or not isinstance(value.op, CircleOp) or value.op.unverified is not None:
        return None
    op, shape = value.op, rewriting.static_shape_of(value)
    if op.SPEC.name == "SPLIT":
        axis, source = rewriting.constant(op.operands[0]), rewriting.shape_of(op.operands[1])
        if axis is None or not source or int(axis.reshape(-1)[0]) % len(source) != len(source) - 1:
            return None
        return op.operands[1], value.index
    begin = _slice_begin(op)
    if begin is None or not shape or any(begin[:-1]) or begin[-1] % shape[-1]:
        return None
    return op.operands[0], begin[-1] // shape[-1]


def _slice_begin(op: CircleOp) -> list[int] | None:
    source, begin = rewriting.static_shape_of(op.operands[0]) if op.operands else None, None
    if op.SPEC.name in ("SLICE", "STRIDED_SLICE"):
        begin = rewriting.constant(op.operands[1])
    if source is None or begin is None or begin.size != len(source):
        return None
    if op.SPEC.name == "SLICE":
        return [int(at) for at in begin.reshape(-1)]
    steps = rewriting.constant(op.operands[3])
    if steps is None or np.any(steps != 1) or op.option("ellipsis_mask") or op.option("new_axis_mask"):
        return None
    whole = int(op.option("begin_mask") or 0)
    pairs = enumerate(zip(begin.reshape(-1), source, strict=True))
    return [0 if whole >> axis & 1 else int(at) + (extent if at < 0 else 0) for axis, (at, extent) in pairs]


def _layer_of(step: RecurrentStep, state: SSAValue) -> rewriting.WeightedLayer | None:
    for value in step.gates[0].parts:
        layer = rewriting.WeightedLayer.of(rewriting.producer(rewriting.viewed(value), "FULLY_CONNECTED"))
        if (
            layer is not None
            and rewriting.viewed(layer.op.operands[0]) is rewriting.viewed(state)
            and layer.real_weights() is not None
        ):
            return layer
    return None


def _rows(steps: Sequence[RecurrentStep], recurrent: rewriting.WeightedLayer) -> tuple[int, ...] | None:
    weights = recurrent.real_weights()
    if weights is None or weights.shape[0] != len(steps[0].gates) * weights.shape[1]:
        return None
    bias = recurrent.real_bias(weights.shape[0])
    before: SSAValue | None = None
    rows: tuple[int, ...] | None = None
    for step in steps:
        places = tuple(_place(gate, before, recurrent, bias) for gate in step.gates)
        found = tuple(place for place in places if place is not None)
        if len(found) != len(places) or sorted(found) != list(range(len(places))) or rows not in (None, found):
            return None
        rows, before = found, step.state
    return rows


def _place(
    gate: GateColumns, before: SSAValue | None, recurrent: rewriting.WeightedLayer, bias: rewriting.Reals | None
) -> int | None:
    """Return the position of a gate's rows if a summand of the gate depends on the state ``before``."""
    for by_input, by_state in ((0, 1), (1, 0)):
        place, part = gate.places[by_input], gate.parts[by_state]
        if place is None or gate.parts[by_input] is part:
            continue
        if before is None:
            if _is_bias(part, gate.places[by_state], place, bias):
                return place
        elif gate.places[by_state] == place and _is_same_layer(part, before, recurrent):
            return place
    return None


def _is_bias(value: SSAValue, columns: int | None, place: int, bias: rewriting.Reals | None) -> bool:
    array = rewriting.real_constant(rewriting.viewed(value))
    if array is None or bias is None or not array.ndim:
        return False
    width = array.shape[-1]
    wanted = bias[place * width : (place + 1) * width] if columns is None else bias
    return wanted.size == width and bool(np.all(array == wanted))


def _is_same_layer(value: SSAValue, before: SSAValue, recurrent: rewriting.WeightedLayer) -> bool:
    layer = rewriting.WeightedLayer.of(rewriting.producer(rewriting.viewed(value), "FULLY_CONNECTED"))
    if layer is None or rewriting.viewed(layer.op.operands[0]) is not rewriting.viewed(before):
        return False
    mine, other = list(layer.op.operands[1:]), list(recurrent.op.operands[1:])
    return layer.op.properties == recurrent.op.properties and _are_same(mine, other)


def _are_same(first: Sequence[SSAValue], second: Sequence[SSAValue]) -> bool:
    if len(first) != len(second):
        return False
    for a, b in zip(first, second, strict=True):
        left, right = rewriting.real_constant(a), rewriting.real_constant(b)
        if a is not b and (left is None or right is None or not np.array_equal(left, right)):
            return False
    return True


def _inputs(steps: Sequence[RecurrentStep], recurrent: rewriting.WeightedLayer) -> rewriting.WeightedLayer | None:
    """Return the layer on all inputs if it has a row for each step: step t must read row t."""
    found: rewriting.WeightedLayer | None = None
    before: SSAValue | None = None
    for number, step in enumerate(steps):
        for gate in step.gates:
            parts = [part for part in gate.parts if not _is_of_state(part, before, recurrent)]
            row = None if len(parts) != 1 else _row(parts[0])
            layer = None if row is None else rewriting.WeightedLayer.of(rewriting.producer(row[0], "FULLY_CONNECTED"))
            if row is None or layer is None or row[1] != number or (found is not None and found.op is not layer.op):
                return None
            found = layer
        before = step.state
    shape = None if found is None else rewriting.static_shape_of(found.result)
    if found is None or shape is None or len(shape) != 3 or shape[0] != len(steps) or found.real_weights() is None:
        return None
    return found


def _is_of_state(value: SSAValue, before: SSAValue | None, recurrent: rewriting.WeightedLayer) -> bool:
    if before is None:
        return rewriting.real_constant(rewriting.viewed(value)) is not None
    return _is_same_layer(value, before, recurrent)


def _row(value: SSAValue) -> tuple[SSAValue, int] | None:
    value = rewriting.viewed(value)
    if not isinstance(value, OpResult) or not isinstance(value.op, CircleOp) or value.op.unverified is not None:
        return None
    op = value.op
    if op.SPEC.name in ("UNPACK", "SPLIT"):
        source = op.operands[0 if op.SPEC.name == "UNPACK" else 1]
        given = np.array(op.option("axis")) if op.SPEC.name == "UNPACK" else rewriting.constant(op.operands[0])
        extents = rewriting.static_shape_of(source)
        if given is None or not extents or int(given.reshape(-1)[0]) % len(extents) or len(op.results) != extents[0]:
            return None
        return source, value.index
    begin, source_shape, shape = (
        _slice_begin(op),
        rewriting.static_shape_of(op.operands[0]),
        rewriting.static_shape_of(value),
    )
    if begin is None or source_shape is None or shape is None or any(begin[1:]):
        return None
    size = int(np.prod(shape))
    return (op.operands[0], begin[0]) if size * source_shape[0] == int(np.prod(source_shape)) else None


class _Sequence(rewriting.OperatorPattern):
    names = frozenset({"ADD"})
    step: staticmethod[[CircleOp], RecurrentStep | None]

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        found = _unrolled(op, type(self).step)
        if found is None:
            return
        members = {*found.members(), found.inputs.op}
        shape = rewriting.static_shape_of(found.inputs.op.operands[0])
        if shape is None or len(shape) != 3 or _hides_read_states(found, members):
            return
        made = self.make(found, shape[1])
        rewriter.insert(made, InsertPoint.before(op))
        _give_states(found, made[-1].results[0], members, rewriter)
        rewriting.erase_unused(members, rewriter)

    def make(self, found: Unrolled, batch: int) -> list[Operation]:
        """Return the constants of the operator, then the operator."""
        raise NotImplementedError


class SequenceLstm(_Sequence):
    """Replace LSTM steps by one operator. The omitted states begin at zero in every run, as in the steps."""

    step = staticmethod(_lstm_step)

    def make(self, found: Unrolled, batch: int) -> list[Operation]:
        name = value_name(found.states[-1])
        inputs, states = _blocks(found, "inputs"), _blocks(found, "recurrent")
        constants = [
            rewriting.real(weights, f"{name}/{role}{gate}")
            for role, blocks in (("input", inputs), ("recurrent", states))
            for gate, (weights, _) in enumerate(blocks)
        ]
        sums = [first + second for (_, first), (_, second) in zip(inputs, states, strict=True)]
        biases = [rewriting.real(total, f"{name}/bias{gate}") for gate, total in enumerate(sums)]
        nothing = NoneOp()
        none = nothing.result
        operands = [
            found.inputs.op.operands[0],
            *(item.result for item in constants),
            *[none] * 3,
            *(item.result for item in biases),
            *[none] * 8,
        ]
        options = {"fused_activation_function": "tanh", "time_major": True}
        return [nothing, *constants, *biases, _whole("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, found, batch, options)]


class SequenceGru(_Sequence):
    """Replace unrolled GRU steps by one custom GRU over the sequence."""

    step = staticmethod(_gru_step)

    def make(self, found: Unrolled, batch: int) -> list[Operation]:
        name = value_name(found.states[-1])
        inputs, states = _blocks(found, "inputs"), _blocks(found, "recurrent")
        # Despite its name, hidden_hidden multiplies the input.
        constants = [
            rewriting.real(np.concatenate([block[which] for block in blocks]), f"{name}/{role}")
            for blocks, role in ((inputs, "hidden_hidden"), (states, "hidden_input"))
            for which in (0, 1)
        ]
        zero = rewriting.real(np.zeros((batch, found.units)), f"{name}/state")
        operands = [found.inputs.op.operands[0], *(item.result for item in constants), zero.result]
        options = {"fused_activation_function": "tanh", "return_sequences": True, "time_major": True}
        return [*constants, zero, _whole("GRU", operands, found, batch, options)]


def _hides_read_states(found: Unrolled, members: set[CircleOp]) -> bool:
    """Return whether other operators read cell states. The sequence operator does not return them."""
    hidden = (step.after for step in found.steps if step.after is not step.state)
    return any(use.operation not in members for value in hidden for use in value.uses)


def _blocks(found: Unrolled, which: str) -> list[tuple[rewriting.Reals, rewriting.Reals]]:
    layer = found.inputs if which == "inputs" else found.recurrent
    known = rewriting.WeightedLayer.with_reals(layer.op)
    assert known is not None
    (_, weights, bias), size = known, found.units
    return [(weights[row * size : (row + 1) * size], bias[row * size : (row + 1) * size]) for row in found.rows]


def _whole(name: str, operands: list[SSAValue], found: Unrolled, batch: int, options: dict[str, object]) -> CircleOp:
    shape = (len(found.steps), batch, found.units)
    joined = _joined(found, shape)
    if joined is not None:
        return rewriting.operator(name, operands, joined.results[0], options)
    return rewriting.part(name, operands, found.states[-1], "sequence", shape, **options)


def _give_states(found: Unrolled, whole: SSAValue, members: set[CircleOp], rewriter: PatternRewriter) -> None:
    """Make readers of the steps' results read the sequence: the whole sequence for all steps, else one row."""
    joined = _joined(found, rewriting.static_shape_of(whole))
    if joined is not None:
        rewriter.replace(joined, [], [whole])
    for number, state in enumerate(found.states):
        uses = [use for use in state.uses if use.operation not in members]
        if not uses:
            continue
        row = _step_of(whole, number, state)
        rewriter.insert(row, InsertPoint.after(whole.owner) if isinstance(whole.owner, Operation) else None)
        for use in uses:
            use.operation.operands[use.index] = row[-1].results[0]
            rewriter.notify_op_modified(use.operation)


def _joined(found: Unrolled, shape: tuple[int, ...] | None) -> CircleOp | None:
    """Return the CONCATENATION of all steps in order, if it has this shape."""
    for use in found.states[0].uses:
        op = use.operation
        if not isinstance(op, CircleOp) or op.SPEC.name != "CONCATENATION" or op.option("axis") != 0:
            continue
        if tuple(op.operands) == found.states and rewriting.static_shape_of(op.results[0]) == shape:
            return op
    return None


def _step_of(whole: SSAValue, number: int, state: SSAValue) -> list[Operation]:
    name, one = value_name(state), (1, *(rewriting.static_shape_of(whole) or ())[1:])
    begin, size = rewriting.indices([number, 0, 0], f"{name}/begin"), rewriting.indices(one, f"{name}/size")
    cut = rewriting.part("SLICE", [whole, begin.result, size.result], state, "row", one)
    return [begin, size, cut, *rewriting.reshaped(cut.results[0], state)]


class Rotary(rewriting.OperatorPattern):
    """Replace ``x * cosine + concat(-x_high, x_low) * sine`` along the last dimension by ROPE."""

    names = frozenset({"ADD"})

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        for one, other in rewriting.pairs(op) if rewriting.activation(op) == "none" else ():
            direct, turned = rewriting.plain(one, "MUL"), rewriting.plain(other, "MUL")
            for half, sine in rewriting.pairs(turned) if direct is not None and turned is not None else ():
                x = _turned(half)
                for value, cosine in rewriting.pairs(direct) if direct is not None else ():
                    if value is x and rewriting.shape_of(op.results[0]) == rewriting.shape_of(x):
                        return self._fuse(op, x, (sine, cosine), rewriter)

    def _fuse(self, op: CircleOp, x: SSAValue, values: tuple[SSAValue, SSAValue], rewriter: PatternRewriter) -> None:
        shape, tables = rewriting.shape_of(x) or (), [rewriting.real_constant(value) for value in values]
        if len(shape) != 4 or not rewriting.is_real(x):
            return
        if any(table is None or table.ndim > 4 or table.shape[-1:] != shape[-1:] for table in tables):
            return
        made = [
            rewriting.real(table.reshape((1,) * (4 - table.ndim) + table.shape), f"{value_name(op.results[0])}/{role}")
            for table, role in zip(tables, ("sine", "cosine"), strict=True)
            if table is not None
        ]
        operands = [x, *(item.result for item in made)]
        members = rewriting.between(op.results[0], [x, *values])
        rewriter.replace(op, [*made, rewriting.operator("ROPE", operands, op.results[0], {"mode": "gpt_neox"})])
        rewriting.erase_unused((item for item in members if item is not op), rewriter)


def _turned(value: SSAValue) -> SSAValue | None:
    """Return x if ``value`` is ``concat(-x_high, x_low)`` of its halves."""
    joined, shape = rewriting.plain(value, "CONCATENATION"), rewriting.shape_of(value)
    if joined is None or len(joined.operands) != 2 or not shape or shape[-1] is None:
        return None
    if int(joined.option("axis")) % len(shape) != len(shape) - 1:
        return None
    negated = rewriting.plain(joined.operands[0], "NEG", "MUL")
    if negated is None or (
        negated.SPEC.name == "MUL" and -1.0 not in [rewriting.real_scalar(factor) for factor in negated.operands]
    ):
        return None
    sources = [operand for operand in negated.operands if rewriting.real_scalar(operand) is None]
    high, low = _columns(sources[0]) if sources else None, _columns(joined.operands[1])
    if high is None or low is None or high[0] is not low[0] or (high[1], low[1]) != (1, 0):
        return None
    extent = (rewriting.shape_of(joined.operands[1]) or (None,))[-1]
    return low[0] if rewriting.shape_of(low[0]) == shape and extent is not None and 2 * extent == shape[-1] else None
