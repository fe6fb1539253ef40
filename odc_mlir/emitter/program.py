"""``.npu`` files and assembly text of programs of instructions."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import IO, Any, NamedTuple, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ArrayAttr, DenseArrayBase, DictionaryAttr, IntegerAttr, ModuleOp
from xdsl.ir import Attribute
from xdsl.utils.target import Target as XdslTarget

from odc_mlir import targets
from odc_mlir._version import __version__
from odc_mlir.dialects import npu_program
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.dialects.circle_types import tensor_facts
from odc_mlir.dialects.npu_isa import BufferOp, Homes, InstructionOp, LoopOp, is_instruction
from odc_mlir.dialects.npu_memory import BufferType
from odc_mlir.dialects.odc import SegmentOp, kept_states, target_of
from odc_mlir.errors import CompileError
from odc_mlir.isa import codec
from odc_mlir.isa.assembly import write_listing
from odc_mlir.isa.codec import Instr
from odc_mlir.isa.compact import write_code
from odc_mlir.isa.container import RESULTS, SEGMENT, STATES, Container, MapEntry, TensorRecord, write
from odc_mlir.isa.fields import Kind, Region, Space
from odc_mlir.isa.table.convolution import CONV
from odc_mlir.support.locations import op_name, value_name
from odc_mlir.targets import MemoryMode, Target

TARGET_DESCRIPTION = "target_description"  # metadata key that the simulator reads


def emit_program(
    program: npu_program.ProgramOp, target: Target, memory: MemoryMode, kinds: Mapping[str, str] = MappingProxyType({})
) -> bytes:
    """Return the ``.npu`` file of ``program``. :func:`container_of` explains arguments and errors."""
    return write(container_of(program, target, memory, kinds))


def operator_kinds(segment: SegmentOp) -> dict[str, str]:
    """Return the opcodes of a segment's operators, by operator name."""
    found = [op for op in segment.circle_block.ops if isinstance(op, CircleOp)]
    names = npu_program.distinct_names(segment.circle_block)
    return {name: op.SPEC.name for op, own in zip(found, names, strict=True) for name in own[:1]}


