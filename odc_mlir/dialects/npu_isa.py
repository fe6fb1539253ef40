"""The ``npu`` dialect at instruction level: buffers, and one operation per row of the instruction table.

::

    %input = npu.buffer "x" at 0 : !npu.buffer<inputs, 1x32x32x3xi8>
    %slot = npu.buffer "slot" at 64 : !npu.buffer<tile, 8x32x16xi8>
    npu.loop 3 {
      npu.isa.load source %input + 1024 step 512 target %slot size0 16 size1 8 size2 8 waits [3]
    }
    npu.isa.halt

The program is the linear order of the block, whatever queue an instruction runs in; ``npu.isa.halt`` ends it. Address
fields are buffers with an optional offset, enum fields are words, all others integers; a field left out has its
default, 1 for factors that change nothing then, else 0. ``waits`` and ``posts`` name semaphores; there are none until
``npu-insert-sync`` has run. ``npu.loop`` repeats its body and adds the steps of its instructions to their addresses
after every iteration; there are none until ``npu-roll-loops`` has run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, StringAttr, i32, i64
from xdsl.ir import Attribute, Operation, Region, SSAValue
from xdsl.irdl import (
    AnyAttr,
    AttrSizedOperandSegments,
    EqAttrConstraint,
    IRDLOperation,
    ParamAttrConstraint,
    VerificationContext,
    irdl_op_definition,
    operand_def,
    opt_operand_def,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
)
from xdsl.irdl.declarative_assembly_format import (
    CustomDirective,
    OperandDirective,
    OperandVariable,
    OptionalOperandVariable,
    ParsingState,
    PrintingState,
    TypeDirective,
    irdl_custom_directive,
)
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_attributes import BlobAttr
from odc_mlir.dialects.npu_memory import BufferType, RecordType, SpaceAttr
from odc_mlir.dialects.npu_tiling import ResidentAttr, TilingAttr
from odc_mlir.errors import CompileError
from odc_mlir.isa.codec import MAX_POSTS, MAX_WAITS
from odc_mlir.isa.fields import OFFSET_BITS, SEMAPHORES, Field, Instruction, Kind, Queue, Space
from odc_mlir.isa.instructions import BY_MNEMONIC as INSTRUCTION_TABLE
from odc_mlir.isa.instructions import INSTRUCTIONS, field_range
from odc_mlir.support.locations import op_name

PREFIX = "npu.isa."
OFFSET_SUFFIX, STEP_SUFFIX = "_offset", "_step"
_SEGMENTS = "operandSegmentSizes"
UNROLLED = ("loop", "end")  # instructions that are no operations: npu.loop stands for both
LOCAL_SPACES = tuple(space for space in Space if space.is_local)
REGION_SPACES = tuple(space for space in Space if not space.is_local)
BOUND_SPACES = (Space.INPUTS, Space.OUTPUTS)
WORDS_OF_QUEUES = tuple(queue.name.lower() for queue in Queue)


class _Int64(ParamAttrConstraint[IntegerAttr[IntegerType]]):
    """``IntegerAttr.constr(type=i64)`` with a short cut: programs have hundreds of thousands of fields."""

    def verify(self, attr: Attribute, constraint_context: VerificationContext) -> None:
        if type(attr) is not IntegerAttr or attr.type is not i64:
            super().verify(attr, constraint_context)


INT = _Int64(IntegerAttr, (AnyAttr(), EqAttrConstraint(i64)))
INTS = DenseArrayBase.constr(i32)


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A range of one memory; ``address`` is its offset there, which the passes of stage ``npu-alloc`` give.

    ``data`` is the content of a buffer in the constants region, ``binds`` the numbers of the program's inputs or
    outputs that a buffer of these regions holds. A buffer of the arena holds inputs, which are there when the program
    starts, by ``takes``, and outputs, which are there when it ends, by ``gives``. ``live`` asks ``npu-allocate-memory``
    to keep the bytes of a buffer in the arena for longer than its instructions do: from the first to the last
    instruction of the two numbers, counted without copies of constants.
    """

    name = "npu.buffer"

    label = prop_def(StringAttr)
    address = opt_prop_def(INT)
    data = opt_prop_def(BlobAttr)
    binds = opt_prop_def(INTS)
    takes = opt_prop_def(INTS)
    gives = opt_prop_def(INTS)
    live = opt_prop_def(INTS)
    buffer = result_def(BufferType)

    assembly_format = (
        "$label (`at` $address^)? (`data` $data^)? (`binds` $binds^)? (`takes` $takes^)? (`gives` $gives^)?"
        " (`live` $live^)? attr-dict `:` type($buffer)"
    )

    def __init__(
        self,
        label: str,
        type_: BufferType,
        *,
        address: int | None = None,
        data: bytes | None = None,
        binds: Sequence[int] = (),
        takes: Sequence[int] = (),
        gives: Sequence[int] = (),
    ) -> None:
        properties: dict[str, Attribute | None] = {
            "label": StringAttr(label),
            "address": None if address is None else IntegerAttr(address, i64),
            "data": None if data is None else BlobAttr.of(data),
            "binds": DenseArrayBase.from_list(i32, list(binds)) if binds else None,
            "takes": DenseArrayBase.from_list(i32, list(takes)) if takes else None,
            "gives": DenseArrayBase.from_list(i32, list(gives)) if gives else None,
        }
        super().__init__(properties=properties, result_types=[type_])

    @property
    def size(self) -> int:
        """Units of the buffer."""
        type_ = self.buffer.type
        assert isinstance(type_, BufferType)
        return type_.size

    def verify_(self) -> None:
        type_ = self.buffer.type
        assert isinstance(type_, BufferType)
        if self.address is not None and not 0 <= self.address.value.data < 1 << OFFSET_BITS:
            raise VerifyException(f"{self.name}: address {self.address.value.data} cannot be encoded")
        if (self.data is not None) != (type_.space is Space.CONSTANTS):
            verb = "needs" if self.data is None else "takes no"
            raise VerifyException(f"{self.name} in {type_.space} {verb} data")
        if self.binds is not None and type_.space not in BOUND_SPACES:
            raise VerifyException(f"{self.name} in {type_.space} takes no number of an input or output")
        if (self.takes is not None or self.gives is not None) and type_.space is not Space.ARENA:
            raise VerifyException(
                f"{self.name} in {type_.space} is no place for inputs and outputs beside other tensors"
            )
        if self.live is not None:
            if type_.space is not Space.ARENA:
                raise VerifyException(f"{self.name} in {type_.space} takes no time to live")
            first_last = _integers(self.live)
            if len(first_last) != 2 or not 0 <= first_last[0] <= first_last[1]:
                raise VerifyException(f"{self.name}: live is {first_last}, expected a first and a last instruction")
            if self.address is not None or self.takes is not None or self.gives is not None:
                what = "an address" if self.address is not None else "inputs or outputs"
                raise VerifyException(f"{self.name} has {what}, and takes no time to live")
        if self.data is not None and self.data.data.size != type_.size:
            raise VerifyException(f"{self.name} of {type_.size} bytes has {self.data.data.size} bytes of data")


