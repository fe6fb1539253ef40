"""Sums of products of integers that are prepared and computed in one call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.numerics.convolution import Window, conv2d, conv_filter, depthwise_filter
from odc_mlir.numerics.matmul import integer_matrix, largest_magnitude

Pair = tuple[int, int]


def conv2d_sums(x: NDArray[Any], w: NDArray[Any], stride: Pair, dilation: Pair = (1, 1)) -> NDArray[np.int32]:
    """int32 sums ``[N, OH, OW, O]`` of padded, zero-point-free integers ``x [N, H, W, C]`` and ``w [O, kh, kw, C]``."""
    weights = conv_filter(w, largest_magnitude(x), groups=x.shape[3] // w.shape[3])
    return conv2d(x, weights, Window(weights.kernel, stride, dilation))


def depthwise_sums(x: NDArray[Any], w: NDArray[Any], stride: Pair, dilation: Pair = (1, 1)) -> NDArray[np.int32]:
    """int32 sums ``[N, OH, OW, C*M]`` of padded, zero-point-free integers ``x [N, H, W, C]``, ``w [kh, kw, C*M]``."""
    weights = depthwise_filter(w, largest_magnitude(x))
    return conv2d(x, weights, Window(weights.kernel, stride, dilation))


def exact_matmul(a: NDArray[Any], b: NDArray[Any], sums: str = "int32") -> NDArray[Any]:
    """Exact integer product ``a [M, K] @ b [K, N]``, wrapped to ``sums`` (int32 or int64)."""
    return integer_matrix(b, largest_magnitude(a), sums).product(a)
