"""What is not ordered by semaphores is a race, whatever the timing; damaged programs fail or give other values."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from helpers import npu_listing as listing
from helpers.npu import pack
from odc_mlir import targets
from odc_mlir.errors import OdcError, SimulationError
from odc_mlir.isa.codec import Instr
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator import Result, load, simulate
from odc_mlir.simulator.boxes import START, AccessLog, Semaphores, box, join
from odc_mlir.simulator.queues import with_own

NPU = targets.load("npu-256")
PROGRAM = listing.instructions()


def outcome(program: list[Instr]) -> Result:
    return simulate(load(listing.packed(program)), [listing.X])


def copies(program: list[Instr]) -> list[Instr]:
    return [dataclasses.replace(instr, values=dict(instr.values)) for instr in program]


def test_the_listing_is_right() -> None:
    assert (outcome(PROGRAM).outputs[0] == listing.expected()).all()
    assert listing.reassembled(PROGRAM) == PROGRAM


def edges(program: list[Instr]) -> list[tuple[int, int, int]]:
    """(semaphore, posting instruction, waiting instruction): the k-th post with the k-th wait."""
    found = []
    for semaphore in range(8):
        posts = [i for i, instr in enumerate(program) for s in instr.posts if s == semaphore]
        waits = [i for i, instr in enumerate(program) for s in instr.waits if s == semaphore]
        assert len(posts) == len(waits)
        found += [(semaphore, post, wait) for post, wait in zip(posts, waits, strict=True)]
    return found


def without(values: tuple[int, ...], item: int) -> tuple[int, ...]:
    index = values.index(item)
    return values[:index] + values[index + 1 :]


def needed(semaphore: int, post: int, wait: int) -> bool:
    """All but those that the final syncs take only to leave every semaphore at zero."""
    return PROGRAM[wait].mnemonic != "sync" or semaphore == listing.WEIGHTS


@pytest.mark.parametrize(("semaphore", "post", "wait"), [e for e in edges(PROGRAM) if needed(*e)])
def test_every_edge_is_missed(semaphore: int, post: int, wait: int) -> None:
    """Without the edge (post and wait both, so that the count is right) a race is reported.

    Tokens of one semaphore are alike, so taking away one edge shifts the others: still something is unordered.
    """
    program = copies(PROGRAM)
    program[post].posts = without(program[post].posts, semaphore)
    program[wait].waits = without(program[wait].waits, semaphore)
    with pytest.raises(SimulationError, match=r"in a race with instruction|parts of which were never written"):
        outcome(program)


@pytest.mark.parametrize("speed", [1, 8])
def test_a_race_is_found_whatever_the_timing(speed: int) -> None:
    """The store is far too slow or fast enough to get away with it: without its edge it is a race in both cases."""
    npu = dataclasses.replace(NPU, name="other", sram=dataclasses.replace(NPU.sram, bytes_per_cycle=8 * speed))
    program = copies(PROGRAM)
    edge = next(e for e in edges(PROGRAM) if e[0] == listing.POOLED_FREED)
    program[edge[1]].posts, program[edge[2]].waits = (), without(program[edge[2]].waits, edge[0])
    data = listing.packed(program, target=npu)
    with pytest.raises(
        SimulationError, match=r"instruction \d+ \(pool of 'pool'\) writes .* of the tile buffer in a race"
    ):
        simulate(load(data), [listing.X])


def test_both_instructions_are_named() -> None:
    text = """
        fill target=0 bytes=64 post=0
        sync@store wait=0
        store target=outputs:0 source=0 size0=64 size1=1 size2=1
        fill target=60 bytes=8
        halt"""
    message = r"instruction 3 \(fill\) writes 60\.\.67 of the tile buffer in a race with instruction 2"
    with pytest.raises(SimulationError, match=message):
        simulate(load(pack(text, outputs=[(64,)])))
    apart = text.replace("target=60", "target=64")
    assert simulate(load(pack(apart, outputs=[(64,)]))).counters.cycles


def test_reads_do_not_race_with_reads() -> None:
    text = """
        fill target=0 bytes=64 post=0
        sync@fetch wait=0
        store target=outputs:0 source=0 size0=64 size1=1 size2=1
        vop kind=copy a=0 a_stride0=1 size0=64 size1=1 size2=1 output=64
        halt"""
    assert simulate(load(pack(text, outputs=[(64,)])))


def mutations(program: list[Instr]) -> list[tuple[str, list[Instr]]]:
    """Single faults that a compiler could make."""
    result = []

    def add(what: str, index: int, **changes: object) -> None:
        changed = copies(program)
        changed[index] = dataclasses.replace(changed[index], **changes)
        result.append((f"{what} at {index}", changed))

    for index, instr in enumerate(program):
        for semaphore in set(instr.waits):
            add("drop a wait", index, waits=without(instr.waits, semaphore))
        for semaphore in set(instr.posts):
            add("drop a post", index, posts=without(instr.posts, semaphore))
        if len(set(instr.posts)) == 2 and index < len(program) - 1:
            add("wait for what it posts", index, waits=instr.posts)
        for field in ("size0", "size1", "size2", "bytes", "count", "channels", "out_width", "kernel_width"):
            if instr.values.get(field, 0) > 1:
                add(f"shrink {field}", index, values=dict(instr.values) | {field: instr[field] - 1})
        for field in ("source", "target", "input", "output", "weights"):
            if field in instr.values:
                add(f"shift {field}", index, values=dict(instr.values) | {field: instr[field] + 1})
    return result


def test_faults_do_not_go_unnoticed() -> None:
    """Every single fault fails or changes values: timing cannot leave out work in silence."""
    right, unnoticed = listing.expected(), []
    chosen = [m for i, m in enumerate(mutations(PROGRAM)) if i % 3 == 0]
    assert len(chosen) > 80
    for what, program in chosen:
        try:
            if np.array_equal(outcome(program).outputs[0], right):
                unnoticed.append(what)
        except OdcError:
            pass
    assert not unnoticed


def test_swapped_posts() -> None:
    for index, instr in enumerate(PROGRAM):
        if len(instr.posts) == 2 and PROGRAM[index + 1].posts:
            program = copies(PROGRAM)
            other = next(i for i in range(index + 1, len(PROGRAM)) if len(PROGRAM[i].posts) == 2)
            program[index].posts, program[other].posts = program[other].posts, program[index].posts
            with pytest.raises(SimulationError):
                outcome(program)
            return
    pytest.fail("the listing has no two instructions with two posts")


def test_clocks() -> None:
    one = with_own(START, Queue.LOAD, 3)
    assert join(one, with_own(START, Queue.MAC, 2)) == with_own(one, Queue.MAC, 2)
    semaphores = Semaphores()
    semaphores.post(4, Queue.LOAD)
    assert not semaphores.ready((4,))
    assert semaphores.left() == {4: 1}
    semaphores.deliver(4, one)
    assert semaphores.ready((4,))
    assert not semaphores.ready((4, 4))
    assert semaphores.take((4,), Queue.MAC, START) == one
    assert semaphores.left() == {}


def test_a_semaphore_does_not_count_beyond_its_width() -> None:
    semaphores = Semaphores()
    for _ in range(65_535):
        semaphores.post(0, Queue.LOAD)
    with pytest.raises(SimulationError, match="semaphore 0 exceeds 65535 tokens"):
        semaphores.post(0, Queue.LOAD)


def test_the_log_compares_with_everything_unordered() -> None:
    """An old conflicting access counts even when newer ones of its queue are in between."""
    log = AccessLog("memory")
    for position in range(5):
        area = box(100 * position, 10)
        assert log.record(Queue.LOAD, position, START, area, 10 + position, write=True) is None
    knows_two = with_own(START, Queue.LOAD, 2)
    assert log.record(Queue.MAC, 0, knows_two, box(100, 10), 20, write=False) is None
    assert log.record(Queue.MAC, 1, knows_two, box(205, 10), 21, write=False) == 12
    assert log.record(Queue.STORE, 0, with_own(START, Queue.LOAD, 9), box(100, 10), 22, write=False) is None
    assert log.record(Queue.STORE, 1, with_own(START, Queue.LOAD, 9), box(100, 10), 23, write=True) == 20
