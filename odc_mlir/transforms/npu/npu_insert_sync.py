"""``npu-insert-sync``: order conflicting instructions of different queues by the fewest semaphores, by an analysis.

Before::

    npu.isa.load source %x target %slot
    npu.isa.conv … input %slot

After::

    npu.isa.load source %x target %slot posts [8]
    npu.isa.conv … input %slot waits [8]

An instruction has room for two waits and two posts; ``npu.isa.sync`` takes the rest. Needs addresses of all buffers.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context

from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.sync import insert_sync


@dataclass(frozen=True)
class NpuInsertSyncPass(ProgramPass):
    """Insert semaphores; see the module's text."""

    name = "npu-insert-sync"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        program.require_addresses()
        program.write_commands(insert_sync(program.working))
