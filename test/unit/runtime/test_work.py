"""Work of operators that run others: branches, loops, calls."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.formats.circle.model import Model
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.execution.work import MAX_TRIPS, Measured, graph_work
from odc_mlir.targets.costs import load_host

RATES = load_host("reference", "here")
MACS = 4 * 4  # of one FULLY_CONNECTED of these tests


def _fully_connected(builder: ModelBuilder, x: int, y: int) -> None:
    weights = builder.tensor("w", (4, 4), data=np.ones((4, 4), np.float32))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y])


def _constant(builder: ModelBuilder, value: int) -> int:
    return builder.tensor(f"c{value}", (), "int32", data=np.array(value, np.int32))


def _loop(trips: int, *, start: int | None = 0, step: int = 1, limit: int | None = None) -> Model:
    """Multiplies ``x`` by a matrix ``trips`` times; ``start`` None: the counter begins at an input."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    last = builder.tensor("last", (), "int32")
    first = builder.tensor("first", (), "int32") if start is None else _constant(builder, start)
    options = {"cond_subgraph_index": 1, "body_subgraph_index": 2}
    builder.operator("WHILE", [x, first], [y, last], options=options)
    builder.finish([x] if start is not None else [x, first], [y])
    builder.begin("condition")
    x, i, more = builder.tensor("x", (1, 4)), builder.tensor("i", (), "int32"), builder.tensor("more", (), "bool")
    builder.operator("LESS", [i, _constant(builder, trips * step if limit is None else limit)], [more])
    builder.finish([x, i], [more])
    builder.begin("body")
    x, i = builder.tensor("x", (1, 4)), builder.tensor("i", (), "int32")
    y, after = builder.tensor("y", (1, 4)), builder.tensor("after", (), "int32")
    _fully_connected(builder, x, y)
    builder.operator("ADD", [i, _constant(builder, step)], [after])
    builder.finish([x, i], [y, after])
    return builder.model


def _work(model: Model) -> Measured:
    return graph_work(build_graph(model), RATES)


@pytest.mark.parametrize("step", [1, 3])
def test_a_loop_counts_as_often_as_it_runs(step: int) -> None:
    (seven,), (nine,) = _work(_loop(7, step=step)).works, _work(_loop(9, step=step)).works
    assert (seven.trips, seven.macs, nine.macs) == (7, 7 * MACS, 9 * MACS)
    once = (nine.host_ns - seven.host_ns) / 2  # body and condition
    assert 7 * once < seven.host_ns < 8 * once, "the condition once more than the body"


@pytest.mark.parametrize(
    "model", [_loop(7, start=None), _loop(MAX_TRIPS + 1), _loop(7, step=0, limit=1)], ids=["data", "long", "endless"]
)
def test_a_loop_that_is_not_known_counts_once(model: Model) -> None:
    (work,) = _work(model).works
    assert (work.trips, work.macs) == (None, MACS)


def test_shapes_behind_a_loop_are_those_of_its_state() -> None:
    found = _work(_loop(2))
    assert found.nodes[0].results[0].shape == (1, 4)


def _branches(condition: bool | None) -> Model:
    """``x`` itself, or times a matrix if the condition holds."""
    builder = ModelBuilder()
    c = builder.tensor("c", (), "bool", data=None if condition is None else np.array(condition))
    x, y, z = (builder.tensor(name, (1, 4)) for name in "xyz")
    options = {"then_subgraph_index": 1, "else_subgraph_index": 2}
    builder.operator("IF", [c, x], [y], options=options)
    _fully_connected(builder, y, z)
    builder.finish([x] if condition is not None else [c, x], [z])
    builder.begin("then")
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    _fully_connected(builder, x, y)
    builder.finish([x], [y])
    builder.begin("else")
    x = builder.tensor("x", (1, 4))
    builder.finish([x], [x])
    return builder.model


@pytest.mark.parametrize(("condition", "macs"), [(None, MACS), (True, MACS), (False, 0)])
def test_a_branch_counts_as_the_larger_one_unless_it_is_known(condition: bool | None, macs: int) -> None:
    found = _work(_branches(condition))
    assert [work.macs for work in found.works] == [macs, MACS], "what follows has a known shape too"


@pytest.mark.parametrize(("name", "options", "macs"), [("CALL", {"subgraph": 1}, MACS), ("CALL_ONCE", {}, 0)])
def test_calls(name: str, options: dict[str, Any], macs: int) -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 4)), builder.tensor("y", (1, 4))
    operands, results = ([x], [y]) if name == "CALL" else ([], [])
    builder.operator(name, operands, results, options=options or {"init_subgraph_index": 1})
    builder.finish([x], [y] if results else [x])
    builder.begin("callee")
    a, b = builder.tensor("a", (1, 4)), builder.tensor("b", (1, 4))
    if results:
        builder.finish([a], [b])
    else:
        builder.subgraph.tensors[a].buffer = len(builder.model.buffers)
        builder.model.buffers.append(memoryview(np.ones(4, np.float32).tobytes()))
        builder.finish([], [b])
    _fully_connected(builder, a, b)
    (work,) = _work(builder.model).works
    assert work.macs == macs
