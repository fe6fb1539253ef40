"""What instructions cost, as formulas: docs/npu.md prints them, the stepped simulator evaluates them.

A cost is lines ``name = expression`` in Python's syntax. Names are fields of the instruction (an enum field is its
word), lines before, and keys of the target (``vector.start_cycles``). Functions are those of :data:`FUNCTIONS`. Names
in :data:`DELAYS` and :data:`WIDTHS` are what is charged, where there is such a line; others serve to say it.

What crosses the ports of SRAM and off-chip memory, and their latency, follow from what an instruction reads and writes
there. The fast simulator counts all of it a second time, from what executing an instruction does.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from odc_mlir.isa.code_types import TYPE_BYTES, TYPES

# Cycles before the phase, least cycles of it, cycles behind it.
DELAYS = ("start", "shortest", "drain")
# Units of shared resources that the phase needs, and how many there are a cycle.
WIDTHS = {
    "lanes": "vector.requant_lanes",
    "symbols": "decoder.symbols_per_cycle",
    "tile_reads": "tile_ports.read_bytes_per_cycle",
    "tile_writes": "tile_ports.write_bytes_per_cycle",
    "accumulator_reads": "array.accumulator_ports",
    "accumulator_writes": "array.accumulator_ports",
}

_OPERATORS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.LtE: operator.le,
    ast.In: lambda a, b: a in b,
}


def _item(kind: str) -> int:
    """Bytes of an element of type ``kind``."""
    return TYPE_BYTES[TYPES.index(kind)]


def _rows(results: int, kernel: int, stride: int, dilation: int, held: int) -> int:
    """Count input rows for ``results`` result rows while ``held`` sums are kept."""

    def different(first: int, last: int) -> int:
        return len({y * stride + tap * dilation for y in range(first, last) for tap in range(kernel)})

    if math.ceil(kernel / stride) <= held and 1 in (stride, dilation):
        return different(0, results)
    return sum(different(y, min(y + held, results)) for y in range(0, results, held))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {"ceil": math.ceil, "max": max, "min": min, "item": _item, "rows": _rows}


@dataclass(frozen=True)
class Cost:
    """Formulas of one instruction, a line each; none cost nothing but what memory ports carry."""

    text: str = ""

    @cached_property
    def lines(self) -> tuple[tuple[ast.expr, ast.expr], ...]:
        """(name or names, expression) of each line."""
        found = []
        for node in ast.parse(self.text).body:
            assert isinstance(node, ast.Assign), "costs are lines of name = expression"
            found.append((node.targets[0], node.value))
        return tuple(found)

    def alone(self, values: Mapping[str, int | str], target: object) -> float:
        """Cycles with all resources to itself, without what crosses the ports of SRAM and off-chip memory."""
        found = self.evaluate(values, target)
        busy = [found[name] / operator.attrgetter(width)(target) for name, width in WIDTHS.items() if name in found]
        start, shortest, drain = (found.get(name, 0.0) for name in DELAYS)
        return float(start + max([shortest, *busy]) + drain)

    def evaluate(self, values: Mapping[str, int | str], target: object) -> dict[str, Any]:
        """All names of the formulas; ``values``: every field of the instruction, enum fields as words."""
        names: dict[str, Any] = dict(values)
        found: dict[str, Any] = {}
        for name, expression in self.lines:
            value = _value(expression, names, target)
            given = zip(name.elts, value, strict=True) if isinstance(name, ast.Tuple) else ((name, value),)
            for one, result in given:
                assert isinstance(one, ast.Name)
                names[one.id] = found[one.id] = result
        return found


def _value(node: ast.expr, names: Mapping[str, Any], target: object) -> Any:
    """Evaluate an expression; a name without value is a key of ``target``."""

    def of(part: ast.expr) -> Any:
        return _value(part, names, target)

    match node:
        case ast.Constant():
            return node.value
        case ast.Name():
            return names[node.id] if node.id in names else getattr(target, node.id)
        case ast.Attribute():
            return getattr(of(node.value), node.attr)
        case ast.Subscript():
            return of(node.value)[of(node.slice)]
        case ast.Tuple():
            return tuple(map(of, node.elts))
    return _computed(node, of)


def _computed(node: ast.expr, of: Callable[[ast.expr], Any]) -> Any:
    """Evaluate an operator on the values ``of`` its operands."""
    match node:
        case ast.BinOp():
            return _OPERATORS[type(node.op)](of(node.left), of(node.right))
        case ast.Compare():
            return _OPERATORS[type(node.ops[0])](of(node.left), of(node.comparators[0]))
        case ast.BoolOp():
            decide = all if isinstance(node.op, ast.And) else any
            return decide(of(part) for part in node.values)
        case ast.IfExp():
            return of(node.body) if of(node.test) else of(node.orelse)
        case ast.UnaryOp(op=ast.Not()):
            return not of(node.operand)
        case ast.Call(func=ast.Name(id=name)):
            return FUNCTIONS[name](*map(of, node.args))
    raise ValueError(f"a cost cannot say {ast.unparse(node)}")
