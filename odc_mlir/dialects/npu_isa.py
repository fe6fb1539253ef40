"""The ``npu`` dialect at instruction level: buffers, and one operation per row of the instruction table.

::

    %input = npu.buffer "x" at 0 : !npu.buffer<inputs, 1x32x32x3xi8>
    %slot = npu.buffer "slot" at 64 : !npu.buffer<tile, 8x32x16xi8>
    npu.loop 3 {
      npu.isa.load source %input + 1024 step 512 target %slot size0 16 size1 8 size2 8 waits [3]
    }
    npu.isa.halt

The order of operations in the block is the order of the program, for all queues. ``npu.isa.halt`` ends the program.
Address fields are buffers with an optional offset, enum fields are words, and all other fields are integers. An omitted
field has its default: 1 for factors, otherwise 0 or the first word. One property of type :class:`FieldsAttr` holds all
fields. ``waits`` and ``posts`` list semaphores, which ``npu-insert-sync`` adds. ``npu.loop`` repeats its body. After
every iteration, addresses of instructions advance by the instructions' steps. ``npu-roll-loops`` creates loops.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple, Self, TypeGuard

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, LocationAttr, StringAttr, i32, i64
from xdsl.ir import Attribute, Data, Operation, Region, SSAValue, SSAValues
from xdsl.irdl import (
    EqAttrConstraint,
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    result_def,
    traits_def,
    var_operand_def,
)
from xdsl.parser import AttrParser, Parser
from xdsl.printer import Printer
from xdsl.traits import IsTerminator, NoTerminator
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.dialects.npu_memory import BufferType, RecordType, SpaceAttr
from odc_mlir.dialects.npu_tiling import ResidentAttr, TilingAttr
from odc_mlir.errors import CompileError
from odc_mlir.isa.codec import MAX_POSTS, MAX_WAITS
from odc_mlir.isa.fields import OFFSET_BITS, SEMAPHORES, Field, Instruction, Kind, Queue, Space
from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.isa.instructions import BY_MNEMONIC as INSTRUCTION_TABLE
from odc_mlir.isa.instructions import INSTRUCTIONS, field_range
from odc_mlir.support.locations import op_name

PREFIX = "npu.isa."
MOST_OFFSET = (1 << OFFSET_BITS) - 1
QUEUES = tuple(queue.name.lower() for queue in Queue)


class Fields(NamedTuple):
    """The fields of one instruction.

    ``offsets``: offsets of address fields from the start of the buffers, or None if the field is not used. ``steps``:
    address increment of each address field per loop iteration, or None outside of loops.
    """

    immediates: Immediates
    offsets: tuple[int | None, ...]
    queue: Queue
    steps: tuple[int, ...] | None = None

    def used(self) -> Iterator[tuple[Field, int, int]]:
        steps = self.step_of()
        for field, offset in zip(self.immediates.spec.places, self.offsets, strict=True):
            if offset is not None:
                yield field, offset, steps.get(field.name, 0)

    def step_of(self) -> dict[str, int]:
        if self.steps is None:
            return {}
        return {field.name: step for field, step in zip(self.immediates.spec.addresses, self.steps, strict=True)}


@irdl_attr_definition
class FieldsAttr(Data[Fields]):
    """The fields of an instruction: ``#npu.fields<load source + 4 target size0 16 size1 8>``.

    :func:`fields_attr` returns the same object for equal fields.
    """

    name = "npu.fields"

    def verify(self) -> None:
        fields = self.data
        mnemonic = fields.immediates.mnemonic
        problem = _problem(fields.immediates)
        if problem:
            raise VerifyException(f"{PREFIX}{mnemonic}: {problem}")
        for field, offset in zip(fields.immediates.spec.places, fields.offsets, strict=True):
            if offset is None:
                if not field.optional:
                    raise VerifyException(f"{PREFIX}{mnemonic}: {field.name} is missing")
            elif not 0 <= offset <= MOST_OFFSET:
                raise VerifyException(
                    f"{PREFIX}{mnemonic}: {field.name} is {offset} into a buffer, allowed: 0 to {MOST_OFFSET}"
                )
        if fields.steps is not None:
            self._verify_steps(fields.steps)

    def _verify_steps(self, steps: tuple[int, ...]) -> None:
        spec = self.data.immediates.spec
        for field, step in zip(spec.addresses, steps, strict=True):
            half = 1 << (field.step_bits - 1)
            if not -half <= step < half:
                raise VerifyException(
                    f"{PREFIX}{spec.mnemonic}: the step of {field.name} is {step}, allowed: {-half} to {half - 1}"
                )

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> Fields:
        with parser.in_angle_brackets():
            mnemonic = parser.parse_identifier(context_msg=" naming an instruction")
            if mnemonic not in INSTRUCTION_TABLE:
                parser.raise_error(f"there is no instruction {mnemonic!r}")
            return parse_fields(parser, mnemonic, lambda: None)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.immediates.mnemonic)
            print_fields(printer, self.data, lambda: None)


@lru_cache(maxsize=1 << 16)
def fields_attr(fields: Fields) -> FieldsAttr:
    """Return the attribute of ``fields``. Raises VerifyException for values that the instruction does not have."""
    return FieldsAttr(fields)


@lru_cache(maxsize=1 << 16)
def _problem(immediates: Immediates) -> str:
    return immediates.problem()


@lru_cache(maxsize=1 << 16)
def _words(immediates: Immediates) -> tuple[str, ...]:
    found: list[str] = []
    current: list[str] = []
    codes = {field.name: code for field, code in zip(immediates.spec.immediates, immediates.codes, strict=True)}
    for field in immediates.spec.fields:
        if field.kind.is_address:
            found.append("".join(current))
            current = []
            continue
        code = codes[field.name]
        if code != field.default:
            current.append(f' {field.name} "{field.values[code]}"' if field.values else f" {field.name} {code}")
    return (*found, "".join(current))


def print_fields(printer: Printer, fields: Fields, print_operand: Callable[[], None]) -> None:
    """Print the fields in table order, and call ``print_operand`` after the name of each address field."""
    words, steps = _words(fields.immediates), fields.step_of()
    for field, offset, before in zip(fields.immediates.spec.places, fields.offsets, words, strict=False):
        if offset is None:
            printer.print_string(before)
            continue
        printer.print_string(f"{before} {field.name}")
        print_operand()
        step = steps.get(field.name)
        printer.print_string((f" + {offset}" if offset else "") + (f" step {step}" if step else ""))
    printer.print_string(words[-1])
    if fields.immediates.spec.queue is None:
        printer.print_string(f' "{fields.queue.name.lower()}"')


def parse_fields(parser: AttrParser, mnemonic: str, parse_operand: Callable[[], None]) -> Fields:
    """Parse the text that :func:`print_fields` prints."""
    spec = INSTRUCTION_TABLE[mnemonic]
    values: dict[str, int | str] = {}
    offsets: list[int | None] = []
    steps: dict[str, int] = {}
    for field in spec.fields:
        given = parser.parse_optional_keyword(field.name) is not None
        if field.kind.is_address:
            offsets.append(_parse_address(parser, field, steps, parse_operand) if given else None)
        else:
            values[field.name] = _parse_value(parser, field) if given else field.default
    advanced = tuple(steps.get(field.name, 0) for field in spec.addresses) if steps else None
    return Fields(shared(mnemonic, values), tuple(offsets), _parse_queue(parser, spec.queue), advanced)


def _parse_queue(parser: AttrParser, fixed: Queue | None) -> Queue:
    if fixed is not None:
        return fixed
    word = parser.parse_str_literal(" naming a queue")
    if word not in QUEUES:
        parser.raise_error(f"there is no queue {word!r}, allowed: {', '.join(QUEUES)}")
    return Queue(QUEUES.index(word))


def _parse_address(parser: AttrParser, field: Field, steps: dict[str, int], parse_operand: Callable[[], None]) -> int:
    parse_operand()
    offset = 0
    if parser.parse_optional_punctuation("+"):
        offset = parser.parse_integer(allow_boolean=False)
    if not field.fixed and parser.parse_optional_keyword("step"):
        steps[field.name] = parser.parse_integer(allow_boolean=False)
    return offset


def _parse_value(parser: AttrParser, field: Field) -> int | str:
    if field.kind is not Kind.ENUM:
        return parser.parse_integer(allow_boolean=False)
    word = parser.parse_str_literal(f" for {field.name}")
    if word not in field.values:
        parser.raise_error(f"{field.name} is {word!r}, allowed: {', '.join(field.values)}")
    return word


FIELDS = "fields"
TOKENS = {"waits": MAX_WAITS, "posts": MAX_POSTS}  # properties that name semaphores, and the largest number of names
UNROLLED = ("loop", "end")  # instructions that npu.loop represents
LOCAL_SPACES = tuple(space for space in Space if space.is_local)
REGION_SPACES = tuple(space for space in Space if not space.is_local)
BOUND_SPACES = (Space.INPUTS, Space.OUTPUTS)
SPACES_OF = {kind: REGION_SPACES if kind is Kind.MEMORY else (Space(kind.value),) for kind in Kind if kind.is_address}


INT = IntegerAttr.constr(type=EqAttrConstraint(i64))
INTS = DenseArrayBase.constr(i32)


@irdl_op_definition
class BufferOp(IRDLOperation):
    """A range of one memory. ``address`` is the offset in the memory. Stage ``npu-alloc`` assigns the offset.

    ``data``: contents of a buffer in the constants region.
    ``binds``: indices of the program's inputs or outputs that a buffer in the input or output region holds.
    ``takes``: indices of the inputs that a buffer in the arena holds when the program starts.
    ``gives``: indices of the outputs that a buffer in the arena holds when the program ends.
    ``live``: indices of the first and the last instruction (copies of constants not counted) between which
        ``npu-allocate-memory`` preserves the bytes of a buffer in the arena.
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
        data: bytes | memoryview | None = None,
        binds: Sequence[int] = (),
        takes: Sequence[int] = (),
        gives: Sequence[int] = (),
    ) -> None:
        properties: dict[str, Attribute] = {"label": StringAttr(label)}
        if address is not None:
            properties["address"] = IntegerAttr(address, i64)
        if data is not None:
            properties["data"] = BlobAttr.of(data)
        for name, numbers in (("binds", binds), ("takes", takes), ("gives", gives)):
            if numbers:
                properties[name] = DenseArrayBase.from_list(i32, list(numbers))
        # Programs have thousands of buffers, and buffers do not need the work of the generic constructor.
        Operation.__init__(self, properties=properties, result_types=[type_])

    @property
    def size(self) -> int:
        return self.buffer.type.size

    def verify_(self) -> None:
        type_ = self.buffer.type
        if self.address is not None and not 0 <= self.address.value.data < 1 << OFFSET_BITS:
            raise VerifyException(f"{self.name}: address {self.address.value.data} cannot be encoded")
        if (self.data is not None) != (type_.space is Space.CONSTANTS):
            verb = "needs" if self.data is None else "takes no"
            raise VerifyException(f"{self.name} in {type_.space} {verb} data")
        if self.binds is not None and type_.space not in BOUND_SPACES:
            raise VerifyException(f"{self.name} in {type_.space} cannot hold an input or output of the program")
        if (self.takes is not None or self.gives is not None) and type_.space is not Space.ARENA:
            raise VerifyException(
                f"{self.name} in {type_.space} cannot hold inputs and outputs together with other tensors"
            )
        if self.live is not None:
            if type_.space is not Space.ARENA:
                raise VerifyException(f"{self.name} in {type_.space} takes no time to live")
            first_last = _integers(self.live)
            if len(first_last) != 2 or not 0 <= first_last[0] <= first_last[1]:
                raise VerifyException(f"{self.name}: live is {[*first_last]}, expected a first and a last instruction")
            if self.address is not None or self.takes is not None or self.gives is not None:
                what = "an address" if self.address is not None else "inputs or outputs"
                raise VerifyException(f"{self.name} has {what}, and takes no time to live")
        if self.data is not None and self.data.data.size != type_.size:
            raise VerifyException(f"{self.name} of {type_.size} bytes has {self.data.data.size} bytes of data")


