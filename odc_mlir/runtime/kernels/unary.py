"""Functions of one operand: what their kernels share, and arithmetic such as EXP and ABS."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
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
from odc_mlir.runtime.kernels.common import CODES, EIGHT_BIT, FLOATS, fetch, input_error, is_quantised, scale_of

Function = Callable[[Array], Array]
Table = TypeVar("Table")


# A computation without a table has some steps more, which cost as much as those of this many elements.
_CALL_ELEMENTS = 1 << 12


class LaterTable(Generic[Table]):
    """A table of so many ``entries`` that is made when computing them one by one has cost as much."""

    def __init__(self, make: Callable[[], Table], entries: int = 1 << 16) -> None:
        self._make = make
        self._worth = lut.TABLE_16_THRESHOLD * entries >> 16
        self._table: Table | None = None
        self._seen = 0

    def after(self, elements: int) -> Table | None:
        """The table, or None while there have been few elements; ``elements`` more are about to be computed."""
        if self._table is None:
            self._seen += elements + _CALL_ELEMENTS
            if self._seen >= self._worth:
                self._table = self._make()
        return self._table


def unary(node: Node, compute: Function) -> Execute:
    """The kernel of a one-operand function."""
    x_of = fetch(node, 0)

    def execute(operands: Sequence[Array | None]) -> list[Array]:
        return [compute(x_of(operands))]

    return execute


def coded(node: Node, compute: Function) -> Execute:
    """The kernel of a function from codes to codes: tabulated where there are at most 65536 of them.

    A table of 8-bit codes is made at once, one of 16-bit codes when enough of them have been computed.
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
    """The kernel of a real function of reals or codes: 8-bit codes by a table, 16-bit ones by an interpolated table.

    ``tabulated`` is the function that tables are made of, where that is not ``function``: exact, however slow.
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
    """The kernel of a real function of int16 codes: by TensorFlow Lite's table of 513 entries where that is near it.

    Else, or not ``interpolated``, by a sum of such tables. Tables have no zero points; with these, or where no sum is
    near the function, codes are computed one by one.
    """
    x, out = scale_of(node, node.operand(0)), scale_of(node, node.results[0])
    if interpolated and not (x[1] or out[1]):
        table = real_table16(function, x[0], out[0], by_reference=node.context.numerics == "litert")
        if table is not None:
            return unary(node, lambda codes: lut.apply(table, codes))
    return _sum_of_tables(node, function) or coded(node, real_codes16(function, x, out))


class SumOfTables:
    """The kernel of a function of int16 codes that is a sum of interpolated tables."""

    def __init__(self, node: Node, tables: TableSum) -> None:
        self.tables, self._execute = tables, coded(node, tables)

    def __call__(self, operands: Sequence[Array | None]) -> Sequence[Array]:
        """The results."""
        return self._execute(operands)


def _sum_of_tables(node: Node, function: Function) -> SumOfTables | None:
    """The kernel by tables, None where they are not near the function, have zero points, or are not LiteRT's."""
    (in_scale, in_zero), (out_scale, out_zero) = scale_of(node, node.operand(0)), scale_of(node, node.results[0])
    if in_zero or out_zero or node.context.numerics == "litert":
        return None
    tables = table_sum(function, in_scale, out_scale)
    return None if tables is None else SumOfTables(node, tables)


def _reals(node: Node, function: Function, *others: str) -> Execute:
    """The kernel of a function that only real numbers have."""
    require_dtype(node, node.operand(0), *FLOATS, *others)
    dtype = node.results[0].info.numpy
    return unary(node, lambda values: in_pieces(function, values, dtype))


def floor(node: Node) -> Execute:
    """The largest integer that is not above ``x``."""
    return _reals(node, np.floor)


def ceil(node: Node) -> Execute:
    """The smallest integer that is not below ``x``."""
    return _reals(node, np.ceil)


def round(node: Node) -> Execute:  # named after the operator
    """The nearest integer, halves to the even one."""
    return _reals(node, np.rint)


def sin(node: Node) -> Execute:
    """Sine."""
    return real_function(node, np.sin)


def cos(node: Node) -> Execute:
    """Cosine."""
    return real_function(node, np.cos)


def square(node: Node) -> Execute:
    """``x * x``."""
    return _reals(node, np.square)


