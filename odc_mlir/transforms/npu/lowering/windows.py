"""Patterns that lower pooling, resizing, reductions, searches, softmax and padding."""

from __future__ import annotations

import math
from typing import Any

from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle import info_of
from odc_mlir.dialects.circle_types import tensor_type, with_shape
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.int16 import exponential_table, softmax16_params
from odc_mlir.numerics.reduction import mean_params, sum_params
from odc_mlir.numerics.softmax import softmax_params
from odc_mlir.ops.spec import Node, QuantParams
from odc_mlir.transforms.npu.lowering.decompositions import resize_lines
from odc_mlir.transforms.npu.lowering.products import row_sums, window_of
from odc_mlir.transforms.npu.lowering.site import MINUS, LowerToNpu, Site, blob_of, pair_of, quant_of, tensor_of
from odc_mlir.transforms.partition.rules.checks import image_padding
from odc_mlir.transforms.partition.rules.operator_checks import ReductionShape, reduced, searched


class LowerPool2D(LowerToNpu):
    """Lower AVERAGE_POOL_2D and MAX_POOL_2D to ``npu.pool``."""

    operators = ("AVERAGE_POOL_2D", "MAX_POOL_2D")

    def rewrite(self, site: Site) -> None:
        kind = npu.PoolKind.MAX if site.node.spec.name == "MAX_POOL_2D" else npu.PoolKind.AVERAGE
        kernel = (site.node.options["filter_height"], site.node.options["filter_width"])
        window = window_of(site.node, kernel)
        del window["dilation"]
        site.finish(npu.PoolOp(kind, site.operand(0), site.result_type, **window, clamp=site.clamp()))


class LowerReduceMaxMin(LowerToNpu):
    """Lower REDUCE_MAX over the pixels of images to ``npu.reduce``. For REDUCE_MIN, codes are reversed."""

    operators = ("REDUCE_MAX", "REDUCE_MIN")

    def rewrite(self, site: Site) -> None:
        source, is_max = _image(site, _reduced(site.node)), site.node.spec.name == "REDUCE_MAX"
        result = site.result_of_shape(npu.shape_of(source)[0], 1, 1, npu.shape_of(source)[3])
        source = source if is_max else reversed_codes(site, source)
        found = npu.ReduceOp(npu.ReduceKind.MAX, source, result, clamp=site.clamp("none"))
        site.finish(found if is_max else npu.ReshapeOp(reversed_codes(site, site.emit(found)), site.result_type))


class LowerSum(LowerToNpu):
    """Lower MEAN and SUM: along rows to a 1x1 convolution with weights of one, over pixels of images to a reduction."""

    operators = ("MEAN", "SUM")

    def rewrite(self, site: Site) -> None:
        run, scale = _reduced(site.node), _sum_scale(site)
        zeros = pair_of(site.info(0))[1], pair_of(site.result)[1]
        if run.inner == 1:
            line = site.reshape(_in_order(site, run), (1, 1, run.outer, run.height * run.width))
            site.finish(row_sums(line, site.result_of_shape(1, 1, run.outer, 1), zeros, scale, site.clamp()))
            return
        kind, given = site.result_of_shape(run.outer, 1, 1, run.inner), npu.ScaleAttr.of(*scale)
        total = npu.ReduceOp(npu.ReduceKind.SUM, _image(site, run), kind, zeros=zeros, scale=given, clamp=site.clamp())
        site.finish(total)


class LowerSoftmax(LowerToNpu):
    """Lower SOFTMAX to ``npu.softmax``, for 16-bit codes with a table of exponentials."""

    operators = ("SOFTMAX",)

    def rewrite(self, site: Site) -> None:
        source, beta, values = quant_of(site.info(0)).scale, site.node.options["beta"], dict[str, Any]()
        if site.result.dtype == "int16":
            scale = list(softmax16_params(source, beta))
            values["table"] = blob_of(exponential_table().astype("<i2"))
        else:
            *scale, values["diff_min"] = softmax_params(source, beta)
        site.finish(npu.SoftmaxOp(site.operand(0), site.result_type, scale=npu.ScaleAttr.of(*scale), **values))


