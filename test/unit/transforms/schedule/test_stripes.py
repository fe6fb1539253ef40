"""Programs under a limit of SRAM: cut into stripes they compute the same, and take no more than they may."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import IntegerType, TensorType
from xdsl.ir import SSAValue

from helpers.npu_layers import Body, binary, check, make_module, program_of, schedule, tensor_type
from odc_mlir import targets
from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_program import RECOMPUTED_MACS
from odc_mlir.errors import AllocationError
from odc_mlir.isa.container import read
from odc_mlir.numerics.resize import Lines, bilinear_lines, nearest_line
from odc_mlir.transforms.npu.schedule.stripe_plan import (
    Chain,
    FusedPlanner,
    Rows,
    StripePlanner,
    read_rows,
    stripe_rows,
    stripes,
)

SHAPE = (1, 30, 31, 8)
SAME = (1, 1, 1, 1)
NONE = (0, 0, 0, 0)


def bottleneck(body: Body) -> SSAValue:
    """Expand, depthwise, project, add: the operand of the sum is needed in other rows too."""
    (x,) = body.block.args
    wide = body.conv(body.conv(x, 48), 48, kernel=(3, 3), pads=SAME, depthwise=True)
    return body.elementwise(npu.ElementwiseKind.ADD, x, body.conv(wide, 8))


def shrinking(body: Body) -> SSAValue:
    """Strides, dilation, uneven padding, and windows that leave rows out."""
    x = body.conv(body.block.args[0], 40, kernel=(4, 3), stride=(2, 1), pads=(1, 1, 2, 1))
    x = body.conv(x, 40, kernel=(3, 3), dilation=(2, 1), pads=(2, 1, 2, 1), depthwise=True)
    x = body.lut(body.conv(x, 48, stride=(3, 1)))
    return body.pool(npu.PoolKind.AVERAGE, body.scale(x), (2, 2), (1, 1), (1, 1, 0, 0))


def with_constants(body: Body) -> SSAValue:
    """An element-wise operand that every stripe needs whole; one that has rows is in no chain."""
    x = body.conv(body.block.args[0], 48, kernel=(3, 3), pads=SAME)
    x = body.elementwise(npu.ElementwiseKind.MUL, x, body.constant((1, 1, 1, 48)))
    x = body.elementwise(npu.ElementwiseKind.ADD, body.conv(x, 8), body.constant((1, 30, 31, 8)))
    return body.conv(x, 8)


def enlarged(kind: npu.ResizeKind, modes: tuple[bool, bool]) -> Callable[[Body], SSAValue]:
    """An image that is made larger and smaller again; ``modes``: aligned corners, centres at half pixels."""

    def build(body: Body) -> SSAValue:
        x = body.conv(body.block.args[0], 24)
        for size in ((60, 62), (15, 31)):
            taken = npu.shape_of(x)
            if kind is npu.ResizeKind.BILINEAR:
                lines = bilinear_lines((taken[1], taken[2]), size, "int8", *modes)
            else:
                rows, columns = (nearest_line(a, b, *modes) for a, b in zip(taken[1:3], size, strict=True))
                lines = Lines(rows, columns) if rows and columns else None
            assert lines is not None
            x = body.add(npu.ResizeOp(kind, x, tensor_type((1, *size, 24)), lines))
        return body.conv(x, 8, kernel=(3, 3), pads=SAME)

    return build


ENLARGED = [
    enlarged(kind, modes) for kind in npu.ResizeKind for modes in ((False, False), (False, True), (True, False))
]


def searched(bits: int) -> Callable[[Body], SSAValue]:
    """Scores of classes, which only their search needs."""

    def build(body: Body) -> SSAValue:
        x = body.conv(body.block.args[0], 24)
        x = body.elementwise(npu.ElementwiseKind.MAX, x, body.constant((24,)))
        x = body.add(npu.SoftmaxOp(x, x.type, scale=npu.ScaleAttr.of(1 << 30, 5), diff_min=-124))
        return body.add(npu.ArgMaxOp(x, TensorType(IntegerType(bits), [*npu.shape_of(x)[:-1]])))

    return build


def with_planes(body: Body) -> SSAValue:
    """A computed operand without an axis of images has rows all the same: its operation is in no chain."""
    x, planes = body.conv(body.block.args[0], 48), body.pool(npu.PoolKind.MAX, body.block.args[1], (1, 1), (1, 1), NONE)
    planes = body.add(npu.ReshapeOp(planes, tensor_type((30, 31, 48))))
    return body.conv(body.elementwise(npu.ElementwiseKind.ADD, x, planes), 8)


def test_operands_of_lower_rank_have_rows() -> None:
    graph = read_rows(
        program_of(make_module(with_planes, SHAPE, (1, 30, 31, 48))).block, targets.load("npu-256"), "flash"
    )
    assert [layer.rows for layer in graph.layers] == [30, 30, 0, 30]
    check(make_module(with_planes, SHAPE, (1, 30, 31, 48), sram_limit=140_000))


@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize("build", [bottleneck, shrinking, with_constants, searched(32), searched(64), *ENLARGED])
def test_stripes_compute_the_same_in_less_memory(build: Callable[[Body], SSAValue], memory: str) -> None:
    planner = planner_of(build)
    limit = (3 * planner.smallest.arena_bytes + planner.plain.arena_bytes) // 4
    plan = planner.within(limit)
    assert plan is not None
    assert any(chain.rows for chain in plan.chains)
    counters = check(make_module(build, SHAPE, memory=memory, sram_limit=limit))
    assert counters.sram_peak_bytes <= limit


def separable(body: Body) -> SSAValue:
    x = body.conv(body.block.args[0], 16)
    x = body.conv(x, 16, kernel=(3, 3), pads=SAME, depthwise=True)
    return body.conv(x, 16)


def test_stripes_that_keep_results_in_the_tile_buffer_save_time() -> None:
    fused, whole = (
        check(make_module(separable, (1, 64, 64, 16), memory="sram", prefer=prefer)).cycles
        for prefer in ("performance", "compile-time")
    )
    assert fused < 0.9 * whole


def test_stripes_for_speed_need_an_estimate_above_the_bound() -> None:
    graph = planner_of(separable, (1, 64, 64, 16)).graph
    planner = FusedPlanner(graph, targets.load("npu-256"), ())
    plan = planner.fastest(0)
    assert plan is not None
    assert any(chain.rows for chain in plan.chains)
    assert planner.fastest(1e6) is None


def test_one_chain_behind_another() -> None:
    """The second reads what the first one's stripes are joined to."""

    def two(body: Body) -> SSAValue:
        x = body.conv(body.conv(body.block.args[0], 64), 16, kernel=(3, 3), pads=SAME)
        return body.conv(body.conv(x, 64), 8, kernel=(3, 3), pads=SAME)

    planner = planner_of(two, (1, 40, 41, 8))
    plan = planner.within(60_000)
    assert plan is not None
    assert [bool(chain.rows) for chain in plan.chains] == [True, True]
    check(make_module(two, (1, 40, 41, 8), sram_limit=60_000))


