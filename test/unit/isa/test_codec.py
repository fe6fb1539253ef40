"""Instructions survive packing, and whatever cannot be packed or unpacked is named."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.npu_instructions import instructions
from odc_mlir.errors import CompileError, SimulationError
from odc_mlir.isa.assembly import assemble, disassemble
from odc_mlir.isa.codec import Instr, address, decode, encode, make, split_address
from odc_mlir.isa.fields import PREFIX_BITS, STEP_BLOCK_BYTES, Kind, Queue
from odc_mlir.isa.instructions import BY_OPCODE, INSTRUCTIONS

MNEMONICS = [spec.mnemonic for spec in INSTRUCTIONS]


@given(st.lists(instructions(), max_size=4))
def test_bytes_round_trip(program: list[Instr]) -> None:
    data = encode(program)
    assert decode(data) == program
    assert len(data) == sum(instr.size_bytes for instr in program)


@given(st.lists(instructions(), max_size=4))
def test_text_round_trip(program: list[Instr]) -> None:
    assert assemble(disassemble(program)) == program


@settings(max_examples=300)
@given(st.binary(max_size=96))
def test_accepted_bytes_are_canonical(data: bytes) -> None:
    try:
        program = decode(data)
    except SimulationError:
        return
    assert encode(program) == data


@settings(max_examples=300)
@given(instructions(), st.data())
def test_every_bit_counts(instr: Instr, data: st.DataObject) -> None:
    """A flipped bit is refused or changes the instruction."""
    packed = bytearray(encode([instr]))
    bit = data.draw(st.integers(0, 8 * len(packed) - 1))
    packed[bit // 8] ^= 1 << bit % 8
    with suppress(SimulationError):
        assert decode(bytes(packed)) != [instr]


@pytest.mark.parametrize("spec", INSTRUCTIONS, ids=MNEMONICS)
def test_the_table_fits_the_format(spec: Any) -> None:
    assert PREFIX_BITS == 40
    assert spec.size_bytes + STEP_BLOCK_BYTES <= 7 * 16  # what the length field holds
    assert sum(field.step_bits for field in spec.addresses) <= 8 * STEP_BLOCK_BYTES
    assert len({field.name for field in spec.fields}) == len(spec.fields)
    assert all(len(field.values) <= 1 << field.bits for field in spec.fields if field.kind is Kind.ENUM)
    assert BY_OPCODE[spec.opcode] is spec


@pytest.mark.parametrize("spec", INSTRUCTIONS, ids=MNEMONICS)
def test_a_value_out_of_range_is_named(spec: Any) -> None:
    for field in spec.fields:
        low, high = field.range
        for value in (low - 1, high + 1):
            with pytest.raises(CompileError, match=rf"instruction {spec.mnemonic}: field {field.name} is {value}, "):
                make(spec.mnemonic, **{field.name: value})
        for value in (low, high):
            assert make(spec.mnemonic, **{field.name: value})[field.name] == value


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mnemonic": "jump"}, "unknown instruction 'jump'"),
        ({"mnemonic": "halt", "speed": 1}, "instruction halt has no field 'speed'"),
        ({"mnemonic": "conv", "in_type": "i9"}, "field in_type is 'i9', allowed: u8, i8, i16, i32"),
        ({"mnemonic": "conv", "channels": "many"}, "field channels is 'many', not an integer"),
        ({"mnemonic": "sync", "waits": (1, 2, 3)}, "instruction sync waits on 3 semaphores, at most 2 fit"),
        ({"mnemonic": "sync", "posts": (32,)}, r"instruction sync posts \(32,\), allowed: 0..31"),
        ({"mnemonic": "sync", "queue": "fast"}, "unknown queue 'fast'"),
        ({"mnemonic": "conv", "queue": "load"}, "instruction conv runs in queue mac, not load"),
        ({"mnemonic": "sync", "steps": (1,)}, "instruction sync takes 0 steps, not 1"),
        ({"mnemonic": "copy", "steps": (1,)}, "instruction copy takes 2 steps, not 1"),
        ({"mnemonic": "copy", "steps": {"bytes": 1}}, "instruction copy has no address field 'bytes' to step"),
        ({"mnemonic": "fill", "steps": {"target": 1 << 15}}, "step of field target is 32768, allowed: -32768..32767"),
    ],
)
def test_what_cannot_be_made_is_named(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(CompileError, match=message):
        make(**arguments)


def test_an_instruction_built_by_hand_is_checked_too() -> None:
    spec = next(spec for spec in INSTRUCTIONS if spec.mnemonic == "halt")
    with pytest.raises(CompileError, match="halt has no field 'speed'"):
        encode([Instr(spec, {"speed": 1})])
    with pytest.raises(CompileError, match="there is no queue 9"):
        encode([Instr(spec, {}, queue=9)])  # type: ignore[arg-type]


def test_left_out_fields_are_zero_and_names_are_codes() -> None:
    instr = make("conv", init="keep", emit=True)
    assert (instr["init"], instr.name("init"), instr["emit"], instr["channels"]) == (2, "keep", 1, 0)
    assert encode([Instr(instr.spec, {"init": 2, "emit": 1}, queue=Queue.MAC)]) == encode([instr])


def test_addresses() -> None:
    assert split_address(address(3, 0x123)) == (3, 0x123)
    with pytest.raises(CompileError, match="memory offset 268435456 is outside"):
        address(0, 1 << 28)


HALT = encode([make("halt")])


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (HALT[:15], "byte 0x0 .*halt is cut off"),
        (HALT + b"\xff" + bytes(15), "byte 0x10 .*unknown opcode 0xff"),
        (b"\x00\x02" + bytes(14), "halt is 16 bytes long, the prefix says 2 granules"),
        (b"\x00\x21" + bytes(14), "reserved|queue"),
        (HALT[:15] + b"\x80", "unused bits of halt are set"),
        (b"\x00\x01\x01" + bytes(13), "malformed semaphore fields"),
    ],
)
def test_malformed_bytes_are_named(data: bytes, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        decode(data)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("halt\njump\n", r"unknown instruction 'jump' \(in line 2\)"),
        ("convx in_type=i8", "unknown instruction 'convx'"),
        ("halt status", "expected field=value, found 'status'"),
        ("halt status=1 status=2", "status is given twice"),
        ("halt status=one", "status is 'one', which is not a number"),
        ("halt queue=1", "instruction halt has no field 'queue'"),
        ("sync wait=1,x", "wait is '1,x'|wait is 'x'"),
        ("sync@slow", "unknown queue 'slow'"),
        ("copy source=moon:0", "source is 'moon:0', expected region:offset"),
        ("copy source=arena:0x10000000", "memory offset 268435456 is outside"),
        ("copy step.bytes=1", "no address field 'bytes' to step"),
        ("halt wait=99", r"waits on \(99,\)"),
    ],
)
def test_wrong_text_is_named(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        assemble(text)


def test_text_is_readable() -> None:
    text = "copy source=constants:0x80 target=arena:0x0 bytes=64 step.source=64 step.target=0 wait=1 post=2,3\n"
    assert assemble(f"\n; nothing\n{text.strip()} ; why\n") == assemble(text)
    assert disassemble(assemble(text)) == text
    assert disassemble(assemble("sync@mac wait=0x4\nconv init=zero")) == "sync@mac wait=4\nconv init=zero\n"


@given(st.text(max_size=60))
def test_any_text_is_a_program_or_an_error_of_ours(text: str) -> None:
    with suppress(CompileError):
        assemble(text)
