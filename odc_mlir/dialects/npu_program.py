"""``npu.program``: a segment of the graph on its way from operators to instructions.

::

    npu.program @segment_0(%x: tensor<1x8xi8>) -> tensor<1x8xi8> {
      %y = npu.lut %x table <…> : tensor<1x8xi8> -> tensor<1x8xi8>
      odc.yield %y : tensor<1x8xi8>
    }

The ``odc.segment`` of the same name executes the program. A program contains everything that passes need. Each program
therefore compiles separately. The location of a program names its results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice

from xdsl.dialects.builtin import ArrayAttr, FunctionType, ModuleOp, StringAttr, SymbolNameConstraint
from xdsl.dialects.utils import parse_func_op_like, print_func_op_like
from xdsl.ir import Attribute, Block, Region
from xdsl.irdl import IRDLOperation, irdl_op_definition, prop_def, region_def, traits_def
from xdsl.parser import Parser
from xdsl.printer import Printer
from xdsl.rewriter import Rewriter
from xdsl.traits import IsolatedFromAbove, SymbolOpInterface
from xdsl.utils.exceptions import VerifyException

from odc_mlir.dialects.circle import CircleOp, freeze_known
from odc_mlir.dialects.odc import KEPT_STATES, SegmentOp, YieldOp, lowered_symbols
from odc_mlir.formats.quantities import distinct
from odc_mlir.support.locations import location_names, names_loc, value_name

# Attributes of a program of instructions: offsets of inputs and outputs in the memory regions.
INPUT_OFFSETS, OUTPUT_OFFSETS = "npu.input_offsets", "npu.output_offsets"
# Attribute of a program: the arena buffers that are live at the instruction with the highest arena use.
SRAM_PEAK = "npu.sram_peak"
# Attribute of a program: numbers of recomputed multiply-accumulates, by name of the operation.
RECOMPUTED_MACS = "npu.recomputed_macs"
# Attribute of a program, only if names in the model are not unique: distinct names of the results of each operator, in
# order.
RESULT_NAMES = "npu.result_names"
# Attribute of a program of tensor operations: chains of layers to divide into row stripes, as triples (first layer,
# last layer, rows).
CHAINS = "npu.chains"
# Attribute of a program of tensor operations: percentages that describe another machine, whose costs select the tiles.
TILED_FOR = "npu.tiled_for"
# Attribute of a program before local memories are allocated: memories whose slots get addresses by the time of uses.
TIMED = "npu.timed"
# Attribute of a program before prefetching of constants: options of the prefetching, as a dictionary.
PREFETCH = "npu.prefetch"
# Attribute of a program: maps operations that are computed with the tiles of another operation to the other operation.
FUSED = "npu.fused"
_DECLARED = ("sym_name", "function_type")


@irdl_op_definition
class ProgramOp(IRDLOperation):
    """A program of the NPU.

    Arguments of the body are the segment's inputs. A body of tensor operations ends in ``odc.yield`` with the outputs.
    A body of instructions ends in ``npu.isa.halt``.
    """

    name = "npu.program"

    sym_name = prop_def(SymbolNameConstraint())
    function_type = prop_def(FunctionType)
    body = region_def("single_block")
    traits = traits_def(IsolatedFromAbove(), SymbolOpInterface())

    def __init__(self, name: str, inputs: Sequence[Attribute], outputs: Sequence[Attribute], body: Region) -> None:
        properties = {"sym_name": StringAttr(name), "function_type": FunctionType.from_lists(inputs, outputs)}
        super().__init__(properties=properties, regions=[body])

    @property
    def block(self) -> Block:
        return self.body.block

    @property
    def input_types(self) -> tuple[Attribute, ...]:
        return tuple(self.function_type.inputs)

    @property
    def output_types(self) -> tuple[Attribute, ...]:
        return tuple(self.function_type.outputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Tensor names of the outputs, or "" for unnamed outputs."""
        names = location_names(self.location)
        return tuple(names[index] if index < len(names) else "" for index in range(len(self.output_types)))

    @classmethod
    def parse(cls, parser: Parser) -> ProgramOp:
        name, inputs, outputs, body, extra, _, _ = parse_func_op_like(parser, reserved_attr_names=_DECLARED)
        program = cls(name, inputs, outputs, body)
        program.attributes |= {} if extra is None else extra.data
        return program

    def print(self, printer: Printer) -> None:
        print_func_op_like(
            printer, self.sym_name, self.function_type, self.body, self.attributes, reserved_attr_names=_DECLARED
        )

    def verify_(self) -> None:
        pairs = [("takes", self.input_types, self.block.arg_types)]
        if isinstance(self.block.last_op, YieldOp):
            pairs.append(("gives", self.output_types, self.block.last_op.operand_types))
        for verb, declared, found in pairs:
            if tuple(declared) != tuple(found):
                seen, wanted = (", ".join(map(str, types)) for types in (found, declared))
                raise VerifyException(
                    f"program @{self.sym_name.data}: the body {verb} ({seen}), declared is ({wanted})"
                )


def create_programs(module: ModuleOp, segments: Iterable[SegmentOp]) -> None:
    """Add a program to ``module`` for each segment that lacks a program. It replaces code for another target."""
    known = lowered_symbols(module)
    for segment in segments:
        if isinstance(other := known.get(segment.sym_name.data), ProgramOp):
            continue
        if other is not None:
            Rewriter.erase_op(other)
        module.body.block.add_op(make_program(segment))


def make_program(segment: SegmentOp) -> ProgramOp:
    """Create a program from a copy of the operators of ``segment``. Names of results distinguish the operators."""
    program = ProgramOp(segment.sym_name.data, segment.operand_types, segment.result_types, segment.circle.clone())
    program.location = segment.location
    freeze_known(program.block, segment.operands)
    if KEPT_STATES in segment.attributes:
        program.attributes[KEPT_STATES] = segment.attributes[KEPT_STATES]
    _set_distinct_names(program)
    return program


def distinct_names(block: Block) -> list[tuple[str, ...]]:
    """Return distinct names for the results of each operator in ``block``, in order.

    Unique tensor names are kept. A tensor without a name gets the operator's name. A repeated name gets the operator's
    number. Models need no names, but programs identify layers by names.
    """
    found = [(number, op, result) for number, op in enumerate(_operators(block)) for result in op.results]
    own = [value_name(result) for _, _, result in found]
    others = [f"{name or op.SPEC.name}#{number}" for name, (number, op, _) in zip(own, found, strict=True)]
    made = iter(distinct(own, others))
    return [tuple(islice(made, len(op.results))) for op in _operators(block)]


def _operators(block: Block) -> list[CircleOp]:
    return [op for op in block.ops if isinstance(op, CircleOp)]


def _set_distinct_names(program: ProgramOp) -> None:
    """Set locations of operators to :func:`distinct_names`. If any name differs, also set RESULT_NAMES."""
    names, differ = distinct_names(program.block), False
    for op, made in zip(_operators(program.block), names, strict=True):
        if made != tuple(value_name(result) for result in op.results):
            op.location, differ = names_loc(made), True
    if not differ:
        return
    program.attributes[RESULT_NAMES] = ArrayAttr([ArrayAttr([StringAttr(name) for name in made]) for made in names])
    last = program.block.last_op
    assert isinstance(last, YieldOp), "a verified segment ends so"
    last.location = names_loc([value_name(value) for value in last.operands])


def programs(module: ModuleOp) -> dict[str, ProgramOp]:
    """Return the programs of a module by name."""
    return {op.sym_name.data: op for op in module.body.block.ops if isinstance(op, ProgramOp)}
