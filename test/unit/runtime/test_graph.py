"""Records become a graph only when every operator is known and reads what exists."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from helpers.models import ModelBuilder, add_model
from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.formats.circle.model import Operator
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph


def test_names_indices_and_constants() -> None:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 2))
    w = builder.tensor("w", (2,), data=np.ones(2, np.float32))
    y = builder.tensor("", (1, 2))
    builder.operator("ADD", [x, w], [y])
    graph = build_graph(builder.finish([x], [y]))
    (item,) = graph.nodes
    assert (item.index, item.inputs, item.outputs) == (0, (x, w), (y,))
    assert item.node.name == "tensor 2"
    assert item.node.options["fused_activation_function"] == "none"
    np.testing.assert_array_equal(item.node.const(1), [1, 1])
    assert [info.name for info in graph.input_infos()] == ["x"]


def test_missing_options_table_means_defaults() -> None:
    model = add_model()
    for operator in model.subgraphs[0].operators:
        operator.options, operator.options_type = {}, None
    assert build_graph(model).nodes[0].node.options["pot_scale_int16"] is True


def test_constant_without_shape_is_a_scalar() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 2)), builder.tensor("y", (1, 2))
    w = builder.tensor("w", None, data=np.ones(1, np.float32))
    builder.operator("ADD", [x, w], [y])
    assert build_graph(builder.finish([x], [y])).tensors[w].shape == ()


def test_a_constant_has_no_open_dimensions() -> None:
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 2)), builder.tensor("y", (1, 2))
    w = builder.tensor("w", (1, 2), signature=(-1, 2), data=np.ones(2, np.float32))
    builder.operator("ADD", [x, w], [y])
    assert build_graph(builder.finish([x], [y])).tensors[w].shape == (1, 2)


def test_declared_shapes_of_computed_tensors_do_not_count() -> None:
    """A rank that follows from values only is often stored like a scalar's."""
    builder = ModelBuilder()
    x, wanted = builder.tensor("x", (4,)), builder.tensor("wanted", (2,), "int32")
    order = builder.tensor("order", (2,), "int32", data=np.array([1, 0], np.int32))
    middle, y = builder.tensor("middle", ()), builder.tensor("y", ())
    builder.operator("RESHAPE", [x, wanted], [middle])
    builder.operator("TRANSPOSE", [middle, order], [y])
    executor = HostExecutor(build_graph(builder.finish([x, wanted], [y])))
    (found,) = executor.run([np.arange(4, dtype=np.float32), np.array([1, 4], np.int32)])
    assert found.shape == (4, 1)


def test_operand_without_a_value() -> None:
    model = add_model()
    model.subgraphs[0].operators.reverse()
    with pytest.raises(ModelError, match=r"operand 'sum' is read before anything produces it \(op ADD, tensor 'out'\)"):
        build_graph(model)


def test_result_produced_twice() -> None:
    model = add_model()
    model.subgraphs[0].operators[1].outputs = (2,)
    with pytest.raises(ModelError, match="result 'sum' is produced twice"):
        build_graph(model)


def test_dangling_output() -> None:
    model = add_model()
    model.subgraphs[0].operators.pop()
    with pytest.raises(ModelError, match=r"nothing produces this graph output \(tensor 'out'\)"):
        build_graph(model)


def test_input_given_twice() -> None:
    model = add_model()
    model.subgraphs[0].inputs = (0, 1, 0)
    with pytest.raises(ModelError, match="graph input twice"):
        build_graph(model)


def test_unknown_operator() -> None:
    model = add_model()
    model.subgraphs[0].operators[0] = dataclasses.replace(model.subgraphs[0].operators[0], name="BUILTIN_999")
    with pytest.raises(UnsupportedError, match=r"not supported \(op BUILTIN_999, tensor 'sum'\)"):
        build_graph(model)


def test_newer_operator_version() -> None:
    model = add_model()
    model.subgraphs[0].operators[0].version = 1000
    with pytest.raises(UnsupportedError, match=r"version 1000 .* newer than \d+, .*op ADD"):
        build_graph(model)


def test_custom_operators_have_an_entry_of_their_own() -> None:
    model = add_model()
    model.subgraphs[0].operators[0] = Operator("CUSTOM", custom_code="Mine", inputs=(0,), outputs=(2,), version=77)
    assert build_graph(model).nodes[0].node.spec.name == "CUSTOM(Mine)"


def test_wrong_operand_count() -> None:
    model = add_model()
    model.subgraphs[0].operators[0].inputs = (0,)
    with pytest.raises(ModelError, match=r"takes 2 operands .* found 1 \(op ADD, tensor 'sum'\)"):
        build_graph(model)


def test_too_few_operands_of_an_operator_with_any_number() -> None:
    model = add_model()
    model.subgraphs[0].operators[0] = Operator("IF", inputs=(), outputs=(2,))
    with pytest.raises(ModelError, match=r"takes at least 1 operand \(condition, arguments\), found 0 \(op IF"):
        build_graph(model)


def test_parts_of_a_newer_schema() -> None:
    model = add_model()
    model.unknown.append("Tensor.shiny")
    with pytest.raises(UnsupportedError, match=r"newer schema: Tensor\.shiny"):
        build_graph(model)


def test_missing_subgraph() -> None:
    with pytest.raises(ModelError, match="there is no subgraph 1, the model has 1"):
        build_graph(add_model(), 1)
