"""Queues, semaphores, fetch, loops and halt: who waits for whom, and for how long."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from helpers.npu import codes, pack, program, run
from odc_mlir import targets
from odc_mlir.errors import InputError, OptionError, SimulationError
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator import Result, load, simulate
from odc_mlir.simulator.trace import TraceEvent
from odc_mlir.targets import Target

NPU = targets.load("npu-256")
BYTES = codes(np.random.default_rng(0), 4096, dtype="uint8")
SOURCE: dict[str, Any] = {"inputs": [("uint8", (4096,))]}
IO = SOURCE | {"outputs": [("uint8", (4096,))]}
FETCH = NPU.fetch


def event(result: Result, index: int) -> TraceEvent:
    assert result.trace is not None
    return next(e for e in result.trace.events if e.index == index)


def tiles(count: int, extra: str = "") -> str:
    """Loads of 1 KiB each into the tile buffer."""
    return "".join(
        f"load source=inputs:{1024 * (i % 4)} target={1024 * i} size0=1024 size1=1 size2=1 {extra}\n"
        for i in range(count)
    )


def flat(**changes: Any) -> Target:
    """npu-256 with instructions that arrive and issue at once, so that other times stand out."""
    fetch = dataclasses.replace(FETCH, issue_cycles=0, semaphore_cycles=0, **changes)
    offchip = dataclasses.replace(NPU.offchip, bytes_per_cycle=1 << 16, read_latency_cycles=0)
    return dataclasses.replace(NPU, name="flat", fetch=fetch, offchip=offchip)


def test_an_empty_program_costs_its_own_fetch() -> None:
    result = run("halt")
    burst = NPU.offchip.burst_bytes
    assert result.counters.cycles == NPU.offchip.read_latency_cycles + burst + FETCH.issue_cycles
    assert result.counters.program_bytes_fetched == result.counters.ports["offchip"].read_bytes == burst
    assert result.counters.halt_status == 0
    assert run("halt status=7", memory="sram").counters.halt_status == 7
    assert run("halt", memory="sram").counters.ports["offchip"].read_bytes == 0
    assert run("halt", memory="sram").counters.cycles == 32 + 32 / 8 + FETCH.issue_cycles


def test_instructions_arrive_no_faster_than_the_port() -> None:
    """80 syncs of 16 bytes: ten bursts of 128 at 1 byte a cycle, and then the last eight are issued."""
    result = run("sync@mac\n" * 79 + "halt")
    assert result.counters.program_bytes_fetched == 1280
    assert result.counters.cycles == 64 + 1280 + 8 * FETCH.issue_cycles
    assert result.counters.queues["fetch"].stall_cycles["program"] > 1000


def test_a_semaphore_costs_its_cycles() -> None:
    """The wait is over two cycles after the load's last byte."""
    result = run(tiles(1, "post=9") + "sync@mac wait=9\nhalt", [BYTES], **SOURCE, memory="sram")
    assert event(result, 1).started == event(result, 0).ended + FETCH.semaphore_cycles


def test_compute_queues_run_one_instruction_at_a_time() -> None:
    text = "fill bytes=4096 post=0\nsync@vector wait=0\n"
    vop = "vop kind=copy size0=800 size1=1 size2=1 a_stride0=1 output={}\n"
    result = run(text + vop.format(8192) + vop.format(9216) + "halt", target=flat())
    first, second = event(result, 2), event(result, 3)
    assert second.started == first.ended
    assert second.ended - second.started == pytest.approx(NPU.vector.start_cycles + 800 / NPU.vector.requant_lanes)


def test_a_full_queue_blocks_what_is_behind_it() -> None:
    """The vector queue's first instruction waits; 16 more fill the queue; the next load is not even issued."""
    many = "sync@vector wait=0\n" + "sync@vector\n" * FETCH.queue_depth
    result = run("fill bytes=8000 post=0\n" + many + tiles(1) + "halt", [BYTES], **SOURCE, target=flat())
    assert event(result, FETCH.queue_depth + 2).started == event(result, 0).ended
    assert result.counters.queues["fetch"].stall_cycles["queue_full"] > 0
    shorter = "sync@vector wait=0\n" + "sync@vector\n" * (FETCH.queue_depth - 1)
    result = run("fill bytes=8000 post=0\n" + shorter + tiles(1) + "halt", [BYTES], **SOURCE, target=flat())
    assert event(result, FETCH.queue_depth + 1).started < event(result, 0).ended


