"""Models of single operators, as targets give them to their vendors' tools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir import ops
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Blockwise, Callee, Node, QuantParams, TensorInfo
from odc_mlir.plugins.target import operator_model
from odc_mlir.runtime.execution.graph import build_graph


def test_it_computes_the_same_as_the_operator_in_its_model() -> None:
    builder, random = ModelBuilder(), np.random.default_rng(2)
    x, y = builder.tensor("x", (2, 3)), builder.tensor("y", (2, 4))
    weights = builder.tensor("w", (4, 3), data=random.normal(size=(4, 3)).astype(np.float32))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y], options={"fused_activation_function": "relu"})
    model = model_bytes(builder.finish([x], [y]))
    (item,) = build_graph(read_model(model)).nodes
    value = random.normal(size=(2, 3)).astype(np.float32)
    single = write_model(operator_model(item.node))
    np.testing.assert_array_equal(odc_mlir.run(single, [value])[0], odc_mlir.run(model, [value])[0])


def test_scales_and_several_inputs_are_kept() -> None:
    quant = QuantParams((0.5, 0.25), (0, 0), 1)
    a, b, y = (TensorInfo(name, "float32", (1, 2)) for name in "aby")
    a = replace(a, dtype="int8", quant=quant)
    (graph,) = operator_model(Node(ops.get("ADD"), (a, b), (y,))).subgraphs
    assert (graph.inputs, graph.outputs) == ((0, 1), (2,))
    found = graph.tensors[0].quantization
    assert found is not None
    assert found.params(2) == quant
    assert [tensor.dtype for tensor in graph.tensors] == ["int8", "float32", "float32"]


X, Y = (TensorInfo(name, "float32", (1, 2)) for name in "xy")
WITH_BLOCKS = replace(X, blockwise=Blockwise("int4", 2, Y))
CALLING = Node(ops.get("IF"), (X,), (Y,), callees={0: Callee("then", (X,), (Y,))})


@pytest.mark.parametrize(
    ("node", "error", "text"),
    [
        (CALLING, UnsupportedError, "IF cannot be a separate model"),
        (Node(ops.get("NEG"), (WITH_BLOCKS,), (Y,)), UnsupportedError, "NEG cannot be a separate model"),
        (Node(ops.get("NEG"), (replace(X, shape=(None, 2)),), (Y,)), ModelError, "the shape is not fully known"),
    ],
    ids=["calls", "blocks", "shape"],
)
def test_what_cannot_be_a_model_is_refused(node: Node, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        operator_model(node)
