"""What must hold for every run, on hand-written programs: bounds, sums, windows, monotony, data independence."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np
import pytest

from helpers import npu_listing as listing
from helpers.npu import codes, pack, run
from odc_mlir import targets
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator import MEMORY_MODELS, Result, load, simulate
from odc_mlir.simulator.resources import Resource, widths
from odc_mlir.targets import Target

NPU = targets.load("npu-256")
CASES = [
    (name, memory, model) for name in ("npu-256", "npu-512") for memory in ("flash", "sram") for model in MEMORY_MODELS
]


def simulated(target: str | Target = "npu-256", memory: str = "flash", model: str = "parity", **options: Any) -> Result:
    program = load(listing.packed(target=target, memory=memory))
    return simulate(program, [listing.X], memory_model=model, trace=True, **options)  # type: ignore[arg-type]


@pytest.fixture(scope="module", params=CASES, ids="-".join)
def result(request: pytest.FixtureRequest) -> Result:
    return simulated(*request.param)


def target_of(result: Result) -> Target:
    return targets.load(result.counters.target)


def test_values(result: Result) -> None:
    assert (result.outputs[0] == listing.expected()).all()


def test_the_array_does_no_more_than_it_can(result: Result) -> None:
    """Per instruction: multiplier slots fit in the time that it ran."""
    counters, peak = result.counters, target_of(result).array.macs_per_cycle
    assert result.trace is not None
    for event in result.trace.events:
        instr = result.trace.program.instructions[event.index]
        if instr.mnemonic == "conv":
            macs = math.prod(instr[f] for f in ("out_height", "out_width", "channels", "in_channels")) * 9
            assert macs <= peak * (event.ended - event.alone)
    assert counters.macs_useful <= counters.macs_array <= peak * counters.queues["mac"].busy_cycles


def test_useful_work_is_the_graphs(result: Result) -> None:
    assert result.counters.macs_useful == listing.MACS
    assert [(o.macs, o.executed_macs) for o in result.counters.operators] == [(listing.MACS, listing.MACS), (0, 0)]


def test_no_window_moves_more_than_the_width(result: Result) -> None:
    """Sums over all windows of several lengths; segments hold what was used while time passed."""
    assert result.trace is not None
    width = widths(target_of(result))
    edges = [start for start, _, _ in result.trace.segments] + [result.trace.segments[-1][1]]
    for resource in Resource:
        moved = np.array([(end - start) * usage[resource] for start, end, usage in result.trace.segments])
        total = np.concatenate([[0], np.cumsum(moved)])
        for length in (1, 7, len(edges) - 1):
            for first in range(len(edges) - length):
                bytes_moved, cycles = total[first + length] - total[first], edges[first + length] - edges[first]
                assert bytes_moved <= width[resource] * cycles * (1 + 1e-9) + 1e-6


def test_segments_hold_all_that_was_counted(result: Result) -> None:
    assert result.trace is not None
    for resource in (Resource.OFFCHIP, Resource.SRAM, Resource.TILE_READ, Resource.TILE_WRITE):
        moved = sum((end - start) * usage[resource] for start, end, usage in result.trace.segments)
        port = result.counters.ports[resource.name.lower()]
        assert moved == pytest.approx(port.read_bytes + port.write_bytes, rel=1e-6)


def test_the_roofline(result: Result) -> None:
    counters, npu = result.counters, target_of(result)
    fixed = counters.constant_bytes + counters.program_bytes
    moved = listing.X.nbytes + result.outputs[0].nbytes
    if counters.memory == "sram":
        fixed, moved = 0, moved + fixed
    bounds = (
        counters.macs_useful / npu.array.macs_per_cycle,
        fixed / npu.offchip.bytes_per_cycle,
        moved / npu.sram.bytes_per_cycle,
    )
    assert counters.cycles >= max(bounds)


def test_constants_are_read_at_least_once(result: Result) -> None:
    counters = result.counters
    assert counters.constant_bytes_read >= counters.constant_bytes
    assert counters.arena_bytes == len(listing.CONSTANTS)
    assert counters.sram_peak_bytes == counters.arena_bytes + listing.X.nbytes + result.outputs[0].nbytes
    assert counters.program_bytes_fetched >= counters.program_bytes
    if counters.memory == "flash":
        offchip = counters.ports["offchip"]
        assert offchip.read_bytes == counters.constant_bytes_read + counters.program_bytes_fetched


def test_the_total_covers_every_queue(result: Result) -> None:
    counters = result.counters
    for name, queue in counters.queues.items():
        assert queue.busy_cycles <= counters.cycles
        total = queue.busy_cycles + sum(queue.stall_cycles.values()) + queue.idle_cycles
        assert total == pytest.approx(counters.cycles), name
    busy = sum(queue.busy_cycles for queue in counters.queues.values())
    waits = sum(len(instr.waits) + len(instr.posts) for instr in listing.instructions())
    npu = target_of(result)
    latencies = waits * npu.fetch.semaphore_cycles + counters.queues["fetch"].stall_cycles["program"] + 1
    assert counters.cycles <= busy + latencies


def test_operators_add_up_to_their_queues(result: Result) -> None:
    counters = result.counters
    busy: dict[str, float] = {}
    for operator in counters.operators:
        for queue, cycles in operator.busy_cycles.items():
            busy[queue] = busy.get(queue, 0.0) + cycles
        assert 0 < operator.first_cycle < operator.last_cycle <= counters.cycles
    for name in ("mac", "vector", "load", "store"):
        assert busy[name] == pytest.approx(counters.queues[name].busy_cycles)


def test_timing_only_gives_the_same_counters(result: Result) -> None:
    assert result.trace is not None
    again = simulate(result.trace.program, memory_model=result.counters.memory_model, execute=False)  # type: ignore[arg-type]
    assert again.counters.to_dict() == result.counters.to_dict()
    assert again.outputs == ()


def test_data_do_not_change_cycles() -> None:
    program = load(listing.packed())
    results = [simulate(program, [codes(np.random.default_rng(seed), *listing.X.shape)]) for seed in range(4)]
    assert len({repr(r.counters.to_dict()) for r in results}) == 1
    assert len({r.outputs[0].tobytes() for r in results}) == 4


def test_runs_are_deterministic() -> None:
    first, second = simulated(), simulated()
    assert first.trace is not None
    assert second.trace is not None
    assert first.trace.events == second.trace.events
    assert first.counters.to_dict() == second.counters.to_dict()


def scaled(record: Any, **factors: float) -> Any:
    return dataclasses.replace(record, **{key: int(getattr(record, key) * f) for key, f in factors.items()})


def test_strict_is_not_faster() -> None:
    for memory in ("flash", "sram"):
        assert simulated(memory=memory, model="strict").counters.cycles >= simulated(memory=memory).counters.cycles


def test_in_program_order_nothing_is_gained() -> None:
    """With a fence behind every instruction, all is serial: slower than overlapped, and the sum of the parts."""
    program = [dataclasses.replace(i, waits=(), posts=()) for i in listing.instructions() if i.mnemonic != "sync"]
    fenced = []
    for instr in program[:-1]:
        fenced += [
            dataclasses.replace(instr, posts=(int(instr.queue),)),
            listing.make("sync", waits=[int(instr.queue)]),
        ]
    serial = simulate(load(listing.packed([*fenced, program[-1]], operators=())), [listing.X], trace=True)
    assert (serial.outputs[0] == listing.expected()).all()
    assert serial.counters.cycles > simulated().counters.cycles
    assert serial.trace is not None
    assert all(event.contended < NPU.offchip.burst_bytes * 2 for event in serial.trace.events)


def test_without_memory_only_the_array_is_left() -> None:
    """Infinitely wide memories without latency and an instant fetch: the array's own formula remains."""
    wide = {"bytes_per_cycle": 1 << 16, "read_latency_cycles": 0, "write_latency_cycles": 0}
    npu = dataclasses.replace(
        NPU,
        name="ideal",
        sram=dataclasses.replace(NPU.sram, **wide),
        offchip=dataclasses.replace(NPU.offchip, **wide),
        tile_ports=dataclasses.replace(NPU.tile_ports, read_bytes_per_cycle=1 << 16, write_bytes_per_cycle=1 << 16),
        vector=dataclasses.replace(NPU.vector, requant_lanes=1 << 16, reduce_lanes=1 << 16, start_cycles=0),
        decoder=dataclasses.replace(NPU.decoder, symbols_per_cycle=1 << 16, start_cycles=0),
        fetch=dataclasses.replace(NPU.fetch, issue_cycles=0, semaphore_cycles=0),
    )
    cycles = simulate(load(listing.packed(target=npu)), execute=False).counters.cycles
    tiles = math.ceil(2 * listing.WIDTH / 16) * math.ceil(listing.RESULTS / 16)
    per_stripe = NPU.array.start_cycles + tiles * 9 * listing.CHANNELS
    assert cycles == listing.STRIPES * per_stripe + 1  # the last pool and store take next to nothing


