"""Tables of functions of one operand's codes, computed by host kernels, independent of the IR."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import CompileError, OdcError
from odc_mlir.numerics.int16 import look_up
from odc_mlir.numerics.int16_sums import TableSum
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.runtime.kernels.unary import SumOfTables

PIECEWISE = ("LEAKY_RELU", "NEG", "ABS")  # lowered to changes of scale
SIGMOIDS = ("LOGISTIC", "TANH")
_RESULT_SCALE = 1 / 32768
_TOLERANCE = 1e-3  # relative tolerance of the result's scale
_LARGEST_SCALE = 1.0
_STEP = 128  # codes between two entries of an interpolated table
_ALL = np.arange(-(1 << 15), 1 << 15, dtype=np.int16)


def function_operand(node: Node) -> int | None:
    """Return the index of the only dynamic operand if all constant operands have one element.

    Return None if there is no such operand, or if the result has another shape.
    """
    dynamic: list[int] = []
    for index, operand in enumerate(node.operands):
        if operand is not None and not operand.is_const:
            dynamic.append(index)
        elif operand is not None and math.prod(operand.static_shape) != 1:
            return None
    found = len(dynamic) == 1 and node.operand(dynamic[0]).static_shape == node.results[0].static_shape
    return dynamic[0] if found else None


def wide_function(node: Node, dynamic: int) -> str | None:
    """Return the reason why a function of 16-bit codes cannot be computed, or None."""
    source, result = node.operand(dynamic), node.results[0]
    if result.dtype != "int16":
        return f"{source.name!r} is {source.dtype}, {result.name!r} is {result.dtype}"
    if node.spec.name in PIECEWISE or is_sigmoid(node) or table_sum_of(node) is not None:
        return None
    if interpolated_table(node, dynamic) is not None:
        return None
    return f"no sum of tables of 513 entries gives the results of {node.spec.name} on {source.name!r}"


def is_sigmoid(node: Node) -> bool:
    """Return whether a sigmoid of 16-bit codes has the scales and zero points that the instruction requires."""
    if node.spec.name not in SIGMOIDS:
        return False
    source, result = node.operand(0).quant, node.results[0].quant
    assert source is not None, "the placement rules require quantised tensors"
    assert result is not None, "the placement rules require quantised tensors"
    unit = abs(result.scale / _RESULT_SCALE - 1) < _TOLERANCE
    return unit and source.scale < _LARGEST_SCALE and not (source.zero_point or result.zero_point)


def results_of(node: Node, arrays: Mapping[int, NDArray[Any]]) -> NDArray[Any]:
    """Return the result for operands ``arrays``, each a line of codes. All other operands are one-element constants."""
    (line,) = {array.shape for array in arrays.values()}
    operands = tuple(
        replace(operand, shape=line, _array=None) if index in arrays and operand is not None else _scalar(operand)
        for index, operand in enumerate(node.operands)
    )
    probe = replace(node, operands=operands, results=(replace(node.results[0], shape=line, _array=None),))
    given = [arrays[i] if i in arrays else None if o is None else o.array() for i, o in enumerate(operands)]
    (found,) = node.spec.kernel_function(probe)(given)
    if found.shape != line or found.dtype != probe.results[0].info.numpy:
        raise CompileError("the host kernel gives no table of values", op=node.spec.name, tensor=node.name)
    return np.ascontiguousarray(found)


def _scalar(operand: TensorInfo | None) -> TensorInfo | None:
    """Return a one-element constant with rank 1, which broadcasts over the line of codes."""
    if operand is None or not operand.static_shape:
        return operand
    return replace(operand, shape=(1,), _array=None)


def table_sum_of(node: Node) -> TableSum | None:
    """Return the tables that the host kernel adds up, or None for other kernels."""
    try:
        kernel = node.spec.kernel_function(node)
    except OdcError:
        return None
    return kernel.tables if isinstance(kernel, SumOfTables) else None


def interpolated_table(node: Node, dynamic: int) -> NDArray[np.int16] | None:
    """Return 513 entries whose interpolation equals an int16 function, or None.

    Every 128th result is an entry. The last entry is beyond the results, and is chosen to match the last results.
    """
    try:
        found = results_of(node, {dynamic: _ALL})
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
