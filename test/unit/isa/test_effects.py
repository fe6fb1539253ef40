"""The declared effects of instructions are what the simulator does: nothing beyond them, and none that it lacks."""

from __future__ import annotations

from collections import Counter

import pytest

from helpers.npu_layers import Body, binary, make_module
from helpers.npu_programs import MNEMONICS, samples
from odc_mlir import targets
from odc_mlir.dialects import npu
from odc_mlir.isa.codec import Instr, split_address
from odc_mlir.isa.compact import read_code
from odc_mlir.isa.container import read
from odc_mlir.isa.fields import Area, Kind, Region
from odc_mlir.simulator.boxes import Box
from odc_mlir.simulator.counters import PortBytes
from odc_mlir.simulator.engines import executors
from odc_mlir.simulator.engines.machine import Machine
from odc_mlir.simulator.memories import Access, Memories, SimulatedMemory
from odc_mlir.simulator.resources import Resource
from odc_mlir.targets import MemoryMode

NPU = targets.load("npu-128")
REGIONS = {int(region): 1 << 20 for region in (Region.ARENA, Region.INPUTS, Region.OUTPUTS)}
Touched = list[tuple[str, int, int]]  # memory, start, end


class Recorder(Access):
    """Notes what an instruction touches."""

    def __init__(self) -> None:
        super().__init__({resource: PortBytes() for resource in Resource}, check=False, strict=False)
        self.seen: dict[bool, Touched] = {False: [], True: []}

    def _bounds(self, space: SimulatedMemory, area: Box, what: str) -> None:
        super()._bounds(space, area, what)
        self.seen[what == "writes"].append((space.name, area.start, area.end))


def many_kinds(body: Body) -> npu.SSAValue:
    x = body.conv(body.block.args[0], 8, kernel=(3, 3), pads=(1, 1, 1, 1), uniform=True)
    wide = body.conv(x, 8, kernel=(3, 3), pads=(1, 1, 1, 1), depthwise=True)
    deep = body.conv(wide, 600)
    x = body.conv(deep, 8)
    x = body.elementwise(npu.ElementwiseKind.ADD, x, body.constant((1, 1, 1, 8)))
    return body.pool(npu.PoolKind.MAX, x, (3, 3), (2, 2), (1, 1, 1, 1))


def places(memories: Memories, instr: Instr, area: Area) -> Touched:
    """Where ``area`` lies: one range, or two in a ring."""
    kind = {field.name: field.kind for field in instr.spec.places}[area.field]
    address = instr[area.field]
    if kind is Kind.MEMORY:
        region, address = split_address(address)
        space = memories.regions[region]
    else:
        space = {
            Kind.TILE: memories.tile,
            Kind.WEIGHT: memories.weights,
            Kind.ACCUMULATOR: memories.accumulators,
            Kind.PARAM: memories.params,
            Kind.TABLE: memories.tables,
        }[kind]
    end = address + area.size
    if area.ring is not None and end > (limit := instr[area.ring[0]] + area.ring[1]):
        return [(space.name, address, limit), (space.name, instr[area.ring[0]], end - area.ring[1])]
    return [(space.name, address, end)]


def compare(instr: Instr, memory: MemoryMode) -> bool:
    """Run an instruction and compare what it touches with what is declared; whether an area wraps in a ring."""
    recorder, wrapped = Recorder(), False
    memories = Memories(NPU, memory, bytes(1 << 16), REGIONS, execute=False)
    executors()[instr.mnemonic](Machine(NPU, memory, memories, recorder, False, {}), instr.values)
    for declared, touched in zip(instr.spec.effects(instr.values), recorder.seen.values(), strict=True):
        found = [places(memories, instr, area) for area in declared]
        wrapped |= any(len(ranges) > 1 for ranges in found)
        flat = [item for ranges in found for item in ranges]
        for name, start, end in touched:
            assert any(name == n and s <= start and end <= e for n, s, e in flat), (instr, name, start, end)
        for ranges in found:
            assert any(n == name and s < end and start < e for n, s, e in ranges for name, start, end in touched), instr
    return wrapped


@pytest.mark.parametrize("mnemonic", [name for name in MNEMONICS if name in executors()])
def test_random_instances_touch_what_is_declared(mnemonic: str) -> None:
    for instr in samples(mnemonic):
        compare(instr, "flash")


@pytest.mark.parametrize("memory", ["sram", "flash"])
def test_the_simulator_touches_what_is_declared(memory: MemoryMode) -> None:
    contents = read(binary(make_module(many_kinds, (1, 40, 20, 8), target="npu-128", memory=memory)))
    seen: Counter[str] = Counter()
    wrapped = 0
    for instr in read_code(contents.code).instructions:
        if instr.mnemonic not in executors():
            continue
        wrapped += compare(instr, memory)
        seen[instr.mnemonic] += 1
    assert set(seen) >= {"load", "store", "wload", "param", "conv", "vop", "pool"}
    assert wrapped