def test_transfers_scale() -> None:
    """Twice every latency, half every width: twice the time for a program that only transfers."""
    slow = dataclasses.replace(
        NPU,
        name="slow",
        sram=scaled(NPU.sram, bytes_per_cycle=0.5, read_latency_cycles=2, write_latency_cycles=2),
        fetch=scaled(NPU.fetch, issue_cycles=2, semaphore_cycles=2),
    )
    text = "".join(
        f"load source=inputs:{512 * i} target={512 * i} size0=512 size1=1 size2=1 post=0\n"
        f"store target=outputs:{512 * i} source={512 * i} size0=512 size1=1 size2=1 wait=0\n"
        for i in range(8)
    )
    x = codes(np.random.default_rng(0), 4096)
    options: dict[str, Any] = {"inputs": [(4096,)], "outputs": [(4096,)], "memory": "sram"}
    once, slowly = (run(text + "halt", [x], target=npu, **options).counters for npu in (NPU, slow))
    assert slowly.cycles == pytest.approx(2 * once.cycles, abs=1)


def test_twice_the_work_is_at_most_twice_the_time() -> None:
    """Two runs behind each other, with fences in between because the second overwrites what the first still uses."""
    *program, halt = listing.instructions()
    queues = (Queue.MAC, Queue.VECTOR, Queue.STORE)
    fences = [listing.make("sync", queue=queue.name, posts=[10 + int(queue)]) for queue in queues]
    fences += [listing.make("sync", waits=[10 + int(queue)]) for queue in queues]
    twice = simulate(load(listing.packed([*program, *fences, *program, halt], operators=())), [listing.X])
    assert (twice.outputs[0] == listing.expected()).all()
    alone = simulate(load(listing.packed([*fences, halt], operators=())), execute=False)
    assert twice.counters.cycles <= 2 * simulated().counters.cycles + alone.counters.cycles


