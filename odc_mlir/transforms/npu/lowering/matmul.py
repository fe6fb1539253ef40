"""Patterns that lower matrix products in which at least one matrix is computed."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.numerics.convolution import real_multipliers
from odc_mlir.numerics.fixed import quantize_multipliers
from odc_mlir.ops.spec import Node
from odc_mlir.transforms.npu.lowering.matrices import Matrices, matrices
from odc_mlir.transforms.npu.lowering.products import pointwise, requantisation, weight_codes
from odc_mlir.transforms.npu.lowering.site import LowerToNpu, Site, blob_of, pair_of, quant_of, tensor_of


class LowerMatmulByConstant(LowerToNpu):
    """BATCH_MATMUL of 8-bit codes by one constant right matrix, to a 1x1 convolution."""

    operators = ("BATCH_MATMUL",)

    def applies(self, node: Node) -> bool:
        narrow = node.results[0].info.numpy.itemsize == 1
        return narrow and node.operand(1).is_const and _matrices(node).images == 1

    def rewrite(self, site: Site) -> None:
        found, filters = _matrices(site.node), site.info(1)
        a = _matrix(site, found, 0, (1, 1, found.rows, found.depth))
        codes, zero = weight_codes(site.node)
        values = codes.reshape(-1)
        if found.maps[1] is not None:
            values = values[found.maps[1]]
        weights = np.ascontiguousarray(values.reshape(found.depth, found.columns).T)
        integers = requantisation(site, zero, single_product=quant_of(filters).per_tensor)
        result = site.result_of_shape(1, 1, found.rows, found.columns)
        site.finish(pointwise(a, result, blob_of(weights), **integers))


class LowerMatmul(LowerToNpu):
    """BATCH_MATMUL, to ``npu.matmul`` image by image."""

    operators = ("BATCH_MATMUL",)

    def rewrite(self, site: Site) -> None:
        found = _matrices(site.node)
        rows = (found.images, 1, found.rows)
        a = _matrix(site, found, 0, (*rows, found.depth))
        (a_scale, a_zero), (b_scale, b_zero) = pair_of(site.info(0)), pair_of(site.info(1))
        out_scale, out_zero = pair_of(site.result)
        real = real_multipliers(a_scale, (b_scale,), out_scale, single_product=True)
        multiplier, exponent = quantize_multipliers(real)
        site.finish(
            npu.MatmulOp(
                a,
                _matrix(site, found, 1, (found.images, 1, found.depth, found.columns)),
                site.result_of_shape(*rows, found.columns),
                zeros=(a_zero, b_zero, out_zero),
                scale=npu.ScaleAttr.of(int(multiplier.reshape(-1)[0]), int(exponent.reshape(-1)[0])),
                clamp=site.clamp("none"),
            )
        )


def _matrices(node: Node) -> Matrices:
    found = matrices(node)
    assert isinstance(found, Matrices), "the placement rules require few moves"
    return found


def _matrix(site: Site, found: Matrices, index: int, shape: tuple[int, int, int, int]) -> SSAValue:
    """Return operand ``index`` as dense matrices of ``shape``: a view, a copy, or another constant."""
    value, order, info = site.operand(index), found.maps[index], site.info(index)
    kind = with_shape(tensor_of(value), shape)
    if info.is_const:
        codes = info.array().reshape(-1)
        return site.emit(npu.ConstantOp(blob_of(np.ascontiguousarray(codes if order is None else codes[order])), kind))
    if order is None:
        return site.reshape(value, shape)
    return site.emit(npu.MoveOp([value], kind, copies=found.moves[index]))