def test_two_queues_share_the_port() -> None:
    """A load and a store of 1 KiB at the same time take 4 bytes a cycle each."""
    text = "fill target=8192 bytes=1024 post=0\nsync@fetch wait=0\n"
    text += tiles(1) + "store target=outputs:0 source=8192 size0=1024 size1=1 size2=1\nhalt"
    result = run(text, [BYTES], **SOURCE, outputs=[(1024,)], target=flat())
    load_event, store_event = event(result, 2), event(result, 3)
    assert load_event.started == pytest.approx(store_event.started)
    assert load_event.ended - load_event.started == pytest.approx(32 + 1024 / 4)
    assert load_event.contended == pytest.approx(1024 / 4 - 1024 / 8)
    assert result.counters.queues["load"].contended_cycles == pytest.approx(load_event.contended)


def test_fetch_shares_its_port_with_weights() -> None:
    """While constants stream at 1 byte a cycle, the program gets half of it."""
    text = "copy source=constants:0 target=arena:0 bytes=4096\n" + "sync@mac\n" * 40 + "halt"
    alone = run(text.replace("copy source=constants:0", "copy source=inputs:0"), [BYTES], **SOURCE, arena=4096)
    shared = run(text, constants=bytes(4096), arena=4096)
    assert event(alone, 40).started < 850
    assert event(shared, 40).started > 1100
    assert shared.counters.ports["offchip"].read_bytes == 4096 + shared.counters.program_bytes_fetched


def test_queue_times_add_up() -> None:
    result = run(tiles(4, "post=0") + "sync@mac wait=0,0\nsync@mac wait=0,0\nhalt", [BYTES], **SOURCE)
    for name, queue in result.counters.queues.items():
        total = queue.busy_cycles + sum(queue.stall_cycles.values()) + queue.idle_cycles
        assert total == pytest.approx(result.counters.cycles), name
    assert result.counters.queues["mac"].stall_cycles["semaphore"] > 100
    assert result.counters.queues["load"].instructions == 4


def test_a_deadlock_names_every_waiting_queue() -> None:
    text = "sync@mac wait=3\nsync@load wait=4 post=3\nhalt"
    with pytest.raises(SimulationError) as raised:
        run(text)
    message = str(raised.value)
    assert message.startswith("deadlock at cycle ")
    assert "queue mac: instruction 0 (sync) waits for semaphores 3" in message
    assert "queue load: instruction 1 (sync) waits for semaphores 4" in message
    assert "queue fetch: instruction 2 (halt) waits for the queues to be empty" in message


def test_a_fetch_that_waits_for_itself_is_a_deadlock() -> None:
    with pytest.raises(SimulationError, match=r"queue fetch: instruction 0 \(sync\) waits for semaphore"):
        run("sync@fetch wait=0\nsync@mac post=0\nhalt")
    full = "sync@mac wait=0\n" + "sync@mac\n" * 20 + "sync@load post=0\nhalt"
    with pytest.raises(SimulationError, match=r"queue fetch: instruction 16 \(sync\) waits for room in its queue"):
        run(full)


def test_tokens_left_at_halt_are_an_error() -> None:
    with pytest.raises(SimulationError, match="semaphores are not zero at halt: 2 holds 1, 7 holds 2"):
        run("sync@mac post=2,7\nsync@mac post=7\nhalt")


