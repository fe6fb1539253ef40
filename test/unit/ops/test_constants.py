"""Decoding of constants: element types, sizes, damaged data."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.ops.constants import decode_constant, encode_constant
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.spec import TensorInfo


def constant(dtype: str, shape: tuple[int, ...], data: bytes) -> TensorInfo:
    return TensorInfo("c", dtype, shape, data=memoryview(data))


@pytest.mark.parametrize("dtype", ["float32", "float16", "int8", "uint8", "int16", "int32", "int64", "float64"])
def test_numbers_are_views(dtype: str) -> None:
    info = constant(dtype, (2, 3), np.arange(6).astype(np.dtype(dtype)).tobytes())
    array = decode_constant(info)
    assert array.dtype == np.dtype(dtype)
    assert array.tolist() == [[0, 1, 2], [3, 4, 5]]
    assert not array.flags.writeable
    assert np.shares_memory(array, np.frombuffer(info.data or b"", np.uint8))


def test_unaligned_bytes_are_copied() -> None:
    data = memoryview(b"x" + np.array([1, 2], np.int32).tobytes())[1:]
    array = decode_constant(TensorInfo("c", "int32", (2,), data=data))
    assert array.flags.aligned
    assert array.tolist() == [1, 2]


def test_four_bit() -> None:
    data = bytes([0x10, 0x7F, 0x08])
    assert decode_constant(constant("int4", (5,), data)).tolist() == [0, 1, -1, 7, -8]
    assert decode_constant(constant("uint4", (5,), data)).tolist() == [0, 1, 15, 7, 8]


@given(st.sampled_from(["int4", "uint4", "int8", "uint8", "int16", "int32", "int64", "float32"]), st.data())
def test_what_is_encoded_is_decoded(dtype: str, data: st.DataObject) -> None:
    info = DTYPES[dtype]
    numbers = st.integers(*info.range) if info.is_integer else st.floats(width=32, allow_nan=False)
    values = np.array(data.draw(st.lists(numbers, max_size=9)), info.numpy)
    encoded = encode_constant(values, dtype)
    assert len(encoded) == (values.size * info.bits + 7) // 8
    np.testing.assert_array_equal(decode_constant(constant(dtype, values.shape, encoded)), values)


def test_bfloat16() -> None:
    assert decode_constant(constant("bfloat16", (2,), bytes([0x80, 0x3F, 0x40, 0xC0]))).tolist() == [1.0, -3.0]


def test_bool() -> None:
    array = decode_constant(constant("bool", (3,), bytes([0, 1, 7])))
    assert array.dtype == np.bool_
    assert array.tolist() == [False, True, True]


def test_strings() -> None:
    data = np.array([2, 16, 18, 21], "<i4").tobytes() + b"abcde"
    assert decode_constant(constant("string", (2,), data)).tolist() == [b"ab", b"cde"]


@pytest.mark.parametrize(
    "words", [[2, 16, 18, 99], [2, 16, 30, 17], [3, 16, 18, 21], [2], [], [2, 12, 18, 21], [-1, 4]], ids=str
)
def test_damaged_strings(words: list[int]) -> None:
    with pytest.raises(ModelError, match="string constant"):
        decode_constant(constant("string", (2,), np.array(words, "<i4").tobytes() + b"abcde"))


def test_blocks() -> None:
    assert decode_constant(constant("ggml_q8_0", (2, 64), bytes(2 * 2 * 34))).shape == (2, 2, 34)
    with pytest.raises(ModelError, match="multiple of 32"):
        decode_constant(constant("ggml_q4_0", (33,), bytes(36)))


@pytest.mark.parametrize(("dtype", "size"), [("int32", 3), ("int32", 5), ("int4", 3), ("bool", 4), ("ggml_q4_0", 18)])
def test_wrong_size(dtype: str, size: int) -> None:
    shape = (32, 32) if dtype == "ggml_q4_0" else (1,)
    with pytest.raises(ModelError, match=f"has {size} bytes, .* needs"):
        decode_constant(constant(dtype, shape, bytes(size)))


@pytest.mark.parametrize("shape", [(-1,), (2, -3), (1,) * 33])
def test_bad_shape(shape: tuple[int, ...]) -> None:
    with pytest.raises(ModelError, match="is not valid"):
        decode_constant(constant("int8", shape, b"x"))


@pytest.mark.parametrize("dtype", ["resource", "variant", "mxfp4", "mxint8"])
def test_types_without_constants(dtype: str) -> None:
    with pytest.raises(UnsupportedError, match="cannot have the element type"):
        decode_constant(constant(dtype, (1,), b"x"))


def test_not_a_constant() -> None:
    with pytest.raises(ModelError, match="must be a constant"):
        decode_constant(TensorInfo("c", "int8", (1,)))
    with pytest.raises(ModelError, match="not fully known"):
        decode_constant(TensorInfo("c", "int8", (None,), data=memoryview(b"x")))


def test_zero_elements() -> None:
    assert decode_constant(constant("int32", (0, 4), b"")).shape == (0, 4)
