"""Complex numbers and Fourier transforms."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.numerics.pieces import PART_ELEMENTS, parts
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.ops.spectral import check_lengths
from odc_mlir.runtime.kernels.common import fetch, input_error, ints
from odc_mlir.runtime.kernels.unary import unary


def real(node: Node) -> Execute:
    """Compute the real part."""
    return unary(node, lambda x: x.real.copy())


def imag(node: Node) -> Execute:
    """Compute the imaginary part."""
    return unary(node, lambda x: x.imag.copy())


def complex_abs(node: Node) -> Execute:
    """Compute the absolute value."""
    return unary(node, np.abs)


def rfft2d(node: Node) -> Execute:
    """Transform ``x [..., H, W]``, cut or padded to (h, w), to ``[..., h, w/2 + 1]`` in float64."""
    x_of, lengths_of = fetch(node, 0), fetch(node, 1)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x, lengths = x_of(operands), ints(lengths_of(operands))
        if x.ndim < 2:
            raise input_error(node, f"the input has the shape {list(x.shape)}; it must have at least 2 dimensions")
        check_lengths(node, lengths)
        check_elements(node, (*x.shape[:-2], *lengths), "complex64")
        found = np.empty((*x.shape[:-2], lengths[0], lengths[1] // 2 + 1), np.complex64)
        for place in parts(x.shape, (x.ndim - 2, x.ndim - 1), PART_ELEMENTS):
            found[place[:-2]] = np.fft.rfft2(x[place].astype(np.float64), s=lengths)
        return [found]

    return execute
