"""Lowering of RMS_NORM of codes, in the steps of :mod:`odc_mlir.numerics.normalization`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import Attribute, SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import tensor_type
from odc_mlir.isa.instructions import field_range
from odc_mlir.numerics import normalization
from odc_mlir.numerics.elementwise import AddParams
from odc_mlir.numerics.fixed import code_range
from odc_mlir.ops.spec import QuantParams
from odc_mlir.runtime.kernels.attention import integer_rms_norm
from odc_mlir.transforms.npu.lowering.products import row_sums
from odc_mlir.transforms.npu.lowering.site import LowerToNpu, Site, blob_of, elements, product, sum_of
from odc_mlir.transforms.partition.rules.operator_checks import sides

_ALL = normalization.LOW, normalization.HIGH
_WIDEST = field_range("pool", "kernel_width")[1]
_FEW = 8  # rows up to which a reduction is faster than the array, whose time is that of 32 rows


class LowerRmsNorm(LowerToNpu):
    """Lower RMS_NORM to products with two factors per row: functions of the largest element and of the mean square."""

    operators = ("RMS_NORM",)

    def rewrite(self, site: Site) -> None:
        count = site.result.static_shape[-1]
        rows = elements(site.result) // count
        p = integer_rms_norm(site.node, site.info(1).array(), count)
        source = site.reshape(site.operand(0), (1, 1, rows, count))
        wide, one_each = _codes(1, 1, rows, count), _codes(1, 1, rows, 1)
        above = _codes(1, 1, rows, 1, zero=normalization.LOW)  # type of squares

        def scaled(x: SSAValue, factor: int) -> SSAValue:
            scale = npu.ScaleAttr.of((1 << 30) * (1 if factor > 0 else -1), abs(factor).bit_length())
            return site.emit(npu.ScaleOp(x, wide, zeros=(p.zero, 0), scale=scale, clamp=_ALL))

        def times(a: SSAValue, b: SSAValue, kind: Attribute, factor: normalization.Factor, zero: int = 0) -> SSAValue:
            return site.emit(product(a, b, kind, (0, 0, zero), factor, _ALL))

        def total(a: SSAValue, b: SSAValue, zero: int = 0) -> SSAValue:
            factors = *normalization.HALF, *normalization.HALF, *normalization.BACK
            params = AddParams(zero, zero, zero, normalization.SHIFT, *factors, *_ALL)
            return site.emit(sum_of(npu.ElementwiseKind.ADD, a, b, _codes(1, 1, rows, 1, zero=zero), params))

        def looked_up(x: SSAValue, table: NDArray[np.int16]) -> SSAValue:
            return site.emit(npu.LutOp(x, one_each, table=blob_of(table.astype("<i2"))))

        d = scaled(source, p.widening) if p.widening > 1 else source
        sizes = npu.ElementwiseOp(npu.ElementwiseKind.MAX, d, scaled(source, -p.widening), wide, clamp=_ALL)
        t = looked_up(_largest(site, site.emit(sizes)), p.normaliser)
        e = times(d, t, wide, normalization.OF_ROWS)
        squares = times(e, e, wide, normalization.OF_SQUARES)
        roots = []
        for mean, epsilon, entries in p.roots:
            m = _mean(site, squares, mean)
            if epsilon is not None:
                m = total(m, times(t, t, above, epsilon, normalization.LOW), normalization.LOW)
            roots.append(looked_up(m, entries))
        y, factor, r = e, p.normal, total(roots[0], roots[1])
        if p.gamma is not None:
            y, factor = times(e, r, wide, p.normal), p.scaled
            r = site.emit(npu.ConstantOp(blob_of(p.gamma.astype("<i2")), _codes(1, 1, 1, count)))
        kind = site.result_of_shape(1, 1, rows, count)
        site.finish(product(y, r, kind, (0, 0, p.out_zero), factor, code_range(p.dtype)))


def _codes(*shape: int, zero: int = 0) -> Attribute:
    """Return the type of 16-bit codes between two steps. It has no scale, because only the steps use the scale."""
    return tensor_type("int16", shape, QuantParams((1.0,), (zero,)))


def _image(site: Site, values: SSAValue) -> SSAValue:
    _, _, rows, count = npu.shape_of(values)
    height_and_width = sides([count])
    assert height_and_width is not None, "the placement rules require rows that fit the tile buffer"
    return site.reshape(values, (rows, *height_and_width, 1))


def _largest(site: Site, values: SSAValue) -> SSAValue:
    """Return the largest code of each row: a reduction of one row, else pooling with a window per row."""
    _, _, rows, count = npu.shape_of(values)
    width = next(side for side in range(min(_WIDEST, count), 0, -1) if count % side == 0)
    window = (count // width, width)
    if rows == 1 or max(window) > _WIDEST:
        largest = npu.ReduceOp(npu.ReduceKind.MAX, _image(site, values), _codes(rows, 1, 1, 1), clamp=_ALL)
        return site.reshape(site.emit(largest), (1, 1, rows, 1))
    image = site.reshape(values, (1, rows * window[0], width, 1))
    kind = _codes(1, rows, 1, 1)
    pool = npu.PoolOp(npu.PoolKind.MAX, image, kind, kernel=window, stride=window, pads=(0, 0, 0, 0), clamp=_ALL)
    return site.reshape(site.emit(pool), (1, 1, rows, 1))


def _mean(site: Site, squares: SSAValue, factor: normalization.Factor) -> SSAValue:
    """Return the scaled sums of rows: a reduction for few rows, else a product with weights of one."""
    _, _, rows, count = npu.shape_of(squares)
    kind = _codes(1, 1, rows, 1, zero=normalization.LOW)
    if rows <= _FEW:
        image, scale = _image(site, squares), npu.ScaleAttr.of(*factor)
        result = _codes(rows, 1, 1, 1, zero=normalization.LOW)
        total = npu.ReduceOp(npu.ReduceKind.SUM, image, result, zeros=(0, normalization.LOW), scale=scale, clamp=_ALL)
        return site.reshape(site.emit(total), (1, 1, rows, 1))
    return site.emit(row_sums(squares, kind, (0, normalization.LOW), factor, _ALL))
