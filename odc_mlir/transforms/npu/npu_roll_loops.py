"""``npu-roll-loops``: turn repetitions in a finished program into hardware loops.

Before::

    npu.isa.load source %x target %slot … waits [3]
    npu.isa.conv … input %slot … posts [3]
    npu.isa.load source %x + 64 target %slot … waits [3]
    npu.isa.conv … input %slot … posts [3]
    …

After::

    npu.loop 16 {
      npu.isa.load source %x step 64 target %slot … waits [3]
      npu.isa.conv … input %slot … posts [3]
    }

The NPU issues the same instructions in the same order with the same addresses. The binary holds the body once, and the
NPU fetches it once. Dynamic programming finds the cheapest cover of the program by loops and single instructions. The
body of a loop fits in the loop buffer. It holds tiles of one tensor operation and of operations fused with it, or
stripes of a chain. If an address steps from one buffer into the next, the instruction refers to the whole memory
(``npu.memory``). Unused buffers of local memories are removed. All buffers need addresses. Existing loops are kept.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import DictionaryAttr, LocationAttr, StringAttr
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir.dialects import npu_isa
from odc_mlir.dialects.npu_memory import BufferType, flat_type
from odc_mlir.dialects.npu_program import FUSED
from odc_mlir.isa.fields import STEP_BLOCK_BYTES, Space
from odc_mlir.isa.instructions import BY_MNEMONIC, field_range
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPass, TargetedProgram


class NpuRollLoopsPass(ProgramPass):
    """Replace repeated instructions by hardware loops."""

    name = "npu-roll-loops"

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        program = [item for item in job.block.ops if type(item) not in _DECLARATIONS]
        homes = _Homes(job.program.attributes.get(FUSED))
        issues = [_issue(item, homes) for item in program]
        memories = _Memories(job.block, homes)
        for loop in find_loops(issues, job.target.fetch.loop_buffer_bytes):
            _roll(program, issues, loop, memories, homes)
        memories.drop_unused_slots()


_DECLARATIONS = (npu_isa.BufferOp, npu_isa.MemoryOp)


class _Homes(npu_isa.Homes):
    """Cache of the memory and address of each buffer, and of the name of each layer.

    ``fused``: map from the name of a fused layer to the name of the layer that computes it.
    """

    def __init__(self, fused: Attribute | None) -> None:
        super().__init__()
        self._fused = fused.data if isinstance(fused, DictionaryAttr) else {}
        self._layers: dict[int, tuple[str, LocationAttr]] = {}  # keeps locations alive, so that ids stay unique

    def layer(self, op: Operation) -> str:
        known = self._layers.get(id(op.location))
        if known is None:
            known = self._layers[id(op.location)] = op_name(op), op.location
        return known[0]

    def group(self, layer: str) -> str:
        """Return the layer whose loops may contain instructions of ``layer``."""
        found = self._fused.get(layer)
        return found.data if type(found) is StringAttr else layer


def _issue(op: Operation, homes: _Homes) -> IssuedInstruction:
    """Return the properties of ``op`` that determine which loops may contain it."""
    if not npu_isa.is_instruction(op) or op.SPEC.mnemonic == "halt":
        return _APART
    fields, layer, spec = op.field_values, homes.layer(op), op.SPEC
    following = iter(op._operands)
    where: list[object] = []  # operand numbers and memories of addresses, and fixed addresses
    addresses: list[int] = []
    bits: list[int] = []
    for (number, fixed, step_bits), offset in zip(spec.place_steps, fields.offsets, strict=True):
        if offset is not None:
            space, base = homes.of(op, next(following))
            addresses.append(base + offset)
            bits.append(step_bits)
            where.append(number)
            where.append(space)
            if fixed:
                where.append(base + offset)
    kind = (fields.immediates, fields.queue, op.semaphores("waits"), op.semaphores("posts"), layer, *where)
    return IssuedInstruction(kind, homes.group(layer), tuple(addresses), tuple(bits), spec.size_bytes)


class _Memories:
    def __init__(self, block: Block, homes: npu_isa.Homes) -> None:
        self.block = block
        self.buffers: list[npu_isa.BufferOp] = []
        self._whole: dict[Space, npu_isa.MemoryOp] = {}
        self._ends: dict[Space, int] = {}  # end of the last buffer in each memory
        for op in block.ops:
            if type(op) is npu_isa.BufferOp:
                self.buffers.append(op)
                space, address = homes.of(op, op.results[0])
                self._ends[space] = max(self._ends.get(space, 0), address + op.size)
            elif type(op) is npu_isa.MemoryOp:
                self._whole[op.space] = op

    def whole(self, space: Space, like: Operation) -> SSAValue:
        """Return the whole memory ``space``, up to the end of its last buffer."""
        if space not in self._whole:
            made = npu_isa.MemoryOp(flat_type(space, self._ends[space]))
            made.location = like.location
            self.block.insert_op_before(made, next(iter(self.block.ops)))
            self._whole[space] = made
        return self._whole[space].buffer

    def drop_unused_slots(self) -> None:
        for op in self.buffers:
            made = op.results[0]
            type_ = made.type
            if made.first_use is None and isinstance(type_, BufferType) and type_.space in npu_isa.LOCAL_SPACES:
                Rewriter.erase_op(op)


def _roll(
    program: list[npu_isa.InstructionOp | npu_isa.LoopOp],
    issues: list[IssuedInstruction],
    loop: Loop,
    memories: _Memories,
    homes: _Homes,
) -> None:
    end = loop.start + loop.length * loop.iterations
    body, rest = program[loop.start : loop.start + loop.length], program[loop.start + loop.length : end]
    made = npu_isa.LoopOp(loop.iterations, Region(Block()))
    made.location = body[0].location
    memories.block.insert_op_before(made, body[0])
    for index, op in enumerate(body, loop.start):
        assert npu_isa.is_instruction(op), "loops contain only instructions"
        first, second = issues[index].addresses, issues[index + loop.length].addresses
        steps = [after - before for before, after in zip(first, second, strict=True)]
        if any(steps):
            _step(op, first, steps, loop.iterations, memories, homes)
        memories.block.detach_op(op)
        made.body.block.add_op(op)
    for op in rest:  # quicker than Rewriter.erase_op, which also handles results: instructions have none
        memories.block.detach_op(op)
        op.drop_all_references()


def _step(
    op: npu_isa.InstructionOp,
    addresses: tuple[int, ...],
    steps: list[int],
    iterations: int,
    memories: _Memories,
    homes: _Homes,
) -> None:
    """Set the address steps of ``op``. An address that leaves its buffer becomes an address in the whole memory."""
    fields, operands = op.field_values, list(op._operands)
    names, offsets, advance = op.SPEC.place_names, list(fields.offsets), {}
    used = [index for index, offset in enumerate(offsets) if offset is not None]
    leaves = False
    for operand, (index, address, step) in enumerate(zip(used, addresses, steps, strict=True)):
        if not step:
            continue
        advance[names[index]] = step
        type_ = operands[operand].type
        assert isinstance(type_, BufferType)
        space, base = homes.of(op, operands[operand])
        if not 0 <= address - base + step * (iterations - 1) < type_.size:
            operands[operand] = memories.whole(space, op)
            offsets[index] = address
            leaves = True
    if leaves:
        op.operands = operands
    of_addresses = tuple(advance.get(field.name, 0) for field in op.SPEC.addresses)
    op.set_fields(fields._replace(offsets=tuple(offsets), steps=of_addresses))


LONGEST_BODY = 96  # instructions
_FRAME_BYTES = BY_MNEMONIC["loop"].size_bytes + BY_MNEMONIC["end"].size_bytes
_MOST_ITERATIONS = field_range("loop", "count")[1]


Numbers = NDArray[np.integer[Any]]
"""Array of 64-bit numbers, or of 32-bit positions, kinds or addresses, because these are read a hundred times."""


class IssuedInstruction(NamedTuple):
    """Properties of an instruction that determine which loops may contain it.

    ``kind``: equal for instructions that differ only in addresses, None for an instruction outside of loops. ``layer``:
    equal for instructions that may share a loop. ``addresses``: absolute addresses. ``step_bits``: width of each
    address step.
    """

    kind: Hashable | None
    layer: Hashable
    addresses: tuple[int, ...]
    step_bits: tuple[int, ...]
    size_bytes: int


_APART = IssuedInstruction(None, None, (), (), 0)


class Loop(NamedTuple):
    """Loop with the body ``[start, start + length)``, in instruction numbers."""

    start: int
    length: int
    iterations: int


def find_loops(program: Sequence[IssuedInstruction], buffer_bytes: int) -> list[Loop]:
    """Return the loops of the cheapest form of ``program``, in order. Bodies fit in ``buffer_bytes``."""
    chosen = _best_loops(program, buffer_bytes)
    loops: list[Loop] = []
    index = 0
    while index < len(program):
        loop = chosen[index]
        if loop is None:
            index += 1
            continue
        loops.append(loop)
        index += loop.length * loop.iterations
    return loops


def _best_loops(program: Sequence[IssuedInstruction], buffer_bytes: int) -> list[Loop | None]:
    """Return, for each position, the loop that starts there in the cheapest cover of the rest of the program."""
    candidates = _candidates(program, buffer_bytes)
    from_the_end = np.argsort(-candidates[0], kind="stable")  # last position first; at a position, shortest body first
    following = zip(*candidates[:, from_the_end].tolist(), strict=True)
    cost = [0] * (len(program) + 1)
    chosen: list[Loop | None] = [None] * len(program)
    start, length, count, size = next(following, _NO_CANDIDATE)
    for index in range(len(program) - 1, -1, -1):
        least = cost[index + 1] + program[index].size_bytes
        while start == index:
            total = size + cost[index + length * count]
            if total < least:
                least, chosen[index] = total, Loop(index, length, count)
            start, length, count, size = next(following, _NO_CANDIDATE)
        cost[index] = least
    return chosen


_NO_CANDIDATE = (-1, 0, 0, 0)


def _candidates(program: Sequence[IssuedInstruction], buffer_bytes: int) -> NDArray[np.int64]:
    """Return loops with as many iterations as possible, as columns (position, instructions, iterations, bytes).

    Columns are sorted by body length.
    """
    kinds, addresses, sizes = _arrays(program)
    low, high = _step_limits(program)
    starts = np.concatenate(([0], np.cumsum(sizes)))
    of_one_layer = _run_lengths(np.array([one.layer == two.layer for one, two in pairwise(program)], bool))
    found = [np.zeros((len(_NO_CANDIDATE), 0), np.int64)]
    repeats = kinds >= 0
    for length in range(1, min(LONGEST_BODY, len(program) // 2) + 1):
        equal = (kinds[:-length] == kinds[length:]) & repeats[:-length]
        if not (_run_lengths(equal) >= length).any():  # true for most lengths, and cheaper than comparing addresses
            continue
        steps = addresses[:, length:] - addresses[:, :-length]
        equal &= ((steps >= low[:, :-length]) & (steps <= high[:, :-length])).all(axis=0)
        first = _run_lengths(equal)
        places = np.flatnonzero((first >= length) & (of_one_layer[: len(first)] >= length - 1))
        if not len(places):
            continue
        regular = equal[:-length] & equal[length:] & (steps[:, :-length] == steps[:, length:]).all(axis=0)
        more = np.zeros_like(first)
        more[: len(regular)] = _run_lengths(regular)
        stepped = np.concatenate(([0], np.cumsum((steps != 0).any(axis=0))))
        counts = np.minimum(2 + more[places] // length, _MOST_ITERATIONS)
        bodies = starts[places + length] - starts[places]
        bodies += STEP_BLOCK_BYTES * (stepped[places + length] - stepped[places])
        straight = starts[places + length * counts] - starts[places]
        shorter = (bodies <= buffer_bytes) & (bodies + _FRAME_BYTES < straight)
        chosen = np.zeros((len(_NO_CANDIDATE), int(shorter.sum())), np.int64)
        chosen[0], chosen[1], chosen[2] = places[shorter], length, counts[shorter]
        chosen[3] = bodies[shorter] + _FRAME_BYTES
        found.append(chosen)
    return np.concatenate(found, axis=1)


def _arrays(program: Sequence[IssuedInstruction]) -> tuple[Numbers, Numbers, Numbers]:
    """Return each instruction's kind (-1: outside of loops), addresses (a row per address field), and bytes."""
    numbers: dict[Hashable, int] = {}
    kinds = [-1 if item.kind is None else numbers.setdefault(item.kind, len(numbers)) for item in program]
    addresses = _columns([item.addresses for item in program], 0)
    return np.array(kinds, np.int32), addresses, np.array([item.size_bytes for item in program])


def _step_limits(program: Sequence[IssuedInstruction]) -> tuple[Numbers, Numbers]:
    high = ((1 << (_columns([item.step_bits for item in program], 1).astype(np.int64) - 1)) - 1).astype(np.int32)
    return -high - 1, high


def _columns(rows: Sequence[tuple[int, ...]], missing: int) -> Numbers:
    width = max(1, max(map(len, rows), default=0))
    padding = (missing,) * width
    table = np.array([row + padding[len(row) :] for row in rows], np.int32).reshape(len(rows), width)
    return np.ascontiguousarray(table.T)


def _run_lengths(flags: NDArray[np.bool_]) -> Numbers:
    positions = np.arange(len(flags), dtype=np.int32)
    stops = np.where(flags, np.int32(len(flags)), positions)
    ends: Numbers = np.minimum.accumulate(stops[::-1])[::-1]
    return ends - positions
