"""``npu-hoist-transfers``: loads move up to where their slots become free.

Before::

    npu.isa.load source %x target %a …
    npu.isa.conv input %a output %b …
    npu.isa.store source %b target %y …
    npu.isa.load source %x + 512 target %c …
    npu.isa.conv input %c output %d …

After::

    npu.isa.load source %x target %a …
    npu.isa.load source %x + 512 target %c …
    npu.isa.conv input %a output %b …
    npu.isa.store source %b target %y …
    npu.isa.conv input %c output %d …

A transfer that is issued earlier overlaps with what it moved past, across tiles and layers; the order within each queue
stays. Buffers move to the top, those that no instruction names go. Needs the addresses of local memories, because slots
that share bytes are what limits it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.transforms.npu.schedule.instruction_ir import read_program, targeted_programs
from odc_mlir.transforms.npu.schedule.order import hoist_transfers


@dataclass(frozen=True)
class NpuHoistTransfersPass(ModulePass):
    """Order; see the module's text."""

    name = "npu-hoist-transfers"
    keeps_records: ClassVar[bool] = True

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for job in targeted_programs(op, self.name):
            program = read_program(ctx, job)
            program.reorder(hoist_transfers(program.working, program.dependences, job.target.fetch.queue_depth))
