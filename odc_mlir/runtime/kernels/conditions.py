"""Check that a host kernel can run an operator, without running it.

A kernel rejects types, scales, options and constants when it is prepared. Compiler and package check call
:func:`refusal`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.ops.spec import Array, Node, TensorInfo, Trait
from odc_mlir.runtime.kernels.microscaling import prepare_kernel

_LARGE_BYTES = 1 << 20  # size from which a constant takes time to prepare
# Operators that read the shape of the operand, not the contents.
_SHAPE_READERS = frozenset({"SHAPE", "RANK", "ZEROS_LIKE"})


def refusal(node: Node) -> OdcError | None:
    """Return the error from preparing the kernel of ``node``, or None if the kernel can run.

    Dynamic shapes, subgraphs, and custom operators of the application are known only in a run.
    """
    is_open = any(info is not None and (info.shape is None or None in info.shape) for info in node.operands)
    if is_open or node.spec.name.startswith("CUSTOM") or Trait.CONTROL_FLOW in node.spec.traits:
        return None
    if not node.spec.kernel:
        return UnsupportedError("there is no kernel for this operator", op=node.spec.name, tensor=node.name)
    first = _error_of(replace(node, operands=tuple(map(_without_bytes, node.operands))))
    return None if first is None else _error_of(node)


def _without_bytes(info: TensorInfo | None) -> TensorInfo | None:
    """Return a large constant as a computed tensor without data, because kernels do not prepare computed tensors."""
    is_large = info is not None and info.data is not None and info.data.nbytes > _LARGE_BYTES
    return replace(info, data=None) if info is not None and is_large else info


def _error_of(node: Node) -> OdcError | None:
    try:
        with np.errstate(all="ignore"):
            prepare_kernel(node)
    except OdcError as error:
        error.op, error.tensor = error.op or node.spec.name, error.tensor or node.name
        return error
    return None


def operand_arrays(node: Node) -> list[Array | None] | None:
    """Return the operand values (None for an omitted one), or None if some are unknown at compile time."""
    arrays: list[Array | None] = []
    for operand in node.operands:
        if operand is None:
            arrays.append(None)
        elif operand.is_const:
            try:
                arrays.append(operand.array())
            except OdcError:
                return None
        elif node.spec.name in _SHAPE_READERS and operand.shape is not None and None not in operand.shape:
            arrays.append(np.broadcast_to(np.zeros((), operand.info.numpy), operand.static_shape))
        else:
            return None
    return arrays


def evaluate(node: Node, arrays: Sequence[Array | None]) -> Sequence[Array] | None:
    """Return the results of the host kernel, or None if it rejects the operands."""
    try:
        with np.errstate(all="ignore"):
            return node.spec.kernel_function(node)(arrays)
    except OdcError:
        return None


def known_results(node: Node) -> Sequence[TensorInfo]:
    """Return the results, as constants if they are integers that constants and shapes of operands determine."""
    counts = all(info.dtype in ("int32", "int64") for info in node.results) and Trait.PURE in node.spec.traits
    arrays = operand_arrays(node) if counts and node.spec.kernel else None
    values = None if arrays is None else evaluate(node, arrays)
    if values is None:
        return node.results
    return [
        replace(info, shape=value.shape, data=memoryview(np.ascontiguousarray(value).tobytes()), _array=None)
        for info, value in zip(node.results, values, strict=True)
    ]
