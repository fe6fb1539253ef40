"""Quantised element-wise arithmetic against scalar formulas."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import scalar
from odc_mlir.errors import ModelError
from odc_mlir.numerics import elementwise as ew
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS

SCALE = st.floats(2.0**-10, 1.0, width=32)
CODE = st.integers(-128, 127)
CODES = st.lists(CODE, min_size=4, max_size=4)


@given(CODES, CODES, st.tuples(SCALE, SCALE, SCALE), st.tuples(CODE, CODE, CODE))
def test_add_and_sub(
    a: list[int], b: list[int], scales: tuple[float, float, float], zeros: tuple[int, int, int]
) -> None:
    pairs = list(zip(scales, zeros, strict=True))
    p = ew.add_params(*pairs, (-100, 90), "int8")
    left, right = np.array(a, np.int8), np.array(b, np.int8)
    for function, sign in ((ew.add_quantized, 1), (ew.sub_quantized, -1)):
        expected = [
            scalar.clamp(scalar.add(x, y, scales, zeros, sign=sign), -100, 90) for x, y in zip(a, b, strict=True)
        ]
        assert function(left, right, p).tolist() == expected


@given(CODES, CODES, st.tuples(SCALE, SCALE, SCALE), st.tuples(CODE, CODE, CODE))
def test_mul(a: list[int], b: list[int], scales: tuple[float, float, float], zeros: tuple[int, int, int]) -> None:
    p = ew.mul_params(*zip(scales, zeros, strict=True), (-128, 127), "int8")
    found = ew.mul_quantized(np.array(a, np.int8), np.array(b, np.int8), p)
    assert found.tolist() == [
        scalar.clamp(scalar.mul(x, y, scales, zeros), -128, 127) for x, y in zip(a, b, strict=True)
    ]


@pytest.mark.parametrize("function", [ew.add_quantized, ew.sub_quantized])
def test_large_tensors_use_a_table_and_pieces(function: object) -> None:
    """The same codes one by one, and as one tensor of more than one piece."""
    rng = np.random.default_rng(0)
    shape = (3, CHUNK_ELEMENTS // 2 + 7)
    a, b = rng.integers(0, 256, shape).astype(np.uint8), rng.integers(0, 256, shape).astype(np.uint8)
    p = ew.add_params((0.11, 3), (0.07, 250), (0.2, 77), (0, 255), "uint8")
    found = function(a, b, p)  # type: ignore[operator]
    for i in rng.integers(0, a.size, 50):
        assert found.ravel()[i] == function(a.ravel()[i : i + 1], b.ravel()[i : i + 1], p)  # type: ignore[operator]


def test_broadcasting() -> None:
    p = ew.add_params((1.0, 0), (1.0, 0), (1.0, 0), (-128, 127), "int8")
    a, b = np.arange(1200, dtype=np.int8).reshape(20, 1, 60), np.array([[1], [2]], np.int8)
    expected = np.clip(a.astype(int) + b, -128, 127)
    assert (ew.add_quantized(a, b, p) == expected).all()


@given(CODES, SCALE, SCALE, CODE, CODE)
def test_scale(x: list[int], in_scale: float, out_scale: float, in_zero: int, out_zero: int) -> None:
    for single in (False, True):
        p = ew.scale_params((in_scale, in_zero), (out_scale, out_zero), (-128, 127), "int8", single=single)
        real = float(np.float32(in_scale) / np.float32(out_scale)) if single else in_scale / out_scale
        q, e = scalar.quantize_multiplier(real)
        expected = [scalar.requantize(v - in_zero, q, e, out_zero, -128, 127) for v in x]
        assert ew.scale_quantized(np.array(x, np.int8), p).tolist() == expected


def test_int8_and_uint8_of_one_scale_differ_by_the_sign_bit() -> None:
    codes = np.arange(256, dtype=np.uint8)
    p = ew.scale_params((0.3, 128), (0.3, 0), (-128, 127), "int8", single=False)
    assert (ew.scale_quantized(codes, p) == (codes ^ 0x80).view(np.int8)).all()


@given(CODES, SCALE, SCALE, st.floats(-2, 2, width=16), CODE)
def test_leaky(x: list[int], in_scale: float, out_scale: float, alpha: float, zero: int) -> None:
    p = ew.leaky_params((in_scale, zero), alpha, (out_scale, -zero // 2), "int8")
    above = scalar.quantize_multiplier(float(np.float32(in_scale) / np.float32(out_scale)))
    slope = float(np.float32(np.float32(in_scale) * np.float32(alpha)) / np.float32(out_scale))
    below = scalar.quantize_multiplier(abs(slope))
    sign = -1 if slope < 0 else 1

    def one(code: int) -> int:
        v = code - zero
        scaled = scalar.multiply(v, *above) if v >= 0 else sign * scalar.multiply(v, *below)
        return scalar.clamp(scaled + -zero // 2, -128, 127)

    assert ew.leaky_quantized(np.array(x, np.int8), p).tolist() == [one(code) for code in x]


def test_a_scale_of_zero_is_a_model_error() -> None:
    with pytest.raises(ModelError, match="not finite"):
        ew.add_params((0.0, 0), (0.0, 0), (1.0, 0), (-128, 127), "int8")
    with pytest.raises(ModelError, match="not finite"):
        ew.mul_params((1.0, 0), (1.0, 0), (0.0, 0), (-128, 127), "int8")
