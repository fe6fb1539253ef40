"""Compact programs: they expand to the same instructions, are shorter, and what is wrong in one is named."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.npu import pack, program
from helpers.npu_instructions import instructions
from helpers.npu_programs import random_program
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.assembly import assemble
from odc_mlir.isa.codec import Instr, encode
from odc_mlir.isa.compact import FARTHEST, MARK, read_code, write_code
from odc_mlir.isa.instructions import MOST_COMPACT_BYTES
from odc_mlir.simulator import load, simulate

NPU = targets.load("npu-256")
HISTORY = NPU.fetch.loop_buffer_bytes
HEADER = bytes([MARK, 1, HISTORY // 16, 0])
HALT = bytes([0, 1, 1, 1 << 1, 1])  # no reference, 16 bytes; word 0 changes, in it byte 1: length 1


@given(st.lists(instructions(), max_size=3), st.lists(st.integers(0, 2), max_size=30), st.sampled_from((0, 96, 2048)))
@settings(max_examples=50)
def test_a_program_expands_to_its_instructions(kinds: list[Instr], order: list[int], history: int) -> None:
    made = tuple(kinds[index] for index in order if index < len(kinds))
    code = write_code(made, history)
    read = read_code(code)
    assert read.instructions == made
    assert read.history_bytes == history
    assert sum(read.sizes) == len(code) or not made
    assert all(size <= MOST_COMPACT_BYTES + len(HEADER) for size in read.sizes)
    assert read_code(encode(made)) == (made, tuple(instr.size_bytes for instr in made), None)


def test_as_described() -> None:
    first, second, third = assemble("sync@mac wait=1\nsync@mac wait=2\nhalt")
    code = HEADER + bytes([0, 1, 1, 0b111, 0x01, 1 | 5 << 3, 33]) + bytes([1, 1, 0b100, 34]) + HALT
    assert read_code(code) == ((first, second, third), (4 + 7, 4, 5), HISTORY)
    assert write_code((first, second, third), HISTORY) == code


def test_repetition_takes_two_bytes_or_three() -> None:
    line = "load source=inputs:0 target=0 size0=64 size1=1 size2=1 tile_stride1=64\n"
    once, often = (len(write_code(assemble(line * count), HISTORY)) for count in (1, 101))
    assert often - once == 100 * 2
    vop = "vop kind=add size0=64 size1=1 size2=1\n"
    assert read_code(write_code(assemble((line + vop) * 2), HISTORY)).sizes[2:] == (2, 2)


def test_what_is_too_far_back_is_written_out() -> None:
    between = [f"load source=inputs:{n} size0=1 size1=1 size2=1 tile_stride1={n}" for n in range(HISTORY // 32)]
    for count, size in ((HISTORY // 32 - 1, 2), (HISTORY // 32, None)):
        text = "\n".join(["fill bytes=7 value=3", *between[:count], "fill bytes=7 value=3"])
        read = read_code(write_code(assemble(text), HISTORY))
        assert (read.sizes[-1] == size) is (16 + 32 * count <= HISTORY)
    syncs = [f"sync@mac wait={n % 32}" for n in range(FARTHEST)]
    for count in (FARTHEST - 1, FARTHEST):
        read = read_code(write_code(assemble("\n".join(["halt", *syncs[:count], "halt"])), 4096))
        assert (read.sizes[-1] == 2) is (count < FARTHEST)


@given(st.integers(0, 1 << 30), st.data())
@settings(max_examples=40)
def test_damage_is_named_or_gives_a_program(seed: int, data: st.DataObject) -> None:
    code = bytearray(random_program(seed, length=10, compact=True).container.code)
    for _ in range(data.draw(st.integers(1, 4))):
        code[data.draw(st.integers(0, len(code) - 1))] = data.draw(st.integers(0, 255))
    with suppress(SimulationError):
        read_code(bytes(code[: data.draw(st.integers(0, len(code)))]))


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (bytes([MARK, 1]), "the compact program has no header"),
        (bytes([MARK, 2, 128, 0]), "version 2 of the compact form is not known"),
        (HEADER + b"\x01", "byte 0x4 of the program: it refers to 1 instructions back, of 0"),
        (HEADER + HALT + b"\x02", "byte 0x9 of the program: it refers to 2 instructions back, of 1"),
        (bytes([MARK, 1, 0, 0]) + HALT + b"\x01", "it refers to 1 instructions back, farther than 0 bytes"),
        (HEADER + b"\x00", "it is cut off"),
        (HEADER + HALT[:-1], "it is cut off"),
        (HEADER + b"\x00\x00", "it is 0 bytes long"),
        (HEADER + b"\x00\x06", "it is 96 bytes long"),
        (HEADER + b"\x00\x01\x04", "it changes bytes after its end"),
        (HEADER + b"\x00\x01\x01\x00", "a word that changes has no byte that does"),
        (HEADER + b"\x00\x01\x01\x01\x00", "byte 0 changes to what it is"),
        (HEADER + b"\x00\x02\x01\x02\x01", "halt is 16 bytes long|halt expands to 32 bytes, not 16"),
        (HEADER + b"\x00\x01\x01\x03\x99\x01", "unknown opcode 0x99"),
    ],
)
def test_what_is_wrong_is_named(code: bytes, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        read_code(code)


def test_a_program_refers_no_farther_back_than_the_target_keeps() -> None:
    short = write_code(assemble("halt"), HISTORY + 16)
    data = pack("halt", compact=True)
    assert HEADER in data
    with pytest.raises(SimulationError, match="the program refers 2064 bytes back, npu-256 keeps 2048"):
        load(_with_code(short))


def test_bodies_of_loops_are_kept_whole() -> None:
    body = "".join(f"fill bytes={n + 1}\n" for n in range(HISTORY // 16 + 1))
    text = f"loop count=2 body_bytes={{}}\n{body}end\nhalt"
    with pytest.raises(SimulationError, match=r"repeats 2064 bytes, npu-256 keeps 2048"):
        program(text.format(2064), compact=True)
    assert program(text.format(2064)).dynamic_instructions == 2 * 130 + 2


def _with_code(code: bytes) -> bytes:
    from dataclasses import replace

    from odc_mlir.isa import container

    return container.write(replace(container.read(pack("halt")), code=code))


def test_issuing_takes_as_long_as_expanding() -> None:
    """16 bytes of compact form in the time that an instruction takes; a repetition in a loop is expanded already."""
    fields = "source=inputs:85 target=77 size0=300 size1=301 size2=302 memory_stride1=99999 memory_stride2=88888"
    text = f"loop count=2 body_bytes=32\nload {fields} tile_stride1=999 tile_stride2=888\nend\nhalt"
    steps = list(program(text, compact=True).steps())
    body = [(step.fetched_bytes, step.issue_cycles) for step in steps if step.index == 1]
    assert 16 < body[0][0] <= 32
    assert body == [(body[0][0], 2 * NPU.fetch.issue_cycles), (0, NPU.fetch.issue_cycles)]
    assert {step.issue_cycles for step in program(text).steps()} == {NPU.fetch.issue_cycles}


@pytest.mark.parametrize("seed", range(6))
def test_both_simulators_take_the_same_time_for_a_compact_program(seed: int) -> None:
    plain, made = random_program(seed), random_program(seed, compact=True)
    fast, slow = (simulate(made, execute=False, mode=mode) for mode in ("fast", "stepped"))
    assert fast.counters.to_dict() == slow.counters.to_dict()
    assert fast.counters.program_bytes == sum(made.code.sizes) < sum(plain.code.sizes)
