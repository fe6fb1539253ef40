"""Quantised types: text and verifier over all parameters, not only the examples of the lit files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.quant import STORAGE_WORDS, Uniform, UniformQuantizedType
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import QuantParams
from odc_mlir.support.floats import to_float32
from odc_mlir.support.text import OdcParser
from odc_mlir.universe import make_context

SCALES = st.floats(width=32, min_value=to_float32(1e-40), allow_infinity=False, allow_subnormal=True)


@st.composite
def uniform_types(draw: st.DrawFn) -> UniformQuantizedType:
    storage = draw(st.sampled_from(sorted(STORAGE_WORDS.values())))
    first, last = DTYPES[storage].range
    low = draw(st.integers(first, last - 1))
    high = draw(st.integers(low + 1, last))
    per_axis = draw(st.booleans())
    count = draw(st.integers(1, 5)) if per_axis else 1
    scales = tuple(draw(SCALES) for _ in range(count))
    zero_points = tuple(draw(st.integers(low, high)) for _ in range(count))
    axis = draw(st.integers(0, 3)) if per_axis else 0
    return UniformQuantizedType(Uniform(storage, QuantParams(scales, zero_points, axis), per_axis, low, high))


def _parsed(text: str) -> object:
    return OdcParser(make_context(), text).parse_type()


@given(uniform_types())
def test_text_reads_back_to_the_same_type(type: UniformQuantizedType) -> None:
    assert _parsed(str(type)) == type


def test_scales_in_text_become_float32() -> None:
    type = _parsed("!quant.uniform<i8:f32, 0.1>")
    assert isinstance(type, UniformQuantizedType)
    assert type.data.params.scale == to_float32(0.1)


@pytest.mark.parametrize(
    ("params", "per_axis", "message"),
    [
        (QuantParams((0.5, 0.5), (0,)), True, "2 scales but 1 zero points"),
        (QuantParams((0.5, 0.5), (0, 0)), False, "a per-tensor type has one scale, found 2"),
        (QuantParams((0.5,), (0,), -1), True, "quantised dimension is -1, must not be negative"),
        (QuantParams((0.1,), (0,)), False, "must be a positive finite float32 number"),
        (QuantParams((0.5, float("nan")), (0, 0)), True, "scale is nan"),
    ],
)
def test_verifier(params: QuantParams, per_axis: bool, message: str) -> None:
    with pytest.raises(VerifyException, match=message):
        UniformQuantizedType.of("int8", params, per_axis=per_axis)


def test_storage_that_upstream_cannot_name() -> None:
    with pytest.raises(VerifyException, match="quantised storage is int64, allowed: int4"):
        UniformQuantizedType.of("int64", QuantParams((0.5,), (0,)))


@pytest.mark.parametrize(
    ("storage", "params", "expected"),
    [
        ("int8", QuantParams((0.5,), (-128,)), True),
        ("int8", QuantParams((0.5,), (128,)), False),
        ("uint8", QuantParams((0.5, 0.25), (0, 255)), True),
        ("uint8", QuantParams((0.5, 0.25), (0, -1)), False),
        ("int8", QuantParams((0.0,), (0,)), False),
        ("int64", QuantParams((0.5,), (0,)), False),
        ("float32", QuantParams((0.5,), (0,)), False),
    ],
)
def test_what_the_type_can_express(storage: str, params: QuantParams, expected: bool) -> None:
    assert UniformQuantizedType.expresses(storage, params) is expected
