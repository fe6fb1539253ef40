"""``npu-choose-tiles``: choose tilings of window operations, and tensors that stay in the tile buffer.

Before::

    %1 = npu.conv %0 kernel [3, 3] … : tensor<1x112x112x32x…> -> tensor<1x112x112x64x…>

After: the same operation with ``{npu.tiling = #npu.tiling<rows = 4, cols = 56, group = 64, …>}``, chosen by the
simulator's cost formulas. All other operations have a single tiling. They get ``npu.slot_bytes`` if resident tensors
leave only a part of the tile buffer free. An operation has ``npu.resident = #npu.resident<top = 1, …>`` if the result
stays in the tile buffer for all readers. ``top = 1, …`` is the border that readers need. If a tiling has
``operand_slots``, the element-wise operation that reads the result is computed with each tile.

A window operation that already has a tiling keeps it. The slot counts of this tiling determine whether the operand and
the result of the operation stay in the tile buffer. A program with such an operation is not cut into stripes.

Weights that every tile reads again are assumed to be prefetched to SRAM. In memory mode ``flash``, an SRAM limit or
``prefer = memory`` may leave no room for them. Each read is then charged to the off-chip port.

A program with ``npu.tiled_for = {sram = 50}`` is tiled for a machine with 50 % of the target's SRAM bandwidth. The
other resources are ``lanes``, ``tile_ports``, ``array`` (with both), and ``room`` (the capacity of the SRAM).

Rejects windows if a single result pixel does not fit in the local memories, and given tilings that do not fit.
"""

from __future__ import annotations

from xdsl.context import Context
from xdsl.dialects.builtin import IntegerAttr, i64

from odc_mlir.dialects.npu_program import TILED_FOR
from odc_mlir.dialects.npu_tiling import RESIDENT, SLOT_BYTES, TILING, Residency, ResidentAttr, TilingAttr
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.layer_plan import chosen_tiles
from odc_mlir.transforms.npu.schedule.residents import largest_gap


class NpuChooseTilesPass(ProgramPass):
    """Choose tilings of window operations, and resident tensors."""

    name = "npu-choose-tiles"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        for op in job.block.ops:  # remove attributes of an earlier run
            op.attributes.pop(SLOT_BYTES, None)
            op.attributes.pop(RESIDENT, None)
        graph, plan = chosen_tiles(ctx, job)
        job.program.attributes.pop(TILED_FOR, None)
        stays = list(plan.residents.values())
        for index, (item, choice) in enumerate(zip(graph.ops, plan.choices, strict=True)):
            if choice.tiling is not None:
                item.attributes.setdefault(TILING, TilingAttr(choice.tiling))
                continue
            room = largest_gap(stays, index, job.target.local.tile_bytes)
            if room < job.target.local.tile_bytes:
                item.attributes[SLOT_BYTES] = IntegerAttr(room, i64)
        for number in plan.residents:
            candidate = graph.candidates[number]
            residency = Residency(*candidate.resident.layout.border, candidate.fill)
            candidate.op.attributes[RESIDENT] = ResidentAttr(residency)
