"""Partition files (``.part``, INI): which backend runs which operators, by opcode or by name of a result.

::

    [partition]
    backends=npu,cpu
    default=npu
    comply=opcode

    [OPCODE]
    DIV=cpu

    [OPNAME]
    conv_1=cpu

``comply`` says which of the other sections counts, ``opcode`` unless given; ``_`` there replaces the default. Every
value must be one of the backends. Names may hold anything but ``=`` and line ends.
"""

from __future__ import annotations

import configparser
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from odc_mlir.errors import OptionError, parsing

Comply = Literal["opcode", "opname"]
_SECTIONS = {"opcode": "OPCODE", "opname": "OPNAME"}
_OVERRIDE = "_"


@dataclass(frozen=True, slots=True)
class PartitionFile:
    """``by_name``: backend by opcode or by result name, as ``comply`` says; ``default`` runs everything else."""

    backends: tuple[str, ...]
    default: str
    comply: Comply
    by_name: Mapping[str, str]


def parse_partition(text: str, location: str) -> PartitionFile:
    """The file with this text; ``location`` names it in errors (OptionError)."""
    parser = configparser.ConfigParser(delimiters=("=",), comment_prefixes=("#", ";"), interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    with parsing("not a partition file", OptionError, location=location):
        parser.read_string(text)
    known = {"partition", *_SECTIONS.values()}
    for section in parser.sections():
        if section not in known:
            raise OptionError(f"unknown section [{section}], allowed: {', '.join(sorted(known))}", location=location)
    if "partition" not in parser:
        raise OptionError("the section [partition] is missing", location=location)
    head = parser["partition"]
    for key in ("backends", "default"):
        if not head.get(key, "").strip():
            raise OptionError(f"the key {key!r} of [partition] is missing", location=location)
    backends = tuple(name.strip() for name in head["backends"].split(",") if name.strip())
    comply = head.get("comply", "opcode")
    if comply not in _SECTIONS:
        raise OptionError(f"comply is {comply!r}, allowed: opcode, opname", location=location)
    rows = dict(parser[_SECTIONS[comply]]) if _SECTIONS[comply] in parser else {}
    default = rows.pop(_OVERRIDE, head["default"])
    for name, backend in [("default", default), *rows.items()]:
        if backend not in backends:
            listed = ", ".join(backends)
            raise OptionError(f"{name!r} runs on {backend!r}, the backends are {listed}", location=location)
    return PartitionFile(backends, default, "opcode" if comply == "opcode" else "opname", rows)
