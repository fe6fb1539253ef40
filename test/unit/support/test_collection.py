"""Thresholds of the collector while IR is built, and afterwards."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from odc_mlir.support.collection import ALLOCATIONS, seldom_collected


@pytest.fixture(params=[700, ALLOCATIONS - 1])
def usual(request: pytest.FixtureRequest) -> Iterator[tuple[int, int, int]]:
    """Thresholds that are below those of a block."""
    before = gc.get_threshold()
    gc.set_threshold(request.param, *before[1:])
    yield gc.get_threshold()
    gc.set_threshold(*before)


def test_none_of_two_blocks_leaves_thresholds_raised(usual: tuple[int, int, int]) -> None:
    first, second = seldom_collected(), seldom_collected()
    first.__enter__()
    second.__enter__()
    assert gc.get_threshold() == (ALLOCATIONS, *usual[1:])
    first.__exit__(None, None, None)  # as in two threads: the first to begin is not the last to end
    second.__exit__(None, None, None)
    assert gc.get_threshold() == usual


def test_an_error_inside_leaves_thresholds_as_they_were(usual: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="inside"), seldom_collected():
        raise ValueError("inside")
    assert gc.get_threshold() == usual


@pytest.mark.parametrize("chosen", [0, ALLOCATIONS, ALLOCATIONS + 1])
def test_who_collects_even_less_keeps_that(chosen: int) -> None:
    before = gc.get_threshold()
    gc.set_threshold(chosen, *before[1:])
    try:
        with seldom_collected():
            assert gc.get_threshold()[0] == chosen
        assert gc.get_threshold()[0] == chosen
    finally:
        gc.set_threshold(*before)
