"""A better machine is not slower: for any program, every resource, and the machines that there are.

Who gets a port first may change with any speed, so that a better machine can lose a little elsewhere: at most a burst
for each time that somebody asked the port, which is each descriptor and each burst of the program.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

import pytest

import cycle_table
from cycle_table import Key
from helpers import npu_listing as listing
from helpers.npu_programs import random_program
from odc_mlir import targets
from odc_mlir.simulator import Program, load, simulate
from odc_mlir.simulator.queues import DMA_ENGINES
from odc_mlir.targets import Target

TRANSFERS = {queue for queues in DMA_ENGINES for queue in queues}


def better(npu: Target) -> dict[str, dict[str, Any]]:
    """Machines with twice of something, or half of a delay."""
    delays = ("latency", "issue", "semaphore", "start")
    changes: dict[str, dict[str, Any]] = {}
    for part in ("sram", "offchip", "tile_ports", "vector", "decoder", "fetch", "dma", "array"):
        record = getattr(npu, part)
        for field in fields(record):
            key, value = field.name, getattr(record, field.name)
            if not isinstance(value, int) or key in ("burst_bytes", "fetch_bytes", "capacity_bytes", "macs_per_cycle"):
                continue
            improved = value // 2 if any(word in key for word in delays) else 2 * value
            changes[f"{part}.{key}"] = {part: replace(record, **{key: improved})}
    return changes


def cycles(program: Program) -> int:
    return simulate(program, execute=False).counters.cycles


def allowance(program: Program) -> float:
    """Cycles of a burst for each descriptor and each burst of the program."""
    npu = program.target
    port = npu.offchip if program.memory == "flash" else npu.sram
    burst = max(p.burst_bytes / p.bytes_per_cycle for p in (port, npu.sram))
    executed = [program.instructions[step.index] for step in program.steps()]
    descriptors = sum(i.queue in TRANSFERS and i.mnemonic != "sync" for i in executed)
    return burst * (descriptors + -(-program.fetched_bytes // port.burst_bytes))


def check(seed: int, name: str, memory: Any) -> None:
    program = random_program(seed, target=name, memory=memory)
    before, most = cycles(program), allowance(program)
    for change, parts in better(program.target).items():
        after = cycles(replace(program, target=replace(program.target, **parts)))
        assert after <= before + most, (seed, change)


CASES = [(name, memory) for name in targets.names() for memory in targets.MEMORY_MODES]


@pytest.mark.parametrize(("name", "memory"), CASES)
def test_any_program_on_a_better_machine(name: str, memory: str) -> None:
    check(CASES.index((name, memory)), name, memory)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_many_programs_on_better_machines() -> None:
    for seed in range(10, 400):
        check(seed, *CASES[seed % len(CASES)])


@pytest.mark.parametrize("memory", targets.MEMORY_MODES)
def test_what_is_better_is_faster_where_it_binds(memory: str) -> None:
    """The test above would pass on machines that ignore their numbers."""
    program = load(listing.packed(memory=memory))
    before, npu = cycles(program), program.target
    gains = {c for c, p in better(npu).items() if cycles(replace(program, target=replace(npu, **p))) < before}
    assert {"sram.bytes_per_cycle", "array.start_cycles", "vector.requant_lanes", "fetch.semaphore_cycles"} <= gains
    assert ("offchip.bytes_per_cycle" in gains) == (memory == "flash")


# Compiled models: a schedule may be worse on the larger machine. What is in these sets is known and to be repaired.
NOT_FASTER_WITH_MORE_MULTIPLIERS = {
    ("ad01_int8", "npu-256", "sram"),
    ("str_ww_ref_model", "npu-256", "sram"),
    ("keras_lstm_mnist_ptq", "npu-256", "flash"),
}
MORE_THAN_HALVED = {("mobilenet_v2_1.0_224_quant", "flash")}


def test_more_multipliers_are_not_slower() -> None:
    table, slower = cycle_table.read(), set()
    for smaller, larger in (("npu-128", "npu-256"), ("npu-256", "npu-512"), ("npu-512", "npu-2048")):
        for key, value in table.items():
            if key.target == larger and value.cycles > table[key._replace(target=smaller)].cycles:
                slower.add(tuple(key))
    assert slower <= NOT_FASTER_WITH_MORE_MULTIPLIERS


def test_half_the_machine_takes_at_most_a_bit_more_than_twice_the_time() -> None:
    table = cycle_table.read()
    halves = [key for key in table if key.target == "npu-128"]
    slow = {
        (key.model, key.memory)
        for key in halves
        if table[key].cycles > 2.2 * table[Key(key.model, "npu-256", key.memory)].cycles
    }
    assert slow <= MORE_THAN_HALVED
