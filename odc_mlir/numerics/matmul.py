"""Exact integer matrix products by floating-point BLAS.

A float32 product of integer matrices is exact, in any order of summation, if every partial sum is below 2^24. The limit
for float64 products is 2^53. The bound is the largest input magnitude times the largest sum of weight magnitudes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

IN_ORDER = "in order"  # kind of float32 sums that add products one by one, as TensorFlow Lite's reference kernels do
FLOAT32_EXACT = 1 << 24
FLOAT64_EXACT = 1 << 53


def compute_dtype(largest_sum: int) -> np.dtype[Any]:
    """Return the cheapest dtype that represents all partial sums up to ``largest_sum`` exactly."""
    if largest_sum < FLOAT32_EXACT:
        return np.dtype(np.float32)
    return np.dtype(np.float64 if largest_sum < FLOAT64_EXACT else np.int64)


@dataclass(frozen=True, slots=True)
class Matrix:
    """Right-hand side ``[K, N]`` in the dtype of the computation. ``sums`` is the dtype of results."""

    values: NDArray[Any]
    sums: np.dtype[Any]
    in_order: bool = False

    def product(self, a: NDArray[Any]) -> NDArray[Any]:
        """Return ``a [M, K] @ values`` as ``[M, N]``. Integer results wrap to ``sums``."""
        return narrow(self.exact(a), self.sums)

    def exact(self, a: NDArray[Any]) -> NDArray[Any]:
        """Return :meth:`product` in the dtype of the computation."""
        if self.in_order:
            return product_in_order(a, self.values)
        return np.asarray(a.astype(self.values.dtype, copy=False) @ self.values)


def product_in_order(a: NDArray[Any], b: NDArray[Any]) -> NDArray[Any]:
    """Return float32 ``a [..., M, K] @ b [..., K, N]``. The products are added one by one along ``K``."""
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    total = np.zeros((*batch, a.shape[-2], b.shape[-1]), np.float32)
    for k in range(a.shape[-1]):
        total += a[..., k, None] * b[..., None, k, :]
    return total


def narrow(sums: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Wrap exact integers in a float or int64 array to ``dtype``."""
    if sums.dtype == np.float64 and dtype == np.int32:
        sums = sums.astype(np.int64)  # conversion to int32 is undefined out of range for floats, and wraps for int64
    return sums.astype(dtype, copy=False)


def integer_matrix(b: NDArray[Any], largest: int, sums: str = "int32") -> Matrix:
    """Prepare integer ``b [K, N]`` for exact products with integers of magnitude at most ``largest``."""
    totals = 2 * np.maximum(b, 0).sum(axis=0, dtype=np.int64) - b.sum(axis=0, dtype=np.int64)  # sums of magnitudes
    dtype = compute_dtype(int(totals.max(initial=0)) * int(largest))
    return Matrix(b.astype(dtype), np.dtype(sums))


def float_matrix(b: NDArray[Any], sums: str = "float32") -> Matrix:
    """Prepare float32 ``b [K, N]``. ``sums``: "float32" or IN_ORDER."""
    return Matrix(np.asarray(b, np.float32), np.dtype(np.float32), sums == IN_ORDER)


def largest_magnitude(a: NDArray[Any], zero: int = 0) -> int:
    """Return the largest distance from ``zero`` in an integer array, or 0 for an empty array."""
    return max(int(a.max()) - zero, zero - int(a.min())) if a.size else 0