@pytest.mark.parametrize("name", targets.names())
def test_a_run_reports_the_hardware_that_it_used(name: str) -> None:
    """The budget's test compares targets; here the numbers are those that the run was timed with."""
    npu = targets.load(name)
    hardware = run("halt", target=name).counters.hardware
    assert hardware["macs_per_cycle"] == npu.array.macs_per_cycle
    assert hardware["requant_lanes"] == npu.vector.requant_lanes
    assert hardware["local_memory_bytes"] == npu.local.total_bytes
    more = dataclasses.replace(npu, name="more", vector=scaled(npu.vector, requant_lanes=2))
    assert run("halt", target=more).counters.hardware["requant_lanes"] == 2 * npu.vector.requant_lanes


def test_no_run_uses_more_local_memory_than_there_is() -> None:
    peak = simulated().counters.local_peak_bytes
    local = NPU.local
    assert peak["tile_buffer"] == 2 * (listing.INPUT_BYTES + listing.SUM_BYTES + listing.POOL_BYTES)
    assert peak["weight_buffer"] == len(listing.CODED)
    assert peak["parameter_buffer"] == listing.RESULTS * local.param_entry_bytes
    assert sum(peak.values()) <= local.total_bytes


def test_the_container_is_all_a_run_needs() -> None:
    """The same bytes give the same run in a fresh load; another constant byte gives other values."""
    data = bytearray(listing.packed())
    again = simulate(load(bytes(data)), [listing.X])
    assert (again.outputs[0] == listing.expected()).all()
    other = bytearray(listing.CONSTANTS)
    other[5] ^= 0x40
    changed = simulate(load(listing.packed(constants=bytes(other))), [listing.X])
    assert (changed.outputs[0] != listing.expected()).any()
    assert pack("halt") != bytes(data)
