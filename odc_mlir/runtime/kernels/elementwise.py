"""Element-wise arithmetic on two broadcast operands, and sums of many operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from odc_mlir.numerics import division, elementwise, lut
from odc_mlir.numerics.fixed import round_half_away
from odc_mlir.numerics.int16 import power_add, power_add_params
from odc_mlir.numerics.pieces import CHUNK_ELEMENTS, has_nan, in_pairs, pieces
from odc_mlir.ops.infer.common import check_elements, require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels import common
from odc_mlir.runtime.kernels.unary import LaterTable

Compute = Callable[[Array, Array], Array]
_WHOLE = ("int32", "int64")
_PLAIN = (*common.FLOATS, "int16", *_WHOLE)


def broadcasting(
    node: Node,
    compute: Compute,
    few: Compute | None = None,
    check: Callable[[tuple[int, ...], tuple[int, ...]], None] | None = None,
) -> Execute:
    """Return the kernel of a two-operand function. The kernel rejects operands that do not broadcast.

    ``few`` replaces ``compute`` for results so small that temporaries fit into the caches. ``check`` rejects shapes.
    """
    a_of, b_of, dtype = common.fetch(node, 0), common.fetch(node, 1), node.results[0].dtype
    a_shape: tuple[int, ...] | None = None
    b_shape: tuple[int, ...] | None = None
    chosen = compute

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        nonlocal a_shape, b_shape, chosen
        a, b = a_of(operands), b_of(operands)
        if a.shape != a_shape or b.shape != b_shape:
            try:
                shape = np.broadcast_shapes(a.shape, b.shape)
            except ValueError:
                raise common.input_error(
                    node, f"shapes {list(a.shape)} and {list(b.shape)} cannot be broadcast"
                ) from None
            check_elements(node, shape, dtype)
            if check is not None:
                check(a.shape, b.shape)
            chosen = few if few is not None and math.prod(shape) <= CHUNK_ELEMENTS else compute
            a_shape, b_shape = a.shape, b.shape
        return [np.asarray(chosen(a, b))]  # numpy returns scalars for rank 0

    return execute


def plain(node: Node, function: np.ufunc) -> Execute:
    """Return the kernel of a two-operand function on reals or plain integers, with fused activation."""
    clamp, dtype = common.real_clamp(node), node.results[0].info.numpy

    def compute(a: Array, b: Array) -> Array:
        shape = a.shape if a.shape == b.shape else np.broadcast_shapes(a.shape, b.shape)
        result = np.empty(shape, dtype)
        for left, right, target in pieces(a, b, result):
            function(left, right, out=target)
            if clamp is not None:
                clamp(target)
        return result

    def few(a: Array, b: Array) -> Array:
        result = np.asarray(function(a, b))
        return result if clamp is None else clamp(result)

    return broadcasting(node, compute, few)


def coded_pairs(node: Node, compute: Compute) -> Compute:
    """Return ``compute`` for codes: a table of 8-bit codes replaces it after enough computations.

    The table has a row for each code of the second operand or, if this is a small constant, for each of its elements.
    """
    a, second = node.operand(0).info.numpy, node.operand(1)
    if a.itemsize > 1 or second.info.numpy.itemsize > 1:
        return compute
    codes = lut.codes_by_bits(second.info.numpy)
    is_small = second.is_const and 0 < second.array().size <= codes.size
    rows = second.array() if is_small else codes
    numbers = np.arange(rows.size, dtype=np.uint8).reshape(rows.shape) if is_small else None
    later = LaterTable(lambda: lut.tabulate_pairs(compute, a, rows), lut.TABLE_16_THRESHOLD * rows.size // codes.size)

    def look_up(a: Array, b: Array) -> Array:
        table = later.after(max(a.size, b.size))
        return compute(a, b) if table is None else lut.apply_pairs(table, a, b if numbers is None else numbers)

    return look_up


def mapped(node: Node, compute: Compute) -> Execute:
    """Return the kernel of a two-operand function without fused activation, computed in pieces."""
    dtype = node.results[0].info.numpy
    if isinstance(compute, np.ufunc):  # one pass without temporaries
        return broadcasting(node, compute)
    return broadcasting(
        node, lambda a, b: in_pairs(compute, a, b, dtype), lambda a, b: np.asarray(compute(a, b), dtype)
    )


def _coded(node: Node) -> bool:
    out = node.results[0]
    if out.dtype == "int16":
        return any(common.is_quantised(info) for info in (*node.operands, out) if info is not None)
    return out.dtype in common.CODES


def of_reals16(node: Node, function: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array] | None:
    """Return ``function`` on int16 codes with zero points, computed in float64, or None for other operands.

    TensorFlow Lite does not support such codes: minus the zero point, a code needs 17 bits.
    """
    infos = (node.operand(0), node.operand(1), node.results[0])
    (a, a_zero), (b, b_zero), (y, y_zero) = (common.scale_of(node, info) for info in infos)
    if infos[2].dtype != "int16" or not (a_zero or b_zero or y_zero):
        return None
    low, high = common.activation_codes(node, infos[2])

    def compute(left: Array, right: Array) -> Array:
        exact = function((left.astype(np.float64) - a_zero) * a, (right.astype(np.float64) - b_zero) * b)
        return np.asarray(np.clip(round_half_away(exact / y) + y_zero, low, high), np.int16)

    return lambda left, right: in_pairs(compute, left, right, np.int16)


def _sum(node: Node, *, subtract: bool) -> Execute:
    out, function = node.results[0], np.subtract if subtract else np.add
    require_dtype(node, out, *_PLAIN, *common.CODES)
    if not _coded(node):
        return plain(node, function)
    if out.dtype == "int16" and node.options.get("pot_scale_int16", True):
        a, b, y, act, _ = _code_scales(node)
        shifts = None if a[1] or b[1] or y[1] else power_add_params(a[0], b[0], y[0], act)
        if shifts is not None:
            return broadcasting(node, lambda a, b: power_add(a, b, shifts, subtract=subtract))
    compute = elementwise.sub_quantized if subtract else elementwise.add_quantized
    return _of_codes(node, function, elementwise.add_params, compute)


def _code_scales(node: Node) -> tuple[elementwise.Quant, elementwise.Quant, elementwise.Quant, tuple[int, int], str]:
    out = node.results[0]
    a, b, y = (common.scale_of(node, info) for info in (node.operand(0), node.operand(1), out))
    return a, b, y, common.activation_codes(node, out), out.info.numpy.name


def _of_codes(node: Node, exact: Compute, make: Callable[..., Any], compute: Callable[..., Array]) -> Execute:
    """Return the kernel ``compute(a, b, make(scales))`` on codes, or ``exact`` on reals for int16 with zero points."""
    if (wide := of_reals16(node, exact)) is not None:
        return broadcasting(node, wide)
    params = make(*_code_scales(node))
    return broadcasting(node, coded_pairs(node, lambda a, b: compute(a, b, params)))


add = partial(_sum, subtract=False)
sub = partial(_sum, subtract=True)


def mul(node: Node) -> Execute:
    """Compute ``a * b``."""
    out = node.results[0]
    require_dtype(node, out, *_PLAIN, "uint32", "complex64", *common.CODES)
    if not _coded(node):
        return plain(node, np.multiply)
    return _of_codes(node, np.multiply, elementwise.mul_params, elementwise.mul_quantized)


def div(node: Node) -> Execute:
    """Compute ``a / b``. Plain integers are truncated toward zero."""
    out = node.results[0]
    require_dtype(node, out, *common.FLOATS, "int32", *common.CODES)
    if out.dtype in common.FLOATS:
        return plain(node, np.divide)
    if out.dtype == "int32":
        clamp = common.real_clamp(node)

        def divide(a: Array, b: Array) -> Array:
            quotient = division.truncated_quotient(a, _divisor(node, b, 0))
            return quotient if clamp is None else clamp(quotient)

        return mapped(node, divide)
    params = division.div_params(*_code_scales(node))
    quotient = of_reals16(node, np.divide) or coded_pairs(node, lambda a, b: division.div_quantized(a, b, params))
    return broadcasting(node, lambda a, b: quotient(a, _divisor(node, b, params.b_zero)))


def _divisor(node: Node, b: Array, zero: int) -> Array:
    if (b == zero).any():
        raise common.input_error(node, "division by zero")
    return b


def floor_div(node: Node) -> Execute:
    """Compute ``a / b`` rounded down. Reject zero divisors, even of reals."""
    require_dtype(node, node.results[0], *common.FLOATS, "int8", "int16", *_WHOLE)
    return mapped(node, lambda a, b: division.floor_quotient(a, _divisor(node, b, 0)))


def floor_mod(node: Node) -> Execute:
    """Compute the remainder with the sign of ``b``. Reject zero divisors of integers."""
    dtype = node.results[0].dtype
    require_dtype(node, node.results[0], *common.FLOATS, "int8", "int16", *_WHOLE)
    if dtype in common.FLOATS:
        return mapped(node, division.floor_remainder)
    return mapped(node, lambda a, b: division.floor_remainder(a, _divisor(node, b, 0)))


def pow(node: Node) -> Execute:  # named after the operator
    """Compute ``a`` to the power of ``b``. Integers that overflow become the smallest integer."""
    require_dtype(node, node.results[0], *common.FLOATS, "int32")
    if node.results[0].dtype in common.FLOATS:
        return broadcasting(node, _real_power)

    def power(a: Array, b: Array) -> Array:
        if (b < 0).any():
            raise common.input_error(node, "integers cannot have negative exponents")
        return division.integer_power(a, b)

    return mapped(node, power)


def _real_power(a: Array, b: Array) -> Array:
    shortcut = _SHORT_POWERS.get(float(b.reshape(-1)[0])) if b.size == 1 and a.ndim >= b.ndim else None
    return np.asarray(np.power(a, b) if shortcut is None else shortcut(a))


# Square root and power differ for -0 and minus infinity.
_SHORT_POWERS: dict[float, Callable[[Array], Array]] = {
    2.0: np.square,
    3.0: lambda x: np.square(x) * x,
    0.5: lambda x: np.where(np.isneginf(x), np.inf, np.sqrt(x) + x.dtype.type(0)).astype(x.dtype),
}


def atan2(node: Node) -> Execute:
    """Compute the angle of the point (b, a)."""
    require_dtype(node, node.results[0], *common.FLOATS, "float64")
    return mapped(node, np.arctan2)


def squared_difference(node: Node) -> Execute:
    """Compute ``(a - b)^2``."""
    out = node.results[0]
    require_dtype(node, out, *common.FLOATS, *_WHOLE, *common.CODES)

    def square(a: Array, b: Array) -> Array:
        return np.asarray(np.square(a - b))

    if out.dtype not in common.CODES:
        return mapped(node, square)
    make, compute = elementwise.squared_difference_params, elementwise.squared_difference_quantized
    return _of_codes(node, square, make, compute)


def _extreme(node: Node, function: np.ufunc, better: np.ufunc) -> Execute:
    require_dtype(node, node.results[0], *common.FLOATS, "float64", *common.CODES, *_WHOLE)
    if node.results[0].info.kind == "float":
        # NumPy's function ignores NaN in ``b``.
        return mapped(node, lambda a, b: np.where(better(a, b), a, b) if has_nan(b) else np.asarray(function(a, b)))
    return plain(node, function)


# Kernels of the operators with these names, as in other modules.
maximum = partial(_extreme, function=np.fmax, better=np.greater)
minimum = partial(_extreme, function=np.fmin, better=np.less)


def bitwise_xor(node: Node) -> Execute:
    """Compute the bitwise exclusive or."""
    _require_bits(node)
    return plain(node, np.bitwise_xor)


def right_shift(node: Node) -> Execute:
    """Shift ``a`` right by ``b`` bits, clamped to the valid range."""
    _require_bits(node)
    dtype = node.results[0].info.numpy
    most = dtype.type(dtype.itemsize * 8 - 1)
    return mapped(node, lambda a, b: np.right_shift(a, np.clip(b, dtype.type(0), most)))


def _require_bits(node: Node) -> None:
    require_dtype(node, node.results[0], "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def add_n(node: Node) -> Execute:
    """Add tensors of the same shape, first to last, and limit real sums as in ADD."""
    require_dtype(node, node.results[0], *common.FLOATS, *_WHOLE)
    clamp = common.real_clamp(node)

    def compute(*arrays: Array) -> Array:
        if len({array.shape for array in arrays}) > 1:
            raise common.input_error(
                node, f"operands have the shapes {[list(array.shape) for array in arrays]}; they must be equal"
            )
        total = arrays[0].copy()
        for parts in pieces(*arrays[1:], total):
            for part in parts[:-1]:
                np.add(parts[-1], part, out=parts[-1])
                if clamp is not None:
                    clamp(parts[-1])
        return total

    return common.computed(node, compute)
