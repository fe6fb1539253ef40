"""Kernels of LSTM cells over a sequence, on floats and on quantised values.

Results are ``[outer, inner, channels]``, with time as the outer or the inner axis. Rows are written in this order,
because the next row overwrites the elements that a vector writes beyond the last channel. ``hidden`` has two rows of
``padded`` elements per sequence. A step reads one row and writes the second, and the next step does the reverse. The
last step writes the first row. The values of the four gates are adjacent: input, forget, cell, output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects.builtin import f32, i8, i16, i32
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.loops import BYTES, INDEX, REALS, SHORTS, WORDS, Loops
from odc_mlir.transforms.native.kernels.mathematics import clamped, logistic, tanh
from odc_mlir.transforms.native.kernels.registry import LANES, SUMS, Helpers, kernel, within
from odc_mlir.transforms.native.kernels.windows import FIELDS

GATES = INPUT, FORGET, CELL, OUTPUT = range(4)
CELL_FIELDS = ("added_half", "added_shift", "low", "high", "q", "round", "half", "shift", "zero")
"""Integer parameters of a quantised cell, in the order of the buffer ``fields``."""

_LARGEST = (1 << 15) - 1

_SEQUENCE: dict[str, Attribute] = {"outer": INDEX, "inner": INDEX, "channels": INDEX, "padded": INDEX}


@kernel(input=REALS, weights=REALS, hidden=REALS, cell=REALS, output=REALS, clip=f32, **_SEQUENCE)
def lstm_reals(w: Loops, helpers: Helpers, *, time_outer: int, clip: int) -> None:
    """Compute an LSTM cell on floats.

    ``input``: the gates' sums over inputs and biases, ``[outer, inner, gates, padded]``. The weights of the hidden
    values are ``[channel][gate][padded]``. The state of the cell stays in ``cell``. With option ``clip``, the parameter
    ``clip`` limits the state.
    """

    def step(row: SSAValue, old: SSAValue, new: SSAValue, sequence: SSAValue) -> None:
        sums_at, cell_at = w.mul(w.mul(row, w["padded"]), len(GATES)), w.mul(sequence, w["padded"])

        def block(channel: SSAValue) -> None:
            first = [
                w.load_lanes(w["input"], w.add(w.add(sums_at, w.mul(w["padded"], gate)), channel), LANES)
                for gate in GATES
            ]

            def add(k: SSAValue, sums: Sequence[SSAValue]) -> Sequence[SSAValue]:
                value = w.broadcast(w.load(w["hidden"], w.add(old, k)), LANES)
                place = w.add(w.mul(w.mul(k, w["padded"]), len(GATES)), channel)
                return [
                    w.fused(
                        value, w.load_lanes(w["weights"], w.add(place, w.mul(w["padded"], gate)), LANES), sums[gate]
                    )
                    for gate in GATES
                ]

            sums = w.loop(0, w["channels"], 1, add, first)
            entry, forget, output = (logistic(w, sums[gate]) for gate in (INPUT, FORGET, OUTPUT))
            place = w.add(cell_at, channel)
            kept = w.mul(forget, w.load_lanes(w["cell"], place, LANES))
            state = w.add(kept, w.mul(tanh(w, sums[CELL]), entry))
            if clip:
                most = w.broadcast(w["clip"], LANES)
                state = clamped(w, state, w.sub(w.constant(0.0, most.type), most), most)
            w.store_lanes(state, w["cell"], place)
            result = w.mul(output, tanh(w, state))
            w.store_lanes(result, w["hidden"], w.add(new, channel))
            w.store_lanes(result, w["output"], w.add(w.mul(row, w["channels"]), channel))

        w.each(0, w["channels"], LANES, block)

    _through_time(w, time_outer, step)


def _through_time(w: Loops, time_outer: int, step: Callable[[SSAValue, SSAValue, SSAValue, SSAValue], None]) -> None:
    """Call ``step(row, old, new, sequence)`` for every row. ``old``, ``new``: offsets of the hidden values."""
    steps, sequences = (w["outer"], w["inner"]) if time_outer else (w["inner"], w["outer"])
    half = w.mul(sequences, w["padded"])

    def outer(i: SSAValue) -> None:
        def inner(j: SSAValue) -> None:
            time, sequence = (i, j) if time_outer else (j, i)
            begin = w.mul(sequence, w["padded"])
            is_second = w.logical_and(w.sub(steps, time), 1)
            old = w.add(begin, w.mul(half, is_second))
            new = w.add(begin, w.mul(half, w.sub(w.constant(1), is_second)))
            step(w.add(w.mul(i, w["inner"]), j), old, new, sequence)

        w.each(0, w["inner"], 1, inner)

    w.each(0, w["outer"], 1, outer)


@kernel(
    input=BYTES,
    input_weights=BYTES,
    input_table=WORDS,
    weights=BYTES,
    table=WORDS,
    fields=WORDS,
    logistic=SHORTS,
    tanh=SHORTS,
    cell_tanh=SHORTS,
    gates=WORDS,
    hidden=BYTES,
    cell=SHORTS,
    output=BYTES,
    features=INDEX,
    **_SEQUENCE,
)
def lstm_codes(w: Loops, helpers: Helpers, *, time_outer: int) -> None:
    """Compute an LSTM cell on stored 8-bit values, in the integer arithmetic of numerics.lstm.

    ``input`` has ``features`` values per row. Both weight buffers are ``[block of channels][four inputs][channel][4]``
    over the channels of all gates, and both tables have the rows ``windows.FIELDS`` and ``left``, a shift of the sums
    to the left. The functions of gates and cell are tables indexed by 16-bit values. ``gates`` is scratch memory for
    the sums of a step.
    """
    fields = [w.load(w["fields"], w.constant(index)) for index in range(len(CELL_FIELDS))]
    added_half, added_shift, low, high, *scaling = fields
    limits = [w.broadcast(scaling[-1], LANES), w.constant(0, SUMS), w.constant(255, SUMS)]
    columns = [w.broadcast(number, LANES) for number in scaling[:-1]]
    all_channels = w.mul(w["padded"], len(GATES))

    def products(source: str, begin: SSAValue, depth: SSAValue, kind: str, channel: SSAValue) -> SSAValue:
        rounded = w.logical_and(w.add(depth, 3), -4)

        def field(index: int) -> SSAValue:
            return w.load_lanes(w[f"{kind}table"], w.add(w.mul(all_channels, index), channel), LANES)

        def add(k: SSAValue, sums: Sequence[SSAValue]) -> Sequence[SSAValue]:
            place = w.add(w.mul(channel, rounded), w.mul(k, LANES))
            four = w.load_lanes(w[source], w.add(begin, k), 4)
            return [w.call(helpers["dot"], sums[0], four, w.load_lanes(w[f"{kind}weights"], place, 4 * LANES))]

        (sums,) = w.loop(0, rounded, 4, add, [field(0)])
        raised = w.shift_left(sums, field(len(FIELDS)))
        return _limited(w, w.call(helpers["scale"], raised, *map(field, range(1, len(FIELDS)))))

    def step(row: SSAValue, old: SSAValue, new: SSAValue, sequence: SSAValue) -> None:
        def block(channel: SSAValue) -> None:
            taken = products("input", w.mul(row, w["features"]), w["features"], "input_", channel)
            kept = products("hidden", old, w["channels"], "", channel)
            w.store_lanes(_limited(w, w.add(taken, kept)), w["gates"], channel)

        w.each(0, all_channels, LANES, block)
        cell_at = w.mul(sequence, w["padded"])

        def one(channel: SSAValue) -> None:
            sums = [w.load(w["gates"], w.add(w.mul(w["padded"], gate), channel)) for gate in GATES]
            entry, forget, output = (_function(w, "logistic", sums[gate]) for gate in (INPUT, FORGET, OUTPUT))
            place = w.add(cell_at, channel)
            kept = _rounded(w, w.mul(forget, w.widen(w.load(w["cell"], place), i32)), 1 << 14, 15)
            added = _rounded(w, w.mul(entry, _function(w, "tanh", sums[CELL])), added_half, added_shift)
            state = w.least(w.most(w.add(kept, added), low), high)
            w.store(w.narrow(state, i16), w["cell"], place)
            w.store(w.mul(output, _function(w, "cell_tanh", state)), w["gates"], channel)

        w.each(0, w["channels"], 1, one)

        def finish(channel: SSAValue) -> None:
            scaled = w.call(helpers["scale"], w.load_lanes(w["gates"], channel, LANES), *columns)
            codes = within(w, scaled, limits, i8)
            w.store_lanes(codes, w["hidden"], w.add(new, channel))
            w.store_lanes(codes, w["output"], w.add(w.mul(row, w["channels"]), channel))

        w.each(0, w["channels"], LANES, finish)

    _through_time(w, time_outer, step)


def _limited(w: Loops, sums: SSAValue) -> SSAValue:
    return w.least(w.most(sums, -_LARGEST - 1), _LARGEST)


def _function(w: Loops, table: str, code: SSAValue) -> SSAValue:
    return w.widen(w.load(w[table], w.to_index(w.logical_and(code, 0xFFFF))), i32)


def _rounded(w: Loops, value: SSAValue, half: SSAValue | int, shift: SSAValue | int) -> SSAValue:
    """Return ``value / 2^shift``, with halves rounded away from zero."""
    away = w.add(w.add(value, half), w.shift_right(value, 31))
    return w.shift_right(away, shift)
