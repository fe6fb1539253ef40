"""Positions of operations in their source text, for messages."""

from __future__ import annotations

from xdsl.ir import Operation
from xdsl.utils.lexer import Span

from odc_mlir.errors import OdcError
from odc_mlir.support.locations import location_names

_SHOWN = 110  # characters of a source line; those with constants have millions


class Positions:
    """The first token of each operation of a text, also after passes have replaced some operations."""

    def __init__(self) -> None:
        self._spans: dict[Operation, Span] = {}

    def record(self, op: Operation, span: Span) -> None:
        """``op`` begins with ``span``."""
        self._spans[op] = span

    def of_op(self, op: Operation) -> Span | None:
        """Where ``op`` begins; an operation that passes made is where another with one of its names was."""
        found = self._spans.get(op)
        if found is not None:
            return found
        return next((span for name in location_names(op.location) if (span := self.of_name(name)) is not None), None)

    def of_name(self, name: str) -> Span | None:
        """Where the first operation with a result called ``name`` begins."""
        return next((span for op, span in self._spans.items() if name in location_names(op.location)), None)

    def place(self, error: OdcError, op: Operation | None = None) -> None:
        """Let ``error`` say where it is, if that is known: about ``op``, else about the tensor that it names."""
        if error.source is not None:
            return
        span = self.of_op(op) if op is not None else self.of_name(error.tensor) if error.tensor else None
        if span is not None:
            point(error, span)


def point(error: OdcError, span: Span) -> None:
    """Give ``error`` the place ``span``: file:line:column, the line and a caret below it."""
    error.location = str(span.get_location())
    start = span.input.get_start_of_line(span.start)
    text, column = span.input.content[start : span.input.get_end_of_line(span.start)], span.start - start
    first = max(0, column - _SHOWN // 2) if len(text) > _SHOWN else 0
    shown = text[first : first + _SHOWN]
    marks = max(1, min(span.end - span.start, len(shown) - (column - first)))
    # Tabs move the caret as they move the text.
    blanks = "".join("\t" if character == "\t" else " " for character in shown[: column - first])
    error.source = f"{shown}\n{blanks}{'^' * marks}"
