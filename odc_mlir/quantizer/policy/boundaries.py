"""What can be said of the types of a model's inputs and outputs, and of parameters of single tensors, as text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from odc_mlir.errors import OptionError
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.quantizer.policy.names import pieces

FLOAT, QUANTIZED = "float", "quantized"
BOUNDARY_TYPES = (FLOAT, QUANTIZED, *CODE_DTYPES)


def parse_boundary(entries: Sequence[str] | Mapping[str, str] | str) -> dict[str, str]:
    """Types by name from ``NAME=TYPE``, under the empty name from ``TYPE`` alone; raises OptionError."""
    if isinstance(entries, Mapping):
        entries = [f"{name}={type}" if name else str(type) for name, type in entries.items()]
    elif isinstance(entries, str):
        entries = [entries]
    found: dict[str, str] = {}
    for entry in entries:
        name, equals, type = str(entry).rpartition("=")
        if equals and not name:
            raise OptionError(f"{str(entry)!r} has an empty name", hint="write NAME=TYPE, or TYPE alone")
        if type not in BOUNDARY_TYPES:
            raise OptionError(
                f"unknown type {type!r} of an input or output", hint=f"use one of {', '.join(BOUNDARY_TYPES)}"
            )
        if name in found:
            whose = f"of {name!r}" if name else "of all inputs or outputs"
            raise OptionError(f"the type {whose} has been given twice")
        found[name] = type
    return found


def parse_parameters(entries: Sequence[str] | Mapping[str, tuple[float, int]]) -> dict[str, tuple[float, int]]:
    """Scales and zero points by name from ``NAME=SCALE:ZERO``; raises OptionError."""
    given = (
        {name: f"{scale!r}:{zero}" for name, (scale, zero) in entries.items()}
        if isinstance(entries, Mapping)
        else dict(_assigned(entries, "parameters", "NAME=SCALE:ZERO"))
    )
    found: dict[str, tuple[float, int]] = {}
    for name, text in given.items():
        scale, _, zero = text.partition(":")
        try:
            found[name] = float(scale), int(zero or "0")
        except ValueError:
            raise OptionError(f"parameters {text!r} of {name!r} cannot be read", hint="write SCALE:ZERO") from None
        if not 0 < found[name][0] < math.inf:
            raise OptionError(f"the scale of {name!r} is {scale}, expected a finite number above 0")
    return found


def parse_copies(entries: Sequence[str] | Mapping[str, str]) -> dict[str, str]:
    """From which tensor each takes its parameters, from ``TO=FROM``, which has ``\\=`` for one in a name.

    Raises OptionError.
    """
    if isinstance(entries, Mapping):
        return dict(entries)
    return dict(_assigned(entries, "a copy of parameters", "TO=FROM"))


def _assigned(entries: Sequence[str], what: str, form: str) -> list[tuple[str, str]]:
    found: dict[str, str] = {}
    for entry in entries:
        *names, value = pieces(entry, "=")
        name = "=".join(names)
        if not name or not value:
            raise OptionError(f"{entry!r} is not {what}", hint=f"write {form}")
        if name in found:
            raise OptionError(f"{name!r} has parameters given twice", hint="name it once")
        found[name] = value
    return list(found.items())
