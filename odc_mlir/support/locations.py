"""Tensor names as locations, and positions of operations in source text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, FusedLoc, LocationAttr, NameLoc, NoneAttr, StringAttr, UnknownLoc
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue
from xdsl.utils.lexer import Span

from odc_mlir.errors import OdcError

_NOT_IN_HINT = re.compile(r"[^A-Za-z0-9_]+")
_NUMBERS_AT_END = re.compile(r"(_\d*)+$")
_LONGEST_HINT = 40


def name_loc(name: str) -> LocationAttr:
    """Return the location of a value called ``name``."""
    return NameLoc(StringAttr(name), NoneAttr())


def names_loc(names: Sequence[str]) -> LocationAttr:
    """Return the location of an operation with results of these names."""
    if len(names) == 1:
        return name_loc(names[0])
    return FusedLoc(ArrayAttr([name_loc(name) for name in names]), NoneAttr())


def location_names(location: LocationAttr) -> tuple[str, ...]:
    """Return the names in ``location`` in order."""
    if isinstance(location, NameLoc):
        return (location.desc.data,)
    if isinstance(location, FusedLoc):
        parts: Sequence[LocationAttr] = tuple(location.locations)  # type: ignore[arg-type]
        return tuple(name for part in parts for name in location_names(part))
    return ()


def op_name(op: Operation) -> str:
    """Return the name of the first result, or "" if the location has none."""
    location = op.location
    if type(location) is NameLoc:
        return location.desc.data
    return next(iter(location_names(location)), "")


def value_name(value: SSAValue) -> str:
    """Return the tensor name of ``value``, or "" if the location has no name."""
    if not isinstance(value, OpResult):
        return next(iter(location_names(value.location)), "") if isinstance(value, BlockArgument) else ""
    if value.index == 0:
        return op_name(value.op)
    names = location_names(value.op.location)
    return names[value.index] if value.index < len(names) else ""


def is_known(location: LocationAttr) -> bool:
    """Return whether ``location`` is known."""
    return not isinstance(location, UnknownLoc)


def name_inside(op: Operation, name: str) -> None:
    """Give the name ``name`` to ``op`` and to operations inside of ``op`` that have no location."""
    for inner in op.walk():
        if not is_known(inner.location):
            inner.location = name_loc(name)


def hint_of(name: str) -> str | None:
    """Return an SSA name hint for a tensor name: short and valid, or None if nothing readable remains.

    Converters join the names of fused operators with ``;``, and the hint uses the first part. Trailing numbers are
    removed, because the printer adds numbers to distinguish values.
    """
    hint = _NUMBERS_AT_END.sub("", _NOT_IN_HINT.sub("_", name.partition(";")[0]).strip("_"))
    if len(hint) > _LONGEST_HINT:
        hint = hint[-_LONGEST_HINT:].partition("_")[2] or hint[-_LONGEST_HINT:]
    if not hint:
        return None
    return hint if hint[0].isalpha() else f"t{hint}"


_SHOWN = 110  # printed characters of a source line; lines with constants have millions


class Positions:
    """First token of each operation in a text. Positions stay valid when passes replace operations."""

    def __init__(self) -> None:
        self._spans: dict[Operation, Span] = {}

    def record(self, op: Operation, span: Span) -> None:
        self._spans[op] = span

    def of_op(self, op: Operation) -> Span | None:
        """Return the start of ``op``, or of an operation with the same name if a pass created ``op``."""
        found = self._spans.get(op)
        if found is not None:
            return found
        return next((span for name in location_names(op.location) if (span := self.of_name(name)) is not None), None)

    def of_name(self, name: str) -> Span | None:
        """Return the start of the first operation with a result called ``name``."""
        return next((span for op, span in self._spans.items() if name in location_names(op.location)), None)

    def place(self, error: OdcError, op: Operation | None = None) -> None:
        """Add the position of ``op``, or else of the error's tensor, to ``error``, if known."""
        if error.source is not None:
            return
        span = self.of_op(op) if op is not None else self.of_name(error.tensor) if error.tensor else None
        if span is not None:
            point(error, span)


def point(error: OdcError, span: Span) -> None:
    """Add the position ``span`` to ``error``: file:line:column, and the line with a caret below it."""
    error.location = str(span.get_location())
    start = span.input.get_start_of_line(span.start)
    text, column = span.input.content[start : span.input.get_end_of_line(span.start)], span.start - start
    first = max(0, column - _SHOWN // 2) if len(text) > _SHOWN else 0
    shown = text[first : first + _SHOWN]
    marks = max(1, min(span.end - span.start, len(shown) - (column - first)))
    # Tabs before the caret shift it like the text above.
    blanks = "".join("\t" if character == "\t" else " " for character in shown[: column - first])
    error.source = f"{shown}\n{blanks}{'^' * marks}"
