"""Vocabulary of effects: memory areas that an instruction reads and writes, derived from its fields.

Areas are given from an address field on, in units of its memory. The compiler looks at the range that encloses one: two
instructions that touch disjoint columns of the same rows count as conflicting. Costs look at its runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from odc_mlir.isa.code_types import TYPE_BYTES

Values = Mapping[str, int]


class Runs(NamedTuple):
    """``count2`` groups, ``stride2`` apart, of ``count1`` runs, ``stride1`` apart, of ``size`` units each."""

    size: int
    count1: int = 1
    stride1: int = 0
    count2: int = 1
    stride2: int = 0

    @property
    def extent(self) -> int:
        """Units from the first to one past the last."""
        return (self.count2 - 1) * self.stride2 + (self.count1 - 1) * self.stride1 + self.size


class Area(NamedTuple):
    """``size`` units from the address in ``field`` on, or of them those in ``runs``.

    ``ring``: the address field and the size of a ring that the area wraps in, where it does. ``picked``: (how many,
    units of each): only so many of the pieces that the area consists of are touched, and data say which.
    """

    field: str
    size: int
    ring: tuple[str, int] | None = None
    runs: Runs | None = None
    picked: tuple[int, int] | None = None


class Effects(NamedTuple):
    """All areas that an instruction may touch."""

    reads: tuple[Area, ...] = ()
    writes: tuple[Area, ...] = ()


def nothing(_: Values) -> Effects:
    """The effects of an instruction that touches no memory."""
    return Effects()


def strided(field: str, *runs: int) -> Area:
    """The area of ``Runs(*runs)``."""
    found = Runs(*runs)
    return Area(field, found.extent, None, found)


def pixels(field: str, v: Values, item: int, rows: int, columns: int, prefix: str, channels: int) -> Area:
    """``rows`` x ``columns`` pixels of ``channels`` elements of ``item`` bytes, by the strides of ``prefix``."""
    return strided(field, channels * item, columns, v[f"{prefix}_stride_x"], rows, v[f"{prefix}_stride_y"])


def item_bytes(v: Values, field: str) -> int:
    """Bytes of an element of the type that ``field`` names."""
    return TYPE_BYTES[v.get(field, 0)]
