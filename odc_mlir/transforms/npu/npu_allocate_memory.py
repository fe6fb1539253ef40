"""``npu-allocate-memory``: assign addresses to buffers. A greedy packing of live ranges fills the arena.

Before::

    %t = npu.buffer "conv1" : !npu.buffer<arena, 12544xi8>

After::

    %t = npu.buffer "conv1" at 25088 : !npu.buffer<arena, 12544xi8>

Arena buffers that are in use at different times may share bytes. A buffer that already has an address keeps it.
Constants, and inputs and outputs outside of the arena, get consecutive addresses. The program gets the attributes
``npu.input_offsets`` and ``npu.output_offsets``, with the addresses of all inputs and outputs, and ``npu.sram_peak``:

- the size of the arena, and the peak of live bytes, a lower bound for the size
- the operator and the number of the instruction at the peak (the number does not count copies of constants), and the
  live buffers at the peak

Rejects programs that need more SRAM than available, and constants, inputs and outputs with addresses that differ from
the assigned addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DictionaryAttr, IntegerAttr, StringAttr, i64

from odc_mlir.dialects.npu_isa import BufferOp, MemoryOp
from odc_mlir.dialects.npu_program import SRAM_PEAK
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import Space
from odc_mlir.support.locations import location_names
from odc_mlir.transforms.npu.schedule import arena
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram, integer
from odc_mlir.transforms.npu.schedule.prefetch import arena_too_small
from odc_mlir.transforms.npu.schedule.program import Buffer
from odc_mlir.transforms.npu.schedule.regions import arena_bytes, bind


class NpuAllocateMemoryPass(ProgramPass):
    """Assign addresses to buffers."""

    name = "npu-allocate-memory"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        limit = arena_bytes(job, program)
        # Live ranges do not include the halt instruction: it uses no buffer, and the prefetch plan does not include it.
        intervals = arena.live_intervals(program.working, job.target.sram.burst_bytes)
        tensors = [interval for interval in intervals if interval.owner.live is None]
        used = arena.allocate_around(tensors, [interval for interval in intervals if interval.owner.live is not None])
        if used > limit:
            raise arena_too_small(intervals, used, limit, job.sram_bytes - limit)
        addresses, end = {interval.owner: interval.start for interval in intervals}, 0
        alignment = job.target.offchip.burst_bytes if job.memory == "flash" else job.target.sram.burst_bytes
        for buffer in program.buffers:
            if buffer.space is Space.CONSTANTS:
                addresses[buffer] = end
                end += -(-buffer.size // alignment) * alignment
        bind(job, program, addresses)
        job.program.attributes[SRAM_PEAK] = _peak(program, intervals, used)
        for buffer, address in addresses.items():
            _set_address(program.declarations[buffer], buffer, address)


def _set_address(op: BufferOp | MemoryOp, buffer: Buffer, address: int) -> None:
    """Set the address, and erase the lifetime, which no later pass needs.

    Raises CompileError for a different given address.
    """
    if buffer.address not in (None, address):
        raise CompileError(
            f"buffer {buffer.name!r} in memory {buffer.space} has the address {buffer.address}, assigned is {address}",
            op=op.name,
            hint="remove the address",
        )
    if isinstance(op, BufferOp):
        op.properties["address"] = integer(address)
        op.properties.pop("live", None)


def _peak(program: DecodedProgram, intervals: Sequence[arena.Interval[Buffer]], used: int) -> DictionaryAttr:
    """Return an attribute that describes the arena's peak of live bytes. ``used``: size of the arena in bytes."""
    at, alive = arena.busiest(intervals)
    commands = [command for command in program.commands if not arena.is_prefetch(command)]
    name = location_names(program.locations[commands[at].layer])[:1] if alive else ()
    sizes: Counter[str] = Counter()
    for interval in alive:
        sizes[interval.owner.name] += interval.size
    held = (ArrayAttr([StringAttr(label), IntegerAttr(size, i64)]) for label, size in sizes.most_common())
    return DictionaryAttr(
        {
            "arena_bytes": IntegerAttr(used, i64),
            "least_bytes": IntegerAttr(arena.most_live_bytes(intervals), i64),
            "instruction": IntegerAttr(at, i64),
            "operator": StringAttr("".join(name)),
            "tensors": ArrayAttr(list(held)),
        }
    )
