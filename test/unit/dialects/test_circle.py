"""The bridge between operations and the operator table, and constants as lists."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects.builtin import FunctionType, ModuleOp, TensorType, f32, i8
from xdsl.dialects.func import FuncOp, ReturnOp
from xdsl.ir import Block, Region, SSAValue
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle import (
    BlobAttr,
    Circle,
    CircleOp,
    ConstOp,
    NoneOp,
    VariableOp,
    find_operation,
    has_unresolved_operand,
    info_of,
    node_of,
    op_class,
    tensor_type,
)
from odc_mlir.dialects.circle_types import DTYPE_OF_ELEMENT, ELEMENT_TYPES, tensor_facts, with_shape
from odc_mlir.errors import UnsupportedError
from odc_mlir.ops import all_specs
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.blob import Blob
from odc_mlir.support.locations import name_loc
from odc_mlir.support.text import module_text, parse_module
from odc_mlir.universe import make_context

X = tensor_type("float32", (2, 8))


def _argument(name: str = "x", type: object = X) -> SSAValue:
    block = Block(arg_types=[type])  # type: ignore[list-item]
    block.args[0].location = name_loc(name)
    return block.args[0]


def _const(values: bytes, dtype: str, shape: tuple[int, ...], name: str) -> SSAValue:
    op = ConstOp(BlobAttr.of(values), tensor_type(dtype, shape))
    op.location = name_loc(name)
    return op.result


def test_a_node_has_all_that_the_operation_says() -> None:
    weights = _const(bytes(4 * 8 * 4), "float32", (4, 8), "w")
    op = op_class("FULLY_CONNECTED").make(
        [_argument(), weights, NoneOp().result],
        [tensor_type("float32", (2, 4))],
        {"fused_activation_function": "relu", "keep_num_dims": True, "version": 9},
        location=name_loc("y"),
    )
    node = node_of(op)
    assert node.spec is all_specs()["FULLY_CONNECTED"]
    assert node.name == "y"
    assert node.version == 9
    assert node.operand(0).name == "x"
    assert node.operand(0).shape == (2, 8)
    assert not node.operand(0).is_const
    assert node.const(1).shape == (4, 8)
    assert node.optional(2) is None
    assert node.results[0].name == "y"
    assert node.options == {
        "fused_activation_function": "relu",
        "weights_format": "default",
        "keep_num_dims": True,
        "asymmetric_quantize_inputs": False,
        "quantized_bias_type": "float32",
    }
    assert node.custom_code == ""
    assert node.custom_options == b""


def test_options_and_operands_by_name() -> None:
    op = op_class("FULLY_CONNECTED").make([_argument(), NoneOp().result], [X], {"keep_num_dims": True})
    assert op.option("keep_num_dims") is True
    assert op.option("fused_activation_function") == "none"
    assert op.option("version") is None
    assert op.operand_named("input") is op.operands[0]
    assert op.operand_named("weights") is None
    assert op.operand_named("bias") is None


def test_absent_options_are_at_their_default_and_equal_to_given_ones() -> None:
    x = _argument()
    absent, given_ = (op_class("ADD").make([x, x], [X], o) for o in ({}, {"fused_activation_function": "none"}))
    assert absent.properties == given_.properties


def test_facts_of_values() -> None:
    quant = QuantParams((0.5, 0.25), (0, 3), 1)
    info = info_of(_argument("q", tensor_type("int8", (None, 2), quant)))
    assert (info.name, info.dtype, info.shape, info.quant) == ("q", "int8", (None, 2), quant)
    assert info_of(VariableOp(X).result).is_variable
    assert info_of(_argument("u", tensor_type("bool", None))).shape is None
    with pytest.raises(VerifyException, match="expected a tensor type, found i8"):
        info_of(_argument("n", i8))


def test_an_unresolved_constant_has_no_data() -> None:
    blob = Blob.unresolved(Blob(b"\1" * 96).digest, 96)
    const = ConstOp(BlobAttr(blob), tensor_type("float32", (4, 6)))
    const.verify()
    assert info_of(const.result).data is None
    op = op_class("ADD").make([const.result, const.result], [tensor_type("float32", (4, 6))])
    assert has_unresolved_operand(op)
    op.verify()
    assert not has_unresolved_operand(op_class("ADD").make([_argument(), _argument()], [X]))


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_element_type_has_its_own(dtype: str) -> None:
    assert DTYPE_OF_ELEMENT[ELEMENT_TYPES[dtype]] == dtype
    text = str(tensor_type(dtype, (2, None)))
    module = parse_module(make_context(), f'"test.op"() : () -> {text}')
    assert module.body.block.first_op is not None
    facts = tensor_facts(module.body.block.first_op.result_types[0])
    assert (facts.dtype, facts.shape) == (dtype, (2, None))


def test_shapes_change_without_the_rest() -> None:
    wide = tensor_type("int64", (2,), QuantParams((0.5,), (7,)))
    changed = with_shape(wide, (3, None))
    assert tensor_facts(changed).quant == QuantParams((0.5,), (7,))
    assert tensor_facts(changed).shape == (3, None)
    assert tensor_facts(with_shape(X, None)).shape is None
    with pytest.raises(TypeError, match="not a tensor type"):
        with_shape(i8, ())
    with pytest.raises(ValueError, match="unknown rank cannot have"):
        tensor_type("int64", None, QuantParams((0.5,), (7,)))


def test_classes_by_name() -> None:
    assert op_class("ADD") is op_class("ADD")
    assert find_operation("circle.add") is op_class("ADD")
    assert find_operation("circle.const") is ConstOp
    assert find_operation("circle.ADD") is None
    assert find_operation("circle.no_such") is None
    assert issubclass(op_class("BUILTIN_999"), CircleOp)
    with pytest.raises(UnsupportedError, match="not supported"):
        op_class("NO_SUCH")


def test_the_dialect_lists_every_operator_once() -> None:
    names = [op.name for op in Circle.operations]
    assert len(names) == len(set(names))
    assert {f"circle.{spec.mnemonic}" for spec in all_specs().values()} <= set(names)


def test_only_named_classes_are_made_by_our_context() -> None:
    context = make_context()
    assert context.get_optional_op("circle.add") is op_class("ADD")
    assert "circle.softmax" not in {op.name for op in context.loaded_ops}
    assert context.clone().get_optional_op("circle.softmax") is op_class("SOFTMAX")
    assert context.get_optional_op("circle.no_such") is None


def test_node_of_other_operations() -> None:
    with pytest.raises(TypeError, match=r"circle\.none is not an operator"):
        node_of(NoneOp())


NUMBERS = {
    "int8": "b",
    "uint16": "H",
    "int32": "i",
    "uint64": "Q",
    "float32": "f",
    "float64": "d",
    "bool": "?",
}


@given(st.sampled_from(sorted(NUMBERS)), st.lists(st.binary(min_size=8, max_size=8), max_size=6))
def test_any_small_constant_survives_text(dtype: str, values: list[bytes]) -> None:
    size = struct.calcsize(NUMBERS[dtype])
    data = b"".join(value[:size] for value in values)
    module = ModuleOp([ConstOp(BlobAttr.of(data), tensor_type(dtype, (len(values),)))])
    again = parse_module(make_context(), module_text(module)).body.block.first_op
    assert isinstance(again, ConstOp)
    assert bytes(again.value.bytes) == data


@pytest.mark.slow
def test_verifying_is_linear_in_the_number_of_operations() -> None:
    """5,000 operations verify in about half a second; twenty times that means that something became quadratic."""
    import time

    block = Block(arg_types=[X])
    value: SSAValue = block.args[0]
    for _ in range(5000):
        op = op_class("ADD").make([value, block.args[0]], [X])
        block.add_op(op)
        value = op.results[0]
    block.add_op(ReturnOp(value))
    module = ModuleOp([FuncOp("main", FunctionType.from_lists([X], [X]), Region(block))])
    start = time.process_time()
    module.verify()
    assert time.process_time() - start < 10


def test_types_of_other_dialects_are_none_of_ours() -> None:
    with pytest.raises(VerifyException, match="is not an element type"):
        tensor_facts(TensorType(TensorType(f32, [1]), [1]))
