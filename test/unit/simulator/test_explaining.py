"""Why a run takes its cycles: the path has no gaps, causes add up, and what is said to help does."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any

import pytest

from helpers import npu_listing as listing
from helpers.npu import program
from helpers.npu_programs import random_program
from odc_mlir import targets
from odc_mlir.isa.container import MapEntry
from odc_mlir.simulator import Program, explain, load, simulate
from odc_mlir.simulator.explaining import SPAN_PARTS, WHAT_IFS, causes_of
from odc_mlir.simulator.path import CAUSES, PathSpan, critical_path
from odc_mlir.simulator.resources import Resource
from odc_mlir.simulator.trace import TraceEvent, edges, windows
from validation_set import cases

CASES = [(seed, name, memory) for seed, name in enumerate(targets.names()) for memory in targets.MEMORY_MODES]
REGION = 1 << 15


def validation(name: str) -> Program:
    case = next(case for case in cases() if case.name == name)
    sizes: dict[str, Any] = {"constants": bytes(REGION), "arena": REGION}
    sizes |= {"inputs": [("uint8", (REGION,))], "outputs": [("uint8", (REGION,))]}
    return program(case.text, target=case.target, memory=case.memory, **sizes)


def causes(loaded: Program) -> dict[str, float]:
    found: dict[str, float] = explain(loaded)["causes"]
    return found


@pytest.mark.parametrize(("seed", "name", "memory"), CASES)
@pytest.mark.parametrize("model", ["parity", "strict"])
def test_the_path_covers_every_cycle_once(seed: int, name: str, memory: Any, model: Any) -> None:
    result = simulate(random_program(seed, target=name, memory=memory), execute=False, trace=True, memory_model=model)
    assert result.trace is not None
    path = critical_path(result.trace)
    assert path[0].begin == pytest.approx(0, abs=1e-5)
    assert result.counters.cycles - 1 - 1e-5 < path[-1].end <= result.counters.cycles + 1e-5
    for span, after in pairwise(path):
        assert span.end == pytest.approx(after.begin, abs=1e-5)
    for span in path:
        assert sum(span.causes.values()) == pytest.approx(span.end - span.begin, abs=1e-5)
        assert set(span.causes) <= set(CAUSES)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("load", {"fetch": 42, "latency": 32, "sram": 128}),
        ("load of padding", {"fetch": 42, "latency": 32, "tile_ports": 127.5}),
        ("copy from flash", {"fetch": 194, "latency": 96, "offchip": 1024}),
        ("weights", {"fetch": 38, "latency": 32, "decoder": 16, "sram": 128}),
        ("pointwise convolution", {"fetch": 46, "array": 24 + 64, "lanes": 32}),
        ("short sums", {"fetch": 46, "array": 24, "lanes": 64 + 32}),
        ("depthwise row of one channel", {"fetch": 46, "array": 24, "tile_ports": 27, "lanes": 32}),
        ("kept accumulators", {"fetch": 46, "array": 24 + 32}),
        ("pooling", {"fetch": 42, "vector": 12 + 576}),
        ("load, convolution, store", {"fetch": 50, "latency": 64, "sram": 64, "array": 88, "lanes": 32, "token": 4}),
        # the store ends last; what it loses to the load is the port's as well
        ("load beside store", {"fetch": 48, "latency": 32, "sram": 254}),
        ("a fence", {"fetch": 44, "tile_ports": 256, "token": 2}),
    ],
)
def test_causes_of_small_programs(name: str, expected: dict[str, float]) -> None:
    found = causes(validation(name))
    rest = sum(found.values()) - sum(expected.values())
    assert 0 <= rest < 1  # of the last cycle
    assert found == pytest.approx(expected, rel=0.02, abs=1)


def test_causes_add_up_for_every_operator() -> None:
    for memory in targets.MEMORY_MODES:
        loaded = load(listing.packed(memory=memory))
        found, cycles = explain(loaded), simulate(loaded, execute=False).counters.cycles
        assert found["cycles"] == cycles == sum(operator["cycles"] for operator in found["operators"])
        for operator in found["operators"]:
            assert sum(operator["causes"].values()) == pytest.approx(operator["cycles"], abs=0.02)
            assert operator["binds"] == max(operator["causes"], key=operator["causes"].get)


def test_spans_are_in_order_and_cover_what_engines_were_busy_for() -> None:
    loaded = load(listing.packed(memory="sram"))
    counters = simulate(loaded, execute=False).counters
    busy = {operator.name: operator for operator in counters.operators}
    for operator in explain(loaded)["operators"]:
        own = busy[operator["name"]]
        assert set(operator["spans"]) == set(own.busy_cycles)
        assert min(map(min, operator["spans"].values())) >= own.first_cycle - 0.001
        assert max(map(max, operator["spans"].values())) == pytest.approx(own.last_cycle, abs=0.001)
        for engine, ends in operator["spans"].items():
            assert ends == sorted(ends)
            assert all(
                start - end >= counters.cycles / SPAN_PARTS for end, start in zip(ends[1::2], ends[2::2], strict=False)
            )
            assert sum(ends[1::2]) - sum(ends[::2]) >= own.busy_cycles[engine] - 0.01


def test_what_helps_is_what_the_simulator_finds() -> None:
    loaded = load(listing.packed(memory="sram"))
    found = explain(loaded)
    assert {"array", "sram"} <= set(found["what_if"])
    for change, what in found["what_if"].items():
        better = dataclasses.replace(loaded, target=WHAT_IFS[change].better(loaded.target))
        assert simulate(better, execute=False).counters.cycles == what["cycles"]
    for operator in found["operators"]:
        assert operator["helps"] == sorted(operator["helps"], key=lambda one: -one["speedup"])
        assert all(one["change"] in found["what_if"] and one["speedup"] >= 1.02 for one in operator["helps"])


def test_every_cause_has_a_remedy_that_changes_its_numbers() -> None:
    npu = targets.load("npu-256")
    assert {cause for what in WHAT_IFS.values() for cause in what.causes} == set(CAUSES)
    for what in WHAT_IFS.values():
        assert what.better(npu) != npu


def test_an_operator_that_lanes_bind() -> None:
    text = "vop kind=copy size0=4000 size1=1 size2=1 a_stride0=1 output=8192\nhalt"
    found = explain(program(text, memory="sram", operators=(MapEntry("a", "COPY", 0, 0, ((0, 1),)),)))
    (operator,) = found["operators"]
    assert (operator["name"], operator["binds"]) == ("a", "lanes")
    assert operator["helps"][0] == {"change": "lanes", "speedup": round((46 + 12 + 500) / (46 + 12 + 250), 2)}


def test_windows_follow_each_other() -> None:
    assert windows([10.4, 10.6, 30.0], 50) == [(0, 10), (10, 11), (11, 50)]
    assert windows([], 5) == []
    spans = [PathSpan(0, 20, {"array": 20.0}), PathSpan(20, 50, {"sram": 10.0, "lanes": 20.0})]
    assert causes_of(spans, [(0, 10), (10, 10), (10, 35), (35, 50)]) == [
        {"array": 10.0},
        {},
        {"array": 10.0, "sram": 5.0, "lanes": 10.0},
        {"sram": 5.0, "lanes": 10.0},
    ]


def test_every_token_has_its_poster() -> None:
    result = simulate(load(listing.packed()), execute=False, trace=True)
    assert result.trace is not None
    found = edges(result.trace)
    instructions = result.trace.program.instructions
    assert len(found) == sum(len(instr.waits) for instr in instructions)
    for edge in found:
        assert edge.semaphore in instructions[edge.poster.index].posts
        assert edge.semaphore in instructions[edge.taker.index].waits
        assert isinstance(edge.poster, TraceEvent)
        assert isinstance(edge.taker, TraceEvent)
        assert edge.poster.ended + result.trace.program.target.fetch.semaphore_cycles <= edge.taker.started + 1e-6


def test_all_resources_have_a_cause() -> None:
    from odc_mlir.simulator.path import _OF_RESOURCE

    assert set(_OF_RESOURCE) == set(Resource)
