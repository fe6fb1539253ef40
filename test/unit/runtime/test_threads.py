"""Executors and threads: one each runs side by side, a shared one takes turns; results belong to the caller."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from helpers import kernels
from helpers.kernels import chain, zeros
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.samples import random_inputs
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph

THREADS, RUNS = 4, 6
MODELS = ("models/zoo/ad01_int8", "models/digits/digits_cnn_int8", "models/digits/digits_mobile")
SMALL = (
    "Net_TConv_BN_000",
    "Quant_AveragePool2D_001",
    "Quant_DepthwiseConv2D_000",
    "Add_008",
    "Reshape_000",
    "While_001",
)


def graph_of(data: Path, name: str) -> Graph:
    found = sorted(path for path in (data / name).parent.glob(f"{Path(name).name}.*") if path.suffix != ".npz")
    return build_graph(read_model(found[0]))


def records(graph: Graph, count: int) -> list[list[Array]]:
    """Inputs of as many runs."""
    infos = [(info.info.numpy, tuple(dim or 1 for dim in info.shape or ())) for info in graph.input_infos()]
    return [random_inputs(infos, seed) for seed in range(count)]


def at_once(work: Callable[[int], list[list[Array]]]) -> list[list[list[Array]]]:
    """``work(i)`` in as many threads, all of which start together."""
    start = threading.Barrier(THREADS)

    def run(i: int) -> list[list[Array]]:
        start.wait()
        return work(i)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(run, range(THREADS)))


def check(found: list[list[list[Array]]], expected: list[list[Array]]) -> None:
    for outputs in found:
        for ours, theirs in zip(outputs, expected, strict=True):
            for a, b in zip(ours, theirs, strict=True):
                np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("name", [*MODELS, *(f"conformance/models/{name}" for name in SMALL)])
def test_each_thread_with_its_own(test_data: Path, name: str) -> None:
    graph = graph_of(test_data, name)
    inputs = records(graph, RUNS)
    alone = HostExecutor(graph)
    expected = [alone.run(arrays) for arrays in inputs]
    executors = [HostExecutor(graph) for _ in range(THREADS)]
    check(at_once(lambda i: [executors[i].run(arrays) for arrays in inputs]), expected)


@pytest.mark.parametrize("name", MODELS)
def test_one_for_all_threads(test_data: Path, name: str) -> None:
    graph = graph_of(test_data, name)
    inputs = records(graph, RUNS)
    shared = HostExecutor(graph)
    expected = [shared.run(arrays) for arrays in inputs]
    check(at_once(lambda _: [shared.run(arrays) for arrays in inputs]), expected)


def test_a_shared_executor_takes_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    inside, most = 0, 0
    guard, entered = threading.Lock(), threading.Event()

    def counting(node: Node) -> Execute:
        def execute(operands: object) -> list[Array]:
            nonlocal inside, most
            with guard:
                inside += 1
                most = max(most, inside)
            entered.wait(0.01)  # never set: gives others the time to come in
            with guard:
                inside -= 1
            return [zeros(2)]

        return execute

    monkeypatch.setattr(kernels, "identity", counting)
    shared = HostExecutor(chain("identity"))
    at_once(lambda _: [shared.run([zeros(2)])])
    assert most == 1


@pytest.mark.parametrize("name", [*MODELS, *(f"conformance/models/{name}" for name in SMALL)])
def test_results_stay_as_they_are(test_data: Path, name: str) -> None:
    """No later run overwrites what an earlier one gave, and nothing that callers do to it has an effect."""
    graph = graph_of(test_data, name)
    executor = HostExecutor(graph)
    first, second = records(graph, 2)
    given = [array.copy() for array in first]
    outputs = executor.run(first)
    kept = [array.copy() for array in outputs]
    executor.run(second)
    check([[outputs]], [kept])
    for array in outputs:
        array[...] = np.zeros((), array.dtype)
    check([[executor.run(first)]], [kept])
    check([[first]], [given])