@irdl_op_definition
class MemoryOp(IRDLOperation):
    """A whole memory from address 0, for instructions that access consecutive buffers."""

    name = "npu.memory"

    buffer = result_def(BufferType)

    assembly_format = "attr-dict `:` type($buffer)"

    def __init__(self, type_: BufferType) -> None:
        super().__init__(result_types=[type_])

    @property
    def space(self) -> Space:
        return self.buffer.type.space

    @property
    def size(self) -> int:
        """Size of the used part in units of the memory."""
        return self.buffer.type.size


@irdl_op_definition
class LoopOp(IRDLOperation):
    """The hardware loop: runs its body ``count`` times. Loops do not nest."""

    name = "npu.loop"

    count = prop_def(INT)
    body = region_def("single_block")

    traits = traits_def(NoTerminator())
    assembly_format = "$count $body attr-dict"

    def __init__(self, count: int, body: Region) -> None:
        Operation.__init__(self, properties={"count": IntegerAttr(count, i64)}, regions=[body])

    @property
    def iterations(self) -> int:
        return self.count.value.data

    @property
    def instructions(self) -> list[InstructionOp]:
        """Instructions of the body. The verifier rejects other operations."""
        return [op for op in self.body.block.ops if is_instruction(op)]

    def verify_(self) -> None:
        low, high = 1, field_range("loop", "count")[1]
        if not low <= self.iterations <= high:
            raise VerifyException(f"{self.name} runs {self.iterations} times, allowed: {low} to {high}")
        if self.body.block.first_op is None:
            raise VerifyException(f"{self.name} has an empty body")
        for op in self.body.block.ops:
            if not is_instruction(op) or op.SPEC.mnemonic == "halt":
                raise VerifyException(f"{self.name} holds {op.name}, allowed: instructions other than halt")


