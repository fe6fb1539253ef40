"""Sharing: nobody exceeds a width, nobody waits without need, and small cases by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir import targets
from odc_mlir.simulator.resources import FINISHED, ExecutionPhase, Resource, Shares, Timeline, fair_level, widths

WIDTHS = widths(targets.load("npu-256"))


def phase(shortest: float = 0.0, **amounts: float) -> ExecutionPhase:
    demands = [amounts.get(resource.name.lower(), 0.0) for resource in Resource]
    return ExecutionPhase(shortest, demands, WIDTHS)


def finish_times(*phases: ExecutionPhase) -> list[float]:
    """When each phase ends if all start together."""
    shares = Shares(WIDTHS)
    for p in phases:
        shares.add(p)
    ends: dict[int, float] = {}
    now = 0.0
    while shares.running:
        step = shares.next_finish()
        for resource, used in zip(Resource, shares.usage(), strict=True):
            assert used <= WIDTHS[resource] * (1 + 1e-9), resource
        now += step
        ends |= {id(p): now for p in shares.advance(step)}
    return [ends[id(p)] for p in phases]


def test_alone_the_slowest_part_decides() -> None:
    assert phase(10, sram=64).solo == 10
    assert phase(10, sram=640).solo == 80
    assert phase(10, sram=64, offchip=64).solo == 64


def test_two_transfers_share_a_port_equally() -> None:
    assert finish_times(phase(sram=800), phase(sram=800)) == [200, 200]


def test_what_ends_early_leaves_its_share_to_others() -> None:
    # 4 bytes a cycle each until the short one has its 400; then 8 for the other
    assert finish_times(phase(sram=400), phase(sram=1200)) == [100, 200]


def test_who_needs_less_than_a_fair_share_is_not_slowed() -> None:
    # a copy at 1 byte a cycle takes 1 of 8, the load takes the other 7
    copy, load = finish_times(phase(offchip=700, sram=700), phase(sram=4900))
    assert copy == pytest.approx(700)
    assert load == pytest.approx(700)


def test_a_phase_slowed_by_one_port_leaves_room_on_another() -> None:
    # two phases share the off-chip port, so each takes half a byte of SRAM; the third gets the rest
    ends = finish_times(phase(offchip=100, sram=800), phase(offchip=100), phase(sram=800))
    # first: 8 bytes of SRAM per off-chip byte, at half speed 4 a cycle; third: 4 a cycle
    assert ends == [pytest.approx(200), pytest.approx(200), pytest.approx(200)]


def test_fair_level() -> None:
    assert fair_level([1, 2], 4) == float("inf")
    assert fair_level([4, 4], 4) == 2
    assert fair_level([1, 4, 4], 5) == 2
    assert fair_level([], 5) == float("inf")


AMOUNTS = st.integers(0, 1000)
PHASES = st.lists(
    st.builds(
        phase,
        st.integers(0, 100),
        offchip=AMOUNTS,
        sram=AMOUNTS,
        tile_read=AMOUNTS,
        tile_write=AMOUNTS,
        requant=AMOUNTS,
    ).filter(lambda p: p.solo > 0),
    min_size=1,
    max_size=7,
)


@given(PHASES)
def test_sharing_stays_within_every_width_and_ends(phases: list[ExecutionPhase]) -> None:
    longest, total = max(p.solo for p in phases), sum(p.solo for p in phases)
    ends = finish_times(*phases)
    assert longest - 1e-3 <= max(ends) <= total + 1e-3


@given(PHASES)
def test_nobody_is_slow_without_a_full_resource(phases: list[ExecutionPhase]) -> None:
    shares = Shares(WIDTHS)
    for p in phases:
        shares.add(p)
    shares.next_finish()
    used = shares.usage()
    for p in phases:
        assert 0 < p.speed <= 1
        if p.speed < 1 - 1e-9:
            assert any(used[resource] > WIDTHS[resource] * 0.9 for resource, _ in p.rates)


def test_done_means_nothing_noticeable_is_left() -> None:
    assert FINISHED < 1e-6


def test_time_goes_on_late_in_a_long_run() -> None:
    """A phase too short to move a clock that has run for long still ends."""
    timeline = Timeline(Shares(WIDTHS))
    timeline.now = 1e15
    ended: list[object] = []
    timeline.run(ExecutionPhase(0.01, [0.0] * len(Resource), WIDTHS), ended.append, "short")
    assert timeline.advance()
    assert ended == ["short"]
    assert not timeline.advance()
