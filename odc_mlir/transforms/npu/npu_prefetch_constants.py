"""``npu-prefetch-constants``: copy constants to SRAM early, by a plan for the whole program.

Before::

    %w = npu.buffer "weights" data <…> : !npu.buffer<constants, 4096xi8>
    npu.isa.wload source %w target %slot

After, in memory mode ``flash``: chunks of constants are copied to the arena, as early as there is room. ``live`` is the
interval in which the copy needs the bytes::

    %c = npu.buffer "weights" data <…> : !npu.buffer<constants, 8192xi8>
    %s = npu.buffer "prefetched" live [0, 12] : !npu.buffer<arena, 8192xi8>
    npu.isa.copy source %c target %s bytes 8192
    npu.isa.wload source %s + 128 target %slot

With ``prefer = memory``, constants only use arena bytes that tensors leave free. Constants without room are read from
off-chip memory when used. Otherwise constants may use the whole SRAM, or follow the first policy if it is estimated to
be faster. With a wide off-chip port, the fastest plan may also have no copies. The attribute ``npu.prefetch`` of the
program, which ``npu-search-plans`` sets, overrides the estimate.

Does nothing in mode ``sram``, where constants use the SRAM port anyway. Rejects programs whose tensors do not
fit in the SRAM limit.
"""

from __future__ import annotations

from typing import NamedTuple, get_args

from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, IntegerAttr, StringAttr, i64
from xdsl.ir import Attribute, Block, SSAValue, Use

from odc_mlir.dialects.npu_isa import BufferOp, is_instruction
from odc_mlir.dialects.npu_program import PREFETCH
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.transforms.npu.schedule.hazards import dependences
from odc_mlir.transforms.npu.schedule.instruction_ir import (
    DecodedProgram,
    ProgramPass,
    TargetedProgram,
    erase_unused,
    make_buffer,
    make_instruction,
)
from odc_mlir.transforms.npu.schedule.prefetch import ConstantCopy, Room, prefetch_constants
from odc_mlir.transforms.npu.schedule.program import Buffer, command
from odc_mlir.transforms.npu.schedule.regions import arena_bytes


class Prefetch(NamedTuple):
    """SRAM for constants in one program. ``rest``: bytes that tensors leave free. ``best``: by an estimate."""

    room: Room = "best"
    sram_limit: int | None = None

    @property
    def attribute(self) -> DictionaryAttr:
        """Attribute ``npu.prefetch`` with the options."""
        limit = {} if self.sram_limit is None else {"sram_limit": IntegerAttr(self.sram_limit, i64)}
        return DictionaryAttr({"room": StringAttr(self.room), **limit})


def _read_prefetch(attribute: Attribute) -> Prefetch:
    data = attribute.data if isinstance(attribute, DictionaryAttr) else {}
    room, limit = data.get("room"), data.get("sram_limit")
    rooms = {name: name for name in get_args(Room)}
    if not isinstance(room, StringAttr) or room.data not in rooms or not isinstance(limit, IntegerAttr | None):
        raise CompileError(
            f"{PREFETCH} is {attribute}", hint='write {room = "best", "rest", "all" or "none", sram_limit = N}'
        )
    return Prefetch(rooms[room.data], None if limit is None else limit.value.data)


class NpuPrefetchConstantsPass(ProgramPass):
    """Plan copies of constants to SRAM."""

    name = "npu-prefetch-constants"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        if job.memory != "flash":
            return
        given = job.program.attributes.pop(PREFETCH, None)
        options = Prefetch() if given is None else _read_prefetch(given)
        program, limit = DecodedProgram(job.block), min(options.sram_limit or job.sram_bytes, job.sram_bytes)
        held = job.sram_bytes - arena_bytes(job, program)
        commands, room = program.working, options.room if job.choice.prefer != "memory" else "rest"
        copies = prefetch_constants(commands, dependences(commands), job.target, limit - held, held, room=room)
        declared = [op for copy in copies for op in _insert_copy(job.block, program, copy)]
        first = job.block.first_op
        assert first is not None, "a program ends in halt"
        job.block.insert_ops_before(declared, first)
        erase_unused([op for op in program.declarations.values() if isinstance(op, BufferOp)])


def _insert_copy(block: Block, program: DecodedProgram, copy: ConstantCopy) -> list[BufferOp]:
    location, size = program.locations[copy.layer], copy.size
    data = b"".join(constant.data or b"" for constant in copy.constants)
    source = Buffer(copy.constants[0].name, Space.CONSTANTS, size, data=data)
    target = Buffer("prefetched", Space.ARENA, size, live=copy.live)
    declared = {buffer: make_buffer(buffer, location) for buffer in (source, target)}
    values = {buffer: op.results[0] for buffer, op in declared.items()}
    made = make_instruction(command("copy", source=(source, 0), target=(target, 0), bytes=size), values, location)
    block.insert_op_before(made, program.ops[copy.position])
    start = 0
    for constant in copy.constants:
        for use in list(program.declarations[constant].buffer.uses):
            _redirect(use, values[target], start)
        start += constant.size
    return list(declared.values())


def _redirect(use: Use, target: SSAValue, start: int) -> None:
    op = use.operation
    assert is_instruction(op), "only instructions use buffers"
    fields = op.field_values
    offsets = list(fields.offsets)
    place = [index for index, offset in enumerate(offsets) if offset is not None][use.index]
    offsets[place] = start + (offsets[place] or 0)
    op.operands[use.index] = target
    op.set_fields(fields._replace(offsets=tuple(offsets)))
