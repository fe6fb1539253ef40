"""``circle`` to ``npu``: DYNAMIC_UPDATE_SLICE, at a constant position or at one that is computed.

No instruction goes by a computed address. Where one slice changes, a mask says which: 1 where the number of the slice
is the position, else 0. What stays is multiplied by its opposite, what is new by the mask, and both are added up:
factors of 0 and 1 round nothing.
"""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.lut import codes_by_byte
from odc_mlir.ops.spec import QuantParams
from odc_mlir.transforms.npu.lowering.moves import lower_move
from odc_mlir.transforms.npu.lowering.site import ONE, Lowerings, Site, blob_of, pair_of
from odc_mlir.transforms.partition.rules.search_checks import updated_axis

_PLAIN = QuantParams((1.0,), (0,))


def lower_dynamic_update_slice(site: Site) -> None:
    """DYNAMIC_UPDATE_SLICE."""
    if site.info(2).is_const:
        return lower_move(site)
    axis = updated_axis(site.node)
    assert axis is not None, "the placement rules ask for one slice"
    shape, zero = site.result.static_shape, pair_of(site.result)[1]
    mask_shape = (shape[axis], *[1] * (len(shape) - axis - 1))
    differences = _differences(site, axis, mask_shape)
    low, high = code_range(site.result.dtype)

    def masked(index: int, mask: SSAValue) -> SSAValue:
        return site.emit(
            npu.ElementwiseOp(
                npu.ElementwiseKind.MUL,
                site.constant_or_operand(index),
                mask,
                site.result_type,
                zeros=(zero, 0, zero),
                out_scale=ONE,
                clamp=(low, high),
            )
        )

    kept = masked(0, _mask(site, differences, at_zero=0))
    new = masked(1, _mask(site, differences, at_zero=1))
    return site.finish(
        npu.ElementwiseOp(
            npu.ElementwiseKind.ADD,
            kept,
            new,
            site.result_type,
            zeros=(zero, zero, zero),
            a_scale=ONE,
            b_scale=ONE,
            out_scale=ONE,
            clamp=(low, high),
        )
    )


def _differences(site: Site, axis: int, shape: tuple[int, ...]) -> SSAValue:
    """-1, 0 and 1 for slices in front of the position, at it and behind it."""
    size = shape[0]
    position = npu.PositionOp(site.operand(2), _codes("int16", (1,)), index=axis, highest=size - 1)
    numbers = npu.ConstantOp(blob_of(np.arange(size, dtype="<i2")), _codes("int16", shape))
    return site.emit(
        npu.ElementwiseOp(
            npu.ElementwiseKind.SUB,
            site.emit(numbers),
            site.emit(position),
            _codes("int8", shape),
            a_scale=ONE,
            b_scale=ONE,
            out_scale=ONE,
            clamp=(-1, 1),
        )
    )


def _mask(site: Site, differences: SSAValue, *, at_zero: int) -> SSAValue:
    """``at_zero`` where a difference is 0, else 1 - ``at_zero``."""
    table = np.where(codes_by_byte("int8") == 0, at_zero, 1 - at_zero).astype(np.int8)
    return site.emit(npu.LutOp(differences, differences.type, table=blob_of(table)))


def _codes(dtype: str, shape: tuple[int, ...]) -> Attribute:
    return tensor_type(dtype, shape, _PLAIN)


LOWERINGS: Lowerings = {
    "DYNAMIC_UPDATE_SLICE": lower_dynamic_update_slice,
}
