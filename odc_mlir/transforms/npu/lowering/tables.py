"""Tables of operators whose result code depends on one input code only, made by their host kernels. Knows no IR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import CompileError, OdcError
from odc_mlir.numerics.int16 import look_up
from odc_mlir.numerics.int16_sums import TableSum
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.unary import SumOfTables

_STEP = 128  # codes between two entries of an interpolated table
_ALL = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)


def results_of(node: Node, dynamic: int, codes: NDArray[Any]) -> NDArray[Any]:
    """The result for each of ``codes`` in place of operand ``dynamic``; the others are constants of one element."""
    line = codes.shape
    source, result = node.operand(dynamic), node.results[0]
    operands = tuple(
        replace(source, shape=line, _array=None) if index == dynamic else _scalar(operand)
        for index, operand in enumerate(node.operands)
    )
    probe = replace(node, operands=operands, results=(replace(result, shape=line, _array=None),))
    arrays = [codes if i == dynamic else None if o is None else o.array() for i, o in enumerate(operands)]
    (found,) = node.spec.kernel_function(probe)(arrays)
    if found.shape != line or found.dtype != result.info.numpy:
        raise CompileError("the host kernel gives no table of values", op=node.spec.name, tensor=node.name)
    return np.ascontiguousarray(found)


def _scalar(operand: TensorInfo | None) -> TensorInfo | None:
    """A constant of one element, whatever its rank, as a scalar: it broadcasts over the line of codes."""
    if operand is None or not operand.static_shape:
        return operand
    return replace(operand, shape=(1,), _array=None)


def table_sum_of(node: Node) -> TableSum | None:
    """The tables whose sum the host kernel computes; None where it computes something else."""
    try:
        kernel = node.spec.kernel_function(node)
    except OdcError:
        return None
    return kernel.tables if isinstance(kernel, SumOfTables) else None


def interpolated_table(node: Node, dynamic: int) -> NDArray[np.int16] | None:
    """The 513 entries between which a function of int16 codes is interpolated; None where it is another function.

    Every 128th result is an entry. What follows the last of them is known by the last result only: it is tried which
    entry gives the results before it.
    """
    try:
        found = results_of(node, dynamic, _ALL)
    except OdcError:
        return None
    if found.dtype != np.int16:
        return None
    table = np.append(found[::_STEP], found[-1]).astype(np.int64)
    rise, offset = int(found[-1]) - int(table[-2]), _STEP - 1
    least, most = -(-(rise * _STEP - _STEP // 2) // offset), (rise * _STEP + _STEP // 2 - 1) // offset
    for slope in range(least, most + 1):
        table[-1] = np.int64(table[-2] + slope).astype(np.int16)
        if np.array_equal(look_up(table, _ALL[-_STEP:]).astype(np.int16), found[-_STEP:]):
            break
    same = np.array_equal(look_up(table, _ALL).astype(np.int16), found)
    return table.astype(np.int16) if same else None
