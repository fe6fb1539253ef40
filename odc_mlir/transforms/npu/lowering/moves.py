"""``circle`` to ``npu``: operators that move codes; :mod:`.move_maps` says what goes where."""

from __future__ import annotations

import math

from xdsl.ir import SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects import npu
from odc_mlir.dialects.npu_move import StridedCopy
from odc_mlir.numerics.elementwise import joined_codes
from odc_mlir.support.locations import name_loc, value_name
from odc_mlir.transforms.npu.lowering.move_maps import moved_operands, result_copies
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site, blob_of, pair_of, quant_of
from odc_mlir.transforms.npu.lowering.windows import lower_pad, lower_view
from odc_mlir.transforms.partition.rules.checks import image_padding, moves_no_element
from odc_mlir.transforms.partition.rules.table import MOVERS


def lower_move(site: Site) -> None:
    """Any operator that only moves codes; each used result is one operation."""
    node = site.node
    found = result_copies(node)
    assert not isinstance(found, str), "the placement rules ask for strided copies"
    values, joins = [], node.spec.name == "CONCATENATION"
    for index in moved_operands(node):
        values.append(_with_quantisation(site, index) if joins else site.constant_or_operand(index))
    results = []
    for result, info, copies in zip(site.op.results, node.results, found, strict=True):
        used = sorted({copy.source for copy in copies})
        covered = sum(copy.elements for copy in copies) == math.prod(info.static_shape)
        made = npu.MoveOp(
            [values[index] for index in used],
            result.type,
            copies=[StridedCopy(*copy._replace(source=used.index(copy.source))) for copy in copies],
            fill=None if covered else quant_of(info).zero_point,
        )
        results.append(site.emit(made))
        made.location = name_loc(value_name(result))
    Rewriter.replace_op(site.op, [], results)


def _with_quantisation(site: Site, index: int) -> SSAValue:
    """Operand ``index`` with scale and zero point of the result."""
    info = site.info(index)
    if info.quant == site.result.quant:
        return site.constant_or_operand(index)
    table = joined_codes(pair_of(info), pair_of(site.result))
    kind = site.result_of_shape(*info.static_shape)
    if info.is_const:
        return site.emit(npu.ConstantOp(blob_of(table[info.array()]), kind))
    return site.emit(npu.LutOp(site.operand(index), kind, table=blob_of(table)))


def lower_transpose(site: Site) -> None:
    """TRANSPOSE: nothing where the bytes stay in order."""
    (lower_view if moves_no_element(site.node) is None else lower_move)(site)


def lower_padding(site: Site) -> None:
    """PAD: what a load pads may become part of the operator that reads it."""
    (lower_pad if image_padding(site.node) is None else lower_move)(site)


LOWERINGS: Lowerings = {
    "CONCATENATION": lower_move,
    "TRANSPOSE": lower_transpose,
    "PAD": lower_padding,
    **dict.fromkeys(MOVERS, lower_move),
}
