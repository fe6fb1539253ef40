"""Between the instruction level of the ``npu`` dialect and the records that scheduling works on.

A pass reads the block with :func:`read_program`, lets a function of :mod:`odc_mlir.transforms.npu.schedule` work on the
commands, and writes back only what changed: new instructions, semaphores, addresses. Block and records stay equal, so
that the next pass need not read again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, LocationAttr, ModuleOp, UnknownLoc, i32, i64
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import Rewriter

from odc_mlir import targets
from odc_mlir.dialects.npu_fields import Fields
from odc_mlir.dialects.npu_isa import (
    BY_MNEMONIC,
    BufferOp,
    InstructionOp,
    LoopOp,
    MemoryOp,
    is_instruction,
    missing_address,
)
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.dialects.npu_program import ProgramOp, programs
from odc_mlir.dialects.odc import TargetChoice, target_of
from odc_mlir.errors import CompileError
from odc_mlir.support.locations import hint_of, op_name
from odc_mlir.support.records import records_of
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.npu.schedule.hazards import Latest, dependences, reordered
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place, buffers_of


class TargetedProgram:
    """A program, and what it is compiled for."""

    def __init__(self, program: ProgramOp, choice: TargetChoice) -> None:
        self.program = program
        self.choice = choice
        self.target: Target = targets.load(choice.target)
        self.memory: MemoryMode = "flash" if choice.memory == "flash" else "sram"

    @property
    def block(self) -> Block:
        return self.program.block

    @property
    def sram_bytes(self) -> int:
        """SRAM that inputs, outputs and arena may take together."""
        return self.choice.sram_limit or self.target.sram.capacity_bytes


def targeted_programs(module: ModuleOp, pass_name: str) -> Iterable[TargetedProgram]:
    """The programs of ``module``; CompileError where no target was chosen."""
    choice = target_of(module)
    found = programs(module).values()
    if found and choice is None:
        raise CompileError(f"{pass_name} needs a target", hint="run odc-set-target first")
    return [TargetedProgram(program, choice) for program in found if choice is not None]


class _LayerNumbers:
    """Locations numbered in order of first use; equal ones are one layer.

    Instructions of a layer mostly share the object, and a hash of a location walks through all of it.
    """

    def __init__(self) -> None:
        self.numbers: dict[LocationAttr, int] = {}
        self._of_object: dict[int, tuple[int, LocationAttr]] = {}  # holds the object, so that its id stays its own

    def number(self, location: LocationAttr) -> int:
        """The number of the layer at ``location``."""
        known = self._of_object.get(id(location))
        if known is None:
            known = self._of_object[id(location)] = self.numbers.setdefault(location, len(self.numbers)), location
        return known[0]


class CommandProgram:
    """The commands of a block with the operations they came from."""

    def __init__(self, block: Block) -> None:
        self.block = block
        self.commands: list[Command] = []
        self._ops: dict[int, tuple[InstructionOp, dict[str, Place]]] = {}  # and the places it was read with
        self._buffer_ops: dict[Buffer, BufferOp] = {}
        self._memory_ops: dict[Buffer, MemoryOp] = {}
        self._dependences: list[Latest] | None = None
        layers, location, layer = _LayerNumbers(), None, 0
        buffers: dict[int, Buffer] = {}  # by the id of the value, which hashes faster than the value
        for op in block.ops:
            if type(op) is BufferOp:
                buffers[id(op.results[0])] = self._read_buffer(op)
            elif type(op) is MemoryOp:
                buffers[id(op.results[0])] = self._read_memory(op)
            elif is_instruction(op):
                if op.location is not location:
                    location = op.location
                    layer = layers.number(location)
                self._read_instruction(op, layer, buffers)
            else:
                first = "npu-unroll-loops" if type(op) is LoopOp else "npu-lower-to-tiles"
                raise CompileError(f"{op.name} is not an instruction", hint=f"run {first} first")
        self.locations = list(layers.numbers)

    @property
    def working(self) -> list[Command]:
        """All commands but the final halt."""
        return self.commands[: len(self.commands) - len(self._halts)]

    @property
    def dependences(self) -> list[Latest]:
        """What each of :attr:`working` depends on, found once until other commands or addresses come."""
        if self._dependences is None:
            self._dependences = dependences(self.working)
        return self._dependences

    @property
    def buffers(self) -> list[Buffer]:
        return list(self._buffer_ops)

    @property
    def layer_names(self) -> dict[Buffer, str]:
        """The name of the layer that each buffer was made for."""
        return {buffer: op_name(op) for buffer, op in self._buffer_ops.items()}

    def require_addresses(self, *, local: bool = False) -> None:
        """Raise CompileError where a buffer has no address; ``local``: one of a local memory."""
        for buffer, op in self._buffer_ops.items():
            if buffer.address is None and (buffer.space.is_local or not local):
                raise missing_address(buffer.name, buffer.space, op_name(op))

    def _read_buffer(self, op: BufferOp) -> Buffer:
        kind = op.results[0].type
        assert isinstance(kind, BufferType)
        address = None if op.address is None else op.address.value.data
        data = None if op.data is None else op.data.bytes
        binds, takes, gives = (() if n is None else tuple(n.get_values()) for n in (op.binds, op.takes, op.gives))
        live = None
        if op.live is not None:
            first, last = op.live.get_values()
            live = (first, last)
        buffer = Buffer(op.label.data, kind.space, kind.size, address, data, binds, live, kind.shape, kind.element)
        buffer.takes, buffer.gives = takes, gives
        self._buffer_ops[buffer] = op
        return buffer

    def _read_memory(self, op: MemoryOp) -> Buffer:
        buffer = Buffer(f"{op.space.value} memory", op.space, op.size, 0, is_memory=True)
        self._memory_ops[buffer] = op
        return buffer

    def _read_instruction(self, op: InstructionOp, layer: int, buffers: dict[int, Buffer]) -> None:
        fields, places = op.field_values, {}
        operands = iter(op._operands)
        for name, offset in zip(op.SPEC.place_names, fields.offsets, strict=True):
            if offset is not None:
                places[name] = buffers[id(next(operands))], offset
        command = Command(fields.immediates, places, layer, fields.queue)
        if len(op.properties) > 1:  # than the fields
            command.waits, command.posts = op.semaphores("waits"), op.semaphores("posts")
        self.commands.append(command)
        self._ops[id(command)] = op, places

    def update(self, commands: Sequence[Command]) -> None:
        """Make the block hold ``commands`` before its halt, and no buffer that nothing names.

        They are the program's own, in the same order, with others between them; what changed of a command's places and
        semaphores goes into its operation.
        """
        self._dependences = None
        values: dict[Buffer, SSAValue] = {buffer: op.results[0] for buffer, op in self._buffer_ops.items()}
        values |= {buffer: op.results[0] for buffer, op in self._memory_ops.items()}
        first = self.block.first_op
        assert first is not None, "a program ends in halt"
        following = iter([self._ops[id(command)][0] for command in self.commands])
        position = next(following)
        new_buffers: dict[Buffer, BufferOp] = {}
        for command in commands:
            op, places = self._ops.get(id(command), (None, None))
            if command.places is not places:
                for buffer, _ in command.places.values():
                    if buffer not in values:
                        made = new_buffers[buffer] = make_buffer(buffer, self._location(command))
                        values[buffer] = made.buffer
            if op is None:
                made_op = make_instruction(command, values, self._location(command))
                self._ops[id(command)] = made_op, command.places
                self.block.insert_op_before(made_op, position)
                continue
            assert op is position, "commands keep their order"
            if command.places is not places:
                operands, fields = _fields_of(command, values)
                op.operands = operands
                op.set_fields(fields)
                self._ops[id(command)] = op, command.places
            if command.waits or command.posts or len(op.properties) > 1:
                set_semaphores(op, command)
            position = next(following)
        if new_buffers:
            self.block.insert_ops_before(list(new_buffers.values()), first)
        self.commands = [*commands, *self._halts]
        self._buffer_ops = new_buffers | self._buffer_ops
        self._drop_unused()

    @property
    def _halts(self) -> list[Command]:
        """What ends the program; nothing where that has been left out."""
        return [command for command in self.commands[-1:] if command.mnemonic == "halt"]

    def _drop_unused(self) -> None:
        """Erase buffers that no instruction names."""
        for buffer, op in list(self._buffer_ops.items()):
            if op.results[0].first_use is None:
                del self._buffer_ops[buffer]
                Rewriter.erase_op(op)
                op.properties.clear()  # a constant's bytes: an operation and its result refer to each other

    def reorder(self, commands: Sequence[Command]) -> None:
        """Put the program's own ``commands`` into this order, and buffers in that of their first use on top of them.

        What conflicts, and commands of one queue, keep their order.
        """
        if self._dependences is not None:
            self._dependences = reordered(self._dependences, self.working, commands)
        self._drop_unused()
        used = (buffer for buffer in buffers_of(commands) if not buffer.is_memory)
        self._buffer_ops = {buffer: self._buffer_ops[buffer] for buffer in used}
        self.commands = [*commands, *self._halts]
        declared = (*self._memory_ops.values(), *self._buffer_ops.values())
        ordered: list[Operation] = [*declared, *(self._ops[id(item)][0] for item in self.commands)]
        position = self.block.first_op  # all in front of it is in order
        for op in ordered:
            if op is position:
                position = op.next_op
                continue
            assert position is not None, "a program's operations are its buffers and instructions"
            self.block.detach_op(op)
            self.block.insert_op_before(op, position)

    def keep_alive(self) -> None:
        """Write how long buffers are kept beyond their use."""
        for buffer, op in self._buffer_ops.items():
            if buffer.live is not None:
                op.properties["live"] = _ints(buffer.live)

    def set_addresses(self) -> None:
        """Write the addresses of all buffers; how long they were to live has served its purpose then."""
        self._dependences = None
        for buffer, op in self._buffer_ops.items():
            if buffer.address is not None:
                op.properties["address"] = integer(buffer.address)
                op.properties.pop("live", None)
                buffer.live = None

    def _location(self, command: Command) -> LocationAttr:
        return self.locations[command.layer] if command.layer >= 0 else UnknownLoc()


def read_program(context: Context, job: TargetedProgram) -> CommandProgram:
    """The records of a program, those of the pass before where that kept them."""
    return records_of(context, job.program, lambda: CommandProgram(job.block))


@lru_cache(maxsize=65_536)
def integer(value: int) -> IntegerAttr:
    """A shared i64 attribute."""
    return IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _ints(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i32, list(values))


def make_buffer(buffer: Buffer, location: LocationAttr) -> BufferOp:
    """Return the operation that declares ``buffer``."""
    op = BufferOp(buffer.name, buffer.type, address=buffer.address, data=buffer.data, binds=buffer.binds)
    op.buffer.name_hint = hint_of(buffer.name)
    op.location = location
    return op


def make_instruction(command: Command, values: dict[Buffer, SSAValue], location: LocationAttr) -> InstructionOp:
    """The operation of ``command``; ``values``: the value of each buffer."""
    operands, fields = _fields_of(command, values)
    op = BY_MNEMONIC[command.mnemonic].of(fields, operands, location)
    if command.waits or command.posts:
        set_semaphores(op, command)
    return op


def _fields_of(command: Command, values: dict[Buffer, SSAValue]) -> tuple[list[SSAValue], Fields]:
    """The buffers that ``command`` names, and all its fields."""
    immediates, places = command.immediates, command.places
    operands: list[SSAValue] = []
    offsets: list[int | None] = []
    for name in immediates.spec.place_names:
        place = places.get(name)
        if place is None:
            offsets.append(None)
        else:
            operands.append(values[place[0]])
            offsets.append(place[1])
    return operands, Fields(immediates, tuple(offsets), command.queue)


def set_semaphores(op: InstructionOp, command: Command) -> None:
    """Write waits and posts."""
    properties = op.properties
    for name, tokens in (("waits", command.waits), ("posts", command.posts)):
        if tokens:
            properties[name] = _ints(tokens)
        elif name in properties:
            del properties[name]