@irdl_op_definition
class MemoryOp(IRDLOperation):
    """All of one memory, from address 0: what an instruction refers to that steps from one buffer to the next."""

    name = "npu.memory"

    buffer = result_def(BufferType)

    assembly_format = "attr-dict `:` type($buffer)"

    def __init__(self, type_: BufferType) -> None:
        super().__init__(result_types=[type_])

    @property
    def space(self) -> Space:
        """Which memory it is."""
        type_ = self.buffer.type
        assert isinstance(type_, BufferType)
        return type_.space

    @property
    def size(self) -> int:
        """Units that the program uses of it."""
        type_ = self.buffer.type
        assert isinstance(type_, BufferType)
        return type_.size


@irdl_op_definition
class LoopOp(IRDLOperation):
    """The hardware loop: runs its body ``count`` times. Loops do not nest."""

    name = "npu.loop"

    count = prop_def(INT)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())
    assembly_format = "$count $body attr-dict"

    def __init__(self, count: int, body: Region) -> None:
        super().__init__(properties={"count": IntegerAttr(count, i64)}, regions=[body])

    @property
    def iterations(self) -> int:
        """How often the body runs."""
        return self.count.value.data

    @property
    def instructions(self) -> list[InstructionOp]:
        """The body, verified to hold nothing else."""
        return [op for op in self.body.block.ops if isinstance(op, InstructionOp)]

    def verify_(self) -> None:
        low, high = 1, field_range("loop", "count")[1]
        if not low <= self.iterations <= high:
            raise VerifyException(f"{self.name} runs {self.iterations} times, allowed: {low} to {high}")
        if self.body.block.first_op is None:
            raise VerifyException(f"{self.name} has an empty body")
        for op in self.body.block.ops:
            if not isinstance(op, InstructionOp) or op.SPEC.mnemonic == "halt":
                raise VerifyException(f"{self.name} holds {op.name}, allowed: instructions other than halt")


