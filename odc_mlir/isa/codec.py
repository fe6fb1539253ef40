"""Conversion between instructions and bytes, driven by the instruction table.

An instruction is a little-endian integer of 16-byte granules: prefix, fields, zero bits up to the end of the last
granule, and an optional step block. Fields start at the least significant bit and have no gaps. The encoding is
canonical: :func:`encode` of a decoded instruction returns the same bytes. Unused bits must be zero.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from odc_mlir.errors import CompileError, SimulationError
from odc_mlir.isa.fields import (
    GRANULE_BYTES,
    OFFSET_BITS,
    PREFIX,
    PREFIX_BITS,
    SEMAPHORES,
    STEP_BLOCK_BYTES,
    Field,
    Instruction,
    Kind,
    Queue,
    Region,
)
from odc_mlir.isa.instructions import BY_MNEMONIC, BY_OPCODE, INSTRUCTIONS

MAX_WAITS = 2
MAX_POSTS = 2
_TOKEN_VALID = SEMAPHORES  # a wait or post field is 0 for none, or this plus the semaphore


@dataclass(slots=True)
class Instr:
    """One instruction. ``values`` are integers (enum codes, not names) and may omit zero fields.

    ``steps`` has one signed step per address field, or is None.
    """

    spec: Instruction
    values: Mapping[str, int]
    waits: tuple[int, ...] = ()
    posts: tuple[int, ...] = ()
    queue: Queue = Queue.FETCH
    steps: tuple[int, ...] | None = None

    @property
    def mnemonic(self) -> str:
        return self.spec.mnemonic

    @property
    def size_bytes(self) -> int:
        """Size of the instruction in a program, including its step block."""
        return self.spec.size_bytes + (STEP_BLOCK_BYTES if self.steps is not None else 0)

    def __getitem__(self, field: str) -> int:
        return self.values.get(field, 0)

    def name(self, field: str) -> str:
        return next(f for f in self.spec.fields if f.name == field).values[self[field]]


class _BitField(NamedTuple):
    name: str
    shift: int
    mask: int
    low: int
    high: int


def _slots(fields: Sequence[Field], shift: int) -> tuple[_BitField, ...]:
    slots = []
    for field in fields:
        slots.append(_BitField(field.name, shift, (1 << field.bits) - 1, *field.range))
        shift += field.bits
    return tuple(slots)


def _end(slots: tuple[_BitField, ...], start: int) -> int:
    return slots[-1].shift + slots[-1].mask.bit_length() if slots else start


def _step_slots(spec: Instruction) -> tuple[_BitField, ...]:
    steps = [Field(f.name, f.step_bits, "", signed=True) for f in spec.addresses]
    if sum(f.bits for f in steps) > 8 * STEP_BLOCK_BYTES:
        raise ValueError(f"the steps of {spec.mnemonic} do not fit in a step block")
    return _slots(steps, 0)


_PREFIX_SLOTS = {slot.name: slot for slot in _slots(PREFIX, 0)}
_QUEUES = tuple(Queue)
_OPCODE, _LENGTH, _QUEUE, _STEPPED = (_PREFIX_SLOTS[name] for name in ("opcode", "length", "queue", "stepped"))
_WAITS, _POSTS = ([_PREFIX_SLOTS[f"{what}_{letter}"] for letter in "ab"] for what in ("wait", "post"))
_PREFIX_BYTES = -(-PREFIX_BITS // 8)
_FIELD_SLOTS = {spec.opcode: _slots(spec.fields, PREFIX_BITS) for spec in INSTRUCTIONS}
_FIELD_NAMES = {spec.opcode: frozenset(f.name for f in spec.fields) for spec in INSTRUCTIONS}
_STEP_SLOTS = {spec.opcode: _step_slots(spec) for spec in INSTRUCTIONS}


def address(region: Region | int, offset: int) -> int:
    """Return a memory field with ``region`` in the top bits and byte ``offset`` below. Raises CompileError."""
    if not 0 <= offset < 1 << OFFSET_BITS:
        raise CompileError(f"memory offset {offset} is outside 0..{(1 << OFFSET_BITS) - 1}")
    return int(region) << OFFSET_BITS | offset


def split_address(value: int) -> tuple[int, int]:
    """Return region and byte offset of a memory field."""
    return value >> OFFSET_BITS, value & ((1 << OFFSET_BITS) - 1)


def spec_of(mnemonic: str) -> Instruction:
    """Return the table's row for ``mnemonic``. Raises CompileError if there is none."""
    spec = BY_MNEMONIC.get(mnemonic)
    if spec is None:
        raise CompileError(f"unknown instruction {mnemonic!r}", hint=f"one of {', '.join(BY_MNEMONIC)}")
    return spec


