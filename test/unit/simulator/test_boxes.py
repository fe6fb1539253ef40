"""Sets of addresses: normal form, overlap and bursts agree with listing every address."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.simulator.boxes import Box, box, burst_bytes, overlap, repeats, view

SMALL = st.tuples(
    st.integers(0, 40), st.integers(1, 9), st.integers(1, 4), st.integers(0, 12), st.integers(1, 4), st.integers(0, 30)
)


def runs(start: int, size: int, count1: int, stride1: int, count2: int, stride2: int) -> list[range]:
    """Every run as a range of addresses."""
    starts = [start + j * stride2 + i * stride1 for j in range(count2) for i in range(count1)]
    return [range(first, first + size) for first in starts]


@given(SMALL)
def test_normal_form_keeps_addresses_and_order(shape: tuple[int, ...]) -> None:
    b = box(*shape)
    expected = [address for run in runs(*shape) for address in run]
    memory = np.arange(200)
    assert view(memory, b).reshape(-1).tolist() == expected
    assert (b.start, b.end, b.units) == (expected[0], max(expected) + 1, len(expected))
    assert b == box(*b)
    assert b.count1 > 1 or b.count2 == 1


@given(SMALL, SMALL)
def test_overlap(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    shared = {x for run in runs(*a) for x in run} & {x for run in runs(*b) for x in run}
    assert overlap(box(*a), box(*b)) == bool(shared)


@given(SMALL)
def test_repeats(shape: tuple[int, ...]) -> None:
    addresses = [x for run in runs(*shape) for x in run]
    if len(set(addresses)) < len(addresses):
        assert repeats(box(*shape))


def test_ordinary_tiles_do_not_repeat() -> None:
    assert not repeats(box(0, 16, 8, 64, 4, 512))
    assert repeats(box(0, 16, 8, 15))
    assert repeats(box(0, 16, 8, 16, 2, 127))


@given(SMALL, st.sampled_from([1, 8, 32]))
def test_bursts_are_those_that_contiguous_runs_touch(shape: tuple[int, ...], burst: int) -> None:
    b = box(*shape)
    touched = [len({address // burst for address in run}) for run in runs(*b)]
    assert burst_bytes(b, burst) == sum(touched) * burst


def test_adjacent_runs_merge() -> None:
    assert box(0, 8, 4, 8) == Box(0, 32)
    assert box(3, 8, 4, 8, 2, 32) == Box(3, 64)
    assert box(3, 8, 4, 8, 2, 33) == Box(3, 32, 2, 33)
    assert burst_bytes(box(0, 8, 4, 8), 32) == 32
    assert burst_bytes(box(0, 8, 4, 32), 32) == 128
    assert burst_bytes(box(30, 4), 32) == 64
