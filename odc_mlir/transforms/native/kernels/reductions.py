"""Kernels of reductions of ``[outer, count, inner]`` along the middle."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.elementwise import KINDS
from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.kernels.loops import INDEX, REALS, Loops, buffer, f32, i32, i64, lanes
from odc_mlir.transforms.native.kernels.mathematics import larger, smaller
from odc_mlir.transforms.native.kernels.registry import Helpers, Options, Parameters, kernel, kernel_by_options

Combine = Callable[[Loops, SSAValue, SSAValue], SSAValue]

_INDICES = dict.fromkeys(("outer", "count", "inner"), INDEX)
_LOWEST, _HIGHEST = float("-inf"), float("inf")

# How reals are combined, and the first value. Maxima and minima pass over NaN.
_REALS: dict[str, tuple[Combine, float]] = {
    "SUM": (lambda w, a, b: w.emit(arith.AddfOp(a, b)), 0.0),
    "REDUCE_PROD": (lambda w, a, b: w.emit(arith.MulfOp(a, b)), 1.0),
    "REDUCE_MAX": (lambda w, a, b: larger(w, b, a), _LOWEST),
    "REDUCE_MIN": (lambda w, a, b: smaller(w, b, a), _HIGHEST),
}
NAMES = tuple(_REALS)
TYPES = ("float32", "int16", "int32", "int64", "uint8")  # the last one also stands for truth values and raised codes


def _whole(w: Loops, name: str, bits: int, unsigned: bool) -> tuple[Combine, int]:
    """Return the combination of integers, and its first value."""
    least, most = (0, (1 << bits) - 1) if unsigned else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    larger, smaller = (arith.MaxUIOp, arith.MinUIOp) if unsigned else (arith.MaxSIOp, arith.MinSIOp)
    found: dict[str, tuple[Combine, int]] = {
        "SUM": (lambda w, a, b: w.add(a, b), 0),
        "REDUCE_PROD": (lambda w, a, b: w.mul(a, b), 1),
        "REDUCE_MAX": (lambda w, a, b: w.emit(larger(a, b)), least),
        "REDUCE_MIN": (lambda w, a, b: w.emit(smaller(a, b)), most if not unsigned else -1),
    }
    return found[name]


def _each_column(w: Loops, body: Callable[[SSAValue, SSAValue], None], step: int = 1) -> None:
    """Call ``body(first element, place of the result)`` for every ``step`` elements of ``outer`` and ``inner``."""

    def outer(number: SSAValue) -> None:
        begin, target = w.mul(w.mul(number, w["count"]), w["inner"]), w.mul(number, w["inner"])
        w.each(0, w["inner"], step, lambda index: body(w.add(begin, index), w.add(target, index)))

    w.each(0, w["outer"], 1, outer)


def _parameters(options: Options) -> Parameters:
    type = buffer(KINDS[TYPES[options["kind"]]])
    return {"input": type, "output": type, **_INDICES}


@kernel_by_options(_parameters)
def reduce(w: Loops, helpers: Helpers, *, name: int, kind: int, wide: int) -> None:
    """Combine all elements along the middle, 16 neighbours of ``inner`` at a time if ``wide``."""
    dtype = TYPES[kind]
    element = KINDS[dtype]
    start: float
    if dtype == "float32":
        combine, start = _REALS[NAMES[name]]
    else:
        bits = {"uint8": 8, "int16": 16, "int32": 32, "int64": 64}[dtype]
        combine, start = _whole(w, NAMES[name], bits, dtype == "uint8")
    first = w.constant(start, lanes(LANES, element) if wide else element)

    def column(begin: SSAValue, target: SSAValue) -> None:
        def step(k: SSAValue, state: SSAValue) -> SSAValue:
            place = w.add(begin, w.mul(k, w["inner"]))
            value = w.load_lanes(w["input"], place, LANES) if wide else w.load(w["input"], place)
            return combine(w, state, value)

        if dtype == "float32" and NAMES[name] == "SUM":
            found = w.sum_in_blocks(w.constant(0), w["count"], 1, step, first)
        else:
            found = w.loop(0, w["count"], 1, lambda k, state: [step(k, state[0])], [first])[0]
        (w.store_lanes if wide else w.store)(found, w["output"], target)

    _each_column(w, column, LANES if wide else 1)


@kernel(input=REALS, output=REALS, outer=INDEX, count=INDEX, scale=f32)
def sum_rows(w: Loops, helpers: Helpers) -> None:
    """Sum of every row of floats times ``scale``, 16 elements at a time."""
    whole = w.sub(w["count"], w.logical_and(w["count"], LANES - 1))

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["count"])

        def step(k: SSAValue, total: SSAValue, count: int) -> SSAValue:
            return w.emit(arith.AddfOp(total, w.load_lanes(w["input"], w.add(begin, k), count)))

        zero = w.constant(0.0, lanes(LANES, f32))
        many = w.sum_in_blocks(w.constant(0), whole, LANES, lambda k, total: step(k, total, LANES), zero)
        first = w.broadcast(w.reduce(many, "add"), 1)
        one = w.loop(whole, w["count"], 1, lambda k, state: [step(k, state[0], 1)], [first])[0]
        total = w.emit(arith.MulfOp(one, w.broadcast(w["scale"], 1)))
        w.store_lanes(total, w["output"], number)

    w.each(0, w["outer"], 1, row)


def _extreme(options: Options) -> Parameters:
    return {
        "input": buffer(KINDS[TYPES[options["kind"]]]),
        "output": buffer(i64 if options["long"] else i32),
        **_INDICES,
    }


@kernel_by_options(_extreme)
def place_of_extreme(w: Loops, helpers: Helpers, *, largest: int, kind: int, long: int) -> None:
    """Place of the first of the largest (or smallest) elements; NaN is passed over."""
    dtype = TYPES[kind]

    def better(value: SSAValue, best: SSAValue) -> SSAValue:
        if dtype != "float32":
            sign = "u" if dtype == "uint8" else "s"
            return w.compare(value, f"{sign}{'gt' if largest else 'lt'}", best)
        found = w.emit(arith.CmpfOp(value, best, "ugt" if largest else "ult"))
        is_number = w.emit(arith.CmpfOp(value, value, "ord"))
        return w.emit(arith.AndIOp(found, is_number))

    def column(begin: SSAValue, target: SSAValue) -> None:
        def step(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            value = w.load(w["input"], w.add(begin, w.mul(k, w["inner"])))
            wins = better(value, state[0])
            return [w.select(wins, value, state[0]), w.select(wins, k, state[1])]

        found = w.loop(1, w["count"], 1, step, [w.load(w["input"], begin), w.constant(0)])[1]
        w.store(w.emit(arith.IndexCastOp(found, i64 if long else i32)), w["output"], target)

    _each_column(w, column)


@kernel_by_options(_parameters)
def running_sum(w: Loops, helpers: Helpers, *, kind: int, exclusive: int, reverse: int) -> None:
    """Running sums along the middle."""
    element = KINDS[TYPES[kind]]
    real = TYPES[kind] == "float32"
    zero = w.constant(0.0 if real else 0, element)

    def column(begin: SSAValue, _: SSAValue) -> None:
        def step(k: SSAValue, state: Sequence[SSAValue]) -> Sequence[SSAValue]:
            position = w.sub(w.sub(w["count"], 1), k) if reverse else k
            place = w.add(begin, w.mul(position, w["inner"]))
            value = w.load(w["input"], place)
            total = w.emit(arith.AddfOp(state[0], value)) if real else w.add(state[0], value)
            w.store(state[0] if exclusive else total, w["output"], place)
            return [total]

        w.loop(0, w["count"], 1, step, [zero])

    _each_column(w, column)
