"""``npu-hoist-transfers``: move each load up to the point where its slot becomes free.

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

Queues run independently, so a transfer that is issued earlier overlaps with the instructions that it passed. An
analysis of the whole program moves each transfer up, across tiles and layers, to right after the last instruction that
it depends on. The order within each queue does not change. A transfer moves ahead by at most half a queue, because a
full queue stops the fetch of all instructions after it.

Buffers move to the top, and unused buffers are removed. The slots need addresses in local memories, because slots that
share bytes limit hoisting.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.ir import Block

from odc_mlir.dialects.npu_isa import BufferOp, MemoryOp
from odc_mlir.isa.fields import Queue
from odc_mlir.transforms.npu.schedule.hazards import Latest, dependences
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPass, TargetedProgram, erase_unused
from odc_mlir.transforms.npu.schedule.program import Command, buffers_of


class NpuHoistTransfersPass(ProgramPass):
    """Issue transfers earlier."""

    name = "npu-hoist-transfers"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = DecodedProgram(job.block)
        program.require_addresses(local=True)
        commands = program.working
        order = hoist_transfers(commands, dependences(commands), job.target.fetch.queue_depth)
        erase_unused([op for op in program.declarations.values() if isinstance(op, BufferOp)])
        _reorder(job.block, program, order)


def _reorder(block: Block, program: DecodedProgram, order: Sequence[int]) -> None:
    """Arrange buffers in the order of first uses, and then instructions in ``order``."""
    memories = [op for op in program.declarations.values() if isinstance(op, MemoryOp)]
    used = buffers_of([program.commands[index] for index in order])
    buffers = [program.declarations[buffer] for buffer in used if not buffer.is_memory]
    ends = program.ops[len(order) :]
    position = block.first_op  # all operations before it are in order
    for op in (*memories, *buffers, *(program.ops[index] for index in order), *ends):
        if op is position:
            position = op.next_op
            continue
        assert position is not None, "a program's operations are its buffers and instructions"
        block.detach_op(op)
        block.insert_op_before(op, position)


MOVED = frozenset({Queue.LOAD, Queue.WEIGHT})


def hoist_transfers(commands: Sequence[Command], found: Sequence[Latest], queue_depth: int) -> list[int]:
    """Return the indices of ``commands`` with every transfer as early as the dependences ``found`` allow.

    A transfer moves ahead by at most half a queue.
    """
    lookahead = max(1, queue_depth // 2)
    fixed = 0  # number of commands so far that do not move
    place: list[int] = []  # per command: number of fixed commands before it
    plain: dict[Queue, list[int]] = {queue: [] for queue in MOVED}
    last: dict[Queue, int] = dict.fromkeys(MOVED, 0)
    buckets: list[list[int]] = [[]]
    for number, (command, before) in enumerate(zip(commands, found, strict=True)):
        queue = command.queue
        if queue not in MOVED:
            place.append(fixed)
            buckets[fixed].append(number)
            fixed += 1
            buckets.append([])
            continue
        earliest = last[queue]
        for other, index in before.items():
            earliest = max(earliest, place[index] + (0 if other in MOVED else 1))
        places = plain[queue]
        if len(places) >= lookahead:
            earliest = max(earliest, places[-lookahead])
        places.append(fixed)
        last[queue] = earliest
        place.append(earliest)
        bucket = buckets[earliest]
        # the fixed command that ends an older bucket stays last
        bucket.insert(len(bucket) - 1, number) if earliest < fixed else bucket.append(number)
    return [number for bucket in buckets for number in bucket]
