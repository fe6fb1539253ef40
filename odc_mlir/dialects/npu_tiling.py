"""Attributes of tensor operations that ``npu-choose-tiles`` sets: tilings and resident results.

A resident result stays in the tile buffer until its last use. Examples: ``#npu.tiling<rows = 4, cols = 56, group = 64,
block = 64, k_slice = 32, outer = groups>``, ``#npu.resident<top = 1, left = 1, fill = -128>``. The text omits fields
with the default value.
"""

from __future__ import annotations

from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar, TypeVar, get_type_hints

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException
from xdsl.utils.str_enum import StrEnum

from odc_mlir.isa.instructions import field_range

TILING = "npu.tiling"
RESIDENT = "npu.resident"
VIEW = "npu.view"  # result and operand share their bytes, so the move emits no instruction
PARTS = "npu.parts"  # readers load from the joined tensors, so the move emits no instruction
SLOT_BYTES = "npu.slot_bytes"  # limit on the bytes of an operation's slots in the tile buffer; default: no limit

Record = TypeVar("Record")


class Outer(StrEnum):
    """Outer loops of tiled operations."""

    TILES = "tiles"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class Tiling:
    """Division of a window operation into instructions.

    A tile has ``rows`` x ``cols`` result pixels, at most one image. If the window is one pixel and the image is not
    resident, the whole image counts as one row. A tile is stored in groups of ``group`` result channels. An instruction
    computes ``block`` channels from ``k_slice`` input channels, and accumulators add up the input slices. If
    ``sliced``, the tile buffer holds one slice of the input at a time, instead of all channels.

    ``outer``: "tiles" loops over tiles, then groups. "groups" loops over groups, then tiles, and needs the weights of
    one group at a time. ``keeps_weights``: weights are loaded once (once per group if groups are the outer loop)
    instead of once per use. ``keeps_params``: scales and biases are loaded once. ``ring``: rows that neighbouring tiles
    share stay in the tile buffer. ``in_slots``, ``out_slots``: number of tile buffers, or 0 if the input or the result
    is resident. ``operand_slots``: number of tile buffers for the second operand of a fused element-wise operation, or
    0. ``shape``: index of the array shape, as in the instruction.
    """

    rows: int
    cols: int
    group: int
    block: int
    k_slice: int
    sliced: bool = False
    outer: Outer = Outer.TILES
    keeps_weights: bool = True
    keeps_params: bool = True
    weight_slots: int = 1
    in_slots: int = 2
    out_slots: int = 2
    operand_slots: int = 0
    ring: bool = False
    shape: int = 0


@dataclass(frozen=True, slots=True)
class Residency:
    """Layout of a resident result: border pixels on each side, and the code that fills the border.

    ``fill`` is None if no operation reads the border.
    """

    top: int = 0
    left: int = 0
    bottom: int = 0
    right: int = 0
    fill: int | None = None


class RecordAttr(Data[Record]):
    """Base of attributes with the fields of the dataclass ``RECORD``."""

    RECORD: ClassVar[type[Any]]

    def verify(self) -> None:
        for name, kind in get_type_hints(self.RECORD).items():
            if not isinstance(value := getattr(self.data, name), kind):
                raise VerifyException(f"{self.name}: {name} is {value!r}, allowed: {getattr(kind, '__name__', kind)}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Record:
        hints = get_type_hints(cls.RECORD)
        found: dict[str, Any] = {}

        def parse_entry() -> None:
            name = parser.parse_identifier(context_msg=" naming a field")
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
        needed = [field.name for field in fields(cls.RECORD) if field.default is MISSING]
        if missing := [name for name in needed if name not in found]:
            parser.raise_error(f"field {missing[0]!r} is missing")
        made: Record = cls.RECORD(**found)
        return made

    def print_parameter(self, printer: Printer) -> None:
        entries = []
        for field in fields(self.RECORD):
            value = getattr(self.data, field.name)
            if value != field.default:
                entries.append(f"{field.name} = {str(value).lower() if isinstance(value, bool) else value}")
        printer.print_string(f"<{', '.join(entries)}>")


@irdl_attr_definition
class TilingAttr(RecordAttr[Tiling]):
    """Tiling of an operation."""

    name = "npu.tiling"
    RECORD = Tiling

    def verify(self) -> None:
        super().verify()
        tiling = self.data
        for name in ("rows", "cols", "group", "block", "k_slice", "weight_slots"):
            if getattr(tiling, name) < 1:
                raise VerifyException(f"{self.name}: {name} is {getattr(tiling, name)}, at least 1 is needed")
        for name in ("in_slots", "out_slots", "operand_slots"):
            if getattr(tiling, name) < 0:
                raise VerifyException(f"{self.name}: {name} is {getattr(tiling, name)}, at least 0 is needed")
        if tiling.block > tiling.group:
            raise VerifyException(f"{self.name}: block is {tiling.block}, allowed: 1 to group, {tiling.group}")
        if tiling.operand_slots not in (0, tiling.out_slots):
            raise VerifyException(
                f"{self.name}: operand_slots is {tiling.operand_slots}, allowed: 0 or out_slots, {tiling.out_slots}"
            )
        low, high = field_range("conv", "shape")
        if not low <= tiling.shape <= high:
            raise VerifyException(f"{self.name}: shape is {tiling.shape}, allowed: {low} to {high}")


@irdl_attr_definition
class ResidentAttr(RecordAttr[Residency]):
    """Residency of a result in the tile buffer."""

    name = "npu.resident"
    RECORD = Residency

    def verify(self) -> None:
        super().verify()
        residency = self.data
        for name in ("top", "left", "bottom", "right"):
            if getattr(residency, name) < 0:
                raise VerifyException(f"{self.name}: {name} is {getattr(residency, name)}, at least 0 is needed")
        low, high = field_range("fill", "value")
        if residency.fill is not None and not low <= residency.fill <= high:
            raise VerifyException(f"{self.name}: fill is {residency.fill}, allowed: {low} to {high}")
