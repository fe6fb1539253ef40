"""Check that a host kernel can run an operator, without running it.

A kernel rejects types, scales, options and constants when it is prepared. Compiler and package check call
:func:`refusal`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from odc_mlir.errors import OdcError, UnsupportedError
from odc_mlir.ops.spec import Node, TensorInfo, Trait
from odc_mlir.runtime.kernels.microscaling import prepare_kernel

_LARGE_BYTES = 1 << 20  # size from which a constant takes time to prepare


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
