"""Reductions over axes, and running sums along an axis."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import numpy as np

from odc_mlir.numerics import reduction
from odc_mlir.numerics.fixed import code_range, round_half_away
from odc_mlir.numerics.pieces import reduce
from odc_mlir.ops.dtypes import CODE_DTYPES
from odc_mlir.ops.infer.common import normal_axis, option, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import common

_PLAIN = ("int32", "int64")

Compute = Callable[[Array, tuple[int, ...], bool], Array]


def axes_of(node: Node, values: Array, rank: int) -> tuple[int, ...]:
    """Return the distinct axes in ascending order, counted from the front."""
    return tuple(sorted({normal_axis(node, axis, rank) for axis in common.ints(values)})) if rank else ()


def mean(node: Node) -> Execute:
    """Compute the mean of operand 0 over the axes in operand 1."""
    x_info, out = node.operand(0), node.results[0]
    keep = bool(option(node, "keep_dims"))
    quantised = out.dtype not in ("float32", *_PLAIN)
    (scale, zero), (out_scale, out_zero) = (
        (common.scale_of(node, x_info), common.scale_of(node, out)) if quantised else ((1.0, 0), (1.0, 0))
    )
    dtype = out.info.numpy

    def make(shape: tuple[int, ...], values: Array) -> common.PlannedKernel:
        axes = axes_of(node, values, len(shape))
        count = math.prod(shape[a] for a in axes)
        if count == 0:
            raise common.input_error(node, f"the input {list(shape)} has no elements for a mean")
        if out.dtype == "float32":
            divisor = np.array(count, np.float32)
            return lambda x: np.asarray(reduce(np.add, x, axes, np.float32, keep=keep) / divisor)
        if out.dtype in _PLAIN:

            def whole_mean(x: Array) -> Array:
                total = np.asarray(x.sum(axis=axes, keepdims=keep, dtype=np.int64))
                return np.asarray(np.sign(total) * (np.abs(total) // count), dtype)  # rounded toward zero

            return whole_mean
        return reduction.codes_mean(
            shape,
            axes,
            reduction.mean_params(scale, out_scale, count),
            zero,
            out_zero,
            code_range(dtype),
            dtype,
            keep_dims=keep,
        )

    return common.planned(node, 0, (1,), make)


def _over_axes(node: Node, compute: Compute) -> Execute:
    keep = bool(option(node, "keep_dims"))

    def make(shape: tuple[int, ...], values: Array) -> common.PlannedKernel:
        axes = axes_of(node, values, len(shape))
        return lambda x: np.asarray(compute(x, axes, keep))

    return common.planned(node, 0, (1,), make)


def _codes_of_nothing(x: Array, axes: tuple[int, ...], keep: bool, code: float) -> Array:
    """Return the result of a reduction over empty axes: ``code`` in every element."""
    shape = [1 if i in axes else d for i, d in enumerate(x.shape) if keep or i not in axes]
    return np.full(shape, np.clip(round_half_away(np.array(code)), *code_range(x.dtype)), x.dtype)


def reduce_sum(node: Node) -> Execute:
    """Sum operand 0 over the axes in operand 1. Integers wrap around, booleans saturate."""
    info, out = node.operand(0), node.results[0]
    dtype = info.info.numpy
    if info.dtype == "bool":
        return reduce_any(node)
    require_dtype(node, info, "float32", *_PLAIN, *CODE_DTYPES)
    if info.dtype not in CODE_DTYPES:
        return _over_axes(node, lambda x, axes, keep: reduce(np.add, x, axes, dtype, keep=keep))
    (scale, zero), (out_scale, out_zero) = common.scale_of(node, info), common.scale_of(node, out)
    params, act = reduction.sum_params(scale, out_scale), code_range(dtype)

    def compute(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        if not x.size:
            return _codes_of_nothing(x, axes, keep, out_zero)
        return reduction.codes_mean(x.shape, axes, params, zero, out_zero, act, dtype, keep_dims=keep)(x)

    return _over_axes(node, compute)


def reduce_prod(node: Node) -> Execute:
    """Multiply operand 0 over the axes in operand 1. Integers that have no scale wrap around."""
    info, out = node.operand(0), node.results[0]
    dtype = info.info.numpy
    if info.dtype == "bool":
        return reduce_all(node)
    require_dtype(node, info, "float32", *_PLAIN, *CODE_DTYPES)
    if info.quant is None or info.dtype not in CODE_DTYPES:
        return _over_axes(node, lambda x, axes, keep: reduce(np.multiply, x, axes, dtype, keep=keep))
    if info.dtype not in ("int8", "int16"):
        raise common.unsupported(node, f"a product of quantised {info.dtype} is not supported; int8 and int16 are")
    (scale, zero), (out_scale, out_zero) = common.scale_of(node, info), common.scale_of(node, out)
    low, high = code_range(dtype)

    def compute(x: Array, axes: tuple[int, ...], keep: bool) -> Array:
        if not x.size:
            return _codes_of_nothing(x, axes, keep, 1 / out_scale + out_zero)
        q, e = reduction.product_params(scale, out_scale, math.prod(x.shape[a] for a in axes))
        return reduction.product_codes(x, axes, q, e, zero, out_zero, low, high, dtype, keep_dims=keep)

    return _over_axes(node, compute)


def _extreme(node: Node, *, largest: bool) -> Execute:
    info = node.operand(0)
    require_dtype(node, info, "float32", *_PLAIN, *CODE_DTYPES, "bool")
    return _over_axes(node, lambda x, axes, keep: reduction.extreme(x, axes, largest=largest, keep_dims=keep))


reduce_max = partial(_extreme, largest=True)
reduce_min = partial(_extreme, largest=False)
reduce_any = partial(_over_axes, compute=lambda x, axes, keep: reduce(np.logical_or, x, axes, keep=keep))
reduce_all = partial(_over_axes, compute=lambda x, axes, keep: reduce(np.logical_and, x, axes, keep=keep))


def cumsum(node: Node) -> Execute:
    """Compute the running sum along the axis in operand 1. ``exclusive`` sums leave out the element itself."""
    info = node.operand(0)
    exclusive, reverse = bool(option(node, "exclusive")), bool(option(node, "reverse"))
    require_dtype(node, info, "float32", *_PLAIN)

    def make(shape: tuple[int, ...], place: Array) -> common.PlannedKernel:
        axis = normal_axis(node, int(common.single(node, place, "the axis")), len(shape))
        lead = (slice(None),) * axis
        turned = (*lead, slice(None, None, -1))
        first, but_first, but_last = ((*lead, part) for part in (slice(1), slice(1, None), slice(-1)))

        def run(x: Array) -> Array:
            out = np.empty_like(x)
            source, target = (x[turned], out[turned]) if reverse else (x, out)
            if exclusive:
                target[first] = 0
                source, target = source[but_last], target[but_first]
            np.add.accumulate(source, axis, None, target)
            if x.dtype.kind == "f":
                out += 0  # turns -0 into 0, as in a sum that starts from 0
            return out

        return run

    return common.planned(node, 0, (1,), make)
