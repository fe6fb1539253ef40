"""What the importer makes of records, and what it refuses."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from xdsl.context import Context
from xdsl.dialects.builtin import Builtin
from xdsl.dialects.func import Func, FuncOp

from helpers.interpreting import run_module
from odc_mlir.dialects.circle import Circle, CircleOp, ConstOp, UndefinedOp, VariableOp, tensor_facts
from odc_mlir.errors import ModelError, OdcError, UnsupportedError
from odc_mlir.formats.circle.model import Model, Operator, Quantization, Signature, SubGraph, Tensor
from odc_mlir.formats.circle.schema import default_options
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.frontend.import_circle import import_model, subgraph_symbols
from odc_mlir.support.locations import value_name
from odc_mlir.support.text import module_text, parse_module


def _relu(**changes: Any) -> Operator:
    return Operator("RELU", inputs=(0,), outputs=(1,), **changes)


def _model(*operators: Operator, **changes: Any) -> Model:
    """``y = RELU(x)`` on float32[2, 3], with a spare tensor and a constant; ``changes`` go into the subgraph."""
    tensors = [
        Tensor("x", "float32", (2, 3)),
        Tensor("y", "float32", (2, 3)),
        Tensor("z", "float32", (2, 3)),
        Tensor("c", "float32", (3,), buffer=1),
    ]
    graph = SubGraph("main", tensors, (0,), (1,), list(operators or [_relu()]))
    for name, value in changes.items():
        setattr(graph, name, value)
    return Model(subgraphs=[graph], buffers=[memoryview(b""), memoryview(bytes(12))])


def _function(model: Model, **options: Any) -> FuncOp:
    function = import_model(model, **options).body.block.first_op
    assert isinstance(function, FuncOp)
    return function


def _operators(function: FuncOp) -> list[CircleOp]:
    return [op for op in function.body.block.ops if isinstance(op, CircleOp)]


def test_names_are_locations_and_hints_and_constants_stand_before_their_first_user() -> None:
    model = _model(_relu(), Operator("ADD", inputs=(1, 3), outputs=(2,), options_type="AddOptions"), outputs=(2,))
    function = _function(model)
    assert value_name(function.args[0]) == "x"
    assert [op.name for op in function.body.block.ops] == ["circle.relu", "circle.const", "circle.add", "func.return"]
    assert [value_name(op.results[0]) for op in _operators(function)] == ["y", "z"]
    assert function.args[0].name_hint == "x"


def test_tensors_on_one_buffer_share_one_blob() -> None:
    model = _model(
        _relu(),
        Operator("ADD", inputs=(1, 3), outputs=(2,), options_type="AddOptions"),
        Operator("ADD", inputs=(2, 4), outputs=(5,), options_type="AddOptions"),
        outputs=(5,),
    )
    model.subgraphs[0].tensors += [Tensor("d", "float32", (3,), buffer=1), Tensor("w", "float32", (2, 3))]
    first, second = (op for op in _function(model).body.block.ops if isinstance(op, ConstOp))
    assert first.blob is second.blob
    assert len(export_model(import_model(model)).buffers) == 2


@pytest.mark.parametrize(
    ("names", "symbols"),
    [
        (["main", "body"], ["main", "body"]),
        ([None, None, ""], ["main", "subgraph_1", "subgraph_2"]),
        (["a", "a", "a_1"], ["a", "a_1", "a_1_2"]),
    ],
)
def test_functions_have_distinct_names_and_subgraphs_keep_theirs(names: list[str | None], symbols: list[str]) -> None:
    model = Model(subgraphs=[SubGraph(name) for name in names])
    assert subgraph_symbols(model) == symbols
    assert [graph.name for graph in export_model(import_model(model)).subgraphs] == names


def test_unknown_shapes_are_filled_in_and_known_ones_kept() -> None:
    model = _model()
    model.subgraphs[0].tensors[1].shape = None
    assert tensor_facts(_function(model).function_type.outputs.data[0]).shape == (2, 3)
    assert tensor_facts(_function(model, refine=False).function_type.outputs.data[0]).shape is None


def test_an_unknown_batch_stays_unknown() -> None:
    model = _model()
    for tensor in model.subgraphs[0].tensors[:2]:
        tensor.shape_signature = (-1, 3)
    function = _function(model)
    assert tensor_facts(function.function_type.outputs.data[0]).shape == (None, 3)
    exported = export_model(import_model(model)).subgraphs[0].tensors[0]
    assert (exported.shape, exported.shape_signature) == ((1, 3), (-1, 3))


def test_a_declared_shape_that_cannot_be_is_replaced_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    model = _model()
    model.subgraphs[0].tensors[1].shape = (4,)
    with caplog.at_level(logging.WARNING):
        function = _function(model)
    assert tensor_facts(function.function_type.outputs.data[0]).shape == (2, 3)
    assert "is declared float32[4], computes float32[2, 3] (op RELU, tensor 'y')" in caplog.text
    with pytest.raises(ModelError, match=r"result must be float32\[2, 3\], found float32\[4\]"):
        import_model(model, refine=False)


def test_an_empty_shape_contradicts_nothing(caplog: pytest.LogCaptureFixture) -> None:
    model = _model()
    model.subgraphs[0].tensors[1].shape = ()
    assert tensor_facts(_function(model).function_type.outputs.data[0]).shape == (2, 3)
    assert not caplog.text


def test_constants_without_a_shape_are_scalars() -> None:
    model = _model(Operator("ADD", inputs=(0, 3), outputs=(1,), options_type="AddOptions"))
    model.subgraphs[0].tensors[3].shape = None
    model.buffers[1] = memoryview(bytes(4))
    const = next(op for op in _function(model).body.block.ops if isinstance(op, ConstOp))
    assert tensor_facts(const.result.type).shape == ()


def test_variables_and_outputs_that_nothing_computes() -> None:
    model = _model(Operator("ADD", inputs=(0, 2), outputs=(1,), options_type="AddOptions"), outputs=(1, 4))
    model.subgraphs[0].tensors[2].is_variable = True
    model.subgraphs[0].tensors.append(Tensor("u", "int8", (4,)))
    kinds = {type(op) for op in _function(model).body.block.ops}
    assert {VariableOp, UndefinedOp} <= kinds
    exported = export_model(import_model(model)).subgraphs[0]
    assert [tensor.is_variable for tensor in exported.tensors if tensor.name == "z"] == [True]


def test_a_variable_that_is_an_input() -> None:
    model = _model()
    model.subgraphs[0].tensors[0].is_variable = True
    assert export_model(import_model(model)).subgraphs[0].tensors[0].is_variable


@pytest.mark.parametrize(
    "quantization",
    [
        Quantization(np.array([0.5], np.float32), np.array([3])),
        Quantization(np.array([0.0], np.float32), np.array([3])),
        Quantization(np.array([0.5], np.float32), np.array([500])),
        Quantization(np.array([0.5, 0.25], np.float32), np.array([3, 4]), axis=0),
        Quantization(min=np.array([-1], np.float32), max=np.array([np.inf], np.float32)),
        Quantization(np.array([0.5], np.float32), np.array([3]), 0, *(np.array([v], np.float32) for v in (-1, 1))),
        Quantization(details=("CustomQuantization", {"custom": b"\x01\x02"})),
        Quantization(details=("MXQuantization", {"axis": -1})),
    ],
)
def test_every_kind_of_quantisation_survives(quantization: Quantization) -> None:
    model = _model()
    model.subgraphs[0].tensors[0] = Tensor("x", "int8", (2, 3), quantization=quantization)
    exported = export_model(import_model(model, refine=False, verify=False))
    assert exported.subgraphs[0].tensors[0].quantization == quantization


def test_block_scales_are_tensors_that_no_operator_names() -> None:
    model = _model()
    fields = {"scales": 3, "zero_points": -1, "block_size": 32}
    model.subgraphs[0].tensors[0].quantization = Quantization(details=("BlockwiseQuantization", fields))
    exported = export_model(import_model(model)).subgraphs[0]
    record = exported.tensors[exported.inputs[0]].quantization
    assert record is not None
    assert record.details is not None
    scales = exported.tensors[record.details[1]["scales"]]
    assert (scales.name, scales.shape) == ("c", (3,))
    assert record.details[1]["zero_points"] == -1


def _bad_signature(model: Model) -> None:
    model.signatures = [Signature("s", 0, {"a": 2}, {})]


def _bad_compression(model: Model) -> None:
    model.subgraphs[0].tensors[0].compression = "huffman"


def _same_input_twice(model: Model) -> None:
    model.subgraphs[0].inputs = (0, 0)


def _other_options(model: Model) -> None:
    model.subgraphs[0].operators[0] = _relu(options_type="AddOptions", options={"fused_activation_function": "relu"})


def _uncomputed(model: Model) -> None:
    model.subgraphs[0].operators[0].inputs = (2,)


def _unknown_operator(model: Model) -> None:
    model.subgraphs[0].operators[0].name = "NO_SUCH"


def _inexpressible(model: Model) -> None:
    model.subgraphs[0].tensors[0] = Tensor(
        "x", "int8", None, quantization=Quantization(np.array([0.0], np.float32), np.array([0]))
    )


def _self_reference(model: Model) -> None:
    fields = {"scales": 0, "zero_points": -1, "block_size": 32}
    model.subgraphs[0].tensors[0].quantization = Quantization(details=("BlockwiseQuantization", fields))


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        (_bad_signature, ModelError, "input 'a' of signature 's' is tensor 2, no input of its graph"),
        (_bad_compression, UnsupportedError, "huffman compression has no public definition .*tensor 'x'"),
        (_same_input_twice, ModelError, "this tensor is listed as graph input twice .*tensor 'x'"),
        (_other_options, ModelError, "has options AddOptions, expected None .*op RELU, tensor 'y'"),
        (_uncomputed, ModelError, "this tensor is used but nothing computes it .*op RELU, tensor 'z'"),
        (_unknown_operator, UnsupportedError, "this operator is not supported .*op NO_SUCH"),
        (_inexpressible, ModelError, "the quantisation of a tensor of unknown rank cannot be expressed .*tensor 'x'"),
        (_self_reference, ModelError, "the quantisation of this tensor refers to itself .*tensor 'x'"),
    ],
)
def test_what_is_refused(change: Callable[[Model], None], kind: type[OdcError], message: str) -> None:
    model = _model()
    change(model)
    with pytest.raises(kind, match=message) as caught:
        import_model(model)
    assert caught.value.stage == "import"


@pytest.mark.parametrize(
    ("operator", "reason"),
    [
        (Operator("RESHAPE", inputs=(0, 3), outputs=(1,), options_type="ReshapeOptions"), "allowed: int32, int64"),
        (Operator("FLOOR", inputs=(2,), outputs=(1,)), "int16"),
    ],
)
def test_an_operator_that_cannot_run_is_marked(
    operator: Operator, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is shown, printed, parsed and written, and refused when it is to run."""
    operator.options = default_options(operator.options_type)
    model = _model(operator)
    model.subgraphs[0].tensors[2] = Tensor("z", "int16", (2, 3), is_variable=True)
    with caplog.at_level(logging.WARNING):
        module = import_model(model)
    assert reason in caplog.text
    (marked,) = (op for op in module.walk() if isinstance(op, CircleOp))
    assert reason in (marked.unverified or "")
    module.verify()
    context = Context()
    for dialect in (Builtin, Func, Circle):
        context.load_dialect(dialect)
    parse_module(context, module_text(module)).verify()
    assert export_model(module).subgraphs[0].operators[0].name == operator.name
    with pytest.raises(OdcError, match=re.escape(reason)):
        run_module(module, [np.zeros((2, 3), np.float32)])


