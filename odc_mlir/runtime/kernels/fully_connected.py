"""FULLY_CONNECTED."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from odc_mlir.numerics.convolution import ConvFilter, Window, conv2d, conv_filter
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import fetch, input_error, unsupported
from odc_mlir.runtime.kernels.convolution import prepared
from odc_mlir.runtime.kernels.sums import accumulation, bias_of, centred

_SHUFFLED_ROWS = 16


def fully_connected(node: Node) -> Execute:
    """``x`` read as ``[rows, I]``, weights ``[O, I]``, bias ``[O]`` to ``[rows, O]``.

    8-bit codes are requantised in fixed point, as TFLite did up to 2.19. Computed as a 1x1 convolution over one image
    row, which bounds memory.
    """
    x_info, w_info, bias_info = node.operand(0), node.operand(1), node.optional(2)
    outputs, inputs = w_info.static_shape
    if inputs < 1:
        raise node.error("the weights have no columns")
    keep_dims, x_of = bool(option(node, "keep_num_dims")), fetch(node, 0)
    how = accumulation(node, x_info, w_info, bias_info, outputs)

    def prepare(values: Array) -> ConvFilter:
        matrix = centred(node, w_info, _plain(node, values), 0)
        return conv_filter(matrix.reshape(outputs, 1, 1, inputs), how.largest, sums=how.sums)

    filter_of = prepared(node, 1, prepare)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        x = x_of(operands)
        if x.size % inputs or (keep_dims and x.shape[-1:] != (inputs,)):
            raise input_error(node, f"the input has the shape {list(x.shape)}; it must hold rows of {inputs}")
        rows = x.size // inputs
        check_elements(node, (rows, outputs), node.results[0].dtype)
        finish = how.finish(bias_of(operands, bias_info, 2))
        flat = x.reshape(1, 1, rows, inputs)
        sums = conv2d(
            flat, filter_of(operands), Window((1, 1)), in_zero=how.in_zero, finish=finish, dtype=how.out_dtype
        )
        return [sums.reshape(*x.shape[:-1], outputs) if keep_dims else sums.reshape(rows, outputs)]

    return execute


def _plain(node: Node, weights: Array) -> Array:
    """Weights in row-major order, whatever ``weights_format`` says they are in.

    The shuffled float format holds blocks of 16 rows, column by column.
    """
    layout = node.options.get("weights_format", "default")
    if layout == "default":
        return weights
    outputs, inputs = weights.shape
    if layout == "shuffled16x1float32" and weights.dtype == np.float32:
        if outputs % _SHUFFLED_ROWS:
            raise node.error(f"{outputs} rows of weights in the format {layout} must be a multiple of {_SHUFFLED_ROWS}")
        blocks = weights.reshape(outputs // _SHUFFLED_ROWS, inputs, _SHUFFLED_ROWS)
        return blocks.transpose(0, 2, 1).reshape(outputs, inputs)
    raise unsupported(node, f"weights in the format {layout!r} are not supported; default and shuffled16x1float32 are")