class LowerImagePad(LowerToNpu):
    """Lower PAD of images with real zero to ``npu.pad``. A user may absorb it."""

    operators = ("PAD",)

    def applies(self, node: Node) -> bool:
        return image_padding(node) is None

    def rewrite(self, site: Site) -> None:
        rows = site.node.const(1).reshape(-1, 2)
        pads = (int(rows[1][0]), int(rows[2][0]), int(rows[1][1]), int(rows[2][1]))
        site.finish(npu.PadOp(site.operand(0), site.result_type, pads=pads, zero=quant_of(site.result).zero_point))


def _reduced(node: Node) -> ReductionShape:
    run = reduced(node)
    assert run is not None, "the placement rules require images"
    return run


def _sum_scale(site: Site) -> tuple[int, int]:
    run = _reduced(site.node)
    in_scale, out_scale = pair_of(site.info(0))[0], pair_of(site.result)[0]
    if site.node.spec.name == "MEAN":
        return mean_params(in_scale, out_scale, run.height * run.width)
    return sum_params(in_scale, out_scale)


def _image(site: Site, run: ReductionShape) -> SSAValue:
    return site.reshape(_in_order(site, run), (run.outer, run.height, run.width, run.inner))


def _in_order(site: Site, run: ReductionShape) -> SSAValue:
    """Return the operand with the axes in reduction order. Axes of size 1 are removed."""
    if not run.moves:
        return site.operand(0)
    shape, order = site.info(0).static_shape, run.order
    steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
    sizes = tuple(shape[axis] for axis in order)
    writes = tuple(math.prod(sizes[place + 1 :]) for place in range(len(sizes)))
    copy = StridedCopy(0, 0, 0, sizes, tuple(steps[axis] for axis in order), writes)
    kind = with_shape(tensor_of(site.operand(0)), sizes)
    return site.emit(npu.MoveOp([site.operand(0)], kind, copies=[copy]))


class LowerArgMax(LowerToNpu):
    """Lower ARG_MAX and ARG_MIN to ``npu.arg_max`` along the last axis.

    A move brings the searched axis to the end. For ARG_MIN, codes are reversed. Images stay images, and few rows can be
    searched at a time.
    """

    operators = ("ARG_MAX", "ARG_MIN")

    def rewrite(self, site: Site) -> None:
        outer, size, inner = searched(site.node)
        source = site.operand(0)
        if site.node.spec.name == "ARG_MIN":
            source = reversed_codes(site, source)
        if inner > 1:
            copy = StridedCopy(0, 0, 0, (outer, size, inner), (size * inner, inner, 1), (size * inner, 1, size))
            source = site.emit(npu.MoveOp([source], with_shape(tensor_of(source), (outer, inner, size)), copies=[copy]))
        elif npu.shape_of(source)[-1] != size:  # axes of one element follow
            source = site.reshape(source, (outer, size))
        site.finish(npu.ArgMaxOp(source, site.result_of_shape(*npu.shape_of(source)[:-1])))


def reversed_codes(site: Site, source: SSAValue) -> SSAValue:
    """Reverse the order of codes: ``-1 - code`` for signed codes, else ``255 - code``."""
    info = info_of(source)
    low, high = code_range(info.dtype)
    quant = quant_of(info)  # reversal negates the real values
    kind = tensor_type(info.dtype, info.shape, QuantParams(quant.scales, (low + high - quant.zero_point,)))
    zeros, scale = (quant.zero_point, low + high - quant.zero_point), npu.ScaleAttr.of(*MINUS)
    return site.emit(npu.ScaleOp(source, kind, zeros=zeros, scale=scale, clamp=(low, high)))


class LowerResize(LowerToNpu):
    """Lower RESIZE_BILINEAR and RESIZE_NEAREST_NEIGHBOR to ``npu.resize``."""

    operators = ("RESIZE_BILINEAR", "RESIZE_NEAREST_NEIGHBOR")

    def rewrite(self, site: Site) -> None:
        lines = resize_lines(site.node)
        assert not isinstance(lines, str), "the placement rules require lines"
        bilinear = site.node.spec.name == "RESIZE_BILINEAR"
        kind = npu.ResizeKind.BILINEAR if bilinear else npu.ResizeKind.NEAREST
        site.finish(npu.ResizeOp(kind, site.operand(0), site.result_type, lines))
