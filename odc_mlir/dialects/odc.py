"""The ``odc`` dialect: the chosen target, and segments, the pieces of a graph that are compiled for it.

::

    builtin.module attributes {odc.target = #odc.target<"npu-256", memory = flash, prefer = performance>} {
      func.func @main(%x: tensor<1x8xi8>) -> tensor<1x8xi8> {
        %y = odc.segment @segment_0(%x) : (tensor<1x8xi8>) -> tensor<1x8xi8> circle {
        ^bb0(%a: tensor<1x8xi8>):
          %b = circle.relu(%a) : (tensor<1x8xi8>) -> tensor<1x8xi8>
          odc.yield %b : tensor<1x8xi8>
        } target {
        }
        func.return %y : tensor<1x8xi8>
      }
    }
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp, StringAttr, SymbolNameConstraint
from xdsl.dialects.utils import AbstractYieldOperation
from xdsl.ir import Attribute, Block, Data, Dialect, Region, SSAValue
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

TARGET = "odc.target"
"""The module attribute that holds the chosen target."""

# Allowed words of a choice; numerics `litert` is for the host only and cannot be compiled for.
WORDS = {
    "memory": ("flash", "sram"),
    "prefer": ("performance", "memory", "compile-time"),
    "numerics": ("fixed", "litert"),
}


@dataclass(frozen=True, slots=True)
class TargetChoice:
    """What to compile for: ``target`` is a shipped name or a .toml file, ``sram_limit`` bytes (None: all there is)."""

    target: str
    memory: str = "flash"
    prefer: str = "performance"
    sram_limit: int | None = None
    numerics: str = "fixed"


@irdl_attr_definition
class TargetAttr(Data[TargetChoice]):
    """``#odc.target<"npu-256", memory = flash, prefer = performance, sram_limit = 65536, numerics = fixed>``.

    Everything behind the name may be left out.
    """

    name = "odc.target"

    def verify(self) -> None:
        choice = self.data
        if not choice.target:
            raise VerifyException("the target's name is empty")
        for field, words in WORDS.items():
            if getattr(choice, field) not in words:
                raise VerifyException(f"{field} is {getattr(choice, field)!r}, allowed: {', '.join(words)}")
        if choice.sram_limit is not None and choice.sram_limit <= 0:
            raise VerifyException(f"sram_limit is {choice.sram_limit}, must be a positive number of bytes")

    @classmethod
    def parse_parameter(cls, parser: AttrParser) -> TargetChoice:
        fields: dict[str, str | int] = {}
        with parser.in_angle_brackets():
            target = parser.parse_str_literal(" of a target's name")
            while parser.parse_optional_punctuation(",") is not None:
                key = parser.parse_identifier(" of a target option")
                if key in fields or key not in (*WORDS, "sram_limit"):
                    parser.raise_error(f"unexpected {key}, allowed once each: {', '.join((*WORDS, 'sram_limit'))}")
                parser.parse_punctuation("=")
                if key == "sram_limit":
                    fields[key] = parser.parse_integer(allow_boolean=False, allow_negative=False)
                else:
                    fields[key] = parser.parse_identifier_or_str_literal(f" as {key}")
        return TargetChoice(target, **fields)  # type: ignore[arg-type]

    def print_parameter(self, printer: Printer) -> None:
        choice = self.data
        with printer.in_angle_brackets():
            printer.print_string_literal(choice.target)
            for field in ("memory", "prefer", "sram_limit", "numerics"):
                value = getattr(choice, field)
                if value is None:
                    continue
                printer.print_string(f", {field} = ")
                if isinstance(value, int):
                    printer.print_string(str(value))
                else:
                    printer.print_identifier_or_string_literal(value)


def target_of(module: ModuleOp) -> TargetChoice | None:
    """The target that ``odc-set-target`` chose for this module, None before that."""
    attribute = module.attributes.get(TARGET)
    return attribute.data if isinstance(attribute, TargetAttr) else None


@irdl_op_definition
class YieldOp(AbstractYieldOperation[Attribute]):
    """Ends a body of a segment and gives its results."""

    name = "odc.yield"
    traits = traits_def(IsTerminator())


@irdl_op_definition
class EndOp(IRDLOperation):
    """Ends a target body that holds a module of functions, whose parameters say what goes in and out."""

    name = "odc.end"
    traits = traits_def(IsTerminator())

    assembly_format = "attr-dict"


@irdl_op_definition
class SegmentOp(IRDLOperation):
    """A piece of the graph compiled for the target, kept twice.

    ``circle`` holds the operators as the model has them and never changes: host fallback, reports and compiling again
    read it. ``target`` holds what becomes the binary; it is empty until the segment is lowered. In both, the block's
    arguments are the operands; ``odc.yield`` gives the results. Once the target body consists of instructions, it ends
    in the device's own terminator instead.
    """

    name = "odc.segment"

    sym_name = prop_def(SymbolNameConstraint())
    target_name = opt_prop_def(StringAttr)
    inputs = var_operand_def()
    outputs = var_result_def()
    circle = region_def("single_block")
    target = region_def()
    traits = traits_def(IsolatedFromAbove())

    assembly_format = (
        "$sym_name `(` $inputs `)` `:` functional-type($inputs, $outputs) (`for` $target_name^)? "
        "`circle` $circle `target` $target attr-dict-with-keyword"
    )

    def __init__(
        self,
        name: str,
        inputs: Sequence[SSAValue],
        result_types: Sequence[Attribute],
        circle: Region,
        target: Region | None = None,
        *,
        target_name: str | None = None,
    ) -> None:
        super().__init__(
            operands=[inputs],
            result_types=[result_types],
            regions=[circle, Region() if target is None else target],
            properties={
                "sym_name": StringAttr(name),
                "target_name": None if target_name is None else StringAttr(target_name),
            },
        )

    @property
    def circle_block(self) -> Block:
        """The block of the operators as the model has them."""
        return self.circle.block

    @property
    def target_block(self) -> Block | None:
        """The block that becomes the binary, None before the segment is lowered."""
        return self.target.blocks.first

    def verify_(self) -> None:
        self._verify_body(self.circle_block, "circle")
        if len(self.target.blocks) > 1:
            raise self._error(f"the target body has {len(self.target.blocks)} blocks, must have at most one")
        if self.target_block is not None and isinstance(self.target_block.last_op, YieldOp):
            self._verify_body(self.target_block, "target")

    def _verify_body(self, block: Block, what: str) -> None:
        if (found := tuple(block.arg_types)) != (expected := tuple(self.operand_types)):
            raise self._error(f"arguments of the {what} body must be {_types(expected)}, found {_types(found)}")
        last = block.last_op
        if not isinstance(last, YieldOp):
            raise self._error(f"the {what} body must end in odc.yield, found {last.name if last else 'nothing'}")
        if (found := tuple(last.operand_types)) != (expected := tuple(self.result_types)):
            raise self._error(f"results of the {what} body must be {_types(expected)}, found {_types(found)}")

    def _error(self, message: str) -> VerifyException:
        return VerifyException(f"segment @{self.sym_name.data}: {message}")


def _types(types: Sequence[Attribute]) -> str:
    return f"({', '.join(map(str, types))})"


Odc = Dialect("odc", [SegmentOp, YieldOp, EndOp], [TargetAttr])
