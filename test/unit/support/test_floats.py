"""Decimal text of float32 numbers is exact."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.utils.lexer import Input
from xdsl.utils.mlir_lexer import MLIRLexer, MLIRTokenKind

from odc_mlir.support.floats import are_scales, float32_text, to_float32

FLOAT32 = st.floats(width=32, allow_nan=False, allow_infinity=False)


@given(FLOAT32)
def test_text_reads_back_to_the_same_number(value: float) -> None:
    back = to_float32(float(float32_text(value)))
    assert struct.pack("<f", back) == struct.pack("<f", value)


@given(FLOAT32.filter(lambda value: math.copysign(1, value) > 0))
def test_text_is_one_float_literal_of_mlir(value: float) -> None:
    text = float32_text(value)
    token = MLIRLexer(Input(text, "test")).lex()
    assert token.kind == MLIRTokenKind.FLOAT_LIT
    assert token.text == text


@pytest.mark.parametrize(
    ("value", "text"), [(0.1, "0.1"), (1.0, "1.0"), (1e-5, "1.0e-05"), (1e30, "1.0e+30"), (2**-126, "1.1754944e-38")]
)
def test_text_is_short(value: float, text: str) -> None:
    assert float32_text(value) == text


def test_rounding_to_float32() -> None:
    assert to_float32(0.1) == float(np.float32(0.1))
    assert to_float32(1e300) == math.inf
    assert to_float32(-1e300) == -math.inf


@pytest.mark.parametrize("values", [(), (0.5,), (to_float32(0.1), 2.0)])
def test_scales(values: tuple[float, ...]) -> None:
    assert are_scales(values)


@pytest.mark.parametrize("value", [0.0, -0.5, math.inf, math.nan, 0.1, 1e300])
def test_no_scales(value: float) -> None:
    assert not are_scales((1.0, value))
    assert not are_scales((value,))


def test_integers_beyond_every_float() -> None:
    assert to_float32(10**400) == math.inf
    assert to_float32(-(10**400)) == -math.inf
    assert not are_scales((10**400,))
