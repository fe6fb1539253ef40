"""The pattern that lowers ARG_MAX and ARG_MIN, and reversed codes."""

from __future__ import annotations

import numpy as np
from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.circle_types import with_shape
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.numerics.fixed import code_range
from odc_mlir.numerics.lut import codes_by_byte
from odc_mlir.transforms.npu.lowering.site import ONE, LowerToNpu, Site, blob_of, tensor_of
from odc_mlir.transforms.partition.rules.search_checks import searched


class LowerArgMax(LowerToNpu):
    """ARG_MAX and ARG_MIN, to ``npu.arg_max`` along the last axis.

    Another axis is moved there first, and for ARG_MIN codes are reversed. An image stays one, so that some of its rows
    can be searched at a time.
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
    """Reverse the order of codes: ``-1 - code`` if they are signed, else ``255 - code``."""
    dtype = site.info(0).dtype
    low, high = code_range(dtype)
    kind = tensor_of(source)
    if site.info(0).info.numpy.itemsize == 1:
        codes = codes_by_byte(site.info(0).info.numpy)
        table = (low + high - codes.astype(np.int32)).astype(codes.dtype)
        return site.emit(npu.LutOp(source, kind, table=BlobAttr.of(table.tobytes())))
    minus_one = npu.ConstantOp(blob_of(np.array([-1], "<i2")), with_shape(kind, (1,) * len(npu.shape_of(source))))
    return site.emit(
        npu.ElementwiseOp(
            npu.ElementwiseKind.MUL,
            source,
            site.emit(minus_one),
            kind,
            zeros=(0, 0, low + high),
            out_scale=ONE,
            clamp=(low, high),
        )
    )