def make(
    mnemonic: str,
    *,
    waits: Iterable[int] = (),
    posts: Iterable[int] = (),
    queue: Queue | str | None = None,
    steps: Mapping[str, int] | Sequence[int] | None = None,
    **fields: Any,
) -> Instr:
    """Return a checked instruction.

    Enum fields accept a name or a code, and omitted fields are zero. ``steps`` maps address fields to signed steps, or
    lists all steps. Raises CompileError with the names of instruction and field.
    """
    spec = spec_of(mnemonic)
    declared = {field.name: field for field in spec.fields}
    if unknown := sorted(set(fields) - set(declared)):
        raise CompileError(f"instruction {mnemonic} has no field {unknown[0]!r}")
    values = {name: _code(spec, field, fields.get(name, 0)) for name, field in declared.items()}
    if isinstance(queue, str):
        if queue.upper() not in Queue.__members__:
            raise CompileError(f"unknown queue {queue!r}", hint=f"one of {', '.join(q.name.lower() for q in Queue)}")
        queue = Queue[queue.upper()]
    if queue is None:
        queue = Queue.FETCH if spec.queue is None else spec.queue
    if isinstance(steps, Mapping):
        names = [f.name for f in spec.addresses]
        if unknown := sorted(set(steps) - set(names)):
            raise CompileError(f"instruction {mnemonic} has no address field {unknown[0]!r} to step")
        steps = [steps.get(name, 0) for name in names]
    made = Instr(spec, values, tuple(waits), tuple(posts), queue, None if steps is None else tuple(steps))
    check(made)
    return made


def _code(spec: Instruction, field: Field, value: object) -> int:
    if isinstance(value, str) and field.kind is Kind.ENUM:
        if value not in field.values:
            raise CompileError(
                f"instruction {spec.mnemonic}: field {field.name} is {value!r}, allowed: {', '.join(field.values)}"
            )
        return field.values.index(value)
    try:
        return int(value)  # type: ignore[call-overload, no-any-return]
    except (TypeError, ValueError):
        raise CompileError(f"instruction {spec.mnemonic}: field {field.name} is {value!r}, not an integer") from None


def check(instr: Instr) -> None:
    """Raise CompileError, with instruction and field, if ``instr`` cannot be encoded."""
    _word(instr)
    _check_frame(instr)


def _word(instr: Instr) -> int:
    word, values, spec = 0, instr.values, instr.spec
    for slot in _FIELD_SLOTS[spec.opcode]:
        name, shift, mask, low, high = slot
        value = values.get(name, 0)
        if not low <= value <= high:
            _check_range(spec, slot, value, "field")
        if value:
            word |= (value & mask) << shift
    return word


def _check_frame(instr: Instr) -> None:
    spec, values = instr.spec, instr.values
    if not values.keys() <= _FIELD_NAMES[spec.opcode]:
        unknown = sorted(values.keys() - _FIELD_NAMES[spec.opcode])
        raise CompileError(f"instruction {spec.mnemonic} has no field {unknown[0]!r}")
    if instr.queue not in _QUEUES:
        raise CompileError(f"instruction {spec.mnemonic}: there is no queue {instr.queue!r}")
    if spec.queue is not None and instr.queue != spec.queue:
        raise CompileError(
            f"instruction {spec.mnemonic} runs in queue {spec.queue.name.lower()}, not {instr.queue.name.lower()}"
        )
    for what, tokens, most in (("waits on", instr.waits, MAX_WAITS), ("posts", instr.posts, MAX_POSTS)):
        if len(tokens) > most:
            raise CompileError(f"instruction {spec.mnemonic} {what} {len(tokens)} semaphores, at most {most} fit")
        if tokens and not 0 <= min(tokens) <= max(tokens) < SEMAPHORES:
            raise CompileError(f"instruction {spec.mnemonic} {what} {tokens}, allowed: 0..{SEMAPHORES - 1}")
    if instr.steps is not None:
        slots = _STEP_SLOTS[spec.opcode]
        if not slots or len(instr.steps) != len(slots):
            raise CompileError(f"instruction {spec.mnemonic} takes {len(slots)} steps, not {len(instr.steps)}")
        for slot, step in zip(slots, instr.steps, strict=True):
            _check_range(spec, slot, step, "step of field")


def _check_range(spec: Instruction, slot: _BitField, value: int, what: str) -> None:
    if not slot.low <= value <= slot.high:
        raise CompileError(
            f"instruction {spec.mnemonic}: {what} {slot.name} is {value}, allowed: {slot.low}..{slot.high}"
        )


def encode(instructions: Iterable[Instr]) -> bytes:
    """Encode a program. Raises CompileError, with instruction and field, for a value that does not fit."""
    return b"".join(map(encode_one, instructions))


