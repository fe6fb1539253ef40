"""Semaphores order what conflicts, with few tokens; the verifier finds every one that is taken away."""

from __future__ import annotations

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Block, SSAValue

from odc_mlir.errors import CompileError
from odc_mlir.isa.codec import MAX_POSTS, MAX_WAITS
from odc_mlir.isa.fields import SEMAPHORES, Queue, Space
from odc_mlir.targets import load
from odc_mlir.transforms.npu import npu_insert_sync
from odc_mlir.transforms.npu.npu_hoist_transfers import hoist_transfers
from odc_mlir.transforms.npu.npu_insert_sync import SEMAPHORE_OF
from odc_mlir.transforms.npu.npu_verify_memory import verify_program
from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, make_buffer, make_instruction
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, buffers_of, command

TARGET = load("npu-256")
REGIONS = {Space.ARENA: 4096, Space.CONSTANTS: 0, Space.INPUTS: 0, Space.OUTPUTS: 0}
ARENA = Buffer("arena", Space.ARENA, 4096, 0)
TILE = Buffer("tile", Space.TILE, 4096, 0)


def move(kind: str, memory: int, tile: int, size: int = 64) -> Command:
    """A load or store of contiguous bytes."""
    places = {"load": ("source", "target"), "store": ("target", "source")}[kind]
    fields = {places[0]: (ARENA, memory), places[1]: (TILE, tile)}
    return command(kind, 0, size0=size, size1=1, size2=1, tile_stride1=size, tile_stride2=size, **fields)


def compute(source: int, target: int, size: int = 64) -> Command:
    return command(
        "vop", 0, kind="copy", a=(TILE, source), a_stride0=1, output=(TILE, target), size0=size, size1=1, size2=1
    )


def tiles(count: int) -> list[Command]:
    """Load, compute and store tiles in turn, in two slots."""
    commands = []
    for number in range(count):
        slot = 128 * (number % 2)
        commands += [
            move("load", 64 * number, slot),
            compute(slot, slot + 64),
            move("store", 2048 + 64 * number, slot + 64),
        ]
    return commands


def insert_sync(commands: list[Command]) -> list[Command]:
    """The program of ``commands`` as the pass leaves it."""
    buffers = {buffer: make_buffer(buffer, UnknownLoc()) for buffer in buffers_of(commands)}
    values: dict[Buffer, SSAValue] = {buffer: op.buffer for buffer, op in buffers.items()}
    block = Block([*buffers.values(), *(make_instruction(item, values, UnknownLoc()) for item in commands)])
    npu_insert_sync.insert_sync(block, DecodedProgram(block))
    return DecodedProgram(block).commands


def tokens(commands: list[Command]) -> int:
    return sum(len(item.waits) for item in commands)


def test_every_pair_of_queues_has_its_own_semaphore() -> None:
    assert len(set(SEMAPHORE_OF.values())) == len(SEMAPHORE_OF) == 30
    assert max(SEMAPHORE_OF.values()) < SEMAPHORES


def test_read_after_write_waits_once() -> None:
    load_, vop = insert_sync([move("load", 0, 0), compute(0, 64)])
    number = SEMAPHORE_OF[Queue.LOAD, Queue.VECTOR]
    assert (load_.posts, vop.waits) == ((number,), (number,))


def test_what_does_not_conflict_does_not_wait() -> None:
    assert tokens(insert_sync([move("load", 0, 0), compute(64, 128), move("store", 512, 256)])) == 0


def test_what_is_known_through_others_costs_nothing() -> None:
    """The store waits for the computation, which has waited for the load."""
    commands = insert_sync([move("load", 0, 0), compute(0, 64), move("store", 1024, 64), move("load", 1024, 512)])
    assert [len(item.waits) for item in commands] == [0, 1, 1, 1]


def test_steady_state_is_periodic() -> None:
    commands = insert_sync(tiles(8))
    kinds = [(item.mnemonic, item.waits, item.posts) for item in commands]
    assert kinds[9:12] == kinds[12:15]


