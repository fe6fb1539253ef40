"""Vocabulary of the instruction table: fields, instructions, effects and costs.

Effects are the memory areas that an instruction reads and writes. An area begins at an address field and is measured in
units of its memory. Two instructions that access disjoint columns of the same rows count as conflicting.

A cost consists of lines ``name = expression`` in Python's syntax. docs/npu.md prints the lines. The stepped simulation
and the cost model evaluate the lines. Expressions use fields of the instruction (words for enum fields), previous
lines, :data:`FUNCTIONS` and keys of the target (``vector.start_cycles``). Lines in :data:`DELAYS` and :data:`WIDTHS`
cost time.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cache, cached_property
from types import CodeType
from typing import Any, NamedTuple

TYPES = ("u8", "i8", "i16", "i32")
TYPE_BYTES = (1, 1, 2, 4)


Values = Mapping[str, int]


class Runs(NamedTuple):
    """``count2`` groups of ``count1`` runs of ``size`` units. Groups begin ``stride2`` apart, runs ``stride1``."""

    size: int
    count1: int = 1
    stride1: int = 0
    count2: int = 1
    stride2: int = 0

    @property
    def extent(self) -> int:
        """Number of units from the first to the last unit."""
        return (self.count2 - 1) * self.stride2 + (self.count1 - 1) * self.stride1 + self.size


class Area(NamedTuple):
    """Area of ``size`` units from the address in ``field`` on, or only ``runs`` of this area.

    ``ring``: address field and size of a ring in which the area wraps.
    ``picked``: (count, units of each piece) if only ``count`` pieces are accessed, selected at run time.
    """

    field: str
    size: int
    ring: tuple[str, int] | None = None
    runs: Runs | None = None
    picked: tuple[int, int] | None = None


class Effects(NamedTuple):
    """All areas that an instruction may access."""

    reads: tuple[Area, ...] = ()
    writes: tuple[Area, ...] = ()


def nothing(_: Values) -> Effects:
    """Return the effects of an instruction that accesses no memory."""
    return Effects()


def strided(field: str, *runs: int) -> Area:
    """Return the area of ``Runs(*runs)``."""
    found = Runs(*runs)
    return Area(field, found.extent, None, found)


def pixels(field: str, v: Values, item: int, rows: int, columns: int, prefix: str, channels: int) -> Area:
    """Return the area of ``rows`` x ``columns`` pixels of ``channels`` elements, with the strides of ``prefix``."""
    return strided(field, channels * item, columns, v[f"{prefix}_stride_x"], rows, v[f"{prefix}_stride_y"])


def item_bytes(v: Values, field: str) -> int:
    """Return the size of an element of the type in ``field``, in bytes."""
    return TYPE_BYTES[v.get(field, 0)]


# Cycles before the phase, minimum cycles of the phase, cycles after it.
DELAYS = ("start", "shortest", "drain")
# Units of shared resources that the phase needs, with the formula for units per cycle.
WIDTHS = {
    "lanes": "vector.requant_lanes",
    "symbols": "decoder.symbols_per_cycle",
    "tile_reads": "tile_ports.read_bytes_per_cycle",
    "tile_writes": "tile_ports.write_bytes_per_cycle",
    "accumulator_reads": "array.accumulator_ports",
    "accumulator_writes": "array.accumulator_ports",
}


def _item(kind: str) -> int:
    return TYPE_BYTES[TYPES.index(kind)]


@cache
def _rows(results: int, kernel: int, stride: int, dilation: int, held: int) -> int:
    """Return the number of input rows read for ``results`` result rows if the array holds sums of ``held`` rows."""

    def different(first: int, last: int) -> int:
        return len({y * stride + tap * dilation for y in range(first, last) for tap in range(kernel)})

    if math.ceil(kernel / stride) <= held and 1 in (stride, dilation):
        return different(0, results)
    return sum(different(y, min(y + held, results)) for y in range(0, results, held))


FUNCTIONS: Mapping[str, Callable[..., Any]] = {"ceil": math.ceil, "max": max, "min": min, "item": _item, "rows": _rows}
PARTS = ("array", "decoder", "sram", "tile_ports", "vector")  # parts of a target that formulas may use
_parts = operator.attrgetter(*PARTS)
_WIDTHS = {name: operator.attrgetter(width) for name, width in WIDTHS.items()}


@dataclass(frozen=True)
class Cost:
    """Cost formulas of one instruction, one per line. Without lines, only traffic on memory ports costs time."""

    text: str = ""

    @cached_property
    def _code(self) -> CodeType:
        return compile(self.text, "<cost>", "exec")

    def alone(self, values: Mapping[str, int | str], target: object) -> float:
        """Return the cycles of the instruction running alone, without traffic on SRAM and off-chip ports."""
        found = self._names(values, target)
        busy = [found[name] / width(target) for name, width in _WIDTHS.items() if name in found]
        start, shortest, drain = (found.get(name, 0.0) for name in DELAYS)
        return float(start + max([shortest, *busy]) + drain)

    def evaluate(self, values: Mapping[str, int | str], target: object) -> dict[str, Any]:
        """Return the value of each line by name.

        ``values`` has every field of the instruction, enum fields as words.
        """
        return {name: value for name, value in self._names(values, target).items() if name not in values}

    def _names(self, values: Mapping[str, int | str], target: object) -> dict[str, Any]:
        names: dict[str, Any] = dict(values)
        exec(self._code, {**FUNCTIONS, **dict(zip(PARTS, _parts(target), strict=True))}, names)
        return names


class Queue(IntEnum):
    """In-order instruction queues. LOAD, STORE and WEIGHT are the three channels of the SRAM-side DMA engine."""

    FETCH = 0  # loops, fences, halt: executed by the fetch engine itself
    XFER = 1  # off-chip memory <-> SRAM
    LOAD = 2  # SRAM -> tile buffer, SRAM -> SRAM
    STORE = 3  # tile buffer -> SRAM
    WEIGHT = 4  # constants -> decoder -> weight buffer, parameters, tables
    MAC = 5
    VECTOR = 6


class Kind(StrEnum):
    """Meaning of a field's value."""

    INT = "int"
    FLAG = "flag"
    ENUM = "enum"
    MEMORY = "memory"  # region (top 4 bits) and byte offset (28 bits)
    TILE = "tile"  # byte address in the tile buffer
    WEIGHT = "weight"  # byte address in the weight buffer
    ACCUMULATOR = "accumulator"  # accumulator index
    PARAM = "param"  # entry index in the parameter buffer
    TABLE = "table"  # byte address in the table buffer

    @property
    def is_address(self) -> bool:
        return self not in (Kind.INT, Kind.FLAG, Kind.ENUM)


