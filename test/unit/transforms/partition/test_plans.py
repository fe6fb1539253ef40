"""The plan chosen is never worse than doing nothing or everything, keeps units together and obeys bounds and users."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir import targets
from odc_mlir.transforms.partition.plans.plans import (
    ALL_HOST,
    ALL_SUPPORTED,
    Bounds,
    Item,
    OperatorCost,
    PlacementProblem,
    choose,
)

HOST = targets.load("npu-256").host


def cycles(works: Sequence[OperatorCost]) -> float:
    return sum(work.cycles for work in works)


def problem(items: Sequence[Item], units: Sequence[tuple[int, ...]] | None = None, size: int = 100) -> PlacementProblem:
    """Operators whose tensors are numbered; the last one's results leave the graph."""
    writer = {tensor: index for index, item in enumerate(items) for tensor in item.writes}
    needs = [{writer[tensor] for tensor in item.reads if tensor in writer} for item in items]
    count = 1 + max(tensor for item in items for tensor in (*item.reads, *item.writes))
    return PlacementProblem(
        items,
        needs,
        units or [(index,) for index in range(len(items))],
        [size] * count,
        frozenset(items[-1].writes),
        HOST,
        1_000_000_000,
        cycles,
    )


def chain(*costs: tuple[float, float | None], **options: bool) -> list[Item]:
    """Operators one behind another with (host ns, NPU cycles of 1 ns; None: cannot)."""
    works = [None if npu is None else OperatorCost(npu, 1, 1) for _, npu in costs]
    return [
        Item(host, work, (i,), (i + 1,), **options)
        for i, ((host, _), work) in enumerate(zip(costs, works, strict=True))
    ]


def test_what_pays_goes_to_the_npu() -> None:
    result = choose(problem(chain((1e6, 10), (1e6, 10))), Bounds())
    assert result.chosen.on_npu == (True, True)
    (segment,) = result.chosen.segments
    assert (segment.input_bytes, segment.output_bytes, segment.npu_ns) == (100, 100, 20)
    assert segment.ns == 20 + HOST.switch_ns + 2 * HOST.tensor_ns + 1000 * 200 / HOST.transfer_bytes_per_us
    assert result.chosen.name == ALL_SUPPORTED
    assert result.runner_up is not None
    assert result.runner_up.ns > result.chosen.ns


def test_what_does_not_pay_stays() -> None:
    result = choose(problem(chain((10, 10), (10, 10))), Bounds())
    assert result.chosen.on_npu == (False, False)
    assert result.chosen.name == ALL_HOST
    assert result.reasons[0].startswith("cost: on the NPU an inference would take ")


@pytest.mark.parametrize("costs", [(1e6, 10), (10, 10)])
@pytest.mark.parametrize("prefer", ["performance", "compile-time"])
def test_the_runner_up_of_all_that_can_run_is_another_plan(costs: tuple[float, float], prefer: str) -> None:
    result = choose(problem(chain(costs, costs)), Bounds(), prefer, strategy="supported")
    assert result.chosen.name == ALL_SUPPORTED
    assert result.reasons == {}
    assert result.runner_up is not None
    assert result.runner_up.on_npu != result.chosen.on_npu
    pinned = choose(problem(chain(costs, pinned=True)), Bounds(), prefer, strategy="supported")
    assert (pinned.chosen.on_npu, pinned.runner_up) == ((True,), None)


def test_a_cheap_operator_between_two_segments_joins_them() -> None:
    """Slower itself on the NPU, it saves a way there and back."""
    result = choose(problem(chain((1e6, 10), (5, 50), (1e6, 10))), Bounds())
    assert result.chosen.on_npu == (True, True, True)


def test_the_edge_of_a_segment_may_be_cut_off() -> None:
    result = choose(problem(chain((1e6, 10), (5, 50_000))), Bounds())
    assert result.chosen.on_npu == (True, False)
    assert result.reasons[1] == "cost: on the NPU an inference would take 0.05 ms longer"


def test_operators_that_only_the_host_reads_move_together() -> None:
    """Each of them alone, before the host's operator, makes two segments of one."""
    large, small, host_ns = OperatorCost(10, 1, 1), OperatorCost(5, 1, 1), 0.4 * HOST.switch_ns
    found = [Item(1e6, large, (0,), (1,)), Item(host_ns, small, (0,), (2,)), Item(host_ns, small, (0,), (3,))]
    found += [Item(5, None, (2, 3), (4,)), Item(1e6, large, (1, 4), (5,))]
    result = choose(problem(found), Bounds())
    assert result.chosen.on_npu == (True, False, False, False, True)
    assert len(result.chosen.segments) == 1


