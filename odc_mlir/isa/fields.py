"""Vocabulary of the instruction table: fields, instructions and the 40-bit prefix they share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from functools import cached_property

from odc_mlir.isa.cost import Cost
from odc_mlir.isa.effects import Effects, Values, nothing


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
    """Address spaces that a program names; bound at run time. 4 to 15 are spare."""

    CONSTANTS = 0
    ARENA = 1
    INPUTS = 2
    OUTPUTS = 3


class Space(StrEnum):
    """Where a buffer lies. The first four are regions bound at run time, the others local memories of the NPU."""

    CONSTANTS = "constants"
    ARENA = "arena"
    INPUTS = "inputs"
    OUTPUTS = "outputs"
    TILE = "tile"
    WEIGHT = "weight"
    ACCUMULATOR = "accumulator"
    PARAM = "param"
    TABLE = "table"

    __hash__ = str.__hash__  # which the interpreter computes once; programs ask for it a hundred thousand times

    @property
    def region(self) -> Region:
        """The region of a run-time bound space; KeyError for a local memory."""
        return Region[self.name]

    @property
    def is_local(self) -> bool:
        return self not in (Space.CONSTANTS, Space.ARENA, Space.INPUTS, Space.OUTPUTS)


REGION_BITS, OFFSET_BITS = 4, 28
SEMAPHORES = 32
SEMAPHORE_MAX = 65_535  # counters are 16 bits wide; exceeding it is an error, not a wrap
GRANULE_BYTES = 16
REGION_ALIGNMENT_BYTES = 128  # regions are bound at, and sections of a file start at, multiples of this
ACCUMULATOR_BITS = 40
LARGEST_SHIFT = 31  # of a scale's exponent, either way
LARGEST_WIDE_EXPONENT = 7  # of the scale of whole sums, which 15 bits of a multiplier scale
LARGEST_WIDE_FACTOR = (1 << LARGEST_WIDE_EXPONENT) - 1  # below which all scales, rounded to those, have one
LUT_ENTRIES = 256  # of a look-up table of 8-bit codes, one byte each
WIDE_LUT_BYTES = 2 * 513  # of a table of 16-bit codes, between whose entries is interpolated
SIGMOID_TABLE_BYTES = 2 * 256  # of the table that logistic and tanh share
# Parameters of a channel: name, numpy's name of the type, bytes. The scale may stand once for all channels.
BIAS = (("bias", "<i4", 4),)
SCALE = (("multiplier", "<i4", 4), ("exponent", "i1", 1))
BIAS_BYTES = sum(size for _, _, size in BIAS)
COMMON_RECORD_BYTES = sum(size for _, _, size in SCALE)
FULL_RECORD_BYTES = BIAS_BYTES + COMMON_RECORD_BYTES


@dataclass(frozen=True, slots=True)
class Field:
    """``bits`` wide; ``signed`` two's complement; ``values`` names the codes of an enum field.

    ``default``: the value that text leaves out, of a field that mostly has it.
    """

    name: str
    bits: int
    doc: str
    kind: Kind = Kind.INT
    signed: bool = False
    values: tuple[str, ...] = ()
    fixed: bool = False  # an address that loops do not advance
    in_sram: bool = False  # an address in memory that cannot be off-chip
    optional: bool = False  # an address that other fields may say is not used
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
        """Width of this address's entry in a step block: signed, enough for every distance within its memory."""
        return REGION_BITS + OFFSET_BITS if self.kind is Kind.MEMORY else 16


PREFIX = (
    Field("opcode", 8, "which instruction"),
    Field("length", 3, "size in units of 16 bytes, step block included"),
    Field("queue", 3, "where it is executed"),
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
    """One row of the table: ``fields`` are packed after the prefix, least significant bit first, without gaps.

    ``effects``: what it reads and writes, of its fields without the addresses, where those that are 0 may be missing.
    ``cost``: what it is charged beyond what crosses the ports of SRAM and off-chip memory.
    """

    mnemonic: str
    opcode: int
    queue: Queue | None  # None: the queue field chooses
    fields: tuple[Field, ...]
    doc: str
    effects: Callable[[Values], Effects] = nothing
    cost: Cost = field(default_factory=Cost)

    def words(self, values: Values) -> dict[str, int | str]:
        """All fields by name, enum fields as words; ``values``: their codes, where those that are 0 may be missing."""
        codes = ((f, values.get(f.name, 0)) for f in self.fields)
        return {f.name: f.values[code] if f.values else code for f, code in codes}

    def __getitem__(self, name: str) -> Field:
        """Return the field called ``name``; raise KeyError for an unknown one."""
        return self._by_name[name]

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {f.name: f for f in self.fields}

    @cached_property
    def size_bytes(self) -> int:
        """Without a step block."""
        bits = PREFIX_BITS + sum(f.bits for f in self.fields)
        return -(-bits // (8 * GRANULE_BYTES)) * GRANULE_BYTES

    @cached_property
    def places(self) -> tuple[Field, ...]:
        """The fields that are addresses, in order."""
        return tuple(f for f in self.fields if f.kind.is_address)

    @cached_property
    def immediates(self) -> tuple[Field, ...]:
        """The fields that are no addresses, in order."""
        return tuple(f for f in self.fields if not f.kind.is_address)

    @cached_property
    def place_names(self) -> tuple[str, ...]:
        """The names of :attr:`places`."""
        return tuple(f.name for f in self.places)

    @cached_property
    def memory_names(self) -> tuple[str, ...]:
        """Names of the address fields for memory regions, without local memories."""
        return tuple(f.name for f in self.places if f.kind is Kind.MEMORY)

    @cached_property
    def place_steps(self) -> tuple[tuple[int, bool, int], ...]:
        """Of each of :attr:`places`: its number, whether loops leave it as it is, the width of its step."""
        return tuple((number, field.fixed, field.step_bits) for number, field in enumerate(self.places))

    @cached_property
    def addresses(self) -> tuple[Field, ...]:
        """The fields that a step block advances, in order; their ``step_bits`` fit in one block."""
        return tuple(f for f in self.places if not f.fixed)