def test_too_few_operands_are_no_operator() -> None:
    model = _model(Operator("ADD", inputs=(0,), outputs=(1,), options_type="AddOptions"))
    with pytest.raises(ModelError, match="takes 2 operands"):
        import_model(model)


def test_a_newer_schema_is_shown_but_not_written(caplog: pytest.LogCaptureFixture) -> None:
    model = _model(Operator("BUILTIN_999", inputs=(0,), outputs=(1,)))
    model.unknown = ["operator code 999"]
    with caplog.at_level(logging.WARNING):
        module = import_model(model)
    assert "operator code 999" in caplog.text
    with pytest.raises(UnsupportedError, match="the model uses a newer schema: operator code 999"):
        export_model(module)


def test_dropped_records_are_said(caplog: pytest.LogCaptureFixture) -> None:
    model = _model()
    unranked = Quantization(min=np.array([-1], np.float32), max=np.array([1], np.float32))
    uneven = Quantization(min=np.array([-1], np.float32))
    model.subgraphs[0].tensors[0] = Tensor("x", "float32", None, quantization=unranked)
    model.subgraphs[0].tensors[1].quantization = uneven
    with caplog.at_level(logging.WARNING):
        import_model(model)
    assert "tensor 'x' has unknown rank, its recorded range is dropped" in caplog.text
    assert "has 1 minima and 0 maxima" in caplog.text


def test_a_custom_operator_may_have_a_scratch_tensor() -> None:
    """No data and no producer: compilers for accelerators write such operands."""
    custom = Operator("CUSTOM", inputs=(0, 4), outputs=(1,), custom_code="vendor-npu")
    model = _model(custom)
    model.subgraphs[0].tensors.append(Tensor("scratch", "uint8", (64,)))
    assert next(op.name for op in _function(model).body.block.ops) == "circle.undefined"
    again = export_model(import_model(model)).subgraphs[0]
    assert [again.tensors[index].name for index in again.operators[0].inputs] == ["x", "scratch"]
    with pytest.raises(ModelError, match="nothing computes it"):
        import_model(_model(Operator("ADD", inputs=(0, 2), outputs=(1,), options_type="AddOptions")))
