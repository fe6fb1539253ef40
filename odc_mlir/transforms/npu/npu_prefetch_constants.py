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
some either, the estimate decides between the two; option ``room`` overrides it. A program with ``npu.prefetch``, which
``npu-search-plans`` sets, has its own options.

Does nothing in mode ``sram``, where constants are behind the SRAM port already. Rejects programs whose tensors do not
fit in the SRAM limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, get_args

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute

from odc_mlir.dialects.npu_program import PREFETCH
from odc_mlir.errors import CompileError
from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.prefetch import Room, prefetch_constants
from odc_mlir.transforms.npu.schedule.regions import arena_bytes


class Prefetch(NamedTuple):
    """Options of prefetching in one program: see :class:`NpuPrefetchConstantsPass`."""

    room: Room = "best"
    sram_limit: int | None = None

    @property
    def attribute(self) -> DictionaryAttr:
        """The attribute ``npu.prefetch``."""
        limit = {} if self.sram_limit is None else {"sram_limit": IntegerAttr(self.sram_limit, i64)}
        return DictionaryAttr({"room": StringAttr(self.room), **limit})


def _read_prefetch(attribute: Attribute) -> Prefetch:
    """Return the options in such an attribute; raise CompileError for others."""
    data = attribute.data if isinstance(attribute, DictionaryAttr) else {}
    room, limit = data.get("room"), data.get("sram_limit")
    rooms = {name: name for name in get_args(Room)}
    if not isinstance(room, StringAttr) or room.data not in rooms or not isinstance(limit, IntegerAttr | None):
        raise CompileError(f"{PREFETCH} is {attribute}", hint='write {room = "best", "rest" or "all", sram_limit = N}')
    return Prefetch(rooms[room.data], None if limit is None else limit.value.data)


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
        given = job.program.attributes.pop(PREFETCH, None)
        options = Prefetch(self.room, self.sram_limit) if given is None else _read_prefetch(given)
        program, limit = DecodedProgram(job.block), min(options.sram_limit or job.sram_bytes, job.sram_bytes)
        held = job.sram_bytes - arena_bytes(job, program)
        commands, room = program.working, options.room if job.choice.prefer != "memory" else "rest"
        found = prefetch_constants(commands, dependences(commands), job.target, limit - held, held, room=room)
        program.write_commands(found)
