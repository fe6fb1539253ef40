"""``npu-hoist-transfers``: hoist loads to where their slots become free.

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

A transfer that is issued earlier overlaps with the instructions it was moved past, across tiles and layers; the order
within each queue is preserved. Buffers move to the top, and unused ones are removed. Needs the addresses of local
memories, because hoisting is limited by slots that share bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context

from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, TargetedProgram
from odc_mlir.transforms.npu.schedule.order import hoist_transfers
from odc_mlir.transforms.npu.schedule.program_pass import ProgramPass


@dataclass(frozen=True)
class NpuHoistTransfersPass(ProgramPass):
    """Order; see the module's text."""

    name = "npu-hoist-transfers"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        program.require_addresses(local=True)
        commands = program.working
        program.write_order(hoist_transfers(commands, dependences(commands), job.target.fetch.queue_depth))
