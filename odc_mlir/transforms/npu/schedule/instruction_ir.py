"""Programs of instructions in the IR: construction, decoding to records, and base classes of passes."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from xdsl.context import Context
from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, LocationAttr, ModuleOp, i32, i64
from xdsl.ir import Block, SSAValue
from xdsl.passes import ModulePass
from xdsl.rewriter import Rewriter

from odc_mlir import targets
from odc_mlir.dialects import npu_isa
from odc_mlir.dialects.npu_isa import Fields
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.dialects.npu_program import ProgramOp, programs
from odc_mlir.dialects.odc import TargetChoice, target_of
from odc_mlir.errors import CompileError
from odc_mlir.support.deadline import checkpoint
from odc_mlir.support.locations import hint_of, op_name
from odc_mlir.targets import MemoryMode, Target
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.npu.schedule.program import Buffer, Command, Place


class TargetedProgram:
    """Program with its target, memory mode and SRAM limit."""

    def __init__(self, program: ProgramOp, choice: TargetChoice) -> None:
        self.program = program
        self.choice = choice
        self.target: Target = targets.load(choice.target)
        self.memory: MemoryMode = "flash" if choice.memory == "flash" else "sram"

    @property
    def block(self) -> Block:
        return self.program.block

    def on(self, target: Target) -> TargetedProgram:
        """Return the program with another target."""
        other = TargetedProgram(self.program, self.choice)
        other.target = target
        return other

    @property
    def sram_bytes(self) -> int:
        """SRAM limit for inputs, outputs and arena together."""
        capacity = self.target.sram.capacity_bytes
        return min(self.choice.sram_limit or capacity, capacity)


def targeted_programs(module: ModuleOp, pass_name: str) -> Iterable[TargetedProgram]:
    """Return the programs of ``module``. Raises CompileError if the module has no target."""
    choice = target_of(module)
    found = programs(module).values()
    if found and choice is None:
        raise CompileError(f"{pass_name} needs a target", hint="run odc-set-target first")
    return [TargetedProgram(program, choice) for program in found if choice is not None]


class DecodedProgram:
    """Records of a program's instructions and buffers, invalid after any change of the IR.

    Passes read the records and change the operations. No pass hands its records to another pass.
    """

    def __init__(self, block: Block) -> None:
        self.commands: list[Command] = []
        self.ops: list[npu_isa.InstructionOp] = []
        self.declarations: dict[Buffer, npu_isa.BufferOp | npu_isa.MemoryOp] = {}
        buffers: dict[int, Buffer] = {}  # by the id of the value, which hashes faster than the value
        numbers: dict[LocationAttr, int] = {}
        location, layer = None, 0
        for op in block.ops:
            kind = type(op)
            if npu_isa.is_instruction(op):
                if op.location is not location:  # instructions of a layer mostly share a location object
                    location = op.location
                    layer = numbers.setdefault(location, len(numbers))
                self.commands.append(_decoded(op, layer, buffers))
                self.ops.append(op)
            elif isinstance(op, npu_isa.BufferOp | npu_isa.MemoryOp):
                made = buffers[id(op.results[0])] = _decoded_buffer(op)
                self.declarations[made] = op
            else:
                first = "npu-unroll-loops" if kind is npu_isa.LoopOp else "npu-lower-to-tiles"
                raise CompileError(f"{op.name} is not an instruction", hint=f"run {first} first")
        self.locations = list(numbers)  # indexed by layer number

    @property
    def working(self) -> list[Command]:
        """All commands except the final halt."""
        ends = bool(self.commands) and self.commands[-1].mnemonic == "halt"
        return self.commands[:-1] if ends else self.commands

    @property
    def buffers(self) -> list[Buffer]:
        """All buffers except whole memories."""
        return [buffer for buffer in self.declarations if not buffer.is_memory]

    @property
    def layer_names(self) -> dict[Buffer, str]:
        """Name of the layer that each buffer belongs to."""
        return {buffer: op_name(op) for buffer, op in self.declarations.items()}

    def require_addresses(self, *, local: bool = False) -> None:
        """Raise CompileError if a buffer, with ``local`` a buffer of a local memory, has no address."""
        for buffer, op in self.declarations.items():
            if buffer.address is None and (buffer.space.is_local or not local):
                raise npu_isa.missing_address(buffer.name, buffer.space, op_name(op))


def erase_unused(buffers: Iterable[npu_isa.BufferOp]) -> None:
    """Erase the buffers without uses."""
    for op in buffers:
        if op.buffer.first_use is None:
            Rewriter.erase_op(op)
            op.properties.clear()  # frees a constant's bytes at once: operation and result form a reference cycle


def _decoded_buffer(op: npu_isa.BufferOp | npu_isa.MemoryOp) -> Buffer:
    if isinstance(op, npu_isa.MemoryOp):
        return Buffer(f"{op.space.value} memory", op.space, op.size, 0, is_memory=True)
    kind = op.results[0].type
    assert isinstance(kind, BufferType)
    space, size, shape, element = kind.facts
    address = None if op.address is None else op.address.value.data
    data = None if op.data is None else op.data.bytes
    live = None if op.live is None else op.live.get_values()
    binds, takes, gives = (() if n is None else tuple(n.get_values()) for n in (op.binds, op.takes, op.gives))
    lifetime = None if live is None else (live[0], live[1])
    return Buffer(op.label.data, space, size, address, data, binds, lifetime, shape, element, takes, gives)


def _decoded(op: npu_isa.InstructionOp, layer: int, buffers: dict[int, Buffer]) -> Command:
    immediates, offsets, queue, _ = op.field_values
    places: dict[str, Place] = {}
    operands = iter(op._operands)
    for name, offset in zip(immediates.spec.place_names, offsets, strict=True):
        if offset is not None:
            places[name] = buffers[id(next(operands))], offset
    command = Command(immediates, places, layer, queue)
    if len(op.properties) > 1:  # has waits or posts
        command.waits, command.posts = op.semaphores("waits"), op.semaphores("posts")
    return command


@lru_cache(maxsize=65_536)
def integer(value: int) -> IntegerAttr:
    """Return a shared i64 attribute."""
    return IntegerAttr(value, i64)


@lru_cache(maxsize=4096)
def _ints(values: tuple[int, ...]) -> DenseArrayBase:
    return DenseArrayBase.from_list(i32, list(values))


def make_buffer(buffer: Buffer, location: LocationAttr) -> npu_isa.BufferOp:
    """Return the operation that declares ``buffer``."""
    op = npu_isa.BufferOp(
        buffer.name,
        buffer.type,
        address=buffer.address,
        data=buffer.data,
        binds=buffer.binds,
        takes=buffer.takes,
        gives=buffer.gives,
    )
    op.buffer.name_hint = hint_of(buffer.name)
    if buffer.live is not None:
        op.properties["live"] = _ints(buffer.live)
    op.location = location
    return op


def make_instruction(
    command: Command, values: Mapping[Buffer, SSAValue], location: LocationAttr
) -> npu_isa.InstructionOp:
    """Return the operation of ``command`` without semaphores. ``values``: SSA value of each buffer."""
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
    fields = Fields(immediates, tuple(offsets), command.queue)
    return npu_isa.BY_MNEMONIC[command.mnemonic].of(fields, operands, location)


def set_semaphores(op: npu_isa.InstructionOp, **tokens: Sequence[int]) -> None:
    """Set the semaphores that ``op`` ``waits`` on or ``posts``."""
    for name, numbers in tokens.items():
        if numbers:
            op.properties[name] = _ints(tuple(numbers))
        else:
            op.properties.pop(name, None)


class ProgramPass(ModulePass):
    """Pass that runs on every program of a module and ignores other operations."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for job in targeted_programs(op, self.name):
            checkpoint(ctx)
            self.apply_to(ctx, job)

    @abstractmethod
    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        """Run on one program."""


class ProgramPatternPass(ProgramPass, PatternPass):
    """Pass that applies patterns to each program of a module."""