def test_stripes_of_16_bits() -> None:
    def pools(body: Body) -> SSAValue:
        x = body.pool(npu.PoolKind.AVERAGE, body.block.args[0], (3, 3), (1, 1), SAME)
        return body.pool(npu.PoolKind.MAX, x, (3, 3), (2, 2), SAME)

    counters = check(make_module(pools, (1, 48, 48, 8), dtype="int16", sram_limit=60_000))
    assert 48 * 48 * 16 + 24 * 24 * 16 <= counters.sram_peak_bytes <= 60_000


@pytest.mark.parametrize("build", [bottleneck, shrinking])
def test_what_is_said_to_be_enough_is(build: Callable[[Body], SSAValue]) -> None:
    with pytest.raises(AllocationError, match="6000 are allowed") as raised:
        binary(make_module(build, SHAPE, sram_limit=6000))
    least = raised.value.needed_bytes
    assert check(make_module(build, SHAPE, sram_limit=least)).sram_peak_bytes <= least
    with pytest.raises(AllocationError):
        binary(make_module(build, SHAPE, sram_limit=least - 32))


def product(body: Body) -> SSAValue:
    """A result can take the bytes of an operand that has been loaded."""
    left, right = body.block.args
    return body.matmul(left, right)


@pytest.mark.parametrize("memory", ["flash", "sram"])
@pytest.mark.parametrize(
    ("build", "shapes"), [(bottleneck, [SHAPE]), (shrinking, [SHAPE]), (product, [(2, 1, 7, 33), (2, 1, 33, 21)])]
)
def test_what_a_program_takes_is_a_limit_that_it_keeps(
    build: Callable[[Body], SSAValue], shapes: list[tuple[int, ...]], memory: str
) -> None:
    """To the byte."""
    taken = check(make_module(build, *shapes, memory=memory, prefer="memory")).sram_peak_bytes
    assert check(make_module(build, *shapes, memory=memory, sram_limit=taken)).sram_peak_bytes <= taken


