"""``npu-verify-memory``: prove by an analysis that a finished program is safe. Changes nothing.

Checked for every instruction: buffers are inside their memory and accesses inside their buffer; no byte of a value is
overwritten through another buffer before it is read for the last time, in any memory; arena buffers that share bytes
are in use at different times; conflicts between queues are ordered by semaphores; every wait is satisfied by an earlier
post and no token is left over, so the program terminates whatever the depth of the queues.

Rejects loops: run ``npu-unroll-loops`` first. What an address in a whole memory (``npu.memory``) means is not known, so
nothing is lost by it.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context

from odc_mlir.isa.fields import Space
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.regions import arena_bytes, region_bytes
from odc_mlir.transforms.npu.schedule.verify import verify_program


@dataclass(frozen=True)
class NpuVerifyMemoryPass(ProgramPass):
    """Verify; see the module's text."""

    name = "npu-verify-memory"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        ends = [(b.address or 0) + b.size for b in program.buffers if b.space is Space.CONSTANTS]
        regions = region_bytes(job, program) | {
            Space.ARENA: arena_bytes(job, program),
            Space.CONSTANTS: max(ends, default=0),
        }
        verify_program(program.working, job.target, regions, program.layer_names)