def container_of(
    program: npu_program.ProgramOp, target: Target, memory: MemoryMode, kinds: Mapping[str, str] = MappingProxyType({})
) -> Container:
    """Return the contents of the file of ``program``.

    ``kinds``: see :func:`operator_kinds`. Raises CompileError for a program that is not at the end of stage npu-alloc.
    """
    emitted = _emitted(program)
    regions = _regions(program)
    input_names = [value_name(argument) for argument in program.block.args]
    inputs = _records(regions[0], input_names, program.input_types, _offsets(program, npu_program.INPUT_OFFSETS))
    outputs = _records(
        regions[1], program.output_names, program.output_types, _offsets(program, npu_program.OUTPUT_OFFSETS)
    )
    constants = _constants(program)
    end = max((address + op.size for address, op in _buffers(program, Space.ARENA)), default=0)
    return Container(
        code=write_code((item.instr for item in emitted), target.fetch.loop_buffer_bytes),
        constants=constants,
        inputs=inputs,
        outputs=outputs,
        operators=_operators(emitted, kinds, _recomputed(program)),
        target_digest=target.digest(memory),
        arena_bytes=-(-end // target.sram.burst_bytes) * target.sram.burst_bytes,
        metadata=_metadata(program, target, memory),
        source_hash=hashlib.sha256(constants).digest()[:16],
        compiler_version=_version(),
    )


def _metadata(program: npu_program.ProgramOp, target: Target, memory: MemoryMode) -> dict[str, Any]:
    known: dict[str, Any] = {
        "target": target.name,
        "target_version": target.version,
        "memory": memory,
        SEGMENT: program.sym_name.data,
        "compiler": __version__,
    }
    if npu_program.SRAM_PEAK in program.attributes:
        known["sram_peak"] = plain_data(program.attributes[npu_program.SRAM_PEAK])
    if npu_program.RESULT_NAMES in program.attributes:
        known[RESULTS] = plain_data(program.attributes[npu_program.RESULT_NAMES])
    if states := kept_states(program):
        known[STATES] = [list(pair) for pair in states]
    return known if target.name in targets.names() else known | {TARGET_DESCRIPTION: target.canonical}


def plain_data(attribute: Attribute) -> Any:
    """Return an attribute of dictionaries, lists, integers and strings as plain data."""
    if isinstance(attribute, DictionaryAttr):
        return {key: plain_data(value) for key, value in attribute.data.items()}
    if isinstance(attribute, ArrayAttr):
        return [plain_data(value) for value in attribute]
    return attribute.value.data if isinstance(attribute, IntegerAttr) else getattr(attribute, "data", str(attribute))


class Emitted(NamedTuple):
    """Instruction of a program and the operation (None for a loop)."""

    instr: Instr
    op: InstructionOp | None


def _emitted(program: npu_program.ProgramOp) -> list[Emitted]:
    if program.block.last_op is None or not is_instruction(program.block.last_op):
        raise CompileError(
            f"program {program.sym_name.data} holds no instructions", hint="run the stage npu-alloc first"
        )
    emitted: list[Emitted] = []
    homes = Homes()
    for op in program.block.ops:
        if type(op) is BufferOp:
            continue
        if type(op) is LoopOp:
            body = [Emitted(_instruction(inner, homes), inner) for inner in op.instructions]
            size = sum(item.instr.size_bytes for item in body)
            emitted.append(Emitted(codec.make("loop", count=op.iterations, body_bytes=size), None))
            emitted += [*body, Emitted(codec.make("end"), None)]
        elif is_instruction(op):
            emitted.append(Emitted(_instruction(op, homes), op))
    return emitted


def _instruction(op: InstructionOp, homes: Homes) -> Instr:
    fields = op.field_values
    values = dict(fields.immediates.values)
    operands = iter(op._operands)
    for field, offset in zip(op.SPEC.places, fields.offsets, strict=True):
        if offset is None:
            continue
        space, base = homes.of(op, next(operands))
        address = base + offset
        values[field.name] = codec.address(space.region, address) if field.kind is Kind.MEMORY else address
    return Instr(op.SPEC, values, op.semaphores("waits"), op.semaphores("posts"), fields.queue, fields.steps)


def _buffers(program: npu_program.ProgramOp, space: Space) -> list[tuple[int, BufferOp]]:
    found = []
    for op in program.block.ops:
        if type(op) is not BufferOp:
            continue
        kind = op.results[0].type
        if isinstance(kind, BufferType) and kind.space is space:
            found.append((0 if op.address is None else op.address.value.data, op))
    return sorted(found, key=lambda item: item[0])


def _constants(program: npu_program.ProgramOp) -> bytes:
    parts: list[bytes | memoryview] = []  # joined only once, because constants may be large
    end = 0
    for address, op in _buffers(program, Space.CONSTANTS):
        assert op.data is not None, "the verifier requires data of constants"
        if address < end:
            raise CompileError("two constants overlap", tensor=op.label.data)
        parts += [bytes(address - end), op.data.bytes]
        end = address + op.size
    return b"".join(parts)


def _offsets(program: npu_program.ProgramOp, name: str) -> tuple[int, ...]:
    attribute = program.attributes.get(name)
    return tuple(attribute.get_values()) if isinstance(attribute, DenseArrayBase) else ()


def _regions(program: npu_program.ProgramOp) -> tuple[list[Region], list[Region]]:
    """Return the region of each input and each output: the arena if an arena buffer holds the tensor."""
    inputs = [Region.INPUTS] * len(program.input_types)
    outputs = [Region.OUTPUTS] * len(program.output_types)
    for _, op in _buffers(program, Space.ARENA):
        for numbers, regions in ((op.takes, inputs), (op.gives, outputs)):
            for number in () if numbers is None else numbers.get_values():
                regions[number] = Region.ARENA
    return inputs, outputs


def _records(
    regions: Sequence[Region], names: Sequence[str], types: Sequence[Attribute], offsets: Sequence[int]
) -> tuple[TensorRecord, ...]:
    records = []
    for region, name, type_, offset in zip(regions, names, types, offsets, strict=True):
        facts = tensor_facts(type_)
        assert facts.shape is not None, "operations of the NPU have static shapes"
        shape, quant = tuple(size for size in facts.shape if size is not None), facts.quant
        scale, zero_point = (quant.scale, quant.zero_point) if quant is not None and quant.per_tensor else (None, 0)
        records.append(TensorRecord(name, facts.dtype, shape, scale, zero_point, int(region), offset))
    return tuple(records)


def _recomputed(program: npu_program.ProgramOp) -> dict[str, int]:
    attribute = program.attributes.get(npu_program.RECOMPUTED_MACS)
    if not isinstance(attribute, DictionaryAttr):
        return {}
    return {name: macs.value.data for name, macs in attribute.data.items() if isinstance(macs, IntegerAttr)}


def _operators(program: Sequence[Emitted], kinds: Mapping[str, str], again: Mapping[str, int]) -> tuple[MapEntry, ...]:
    macs: dict[str, int] = {}
    ranges: dict[str, list[tuple[int, int]]] = {}
    iterations = 1
    for index, (instr, op) in enumerate(program[:-1]):
        if op is None:
            iterations = max(1, instr["count"])
            continue
        name = op_name(op)
        macs[name] = macs.get(name, 0) + (iterations * instruction_macs(instr.values) if instr.spec is CONV else 0)
        found = ranges.setdefault(name, [])
        if found and sum(found[-1]) == index:
            found[-1] = (found[-1][0], found[-1][1] + 1)
        else:
            found.append((index, 1))
    return tuple(
        MapEntry(name, kinds.get(name, ""), macs[name] - again.get(name, 0), again.get(name, 0), tuple(spans))
        for name, spans in ranges.items()
    )


def instruction_macs(values: Mapping[str, int]) -> int:
    """Return the multiply-accumulates of one ``conv`` instruction, including taps in the padding."""
    depth = values["kernel_height"] * values["kernel_width"]
    depth *= 1 if values.get("depthwise") else values["in_channels"]
    return values["out_width"] * values["out_height"] * values["channels"] * depth


def _version() -> tuple[int, int, int]:
    major, minor, patch = (int(part) for part in __version__.split(".")[:3])
    return major, minor, patch


@dataclass(frozen=True)
class NpuListingTarget(XdslTarget):
    """Listings of all programs. Comments name the programs. The assembler reads a single listing."""

    name = "npu-listing"

    data: bool = True
    """Write the bytes of constants."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = npu_program.programs(module)
        kinds = {op.sym_name.data: operator_kinds(op) for op in module.walk() if isinstance(op, SegmentOp)}
        choice = target_of(module)
        if choice is None and found:
            raise CompileError("a listing needs a target", hint="run odc-set-target first")
        for name, program in found.items():
            assert choice is not None, "checked above"
            memory = cast(targets.MemoryMode, choice.memory)
            container = container_of(program, targets.load(choice.target), memory, kinds.get(name, {}))
            output.write(f"; program {name}\n{write_listing(container, data=self.data)}")