@irdl_custom_directive
class TypeOfBuffer(CustomDirective):
    """``custom<TypeOfBuffer>(ref($x), type($x))``: no text, because the buffer stands above with its type."""

    operand: OperandDirective
    type: TypeDirective

    def parse(self, parser: Parser, state: ParsingState) -> None:
        assert isinstance(self.operand, OperandVariable | OptionalOperandVariable)
        found = state.operands[self.operand.index]
        types = []
        for used in found if isinstance(found, Sequence) else [found]:
            assert used is not None, "parsed before its type"
            values = parser.ssa_values.get(used.operand_name, ())
            if used.index >= len(values):
                parser.raise_error("a buffer is used before it is defined", used.span.start, used.span.end)
            types.append(values[used.index].type)
        self.type.set(state, types)

    def print(self, printer: Printer, state: PrintingState, op: IRDLOperation) -> None:
        """Print nothing."""

    def set_empty(self, state: ParsingState) -> None:
        self.type.set_empty(state)


Form = tuple[type[Attribute], Attribute | None]
"""The class of a property, and of which type the integers in it are."""

_INTEGER: Form = (IntegerAttr, i64)
_INTEGERS: Form = (DenseArrayBase, i32)
_WORD: Form = (StringAttr, None)
_ELEMENTS = {IntegerAttr: "type", DenseArrayBase: "elt_type"}


class InstructionOp(IRDLOperation):
    """Base of the operations that are instructions."""

    SPEC: ClassVar[Instruction]
    ADDRESS_FIELDS: ClassVar[tuple[Field, ...]]
    INT_FIELDS: ClassVar[dict[str, tuple[int, int]]]
    CODE_FIELDS: ClassVar[frozenset[str]]  # of those, the ones that are fields of the instruction
    WORD_FIELDS: ClassVar[dict[str, tuple[str, ...]]]
    DEFAULTS: ClassVar[dict[str, int]]  # of the fields that are not 0 when left out
    HAS_OPTIONAL_ADDRESSES: ClassVar[bool]
    OPERAND_COUNTS: ClassVar[tuple[frozenset[int], ...]]  # of each address field
    PROPERTY_FORMS: ClassVar[dict[str, Form]]

    @property
    def queue_number(self) -> Queue:
        """The queue that the instruction runs in."""
        if self.SPEC.queue is not None:
            return self.SPEC.queue
        word = self.properties.get("queue")
        assert isinstance(word, StringAttr)
        return Queue[word.data.upper()]

    def field_codes(self) -> dict[str, int]:
        """The fields that are no addresses, as encoded; fields that are 0 may be missing."""
        codes = dict(self.DEFAULTS)  # by exact classes: abstract ones make isinstance a call, a million times
        for name, attribute in self.properties.items():
            if type(attribute) is IntegerAttr:
                if name in self.CODE_FIELDS:
                    codes[name] = attribute.value.data
            elif type(attribute) is StringAttr and name != "queue":
                codes[name] = self.WORD_FIELDS[name].index(attribute.data)
        return codes

    def places(self) -> Iterator[tuple[str, SSAValue, int]]:
        """(address field, buffer, offset) of the address fields that are used."""
        properties = self.properties
        for field, operand in zip(self.used_addresses(), self._operands, strict=True):
            offset = properties.get(field.name + OFFSET_SUFFIX)
            yield field.name, operand, offset.value.data if type(offset) is IntegerAttr else 0

    def used_addresses(self) -> Sequence[Field]:
        """The address fields that have an operand, in order."""
        if not self.HAS_OPTIONAL_ADDRESSES:
            return self.ADDRESS_FIELDS
        sizes = self.properties[_SEGMENTS]
        assert isinstance(sizes, DenseArrayBase)
        return _used_addresses(self.SPEC.mnemonic, sizes.data.data)

    @property
    def steps(self) -> tuple[int, ...] | None:
        """What each address field advances by per iteration, None for an instruction without steps."""
        found = [self.properties.get(field.name + STEP_SUFFIX) for field in self.SPEC.addresses]
        if not any(found):
            return None
        return tuple(step.value.data if isinstance(step, IntegerAttr) else 0 for step in found)

    def semaphores(self, name: str) -> tuple[int, ...]:
        """The values of ``waits`` or ``posts``."""
        attribute = self.properties.get(name)
        return () if attribute is None else tuple(_integers(attribute))

    def has_usual_form(self) -> bool:
        """Whether operands and properties are in number and type what the definition says; quick, for yes only.

        Programs have ten thousands of instructions, and verifying their definitions in general takes most of a compile.
        """
        forms = self.PROPERTY_FORMS
        for name, attribute in self.properties.items():
            if forms.get(name) != (type(attribute), getattr(attribute, _ELEMENTS.get(type(attribute), ""), None)):
                return False
        operands = self.operands
        if self.HAS_OPTIONAL_ADDRESSES:
            sizes = self.properties.get(_SEGMENTS)
            counts = [] if sizes is None else _integers(sizes)
            if len(counts) != len(self.OPERAND_COUNTS) or sum(counts) != len(operands):
                return False
            if any(count not in allowed for count, allowed in zip(counts, self.OPERAND_COUNTS, strict=True)):
                return False
        elif len(operands) != len(self.ADDRESS_FIELDS):
            return False
        if (self.SPEC.queue is None and "queue" not in self.properties) or self.results or self.regions:
            return False
        return not self.successors and all(type(value.type) is BufferType for value in operands)

    def verify_(self) -> None:
        ints, words = self.INT_FIELDS, self.WORD_FIELDS
        for name, attribute in self.properties.items():
            if type(attribute) is IntegerAttr:
                low, high = ints[name]
                if not low <= attribute.value.data <= high:
                    raise VerifyException(f"{self.name}: {name} is {attribute.value.data}, allowed: {low} to {high}")
            elif type(attribute) is StringAttr and attribute.data not in words[name]:
                raise VerifyException(f"{self.name}: {name} is {attribute.data!r}, allowed: {', '.join(words[name])}")
        iterations = self._iterations()
        if iterations is None and self.steps is not None:
            raise VerifyException(f"{self.name} has steps but is in no npu.loop")
        self._verify_semaphores("waits", MAX_WAITS)
        self._verify_semaphores("posts", MAX_POSTS)
        for field, operand in zip(self.used_addresses(), self.operands, strict=True):
            self._verify_address(field, operand, (iterations or 1) - 1)

    def _iterations(self) -> int | None:
        """How often the loop around this instruction runs, None where there is no loop."""
        parent = self.parent_op()
        return parent.iterations if isinstance(parent, LoopOp) else None

    def _verify_semaphores(self, name: str, most: int) -> None:
        values = self.semaphores(name)
        if len(values) > most or any(not 0 <= value < SEMAPHORES for value in values):
            raise VerifyException(
                f"{self.name} {name} {list(values)}, allowed: at most {most} semaphores from 0 to {SEMAPHORES - 1}"
            )

    def _verify_address(self, field: Field, operand: SSAValue, last: int) -> None:
        kind = operand.type
        assert isinstance(kind, BufferType)
        space = kind.space
        allowed = REGION_SPACES if field.kind is Kind.MEMORY else (Space(field.kind.value),)
        if space not in allowed:
            raise VerifyException(f"{self.name}: {field.name} lies in {space}, allowed: {', '.join(allowed)}")
        offset = self.properties.get(field.name + OFFSET_SUFFIX)
        first = offset.value.data if isinstance(offset, IntegerAttr) else 0
        step = self.properties.get(field.name + STEP_SUFFIX)
        for place in (first, first + last * step.value.data) if isinstance(step, IntegerAttr) else (first,):
            if place and not 0 <= place < kind.size:
                raise VerifyException(f"{self.name}: {field.name} is {place} into a buffer of {kind.size} units")


