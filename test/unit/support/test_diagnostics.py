"""xDSL's exceptions leave as ours."""

from __future__ import annotations

import pytest
from xdsl.utils.arg_spec import parse_spec
from xdsl.utils.exceptions import (
    DiagnosticException,
    InterpretationError,
    PassFailedException,
    UnregisteredConstructException,
    VerifyException,
)

import odc_mlir
from odc_mlir.errors import CompileError, InputError, ModelError, OdcError, OptionError
from odc_mlir.support.diagnostics import typed_errors


@pytest.mark.parametrize(
    ("raised", "kind"),
    [
        (VerifyException("Bad thing"), ModelError),
        (UnregisteredConstructException("No such op"), ModelError),
        (PassFailedException("Cannot do it"), CompileError),
        (InterpretationError("Cannot run it"), CompileError),
        (DiagnosticException("Whatever it is"), CompileError),
    ],
)
def test_kinds(raised: Exception, kind: type[OdcError]) -> None:
    with pytest.raises(kind) as caught, typed_errors("here"):
        raise raised
    text = str(raised)
    assert caught.value.message == text[0].lower() + text[1:]
    assert caught.value.stage == "here"
    assert caught.value.__cause__ is raised


def test_a_word_in_capitals_stays() -> None:
    with pytest.raises(ModelError, match=r"^CONV_2D is bad$"), typed_errors():
        raise VerifyException("CONV_2D is bad")


def test_a_malformed_option_text_is_an_option_error() -> None:
    with pytest.raises(OptionError, match="expected argument name"), typed_errors():
        parse_spec("pass{")


def test_our_own_errors_get_the_stage_unless_they_have_one() -> None:
    for own, expected in ((None, "outer"), ("inner", "inner")):
        with pytest.raises(InputError) as caught, typed_errors("outer"):
            raise InputError("wrong", stage=own)
        assert caught.value.stage == expected


def test_defects_pass_unchanged() -> None:
    with pytest.raises(ZeroDivisionError), typed_errors():
        _ = 1 // 0


def test_a_malformed_operation_is_named_before_its_users_stumble_over_it() -> None:
    text = """"builtin.module"() ({
      "func.func"() <{sym_name = "f", function_type = (tensor<2xf32>) -> tensor<2xf32>}> ({
    ^bb0(%x: tensor<2xf32>):
      %0 = "circle.const"() : () -> tensor<2xf32>
      %1 = "circle.reshape"(%0, %0) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      %2 = "circle.add"(%x, %0) <{fused_activation_function = "none"}> : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32>
      "func.return"(%2) : (tensor<2xf32>) -> ()
    }) : () -> () }) : () -> ()"""
    with pytest.raises(ModelError, match=r"'value' expected in operation 'circle\.const'"):
        odc_mlir.load(text.encode())
