"""Functions of one operand, such as EXP and ABS, and helpers of kernels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Generic, TypeVar

import numpy as np

from odc_mlir.numerics import lut, special
from odc_mlir.numerics.activation import rsqrt_codes, rsqrt_params, sqrt_codes
from odc_mlir.numerics.elementwise import scale_params, scale_quantized
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.int16 import real_codes16, real_table16
from odc_mlir.numerics.int16_sums import TableSum, table_sum
from odc_mlir.numerics.pieces import in_pieces
from odc_mlir.ops.infer.common import require_dtype
from odc_mlir.ops.spec import Array, Execute, Node
from odc_mlir.runtime.kernels.common import (
    CODES,
    EIGHT_BIT,
    FLOATS,
    computed,
    is_quantised,
    scale_of,
)

Function = Callable[[Array], Array]
Table = TypeVar("Table")


# Overhead of a direct computation (no table), in elements.
_CALL_ELEMENTS = 1 << 12


class LaterTable(Generic[Table]):
    """A table of many entries, created as soon as ``least`` elements were computed directly, which cost as much."""

    def __init__(self, make: Callable[[], Table], least: int = lut.TABLE_16_THRESHOLD) -> None:
        self._make, self._least = make, least
        self._table: Table | None = None
        self._seen = 0

    def after(self, elements: int) -> Table | None:
        """Count ``elements`` more. Return the table, or None while direct computations are cheaper."""
        if self._table is None:
            self._seen += elements + _CALL_ELEMENTS
            if self._seen >= self._least:
                self._table = self._make()
        return self._table


def unary(node: Node, compute: Function) -> Execute:
    """Return the kernel of a one-operand function."""
    return computed(node, lambda x: np.asarray(compute(x)))


def coded(node: Node, compute: Function) -> Execute:
    """Return the kernel of a function from codes to codes. Codes of up to 16 bits use a table.

    A table for 8-bit codes is created at once, a table for 16-bit codes after enough direct computations.
    """
    dtype = node.operand(0).info.numpy
    if dtype.itemsize > 2:
        return unary(node, compute)
    if dtype.itemsize == 1:
        table = lut.tabulate(compute, dtype)
        return unary(node, lambda x: lut.apply(table, x))
    later = LaterTable(lambda: lut.tabulate(compute, dtype))

    def look_up(x: Array) -> Array:
        found = later.after(x.size)
        return compute(x) if found is None else lut.apply(found, x)

    return unary(node, look_up)


def real_function(node: Node, function: Function, *, tabulated: Function | None = None) -> Execute:
    """Return the kernel of a real function on reals or codes. Codes use tables.

    Tables use ``tabulated``, a slower but more exact function, if given. Tables for 16-bit codes are interpolated.
    """
    x, out = node.operand(0), node.results[0]
    require_dtype(node, x, *FLOATS, *CODES)
    if out.dtype == "float32":
        return unary(node, lambda values: in_pieces(function, values, np.float32))
    if out.dtype == "float16":
        return unary(node, lambda values: in_pieces(lambda v: function(v.astype(np.float32)), values, np.float16))
    exact = tabulated or function
    if out.dtype == "int16":
        return function_of_codes16(node, exact)
    table = lut.real_table(exact, scale_of(node, x), scale_of(node, out), x.info.numpy, out.info.numpy)
    return unary(node, lambda codes: lut.apply(table, codes))


def function_of_codes16(node: Node, function: Function, *, interpolated: bool = True) -> Execute:
    """Return the kernel of a real function on int16 codes by interpolated tables.

    It uses TensorFlow Lite's table of 513 entries if this is accurate and ``interpolated`` is True, else a sum of such
    tables. With zero points, or if no sum is accurate, it computes each code directly.
    """
    x, out = scale_of(node, node.operand(0)), scale_of(node, node.results[0])
    if interpolated and not (x[1] or out[1]):
        table = real_table16(function, x[0], out[0], by_reference=node.context.numerics == "litert")
        if table is not None:
            return unary(node, lambda codes: lut.apply(table, codes))
    return _sum_of_tables(node, function) or coded(node, real_codes16(function, x, out))


class SumOfTables:
    """Kernel of a function on int16 codes by a sum of interpolated tables."""

    def __init__(self, node: Node, tables: TableSum) -> None:
        self.tables, self._execute = tables, coded(node, tables)

    def __call__(self, operands: Sequence[Array | None]) -> Sequence[Array]:
        return self._execute(operands)


def _sum_of_tables(node: Node, function: Function) -> SumOfTables | None:
    """Return the kernel that uses a sum of tables, or None if tables are inaccurate or not applicable."""
    (in_scale, in_zero), (out_scale, out_zero) = scale_of(node, node.operand(0)), scale_of(node, node.results[0])
    if in_zero or out_zero or node.context.numerics == "litert":
        return None
    tables = table_sum(function, in_scale, out_scale)
    return None if tables is None else SumOfTables(node, tables)


def _reals(node: Node, function: Function, others: tuple[str, ...] = ()) -> Execute:
    require_dtype(node, node.operand(0), *FLOATS, *others)
    dtype = node.results[0].info.numpy
    return unary(node, lambda values: in_pieces(function, values, dtype))


floor = partial(_reals, function=np.floor)
ceil = partial(_reals, function=np.ceil)
round = partial(_reals, function=np.rint)  # ties to even
square = partial(_reals, function=np.square)
sign = partial(_reals, function=np.sign, others=("float64", "int32"))
sin = partial(real_function, function=np.sin)
cos = partial(real_function, function=np.cos)
exp = partial(real_function, function=special.exp, tabulated=special.exp_exact)


def log(node: Node) -> Execute:
    """Compute the natural logarithm. 8-bit codes of numbers <= 0 give the lowest code.

    16-bit codes of numbers <= 0 give the logarithm of half a step, the largest number that rounds to zero. The lowest
    code would be far below all other logarithms. With LiteRT's numerics, these numbers give the lowest code.
    """
    out = node.results[0]
    if not out.info.is_integer:
        return real_function(node, np.log)
    require_dtype(node, out, *CODES)
    if out.dtype == "int16":
        is_litert = node.context.numerics == "litert"
        return real_function(node, np.log if is_litert else _logarithm_from(scale_of(node, node.operand(0))[0] / 2))
    return real_function(node, _of_positive(np.log, _end(node, 0)))


def _end(node: Node, which: int) -> np.float32:
    out = node.results[0]
    scale, zero = scale_of(node, out)
    return np.float32((code_range(out.info.numpy)[which] - zero) * np.float32(scale))


@lru_cache(maxsize=256)
def _of_positive(function: Function, otherwise: np.float32) -> Function:
    """Return ``function(x)`` for ``x > 0``, else ``otherwise``. Cached, because tables are cached by function."""

    def compute(x: Array) -> Array:
        return np.where(x > 0, function(np.where(x > 0, x, np.float32(1))), otherwise)

    return compute


@lru_cache(maxsize=256)
def _logarithm_from(least: float) -> Function:
    """Return the function ``log(max(x, least))``. Cached, because tables are cached by function."""
    return lambda x: np.log(np.maximum(x, np.float32(least)))


def sqrt(node: Node) -> Execute:
    """Compute the square root. Negative codes count as zero."""
    x, out = node.operand(0), node.results[0]
    if not out.info.is_integer:
        return real_function(node, np.sqrt)
    require_dtype(node, out, *CODES)
    scales = scale_of(node, x), scale_of(node, out)
    wide = _sum_of_tables(node, _square_root) if out.dtype == "int16" else None
    return wide or coded(node, lambda codes: sqrt_codes(codes, *scales))


def rsqrt(node: Node) -> Execute:
    """Compute the reciprocal square root. Codes of numbers <= 0 give the largest code.

    16-bit codes that have no zero point use tables with an error of at most two codes. With LiteRT's numerics, these
    functions use LiteRT's single table, which is less accurate near zero.
    """
    x, out = node.operand(0), node.results[0]
    if not out.info.is_integer:
        return real_function(node, lambda values: np.float32(1) / np.sqrt(values))
    require_dtype(node, out, *CODES)
    (in_scale, in_zero), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
    if out.dtype in EIGHT_BIT:
        params = rsqrt_params((in_scale, in_zero), (out_scale, out_zero))
        return coded(node, lambda codes: rsqrt_codes(codes, in_zero, out_zero, *params))
    if node.context.numerics == "litert":
        return function_of_codes16(node, _of_positive(_inverse_root, _end(node, 1)))
    return function_of_codes16(node, _inverse_root, interpolated=False)


def _square_root(v: Array) -> Array:
    return np.sqrt(np.maximum(v, 0))


def _inverse_root(v: Array) -> Array:
    return np.asarray(np.float32(1) / _square_root(v))


def absolute(node: Node) -> Execute:
    """Compute the absolute value. The smallest plain integer stays."""
    require_dtype(node, node.operand(0), *FLOATS, *CODES, "int32")
    return _signed(node, np.abs)


def neg(node: Node) -> Execute:
    """Compute ``-x``. The smallest plain integer stays.

    Codes are negated as real numbers and saturate. (LiteRT negates the codes themselves.)
    """
    require_dtype(node, node.operand(0), *FLOATS, *CODES, "int32", "int64")
    return _signed(node, np.negative)


def _signed(node: Node, function: np.ufunc) -> Execute:
    x, out = node.operand(0), node.results[0]
    dtype = out.info.numpy
    if x.dtype not in EIGHT_BIT and not (x.dtype == "int16" and is_quantised(x)):
        return unary(node, lambda values: in_pieces(function, values, dtype))
    params = scale_params(scale_of(node, x), scale_of(node, out), code_range(dtype), dtype.name, single=True)
    return coded(node, lambda codes: scale_quantized(codes, params, function))
