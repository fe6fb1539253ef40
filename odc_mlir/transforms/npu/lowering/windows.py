"""``circle`` to ``npu``: pooling, reductions, softmax, padding and views."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.numerics.int16 import exponential_table, softmax16_params
from odc_mlir.numerics.reduction import mean_params, sum_params
from odc_mlir.numerics.softmax import softmax_params
from odc_mlir.transforms.npu.lowering.products import lower_row_sums, window_of
from odc_mlir.transforms.npu.lowering.search import reversed_codes
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site, blob_of, pair_of, quant_of, tensor_of
from odc_mlir.transforms.partition.rules.reduction_checks import reduced


def lower_pool(site: Site) -> None:
    """AVERAGE_POOL_2D and MAX_POOL_2D."""
    kind = npu.PoolKind.MAX if site.node.spec.name == "MAX_POOL_2D" else npu.PoolKind.AVERAGE
    kernel = (site.node.options["filter_height"], site.node.options["filter_width"])
    stride, _, pads = window_of(site, kernel)
    site.finish(
        npu.PoolOp(kind, site.operand(0), site.result_type, kernel=kernel, stride=stride, pads=pads, clamp=site.clamp())
    )


def lower_reduction(site: Site) -> None:
    """MEAN, SUM, REDUCE_MAX and REDUCE_MIN over some axes: over the pixels of images, or along rows."""
    run = reduced(site.node)
    assert run is not None, "the placement rules ask for images"
    outer, inner, name = run.outer, run.inner, site.node.spec.name
    image, result = (outer, run.height, run.width, inner), (outer, 1, 1, inner)
    operand = _in_order(site, run.order) if run.moves else site.operand(0)

    def largest(source: SSAValue) -> npu.ReduceOp:
        return npu.ReduceOp(npu.ReduceKind.MAX, source, site.result_of_shape(*result), clamp=site.clamp("none"))

    if name == "REDUCE_MAX":
        source = site.reshape(operand, image)
        return site.finish(largest(source))
    if name == "REDUCE_MIN":
        source = reversed_codes(site, site.reshape(operand, image))
        found = reversed_codes(site, site.emit(largest(source)))
        return site.finish(npu.ReshapeOp(found, site.result_type))
    (in_scale, in_zero), (out_scale, out_zero) = pair_of(site.info(0)), pair_of(site.result)
    count = run.height * run.width
    scale = mean_params(in_scale, out_scale, count) if name == "MEAN" else sum_params(in_scale, out_scale)
    if inner == 1:
        return lower_row_sums(site, operand, outer, count, scale)
    return site.finish(
        npu.ReduceOp(
            npu.ReduceKind.SUM,
            site.reshape(operand, image),
            site.result_of_shape(*result),
            zeros=(in_zero, out_zero),
            scale=npu.ScaleAttr.of(*scale),
            clamp=site.clamp(),
        )
    )


def _in_order(site: Site, order: tuple[int, ...]) -> SSAValue:
    """The operand with its axes (but those of size 1) in another order."""
    shape = site.info(0).static_shape
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = tuple(shape[axis] for axis in order)
    writes = tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))
    copy = StridedCopy(0, 0, 0, sizes, tuple(steps[axis] for axis in order), writes)
    kind = with_shape(tensor_of(site.operand(0)), sizes)
    return site.emit(npu.MoveOp([site.operand(0)], kind, copies=[copy]))


def lower_softmax(site: Site) -> None:
    """SOFTMAX: 8-bit codes have their exponentials computed, 16-bit codes look them up."""
    if site.result.dtype == "int16":
        scale = npu.ScaleAttr.of(*softmax16_params(quant_of(site.info(0)).scale, site.node.options["beta"]))
        table = blob_of(exponential_table().astype("<i2"))
        return site.finish(npu.SoftmaxOp(site.operand(0), site.result_type, scale=scale, table=table))
    multiplier, exponent, diff_min = softmax_params(quant_of(site.info(0)).scale, site.node.options["beta"])
    return site.finish(
        npu.SoftmaxOp(
            site.operand(0), site.result_type, scale=npu.ScaleAttr.of(multiplier, exponent), diff_min=diff_min
        )
    )


def lower_pad(site: Site) -> None:
    """PAD with real zero."""
    rows = site.node.const(1).reshape(-1, 2)
    pads = (int(rows[1][0]), int(rows[2][0]), int(rows[1][1]), int(rows[2][1]))
    site.finish(npu.PadOp(site.operand(0), site.result_type, pads=pads, zero=quant_of(site.result).zero_point))


def lower_view(site: Site) -> None:
    """RESHAPE, SQUEEZE, EXPAND_DIMS and the like: the same bytes with another shape."""
    site.finish(npu.ReshapeOp(site.operand(0), site.result_type))


LOWERINGS: Lowerings = {
    "AVERAGE_POOL_2D": lower_pool,
    "MAX_POOL_2D": lower_pool,
    "MEAN": lower_reduction,
    "SUM": lower_reduction,
    "REDUCE_MAX": lower_reduction,
    "REDUCE_MIN": lower_reduction,
    "SOFTMAX": lower_softmax,
    "RESHAPE": lower_view,
    "SQUEEZE": lower_view,
    "EXPAND_DIMS": lower_view,
}