def sign(node: Node) -> Execute:
    """-1, 0 or 1."""
    return _reals(node, np.sign, "float64", "int32")


def exp(node: Node) -> Execute:
    """``e^x``."""
    return real_function(node, special.exp, tabulated=special.exp_exact)


def log(node: Node) -> Execute:
    """Natural logarithm; codes from zero down give the lowest code, those of 16 bits the logarithm of half a step.

    That is the largest number which rounds to zero. Ranges of 16 bits reach far beyond what values there are, so that
    the lowest code would be as far below their logarithms. As LiteRT computes, it is the lowest code in any case.
    """
    out = node.results[0]
    if not out.info.is_integer:
        return real_function(node, np.log)
    require_dtype(node, out, *CODES)
    if out.dtype == "int16":
        is_litert = node.context.numerics == "litert"
        return real_function(node, np.log if is_litert else _logarithm_from(scale_of(node, node.operand(0))[0] / 2))
    scale, zero = scale_of(node, out)
    lowest = np.float32((code_range(out.info.numpy)[0] - zero) * np.float32(scale))

    def logarithm(x: Array) -> Array:
        return np.where(x > 0, np.log(np.where(x > 0, x, np.float32(1))), lowest)

    return real_function(node, logarithm)


@lru_cache(maxsize=256)
def _logarithm_from(least: float) -> Function:
    """The logarithm of what is at least ``least``; the same one each time, as its tables are kept."""
    return lambda x: np.log(np.maximum(x, np.float32(least)))


def sqrt(node: Node) -> Execute:
    """Square root; codes below zero give what zero gives."""
    x, out = node.operand(0), node.results[0]
    if not out.info.is_integer:
        return real_function(node, np.sqrt)
    require_dtype(node, out, *CODES)
    scales = scale_of(node, x), scale_of(node, out)
    wide = _sum_of_tables(node, _square_root) if out.dtype == "int16" else None
    return wide or _root(node, lambda codes: sqrt_codes(codes, *scales))


def rsqrt(node: Node) -> Execute:
    """One over the square root; codes from zero down give the largest code.

    Of 16 bits without zero points by tables, off by two codes at most.
    """
    x, out = node.operand(0), node.results[0]
    if not out.info.is_integer:
        return real_function(node, lambda values: np.float32(1) / np.sqrt(values))
    require_dtype(node, out, *CODES)
    (in_scale, in_zero), (out_scale, out_zero) = scale_of(node, x), scale_of(node, out)
    if out.dtype in EIGHT_BIT:
        params = rsqrt_params((in_scale, in_zero), (out_scale, out_zero))
        return _root(node, lambda codes: rsqrt_codes(codes, in_zero, out_zero, *params))
    exact = real_codes16(_inverse_root, (in_scale, in_zero), (out_scale, out_zero))
    return _sum_of_tables(node, _inverse_root) or _root(node, exact)


def _square_root(v: Array) -> Array:
    return np.sqrt(np.maximum(v, 0))


def _inverse_root(v: Array) -> Array:
    return np.asarray(np.float32(1) / _square_root(v))


def _root(node: Node, compute: Function) -> Execute:
    """The kernel of a root of codes; as LiteRT computes, those below zero are refused.

    A difference that is never negative may have such codes all the same, by rounding.
    """
    zero, table, x_of = scale_of(node, node.operand(0))[1], coded(node, compute), fetch(node, 0)
    if node.context.numerics != "litert":
        return table

    def execute(operands: Sequence[Array | None]) -> Sequence[Array]:
        x = x_of(operands)
        if x.size and int(x.min()) < zero:
            found = f"quantised value {int(x.min())} represents a negative number"
            hint = "run the model without --numerics litert, or keep the operator in float"
            raise input_error(node, f"{found}; the smallest that LiteRT takes is {zero}", hint)
        return table(operands)

    return execute


def absolute(node: Node) -> Execute:
    """Absolute value; of the smallest plain integer that integer itself."""
    require_dtype(node, node.operand(0), *FLOATS, *CODES, "int32")
    return _signed(node, np.abs)


def neg(node: Node) -> Execute:
    """``-x``; of the smallest plain integer that integer itself.

    Codes are negated as the reals they stand for, and saturate. (LiteRT negates the codes themselves.)
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