def test_what_is_computed_twice_is_said() -> None:
    program = schedule(module := make_module(bottleneck, SHAPE, sram_limit=40_000), "npu-sched")
    again = program.attributes[RECOMPUTED_MACS]
    contents = read(binary(make_module(bottleneck, SHAPE, sram_limit=40_000)))
    macs = {entry.name: (entry.macs, entry.recomputed_macs) for entry in contents.operators}
    assert macs["t0"][0] == 30 * 31 * 8 * 48
    assert macs["t0"][1] > 0
    assert f"t0 = {macs['t0'][1]} " in str(again)
    assert macs["t2"] == (30 * 31 * 48 * 8, 0)
    assert program is program_of(module)


def test_nothing_is_cut_that_fits() -> None:
    program = schedule(make_module(bottleneck, SHAPE), "npu-sched")
    assert RECOMPUTED_MACS not in program.attributes


def planner_of(build: Callable[[Body], SSAValue], shape: tuple[int, ...] = SHAPE) -> StripePlanner:
    program = program_of(make_module(build, shape))
    return StripePlanner(read_rows(program.block, targets.load("npu-256"), "flash"), 32)


@given(st.sampled_from([bottleneck, shrinking]), st.integers(1, 12))
def test_stripes_cover_every_row_and_need_no_more_in_the_middle(build: Callable[[Body], SSAValue], height: int) -> None:
    graph = planner_of(build).graph
    last = len(graph.layers) - 1
    chain = Chain(0, last, height)
    found = list(stripes(graph, chain))
    assert found[0][last].first == 0
    assert found[-1][last].end == graph.layers[last].rows
    for before, after in pairwise(found):
        assert before[last].end == after[last].first
        assert all(after[number].first >= before[number].first for number in after)
    whole = stripe_rows(graph, chain, Rows(0, graph.layers[last].rows))
    for number, rows in whole.items():
        assert min(needed[number].first for needed in found) == rows.first
        assert max(needed[number].end for needed in found) == rows.end


def test_a_plan_counts_tensors_in_whole_bursts() -> None:
    graph = planner_of(bottleneck).graph
    burst = 4096 * 3  # no tensor here is a multiple of it
    planner, exact = StripePlanner(graph, burst), StripePlanner(graph, 1)
    assert planner.plain.arena_bytes % burst == planner.smallest.arena_bytes % burst == 0
    whole = Chain(0, len(graph.layers) - 1, 4)
    for estimate in (StripePlanner._live, StripePlanner._inner_bytes):
        assert estimate(planner, whole) % burst == 0
        assert estimate(exact, whole) % burst


@given(st.sampled_from([bottleneck, shrinking]), st.floats(0.2, 1.2))
def test_a_plan_keeps_its_limit(build: Callable[[Body], SSAValue], part: float) -> None:
    planner = planner_of(build)
    limit = int(planner.plain.arena_bytes * part)
    plan = planner.within(limit)
    assert (plan is None) == (limit < planner.smallest.arena_bytes)
    if plan is not None:
        assert plan.arena_bytes <= limit
        assert [chain.first for chain in plan.chains] == [0, *(chain.last + 1 for chain in plan.chains[:-1])]
