"""INSTANCE_NORM, RMS_NORM, ROPE and ATTENTION in float32, as in ONE's kernels, and RMS_NORM on codes."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.normalization import RmsNormParams, rms_norm_codes, rms_norm_params
from odc_mlir.numerics.pieces import PART_ELEMENTS, clamp, in_rows, part_of, parts, row_slices
from odc_mlir.ops.infer.common import option, require_dtype, shape_text
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import (
    CODES,
    Fetch,
    computed,
    fetch,
    input_error,
    planned,
    real_clamp,
    scale_of,
    unsupported,
)

_log = logging.getLogger(__name__)

_K_CACHE, _V_CACHE, _POSITION = 8, 9, 10
_BLOCK = 32  # ATTENTION reads its caches in blocks of this many rows


def _require(node: Node, *allowed: str, other_than: int | None = None) -> None:
    """Raise UnsupportedError if tensors, except operand ``other_than``, have different or unsupported element types."""
    infos = [info for index, info in enumerate(node.operands) if index != other_than]
    for info in (*infos, *node.results):
        if info is not None and info.dtype not in allowed:
            raise unsupported(node, f"{info.name!r} is {info.dtype}; supported are {', '.join(allowed)}")
    if len({info.dtype for info in infos if info is not None}) > 1:
        raise unsupported(node, "operands of different element types are not supported")


def instance_norm(node: Node) -> Execute:
    """Normalise each image and channel: ``(x - mean) / sqrt(variance + epsilon) * gamma + beta``.

    ``[N, H, W, C]`` is normalised over H and W, ``[N, C, D]`` over D, in float64.
    """
    _require(node, "float32")
    epsilon, act = float(option(node, "epsilon")), real_clamp(node)

    def normal(x: Array, means: Iterable[Array], gamma: Array, beta: Array) -> Array:
        mean, square = means
        factor = gamma / np.sqrt(square - mean * mean + epsilon)
        wide = x.astype(np.float64)
        wide *= factor
        wide += beta - mean * factor
        return wide

    def compute(x: Array, factors: Array, offsets: Array) -> Array:
        gamma, beta = factors.ravel(), offsets.ravel()
        y = np.empty_like(x)
        if x.ndim == 3:
            for place in parts(x.shape, (2,)):
                wide = x[place].astype(np.float64)
                means = [array.mean(axis=2, keepdims=True) for array in (wide, wide * wide)]
                y[place] = normal(wide, means, gamma[place[1], None], beta[place[1], None])
        elif x.size:
            for rows, target in zip(x.reshape(len(x), -1, x.shape[3]), y.reshape(len(x), -1, x.shape[3]), strict=True):
                moments = _moments(rows)
                for part in row_slices(rows, PART_ELEMENTS):
                    target[part] = normal(rows[part], moments, gamma, beta)
        return act(y) if act else y

    return computed(node, compute)


def _moments(rows: Array) -> tuple[Array, Array]:
    """Return the means ``[C]`` of ``rows [N, C]`` and of the squares of ``rows``, summed row by row in float64."""
    total = squares = np.zeros(rows.shape[1])
    for part in row_slices(rows, PART_ELEMENTS):
        wide = np.empty((part.stop - part.start + 1, rows.shape[1]))
        wide[0], wide[1:] = total, rows[part]
        total = wide.sum(axis=0)
        wide *= wide
        wide[0] = squares
        squares = wide.sum(axis=0)
    return total / len(rows), squares / len(rows)


def rms_norm(node: Node) -> Execute:
    """Compute ``gamma * x / sqrt(mean(x^2) + epsilon)`` over the last axis.

    Sums of reals are float64, sums of codes integers. 16-bit codes with a zero point are converted to reals and back.
    """
    x, gamma, result = node.operand(0), node.operand(1), node.results[0]
    epsilon = float(option(node, "epsilon"))
    if result.dtype not in CODES:
        _require(node, "float32")
        return computed(
            node,
            lambda x, gamma: in_rows(lambda rows: _rms_norm(rows, gamma, epsilon), x, np.float32, PART_ELEMENTS),
        )
    require_dtype(node, x, *CODES)
    require_dtype(node, gamma, "float32", *CODES)
    (in_scale, in_zero), (out_scale, out_zero) = scale_of(node, x), scale_of(node, result)
    low, high = code_range(result.info.numpy)

    def by_reals(codes: Array, factors: Array) -> Array:
        y = _rms_norm((codes - float(in_zero)) * in_scale, factors, epsilon)
        return clamp(round_half_away(y / out_scale) + out_zero, low, high).astype(result.info.numpy)

    def make(shape: tuple[int, ...], factors: Array) -> Callable[[Array], Array]:
        if (x.dtype == "int16" and in_zero) or (result.dtype == "int16" and out_zero):
            reals = _reals(node, gamma, factors)
            return lambda codes: in_rows(lambda rows: by_reals(rows, reals), codes, result.info.numpy)
        if 0 in shape:
            return lambda codes: codes
        params = integer_rms_norm(node, factors, shape[-1])
        return lambda codes: in_rows(lambda rows: rms_norm_codes(rows, params), codes, result.info.numpy)

    return planned(node, 0, [1], make)


def integer_rms_norm(node: Node, gamma: Array, count: int) -> RmsNormParams:
    """Return the integer parameters of an RMS_NORM on codes, for rows of ``count`` elements."""
    x, result, epsilon = node.operand(0), node.results[0], float(option(node, "epsilon"))
    factors, source = _reals(node, node.operand(1), gamma), scale_of(node, x)
    return rms_norm_params(source, x.dtype, factors, epsilon, count, scale_of(node, result), result.dtype)


def _reals(node: Node, info: TensorInfo, values: Array) -> NDArray[np.float32]:
    if info.quant is None:
        return values
    scale, zero = scale_of(node, info)
    return (values.astype(np.float32) - np.float32(zero)) * np.float32(scale)


def _rms_norm(x: NDArray[Any], gamma: NDArray[Any], epsilon: float) -> NDArray[np.float64]:
    wide = x.astype(np.float64)
    wide /= np.sqrt((wide * wide).mean(axis=-1, keepdims=True) + epsilon)
    wide *= gamma.ravel()
    return wide


def _rotated(x: NDArray[Any], sine: NDArray[Any], cosine: NDArray[Any]) -> NDArray[Any]:
    """Return ``x * cos + concat(-x_high, x_low) * sin``, the GPT-NeoX form. Tables broadcast."""
    half = x.shape[-1] // 2
    turned = np.concatenate((-x[..., half:], x[..., :half]), axis=-1)
    return np.asarray(x * cosine + turned * sine, x.dtype)


def rope(node: Node) -> Execute:
    """Compute the rotary embedding from tables of sines and cosines, with one row per position or one for all.

    Tables broadcast to the input. If a table has several rows, ONE's kernels use the first row for every position.
    Models do not intend this. Therefore such tables cause a warning.
    """
    if option(node, "mode") != "gpt_neox":
        raise unsupported(node, f"mode {option(node, 'mode')!r} has no published definition; gpt_neox is supported")
    _require(node, "float32", "int64")
    for info in (node.operand(1), node.operand(2)):
        if info.shape is not None and any(d != 1 for d in info.shape[:-1]):
            _log.warning("%s has the shape %s; ONE's kernels use its first row only", info.name, shape_text(info.shape))

    def compute(x: Array, sine: Array, cosine: Array) -> Array:
        try:
            fits = np.broadcast_shapes(x.shape, sine.shape, cosine.shape) == x.shape
        except ValueError:
            fits = False
        if not fits or x.shape[-1] % 2:
            shapes = f"{list(sine.shape)} and {list(cosine.shape)}"
            raise input_error(node, f"tables {shapes} do not fit the input {list(x.shape)}")
        if x.size <= PART_ELEMENTS:
            return _rotated(x, sine, cosine)
        y = np.empty_like(x)
        for place in parts(x.shape, (x.ndim - 1,)):
            y[place] = _rotated(*(part_of(array, place) for array in (x, sine, cosine)))
        return y

    return computed(node, compute)


def _cache(node: Node, index: int) -> Fetch:
    info = node.operand(index)

    def contents(operands: Sequence[Array | None]) -> Array:
        given = operands[index]
        return info.array().copy() if given is None else given

    return contents


def attention(node: Node) -> Execute:
    """Compute the attention of one token, and write the key and value of the token to the caches at ``position``.

    The token attends to cache rows up to ``position``. The mask has one value per cache row and hides rows beyond
    ``position``. A shorter mask is repeated.
    """
    _require(node, "float32", other_than=_POSITION)
    fetches = [
        _cache(node, index) if index in (_K_CACHE, _V_CACHE) else fetch(node, index)
        for index in range(len(node.spec.operands))
    ]

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, wq, wk, wv, wo, cosine, sine, mask, keys, values, place = (f(operands) for f in fetches)
        _, capacity, heads, size = keys.shape
        if x.size != heads * size or sine.size != size or cosine.size != size or not mask.size or not place.size:
            raise input_error(node, f"{heads} heads of {size}, the input {list(x.shape)}, tables and mask do not fit")
        position = int(place.ravel()[0])
        # ONE rounds up position + 2 instead of position + 1. The mask hides the additional row.
        length = _BLOCK * math.ceil((position + 2) / _BLOCK)
        if not 0 <= position < capacity or length > capacity:
            raise input_error(node, f"position {position} needs {length} cache rows, the cache has {capacity}")
        token = x.reshape(-1)
        q, k, v = ((weights @ token).reshape(heads, size) for weights in (wq, wk, wv))
        q, k = (_rotated(part, sine.reshape(-1, size), cosine.reshape(-1, size)) for part in (q, k))
        keys[0, position], values[0, position] = k, v
        scores = np.einsum("hd,thd->ht", q, keys[0, :length]) / np.float32(math.sqrt(size))
        scores += np.resize(mask.ravel(), length)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
        mixed = np.einsum("ht,thd->hd", weights, values[0, :length]).reshape(-1)
        return [np.asarray(wo @ mixed, np.float32).reshape(x.shape)]

    return execute
