"""Complex numbers and Fourier transforms."""

from __future__ import annotations

from functools import partial

import numpy as np

from odc_mlir.numerics.pieces import PART_ELEMENTS, parts
from odc_mlir.ops.infer.common import check_elements
from odc_mlir.ops.spec import Array, Node
from odc_mlir.ops.spectral import check_lengths
from odc_mlir.runtime.kernels.common import computing, input_error, ints
from odc_mlir.runtime.kernels.unary import unary

real = partial(unary, compute=lambda x: x.real.copy())
imag = partial(unary, compute=lambda x: x.imag.copy())
complex_abs = partial(unary, compute=np.abs)


@computing
def rfft2d(node: Node, x: Array, sizes: Array) -> Array:
    """Transform ``x [..., H, W]``, cut or padded to (h, w), to ``[..., h, w/2 + 1]`` in float64."""
    lengths = ints(sizes)
    if x.ndim < 2:
        raise input_error(node, f"the input has the shape {list(x.shape)}; it must have at least 2 dimensions")
    check_lengths(node, lengths)
    check_elements(node, (*x.shape[:-2], *lengths), "complex64")
    found = np.empty((*x.shape[:-2], lengths[0], lengths[1] // 2 + 1), np.complex64)
    for place in parts(x.shape, (x.ndim - 2, x.ndim - 1), PART_ELEMENTS):
        found[place[:-2]] = np.fft.rfft2(x[place].astype(np.float64), s=lengths)
    return found
