"""Patterns that lower operators that move codes: views, copies, concatenations, gathers and updates of slices."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.ir import SSAValue

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_layers import StridedCopy
from odc_mlir.numerics.elementwise import joined_codes
from odc_mlir.ops.spec import Node
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.npu.lowering.decompositions import result_copies
from odc_mlir.transforms.npu.lowering.site import Benefit, LowerToNpu, Site, blob_of, pair_of
from odc_mlir.transforms.partition.rules.checks import moves_no_element
from odc_mlir.transforms.partition.rules.operator_checks import gathered, updated_axis
from odc_mlir.transforms.partition.rules.table import MOVERS


class LowerReshape(LowerToNpu):
    """Lower RESHAPE, SQUEEZE, EXPAND_DIMS, and a TRANSPOSE that moves nothing, to ``npu.reshape``."""

    operators = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS", "TRANSPOSE")

    def applies(self, node: Node) -> bool:
        return node.spec.name != "TRANSPOSE" or moves_no_element(node) is None

    def rewrite(self, site: Site) -> None:
        site.finish(npu.ReshapeOp(site.operand(0), site.result_type))


class LowerConcatenation(LowerToNpu):
    """Lower CONCATENATION to a move of its operands. Tables requantise operands with other scales."""

    operators = ("CONCATENATION",)

    def rewrite(self, site: Site) -> None:
        _move(site, [_with_quantisation(site, index) for index in site.node.spec.quant.moved(site.node.operands)])


class LowerGather(LowerToNpu):
    """Lower GATHER with computed indices to ``npu.gather``."""

    operators = ("GATHER",)

    def applies(self, node: Node) -> bool:
        return not node.operand(1).is_const

    def rewrite(self, site: Site) -> None:
        found = gathered(site.node)
        table = site.reshape(site.constant_or_operand(0), (found.batches, found.outer, found.rows, found.inner))
        indices = site.reshape(site.operand(1), (found.batches, found.taken))
        kind = site.result_of_shape(found.batches, found.outer, found.taken, found.inner)
        site.finish(npu.GatherOp(table, indices, kind))


class LowerDynamicUpdateSlice(LowerToNpu):
    """Lower DYNAMIC_UPDATE_SLICE along one axis at a computed position to ``npu.update``."""

    operators = ("DYNAMIC_UPDATE_SLICE",)

    def applies(self, node: Node) -> bool:
        return not node.operand(2).is_const

    def rewrite(self, site: Site) -> None:
        axis = updated_axis(site.node)
        assert axis is not None, "the placement rules require one axis"
        shape = site.result.static_shape
        outer, inner = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
        tables = site.reshape(site.constant_or_operand(0), (outer, shape[axis], inner))
        rows = site.reshape(site.constant_or_operand(1), (outer, site.info(1).static_shape[axis], inner))
        kind = site.result_of_shape(outer, shape[axis], inner)
        site.finish(npu.UpdateOp(tables, rows, site.operand(2), kind, index=axis))


class LowerMove(LowerToNpu):
    """Lower any operator that only moves codes to an ``npu.move`` per used result. See :mod:`.decompositions`."""

    benefit = Benefit.GENERAL
    operators = ("TRANSPOSE", "PAD", "GATHER", "DYNAMIC_UPDATE_SLICE", *MOVERS)

    def rewrite(self, site: Site) -> None:
        _move(site, [site.constant_or_operand(index) for index in site.node.spec.quant.moved(site.node.operands)])


def _move(site: Site, values: Sequence[SSAValue]) -> None:
    node = site.node
    found = result_copies(node)
    assert not isinstance(found, str), "the placement rules require strided copies"
    results = []
    for result, info, copies in zip(site.op.results, node.results, found, strict=True):
        used = sorted({copy.source for copy in copies})
        covered = sum(copy.elements for copy in copies) == math.prod(info.static_shape)
        made = npu.MoveOp(
            [values[index] for index in used],
            result.type,
            copies=[StridedCopy(*copy._replace(source=used.index(copy.source))) for copy in copies],
            fill=None if covered else 0 if info.quant is None else info.quant.zero_point,
        )
        made.location = name_loc(value_name(result))
        results.append(site.emit(made))
    site.finish_with(results)


def _with_quantisation(site: Site, index: int) -> SSAValue:
    info = site.info(index)
    if info.quant is None or info.quant.agrees(site.result.quant):  # truths have no scale
        return site.constant_or_operand(index)
    table = joined_codes(pair_of(info), pair_of(site.result))
    kind = site.result_of_shape(*info.static_shape)
    if info.is_const:
        return site.emit(npu.ConstantOp(blob_of(table[info.array()]), kind))
    return site.emit(npu.LutOp(site.operand(index), kind, table=blob_of(table)))
