"""Live bytes of SRAM: from the first write of a byte to its last read, told apart by who wrote it."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from helpers.npu import program
from helpers.npu_programs import random_program
from odc_mlir.isa.container import MapEntry
from odc_mlir.isa.fields import Region
from odc_mlir.simulator import simulate
from odc_mlir.simulator.boxes import Box
from odc_mlir.simulator.explaining import PREFETCHED, live_bytes
from odc_mlir.simulator.trace import Trace
from odc_mlir.targets import names

TEXT = """
    copy source=constants:0 target=arena:0 bytes=64 post=0
    load source=arena:0 target=0 size0=64 size1=1 size2=1 wait=0 post=1
    load source=inputs:16 target=64 size0=32 size1=1 size2=1 post=2
    store target=outputs:0 source=0 size0=64 size1=1 size2=1 wait=1,2
    halt
"""


def test_copies_inputs_and_outputs_live_as_long_as_they_are_needed() -> None:
    operators = (MapEntry("conv", "CONV_2D", 0, 0, ((0, 4),)),)
    options = {"constants": bytes(64), "inputs": [(64,)], "outputs": [(64,)], "arena": 64, "operators": operators}
    result = simulate(program(TEXT, **options), execute=False, trace=True)
    assert result.trace is not None
    end = result.counters.cycles
    at = {event.index: event for event in result.trace.events}
    found = live_bytes(result.trace, end, 10_000)
    amounts = {own["name"]: (found["cycles"][own["first"]], own["bytes"]) for own in found["owners"]}
    # Only what is read counts of the input, and only until then; the copy is alive from its start to its reader's end.
    assert amounts["inputs0"] == (0, [32] * len(amounts["inputs0"][1]))
    assert amounts[PREFETCHED][0] == int(at[0].started)
    assert amounts["conv"][0] == int(at[3].started)
    assert amounts["conv"][1][-1] == 64, "an output is needed to the end"
    assert found["peak_bytes"] == 96
    assert found["held"] == {PREFETCHED: 64, "inputs0": 32}
    assert at[0].started <= found["peak_cycle"] + 1 <= at[2].ended + 1


def bytes_in(area: Box) -> list[int]:
    runs = [(i, j) for i in range(area.count2) for j in range(area.count1)]
    return [area.start + i * area.stride2 + j * area.stride1 + k for i, j in runs for k in range(area.size)]


def lives_one_by_one(trace: Trace, end: float) -> Counter[tuple[float, float]]:
    """Bytes by begin and end of their lives, from each byte's own story."""
    stories: dict[tuple[int, int], list[tuple[float, float | None]]] = {}
    for record in trace.program.inputs:
        for place in range(record.offset, record.offset + record.bytes):
            stories[record.region, place] = [(0.0, None)]
    for event in sorted(trace.events, key=lambda event: event.started):
        for touch in sorted(event.touched, key=lambda touch: touch.writes):
            for place in () if touch.region == Region.CONSTANTS else set(bytes_in(touch.area)):
                story = stories.setdefault((touch.region, place), [])
                if touch.writes:
                    story.append((event.started, None))
                elif story:
                    begin, until = story[-1]
                    story[-1] = (begin, max(until or 0.0, event.ended))
    for record in trace.program.outputs:
        for place in range(record.offset, record.offset + record.bytes):
            if story := stories.get((record.region, place)):
                story[-1] = (story[-1][0], end)
    return Counter((begin, until) for story in stories.values() for begin, until in story if until is not None)


@pytest.mark.parametrize("seed", range(12))
def test_as_each_byte_would_tell(seed: int) -> None:
    made = random_program(seed, target=names()[seed % len(names())], length=15)
    result = simulate(made, execute=False, trace=True)
    assert result.trace is not None
    cycles = result.counters.cycles
    lives = {
        (round(begin, 3), min(round(end, 3), cycles)): size
        for (begin, end), size in lives_one_by_one(result.trace, cycles).items()
    }
    times = sorted({time for life in lives for time in life})
    totals = [sum(size for (begin, end), size in lives.items() if begin <= time < end) for time in times]
    found = live_bytes(result.trace, cycles, 20)
    assert found.get("peak_bytes", 0) == max(totals, default=0)
    assert sum(found.get("held", {}).values()) == max(totals, default=0)
    shown = [0] * len(found.get("cycles", ()))
    for own in found.get("owners", ()):
        for place, size in enumerate(own["bytes"], start=own["first"]):
            shown[place] += size
    assert len(shown) <= 3 * 20
    assert max(shown, default=0) == max(totals, default=0), "the peak is among what is shown"
    at = dict(zip(times, totals, strict=True))
    assert shown == [at[time] for time in found.get("cycles", ())]
    for time, following in pairwise(found.get("cycles", ())):
        within = {at[other] for other in times if time <= other < following}
        assert int(time * 20 // times[-1]) == int(following * 20 // times[-1]) or within == {at[time]}