@lru_cache(maxsize=256)
def _used_addresses(mnemonic: str, sizes: bytes) -> tuple[Field, ...]:
    """The address fields of an instruction that have an operand; ``sizes``: how many of each, 32 bits."""
    fields = INSTRUCTION_TABLE[mnemonic].places
    return tuple(field for field, size in zip(fields, memoryview(sizes).cast("i"), strict=True) if size)


def absolute(op: Operation, value: SSAValue) -> tuple[Space, int]:
    """Memory and address of the buffer ``value`` that ``op`` names; raises CompileError where it has none yet."""
    owner = value.owner
    if isinstance(owner, MemoryOp):
        return owner.space, 0
    if not isinstance(owner, BufferOp) or owner.address is None:
        raise CompileError("a buffer of this instruction has no address", op=op.name, tensor=op_name(op))
    kind = owner.buffer.type
    assert isinstance(kind, BufferType)
    return kind.space, owner.address.value.data


def _integers(attribute: Attribute) -> list[int]:
    """The elements of a dense i32 array."""
    assert isinstance(attribute, DenseArrayBase)
    return memoryview(attribute.data.data).cast("i").tolist()


# Address fields that an instruction may do without, because other fields say that it does not use them.
OPTIONAL_ADDRESSES = {
    "conv": frozenset({"ring_base", "accumulators", "param", "output"}),
    "vop": frozenset({"a", "b", "accumulators", "param", "table"}),
    "reduce": frozenset({"accumulators", "output"}),
    "softmax": frozenset({"table"}),
}


