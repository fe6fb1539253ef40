"""Element-wise operators on any types, element by element: comparisons, logic, choices, integers, conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type
from xdsl.ir import Attribute, SSAValue

from odc_mlir.transforms.native.kernels.pairs import BY_COLUMN, BY_ROW, FULL
from odc_mlir.transforms.native.kernels.registry import Helpers, Options, Parameters, kernel_by_options
from odc_mlir.transforms.native.lowering.loops import BYTES, INDEX, Loops, buffer, f32, i8, i16, i32, i64

Write = Callable[..., SSAValue]

KINDS: dict[str, Attribute] = {
    "bool": i8, "int8": i8, "uint8": i8, "int16": i16, "int32": i32, "int64": i64, "float32": f32,
}  # fmt: skip
_WHOLE = ("int16", "int32", "int64")
OPERANDS = ("a", "b", "c")


@dataclass(frozen=True)
class Element:
    """An operation: what it is called, the types that it takes and gives, and how one element is computed."""

    name: str
    takes: tuple[str, ...]
    gives: str
    write: Write


def _truth(w: Loops, bit: SSAValue) -> SSAValue:
    return w.widen_unsigned(bit, i8)


def _is_true(w: Loops, value: SSAValue) -> SSAValue:
    return w.compare(value, "ne", 0)


def _comparison(real: str, whole: str) -> Write:
    def write(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
        if isinstance(a.type, Float32Type):
            return _truth(w, w.emit(arith.CmpfOp(a, b, real)))
        return _truth(w, w.compare(a, whole, b))

    return write


_COMPARISONS = {
    "EQUAL": _comparison("oeq", "eq"),
    "NOT_EQUAL": _comparison("une", "ne"),
    "LESS": _comparison("olt", "slt"),
    "LESS_EQUAL": _comparison("ole", "sle"),
    "GREATER": _comparison("ogt", "sgt"),
    "GREATER_EQUAL": _comparison("oge", "sge"),
}
_ARITHMETIC: dict[str, Write] = {
    "ADD": lambda w, a, b: w.add(a, b),
    "SUB": lambda w, a, b: w.sub(a, b),
    "MUL": lambda w, a, b: w.mul(a, b),
    "MAXIMUM": lambda w, a, b: w.most(a, b),
    "MINIMUM": lambda w, a, b: w.least(a, b),
}


def _squared_difference(w: Loops, a: SSAValue, b: SSAValue) -> SSAValue:
    difference = w.sub(a, b)
    return w.mul(difference, difference)


def _select(w: Loops, condition: SSAValue, a: SSAValue, b: SSAValue) -> SSAValue:
    return w.select(_is_true(w, condition), a, b)


def _to_whole(kind: str) -> Write:
    """Reals saturate, and what is not a number gives the highest."""
    type = KINDS[kind]
    bits = {"int16": 16, "int32": 32, "int64": 64}[kind]

    def write(w: Loops, x: SSAValue) -> SSAValue:
        whole = w.intrinsic(f"llvm.fptosi.sat.i{bits}.f32", [x], type)
        return w.select(w.emit(arith.CmpfOp(x, x, "uno")), w.constant((1 << (bits - 1)) - 1, type), whole)

    return write


def _cast(source: str, target: str) -> Write:
    type = KINDS[target]

    def write(w: Loops, x: SSAValue) -> SSAValue:
        if source == target:
            return x
        if target == "bool":
            if source == "float32":
                return _truth(w, w.emit(arith.CmpfOp(x, w.constant(0.0, f32), "une")))
            return _truth(w, _is_true(w, x))
        if source == "float32":
            return _to_whole(target)(w, x)
        if target == "float32":
            return w.emit(arith.SIToFPOp(x, f32))
        wide = source == "int64" or (source == "int32" and target == "int16")
        if source == "bool":
            return w.widen_unsigned(x, type)
        return w.narrow(x, type) if wide else w.widen(x, type)

    return write


_CAST = ("bool", *_WHOLE, "float32")

# Kernels name operations by their place here: put new ones at the end.
ELEMENTS: tuple[Element, ...] = (
    *(Element(name, (kind, kind), "bool", write) for name, write in _COMPARISONS.items()
      for kind in ("float32", *_WHOLE)),
    *(Element(name, ("bool", "bool"), "bool", _COMPARISONS[name]) for name in ("EQUAL", "NOT_EQUAL")),
    *(Element(name, (kind, kind), kind, write) for name, write in _ARITHMETIC.items() for kind in ("int32", "int64")),
    *(Element(name, ("int16", "int16"), "int16", _ARITHMETIC[name]) for name in ("MAXIMUM", "MINIMUM")),
    *(Element("SQUARED_DIFFERENCE", (kind, kind), kind, _squared_difference) for kind in ("int32", "int64")),
    Element("LOGICAL_AND", ("bool", "bool"), "bool", lambda w, a, b: w.logical_and(a, b)),
    Element("LOGICAL_OR", ("bool", "bool"), "bool", lambda w, a, b: w.emit(arith.OrIOp(a, b))),
    Element("LOGICAL_NOT", ("bool",), "bool", lambda w, a: w.xor(a, 1)),
    *(Element(name, ("bool", kind, kind), kind, _select) for name in ("SELECT", "SELECT_V2") for kind in KINDS),
    *(Element("CAST", (source, target), target, _cast(source, target)) for source in _CAST for target in _CAST),
    *(Element("NEG", (kind,), kind, lambda w, a: w.sub(w.constant(0, a.type), a)) for kind in ("int32", "int64")),
    *(Element("ABS", (kind,), kind, lambda w, a: w.most(a, w.sub(w.constant(0, a.type), a))) for kind in ("int32",)),
)  # fmt: skip


def element_of(name: str, kinds: Sequence[str], gives: str) -> int | None:
    """The place of an operation on these types, None where there is none."""
    takes = (kinds[0], gives) if name == "CAST" else tuple(kinds)
    for index, element in enumerate(ELEMENTS):
        if (element.name, element.takes, element.gives) == (name, takes, gives):
            return index
    return None


def arity(operation: int) -> int:
    """How many operands an operation has."""
    element = ELEMENTS[operation]
    return 1 if element.name == "CAST" else len(element.takes)


def _parameters(options: Options) -> Parameters:
    element = ELEMENTS[options["operation"]]
    operands = {name: buffer(KINDS[kind]) for name, kind in zip(OPERANDS[: arity(options["operation"])], element.takes,
                                                                strict=False)}  # fmt: skip
    return {**operands, "output": buffer(KINDS[element.gives]), "rows": INDEX, "columns": INDEX}


@kernel_by_options(_parameters)
def map_elements(w: Loops, helpers: Helpers, *, operation: int, **ways: int) -> None:
    """Every element of ``rows`` by ``columns``; ``ways`` say how each operand is read, as in :mod:`pairs`."""
    element, zero = ELEMENTS[operation], w.constant(0)

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["columns"])

        def single(column: SSAValue) -> None:
            place = w.add(begin, column)
            places = {FULL: place, BY_COLUMN: column, BY_ROW: number}
            operands = [w.load(w[name], places.get(way, zero)) for name, way in ways.items()]
            w.store(element.write(w, *operands), w["output"], place)

        w.each(0, w["columns"], 1, single)

    w.each(0, w["rows"], 1, row)


_TABLE = {"a": BYTES, "b": BYTES, "table": BYTES, "output": BYTES, "rows": INDEX, "columns": INDEX}


@kernel_by_options(lambda _: _TABLE)
def look_up_pairs(w: Loops, helpers: Helpers, *, a: int, b: int) -> None:
    """``table[a * 256 + b]``: any function of two codes."""
    zero = w.constant(0)

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["columns"])

        def single(column: SSAValue) -> None:
            place = w.add(begin, column)
            places = {FULL: place, BY_COLUMN: column, BY_ROW: number}
            first, second = (
                w.widen_unsigned(w.load(w[name], places.get(way, zero)), i32) for name, way in (("a", a), ("b", b))
            )
            code = w.to_index(w.add(w.shift_left(first, 8), second))
            w.store(w.load(w["table"], code), w["output"], place)

        w.each(0, w["columns"], 1, single)

    w.each(0, w["rows"], 1, row)


def _wide_table(options: Options) -> Parameters:
    return {"input": buffer(i16), "table": buffer(i8 if options["bytes"] else i16),
            "output": buffer(i8 if options["bytes"] else i16), "count": INDEX}  # fmt: skip


@kernel_by_options(_wide_table)
def look_up_wide(w: Loops, helpers: Helpers, *, bytes: int) -> None:
    """``table[code + 32768]`` for codes of 16 bits."""

    def element(index: SSAValue) -> None:
        code = w.add(w.widen(w.load(w["input"], index), i32), 1 << 15)
        w.store(w.load(w["table"], w.to_index(code)), w["output"], index)

    w.each(0, w["count"], 1, element)
