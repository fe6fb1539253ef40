"""Models that would never end, however short their files are."""

from __future__ import annotations

import numpy as np
import pytest

from helpers.models import ModelBuilder
from odc_mlir.errors import AllocationError, ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.runtime.execution import units
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph


def _call(name: str, table: str, results: int, **options: int) -> Operator:
    return Operator(
        name,
        inputs=(0,),
        outputs=tuple(range(1, 1 + results)),
        options_type=table,
        options=default_options(table) | options,
    )


def _graph(*operators: Operator, dtype: str = "float32") -> SubGraph:
    results = [Tensor(f"t{index}", dtype, (1,)) for operator in operators for index in operator.outputs]
    return SubGraph(None, [Tensor("x", dtype, (1,)), *results], (0,), (len(results),), list(operators))


def _endless_loop() -> Model:
    """``while x: x = x`` for a boolean."""
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1,), "bool"), builder.tensor("y", (1,), "bool")
    builder.operator("WHILE", [x], [y], options={"cond_subgraph_index": 1, "body_subgraph_index": 1})
    model: Model = builder.finish([x], [y])
    model.subgraphs.append(SubGraph(None, [Tensor("x", "bool", (1,))], (0,), (0,)))
    return model


def _doubling_calls(depth: int) -> Model:
    """Each subgraph calls the next one twice."""
    model = Model(subgraphs=[])
    for index in range(1, depth):
        first, second = (_call("CALL", "CallOptions", 1, subgraph=index) for _ in range(2))
        second.inputs, second.outputs = (1,), (2,)
        model.subgraphs.append(_graph(first, second))
    model.subgraphs.append(SubGraph(None, [Tensor("x", "float32", (1,))], (0,), (0,)))
    return model


def test_endless_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MAX_CALLS", 100)
    executor = HostExecutor(build_graph(_endless_loop()))
    (ended,) = executor.run([np.array([False])])
    assert not ended[0]
    for _ in range(2):  # each run counts from the start
        with pytest.raises(ModelError, match="the operator runs subgraphs more than 100 times"):
            executor.run([np.array([True])])
    executor.run([np.array([False])])


def test_calls_that_multiply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(units, "MAX_CALLS", 100)
    x = [np.ones(1, np.float32)]
    assert HostExecutor(build_graph(_doubling_calls(6))).run(x)[0] == 1
    with pytest.raises(ModelError, match="the operator runs subgraphs more than 100 times"):
        HostExecutor(build_graph(_doubling_calls(10))).run(x)


def test_a_bias_that_fits_no_more() -> None:
    """Inputs of other sizes than declared are checked as the declared ones are."""
    builder = ModelBuilder()
    x, weights, bias = (builder.tensor(*made) for made in (("x", (1, 4)), ("w", (8, 4)), ("b", (8,))))
    y = builder.tensor("y", (1, 8))
    builder.operator("FULLY_CONNECTED", [x, weights, bias], [y])
    executor = HostExecutor(build_graph(builder.finish([x, weights, bias], [y])), resize=True)
    shapes = (1, 4), (10, 4), (8,)
    with pytest.raises(ModelError, match=r"the bias has the shape \[8\]; it must have 10 elements"):
        executor.run([np.ones(shape, np.float32) for shape in shapes])


def test_dense_layer_without_rows() -> None:
    builder = ModelBuilder()
    x, weights = builder.tensor("x", (1, 4), signature=(-1, 4)), builder.tensor("w", (8, 4))
    y = builder.tensor("y", (1, 8), signature=(-1, 8))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    executor = HostExecutor(build_graph(builder.finish([x, weights], [y])))
    (found,) = executor.run([np.zeros((0, 4), np.float32), np.ones((8, 4), np.float32)])
    assert found.shape == (0, 8)


def test_block_weights_are_constants() -> None:
    builder = ModelBuilder()
    x, weights, y = builder.tensor("x", (1, 32)), builder.tensor("w", (4, 32), "ggml_q4_0"), builder.tensor("y", (1, 4))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    with pytest.raises(UnsupportedError, match="weights of ggml_q4_0 must be constant"):
        HostExecutor(build_graph(builder.finish([x, weights], [y]))).run(
            [np.ones((1, 32), np.float32), np.ones((4, 32), np.uint8)]
        )


def test_results_whose_size_only_a_run_tells() -> None:
    """They are refused before they are made, even where nothing but a value is large."""
    builder = ModelBuilder()
    dims, value = builder.tensor("dims", (1,), "int32"), builder.tensor("value", ())
    y = builder.tensor("y", (1,), signature=(-1,))
    builder.operator("FILL", [dims, value], [y])
    executor = HostExecutor(build_graph(builder.finish([dims, value], [y])), max_bytes=1000)
    one = np.array(1, np.float32)
    assert executor.run([np.array([250], np.int32), one])[0].shape == (250,)
    with pytest.raises(AllocationError, match="need 1004 bytes at this operator, more than the limit of 1000"):
        executor.run([np.array([251], np.int32), one])
