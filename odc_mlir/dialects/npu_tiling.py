"""Tilings that ``npu-choose-tiles`` attaches to tensor operations, and residency of results on the chip.

``#npu.tiling<rows = 4, cols = 56, group = 64, block = 64, k_slice = 32, outer = groups>`` and
``#npu.resident<top = 1, left = 1, fill = -128>``. Fields with their default value are left out of the text.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, TypeVar, get_type_hints

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from odc_mlir.isa.instructions import field_range

TILING = "npu.tiling"
RESIDENT = "npu.resident"
VIEW = "npu.view"  # an alias: the move emits no instruction, its result is the same bytes
PARTS = "npu.parts"  # the move emits no instruction: its readers load from the tensors that it joins
SLOT_BYTES = "npu.slot_bytes"  # of the tile buffer that slots of an operation may take; default: all

Record = TypeVar("Record")


class Outer(StrEnum):
    """Outer loops of tiled operations."""

    TILES = "tiles"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class Tiling:
    """Division of a window operation into instructions.

    ``rows`` x ``cols`` result pixels form a tile, at most all of an image; the image of a window of one pixel is one
    row, unless it stays in the tile buffer. ``group`` result channels of a tile, at most all, are stored together;
    ``block`` of them come from one instruction, which reads ``k_slice`` input channels, at most all; several slices add
    up in the accumulators.
    ``sliced``: the tile buffer holds one slice of the input at a time instead of all channels.

    ``outer`` "tiles": for each tile, all groups; "groups": for each group, all tiles, so that only the group's
    weights are needed at a time. ``resident``: weights are loaded once (per group if groups are outermost), else once
    per use; ``params_resident`` likewise. ``ring``: rows shared by neighbouring tiles stay in the tile buffer.
    No input slots: the whole input is in the tile buffer already; no output slots: the whole result stays there.
    ``operand_slots``: for the other operand of the element-wise operation that is computed with each tile; 0: none is.
    ``shape``: which of the machine's array shapes computes, by number, as the instruction has it.
    """

    rows: int
    cols: int
    group: int
    block: int
    k_slice: int
    sliced: bool = False
    outer: Outer = Outer.TILES
    resident: bool = True
    params_resident: bool = True
    weight_slots: int = 1
    in_slots: int = 2
    out_slots: int = 2
    operand_slots: int = 0
    ring: bool = False
    shape: int = 0


@dataclass(frozen=True, slots=True)
class Residency:
    """A result that stays in the tile buffer: pixels of border on each side, and the code that fills them.

    ``fill`` is None where nobody reads the border.
    """

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0
    fill: int | None = None


def _parse_record(parser: AttrParser, record: type[Record]) -> Record:
    """``<name = value, …>`` as a dataclass whose fields are integers, truth values and words."""
    hints = get_type_hints(record)
    found: dict[str, Any] = {}

    def parse_entry() -> None:
        name = parser.parse_identifier(" naming a field")
        if name not in hints or name in found:
            problem = "is given twice" if name in found else f"does not exist, allowed: {', '.join(hints)}"
            parser.raise_error(f"field {name!r} {problem}")
        parser.parse_punctuation("=")
        kind = hints[name]
        if kind is bool:
            found[name] = parser.parse_boolean()
        elif isinstance(kind, type) and issubclass(kind, StrEnum):
            found[name] = parser.parse_str_enum(kind)
        else:
            found[name] = parser.parse_integer(allow_boolean=False)

    parser.parse_comma_separated_list(parser.Delimiter.ANGLE, parse_entry)
    needed = [f.name for f in dataclasses.fields(record) if f.default is dataclasses.MISSING]  # type: ignore[arg-type]
    if missing := [name for name in needed if name not in found]:
        parser.raise_error(f"field {missing[0]!r} is missing")
    return record(**found)


def _print_record(printer: Printer, record: Any) -> None:
    entries = []
    for field in dataclasses.fields(record):
        value = getattr(record, field.name)
        if value != field.default:
            entries.append(f"{field.name} = {str(value).lower() if isinstance(value, bool) else value}")
    printer.print_string(f"<{', '.join(entries)}>")


@irdl_attr_definition
class TilingAttr(Data[Tiling]):
    """Tiling of an operation, chosen by ``npu-choose-tiles``."""

    name = "npu.tiling"

    def verify(self) -> None:
        tiling = self.data
        for name in ("rows", "cols", "group", "block", "k_slice", "weight_slots"):
            if getattr(tiling, name) < 1:
                raise VerifyException(f"{self.name}: {name} is {getattr(tiling, name)}, at least 1 is needed")
        for name in ("in_slots", "out_slots", "operand_slots"):
            if getattr(tiling, name) < 0:
                raise VerifyException(f"{self.name}: {name} is {getattr(tiling, name)}, at least 0 is needed")
        if tiling.block > tiling.group:
            raise VerifyException(f"{self.name}: a block of {tiling.block} channels in a group of {tiling.group}")
        if tiling.operand_slots not in (0, tiling.out_slots):
            raise VerifyException(
                f"{self.name}: operand_slots is {tiling.operand_slots}, allowed: 0 or out_slots, {tiling.out_slots}"
            )
        low, high = field_range("conv", "shape")
        if not low <= tiling.shape <= high:
            raise VerifyException(f"{self.name}: shape is {tiling.shape}, allowed: {low} to {high}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Tiling:
        return _parse_record(parser, Tiling)

    def print_parameter(self, printer: Printer) -> None:
        _print_record(printer, self.data)


@irdl_attr_definition
class ResidentAttr(Data[Residency]):
    """The result stays in the tile buffer for the operations that read it."""

    name = "npu.resident"

    def verify(self) -> None:
        residency = self.data
        for name in ("top", "left", "bottom", "right"):
            if getattr(residency, name) < 0:
                raise VerifyException(f"{self.name}: {name} is {getattr(residency, name)}, at least 0 is needed")
        low, high = field_range("fill", "value")
        if residency.fill is not None and not low <= residency.fill <= high:
            raise VerifyException(f"{self.name}: fill is {residency.fill}, allowed: {low} to {high}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Residency:
        return _parse_record(parser, Residency)

    def print_parameter(self, printer: Printer) -> None:
        _print_record(printer, self.data)
