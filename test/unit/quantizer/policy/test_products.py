"""A layer as products gives what its kernel gives, whatever its window, groups and multiplier."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder
from odc_mlir.formats.circle.reader import read_model
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


def layer_of(name: str, shape: tuple, filters: tuple, options: dict) -> tuple[bytes, Node, Product]:
    """A layer: its file, its node, and as products."""
    builder = ModelBuilder()
    steps = {} if name == "FULLY_CONNECTED" else {"stride_h": 1, "stride_w": 1}
    x, w = builder.tensor("x", shape), builder.constant("w", np.random.default_rng(0).standard_normal(filters))
    file = builder.file([x], [builder.made("y", None, name, x, w, **steps | options)])
    node = build_graph(read_model(file)).nodes[0].node
    return file, node, Product.of(node)


@pytest.mark.parametrize(("name", "shape", "filters", "options"), LAYERS)
def test_products_are_the_layer(name: str, shape: tuple, filters: tuple, options: dict) -> None:
    file, node, product = layer_of(name, shape, filters, options)
    random = np.random.default_rng(1)
    runs = [random.standard_normal(shape).astype(np.float32) for _ in range(4)]
    x, weights = runs[0], node.operand(1).array()
    (expected,) = odc_mlir.run(file, [x], backend="host")
    rows = product.rows(x)
    results = np.einsum("gnk,gok->ngo", rows, product.matrix(weights))
    np.testing.assert_allclose(results.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
    np.testing.assert_array_equal(product.weights(product.matrix(weights)), weights)
    assert (product.name, product.row_count(x)) == ("y", rows.shape[1])
    np.testing.assert_array_equal(product.rows(x, 2, 5), rows[:, 2::5])
    np.testing.assert_allclose(product.means(x)[0], rows.mean(axis=1, dtype=np.float64), rtol=1e-5, atol=1e-6)
    joined = np.concatenate(runs)
    np.testing.assert_array_equal(product.rows(joined), np.concatenate([product.rows(x) for x in runs], axis=1))
    np.testing.assert_array_equal(product.means(joined, 4), np.concatenate([product.means(x) for x in runs]))


def test_scales_go_with_their_results() -> None:
    *_, product = layer_of(*LAYERS[3])
    scales, zero_points = product.scales(QuantParams((1.0, 2.0, 3.0, 4.0, 5.0, 6.0), (0,) * 6, 3))
    assert scales.tolist() == [[1, 2], [3, 4], [5, 6]]
    assert not zero_points.any()
    assert product.scales(QuantParams((0.5,), (7,)))[1].tolist() == [[7, 7]] * 3


@pytest.mark.parametrize("operator", ["ADD", "FULLY_CONNECTED"])
def test_other_operators_and_computed_weights_are_no_products(operator: str) -> None:
    builder = ModelBuilder()
    a, b = builder.tensor("a", (4, 4)), builder.tensor("b", (4, 4))
    model = builder.finish([a, b], [builder.made("c", (4, 4), operator, a, b)])
    assert Product.of(build_graph(model).nodes[0].node) is None