def encode_one(instr: Instr) -> bytes:
    """Encode one instruction. Raises CompileError like :func:`encode`."""
    spec, steps = instr.spec, instr.steps
    word = _word(instr)
    _check_frame(instr)
    word |= spec.opcode << _OPCODE.shift | instr.size_bytes // GRANULE_BYTES << _LENGTH.shift
    word |= instr.queue << _QUEUE.shift | (steps is not None) << _STEPPED.shift
    for slot, token in (*zip(_WAITS, instr.waits, strict=False), *zip(_POSTS, instr.posts, strict=False)):
        word |= _TOKEN_VALID + token << slot.shift
    data = word.to_bytes(spec.size_bytes, "little")
    if steps is None:
        return data
    block = 0
    for slot, step in zip(_STEP_SLOTS[spec.opcode], steps, strict=True):
        block |= (step & slot.mask) << slot.shift
    return data + block.to_bytes(STEP_BLOCK_BYTES, "little")


def decode(data: bytes | memoryview) -> list[Instr]:
    """Decode instructions. Raises SimulationError with the byte offset of a malformed instruction."""
    view = memoryview(data)
    instructions = []
    offset = 0
    while offset < len(view):
        instr = decode_one(view, offset, offset)
        instructions.append(instr)
        offset += instr.size_bytes
    return instructions


def decode_one(view: memoryview, offset: int, place: int) -> Instr:
    """Decode the instruction at byte ``offset`` of ``view``. Errors state ``place``, its byte offset in the program."""
    prefix = int.from_bytes(view[offset : offset + _PREFIX_BYTES], "little")
    head = {slot.name: prefix >> slot.shift & slot.mask for slot in _PREFIX_SLOTS.values()}
    spec = BY_OPCODE.get(head["opcode"])
    if spec is None:
        raise malformed(place, f"unknown opcode {head['opcode']:#04x}")
    size = spec.size_bytes + (STEP_BLOCK_BYTES if head["stepped"] else 0)
    if head["length"] * GRANULE_BYTES != size:
        raise malformed(place, f"{spec.mnemonic} is {size} bytes long, the prefix says {head['length']} granules")
    if offset + size > len(view):
        raise malformed(place, f"{spec.mnemonic} is cut off")
    if head["reserved"]:
        raise malformed(place, f"reserved bit of {spec.mnemonic} is set")
    if (spec.queue is not None and head["queue"] != spec.queue) or head["queue"] >= len(Queue):
        raise malformed(place, f"{spec.mnemonic} cannot run in queue {head['queue']}")
    word = int.from_bytes(view[offset : offset + spec.size_bytes], "little")
    values = {}
    for slot in _FIELD_SLOTS[spec.opcode]:
        values[slot.name] = _extract(word, slot)
        if not slot.low <= values[slot.name] <= slot.high:
            raise malformed(place, f"{spec.mnemonic}: field {slot.name} is {values[slot.name]}, at most {slot.high}")
    if word >> _end(_FIELD_SLOTS[spec.opcode], PREFIX_BITS):
        raise malformed(place, f"unused bits of {spec.mnemonic} are set")
    waits = _tokens(spec, head["wait_a"], head["wait_b"], place)
    posts = _tokens(spec, head["post_a"], head["post_b"], place)
    steps = _decode_steps(spec, view[offset + spec.size_bytes : offset + size], place) if head["stepped"] else None
    return Instr(spec, values, waits, posts, Queue(head["queue"]), steps)


def _extract(word: int, slot: _BitField) -> int:
    value = word >> slot.shift & slot.mask
    return value - slot.mask - 1 if slot.low < 0 and value > slot.high else value


def _decode_steps(spec: Instruction, block: memoryview, offset: int) -> tuple[int, ...]:
    slots = _STEP_SLOTS[spec.opcode]
    if not slots:
        raise malformed(offset, f"{spec.mnemonic} has no address to step")
    word = int.from_bytes(block, "little")
    if word >> _end(slots, 0):
        raise malformed(offset, f"unused bits of the step block of {spec.mnemonic} are set")
    return tuple(_extract(word, slot) for slot in slots)


def _tokens(spec: Instruction, first: int, second: int, offset: int) -> tuple[int, ...]:
    fields = (first, second) if second else (first,) if first else ()
    if any(field < _TOKEN_VALID for field in fields):
        raise malformed(offset, f"{spec.mnemonic}: malformed semaphore fields {first} and {second}")
    return tuple(field - _TOKEN_VALID for field in fields)


def malformed(offset: int, what: str) -> SimulationError:
    """Return the error for a malformed instruction at byte ``offset`` of a program."""
    return SimulationError(f"malformed instruction at byte {offset:#x} of the program: {what}")