def test_the_same_semaphore_twice_takes_two_tokens() -> None:
    result = run("sync@load wait=1,1\nsync@mac post=1\nsync@mac post=1\nhalt")
    assert event(result, 0).started > event(result, 2).ended
    with pytest.raises(SimulationError, match="deadlock"):
        run("sync@load wait=1,1\nsync@mac post=1\nhalt")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sync@mac post=1\nsync@load post=1\n", "semaphore 1 is posted by queue load and by queue mac"),
        (
            "sync@mac post=1\nsync@mac post=1\nsync@load wait=1\nsync@store wait=1\n",
            "semaphore 1 is waited on by queue",
        ),
    ],
)
def test_a_semaphore_connects_two_queues(text: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        run(text + "halt")


def test_a_fence_in_the_fetch_engine_orders_everything() -> None:
    """What is issued after it starts after the load that it waited for, without a semaphore of its own."""
    text = tiles(1, "post=0") + "sync@fetch wait=0\nstore target=outputs:0 source=0 size0=1024 size1=1 size2=1\nhalt"
    result = run(text, [BYTES], **SOURCE, outputs=[("uint8", (1024,))])
    assert (result.outputs[0] == BYTES[:1024]).all()
    assert event(result, 2).started > event(result, 0).ended
    with pytest.raises(SimulationError, match=r"parts of which were never written|in a race"):
        run(text.replace("sync@fetch wait=0\n", "").replace("post=0", ""), [BYTES], **SOURCE, outputs=[(1024,)])


LOOP = """
    loop count=4 body_bytes=128
    load source=inputs:0 target=0 size0=1024 size1=1 size2=1 step.source=1024 step.target=1024 post=1
    store target=outputs:0 source=0 size0=1024 size1=1 size2=1 step.target=1024 step.source=1024 wait=1
    sync@load
    sync@store
    end
    halt"""


def test_a_loop_is_its_unrolled_program() -> None:
    unrolled = "".join(
        f"load source=inputs:{1024 * i} target={1024 * i} size0=1024 size1=1 size2=1 post=1\n"
        f"store target=outputs:{1024 * i} source={1024 * i} size0=1024 size1=1 size2=1 wait=1\n"
        "sync@load\nsync@store\n"
        for i in range(4)
    )
    looped, straight = run(LOOP, [BYTES], **IO), run(unrolled + "halt", [BYTES], **IO)
    assert (looped.outputs[0] == straight.outputs[0]).all()
    assert (looped.outputs[0] == BYTES).all()
    # loop, four times the body and its end, halt
    assert looped.counters.instructions == straight.counters.instructions + 1 + 4
    assert looped.counters.ports["sram"] == straight.counters.ports["sram"]
    assert looped.counters.program_bytes_fetched == 256
    assert straight.counters.program_bytes_fetched == 512


def test_a_body_longer_than_the_loop_buffer_is_fetched_every_time() -> None:
    small = dataclasses.replace(NPU, name="small", fetch=dataclasses.replace(FETCH, loop_buffer_bytes=127))
    exact = dataclasses.replace(NPU, name="exact", fetch=dataclasses.replace(FETCH, loop_buffer_bytes=128))
    fetched = [run(LOOP, [BYTES], **IO, target=npu).counters.program_bytes_fetched for npu in (small, exact)]
    assert fetched == [-(-(16 + 4 * 144 + 16) // 128) * 128, 256]


def test_steps_that_leave_the_field_are_an_error() -> None:
    text = LOOP.replace("step.target=1024 post", "step.target=-1024 post")
    with pytest.raises(SimulationError, match="iteration 1 steps field target of load to -1024"):
        run(text, [BYTES], **IO)


def test_waits_and_posts_of_loop_and_end() -> None:
    text = "sync@mac post=0\nloop count=3 body_bytes=16 wait=0\nsync@mac wait=2\nend post=2\nhalt"
    assert run(text).counters.instructions == 1 + 1 + 3 * 2 + 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the program has no halt"),
        ("sync@mac\n", "the program has no halt"),
        ("loop count=1 body_bytes=16\nsync@mac\n", "the program ends inside a loop"),
        ("loop count=1 body_bytes=16\nloop count=1 body_bytes=16\nhalt", r"instruction 1 \(loop\) is inside a loop"),
        ("loop count=1 body_bytes=16\nhalt", r"instruction 1 \(halt\) is inside a loop"),
        ("loop count=0 body_bytes=16\nsync@mac\nend\nhalt", "repeats 16 bytes 0 times"),
        ("loop count=1 body_bytes=0\nend\nhalt", "repeats 0 bytes 1 times"),
        ("loop count=1 body_bytes=32\nsync@mac\nend\nhalt", r"instruction 2 \(end\) does not close a loop whose body"),
        ("end\nhalt", r"instruction 0 \(end\) does not close"),
        ("copy step.source=0\nhalt", r"instruction 0 \(copy\) has address steps but is not in a loop"),
    ],
)
def test_the_structure_is_checked_when_loading(text: str, message: str) -> None:
    with pytest.raises(SimulationError, match=message):
        program(text)


def test_limits() -> None:
    loaded = program("loop count=1000 body_bytes=16\nsync@mac\nend\nhalt")
    assert loaded.dynamic_instructions == 2002
    assert simulate(loaded, instruction_limit=2002).counters.instructions == 2002
    with pytest.raises(SimulationError, match="the program issues 2002 instructions, more than 2001"):
        simulate(loaded, instruction_limit=2001)
    needed = simulate(loaded).counters.cycles
    assert simulate(loaded, cycle_limit=needed).counters.cycles == needed
    with pytest.raises(SimulationError, match=f"the cycle limit of {needed - 1} is exceeded"):
        simulate(loaded, cycle_limit=needed - 1)


def test_inputs_are_checked() -> None:
    loaded = program("halt", inputs=[("uint8", (2, 3))])
    for values, message in (
        ([], "the program's inputs: 0 given, expected 1"),
        ([np.zeros((3, 2), "uint8")], r"input is uint8 \[3, 2\], expected uint8 \[2, 3\] \(in|\(tensor"),
        ([np.zeros((2, 3), "int8")], "input is int8"),
    ):
        with pytest.raises(InputError, match=message):
            simulate(loaded, values)
    with pytest.raises(OptionError, match="memory model 'exact' is not one of parity, strict"):
        simulate(loaded, memory_model="exact")  # type: ignore[arg-type]


def test_wide_inputs_and_outputs_are_little_endian() -> None:
    x = codes(np.random.default_rng(3), 16, dtype="int16")
    text = "load source=inputs:0 size0=32 size1=1 size2=1 post=0\n"
    text += "store target=outputs:0 source=0 size0=32 size1=1 size2=1 wait=0\nhalt"
    io = {"inputs": [("int16", (16,))], "outputs": [("int16", (16,))]}
    assert (run(text, [x.astype(">i2").astype("<i2")], **io).outputs[0] == x).all()


def test_runs_do_not_share_state() -> None:
    loaded = load(pack(LOOP, **IO))
    first, second = simulate(loaded, [BYTES]), simulate(loaded, [BYTES[::-1].copy()])
    assert (first.outputs[0] == BYTES).all()
    assert (second.outputs[0] == BYTES[::-1]).all()
    assert first.counters.to_dict() == second.counters.to_dict()


def test_queues_of_one_engine_take_turns() -> None:
    """Three queues with ready descriptors: each gets every third slot, none starves."""
    text = "fill target=16384 bytes=64 post=0\nsync@store wait=0\n"
    for i in range(4):
        text += f"load source=inputs:0 target={64 * i} size0=64 size1=1 size2=1\n"
        text += f"store target=outputs:{64 * i} source=16384 size0=64 size1=1 size2=1\n"
        text += f"wload source=inputs:0 target={64 * i} coded_bytes=64 bytes=64\n"
    result = run(text + "halt", [BYTES], **SOURCE, outputs=[("uint8", (256,))], target=flat())
    assert result.trace is not None
    order = [e.queue for e in sorted(result.trace.events, key=lambda e: e.started) if e.index > 4]
    positions = {
        queue: [i for i, q in enumerate(order) if q == queue] for queue in (Queue.LOAD, Queue.STORE, Queue.WEIGHT)
    }
    assert all(max(np.diff(places)) <= 4 for places in positions.values())
