"""Initial contents of tensors: constants as arrays, and initial values of variables."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np

from odc_mlir.errors import ModelError, UnsupportedError
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.ops.sparse import Sparsity, densify
from odc_mlir.ops.spec import Array, Blockwise, TensorInfo

MAX_RANK = 32
MAX_ELEMENTS = 1 << 47  # no process can address a larger tensor

_BLOCK_ELEMENTS = 32
_BLOCK_BYTES = {"ggml_q4_0": 18, "ggml_q4_1": 20, "ggml_q8_0": 34, "ggml_q8_1": 36}


def decode_constant(info: TensorInfo) -> Array:
    """Return the value of constant ``info`` as a read-only array of its shape and storage dtype.

    Arrays of types with whole bytes are views of the file's bytes. Four-bit types become one byte per element, bfloat16
    becomes float32, and strings become an object array of ``bytes``. Block formats keep the raw bytes. The last
    dimension becomes (blocks, bytes per block). Sparse constants become dense, and blockwise constants become floats.
    Raises ModelError if the bytes do not match the shape, UnsupportedError for types without constants.
    """
    if info.data is None:
        raise ModelError("this tensor must be a constant", tensor=info.name)
    shape = info.static_shape
    if len(shape) > MAX_RANK or any(d < 0 for d in shape):
        raise ModelError(f"the shape {list(shape)} is not valid", tensor=info.name)
    if info.sparsity is not None:
        array = _sparse(info, info.data, info.sparsity, shape)
    elif info.blockwise is not None:
        array = _by_blocks(info, info.blockwise, shape)
    else:
        array = _plain(info, info.data, shape)
    array.flags.writeable = False
    return array


def _plain(info: TensorInfo, data: memoryview, shape: tuple[int, ...]) -> Array:
    dtype = info.info
    if dtype.kind == "string":
        return _strings(info, data, math.prod(shape)).reshape(shape)
    if dtype.kind == "block":
        return _blocks(info, data, shape)
    if dtype.kind == "handle":
        raise UnsupportedError(f"a constant cannot have the element type {info.dtype}", tensor=info.name)
    return _numbers(info, data, shape)


def _sparse(info: TensorInfo, data: memoryview, sparsity: Sparsity, shape: tuple[int, ...]) -> Array:
    if info.info.bits % 8 or not info.info.bits:
        raise UnsupportedError(f"a sparse constant cannot have the element type {info.dtype}", tensor=info.name)
    stored = data.nbytes * 8 // info.info.bits
    data = data.cast("B")[: stored * info.info.bits // 8]
    values = _numbers(replace(info, shape=(stored,), sparsity=None), data, (stored,))
    try:
        return densify(values, sparsity, shape)
    except ModelError as error:
        error.tensor = info.name
        raise


def _by_blocks(info: TensorInfo, blockwise: Blockwise, shape: tuple[int, ...]) -> Array:
    codes = decode_constant(replace(info, dtype=blockwise.codes, blockwise=None, _array=None))
    if not shape or blockwise.size < 1 or shape[-1] % blockwise.size:
        raise ModelError(
            f"the last dimension of {list(shape)} must be a multiple of the block size {blockwise.size}",
            tensor=info.name,
        )
    blocks = (*shape[:-1], shape[-1] // blockwise.size)

    def per_block(parameter: TensorInfo) -> Array:
        values = parameter.array().astype(np.float32)
        if values.size != math.prod(blocks):
            raise ModelError(
                f"{values.size} parameters of blocks in {parameter.name!r}, {math.prod(blocks)} are needed",
                tensor=info.name,
            )
        return values.reshape(*blocks, 1)

    reals = codes.reshape(*blocks, blockwise.size).astype(np.float32)
    if blockwise.zero_points is not None:
        reals -= per_block(blockwise.zero_points)
    reals *= per_block(blockwise.scales)
    return reals.reshape(shape)


def encode_constant(values: Array, dtype: str) -> bytes:
    """Return the bytes of an integer or float constant, the inverse of :func:`decode_constant`.

    A four-bit integer takes a byte in ``values`` and half a byte in the result.
    """
    if DTYPES[dtype].bits != 4:
        return np.ascontiguousarray(values, DTYPES[dtype].numpy).tobytes()
    nibbles = np.zeros(values.size + values.size % 2, np.uint8)
    nibbles[: values.size] = values.reshape(-1).view(np.uint8) & 15
    return (nibbles[0::2] | nibbles[1::2] << 4).tobytes()


def initial_contents(info: TensorInfo) -> Array:
    """Return the initial contents of a variable: zeros, or zero points if it is quantised."""
    contents = np.zeros(info.static_shape, info.info.numpy)
    if info.quant is not None and info.info.is_integer:
        along_axis = [1] * contents.ndim
        if not info.quant.per_tensor:
            along_axis[info.quant.axis] = -1
        contents[...] = np.clip(info.quant.zero_points, *info.info.range).reshape(along_axis)
    return contents


def _check_size(info: TensorInfo, data: memoryview, expected: int) -> None:
    if data.nbytes != expected:
        raise ModelError(
            f"the constant has {data.nbytes} bytes, {list(info.static_shape)} of {info.dtype} needs {expected}",
            tensor=info.name,
        )


def _numbers(info: TensorInfo, data: memoryview, shape: tuple[int, ...]) -> Array:
    dtype, count = info.info, math.prod(shape)
    _check_size(info, data, (count * dtype.bits + 7) // 8)
    if dtype.bits == 4:
        return _four_bit(np.frombuffer(data, np.uint8), count, signed=dtype.kind == "int").reshape(shape)
    if dtype.name == "bfloat16":
        wide = np.frombuffer(data, "<u2").astype(np.uint32) << 16
        return wide.view(np.float32).reshape(shape)
    if dtype.kind == "bool":
        return np.asarray(np.frombuffer(data, np.uint8) != 0).reshape(shape)
    array = np.frombuffer(data, dtype.numpy).reshape(shape)
    return array if array.flags.aligned else array.copy()


def _four_bit(packed: Array, count: int, *, signed: bool) -> Array:
    nibbles = np.empty(packed.size * 2, np.uint8)
    nibbles[0::2], nibbles[1::2] = packed & 15, packed >> 4
    if signed:
        return ((nibbles ^ 8).astype(np.int8) - np.int8(8))[:count]
    return nibbles[:count]


def _blocks(info: TensorInfo, data: memoryview, shape: tuple[int, ...]) -> Array:
    block_bytes = _BLOCK_BYTES.get(info.dtype)
    if block_bytes is None:
        raise UnsupportedError(f"a constant cannot have the element type {info.dtype}", tensor=info.name)
    if not shape or shape[-1] % _BLOCK_ELEMENTS:
        raise ModelError(
            f"the last dimension of {list(shape)} must be a multiple of {_BLOCK_ELEMENTS} for {info.dtype}",
            tensor=info.name,
        )
    blocks = shape[-1] // _BLOCK_ELEMENTS
    _check_size(info, data, math.prod(shape[:-1]) * blocks * block_bytes)
    return np.frombuffer(data, np.uint8).reshape(*shape[:-1], blocks, block_bytes)


def _strings(info: TensorInfo, data: memoryview, count: int) -> Array:
    """Decode strings: int32 count, count + 1 offsets from the start of the buffer, bytes."""
    raw = data.cast("B")
    words = np.frombuffer(raw[: len(raw) // 4 * 4], "<i4")
    if not len(words) or words[0] != count or len(words) < count + 2:
        raise ModelError(f"the string constant does not hold {count} strings", tensor=info.name)
    offsets = words[1 : count + 2]
    if offsets[0] != 4 * (count + 2) or offsets[-1] > len(raw) or (np.diff(offsets) < 0).any():
        raise ModelError("the string constant's offsets are out of order or out of range", tensor=info.name)
    array = np.empty(count, object)
    for i in range(count):
        array[i] = bytes(raw[offsets[i] : offsets[i + 1]])
    return array
