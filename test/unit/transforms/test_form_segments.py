"""Rounds of host and NPU operators: each operator once, after what it needs, in as few rounds as the sides allow."""

from __future__ import annotations

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given
from xdsl.dialects.builtin import ModuleOp

from odc_mlir.support.text import parse_module
from odc_mlir.transforms.common.placement import SEGMENT, main_function, operators
from odc_mlir.transforms.partition.npu_form_segments import NpuFormSegmentsPass, dependencies
from odc_mlir.transforms.partition.plans.plans import alternate
from odc_mlir.universe import make_context


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[set[int]], list[bool]]:
    count = draw(st.integers(1, 12))
    needs = [draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set() for i in range(count)]
    return needs, draw(st.lists(st.booleans(), min_size=count, max_size=count))


@given(graphs())
def test_every_operator_runs_once_after_what_it_needs(graph: tuple[list[set[int]], list[bool]]) -> None:
    needs, on_npu = graph
    rounds = alternate(needs, on_npu)
    order = [index for _, members in rounds for index in members]
    assert sorted(order) == list(range(len(needs)))
    position = {index: place for place, index in enumerate(order)}
    assert all(position[producer] < position[index] for index in order for producer in needs[index])
    assert all(on_npu[index] == side for side, members in rounds for index in members)


@given(graphs())
def test_segments_are_convex(graph: tuple[list[set[int]], list[bool]]) -> None:
    """No path leaves a round and comes back: whatever lies between two of its members is in it."""
    needs, on_npu = graph
    after: list[set[int]] = [set() for _ in needs]  # everything that an operator depends on
    for index, producers in enumerate(needs):
        after[index] = set(producers).union(*(after[p] for p in producers))
    for _, members in alternate(needs, on_npu):
        inside = set(members)
        for last in members:
            between = {m for m in after[last] - inside if after[m] & inside}
            assert not between


@given(graphs())
def test_neighbouring_rounds_are_of_different_sides(graph: tuple[list[set[int]], list[bool]]) -> None:
    """Two rounds of one side next to each other would be one."""
    sides = [side for side, _ in alternate(*graph)]
    assert all(a != b for a, b in pairwise(sides))


def test_independent_chains_share_their_segments() -> None:
    """Two chains npu, host, npu side by side: two segments, not four."""
    needs: list[set[int]] = [set(), {0}, {1}, set(), {3}, {4}]
    assert alternate(needs, [True, False, True, True, False, True]) == [
        (True, [0, 3]),
        (False, [1, 4]),
        (True, [2, 5]),
    ]


def _module(text: str) -> ModuleOp:
    return parse_module(make_context(), text)


def test_operators_with_effects_keep_their_order() -> None:
    """Nothing but the order says that the second write comes after the first."""
    effect = 'circle.custom(%x) {custom_code = "log"} : (tensor<4xf32>) -> tensor<4xf32>'
    text = f"func.func @main(%x: tensor<4xf32>) {{\n%0 = {effect}\n%1 = {effect}\nfunc.return\n}}"
    found = list(operators(main_function(_module(text))))
    assert dependencies(found) == [set(), {0}]


def test_constants_stay_in_front() -> None:
    module = _module(
        """
        func.func @main(%x: tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>) {
          %0 = circle.relu(%x) attributes {odc.placed = "npu"} : (tensor<2xf32>) -> tensor<2xf32>
          %1 = circle.relu6(%0) attributes {odc.placed = "host"} : (tensor<2xf32>) -> tensor<2xf32>
          %c = circle.const [1.0, 2.0] : tensor<2xf32>
          %2 = circle.add(%x, %c) attributes {odc.placed = "npu"} : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
          func.return %1, %2 : tensor<2xf32>, tensor<2xf32>
        }"""
    )
    NpuFormSegmentsPass().apply(make_context(), module)
    module.verify()
    names = [op.name for op in main_function(module).body.block.ops]
    assert names == ["circle.const", "circle.relu", "circle.add", "circle.relu6", "func.return"]
    assert [SEGMENT in op.attributes for op in operators(module)] == [True, True, False]