class Region(IntEnum):
    """Address spaces of a program, bound to memory at run time. Numbers 4 to 15 are reserved."""

    CONSTANTS = 0
    ARENA = 1
    INPUTS = 2
    OUTPUTS = 3


class Space(StrEnum):
    """Memory of a buffer. The first four are regions bound at run time. The rest are local memories of the NPU."""

    CONSTANTS = "constants"
    ARENA = "arena"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    TILE = "tile"
    WEIGHT = "weight"
    ACCUMULATOR = "accumulator"
    PARAM = "param"
    TABLE = "table"

    __hash__ = str.__hash__  # cached by the interpreter; programs need the hash very often

    @property
    def region(self) -> Region:
        """Region of a space bound at run time. Raises KeyError for a local memory."""
        return Region[self.name]

    @property
    def is_local(self) -> bool:
        return self not in (Space.CONSTANTS, Space.ARENA, Space.INPUTS, Space.OUTPUTS)


REGION_BITS, OFFSET_BITS = 4, 28
SEMAPHORES = 32
SEMAPHORE_MAX = 65_535  # counters have 16 bits; an overflow is an error
GRANULE_BYTES = 16
REGION_ALIGNMENT_BYTES = 128  # alignment of bound regions and of a file's sections
ACCUMULATOR_BITS = 40
LARGEST_SHIFT = 31  # largest left or right shift by a scale's exponent
LARGEST_WIDE_EXPONENT = 7  # largest exponent of a scale of 40-bit sums, whose multiplier has 15 bits
LARGEST_WIDE_FACTOR = (1 << LARGEST_WIDE_EXPONENT) - 1  # smaller scales have such an exponent after rounding
LUT_ENTRIES = 256  # entries of a lookup table for 8-bit codes, one byte each
WIDE_LUT_BYTES = 2 * 513  # size of a table for 16-bit codes, which is interpolated
SIGMOID_TABLE_BYTES = 2 * 256  # size of the table that logistic and tanh share
# Parameters of a channel: name, numpy type, bytes. All channels may share one scale.
BIAS = (("bias", "<i4", 4),)
SCALE = (("multiplier", "<i4", 4), ("exponent", "i1", 1))
BIAS_BYTES = sum(size for _, _, size in BIAS)
COMMON_RECORD_BYTES = sum(size for _, _, size in SCALE)
FULL_RECORD_BYTES = BIAS_BYTES + COMMON_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Field:
    """Field of an instruction, ``bits`` wide. ``signed`` fields are in two's complement.

    ``values``: words of an enum, by code.
    ``default``: most frequent value, which the text form omits.
    """

    name: str
    bits: int
    doc: str
    kind: Kind = Kind.INT
    signed: bool = False
    values: tuple[str, ...] = ()
    fixed: bool = False  # an address that loops do not advance
    in_sram: bool = False  # an address in memory that cannot be off-chip
    optional: bool = False  # an address that is unused for some values of other fields
    default: int = 0

    @property
    def range(self) -> tuple[int, int]:
        if self.kind is Kind.ENUM:
            return 0, len(self.values) - 1
        if self.signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1

    @property
    def step_bits(self) -> int:
        """Width of this address's entry in a step block. It is signed and covers every distance in the memory."""
        return REGION_BITS + OFFSET_BITS if self.kind is Kind.MEMORY else 16