def test_more_tokens_than_an_instruction_holds_go_into_sync() -> None:
    commands = [move("load", 0, 0), compute(64, 128), move("store", 512, 192)]
    spanning = command(
        "wload", 0, source=(ARENA, 0), target=(Buffer("w", Space.WEIGHT, 64, 0), 0), coded_bytes=64, bytes=64
    )
    commands += [spanning, command("copy", 0, source=(ARENA, 2048), target=(ARENA, 0), bytes=1024)]
    commands.append(command("fill", 0, target=(TILE, 0), bytes=256, value=0, type="i8"))
    result = insert_sync(commands)
    assert all(len(item.waits) <= MAX_WAITS and len(item.posts) <= MAX_POSTS for item in result)
    assert any(item.mnemonic == "sync" for item in result)
    verify_program(result, TARGET, REGIONS)


@st.composite
def programs(draw: st.DrawFn) -> list[Command]:
    places = st.integers(0, 15).map(lambda n: 64 * n)
    commands = []
    for _ in range(draw(st.integers(2, 25))):
        kind = draw(st.sampled_from(("load", "store", "compute")))
        first, second = draw(places), draw(places)
        commands.append(compute(first, second) if kind == "compute" else move(kind, first, second))
    return commands


@given(programs())
def test_any_program_is_ordered_and_every_token_is_needed(commands: list[Command]) -> None:
    ordered = insert_sync(commands)
    verify_program(ordered, TARGET, REGIONS)
    for index, item in enumerate(ordered):
        for number in item.waits:
            broken = copy.copy(ordered)
            broken[index] = copy.copy(item)
            broken[index].waits = tuple(w for w in item.waits if w != number)
            with pytest.raises(CompileError):
                verify_program(broken, TARGET, REGIONS)


@given(programs())
def test_hoisting_keeps_queues_and_dependences(commands: list[Command]) -> None:
    before = dependences(commands)
    wanted = {(id(commands[i]), id(c)) for c, found in zip(commands, before, strict=True) for i in found.values()}
    order = hoist_transfers(commands, before, 16)
    assert sorted(order) == list(range(len(commands)))
    moved = [commands[index] for index in order]
    position = {id(item): index for index, item in enumerate(moved)}
    assert all(position[first] < position[second] for first, second in wanted)
    for queue in Queue:
        assert [id(c) for c in moved if c.queue == queue] == [id(c) for c in commands if c.queue == queue]


def test_hoisting_overlaps_the_next_load_with_this_computation() -> None:
    assert hoist_transfers(tiles(4), dependences(tiles(4)), 16)[:3] == [0, 3, 1]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda c: setattr(c[1], "waits", ()), "races with instruction 0"),
        (lambda c: setattr(c[0], "posts", ()), "before anything posts it"),
        (lambda c: setattr(c[2], "posts", (5,)), "semaphore 5 is posted more often than waited on"),
        (lambda c: setattr(c[0], "immediates", c[0].immediates.replace(size0=5000)), "touches 0..4999 of buffer"),
        (lambda c: c[0].places.update(target=(Buffer("far", Space.TILE, 64, 40_000), 0)), "ends at 40064, tile has"),
        (
            lambda c: c[0].places.update(target=(Buffer("none", Space.TILE, 64), 0)),
            "buffer 'none' in memory tile has no address",
        ),
    ],
)
def test_the_verifier_finds_damage(damage, message) -> None:  # type: ignore[no-untyped-def]
    commands = insert_sync(tiles(2))
    verify_program(commands, TARGET, REGIONS)
    damage(commands)
    with pytest.raises(CompileError, match=message):
        verify_program(commands, TARGET, REGIONS)


def test_live_buffers_that_share_bytes_are_found() -> None:
    other = Buffer("other", Space.ARENA, 64, 32)
    first = command("copy", 0, source=(other, 0), target=(Buffer("b", Space.ARENA, 64, 0), 0), bytes=8)
    with pytest.raises(CompileError, match="share bytes while both are in use"):
        verify_program(insert_sync([first]), TARGET, REGIONS)
