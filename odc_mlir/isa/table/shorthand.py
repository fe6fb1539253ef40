"""Constructors of common fields."""

from __future__ import annotations

from collections.abc import Callable

from odc_mlir.isa.fields import TYPES, Field, Kind


def type_of(name: str, doc: str) -> Field:
    """Return a field for a code type."""
    return Field(name, 2, doc, Kind.ENUM, values=TYPES)


def enum(name: str, bits: int, doc: str, *values: str) -> Field:
    """Return an enum field."""
    return Field(name, bits, doc, Kind.ENUM, values=values)


def flag(name: str, doc: str) -> Field:
    """Return a Boolean field."""
    return Field(name, 1, doc, Kind.FLAG)


def memory(name: str, doc: str) -> Field:
    """Return a field for an address in any memory behind a port."""
    return Field(name, 32, doc, Kind.MEMORY)


def sram(name: str, doc: str) -> Field:
    """Return a field for an address in memory that is never off-chip."""
    return Field(name, 32, doc, Kind.MEMORY, in_sram=True)


def _local(kind: Kind, bits: int) -> Callable[..., Field]:
    def address(name: str, doc: str, *, optional: bool = False) -> Field:
        return Field(name, bits, doc, kind, optional=optional)

    return address


tile = _local(Kind.TILE, 16)
weight = _local(Kind.WEIGHT, 16)
accumulator = _local(Kind.ACCUMULATOR, 16)
param = _local(Kind.PARAM, 12)
table = _local(Kind.TABLE, 12)


def count(name: str, bits: int, doc: str) -> Field:
    """Return a field for a number >= 0."""
    return Field(name, bits, doc)


def factor(name: str, bits: int, doc: str) -> Field:
    """Return a field for a factor, whose default is 1."""
    return Field(name, bits, doc, default=1)


def signed(name: str, bits: int, doc: str) -> Field:
    """Return a field for a number that may be negative."""
    return Field(name, bits, doc, signed=True)


def limits() -> tuple[Field, ...]:
    """Return fields for the smallest and the largest result."""
    return (signed("act_min", 16, "smallest code of the result"), signed("act_max", 16, "largest code of the result"))


def clamp() -> tuple[Field, ...]:
    """Return fields for the result's zero point and limits."""
    return (signed("out_zero", 16, "zero point added after scaling"), *limits())


def pixel_strides(name: str) -> tuple[Field, ...]:
    """Return fields for the distances between pixels and between rows of a tile."""
    return (count(f"{name}_stride_x", 16, "bytes"), count(f"{name}_stride_y", 16, "bytes"))


def scale(name: str, doc: str) -> tuple[Field, ...]:
    """Return fields for multiplier and exponent of a scale."""
    return (
        signed(f"{name}_multiplier", 32, f"{doc}: Q0.31 multiplier"),
        signed(f"{name}_exponent", 8, f"{doc}: power of two, positive shifts left"),
    )


def window() -> tuple[Field, ...]:
    """Return fields for the sizes of the result and of the sliding windows."""
    return (
        count("out_width", 12, "result pixels per row"),
        count("out_height", 12, "result rows"),
        count("channels", 16, "result channels"),
        factor("kernel_height", 8, "rows of a window"),
        factor("kernel_width", 8, "pixels of a row of a window"),
        factor("stride_y", 8, "rows from one window to the next"),
        factor("stride_x", 8, "pixels from one window to the next"),
    )