class InstructionOp(IRDLOperation):
    """Base class of instructions."""

    SPEC: ClassVar[Instruction]

    def __post_init__(self) -> None:
        """Skip xDSL's search for properties with a default. Instructions have none, and programs are long."""

    @classmethod
    def of(cls, fields: Fields, operands: Sequence[SSAValue], location: LocationAttr) -> Self:
        """Create an instruction in half the time of ``create``, because parts are not copied."""
        op = cls.__new__(cls)
        op.operands = operands
        op.results, op.regions = SSAValues(), ()
        op.properties, op.attributes = {FIELDS: fields_attr(fields)}, {}
        op.location = location
        return op

    @property
    def field_values(self) -> Fields:
        """All fields, as :class:`FieldsAttr` stores them."""
        attribute = self.properties[FIELDS]
        assert isinstance(attribute, FieldsAttr)
        return attribute.data

    def set_fields(self, fields: Fields) -> None:
        """Replace all fields of the instruction. Raises VerifyException for invalid values."""
        self.properties[FIELDS] = fields_attr(fields)

    def places(self) -> Iterator[tuple[Field, SSAValue, int]]:
        """Return (address field, buffer, offset) of the used address fields."""
        for (field, offset, _), operand in zip(self.field_values.used(), self._operands, strict=True):
            yield field, operand, offset

    def semaphores(self, name: str) -> tuple[int, ...]:
        attribute = self.properties.get(name)
        return () if attribute is None else _integers(attribute)

    def verify_(self) -> None:
        fields, spec = self.field_values, self.SPEC
        if fields.immediates.spec is not spec:
            raise VerifyException(f"{self.name} has the fields of {fields.immediates.mnemonic}")
        iterations = None
        if fields.steps is not None:
            parent = self.parent_op()
            if type(parent) is not LoopOp:
                raise VerifyException(f"{self.name} has steps but is in no npu.loop")
            iterations = parent.iterations
        if len(self.properties) > 1:
            for name, most in TOKENS.items():
                self._verify_semaphores(name, most)
        operands, used = self._operands, len(fields.offsets) - fields.offsets.count(None)
        if used != len(operands):
            raise VerifyException(f"{self.name} uses {used} addresses and names {len(operands)} buffers")
        more = (iterations or 1) - 1
        for (field, first, step), operand in zip(fields.used(), operands, strict=True):
            self._verify_address(field, operand.type, first, first + step * more)

    def _verify_semaphores(self, name: str, most: int) -> None:
        values = self.semaphores(name)
        if len(values) > most or (values and not 0 <= min(values) <= max(values) < SEMAPHORES):
            raise VerifyException(
                f"{self.name} {name} {list(values)}, allowed: at most {most} semaphores from 0 to {SEMAPHORES - 1}"
            )

    def _verify_address(self, field: Field, kind: Attribute, first: int, last: int) -> None:
        assert isinstance(kind, BufferType)
        space, size, _, _ = kind.facts
        if space not in SPACES_OF[field.kind]:
            allowed = ", ".join(SPACES_OF[field.kind])
            raise VerifyException(f"{self.name}: {field.name} lies in {space}, allowed: {allowed}")
        if first or last:
            for place in (first, last):
                if place and not 0 <= place < size:
                    raise VerifyException(f"{self.name}: {field.name} is {place} into a buffer of {size} units")

    @classmethod
    def parse(cls, parser: Parser) -> Self:
        operands: list[SSAValue] = []

        def parse_operand() -> None:
            start, used = parser.pos, parser.parse_unresolved_operand()
            values = parser.ssa_values.get(used.operand_name, ())
            if used.index >= len(values):
                parser.raise_error("a buffer is used before it is defined", start, parser.pos)
            operands.append(values[used.index])

        start = parser.pos
        fields = parse_fields(parser, cls.SPEC.mnemonic, parse_operand)
        try:
            properties: dict[str, Attribute] = {FIELDS: fields_attr(fields)}
        except VerifyException as error:
            parser.raise_error(str(error), start, parser.pos)
        for name in TOKENS:
            if parser.parse_optional_keyword(name):
                values = parser.parse_comma_separated_list(parser.Delimiter.SQUARE, parser.parse_integer)
                properties[name] = DenseArrayBase.from_list(i32, values)
        return cls.create(operands=operands, properties=properties, attributes=parser.parse_optional_attr_dict())

    def print(self, printer: Printer) -> None:
        operands = iter(self.operands)

        def print_operand() -> None:
            printer.print_string(" ")
            printer.print_ssa_value(next(operands))

        print_fields(printer, self.field_values, print_operand)
        for name in TOKENS:
            if name in self.properties:
                printer.print_string(f" {name} [{', '.join(map(str, self.semaphores(name)))}]")
        printer.print_op_attributes(self.attributes)


