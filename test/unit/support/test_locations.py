"""Names of tensors as locations and as name hints."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import test as test_dialect
from xdsl.dialects.builtin import UnknownLoc, f32
from xdsl.ir import Block, SSAValue

from odc_mlir.support.locations import hint_of, is_known, location_names, name_loc, names_loc, op_name, value_name

AnyOp = test_dialect.TestOp


def test_names_of_results() -> None:
    op = AnyOp(result_types=[f32, f32, f32])
    assert op_name(op) == ""
    assert value_name(op.results[1]) == ""
    op.location = names_loc(["a/b;c", "x y"])
    assert op_name(op) == "a/b;c"
    assert [value_name(result) for result in op.results] == ["a/b;c", "x y", ""]


def test_names_of_arguments() -> None:
    block = Block(arg_types=[f32, f32])
    block.args[1].location = name_loc("größe")
    assert [value_name(argument) for argument in block.args] == ["", "größe"]


def test_known_locations() -> None:
    assert is_known(name_loc(""))
    assert not is_known(UnknownLoc())
    assert location_names(UnknownLoc()) == ()
    assert location_names(names_loc(["a"])) == ("a",)
    assert location_names(names_loc(["a", "a"])) == ("a", "a")


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("conv1/Relu6", "conv1_Relu6"),
        ("a/b;c/d", "a_b"),
        ("serving_default_x:0", "serving_default_x"),
        ("x_1_2", "x"),
        ("3x3", "t3x3"),
        ("", None),
        ("///", None),
        ("_7", "t7"),
        ("model/block_one/block_two/depthwise/BatchNorm/Relu", "one_block_two_depthwise_BatchNorm_Relu"),
        ("x" * 60, "x" * 40),
    ],
)
def test_hints(name: str, hint: str | None) -> None:
    assert hint_of(name) == hint


@given(st.text())
def test_every_hint_is_what_the_printer_prints(name: str) -> None:
    """The printer adds a number to tell values apart; a hint that ends in one could meet another value's name."""
    hint = hint_of(name)
    if hint is not None:
        assert SSAValue.is_valid_name(hint)
        assert SSAValue.extract_valid_name(hint) == hint
