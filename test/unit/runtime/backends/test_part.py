"""Parts of a graph as models of their own."""

from __future__ import annotations

import numpy as np

from helpers.models import ModelBuilder
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model, write_tflite
from odc_mlir.runtime.backends import cut_out
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import Graph, build_graph


def _graph() -> Graph:
    """``s = a + w``, ``t = s * s``, ``u = t - a``, ``v = u + s``; the outputs are t and v; the batch is open."""
    builder = ModelBuilder()
    a = builder.tensor("a", (1, 4), "int8", signature=(-1, 4), quant=(0.5, 1))
    w = builder.tensor("w", (1, 4), "int8", quant=(0.25, 0), data=np.arange(4, dtype=np.int8))
    s, t, u, v = (builder.tensor(n, (1, 4), "int8", signature=(-1, 4), quant=(0.5, 1)) for n in "stuv")
    builder.operator("ADD", [a, w], [s])
    builder.operator("MUL", [s, s], [t])
    builder.operator("SUB", [t, a], [u])
    builder.operator("ADD", [u, s], [v])
    return build_graph(builder.finish([a], [t, v]))


def _names(graph: Graph, tensors: tuple[int, ...]) -> list[str]:
    return [graph.tensors[index].name for index in tensors]


def test_what_goes_in_and_out() -> None:
    graph = _graph()
    part = cut_out(graph, graph.tensors, [1, 2], all_tensors=False)
    assert (_names(graph, part.inputs), _names(graph, part.outputs)) == (["s", "a"], ["t", "u"])
    first = cut_out(graph, graph.tensors, [0], all_tensors=False)
    assert (_names(graph, first.inputs), _names(graph, first.outputs)) == (["a"], ["s"]), "constants belong to the part"
    middle = cut_out(graph, graph.tensors, [2, 3], all_tensors=False)
    assert _names(graph, middle.outputs) == ["v"], "nobody outside needs u"
    assert _names(graph, cut_out(graph, graph.tensors, [2, 3], all_tensors=True).outputs) == ["u", "v"]


def test_a_part_that_nobody_needs_still_has_an_output() -> None:
    builder = ModelBuilder()
    a, b, c = (builder.tensor(name, (1, 4)) for name in "abc")
    builder.operator("ADD", [a, a], [b])
    builder.operator("ADD", [a, a], [c])
    graph = build_graph(builder.finish([a], [c]))
    assert cut_out(graph, graph.tensors, [0], all_tensors=False).outputs == (b,)


def test_parts_compute_what_the_graph_does() -> None:
    graph = _graph()
    inputs = np.array([[1, -5, 60, 100], [0, 3, 7, -128]], np.int8)
    t, v = HostExecutor(graph).run([inputs])
    values = {graph.inputs[0]: inputs}
    for operators in ([0], [1, 2], [3]):
        part = cut_out(graph, graph.tensors, operators, all_tensors=False)
        written = read_model(write_model(part.model))
        assert written == part.model
        results = HostExecutor(build_graph(written)).run([values[index] for index in part.inputs])
        values.update(zip(part.outputs, results, strict=True))
    np.testing.assert_array_equal(values[graph.outputs[0]], t)
    np.testing.assert_array_equal(values[graph.outputs[1]], v)


def test_parts_as_tflite_files() -> None:
    graph = _graph()
    part = cut_out(graph, graph.tensors, [0, 1, 2, 3], all_tensors=False)
    written = read_model(write_tflite(part.model))
    assert (written.schema, written.version) == ("tflite", 3)
    assert written.subgraphs[0].tensors[0].shape_signature == (-1, 4)
    assert written.subgraphs == part.model.subgraphs
