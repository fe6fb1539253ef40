"""``circle`` to ``npu``: GATHER, by constant numbers or by computed ones."""

from __future__ import annotations

from odc_mlir.dialects import npu
from odc_mlir.transforms.npu.lowering.moves import lower_move
from odc_mlir.transforms.npu.lowering.site import Lowerings, Site
from odc_mlir.transforms.partition.rules.search_checks import gathered


def lower_gather(site: Site) -> None:
    """Slices at constant places are moved; at others rows of tables are copied by their numbers."""
    if site.info(1).is_const:
        return lower_move(site)
    found = gathered(site.node)
    table = site.reshape(site.constant_or_operand(0), (found.batches, found.outer, found.rows, found.inner))
    indices = site.reshape(site.operand(1), (found.batches, found.taken))
    kind = site.result_of_shape(found.batches, found.outer, found.taken, found.inner)
    return site.finish(npu.GatherOp(table, indices, kind))


LOWERINGS: Lowerings = {
    "GATHER": lower_gather,
}
