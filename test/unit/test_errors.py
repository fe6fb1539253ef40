"""Errors are one line that says what and where."""

from __future__ import annotations

import pytest

from odc_mlir import errors
from odc_mlir.errors import CompileError, ModelError, OdcError

KINDS = [cls for cls in vars(errors).values() if isinstance(cls, type) and issubclass(cls, Exception)]


def test_message_alone() -> None:
    assert str(ModelError("the shape is unknown")) == "the shape is unknown"


def test_everything_that_is_known() -> None:
    error = CompileError(
        "no tile fits", op="CONV_2D", tensor="conv/1", location="model.circle", stage="npu", hint="raise the SRAM limit"
    )
    expected = "no tile fits (in model.circle, stage npu, op CONV_2D, tensor 'conv/1'); raise the SRAM limit"
    assert str(error) == expected
    assert (error.op, error.tensor, error.location, error.stage) == ("CONV_2D", "conv/1", "model.circle", "npu")


def test_one_line_whatever_is_in_a_name() -> None:
    assert str(ModelError("bad\nvalue", tensor="a\n\tb")) == "bad value (tensor 'a\\n\\tb')"


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_an_odc_error_with_a_sentence(kind: type[Exception]) -> None:
    assert issubclass(kind, OdcError)
    assert kind.__doc__
    assert "\n" not in str(kind("x"))
