"""A layer as products gives what its kernel gives, whatever its window, groups and multiplier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.ops.spec import Node, QuantParams
from odc_mlir.quantizer.policy.products import Product
from odc_mlir.runtime.execution.graph import build_graph

LAYERS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, Any]]] = [
    ("CONV_2D", (2, 5, 6, 4), (6, 3, 2, 4), {"padding": "same", "stride_h": 2, "stride_w": 1}),
    ("CONV_2D", (1, 7, 7, 4), (6, 3, 3, 2), {"padding": "same"}),
    ("CONV_2D", (1, 7, 9, 3), (2, 2, 3, 3), {"padding": "valid", "dilation_h_factor": 2, "dilation_w_factor": 3}),
    ("DEPTHWISE_CONV_2D", (1, 6, 5, 3), (1, 3, 3, 6), {"padding": "same", "depth_multiplier": 2}),
    ("DEPTHWISE_CONV_2D", (2, 6, 5, 3), (1, 2, 2, 3), {"padding": "valid", "depth_multiplier": 1, "stride_w": 2}),
    ("FULLY_CONNECTED", (3, 8), (5, 8), {}),
]


def model_of(
    name: str, shape: tuple[int, ...], filters: tuple[int, ...], options: dict[str, Any], random: np.random.Generator
) -> tuple[bytes, Node]:
    builder = ModelBuilder()
    weights = random.standard_normal(filters).astype(np.float32)
    steps = {} if name == "FULLY_CONNECTED" else {"stride_h": 1, "stride_w": 1}
    x, w = builder.tensor("x", shape), builder.tensor("w", filters, data=weights)
    y = builder.tensor("y", None)
    builder.operator(name, [x, w], [y], options=steps | options)
    model = builder.finish([x], [y])
    return model_bytes(model), build_graph(model).nodes[0].node


@pytest.mark.parametrize(("name", "shape", "filters", "options"), LAYERS)
def test_products_are_the_layer(
    name: str, shape: tuple[int, ...], filters: tuple[int, ...], options: dict[str, Any]
) -> None:
    random = np.random.default_rng(0)
    data, node = model_of(name, shape, filters, options, random)
    product = Product.of(node)
    assert product is not None
    x = random.standard_normal(shape).astype(np.float32)
    (expected,) = odc_mlir.run(data, [x], backend="host")
    weights = node.operand(1).array()
    results = np.einsum("gnk,gok->ngo", product.rows(x), product.matrix(weights))
    np.testing.assert_allclose(results.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(product.weights(product.matrix(weights)), weights)
    assert product.name == "y"


@pytest.mark.parametrize(("name", "shape", "filters", "options"), LAYERS)
def test_some_rows_and_means_are_those_of_all_rows(
    name: str, shape: tuple[int, ...], filters: tuple[int, ...], options: dict[str, Any]
) -> None:
    random = np.random.default_rng(1)
    _, node = model_of(name, shape, filters, options, random)
    product = Product.of(node)
    assert product is not None
    x = random.standard_normal(shape).astype(np.float32)
    rows = product.rows(x)
    assert product.row_count(x) == rows.shape[1]
    np.testing.assert_array_equal(product.rows(x, 2, 5), rows[:, 2::5])
    np.testing.assert_allclose(product.means(x)[0], rows.mean(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("name", "shape", "filters", "options"), LAYERS)
def test_joined_runs_give_what_each_gives(
    name: str, shape: tuple[int, ...], filters: tuple[int, ...], options: dict[str, Any]
) -> None:
    random = np.random.default_rng(2)
    _, node = model_of(name, shape, filters, options, random)
    product = Product.of(node)
    assert product is not None
    runs = [random.standard_normal(shape).astype(np.float32) for _ in range(4)]
    joined = np.concatenate(runs)
    np.testing.assert_array_equal(product.rows(joined), np.concatenate([product.rows(x) for x in runs], axis=1))
    np.testing.assert_array_equal(product.means(joined, 4), np.concatenate([product.means(x) for x in runs]))


def test_scales_go_with_their_results() -> None:
    _, node = model_of(*LAYERS[3], np.random.default_rng(0))
    product = Product.of(node)
    assert product is not None
    scales, zero_points = product.scales(QuantParams((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0,) * 6, 3))
    assert scales.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert not zero_points.any()
    assert product.scales(QuantParams((0.5,), (7,)))[1].tolist() == [[7, 7]] * 3


def test_other_operators_are_no_products() -> None:
    builder = ModelBuilder()
    a, b, c = (builder.tensor(n, (1, 4)) for n in "abc")
    builder.operator("ADD", [a, b], [c])
    assert Product.of(build_graph(builder.finish([a, b], [c])).nodes[0].node) is None


def test_computed_weights_are_no_product() -> None:
    builder = ModelBuilder()
    a, b, c = builder.tensor("a", (1, 4)), builder.tensor("b", (2, 4)), builder.tensor("c", (1, 2))
    builder.operator("FULLY_CONNECTED", [a, b], [c])
    assert Product.of(build_graph(builder.finish([a, b], [c])).nodes[0].node) is None
