"""``npu-share-arena``: place inputs and outputs in the arena, where other tensors can reuse the bytes.

Before::

    %x = npu.buffer "x" binds [0] : !npu.buffer<inputs, 1x8x8x16xi8>
    %y = npu.buffer "y" binds [0] : !npu.buffer<outputs, 1x10xi8>

After::

    %x = npu.buffer "x" takes [0] : !npu.buffer<arena, 1x8x8x16xi8>
    %y = npu.buffer "y" gives [0] : !npu.buffer<arena, 1x10xi8>

The host writes inputs before the program starts and reads outputs after it has ended. While the program runs, other
tensors can use bytes of an input after the last use of the input, and bytes of an output before the first use of the
output. Separate regions would prevent this. Unused inputs have no buffer and stay in the input region.

A state that is kept from run to run is an input and an output in one buffer. A program may copy the next value to this
buffer at the end. The pass makes it compute the value in this buffer, unless it would read bytes of the state that it
has already replaced. If a tensor begins as a copy, and nothing else needs the source afterwards, they share a buffer,
and nothing is copied. A ``scatter`` into a cache then moves only one row.
"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, i32
from xdsl.ir import Block
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.npu_isa import BOUND_SPACES, BufferOp
from odc_mlir.dialects.npu_memory import BufferType, buffer_type
from odc_mlir.dialects.odc import KEPT_STATES
from odc_mlir.isa.fields import Space
from odc_mlir.transforms.common.rewriting import apply_patterns_to
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, ProgramPatternPass, TargetedProgram
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, spans


class NpuShareArenaPass(ProgramPatternPass):
    """Place inputs and outputs in the arena."""

    name = "npu-share-arena"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (ShareArena,)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        while KEPT_STATES in job.program.attributes and _merge_state(job.block):
            pass
        apply_patterns_to([ShareArena()], [item for item in job.block.ops if type(item) is BufferOp])
        while _continue_in_place(job.block):
            pass


_COMPUTED = (Space.ARENA, Space.OUTPUTS)  # spaces of tensors that a program computes; the host writes inputs
Span = tuple[Buffer, int, int]


def _merge_state(block: Block) -> bool:
    """Compute the next value of a state in the state's buffer instead of copying it. Returns whether this succeeded.

    If the value is an input, a different state or a constant, it is still copied, because no instruction computes it.
    """
    program = DecodedProgram(block)
    for index, command in enumerate(program.commands):
        if (found := _whole_copy(command)) is None:
            continue
        value, state = found
        if not state.takes or value.space not in _COMPUTED or value.takes:
            continue
        before, after = program.commands[:index], program.commands[index + 1 :]
        if not (_can_merge(state, value, before) and _stay_equal(state, value, after)):
            continue
        _merge(program, state, value, [index])
        return True
    return False


def _merge(program: DecodedProgram, kept: Buffer, replaced: Buffer, copies: Sequence[int]) -> None:
    """Merge ``replaced`` into the buffer ``kept``, and erase the commands ``copies`` between the two."""
    for index in copies:
        Rewriter.erase_op(program.ops[index])
    declared, other = program.declarations[kept], program.declarations[replaced]
    declared.properties["gives"] = DenseArrayBase.from_list(i32, [*kept.gives, *replaced.binds, *replaced.gives])
    other.buffer.replace_all_uses_with(declared.buffer)
    Rewriter.erase_op(other)


def _continue_in_place(block: Block) -> bool:
    """Merge a tensor that begins as a copy into the buffer of the other tensor. Returns whether this succeeded."""
    program = DecodedProgram(block)
    touched = [{buffer for found in _touched(command) for buffer, _, _ in found} for command in program.commands]
    for index, command in enumerate(program.commands):
        if (found := _whole_copy(command)) is None:
            continue
        old, new = found
        if {old.space, new.space} != {Space.ARENA} or new.takes or any(new in each for each in touched[:index]):
            continue
        after = range(index + 1, len(touched))
        back = [later for later in after if _whole_copy(program.commands[later]) == (new, old)]
        if bool(old.gives) != bool(back) or (back and _is_written(new, program.commands[back[-1] + 1 :])):
            continue
        if not any(old in touched[later] for later in after if later not in back):
            _merge(program, old, new, [index, *back])
            return True
    return False


def _whole_copy(command: Command) -> tuple[Buffer, Buffer] | None:
    if command.mnemonic != "copy":
        return None
    (source, start), (target, end) = command.places["source"], command.places["target"]
    is_whole = (start, end) == (0, 0) and source.size == target.size == command.immediates.values["bytes"]
    return (source, target) if is_whole else None


def _can_merge(state: Buffer, value: Buffer, commands: Sequence[Command]) -> bool:
    """Return whether ``commands``, which compute ``value``, may compute it in the buffer ``state``.

    The commands must not write ``state``, nor read a byte of ``state`` after writing the same byte of ``value``.
    """
    written: list[tuple[int, int]] = []
    for reads, writes in map(_touched, commands):
        if any(buffer is state for buffer, _, _ in writes):
            return False
        written += [(start, end) for buffer, start, end in writes if buffer is value]
        for buffer, start, end in reads:
            if buffer is state and any(start < last and first < end for first, last in written):
                return False
    return True


def _stay_equal(state: Buffer, value: Buffer, commands: Sequence[Command]) -> bool:
    """Return whether ``state`` and ``value`` can share a buffer during ``commands`` after a copy between the two."""
    if _is_written(value, commands):
        return False
    is_read = any(buffer is value for command in commands for buffer, _, _ in _touched(command)[0])
    return not ((value.binds or value.gives or is_read) and _is_written(state, commands))


def _is_written(buffer: Buffer, commands: Sequence[Command]) -> bool:
    return any(written is buffer for command in commands for written, _, _ in _touched(command)[1])


def _touched(command: Command) -> tuple[list[Span], list[Span]]:
    reads, writes = (
        [span for area in areas for span in spans(command.places, area)] for areas in command.immediates.effects
    )
    return reads, writes


class ShareArena(RewritePattern):
    """Make the buffer of inputs or outputs a buffer of the arena."""

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BufferOp, rewriter: PatternRewriter) -> None:
        kind = op.buffer.type
        if not isinstance(kind, BufferType) or kind.space not in BOUND_SPACES or op.binds is None:
            return
        if op.address is not None:
            return
        shared_kind, numbers = buffer_type(Space.ARENA, kind.shape, kind.element), tuple(op.binds.get_values())
        takes, gives = (numbers, ()) if kind.space is Space.INPUTS else ((), numbers)
        shared = BufferOp(op.label.data, shared_kind, takes=takes, gives=gives)
        shared.location = op.location
        rewriter.replace(op, shared)
