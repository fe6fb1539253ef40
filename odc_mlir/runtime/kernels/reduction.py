"""Reductions: MEAN."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.reduction import mean_codes, mean_params
from odc_mlir.ops.infer.common import normal_axis, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, input_error, ints, scale_of

_PLAIN = ("int32", "int64")


def axes_of(node: Node, values: Array, rank: int) -> tuple[int, ...]:
    """Distinct axes, counted from the front and in order."""
    return tuple(sorted({normal_axis(node, axis, rank) for axis in ints(values)})) if rank else ()


def mean(node: Node) -> Execute:
    """Mean of operand 0 over the axes in operand 1."""
    x_info, out = node.operand(0), node.results[0]
    keep, x_of, axes_from = bool(option(node, "keep_dims")), fetch(node, 0), fetch(node, 1)
    quantised = out.dtype not in ("float32", *_PLAIN)
    (scale, zero), (out_scale, out_zero) = (
        (scale_of(node, x_info), scale_of(node, out)) if quantised else ((1.0, 0), (1.0, 0))
    )
    dtype = out.info.numpy

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        axes = axes_of(node, axes_from(operands), x.ndim)
        count = math.prod(x.shape[a] for a in axes)
        if count == 0:
            raise input_error(node, f"the input {list(x.shape)} has no elements to take the mean of")
        if out.dtype == "float32":
            return [np.asarray(x.mean(axis=axes, keepdims=keep, dtype=np.float32))]
        if out.dtype in _PLAIN:
            total = np.asarray(x.sum(axis=axes, keepdims=keep, dtype=np.int64))
            return [(np.sign(total) * (np.abs(total) // count)).astype(dtype)]
        q, e = mean_params(scale, out_scale, count)
        low, high = code_range(dtype)
        return [mean_codes(x, axes, q, e, zero, out_zero, low, high, dtype, keep_dims=keep)]

    return execute
