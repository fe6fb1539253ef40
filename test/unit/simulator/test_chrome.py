"""The trace file: what Perfetto expects of slices, arrows and counters, and what people look for in it."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from itertools import pairwise
from typing import Any

import pytest

from helpers import npu_listing as listing
from helpers.npu_programs import random_program
from odc_mlir import targets
from odc_mlir.isa.fields import Queue
from odc_mlir.simulator import load, simulate

NPU = targets.load("npu-256")
MICROSECONDS = 1e6 / NPU.clock_hz


def events_of(result: Any) -> list[dict[str, Any]]:
    assert result.trace is not None
    found: list[dict[str, Any]] = json.loads(json.dumps(result.trace.to_chrome(), allow_nan=False))["traceEvents"]
    return found


def of_kind(events: list[dict[str, Any]], kind: str) -> list[dict[str, Any]]:
    return [event for event in events if event["ph"] == kind]


@pytest.mark.parametrize("seed", range(6))
def test_rules(seed: int) -> None:
    """Slices of a thread do not overlap, arrows come in pairs within slices, counters are few."""
    program = load(listing.packed()) if seed == 0 else random_program(seed, target="npu-256", memory="flash")
    events = events_of(simulate(program, execute=False, trace=True))
    slices = of_kind(events, "X")
    threads: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for event in slices:
        assert event["dur"] >= 0
        threads[event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for spans in threads.values():
        for (_, end), (begin, _) in pairwise(sorted(spans)):
            assert begin >= end - 1e-9
    begun = {event["id"]: event for event in of_kind(events, "s")}
    ended = {event["id"]: event for event in of_kind(events, "f")}
    assert len(of_kind(events, "s")) == len(begun) == len(ended) == len(of_kind(events, "f"))
    for number, event in begun.items():
        other = ended[number]
        assert other["bp"] == "e"
        assert event["ts"] <= other["ts"]
        for arrow in (event, other):
            assert any(begin - 1e-9 <= arrow["ts"] <= end + 1e-9 for begin, end in threads[arrow["tid"]])
    assert len(of_kind(events, "C")) <= 0.2 * len(events)
    assert {event["ph"] for event in events} <= set("MXCsf")


def test_what_is_in_it() -> None:
    result = simulate(load(listing.packed()), [listing.X], trace=True)
    events = events_of(result)
    names = {e["tid"]: e["args"]["name"] for e in of_kind(events, "M") if e["name"] == "thread_name"}
    assert names[int(Queue.MAC)] == "mac: array"
    assert names[len(Queue)] == "layers"
    slices = of_kind(events, "X")
    by_thread = Counter(event["tid"] for event in slices)
    assert sum(by_thread[int(queue)] for queue in Queue) == result.counters.instructions
    layers = [event for event in slices if event["tid"] == len(Queue)]
    assert [event["name"] for event in layers] == ["conv", "pool"]
    assert sum(event["args"]["cycles"] for event in layers) == pytest.approx(result.counters.cycles, abs=1)
    conv = next(event for event in slices if event["name"] == "conv conv")
    assert conv["cat"] == "CONV_2D"
    assert conv["args"]["text"].startswith("conv emit=1")
    longest = max(slices, key=lambda event: event["ts"] + event["dur"])
    assert longest["ts"] + longest["dur"] == pytest.approx(result.counters.cycles * MICROSECONDS, rel=0.01)
    assert of_kind(events, "s")
    assert {event["name"].partition(",")[0] for event in of_kind(events, "C")} >= {"SRAM port", "off-chip port"}
    assert simulate(load(listing.packed()), [listing.X]).trace is None


def test_counters_are_averages_of_what_was_used() -> None:
    result = simulate(load(listing.packed()), execute=False, trace=True)
    counters = [e for e in of_kind(events_of(result), "C") if e["name"].startswith("SRAM")]
    stretch = (counters[1]["ts"] - counters[0]["ts"]) / MICROSECONDS
    port = result.counters.ports["sram"]
    moved = sum(event["args"]["average"] for event in counters) * stretch
    assert moved == pytest.approx(port.read_bytes + port.write_bytes, rel=0.01)
