"""Locations carry tensor names: a ``NameLoc`` per value, fused in result order for an operation with several."""

from __future__ import annotations

import re
from collections.abc import Sequence

from xdsl.dialects.builtin import ArrayAttr, FusedLoc, LocationAttr, NameLoc, NoneAttr, StringAttr, UnknownLoc
from xdsl.ir import BlockArgument, Operation, OpResult, SSAValue

_NOT_IN_HINT = re.compile(r"[^A-Za-z0-9_]+")
_NUMBERS_AT_END = re.compile(r"(_\d*)+$")
_LONGEST_HINT = 40


def name_loc(name: str) -> LocationAttr:
    """The location of a value called ``name``, which is kept as it is: full and unsanitised."""
    return NameLoc(StringAttr(name), NoneAttr())


def names_loc(names: Sequence[str]) -> LocationAttr:
    """The location of an operation whose results have these names."""
    if len(names) == 1:
        return name_loc(names[0])
    return FusedLoc(ArrayAttr([name_loc(name) for name in names]), NoneAttr())


def location_names(location: LocationAttr) -> tuple[str, ...]:
    """The names in ``location`` in order, empty where it is unknown."""
    if isinstance(location, NameLoc):
        return (location.desc.data,)
    if isinstance(location, FusedLoc):
        parts: Sequence[LocationAttr] = tuple(location.locations)  # type: ignore[arg-type]
        return tuple(name for part in parts for name in location_names(part))
    return ()


def op_name(op: Operation) -> str:
    """Name of the first result as users know it, empty where the location has none."""
    location = op.location
    if type(location) is NameLoc:
        return location.desc.data
    names = location_names(location)
    return names[0] if names else ""


def value_name(value: SSAValue) -> str:
    """The tensor name of ``value``, empty where its location has none."""
    if isinstance(value, BlockArgument):
        names = location_names(value.location)
        return names[0] if names else ""
    if not isinstance(value, OpResult):
        return ""
    if value.index == 0:
        return op_name(value.op)
    names = location_names(value.op.location)
    return names[value.index] if value.index < len(names) else ""


def is_known(location: LocationAttr) -> bool:
    """Whether ``location`` says anything."""
    return not isinstance(location, UnknownLoc)


def name_inside(op: Operation, name: str) -> None:
    """Let ``op``, and everything inside it that has no location, be called ``name``."""
    for inner in op.walk():
        if not is_known(inner.location):
            inner.location = name_loc(name)


def hint_of(name: str) -> str | None:
    """An SSA name hint made of a tensor name: short, valid, None where nothing readable is left.

    Converters join the names of fused operators with ``;``; the first part is what people know. Numbers at the end go:
    the printer adds its own to tell values apart.
    """
    hint = _NUMBERS_AT_END.sub("", _NOT_IN_HINT.sub("_", name.partition(";")[0]).strip("_"))
    if len(hint) > _LONGEST_HINT:
        hint = hint[-_LONGEST_HINT:].partition("_")[2] or hint[-_LONGEST_HINT:]
    if not hint:
        return None
    return hint if hint[0].isalpha() else f"t{hint}"
