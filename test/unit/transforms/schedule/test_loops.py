"""Rolling keeps the sequence of issued instructions and only makes the program shorter."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.isa.codec import Instr, decode, encode, make
from odc_mlir.transforms.npu.npu_roll_loops import IssuedInstruction, find_loops

BUFFER_BYTES = 2048


def unrolled(instructions: list[Instr]) -> list[tuple[str, dict[str, int]]]:
    """Mnemonic and field values of every issued instruction."""
    issued = []
    index = 0
    while index < len(instructions):
        instr = instructions[index]
        index += 1
        if instr.mnemonic != "loop":
            issued.append((instr.mnemonic, dict(instr.values)))
            continue
        end = next(i for i in range(index, len(instructions)) if instructions[i].mnemonic == "end")
        for iteration in range(instr["count"]):
            for inner in instructions[index:end]:
                values = dict(inner.values)
                for field, step in zip(inner.spec.addresses, inner.steps or (), strict=False):
                    values[field.name] += iteration * step
                issued.append((inner.mnemonic, values))
        index = end + 1
    return issued


def roll(program: list[Instr], owners: list[object] | None = None, buffer_bytes: int = BUFFER_BYTES) -> list[Instr]:
    """``program`` with the loops that were found in it."""
    issues = [issue(instr, owner) for instr, owner in zip(program, owners or [0] * len(program), strict=True)]
    rolled: list[Instr] = []
    at = 0
    for start, length, iterations in find_loops(issues, buffer_bytes):
        body = [stepped(program[i], program[i + length]) for i in range(start, start + length)]
        size = sum(instr.size_bytes for instr in body)
        rolled += [*program[at:start], make("loop", count=iterations, body_bytes=size), *body, make("end")]
        at = start + length * iterations
    return rolled + program[at:]


def issue(instr: Instr, owner: object) -> IssuedInstruction:
    fields = instr.spec.addresses
    names = {field.name for field in fields}
    rest = tuple(sorted((name, value) for name, value in instr.values.items() if name not in names))
    kind = None if instr.mnemonic == "halt" else (instr.mnemonic, instr.waits, owner, rest)
    addresses = tuple(instr[field.name] for field in fields)
    return IssuedInstruction(kind, owner, addresses, tuple(field.step_bits for field in fields), instr.size_bytes)


def stepped(first: Instr, second: Instr) -> Instr:
    steps = tuple(second[field.name] - first[field.name] for field in first.spec.addresses)
    return replace(first, steps=steps) if any(steps) else first


def load(source: int, target: int = 0, **fields: object) -> Instr:
    return make("load", source=source, target=target, size0=16, size1=1, size2=1, **fields)


def test_a_regular_sequence_becomes_one_loop() -> None:
    program = [load(64 * i, 32 * (i % 2)) for i in range(20)] + [make("halt")]
    rolled = roll(program)
    assert [i.mnemonic for i in rolled] == ["loop", "load", "load", "end", "halt"]
    assert rolled[0]["count"] == 10
    assert unrolled(rolled) == unrolled(program)


def test_what_does_not_pay_stays_straight() -> None:
    program = [load(0), load(64), make("halt")]
    assert roll(program) == program


def test_other_owners_and_tokens_are_not_joined() -> None:
    program = [load(64 * i) for i in range(8)]
    assert len(roll(program)) == 3
    assert roll(program, [i % 7 for i in range(8)]) == program
    waiting = [load(64 * i, waits=(i,)) for i in range(8)]
    assert roll(waiting) == waiting


def test_layers_that_alternate_share_no_loop() -> None:
    """Transfers of one layer between those of another repeat as well, but a loop belongs to one."""
    program = [load(64 * i) for i in range(12)]
    assert roll(program, [i % 2 for i in range(12)]) == program
    assert roll(program, [i // 4 % 2 for i in range(12)], 48) != program


def test_a_body_fits_in_the_loop_buffer() -> None:
    program = [load(64 * i, waits=(i % 5,)) for i in range(40)]
    body = 5 * 48
    assert roll(program, buffer_bytes=body)[0].mnemonic == "loop"
    assert roll(program, buffer_bytes=body - 1) == program


def test_a_step_that_a_step_block_cannot_hold_ends_a_loop() -> None:
    small, large = ([load(0, step * i) for i in (0, 1, 0, 1, 0, 1)] for step in (32_767, 32_768))
    assert len(roll(small)) < len(small)
    assert all(abs(step) <= 32_768 for i in roll(large) for step in i.steps or ())


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), min_size=1, max_size=60))
def test_same_instructions_in_the_same_order(items: list[tuple[int, int]]) -> None:
    program = [load(64 * address + 16 * index, waits=(token,)) for index, (address, token) in enumerate(items)]
    program.append(make("halt"))
    rolled = roll(program)
    assert unrolled(rolled) == unrolled(program)
    assert len(encode(rolled)) <= len(encode(program))
    assert decode(encode(rolled)) == rolled
