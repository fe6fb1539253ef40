"""Kernels that compute element by element: arithmetic, functions, look-ups, comparisons, choices, conversions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from xdsl.dialects import arith
from xdsl.dialects.builtin import IntegerType, f32, i8, i16, i32
from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.loops import BYTES, INDEX, REALS, SHORTS, STORED, WORDS, Loops, buffer, lanes
from odc_mlir.transforms.native.kernels.mathematics import (
    OPERATIONS,
    EmitValue,
    rounded,
    small_integers,
    squared_difference,
)
from odc_mlir.transforms.native.kernels.registry import (
    LANES,
    SUMS,
    Helpers,
    Options,
    Parameters,
    kernel,
    kernel_by_options,
    within,
)
from odc_mlir.transforms.native.kernels.windows import limit

OPERANDS = ("a", "b", "c")
"""Names of operands. The option with an operand's name is the operand's layout."""

FULL, BY_COLUMN, BY_ROW, SINGLE = range(4)
"""Layouts of an operand that is read at (row, column)."""

_TABLE = {"rows": INDEX, "columns": INDEX}
_OPERATIONS = tuple(OPERATIONS.values())


def _each_element(w: Loops, ways: Mapping[str, int], body: Callable[..., SSAValue], count: int = LANES) -> None:
    """Store ``body(*operands)`` for ``rows`` by ``columns`` elements, ``count`` (one or a vector) at a time."""
    zero = w.constant(0)

    def load(name: str, place: SSAValue) -> SSAValue:
        return w.load(w[name], place) if count == 1 else w.load_lanes(w[name], place, count)

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["columns"])
        fixed = {}
        for name, way in ways.items():
            if way in (BY_ROW, SINGLE):
                single = w.load(w[name], number if way == BY_ROW else zero)
                fixed[name] = single if count == 1 else w.broadcast(single, LANES)

        def chunk(column: SSAValue) -> None:
            place = w.add(begin, column)
            sources = {name: place if way == FULL else column for name, way in ways.items()}
            operands = [fixed[name] if name in fixed else load(name, source) for name, source in sources.items()]
            (w.store if count == 1 else w.store_lanes)(body(*operands), w["output"], place)

        w.each(0, w["columns"], count, chunk)

    w.each(0, w["rows"], 1, row)


def _each_vector(w: Loops, body: Callable[[SSAValue], SSAValue]) -> None:
    def chunk(index: SSAValue) -> None:
        w.store_lanes(body(w.load_lanes(w["input"], index, LANES)), w["output"], index)

    w.each(0, w["count"], LANES, chunk)


@kernel(a=REALS, b=REALS, output=REALS, low=f32, high=f32, **_TABLE)
def binary_reals(w: Loops, helpers: Helpers, *, operation: int, clamp: int, a: int, b: int) -> None:
    """Compute an operation of two floats."""
    limited, compute = limit(w, clamp), _OPERATIONS[operation]
    _each_element(w, {"a": a, "b": b}, lambda *operands: limited(compute(w, *operands)))


@kernel(input=REALS, output=REALS, count=INDEX)
def unary_reals(w: Loops, helpers: Helpers, *, operation: int) -> None:
    """Compute a function of every float."""
    _each_vector(w, lambda x: _OPERATIONS[operation](w, x))


OPERAND_FIELDS = ("zero", "q", "round", "half", "shift")
RESULT_FIELDS = ("q", "round", "half", "shift", "zero", "low", "high")
"""Result fields of the table of ``combine_codes``, after the fields of either operand."""

SUM, DIFFERENCE, PRODUCT, SHIFTED_SUM, SHIFTED_DIFFERENCE = range(5)


def _combined(options: Options) -> Parameters:
    type = SHORTS if options["wide"] else BYTES
    return {"a": type, "b": type, "table": WORDS, "output": type, **_TABLE}


@kernel_by_options(_combined)
def combine_codes(
    w: Loops, helpers: Helpers, *, operation: int, left: int, wide: int, halved: int, a: int, b: int
) -> None:
    """Add, subtract or multiply quantised values as in numerics.elementwise. ``wide`` values have 16 bits.

    Sums and differences scale both operands, ``(value - zero) << left``, and requantise the result. Products requantise
    only the result. Shifted operations shift either operand right with rounding, and saturate the result. ``halved``:
    sum of 1 and 2 for operands ``a`` and ``b`` with the multiplier 1/2, which is a smaller shift to the left.
    """
    size = len(OPERAND_FIELDS)
    numbers = [w.broadcast(w.load(w["table"], w.constant(i)), LANES) for i in range(2 * size + len(RESULT_FIELDS))]
    shifted = operation in (SHIFTED_SUM, SHIFTED_DIFFERENCE)
    combine = {PRODUCT: w.mul, DIFFERENCE: w.sub, SHIFTED_DIFFERENCE: w.sub}.get(operation, w.add)

    def part(codes: SSAValue, number: int) -> SSAValue:
        zero, q, rounding, half, shift = numbers[number * size : (number + 1) * size]
        centred = w.sub(w.widen(codes, SUMS) if wide else w.widen_unsigned(codes, SUMS), zero)
        if operation == PRODUCT:
            return centred
        if halved >> number & 1:
            return w.shift_left(centred, left - 1)
        if wide and not shifted:
            return w.call(helpers["scale"], w.shift_left(centred, left), q, rounding, half, shift)
        if not shifted:  # 9 bits times 31 bits, in two products of 32 bits
            low = w.mul(centred, w.logical_and(q, (1 << 31 - left) - 1))
            low = w.shift_right(w.add(low, 1 << 30 - left), 31 - left)
            centred = w.add(w.mul(centred, w.shift_right(q, 31 - left)), low)
        sign = w.logical_and(w.shift_right(centred, 31), rounding)
        return w.shift_right(w.add(w.add(centred, sign), half), shift)

    def chunk(first: SSAValue, second: SSAValue) -> SSAValue:
        whole = combine(part(first, 0), part(second, 1))
        if not shifted:
            whole = w.call(helpers["scale"], whole, *numbers[2 * size : 2 * size + 4])
        return within(w, whole, numbers[-3:], i16 if wide else i8)

    _each_element(w, {"a": a, "b": b}, chunk)


_RESULTS = {8: BYTES, 16: SHORTS, 32: REALS}


def _looked_up(options: Options) -> Parameters:
    result = _RESULTS[options["result"]]
    return {"input": SHORTS if options["bits"] == 16 else BYTES, "table": result, "output": result, "count": INDEX}


@kernel_by_options(_looked_up)
def look_up(w: Loops, helpers: Helpers, *, bits: int, result: int) -> None:
    """Compute any function of one stored value: ``table[value]``, or ``table[value + 32768]`` for 16-bit values."""

    def element(index: SSAValue) -> None:
        value = w.load(w["input"], index)
        place = w.add(w.widen(value, i32), 1 << 15) if bits == 16 else w.widen_unsigned(value, i32)
        w.store(w.load(w["table"], w.to_index(place)), w["output"], index)

    w.each(0, w["count"], 1, element)


@kernel(a=BYTES, b=BYTES, table=BYTES, output=BYTES, **_TABLE)
def look_up_pairs(w: Loops, helpers: Helpers, *, a: int, b: int) -> None:
    """Compute any function of two stored 8-bit values: ``table[a * 256 + b]``."""

    def single(*operands: SSAValue) -> SSAValue:
        first, second = (w.widen_unsigned(value, i32) for value in operands)
        return w.load(w["table"], w.to_index(w.add(w.shift_left(first, 8), second)))

    _each_element(w, {"a": a, "b": b}, single, 1)


_QUANTIZED: Parameters = {"input": REALS, "count": INDEX, "scale": f32, "least": f32, "most": f32, "zero": i32}


@kernel_by_options(lambda options: {"output": SHORTS if options["wide"] else BYTES, **_QUANTIZED})
def quantize_reals(w: Loops, helpers: Helpers, *, wide: int) -> None:
    """Quantise floats: divide by the scale, round halves away from zero, add the zero point.

    ``least``, ``most``: ends of the range minus the zero point. NaN becomes the lowest value.
    """
    scale, least, most, zero = (w.broadcast(w[name], LANES) for name in ("scale", "least", "most", "zero"))

    def codes(x: SSAValue) -> SSAValue:
        value = w.emit(arith.MinnumfOp(w.emit(arith.MaxnumfOp(w.div(x, scale), least)), most))
        return w.narrow(w.add(small_integers(w, rounded(w, value)), zero), lanes(LANES, i16 if wide else i8))

    _each_vector(w, codes)


@kernel(input=SHORTS, output=REALS, count=INDEX, scale=f32, zero=f32)
def dequantize_wide(w: Loops, helpers: Helpers) -> None:
    """Compute floats of 16-bit values: ``(value - zero) * scale``."""
    scale, zero = w.broadcast(w["scale"], LANES), w.broadcast(w["zero"], LANES)
    _each_vector(w, lambda x: w.mul(w.sub(w.to_real(w.widen(x, SUMS)), zero), scale))


class Element(NamedTuple):
    """Operation on single elements: operator, types of operands and result, and the function that emits it."""

    name: str
    takes: tuple[str, ...]
    gives: str
    write: EmitValue


def _is_true(w: Loops, value: SSAValue) -> SSAValue:
    return w.compare(value, "une" if value.type == f32 else "ne", 0)


def _comparison(real: str, whole: str) -> EmitValue:
    return lambda w, a, b: w.widen_unsigned(w.compare(a, real if a.type == f32 else whole, b), i8)


_COMPARISONS = {
    "EQUAL": _comparison("oeq", "eq"),
    "NOT_EQUAL": _comparison("une", "ne"),
    "LESS": _comparison("olt", "slt"),
    "LESS_EQUAL": _comparison("ole", "sle"),
    "GREATER": _comparison("ogt", "sgt"),
    "GREATER_EQUAL": _comparison("oge", "sge"),
}
_ARITHMETIC: dict[str, EmitValue] = {
    "ADD": Loops.add, "SUB": Loops.sub, "MUL": Loops.mul, "MAXIMUM": Loops.most, "MINIMUM": Loops.least,
}  # fmt: skip


def _select(w: Loops, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
    return w.select(_is_true(w, condition), a, b)


def _to_whole(type: IntegerType) -> EmitValue:
    """Convert floats with saturation. NaN becomes the highest number."""
    bits = type.width.data

    def write(w: Loops, x: SSAValue) -> SSAValue:
        whole = w.intrinsic(f"llvm.fptosi.sat.i{bits}.f32", [x], type)
        return w.select(w.compare(x, "uno", x), w.constant((1 << (bits - 1)) - 1, type), whole)

    return write


def _cast(source: str, target: str) -> EmitValue:
    type = STORED[target]
    if source == target:
        return lambda w, x: x
    if target == "bool":
        return lambda w, x: w.widen_unsigned(_is_true(w, x), i8)
    if target == "float32":
        return lambda w, x: w.emit(arith.SIToFPOp(x, f32))
    if source == "bool":
        return lambda w, x: w.widen_unsigned(x, type)
    assert isinstance(type, IntegerType)
    if source == "float32":
        return _to_whole(type)
    narrows = source == "int64" or (source == "int32" and target == "int16")
    return lambda w, x: w.narrow(x, type) if narrows else w.widen(x, type)


_WHOLE = ("int16", "int32", "int64")
_CAST = ("bool", *_WHOLE, "float32")

# Append new operations at the end: names of kernels contain indices of operations in this table.
ELEMENTS: tuple[Element, ...] = (
    *(Element(name, (kind, kind), "bool", write) for name, write in _COMPARISONS.items()
      for kind in ("float32", *_WHOLE)),
    *(Element(name, ("bool", "bool"), "bool", _COMPARISONS[name]) for name in ("EQUAL", "NOT_EQUAL")),
    *(Element(name, (kind, kind), kind, write) for name, write in _ARITHMETIC.items() for kind in ("int32", "int64")),
    *(Element(name, ("int16", "int16"), "int16", _ARITHMETIC[name]) for name in ("MAXIMUM", "MINIMUM")),
    *(Element("SQUARED_DIFFERENCE", (kind, kind), kind, squared_difference) for kind in ("int32", "int64")),
    Element("LOGICAL_AND", ("bool", "bool"), "bool", Loops.logical_and),
    Element("LOGICAL_OR", ("bool", "bool"), "bool", lambda w, a, b: w.emit(arith.OrIOp(a, b))),
    Element("LOGICAL_NOT", ("bool",), "bool", lambda w, a: w.xor(a, 1)),
    *(Element(name, ("bool", kind, kind), kind, _select) for name in ("SELECT", "SELECT_V2") for kind in STORED),
    *(Element("CAST", (source,), target, _cast(source, target)) for source in _CAST for target in _CAST),
    *(Element("NEG", (kind,), kind, lambda w, a: w.sub(w.constant(0, a.type), a)) for kind in ("int32", "int64")),
    Element("ABS", ("int32",), "int32", lambda w, a: w.most(a, w.sub(w.constant(0, a.type), a))),
)  # fmt: skip
_NUMBERS = {element[:3]: number for number, element in enumerate(ELEMENTS)}


def element_of(name: str, takes: Sequence[str], gives: str) -> int | None:
    """Return the number of an operation on these types, or None."""
    return _NUMBERS.get((name, tuple(takes), gives))


def _parameters(options: Options) -> Parameters:
    _, takes, gives, _ = ELEMENTS[options["operation"]]
    operands = {name: buffer(STORED[kind]) for name, kind in zip(OPERANDS, takes, strict=False)}
    return {**operands, "output": buffer(STORED[gives]), **_TABLE}


@kernel_by_options(_parameters)
def map_elements(w: Loops, helpers: Helpers, *, operation: int, **ways: int) -> None:
    """Compute an operation of :data:`ELEMENTS`, element by element."""
    _each_element(w, ways, lambda *operands: ELEMENTS[operation].write(w, *operands), 1)