PREFIX = (
    Field("opcode", 8, "code of the instruction"),
    Field("length", 3, "size in units of 16 bytes, step block included"),
    Field("queue", 3, "queue that executes it"),
    Field("stepped", 1, "a 16-byte step block follows: one signed step per address field", Kind.FLAG),
    Field("reserved", 1, "zero"),
    Field("wait_a", 6, "0: none, else 32 + semaphore to take one token from before starting"),
    Field("wait_b", 6, "as wait_a"),
    Field("post_a", 6, "0: none, else 32 + semaphore that gets one token when the result is visible"),
    Field("post_b", 6, "as post_a"),
)
PREFIX_BITS = sum(f.bits for f in PREFIX)
STEP_BLOCK_BYTES = GRANULE_BYTES


@dataclass(frozen=True)
class Instruction:
    """One row of the table. ``fields`` follow the prefix, least significant bit first, without gaps.

    ``effects``: function from all fields except addresses (zero fields may be missing) to the accessed areas.
    ``cost``: cost without traffic on the ports of SRAM and off-chip memory.
    """

    mnemonic: str
    opcode: int
    queue: Queue | None  # None: the queue field chooses
    fields: tuple[Field, ...]
    doc: str
    effects: Callable[[Values], Effects] = nothing
    cost: Cost = field(default_factory=Cost)

    def words(self, values: Values) -> dict[str, int | str]:
        """Return all fields by name, enum fields as words. ``values`` has codes and may omit zeros."""
        codes = ((f, values.get(f.name, 0)) for f in self.fields)
        return {f.name: f.values[code] if f.values else code for f, code in codes}

    def __getitem__(self, name: str) -> Field:
        """Return the field called ``name``. Raises KeyError."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}

    @cached_property
    def size_bytes(self) -> int:
        """Size of the instruction without a step block."""
        bits = PREFIX_BITS + sum(f.bits for f in self.fields)
        return -(-bits // (8 * GRANULE_BYTES)) * GRANULE_BYTES

    @cached_property
    def places(self) -> tuple[Field, ...]:
        """Address fields in order."""
        return tuple(f for f in self.fields if f.kind.is_address)

    @cached_property
    def immediates(self) -> tuple[Field, ...]:
        return tuple(f for f in self.fields if not f.kind.is_address)

    @cached_property
    def place_names(self) -> tuple[str, ...]:
        return tuple(f.name for f in self.places)

    @cached_property
    def memory_names(self) -> tuple[str, ...]:
        """Names of address fields for memory regions. Local memories are excluded."""
        return tuple(f.name for f in self.places if f.kind is Kind.MEMORY)

    @cached_property
    def place_steps(self) -> tuple[tuple[int, bool, int], ...]:
        """Indices of :attr:`places`, whether the place is fixed in loops, and the width of the address step."""
        return tuple((number, field.fixed, field.step_bits) for number, field in enumerate(self.places))

    @cached_property
    def addresses(self) -> tuple[Field, ...]:
        """Fields that a step block advances, in order. The sum of ``step_bits`` fits in a block."""
        return tuple(f for f in self.places if not f.fixed)
