"""Arena, staging and residents: what lives together does not overlap, and limits are kept or reported."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.ir import SSAValue

from helpers.npu_layers import Body, binary, check, make_module
from odc_mlir import targets
from odc_mlir.errors import AllocationError
from odc_mlir.isa.container import read
from odc_mlir.isa.fields import Region
from odc_mlir.transforms.npu.schedule.arena import (
    Interval,
    allocate,
    allocate_around,
    allocate_tightly,
    busiest,
    end_of,
    lowest_gap,
    most_live_bytes,
    overlapping,
)
from odc_mlir.transforms.npu.schedule.geometry import make_window
from odc_mlir.transforms.npu.schedule.residents import Layout, PaddingBorder, Resident, gaps, place_residents
from odc_mlir.transforms.npu.schedule.window_search import Room, TilingSearch
from odc_mlir.transforms.npu.schedule.window_tiling import conv_plans

ALIGNMENT = 32

lives = st.lists(st.tuples(st.integers(1, 500), st.integers(0, 20), st.integers(0, 10)), min_size=1, max_size=25)


def intervals_of(items: list[tuple[int, int, int]]) -> list[Interval[int]]:
    return [Interval(i, size, first, first + n, ALIGNMENT) for i, (size, first, n) in enumerate(items)]


@pytest.mark.parametrize("method", [allocate, allocate_tightly])
@given(items=lives)
def test_allocation_is_disjoint_and_not_below_the_bound(method: Any, items: list[tuple[int, int, int]]) -> None:
    intervals = intervals_of(items)
    used = method(intervals)
    assert overlapping(intervals) is None
    assert most_live_bytes(intervals) <= used
    assert all(i.start % ALIGNMENT == 0 for i in intervals)
    assert used == max(map(end_of, intervals))


@given(items=lives)
def test_the_busiest_time_is_where_most_bytes_are_in_use(items: list[tuple[int, int, int]]) -> None:
    intervals = intervals_of(items)

    def live(command: int) -> list[Interval[int]]:
        return [i for i in intervals if i.first <= command <= i.last]

    command, alive = busiest(intervals)
    sums = {i.first: sum(other.size for other in live(i.first)) for i in intervals}
    assert sums[command] == max(sums.values()) == most_live_bytes(intervals)
    assert command == min(start for start, used in sums.items() if used == sums[command])
    assert sorted(map(id, alive)) == sorted(map(id, live(command)))


def test_a_chain_needs_two_tensors_at_a_time() -> None:
    intervals = intervals_of([(64, i, 1) for i in range(6)])
    assert allocate(intervals) == most_live_bytes(intervals) == 128


def test_a_search_finds_what_no_order_does() -> None:
    """A chain of large and small tensors, which have to go to either end in turn."""
    items = [(3, 0, 1), (2, 1, 1), (2, 2, 1), (3, 3, 1), (2, 4, 1), (2, 5, 1), (3, 6, 1)]
    intervals = intervals_of([(size * ALIGNMENT, first, length) for size, first, length in items])
    assert allocate(intervals_of([(i.used, i.first, i.last - i.first) for i in intervals])) > 5 * ALIGNMENT
    assert allocate_tightly(intervals) == most_live_bytes(intervals) == 5 * ALIGNMENT
    assert overlapping(intervals) is None


def test_given_addresses_are_kept() -> None:
    fixed, free = intervals_of([(64, 0, 5), (64, 2, 1)])
    fixed.address = 32
    assert allocate([fixed, free]) == 160
    assert (fixed.address, free.address) == (32, 96)


@given(lives, lives)
def test_constants_fit_wherever_their_room_was_planned(
    tensors: list[tuple[int, int, int]], constants: list[tuple[int, int, int]]
) -> None:
    """Around the addresses that tensors get alone, in the order of their copies."""
    planned = [*intervals_of(tensors), *intervals_of(constants)]
    used = max(allocate(planned[:count]) for count in range(len(tensors), len(planned) + 1))
    around, copies = intervals_of(tensors), intervals_of(constants)
    assert allocate_around(around, copies) <= used
    assert overlapping([*around, *copies]) is None


@given(lives, lives)
def test_given_addresses_are_kept_around_constants(
    tensors: list[tuple[int, int, int]], constants: list[tuple[int, int, int]]
) -> None:
    around, copies = intervals_of(tensors), intervals_of(constants)
    around[0].address = 10 * ALIGNMENT
    allocate_around(around, copies)
    assert around[0].address == 10 * ALIGNMENT
    assert overlapping([*around, *copies]) is None


def test_overlap_is_found_and_touching_is_none() -> None:
    first, second = intervals_of([(64, 0, 2), (64, 2, 2)])
    first.address, second.address = 0, 63
    assert overlapping([first, second]) == (first, second)
    second.address = 64
    assert overlapping([first, second]) is None


def test_lowest_gap() -> None:
    assert lowest_gap([(0, 32), (64, 96)], 32) == 32
    assert lowest_gap([(0, 32), (64, 96)], 33) == 96
    assert lowest_gap([], 5) == 0


@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12), st.integers(0, 4)), min_size=1, max_size=12))
def test_residents_are_disjoint_and_gaps_are_the_rest(items: list[tuple[int, int, int]]) -> None:
    residents = [Resident(Layout(1, 1, 16 * size, PaddingBorder()), first, first + n) for size, first, n in items]
    used = place_residents(residents)
    for layer in range(17):
        alive = [(r.address or 0, (r.address or 0) + r.size) for r in residents if r.lives_at(layer)]
        spans = sorted(alive + gaps(residents, layer, used))
        assert all(a[1] == b[0] for a, b in pairwise(spans))
        assert sum(end - start for start, end in spans) == used


def test_a_border_surrounds_the_image() -> None:
    layout = Layout(2, 3, 4, PaddingBorder(1, 2, 3, 4))
    assert layout.pitch == (2 + 3 + 4) * 4
    assert layout.origin == layout.pitch + 2 * 4
    assert layout.offset(-1, -2) == 0
    assert layout.offset(1 + 3, 2 + 4) + 4 == layout.size
    assert not layout.is_dense
    assert Layout(2, 3, 4, PaddingBorder()).size == 24


def wide(body):  # type: ignore[no-untyped-def]
    x = body.conv(body.block.args[0], 32, kernel=(3, 3), pads=(1, 1, 1, 1))
    return body.conv(body.conv(x, 32), 8)


SHAPE = (1, 40, 40, 8)
LEAST = 40 * 40 * (32 + 32)  # the two tensors that are alive together, after the input and before the output


def test_constants_stay_off_chip_where_sram_has_no_room() -> None:
    check(make_module(wide, SHAPE, sram_limit=LEAST))


def test_a_limit_is_kept() -> None:
    for limit in (LEAST, LEAST + 2048, LEAST + 100_000):
        contents = read(binary(make_module(wide, SHAPE, sram_limit=limit)))
        assert sum(contents.region_bytes[r] for r in (Region.ARENA, Region.INPUTS, Region.OUTPUTS)) <= limit


def test_an_input_that_nothing_reads_counts() -> None:
    with pytest.raises(AllocationError, match="25599 are allowed") as raised:
        binary(make_module(wide, SHAPE, (1, 40, 40, 16), sram_limit=40 * 40 * 16 - 1))
    least = raised.value.needed_bytes
    counters = check(make_module(wide, SHAPE, (1, 40, 40, 16), sram_limit=least))
    assert 40 * 40 * 16 < counters.sram_peak_bytes <= least


@pytest.mark.parametrize("memory", ["flash", "sram"])
def test_preferring_memory_takes_what_tensors_need_and_no_more(memory: str) -> None:
    contents = read(binary(make_module(wide, SHAPE, memory=memory, prefer="memory")))
    assert contents.arena_bytes <= LEAST
    assert {tensor.region for tensor in (*contents.inputs, *contents.outputs)} == {Region.ARENA}
    check(make_module(wide, SHAPE, memory=memory, prefer="memory"))


def expanding(body: Body) -> SSAValue:
    x = body.conv(body.block.args[0], 64)
    x = body.conv(x, 64, kernel=(3, 3), pads=(1, 1, 1, 1), depthwise=True)
    return body.conv(body.conv(x, 16), 96, kernel=(3, 3), stride=(2, 2))


def test_the_three_preferences_are_three_schedules() -> None:
    found = {}
    for prefer in ("performance", "memory", "compile-time"):
        found[prefer] = check(make_module(expanding, (1, 56, 56, 16), prefer=prefer))
    programs = {binary(make_module(expanding, (1, 56, 56, 16), prefer=prefer)) for prefer in found}
    assert len(programs) == 3
    assert found["memory"].sram_peak_bytes < found["performance"].sram_peak_bytes
    assert found["performance"].cycles <= found["memory"].cycles


def test_preferring_compile_time_tries_few_tilings() -> None:
    target = targets.load("npu-256")
    window = make_window((1, 56, 56, 64), (1, 56, 56, 64), kernel=(3, 3), pads=(1, 1))
    tried = {}
    for quick in (False, True):
        search = TilingSearch(window, target, Room(target.local.tile_bytes, quick=quick), weighted=True)
        tried[quick] = sum(len(list(search._sized(plan))) for plan in conv_plans(window, target))
    assert 0 < 3 * tried[True] <= tried[False]
