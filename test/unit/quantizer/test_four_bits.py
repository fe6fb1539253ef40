"""int8 activations with int4 weights: as a scheme, and as what a budget may take layers to."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.float_models import recurrent, squeeze_excite
from helpers.float_nets import FloatNet
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.quantizer.pareto import Pricing
from odc_mlir.quantizer.policy.options import make_options
from odc_mlir.quantizer.policy.schemes import NARROWER, ladder_of, values_of, wider_values
from odc_mlir.runtime.execution.graph import Graph, build_graph

SCHEME = "int8x4"
# No help but other precisions.
PLAIN = {"rounding": "off", "correction": "off", "equalize": "none", "ranges": "minmax", "normalize": "off"}


def _graph(made: Any) -> Graph:
    return build_graph(read_model(made.to_circle()))


def test_what_a_scheme_of_four_bits_is_widened_to() -> None:
    assert ladder_of(SCHEME) == ("int8", "int16x8", "float")
    assert wider_values(SCHEME) == "int16x8"
    assert [wider_values(name) for name in ("int8", "uint8", "int16")] == ["int16x8", "int16", "float"]
    for wide, narrow in NARROWER.items():
        assert values_of(wide) == values_of(narrow)


def test_weights_are_int4_and_values_int8_also_on_the_target() -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme=SCHEME, calibration=samples, target="npu-256", help=False)
    graph = _graph(made)
    layers = [item for item in graph.nodes if item.node.spec.quant.biases]
    assert layers
    assert {graph.tensors[item.inputs[1]].dtype for item in layers} == {"int4"}
    assert {graph.tensors[item.inputs[0]].dtype for item in layers} == {"int8"}
    assert made.verdict["scheme"][graph.tensors[layers[0].outputs[0]].name] == SCHEME
    assert made.verdict["coverage"]["precisions"][SCHEME]["weights"] > 0
    assert made.verdict["coverage"]["target"]["runs_of_possible"] == 1.0
    package = odc_mlir.compile(made.model, target="npu-256")
    for sample in samples[:2]:
        for ours, theirs in zip(odc_mlir.run(package, sample), odc_mlir.run(made.model, sample), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    wide = odc_mlir.compile(odc_mlir.quantize(module, calibration=samples, help=False).model, target="npu-256")
    assert package.report["weights_encoded_bytes"] < 0.8 * wide.report["weights_encoded_bytes"]


def test_layers_get_eight_bits_where_four_are_too_coarse() -> None:
    module, samples = squeeze_excite()
    made = odc_mlir.quantize(module, scheme=SCHEME, calibration=samples, metric="sqnr", limit=43.0, **PLAIN)
    assert made.passed, made
    assert "int8" in made.verdict["choices"]["precisions"].values()
    assert {"int4", "int8"} <= {tensor.dtype for tensor in _graph(made).tensors if tensor.is_const}


def test_cells_of_one_scale_keep_weights_of_eight_bits() -> None:
    module, samples = recurrent()
    made = odc_mlir.quantize(module, scheme=SCHEME, calibration=samples, help=False)
    graph = _graph(made)
    (cell,) = (item for item in graph.nodes if item.node.spec.name == "UNIDIRECTIONAL_SEQUENCE_LSTM")
    assert {graph.tensors[cell.inputs[place]].dtype for place in range(1, 9)} == {"int8"}
    (layer,) = (item for item in graph.nodes if item.node.spec.name == "FULLY_CONNECTED")
    assert graph.tensors[layer.inputs[1]].dtype == "int4"


@pytest.mark.parametrize("budget", ["bytes", "time"])
def test_a_budget_may_take_weights_to_four_bits(budget: str) -> None:
    module, samples = squeeze_excite()
    options: dict[str, Any] = {"calibration": samples, **PLAIN}
    options |= {"target": "npu-256"} if budget == "time" else {}
    plain, least = (odc_mlir.quantize(module, scheme=name, mixed="off", **options) for name in ("int8", SCHEME))
    sizes = [len(made.to_circle()) for made in (plain, least)]
    if budget == "bytes":
        limit: dict[str, Any] = {"max_bytes": sum(sizes) // 2}
    else:
        times = [made.verdict["coverage"]["target"]["time_ns"] for made in (plain, least)]
        assert times[1] < times[0]
        limit = {"max_time_ms": sum(times) / 2 / 1e6}
    made = odc_mlir.quantize(module, **options, **limit)
    assert made.passed, made
    assert SCHEME in made.verdict["choices"]["precisions"].values()
    if budget == "bytes":
        assert len(made.to_circle()) <= limit["max_bytes"]
    assert made.verdict["metrics"]["sqnr_db"] > least.verdict["metrics"]["sqnr_db"] - 0.5


def test_weights_alone_get_eight_bits_where_four_are_too_coarse() -> None:
    rng = np.random.default_rng(3)
    net = FloatNet(2)
    ids = net.input(rng.integers(0, 100, (1, 6)).astype(np.int32))
    words = net.add("GATHER", net.weights(100, 24), ids, axis=0, name="words")
    hidden = net.add("FULLY_CONNECTED", words, net.weights(24, 24), net.weights(24), name="hidden", keep_num_dims=True)
    scores = net.add("FULLY_CONNECTED", hidden, net.weights(8, 24), net.weights(8), name="scores", keep_num_dims=True)
    module = net.module(scores)
    options: dict[str, Any] = {"calibration": [[rng.integers(0, 100, (1, 6)).astype(np.int32)] for _ in range(16)]}
    options |= {"metric": "sqnr", "rounding": "off", "correction": "off", "normalize": "off"}
    narrow, wide = (odc_mlir.quantize(module, scheme=f"{name}_wo", limit=2.0, **options) for name in ("int4", "int8"))
    best, least = (made.verdict["metrics"]["sqnr_db"] for made in (wide, narrow))
    mixed = odc_mlir.quantize(module, scheme="int4_wo", limit=least + 3, **options)
    assert mixed.passed, mixed
    assert best > mixed.verdict["metrics"]["sqnr_db"] > least
    assert set(mixed.verdict["choices"]["precisions"].values()) == {"int8_wo"}
    assert len(narrow.to_circle()) < len(mixed.to_circle()) < len(wide.to_circle())
    budget = len(mixed.to_circle()) + 16
    small = odc_mlir.quantize(module, scheme="int8_wo", limit=2.0, max_bytes=budget, **options)
    assert small.passed, small
    assert len(small.to_circle()) <= budget
    assert "int4_wo" in small.verdict["choices"]["precisions"].values()


@pytest.mark.parametrize(("scheme", "places"), [("int8x4", [1, 3]), ("int8", [0, 1, 3])])
def test_who_asks_for_four_bits_keeps_some_weights_of_four(scheme: str, places: list[int]) -> None:
    """A search may not take them all: layers without weights are no part of what was asked for."""
    examination: Any = SimpleNamespace(weights=lambda: {"conv": 100, "add": 0, "dense": 10})
    levels = [scheme, *ladder_of(scheme)]
    names = ["add", "conv", "mul", "dense"]
    pricing = Pricing(make_options(scheme=scheme), {}, examination, lambda _: None, None, None, names, levels)  # type: ignore[arg-type, return-value]
    assert pricing.of_scheme([0, 1, 3]) == places
    assert pricing.of_scheme([0, 2]) == [0, 2]
