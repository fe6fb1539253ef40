"""FULLY_CONNECTED."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from odc_mlir.numerics.blocks import decode_blocks, quantize_blocks
from odc_mlir.numerics.convolution import ConvFilter, Window, conv2d, conv_filter
from odc_mlir.numerics.hybrid import HybridMatrix, quantize_rows
from odc_mlir.numerics.matmul import float_matrix
from odc_mlir.numerics.single_tile import tile_convolution
from odc_mlir.ops.infer.common import check_elements, option
from odc_mlir.ops.spec import Array, Execute, Node, TensorInfo
from odc_mlir.runtime.kernels.common import PlannedKernel, fetch, input_error, real_clamp, unsupported
from odc_mlir.runtime.kernels.convolution import prepared, small_plans
from odc_mlir.runtime.kernels.sums import Accumulation, accumulation, bias_of

Product = Callable[[Array, Array | None], Array]  # from rows [N, I] and bias to results [N, O]
Convert = Callable[[Array], Array]
Products = Callable[[Sequence[Array | None]], Product]  # from the operands of a run to its product

_SHUFFLED_ROWS, _SHUFFLED_COLUMNS = 4, 16  # block of the shuffled 8-bit format
_SHUFFLED_FLOAT_ROWS = 16
_SHUFFLED_ZERO = 128  # zero point of input and weights in the shuffled 8-bit format


def fully_connected(node: Node) -> Execute:
    """Multiply ``x``, read as ``[rows, I]``, by weights ``[O, I]`` and add the bias: ``[rows, O]``.

    8-bit codes are requantised in fixed point, as in TFLite up to 2.19, if the run does not select newer numerics.
    """
    w_info, bias_info = node.operand(1), node.optional(2)
    outputs, inputs = w_info.static_shape
    if inputs < 1:
        raise node.error("the weights have no columns")
    keep_dims, x_of = bool(option(node, "keep_num_dims")), fetch(node, 0)
    products, scratch = _products(node, outputs, inputs), len(node.results) > 1
    known: tuple[int, ...] | None = None
    matrix = result = (0, 0)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        nonlocal known, matrix, result
        x = x_of(operands)
        if x.shape != known:
            if x.size % inputs or (keep_dims and x.shape[-1:] != (inputs,)):
                raise input_error(node, f"the input has the shape {list(x.shape)}; it must hold rows of {inputs}")
            matrix = x.size // inputs, inputs
            check_elements(node, (matrix[0], outputs), node.results[0].dtype)
            result = (*x.shape[:-1], outputs) if keep_dims else (matrix[0], outputs)
            known = x.shape
        found = products(operands)(x.reshape(matrix), bias_of(operands, bias_info, 2)).reshape(result)
        return [found, np.zeros(x.shape, np.uint8)] if scratch else [found]

    return execute


def _products(node: Node, outputs: int, inputs: int) -> Products:
    x_info, w_info, bias_info = node.operand(0), node.operand(1), node.optional(2)
    layout = str(node.options.get("weights_format", "default"))
    if w_info.info.kind == "block":
        return _block_products(node, w_info)
    how = accumulation(node, x_info, w_info, bias_info, outputs)

    def plain(values: Array) -> Array:
        ordered = _plain(node, layout, values)
        return ordered if layout == "shuffled4x16int8" else how.weights(ordered, 0)

    if how.hybrid is not None or (how.largest is None and not w_info.is_const):
        return _products_of_rows(node, how, plain)

    def prepare(values: Array) -> ConvFilter:
        return conv_filter(plain(values).reshape(outputs, 1, 1, inputs), how.largest, sums=how.sums)

    filter_of = prepared(node, 1, prepare)

    def make(shape: tuple[int, ...]) -> PlannedKernel | None:
        size = (1, 1, shape[0], shape[1])
        return tile_convolution(size, x_info.info.numpy, filter_of(()), Window((1, 1)), how.of_tile(bias_info))

    ready_for = small_plans(how, node, 1, 2, make)

    def products(operands: Sequence[Array | None]) -> Product:
        weights = filter_of(operands)

        def multiply(rows: Array, bias: Array | None) -> Array:
            if (plan := ready_for(rows.shape)) is not None:
                return plan(rows)
            # A 1x1 convolution over one image row limits the memory.
            image, finish = rows.reshape(1, 1, *rows.shape), how.finish(bias)
            found = conv2d(image, weights, Window((1, 1)), in_zero=how.in_zero, finish=finish, dtype=how.out_dtype)
            return found.reshape(len(rows), outputs)

        return multiply

    return products


def _products_of_rows(node: Node, how: Accumulation, plain: Callable[[Array], Array]) -> Products:
    """Return the products of float rows. For integer weights, each row is quantised with a scale of its own."""
    asymmetric = bool(node.options.get("asymmetric_quantize_inputs", False))

    def prepare(values: Array) -> Convert:
        if how.hybrid is None:
            return float_matrix(plain(values).T, how.sums).product
        matrix = HybridMatrix(plain(values), how.hybrid.scales)
        return lambda rows: matrix.product(quantize_rows(rows, asymmetric=asymmetric))

    return _by_rows(prepared(node, 1, prepare), how.rescale)


def _block_products(node: Node, weights: TensorInfo) -> Products:
    """Return the products with weights in a GGML block format. Activations are rounded to 8-bit blocks."""
    if (node.operand(0).dtype, node.results[0].dtype) != ("float32", "float32"):
        raise unsupported(node, f"weights of {weights.dtype} go with float32 only")
    if not weights.is_const:
        raise unsupported(node, f"weights of {weights.dtype} must be constant")

    def prepare(raw: Array) -> Convert:
        matrix = np.ascontiguousarray(decode_blocks(raw, weights.dtype).T)
        return lambda rows: quantize_blocks(rows) @ matrix

    return _by_rows(prepared(node, 1, prepare), real_clamp(node))


def _by_rows(multiply_of: Callable[[Sequence[Array | None]], Convert], finish: Convert | None) -> Products:
    def products(operands: Sequence[Array | None]) -> Product:
        multiply = multiply_of(operands)

        def multiply_and_add(rows: Array, bias: Array | None) -> Array:
            sums = multiply(rows)
            if bias is not None:
                sums += bias.reshape(-1)
            return sums if finish is None else finish(sums)

        return multiply_and_add

    return products


def _plain(node: Node, layout: str, weights: Array) -> Array:
    """Return weights in row-major order, decoded from ``weights_format``.

    The shuffled float format has blocks of 16 rows, column by column. The shuffled 8-bit format has blocks of 4 rows by
    16 columns with flipped sign bits. The result is therefore signed, and the zero point 128 is already subtracted.
    """
    outputs, inputs = weights.shape
    if layout == "default":
        return weights
    if layout == "shuffled16x1float32" and weights.dtype == np.float32:
        if outputs % _SHUFFLED_FLOAT_ROWS:
            raise node.error(f"{outputs} rows of weights in the format {layout} must be a multiple of 16")
        blocks = weights.reshape(outputs // _SHUFFLED_FLOAT_ROWS, inputs, _SHUFFLED_FLOAT_ROWS)
        return blocks.transpose(0, 2, 1).reshape(outputs, inputs)
    if layout == "shuffled4x16int8" and weights.dtype == np.uint8 and node.results[0].dtype == "int16":
        if outputs % _SHUFFLED_ROWS or inputs % _SHUFFLED_COLUMNS:
            raise node.error(f"weights {list(weights.shape)} in the format {layout} must be multiples of 4 and 16")
        for info in (node.operand(0), node.operand(1)):
            if info.quant is not None and set(info.quant.zero_points) != {_SHUFFLED_ZERO}:
                zero = info.quant.zero_points[0]
                raise unsupported(
                    node, f"{info.name!r} has the zero point {zero}; in the format {layout} it must be {_SHUFFLED_ZERO}"
                )
        shape = outputs // _SHUFFLED_ROWS, inputs // _SHUFFLED_COLUMNS, _SHUFFLED_ROWS, _SHUFFLED_COLUMNS
        return weights.view(np.int8).reshape(shape).transpose(0, 2, 1, 3).reshape(outputs, inputs)
    raise unsupported(node, f"weights of {weights.dtype} in the format {layout!r} are not supported")
