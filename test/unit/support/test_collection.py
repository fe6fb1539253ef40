"""Thresholds of the collector while IR is built, and afterwards."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest
from xdsl.ir import Block, Region

from odc_mlir.dialects.npu_isa import BufferOp, LoopOp, make_halt
from odc_mlir.dialects.npu_memory import flat_type
from odc_mlir.isa.fields import Space
from odc_mlir.support.collection import ALLOCATIONS, seldom_collected, take_apart


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


def test_operations_that_are_taken_apart_need_no_collector() -> None:
    inner = Block([make_halt()])
    block = Block([BufferOp("x", flat_type(Space.TILE, 16)), LoopOp(2, Region(inner)), make_halt()])
    left = [weakref.ref(op) for op in (*block.ops, *inner.ops)]
    gc.disable()
    try:
        take_apart(block)
        assert [op() for op in left[1:]] == [None] * 3  # but for a buffer, which its own result refers to
        assert not [*block.ops, *inner.ops]
    finally:
        gc.enable()
