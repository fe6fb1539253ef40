"""Constants that are stored as codes: decoded once, and the same numbers."""

from __future__ import annotations

import numpy as np

import odc_mlir
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.circle.model import Model, Quantization
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

CODES = np.array([[2, -4, 6], [8, 1, -3]], np.int8)
SCALES = np.array([0.5, 0.25], np.float32)
WEIGHTS = CODES * SCALES[:, None]


def stored_as_codes(*, returned: bool = False) -> Model:
    """A fully connected layer whose weights are a DEQUANTIZE of codes, which is an output as well if ``returned``."""
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 3))
    codes = builder.tensor("codes", (2, 3), "int8", data=CODES)
    builder.subgraph.tensors[codes].quantization = Quantization(SCALES, np.zeros(2, np.int64), 0)
    weights, y = builder.tensor("weights", (2, 3)), builder.tensor("y", (1, 2))
    builder.operator("DEQUANTIZE", [codes], [weights])
    builder.operator("FULLY_CONNECTED", [x, weights], [y])
    return builder.finish([x], [y, weights] if returned else [y])


def executor(model: Model) -> HostExecutor:
    return HostExecutor(build_graph(read_model(model_bytes(model))))


def test_nothing_is_left_to_do_in_a_run() -> None:
    made = executor(stored_as_codes())
    events: list[str] = []
    x = np.array([[1, -2, 3]], np.float32)
    (y,) = made.run([x], observe=lambda event: events.append(event.op))
    assert events == ["FULLY_CONNECTED"]
    np.testing.assert_allclose(y, x @ WEIGHTS.T)


def test_the_weights_are_a_constant_to_the_kernel() -> None:
    made = executor(stored_as_codes())
    weights = made.graph.nodes[1].node.operand(1)
    assert weights.is_const
    np.testing.assert_array_equal(weights.array(), WEIGHTS)


def test_an_output_is_the_callers_own() -> None:
    made = executor(stored_as_codes(returned=True))
    _, first = made.run([np.ones((1, 3), np.float32)])
    first[...] = 0
    _, second = made.run([np.ones((1, 3), np.float32)])
    np.testing.assert_array_equal(second, WEIGHTS)


def test_what_the_kernel_refuses_is_left_for_the_run() -> None:
    model = stored_as_codes()
    quantization = model.subgraphs[0].tensors[1].quantization
    assert quantization is not None
    quantization.scale = np.array([0.5, np.inf], np.float32)
    graph = build_graph(read_model(model_bytes(model)))
    made = HostExecutor(graph)
    assert len(made.units) == 2


def test_native_code_reads_a_decoded_constant_that_is_an_output_too() -> None:
    model = stored_as_codes(returned=True)
    x = np.array([[1, -2, 3]], np.float32)
    results = odc_mlir.run(odc_mlir.compile(model_bytes(model), target="cpu"), [x])
    for found, expected in zip(results, odc_mlir.run(model_bytes(model), [x]), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
