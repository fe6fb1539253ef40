"""Loading: which hardware a program runs on, its map, its loops."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from helpers import npu_listing as listing
from helpers.npu import pack, program, run
from odc_mlir import simulator, targets
from odc_mlir.errors import PackageError, TargetError
from odc_mlir.isa import container
from odc_mlir.isa.container import MapEntry
from odc_mlir.simulator import load, simulate
from odc_mlir.simulator.program import TARGET_DESCRIPTION

NPU = targets.load("npu-256")


@pytest.mark.parametrize("name", targets.names())
@pytest.mark.parametrize("memory", targets.MEMORY_MODES)
def test_the_target_is_found_by_name(name: str, memory: targets.MemoryMode) -> None:
    loaded = program("halt", target=name, memory=memory)
    assert loaded.target == targets.load(name)
    assert loaded.memory == memory


def without_description(data: bytes) -> bytes:
    contents = container.read(data)
    metadata = {key: value for key, value in contents.metadata.items() if key != TARGET_DESCRIPTION}
    return container.write(dataclasses.replace(contents, metadata=metadata))


def test_a_target_of_ones_own_travels_with_the_program() -> None:
    mine = dataclasses.replace(NPU, name="mine", vector=dataclasses.replace(NPU.vector, requant_lanes=4))
    data = pack("halt", target=mine)
    assert load(data).target == mine
    bare = without_description(data)
    with pytest.raises(TargetError, match="compiled for target 'mine', which is not known here"):
        load(bare)
    assert load(bare, target=mine).target is mine


def test_a_program_runs_on_its_own_hardware_only() -> None:
    slower = dataclasses.replace(NPU, vector=dataclasses.replace(NPU.vector, requant_lanes=4))
    for target in (slower, "npu-512"):
        with pytest.raises(TargetError, match="was compiled for another version of target 'npu-256'"):
            load(pack("halt"), target=target)
    with pytest.raises(TargetError, match="another version of target 'npu-256' or another memory mode"):
        load(pack("halt", target=slower))


def test_the_description_must_be_one() -> None:
    contents = container.read(pack("halt", target=dataclasses.replace(NPU, name="mine")))
    for text, message in (("{", "not a canonical target description"), ("{}", "missing key 'name'")):
        data = container.write(dataclasses.replace(contents, metadata={**contents.metadata, TARGET_DESCRIPTION: text}))
        with pytest.raises(TargetError, match=message):
            load(data, location="x.npu")


@pytest.mark.parametrize("ranges", [((0, 9),), ((0, 0),), ((0, 1), (0, 1)), ((5, 1),)])
def test_the_map_must_fit_the_program(ranges: tuple[tuple[int, int], ...]) -> None:
    with pytest.raises(PackageError, match="the map gives instructions"):
        load(pack("sync@mac\nhalt", operators=(MapEntry("a", "ADD", 0, 0, ranges),)))


def test_the_map_blames_operators() -> None:
    loaded = load(listing.packed())
    assert [loaded.owners.count(number) for number in (-1, 0, 1)] == [8, 16, 16]
    result = simulate(loaded, [listing.X])
    conv, pool = result.counters.operators
    assert (conv.name, conv.kind, conv.instructions) == ("conv", "CONV_2D", 16)
    assert set(conv.busy_cycles) == {"load", "mac"}
    assert set(pool.busy_cycles) == {"vector", "store"}
    assert conv.first_cycle < pool.first_cycle < conv.last_cycle < pool.last_cycle


def test_loops_are_counted_without_running_them() -> None:
    loaded = program("loop count=5 body_bytes=32\nsync@mac\nsync@load\nend\nsync@mac\nhalt")
    assert loaded.dynamic_instructions == len(list(loaded.steps())) == 1 + 5 * 3 + 2
    assert loaded.fetched_bytes == 6 * 16


def test_counters_are_json() -> None:
    result = run("sync@mac\nhalt", operators=(MapEntry("a", "ADD", 0, 0, ((0, 1),)),))
    document = json.loads(json.dumps(result.counters.to_dict()))
    assert document["cycles"] == result.counters.cycles
    assert document["operators"][0]["name"] == "a"
    assert document["hardware"]["macs_per_cycle"] == 256


def test_the_package_offers_what_it_says() -> None:
    assert all(getattr(simulator, name) is not None for name in simulator.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = simulator.nothing


def test_inputs_may_lie_in_the_arena() -> None:
    """A driver may bind inputs inside the arena, where they are overwritten later."""
    contents = container.read(
        pack(
            "load source=arena:0 size0=16 size1=1 size2=1 post=0\n"
            "store target=arena:0 source=0 size0=16 size1=1 size2=1 wait=0\nhalt",
            arena=16,
        )
    )
    place = container.TensorRecord("x", "int8", (16,), None, 0, 1, 0)
    data = container.write(dataclasses.replace(contents, inputs=(place,), outputs=(place,)))
    x = np.arange(16, dtype="int8")
    assert (simulate(load(data), [x]).outputs[0] == x).all()