ADDRESS_HINT = "stage npu-alloc gives addresses to IR of stage npu-sched (-p npu-alloc); by hand, write `at N`"


def missing_address(label: str, space: Space, layer: str) -> CompileError:
    """Return the error for a buffer of ``layer`` without address."""
    of = f" of {layer!r}" if layer and layer != label else ""
    return CompileError(f"buffer {label!r}{of} in memory {space} has no address", op=BufferOp.name, hint=ADDRESS_HINT)


def absolute(op: Operation, value: SSAValue) -> tuple[Space, int]:
    """Return memory and address of the buffer ``value``, an operand of ``op``.

    Raises CompileError if it has no address.
    """
    owner = value.owner
    if isinstance(owner, MemoryOp):
        return owner.space, 0
    if not isinstance(owner, BufferOp):
        raise CompileError("an address of this instruction is in no buffer", op=op.name, tensor=op_name(op))
    kind = owner.buffer.type
    if owner.address is None:
        raise missing_address(owner.label.data, kind.space, op_name(owner))
    return kind.space, owner.address.value.data


class Homes:
    """Cache of the memory and address of each buffer of a program."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Space, int]] = {}  # by the id of the value, which hashes faster than the value

    def of(self, op: Operation, value: SSAValue) -> tuple[Space, int]:
        """Return memory and address as :func:`absolute` does."""
        home = self._known.get(id(value))
        if home is None:
            home = self._known[id(value)] = absolute(op, value)
        return home


def _integers(attribute: Attribute) -> tuple[int, ...]:
    assert isinstance(attribute, DenseArrayBase)
    return _decoded(attribute.data.data)


@lru_cache(maxsize=4096)
def _decoded(data: bytes) -> tuple[int, ...]:
    """Return the integers of a semaphore list. Programs have a few hundred different lists."""
    return tuple(memoryview(data).cast("i").tolist())


def _field_property(spec: Instruction, field: Field) -> property:
    place = (spec.places if field.kind.is_address else spec.immediates).index(field)

    def value(op: InstructionOp) -> int | str | None:
        if field.kind.is_address:
            return op.field_values.offsets[place]
        code = op.field_values.immediates.codes[place]
        return field.values[code] if field.values else code

    def set_value(op: InstructionOp, value: Any) -> None:
        fields = op.field_values
        if field.kind.is_address:
            op.set_fields(fields._replace(offsets=(*fields.offsets[:place], value, *fields.offsets[place + 1 :])))
        elif field.values and value not in field.values:
            raise VerifyException(f"{op.name}: {field.name} is {value!r}, allowed: {', '.join(field.values)}")
        else:
            op.set_fields(fields._replace(immediates=fields.immediates.replace(**{field.name: value})))

    return property(value, set_value, doc=field.doc)


def _instruction_class(spec: Instruction) -> type[InstructionOp]:
    members: dict[str, Any] = {
        "__doc__": f"{spec.doc[0].upper()}{spec.doc[1:]}.",
        "__module__": __name__,
        "name": PREFIX + spec.mnemonic,
        FIELDS: prop_def(FieldsAttr),
        "buffers": var_operand_def(BufferType),
        **{name: opt_prop_def(INTS) for name in TOKENS},
        **{field.name: _field_property(spec, field) for field in spec.fields},
    }
    if spec.mnemonic == "halt":
        members["traits"] = traits_def(IsTerminator())
    cls = type(f"{spec.mnemonic.title()}Op", (InstructionOp,), members)
    made: type[InstructionOp] = irdl_op_definition(cls)
    made.SPEC = spec
    return made


BY_MNEMONIC = {spec.mnemonic: _instruction_class(spec) for spec in INSTRUCTIONS if spec.mnemonic not in UNROLLED}
_INSTRUCTIONS = frozenset(BY_MNEMONIC.values())


def is_instruction(op: Operation) -> TypeGuard[InstructionOp]:
    """Return whether ``op`` is an :class:`InstructionOp`, faster than ``isinstance`` with its abstract bases."""
    return type(op) in _INSTRUCTIONS


def make_halt(location: LocationAttr | None = None) -> InstructionOp:
    """Create the instruction that ends a program."""
    spec = INSTRUCTION_TABLE["halt"]
    fields = Fields(shared(spec.mnemonic, {}), (), Queue.FETCH)
    return BY_MNEMONIC[spec.mnemonic].create(properties={FIELDS: fields_attr(fields)}, location=location)


OPS: tuple[type[Operation], ...] = (BufferOp, MemoryOp, LoopOp, *BY_MNEMONIC.values())
ATTRIBUTES = (BufferType, FieldsAttr, RecordType, SpaceAttr, TilingAttr, ResidentAttr)
