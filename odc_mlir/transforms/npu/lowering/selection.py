"""``circle`` to ``npu``: choices between two tensors by a constant condition."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.numerics.fixed import code_range
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site, blob_of


def lower_select(site: Site) -> None:
    """SELECT, SELECT_V2: ``max(min(x, a), min(y, b))``.

    Where the condition holds, ``a`` is the largest code and ``b`` the smallest, elsewhere the reverse: one side keeps
    its codes, the other becomes the smallest code. The minimum of a constant side is itself a constant.
    """
    low, high = code_range(site.result.dtype)
    condition = _condition(site)
    site.finish(
        npu.ElementwiseOp(
            npu.ElementwiseKind.MAX,
            _kept(site, 1, np.where(condition, high, low)),
            _kept(site, 2, np.where(condition, low, high)),
            site.result_type,
            clamp=(low, high),
        )
    )


def _condition(site: Site) -> NDArray[np.bool_]:
    """The condition; the vector of SELECT that chooses whole rows as a column of them."""
    condition, rank = site.info(0).array(), len(site.result.static_shape)
    if site.node.spec.name == "SELECT" and condition.ndim == 1:
        return condition.reshape(-1, *(1,) * (rank - 1))
    return condition


def _kept(site: Site, index: int, most: NDArray[Any]) -> SSAValue:
    """Operand ``index``, but at most ``most``."""
    info = site.info(index)
    low, high = code_range(info.dtype)
    most = most.astype(info.info.numpy)
    if info.is_const:
        codes = np.minimum(info.array(), most)
        return site.emit(npu.ConstantOp(blob_of(codes), tensor_type(info.dtype, codes.shape, info.quant)))
    shape = np.broadcast_shapes(info.static_shape, most.shape)
    bound = site.emit(npu.ConstantOp(blob_of(most), tensor_type(info.dtype, most.shape, info.quant)))
    kind = tensor_type(info.dtype, shape, info.quant)
    return site.emit(npu.ElementwiseOp(npu.ElementwiseKind.MIN, site.operand(index), bound, kind, clamp=(low, high)))


LOWERINGS: Lowerings = {"SELECT": lower_select, "SELECT_V2": lower_select}
