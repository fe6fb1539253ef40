"""Two operands, each read everywhere, by column, by row, or as one number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xdsl.ir import SSAValue

from odc_mlir.transforms.native.kernels.helpers import LANES
from odc_mlir.transforms.native.lowering.loops import Loops

# How an operand is read at (row, column).
FULL, BY_COLUMN, BY_ROW, SINGLE = range(4)


def each_pair(w: Loops, a: int, b: int, body: Callable[[SSAValue, Sequence[SSAValue]], None]) -> None:
    """``body(place, operands)`` for every 16 elements of ``rows`` by ``columns``; ``a`` and ``b`` say how to read."""
    zero = w.constant(0)

    def row(number: SSAValue) -> None:
        begin = w.mul(number, w["columns"])
        fixed = {
            name: w.broadcast(w.load(w[name], number if how == BY_ROW else zero), LANES)
            for name, how in (("a", a), ("b", b))
            if how in (BY_ROW, SINGLE)
        }

        def chunk(column: SSAValue) -> None:
            place = w.add(begin, column)
            operands = [
                fixed[name] if name in fixed else w.load_lanes(w[name], place if how == FULL else column, LANES)
                for name, how in (("a", a), ("b", b))
            ]
            body(place, operands)

        w.each(0, w["columns"], LANES, chunk)

    w.each(0, w["rows"], 1, row)
