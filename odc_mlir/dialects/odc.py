"""The ``odc`` dialect: the compilation target, and segments, which are subgraphs compiled for it.

::

    builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash, prefer = performance>} {
      func.func @main(%x: tensor<1x8xi8>) -> tensor<1x8xi8> {
        %y = odc.segment @segment_0(%x) : (tensor<1x8xi8>) -> tensor<1x8xi8> circle {
        ^bb0(%a: tensor<1x8xi8>):
          %b = circle.relu(%a) : (tensor<1x8xi8>) -> tensor<1x8xi8>
          odc.yield %b : tensor<1x8xi8>
        }
        func.return %y : tensor<1x8xi8>
      }
    }

The module attribute ``odc.states`` lists the states of the model. A state is the index of an output of the first
function, and the index of the input that gets the output's value in the next run::

    odc.states = [{output = 1 : i64, input = 1 : i64, initial = #circle.blob<…>}]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

from xdsl.dialects.builtin import (
    ArrayAttr,
    DenseArrayBase,
    DictionaryAttr,
    FunctionType,
    IntegerAttr,
    ModuleOp,
    StringAttr,
    SymbolNameConstraint,
    i64,
)
from xdsl.dialects.func import FuncOp
from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute, Block, Data, Dialect, Operation, Region, SSAValue
from xdsl.irdl import (
    IRDLOperation,
    irdl_attr_definition,
    irdl_op_definition,
    opt_prop_def,
    prop_def,
    region_def,
    traits_def,
    var_operand_def,
    var_result_def,
)
from xdsl.parser import AttrParser
from xdsl.printer import Printer
from xdsl.traits import IsolatedFromAbove, IsTerminator
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle_types import BlobAttr
from odc_mlir.errors import ModelError
from odc_mlir.formats.states import MODULE_ATTRIBUTE, StatePair, places_of
from odc_mlir.support.locations import value_name

TARGET = "odc.target"
"""Module attribute that holds the compilation target."""

FEWEST_CYCLES = "fewest-cycles"
# Allowed words of each field. The numerics `litert` exist only on the host and are no choice here.
WORDS = {
    "memory": ("flash", "sram"),
    "prefer": ("performance", "memory", "compile-time", FEWEST_CYCLES),
    "numerics": ("fixed", "litert"),
    "strategy": ("cost", "supported"),
}
LEAST = {"sram_limit": 1, "min_operators": 0, "min_macs": 0, "max_segments": 0}
"""Smallest allowed value of each numeric field."""

_ALWAYS_PRINTED = ("memory", "prefer", "numerics")


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """Compilation target and options.

    ``target`` is the name of a shipped target or a .toml file. ``sram_limit`` is in bytes. None allows all SRAM. If
    ``allow_host``, operators that exceed the SRAM limit may go to the host. The last four fields are options of
    ``npu-choose-segments``, for passes that form segments again.
    """

    target: str
    memory: str = "flash"
    prefer: str = "performance"
    sram_limit: int | None = None
    numerics: str = "fixed"
    allow_host: bool = False
    strategy: str = "cost"
    min_operators: int = 1
    min_macs: int = 0
    max_segments: int | None = None


@irdl_attr_definition
class TargetAttr(Data[TargetChoice]):
    """``#odc.target<"npu-256", memory = flash, prefer = performance, sram_limit = 65536, numerics = fixed>``.

    All fields of :class:`TargetChoice` after the name are optional.
    """

    name = "odc.target"

    def verify(self) -> None:
        choice = self.data
        if not choice.target:
            raise VerifyException("the target's name is empty")
        for field, words in WORDS.items():
            if getattr(choice, field) not in words:
                raise VerifyException(f"{field} is {getattr(choice, field)!r}, allowed: {', '.join(words)}")
        for field, least in LEAST.items():
            if (value := getattr(choice, field)) is not None and value < least:
                raise VerifyException(f"{field} is {value}, must be at least {least}")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TargetChoice:
        found: dict[str, str | int] = {}
        known = [item.name for item in fields(TargetChoice)][1:]
        with parser.in_angle_brackets():
            target = parser.parse_str_literal(" of a target's name")
            while parser.parse_optional_punctuation(",") is not None:
                key = parser.parse_identifier(context_msg=" of a target option")
                if key in found or key not in known:
                    parser.raise_error(f"unexpected {key}, allowed once each: {', '.join(known)}")
                parser.parse_punctuation("=")
                if key in LEAST:
                    found[key] = parser.parse_integer(allow_boolean=False, allow_negative=False)
                elif key in WORDS:
                    found[key] = parser.parse_identifier_or_str_literal(f" as {key}")
                else:
                    found[key] = parser.parse_boolean()
        return TargetChoice(target, **found)  # type: ignore[arg-type]

    def print_parameter(self, printer: Printer) -> None:
        choice = self.data
        with printer.in_angle_brackets():
            printer.print_string_literal(choice.target)
            for item in fields(choice)[1:]:
                value = getattr(choice, item.name)
                if value == item.default and item.name not in _ALWAYS_PRINTED:
                    continue
                printer.print_string(f", {item.name} = ")
                if item.name in WORDS:
                    printer.print_identifier_or_string_literal(value)
                else:
                    printer.print_string(str(value).lower())


def target_of(module: ModuleOp) -> TargetChoice | None:
    """Return the target that ``odc-set-target`` recorded for this module, or None."""
    attribute = module.attributes.get(TARGET)
    return attribute.data if isinstance(attribute, TargetAttr) else None


KEPT_STATES = "odc.kept_states"
"""Attribute of a segment and its program: indices of operand and result of each state that stays on the device."""


def kept_states(op: Operation) -> tuple[tuple[int, int], ...]:
    """Return the indices of operand and result of each state that a segment or program keeps on the device."""
    attribute = op.attributes.get(KEPT_STATES)
    numbers = attribute.get_values() if isinstance(attribute, DenseArrayBase) else ()
    return tuple(zip(numbers[::2], numbers[1::2], strict=True))


StatePlace = tuple[int, int, bytes | None]
"""Indices of the output and the input of a state, and its initial bytes (None: real zero)."""


def state_places(module: ModuleOp) -> tuple[StatePlace, ...]:
    """Return the states of a module by index. Raises ModelError for a malformed attribute."""
    entries = module.attributes.get(MODULE_ATTRIBUTE, ArrayAttr([]))
    inputs, outputs = _ends(module)
    found = tuple(map(_state_place, entries if isinstance(entries, ArrayAttr) else [entries]))
    for place, source, _ in found:
        if not (0 <= place < len(outputs) and 0 <= source < len(inputs)):
            counts = f"{len(outputs)} outputs and {len(inputs)} inputs"
            raise ModelError(f"{MODULE_ATTRIBUTE} names output {place} and input {source}; the model has {counts}")
    return found


def _state_place(entry: Attribute) -> StatePlace:
    match dict(entry.data) if isinstance(entry, DictionaryAttr) else {}:
        case {"output": IntegerAttr() as place, "input": IntegerAttr() as source, **rest}:
            match rest.get("initial"):
                case None:
                    return place.value.data, source.value.data, None
                case BlobAttr() as initial:
                    return place.value.data, source.value.data, bytes(initial.bytes)
    raise ModelError(f"an entry of {MODULE_ATTRIBUTE} is {entry}; allowed are output, input and optionally initial")


def put_states(module: ModuleOp, places: Sequence[StatePlace]) -> None:
    """Replace the states of a module by ``places``."""
    module.attributes.pop(MODULE_ATTRIBUTE, None)
    if places:
        module.attributes[MODULE_ATTRIBUTE] = ArrayAttr(
            DictionaryAttr(
                {"output": IntegerAttr(place, i64), "input": IntegerAttr(source, i64)}
                | ({} if initial is None else {"initial": BlobAttr.of(initial)})
            )
            for place, source, initial in places
        )


def states_of(module: ModuleOp) -> tuple[StatePair, ...]:
    """Return the states of a module by current tensor names. Raises ModelError for a malformed attribute."""
    inputs, outputs = _ends(module)
    return tuple(
        StatePair(value_name(outputs[o]), value_name(inputs[i]), start) for o, i, start in state_places(module)
    )


def set_states(module: ModuleOp, pairs: Sequence[StatePair]) -> None:
    """Replace the states of a module by ``pairs``. Raises OptionError for unknown names. Types are not checked."""
    places = places_of(pairs, *([value_name(value) for value in values] for values in _ends(module)))
    put_states(module, [(*place, pair.initial) for place, pair in zip(places, pairs, strict=True)])


def _ends(module: ModuleOp) -> tuple[Sequence[SSAValue], Sequence[SSAValue]]:
    function = next((op for op in module.body.block.ops if isinstance(op, FuncOp) and op.body.blocks), None)
    last = None if function is None else function.body.block.last_op
    return ((), ()) if function is None or last is None else (function.body.block.args, last.operands)


def lowered_symbols(module: ModuleOp) -> dict[str, Operation]:
    """Return the lowered forms of segments by name. These are the symbols of ``module`` that are not functions."""
    found: dict[str, Operation] = {}
    for op in module.body.block.ops:
        name = op.properties.get("sym_name")
        if isinstance(name, StringAttr) and not isinstance(op, FuncOp):
            found[name.data] = op
    return found


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """Terminator of a segment's body. Its operands are the results of the body."""

    name = "odc.yield"
    traits = traits_def(IsTerminator())


