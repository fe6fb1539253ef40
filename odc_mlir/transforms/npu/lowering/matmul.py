"""``circle`` to ``npu``: products of two matrices of which at least one is computed."""

from __future__ import annotations

import numpy as np
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.fixed import quantize_multipliers
from odc_mlir.transforms.npu.lowering.matrices import Matrices, matrices
from odc_mlir.transforms.npu.lowering.products import pointwise, requantisation, weight_codes
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site, blob_of, pair_of, quant_of, tensor_of


def lower_batch_matmul(site: Site) -> None:
    """BATCH_MATMUL: products image by image; with one constant right matrix a 1x1 convolution."""
    found = matrices(site.node)
    assert isinstance(found, Matrices), "the placement rules ask for few moves"
    rows = (found.images, 1, found.rows)
    a = _matrix(site, found, 0, (*rows, found.depth))
    result = site.result_of_shape(*rows, found.columns)
    if site.info(1).is_const and found.images == 1 and site.result.info.numpy.itemsize == 1:
        return site.finish(_by_constant(site, found, a, result))
    (a_scale, a_zero), (b_scale, b_zero) = pair_of(site.info(0)), pair_of(site.info(1))
    out_scale, out_zero = pair_of(site.result)
    multiplier, exponent = quantize_multipliers(real_multipliers(a_scale, (b_scale,), out_scale, single_product=True))
    return site.finish(
        npu.MatmulOp(
            a,
            _matrix(site, found, 1, (found.images, 1, found.depth, found.columns)),
            result,
            zeros=(a_zero, b_zero, out_zero),
            scale=npu.ScaleAttr.of(int(multiplier.reshape(-1)[0]), int(exponent.reshape(-1)[0])),
            clamp=site.clamp("none"),
        )
    )


def _by_constant(site: Site, found: Matrices, a: SSAValue, result: Attribute) -> npu.ConvOp:
    """All rows times one constant matrix, scaled column by column or as a whole."""
    filters = site.info(1)
    codes, weight_zero = weight_codes(site)
    values = (filters.array() if codes is None else codes).reshape(-1)
    if found.maps[1] is not None:
        values = values[found.maps[1]]
    weights = np.ascontiguousarray(values.reshape(found.depth, found.columns).T)
    integers = requantisation(site, weight_zero, single_product=quant_of(filters).per_tensor)
    return pointwise(a, result, blob_of(weights), **integers)


def _matrix(site: Site, found: Matrices, index: int, shape: tuple[int, int, int, int]) -> SSAValue:
    """Operand ``index`` as dense matrices of ``shape``: seen so, moved, or if constant written so."""
    value, order, info = site.operand(index), found.maps[index], site.info(index)
    kind = with_shape(tensor_of(value), shape)
    if info.is_const:
        codes = info.array().reshape(-1)
        return site.emit(npu.ConstantOp(blob_of(np.ascontiguousarray(codes if order is None else codes[order])), kind))
    if order is None:
        return site.reshape(value, shape)
    return site.emit(npu.MoveOp([value], kind, copies=found.moves[index]))


LOWERINGS: Lowerings = {
    "BATCH_MATMUL": lower_batch_matmul,
}
