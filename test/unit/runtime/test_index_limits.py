"""Inputs that are indices are made up within their tables."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers.float_nets import FloatNet
from helpers.models import ModelBuilder
from odc_mlir.formats.samples import random_inputs
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.runtime.execution.graph import build_graph, index_limits


def _index(n: FloatNet, *shape: int) -> SSAValue:
    return n.input(np.zeros(shape, np.int32))


def _sum_of_indices(n: FloatNet) -> SSAValue:
    x = _index(n, 2)
    made: SSAValue = n.add("GATHER", n.weights(7, 3), n.add("ADD", x, x, dtypes=["int32"]), axis=0)
    return made


@pytest.mark.parametrize(
    ("make", "limit"),
    [
        (lambda n: n.add("GATHER", n.weights(7, 3), _index(n, 2), axis=0), 7),
        (lambda n: n.add("GATHER", n.weights(7, 3), _index(n, 2), axis=-1), 3),
        (lambda n: n.add("EMBEDDING_LOOKUP", _index(n, 2), n.weights(5, 3)), 5),
        (lambda n: n.add("GATHER_ND", n.weights(7, 4, 3), _index(n, 2, 2)), 4),
        (
            lambda n: n.add(
                "GATHER", n.weights(7, 3), n.add("SQUEEZE", _index(n, 1, 2), dtypes=["int32"], squeeze_dims=[0]), axis=0
            ),
            7,
        ),
        (lambda n: n.add("CAST", _index(n, 2), in_data_type="int32", out_data_type="float32"), None),
        (_sum_of_indices, None),
    ],
)
def test_limits(make: Callable[[FloatNet], SSAValue], limit: int | None) -> None:
    net = FloatNet()
    graph = build_graph(export_model(net.module(make(net))))
    assert index_limits(graph) == (limit,)


def test_indices_of_unknown_depth_have_no_limit() -> None:
    builder = ModelBuilder()
    table = builder.tensor("table", (7, 4), data=np.zeros((7, 4), np.float32))
    places, found = builder.tensor("places", None, "int32"), builder.tensor("found", None)
    builder.operator("GATHER_ND", [table, places], [found])
    assert index_limits(build_graph(builder.finish([places], [found]))) == (None,)


def test_of_two_tables_the_smaller_counts() -> None:
    net = FloatNet()
    x = _index(net, 2)
    ends = [net.add("GATHER", net.weights(rows, 3), x, axis=0) for rows in (9, 4)]
    assert index_limits(build_graph(export_model(net.module(*ends)))) == (4,)


def test_made_up_integers_stay_below_the_limit() -> None:
    tensors = [(np.dtype(np.int32), (200,)), (np.dtype(np.int64), (200,)), (np.dtype(np.uint8), (200,))]
    first, second, third = random_inputs(tensors, 0, [3, None, 2])
    assert set(first) == {0, 1, 2}
    assert second.max() > 50
    assert set(third) == {0, 1}


def test_verifying_a_model_with_a_small_table() -> None:
    net = FloatNet()
    rows = net.add("GATHER", net.weights(3, 4), _index(net, 5), axis=0)
    made = odc_mlir.optimize(net.module(net.add("ADD", rows, net.const(0.0))), verify=True)
    assert made.difference is not None
    assert made.difference.within_tolerance