@irdl_op_definition
class SegmentOp(IRDLOperation):
    """A subgraph compiled for the target.

    ``circle`` holds the operators of the model and never changes: host fallback, reports and recompilation read it. The
    arguments are the operands. ``odc.yield`` returns the results. The lowered form of a segment is the module's symbol
    of the same name: an ``npu.program`` or a module of native functions. It does not exist before the lowering.

    Operators of ``circle`` may write an argument that is a variable. If ``odc.yield`` returns such an argument, the
    result is the final contents of the variable. The lowered form returns them as a value, and the segment copies this
    value to the variable.
    """

    name = "odc.segment"

    sym_name = prop_def(SymbolNameConstraint())
    target_name = opt_prop_def(StringAttr)
    inputs = var_operand_def()
    outputs = var_result_def()
    circle = region_def("single_block")
    traits = traits_def(IsolatedFromAbove())

    assembly_format = (
        "$sym_name `(` $inputs `)` `:` functional-type($inputs, $outputs) (`for` $target_name^)? "
        "`circle` $circle attr-dict-with-keyword"
    )

    def __init__(
        self,
        name: str,
        inputs: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        circle: Region,
        *,
        target_name: str | None = None,
    ) -> None:
        super().__init__(
            operands=[inputs],
            result_types=[result_types],
            regions=[circle],
            properties={
                "sym_name": StringAttr(name),
                "target_name": None if target_name is None else StringAttr(target_name),
            },
        )

    @property
    def circle_block(self) -> Block:
        return self.circle.block

    @property
    def ending(self) -> YieldOp:
        """Terminator of the block of the model's operators."""
        last = self.circle_block.last_op
        assert isinstance(last, YieldOp), "a verified segment ends in its yield"
        return last

    def verify_(self) -> None:
        self._verify_body()
        root = self.get_toplevel_object()
        program = lowered_symbols(root).get(self.sym_name.data) if isinstance(root, ModuleOp) else None
        found = None if program is None else program.properties.get("function_type")
        wanted = FunctionType.from_lists(self.operand_types, self.result_types)
        if found not in (None, wanted):
            raise self._error(f"its program has the type {found}, must have {wanted}")

    def _verify_body(self) -> None:
        last = self.circle_block.last_op
        if not isinstance(last, YieldOp):
            raise self._error(f"the circle body must end in odc.yield, found {last.name if last else 'nothing'}")
        for what, found, expected in (
            ("arguments", self.circle_block.arg_types, self.operand_types),
            ("results", last.operand_types, self.result_types),
        ):
            if tuple(found) != tuple(expected):
                raise self._error(f"{what} of the circle body must be {_types(expected)}, found {_types(found)}")

    def _error(self, message: str) -> VerifyException:
        return VerifyException(f"segment @{self.sym_name.data}: {message}")


def _types(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


Odc = Dialect("odc", [SegmentOp, YieldOp], [TargetAttr])
