"""Addresses of a program's inputs and outputs, and the SRAM left for the arena."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute

from odc_mlir.dialects.circle_types import tensor_facts
from odc_mlir.dialects.npu_program import INPUT_OFFSETS, OUTPUT_OFFSETS
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES, Space
from odc_mlir.ops.dtypes import DTYPES
from odc_mlir.transforms.npu.schedule.arena import allocate, live_intervals
from odc_mlir.transforms.npu.schedule.instruction_ir import DecodedProgram, TargetedProgram
from odc_mlir.transforms.npu.schedule.prefetch import too_small
from odc_mlir.transforms.npu.schedule.program import Buffer

_ATTRIBUTES = {Space.INPUTS: INPUT_OFFSETS, Space.OUTPUTS: OUTPUT_OFFSETS}


def _types(job: TargetedProgram, space: Space) -> Sequence[Attribute]:
    return job.program.input_types if space is Space.INPUTS else job.program.output_types


def _bytes(type_: Attribute) -> int:
    assert isinstance(type_, TensorType), "inputs and outputs are tensors"
    return math.prod(type_.get_shape()) * DTYPES[tensor_facts(type_).dtype].numpy.itemsize


def _bound(job: TargetedProgram, program: DecodedProgram, space: Space) -> dict[int, Buffer]:
    """Return the buffer of each input or output by number. Raises CompileError for a number that does not exist."""
    found: dict[int, Buffer] = {}
    for buffer in program.buffers:
        shared = buffer.takes if space is Space.INPUTS else buffer.gives
        for number in shared or (buffer.binds if buffer.space is space else ()):
            if not 0 <= number < len(_types(job, space)):
                raise CompileError(f"buffer {buffer.name!r} is bound to {space.value}, number {number}: there is none")
            found[number] = buffer
    return found


def _own_offsets(job: TargetedProgram, program: DecodedProgram, space: Space) -> dict[int, int]:
    """Return the offset of each input or output outside of the arena. Tensors in one buffer share an offset."""
    bound, places = _bound(job, program, space), dict[Buffer, int]()
    offsets, end = {}, 0
    for number, type_ in enumerate(_types(job, space)):
        buffer = bound.get(number)
        if buffer is not None and buffer.space is Space.ARENA:
            continue
        if buffer is not None and buffer in places:
            offsets[number] = places[buffer]
            continue
        offsets[number] = end
        if buffer is not None:
            places[buffer] = end
        end += -(-_bytes(type_) // REGION_ALIGNMENT_BYTES) * REGION_ALIGNMENT_BYTES
    return offsets


def bind(job: TargetedProgram, program: DecodedProgram, addresses: dict[Buffer, int]) -> None:
    """Add inputs and outputs outside of the arena to ``addresses``, and record all offsets on the program."""
    for space, name in _ATTRIBUTES.items():
        offsets, bound = _own_offsets(job, program, space), _bound(job, program, space)
        addresses |= {bound[number]: offset for number, offset in offsets.items() if number in bound}
        places = (offsets[n] if n in offsets else addresses.get(bound[n], 0) for n in range(len(_types(job, space))))
        job.program.attributes[name] = DenseArrayBase.from_list(i64, list(places))


def region_bytes(job: TargetedProgram, program: DecodedProgram) -> dict[Space, int]:
    """Return the bytes of the input and the output region."""
    found = {}
    for space in _ATTRIBUTES:
        types, offsets = _types(job, space), _own_offsets(job, program, space)
        found[space] = max((offset + _bytes(types[number]) for number, offset in offsets.items()), default=0)
    return found


def arena_bytes(job: TargetedProgram, program: DecodedProgram) -> int:
    """Return the SRAM left for the arena. Raises AllocationError if inputs and outputs leave none."""
    held = sum(region_bytes(job, program).values())
    if held > job.sram_bytes:
        used = allocate(live_intervals(program.commands, job.target.sram.burst_bytes))
        text = f"inputs and outputs need {held} bytes of SRAM, {job.sram_bytes} are allowed"
        raise too_small(text, held + used, job.sram_bytes)
    return job.sram_bytes - held
