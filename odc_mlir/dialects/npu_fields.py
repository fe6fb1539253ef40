"""All fields of an instruction as one attribute, ``#npu.fields<load source + 4 target size0 16 size1 8>``.

A used address field is printed with its offset into the buffer and its step. Fields with their default (1 for factors,
0 for others) are omitted. The text of an instruction has the same words, with the buffers as operands in between.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

from xdsl.ir import Data
from xdsl.irdl import irdl_attr_definition
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.utils.exceptions import VerifyException

from odc_mlir.isa.fields import OFFSET_BITS, Field, Kind, Queue
from odc_mlir.isa.immediates import Immediates, shared
from odc_mlir.isa.instructions import BY_MNEMONIC

PREFIX = "npu.isa."
MOST_OFFSET = (1 << OFFSET_BITS) - 1
QUEUES = tuple(queue.name.lower() for queue in Queue)


class Fields(NamedTuple):
    """The fields of one instruction.

    ``offsets`` has the offset of each address field from the start of its buffer; None if the address is not used.
    ``steps`` has the step of each address field that loops advance; None outside of loops.
    """

    immediates: Immediates
    offsets: tuple[int | None, ...]
    queue: Queue
    steps: tuple[int, ...] | None = None

    def used(self) -> Iterator[tuple[Field, int, int]]:
        """Return (field, offset, step) of each used address."""
        steps = self.step_of()
        for field, offset in zip(self.immediates.spec.places, self.offsets, strict=True):
            if offset is not None:
                yield field, offset, steps.get(field.name, 0)

    def step_of(self) -> dict[str, int]:
        """Return steps by address field."""
        if self.steps is None:
            return {}
        return {field.name: step for field, step in zip(self.immediates.spec.addresses, self.steps, strict=True)}


@irdl_attr_definition
class FieldsAttr(Data[Fields]):
    """The fields of an instruction; :func:`fields_attr` returns the same object for equal fields."""

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
            if mnemonic not in BY_MNEMONIC:
                parser.raise_error(f"there is no instruction {mnemonic!r}")
            return parse_fields(parser, mnemonic, lambda: None)

    def print_parameter(self, printer: Printer) -> None:
        with printer.in_angle_brackets():
            printer.print_string(self.data.immediates.mnemonic)
            print_fields(printer, self.data, lambda: None)


@lru_cache(maxsize=1 << 16)
def fields_attr(fields: Fields) -> FieldsAttr:
    """Return the attribute of ``fields``; raise VerifyException for values that the instruction does not have."""
    return FieldsAttr(fields)


@lru_cache(maxsize=1 << 16)
def _problem(immediates: Immediates) -> str:
    return immediates.problem()


@lru_cache(maxsize=1 << 16)
def _words(immediates: Immediates) -> tuple[str, ...]:
    """Return the text before each address field, and after the last one."""
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
    """Print the fields in the order of the table; ``print_operand`` is called after the name of each address."""
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
    """Parse the text of :func:`print_fields`."""
    spec = BY_MNEMONIC[mnemonic]
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
    """Return the offset of an address; add its step to ``steps``."""
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
