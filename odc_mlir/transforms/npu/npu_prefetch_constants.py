"""``npu-prefetch-constants``: copy constants to SRAM before they are needed, planned over the whole program.

Before::

    %w = npu.buffer "weights" data <…> : !npu.buffer<constants, 4096xi8>
    npu.isa.wload source %w target %slot

After, in memory mode ``flash``: constants are merged into chunks, each copied once into the arena, as early as there is
room. ``live`` is the interval in which the copy needs its bytes::

    %c = npu.buffer "weights" data <…> : !npu.buffer<constants, 8192xi8>
    %s = npu.buffer "prefetched" live [0, 12] : !npu.buffer<arena, 8192xi8>
    npu.isa.copy source %c target %s bytes 8192
    npu.isa.wload source %s + 128 target %slot

If the target was chosen with ``prefer = memory``, constants use arena bytes that tensors leave free and never enlarge
the arena; constants without room are read from off-chip memory when used. Otherwise, if the whole SRAM has no room for
some either, the estimate decides between the two; option ``room`` overrides it.

Does nothing in mode ``sram``, where constants are behind the SRAM port already. Rejects programs whose tensors do not
fit in the SRAM limit.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context

from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.prefetch import Room, prefetch_constants
from odc_mlir.transforms.npu.schedule.regions import arena_bytes


@dataclass(frozen=True)
class NpuPrefetchConstantsPass(ProgramPass):
    """Prefetch; see the module's text."""

    name = "npu-prefetch-constants"

    room: Room = "best"
    """Arena for constants: rest (what tensors leave), all (of the SRAM limit), or best (as estimated)."""

    sram_limit: int | None = None
    """Bytes of SRAM to use; default: what the target or its limit allows."""

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        if job.memory != "flash":
            return
        program, limit = DecodedProgram(job.block), min(self.sram_limit or job.sram_bytes, job.sram_bytes)
        held = job.sram_bytes - arena_bytes(job, program)
        commands, room = program.working, self.room if job.choice.prefer != "memory" else "rest"
        found = prefetch_constants(commands, dependences(commands), job.target, limit - held, held, room=room)
        program.write_commands(found)