def test_operators_that_only_such_operators_read_move_with_them() -> None:
    """The view in front of a small operator would otherwise stay, and split the segment."""
    large, small, host_ns = OperatorCost(10, 1, 1), OperatorCost(5, 1, 1), 0.4 * HOST.switch_ns
    found = [Item(1e6, large, (0,), (1,)), Item(host_ns, small, (0,), (2,)), Item(host_ns, small, (2,), (3,))]
    found += [Item(5, None, (2, 3), (4,)), Item(1e6, large, (1, 4), (5,))]
    assert choose(problem(found), Bounds()).chosen.on_npu == (True, False, False, False, True)


def test_only_a_single_segment_keeps_states() -> None:
    costs = ((1e6, 10), (1e6, 10), (1e6, 10))
    state = ((0, 3),)
    for npu, transferred in ((10, 0), (None, 400)):
        (first, _, last), host = costs, (1e6, npu)
        found = choose(replace(problem(chain(first, host, last)), states=state), Bounds()).chosen
        assert sum(segment.input_bytes + segment.output_bytes for segment in found.segments) == transferred


def test_units_move_together() -> None:
    result = choose(problem(chain((1e6, 10), (5, 50_000)), [(0, 1)]), Bounds())
    assert result.chosen.on_npu == (True, True)


def test_users_have_the_last_word() -> None:
    result = choose(problem(chain((10, 1e6), pinned=True)), Bounds(max_segments=0))
    assert result.chosen.on_npu == (True,)


def test_views_alone_make_no_segment() -> None:
    result = choose(problem(chain((1e6, 0), is_view=True)), Bounds())
    assert (result.chosen.on_npu, result.reasons) == ((False,), {0: "segment-size: views only"})


@pytest.mark.parametrize(
    ("bounds", "reason"),
    [
        (Bounds(min_operators=2), "segment-size: 1 of at least 2 operators"),
        (Bounds(min_macs=1), "segment-size: 0 of at least 1 multiply-accumulates"),
        (Bounds(max_segments=1), "segment-count: at most 1 segments"),
    ],
)
def test_bounds(bounds: Bounds, reason: str) -> None:
    result = choose(problem(chain((1e6, 10), (10, None), (2e6, 10))), bounds)
    assert result.reasons[0] == reason
    assert result.chosen.on_npu[2] is (bounds.max_segments == 1)


def test_preferring_memory_takes_fewer_bytes_for_little_time() -> None:
    items = chain((1e6, 10), (10, None), (38_000, 25_000))
    items[2] = Item(38_000, OperatorCost(25_000, 0, 1e6), (2,), (3,))
    assert choose(problem(items), Bounds()).chosen.on_npu == (True, False, True)
    assert choose(problem(items), Bounds(), "memory").chosen.on_npu == (True, False, False)


def test_preferring_compile_time_looks_at_the_extremes_only() -> None:
    items = chain((1e6, 10), (5, 50_000))
    assert choose(problem(items), Bounds(), "compile-time").chosen.on_npu == (True, True)


@st.composite
def graphs(draw: st.DrawFn) -> PlacementProblem:
    count = draw(st.integers(1, 9))
    items = []
    for index in range(count):
        reads = tuple(sorted(draw(st.sets(st.integers(0, index), min_size=1, max_size=2))))
        work = draw(st.none() | st.builds(OperatorCost, st.floats(0, 1e5), st.floats(0, 1e3), st.floats(0, 1e3)))
        view = draw(st.booleans()) and draw(st.booleans())
        items.append(Item(draw(st.floats(0, 1e5)), work, reads, (index + 1,), view, macs=draw(st.integers(0, 9))))
    return problem(items, size=draw(st.integers(0, 100_000)))


@given(graphs(), st.sampled_from(["performance", "memory", "compile-time"]))
def test_never_slower_than_all_or_nothing(graph: PlacementProblem, prefer: str) -> None:
    result = choose(graph, Bounds(), prefer)
    assert result.all_host is not None
    assert result.all_supported is not None
    limit = min(result.all_host.ns, result.all_supported.ns)
    assert result.chosen.ns <= limit * (1.05 if prefer == "memory" else 1.0) + 1e-6
    on_npu = result.chosen.on_npu
    assert all(graph.items[i].work is not None for i in range(len(on_npu)) if on_npu[i])
    unexplained = [i for i, item in enumerate(graph.items) if item.work is not None and not on_npu[i]]
    assert sorted(result.reasons) == unexplained


@given(graphs(), st.integers(0, 2), st.integers(0, 3))
def test_bounds_hold(graph: PlacementProblem, most: int, least: int) -> None:
    chosen = choose(graph, Bounds(min_operators=least, max_segments=most)).chosen
    assert len(chosen.segments) <= most
    for segment in chosen.segments:
        assert sum(not graph.items[i].is_view for i in segment.members) >= least


@given(graphs())
def test_the_same_every_time(graph: PlacementProblem) -> None:
    assert choose(graph, Bounds()) == choose(graph, Bounds())
