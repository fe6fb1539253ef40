"""Several samples in one run get the results that each gets alone; what would mix them is run sample by sample."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import pytest
from xdsl.ir import SSAValue

import odc_mlir
from helpers import float_models
from helpers.float_nets import FloatNet
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import Array
from odc_mlir.quantizer.execution import BatchRunner, most_at_once
from odc_mlir.runtime.execution.binding import to_codes
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph

Samples = list[list[Array]]


def _quantised(module: object, samples: Samples, scheme: str) -> tuple[Graph, Samples]:
    """The quantised model and the codes of samples."""
    made = odc_mlir.quantize(module, scheme=scheme, calibration=samples, help=False, mixed="off")
    graph = build_graph(read_model(made.to_circle()))
    return graph, [list(map(to_codes, graph.input_infos(), sample)) for sample in samples]


def _check(graph: Graph, samples: Samples) -> None:
    """Results in batches are those of runs one by one: numbers, types and shapes."""
    executor = HostExecutor(graph)
    found = list(BatchRunner(graph).run(samples))
    assert len(found) == len(samples)
    for sample, results in zip(samples, found, strict=True):
        executor.reset()
        for a, b in zip(executor.run(sample), results, strict=True):
            np.testing.assert_array_equal(a, b, strict=True)


@pytest.mark.parametrize("scheme", ["int8", "uint8", "int16x8"])
def test_networks(scheme: str) -> None:
    module, samples = float_models.rescaled_mobilenet()
    graph, codes = _quantised(module, [list(sample) for sample in samples][:7], scheme)
    assert most_at_once(graph) >= 7
    _check(graph, codes)


def _net(build: Callable[[FloatNet, SSAValue], SSAValue]) -> tuple[Graph, Samples]:
    net = FloatNet()
    module = net.module(build(net, net.real(1, 4, 3)))
    samples = [[net.rng.uniform(-1, 1, (1, 4, 3)).astype(np.float32)] for _ in range(9)]
    return _quantised(module, samples, "int8")


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), ()])
def test_a_constant_among_the_outputs(shape: tuple[int, ...]) -> None:
    net = FloatNet(2)
    x = net.real(1, 4, 3)
    module = net.module(net.add("RELU", x), net.weights(*shape))
    samples = [[net.rng.uniform(-1, 1, (1, 4, 3)).astype(np.float32)] for _ in range(9)]
    graph, codes = _quantised(module, samples, "int8")
    assert most_at_once(graph) >= 9
    _check(graph, codes)


def _shape(net: FloatNet, *shape: int) -> SSAValue:
    return net.const(shape, "int32")


@pytest.mark.parametrize(
    "build",
    [
        lambda net, x: net.add("MEAN", x, _shape(net, 1), keep_dims=False),
        lambda net, x: net.add("RESHAPE", x, _shape(net, 1, 12), new_shape=(1, 12)),
        lambda net, x: net.add("CONCATENATION", x, net.add("RELU", x), axis=1),
        lambda net, x: net.add("MUL", x, net.const([0.5, -1.0, 2.0])),
        lambda net, x: net.add("SOFTMAX", x, beta=1.0),
    ],
)
def test_what_keeps_items_apart_runs_at_once(build: Callable[[FloatNet, SSAValue], SSAValue]) -> None:
    graph, samples = _net(build)
    assert most_at_once(graph) > 1
    _check(graph, samples)


@pytest.mark.parametrize(
    "build",
    [
        lambda net, x: net.add("MEAN", x, _shape(net, 0, 2), keep_dims=True),
        lambda net, x: net.add("RESHAPE", x, _shape(net, 4, 3), new_shape=(4, 3)),
        lambda net, x: net.add("CONCATENATION", x, net.add("RELU", x), axis=0),
        lambda net, x: net.add("TRANSPOSE", x, _shape(net, 1, 0, 2)),
        lambda net, x: net.add("ADD", x, net.add("MEAN", x, _shape(net, 1), keep_dims=False)),
    ],
)
def test_what_mixes_items_runs_one_by_one(build: Callable[[FloatNet, SSAValue], SSAValue]) -> None:
    graph, samples = _net(build)
    assert most_at_once(graph) == 1
    _check(graph, samples)


def test_samples_of_several_items_run_one_by_one() -> None:
    graph, samples = _net(lambda net, x: net.add("RELU", x))
    graph.tensors[graph.inputs[0]].shape = (None, 4, 3)
    pairs = [[np.concatenate([a, b])] for [a], [b] in pairwise(samples)]
    _check(graph, pairs)
    _check(graph, [*samples, *pairs])


def test_real_sums_run_one_by_one() -> None:
    """What is added up in another order beside others may differ in the last bit."""
    module, samples = float_models.rescaled_mobilenet()
    made = odc_mlir.quantize(module, scheme="int8_wo", calibration=[list(s) for s in samples][:8], help=False)
    assert most_at_once(build_graph(read_model(made.to_circle()))) == 1