def _instruction_class(spec: Instruction) -> type[InstructionOp]:
    """The operation of one row of the table."""
    optional = OPTIONAL_ADDRESSES.get(spec.mnemonic, frozenset())
    members: dict[str, Any] = {
        "__doc__": f"{spec.doc[0].upper()}{spec.doc[1:]}.",
        "__module__": __name__,
        "name": PREFIX + spec.mnemonic,
        "waits": opt_prop_def(INTS),
        "posts": opt_prop_def(INTS),
        "custom_directives": (TypeOfBuffer,),
    }
    ints: dict[str, tuple[int, int]] = {}
    words: dict[str, tuple[str, ...]] = {}
    syntax = []
    for field in spec.fields:
        name = field.name
        if field.kind.is_address:
            members[name] = opt_operand_def(BufferType) if name in optional else operand_def(BufferType)
            members[name + OFFSET_SUFFIX] = opt_prop_def(INT)
            ints[name + OFFSET_SUFFIX] = (0, (1 << OFFSET_BITS) - 1)
            place = f"(`+` ${name}{OFFSET_SUFFIX}^)?"
            if not field.fixed:
                members[name + STEP_SUFFIX] = opt_prop_def(INT)
                half = 1 << (field.step_bits - 1)
                ints[name + STEP_SUFFIX] = (-half, half - 1)
                place += f" (`step` ${name}{STEP_SUFFIX}^)?"
            place += f" custom<TypeOfBuffer>(ref(${name}), type(${name}))"
            syntax.append(f"(`{name}` ${name}^ {place})?" if name in optional else f"`{name}` ${name} {place}")
        else:
            words |= {name: field.values} if field.values else {}
            ints |= {} if field.values else {name: field.range}
            members[name] = opt_prop_def(StringAttr if field.values else INT)
            syntax.append(f"(`{name}` ${name}^)?")
    if spec.queue is None:
        members["queue"], words["queue"] = prop_def(StringAttr), WORDS_OF_QUEUES
        syntax.append("$queue")
    syntax += ["(`waits` $waits^)?", "(`posts` $posts^)?", "attr-dict"]
    if optional:
        members["irdl_options"] = (AttrSizedOperandSegments(as_property=True),)
    if spec.mnemonic == "halt":
        members["traits"] = traits_def(IsTerminator())
    members["assembly_format"] = " ".join(syntax)
    cls = type(f"{spec.mnemonic.title()}Op", (InstructionOp,), members)
    made: type[InstructionOp] = irdl_op_definition(cls)
    made.SPEC, made.ADDRESS_FIELDS, made.INT_FIELDS, made.WORD_FIELDS = spec, spec.places, ints, words
    made.CODE_FIELDS = frozenset(ints) & {field.name for field in spec.fields}
    made.DEFAULTS = {field.name: field.default for field in spec.fields if field.default}
    made.HAS_OPTIONAL_ADDRESSES = bool(optional)
    made.OPERAND_COUNTS = tuple(frozenset({0, 1} if field.name in optional else {1}) for field in spec.places)
    forms = dict.fromkeys(ints, _INTEGER) | dict.fromkeys(words, _WORD) | dict.fromkeys(("waits", "posts"), _INTEGERS)
    made.PROPERTY_FORMS = forms | ({_SEGMENTS: _INTEGERS} if optional else {})
    if spec.mnemonic != "halt":  # whose trait looks at its place
        made.verify_ = _verify_quickly(made.verify_)  # type: ignore[assignment, method-assign]
    return made


def _verify_quickly(in_general: Callable[[InstructionOp], None]) -> Callable[[InstructionOp], None]:
    """``in_general``, which verifies definition and rules, without the definition where the form is the usual one."""

    def verify_(op: InstructionOp) -> None:
        if op.has_usual_form():
            InstructionOp.verify_(op)
        else:
            in_general(op)

    return verify_


def _instruction_classes() -> dict[str, type[InstructionOp]]:
    return {spec.mnemonic: _instruction_class(spec) for spec in INSTRUCTIONS if spec.mnemonic not in UNROLLED}


BY_MNEMONIC = _instruction_classes()
HALT = BY_MNEMONIC["halt"]
OPS: tuple[type[Operation], ...] = (BufferOp, MemoryOp, LoopOp, *BY_MNEMONIC.values())
ATTRIBUTES = (BufferType, RecordType, SpaceAttr, TilingAttr, ResidentAttr)
