"""The cost that an instruction declares is the one that executing it counts, for every instruction."""

from __future__ import annotations

import dataclasses

import pytest

from helpers.npu_programs import CONSTANT_BYTES, MNEMONICS, REGIONS, instances
from odc_mlir import targets
from odc_mlir.errors import SimulationError
from odc_mlir.isa.codec import Instr
from odc_mlir.isa.fields import Cost
from odc_mlir.isa.instructions import BY_MNEMONIC
from odc_mlir.simulator.counters import PortBytes
from odc_mlir.simulator.engines import executors
from odc_mlir.simulator.engines.machine import Machine
from odc_mlir.simulator.memories import Access, Memories
from odc_mlir.simulator.resources import Resource
from odc_mlir.simulator.stepped import Charge, charge
from odc_mlir.targets import MemoryMode, Target

EXECUTED = [name for name in MNEMONICS if name in executors()]


def counted(instr: Instr, npu: Target, memory: MemoryMode, *, strict: bool) -> Charge:
    """What the fast simulator charges."""
    access = Access({resource: PortBytes() for resource in Resource}, check=False, strict=strict)
    memories = Memories(npu, memory, bytes(CONSTANT_BYTES), REGIONS, execute=False)
    work = executors()[instr.mnemonic](Machine(npu, memory, memories, access, False, {}), instr.values)
    access.demands[Resource.REQUANT] += work.lanes
    access.demands[Resource.DECODER] += work.symbols
    amounts = {resource: amount for resource, amount in zip(Resource, access.demands, strict=True) if amount}
    return Charge(access.latency, work.start, max(work.shortest, access.shortest), amounts, work.drain)


@pytest.mark.parametrize("mnemonic", EXECUTED)
def test_declared_and_counted_charges_are_equal(mnemonic: str) -> None:
    compared = 0
    for npu in map(targets.load, targets.names()):
        for memory, strict in (("flash", False), ("sram", True)):
            for instr in instances(mnemonic):
                try:
                    expected = counted(instr, npu, memory, strict=strict)
                except SimulationError:  # of those made by hand, some are too large for the smallest target
                    continue
                found = charge(instr.spec, instr.values, npu, memory, strict=strict)
                assert dataclasses.replace(found, amounts={}) == dataclasses.replace(expected, amounts={}), instr
                assert found.amounts == pytest.approx(expected.amounts), instr
                compared += 1
    assert compared > 40


@pytest.mark.parametrize("mnemonic", [name for name in EXECUTED if BY_MNEMONIC[name].cost.text])
def test_another_cost_is_noticed(mnemonic: str) -> None:
    """Each charged line of each formula decides: one cycle or one unit more is a difference."""
    spec, npu = BY_MNEMONIC[mnemonic], targets.load("npu-256")
    for line in spec.cost.text.splitlines():
        name = line.partition(" = ")[0]
        more = dataclasses.replace(spec, cost=Cost(f"{spec.cost.text}\n{name} = {name} + 1"))
        if name not in ("start", "shortest", "drain", "lanes", "symbols") and not name.endswith(("_reads", "_writes")):
            continue
        instr = instances(mnemonic)[0]
        found = charge(more, instr.values, npu, "flash", strict=False)
        assert found != counted(instr, npu, "flash", strict=False)
