"""Inputs and outputs of a program: how they lie in their regions, and what they leave of the SRAM for the arena."""

from __future__ import annotations

import math
from collections.abc import Sequence

from xdsl.dialects.builtin import DenseArrayBase, TensorType, i64
from xdsl.ir import Attribute

from odc_mlir.dialects.npu_program import INPUT_OFFSETS, OUTPUT_OFFSETS
from odc_mlir.errors import CompileError
from odc_mlir.isa.fields import REGION_ALIGNMENT_BYTES, Space
from odc_mlir.transforms.npu.schedule.arena import allocate, live_intervals
from odc_mlir.transforms.npu.schedule.instruction_ir import Program, TargetedProgram
from odc_mlir.transforms.npu.schedule.prefetch import too_small
from odc_mlir.transforms.npu.schedule.program import Buffer

_ATTRIBUTES = {Space.INPUTS: INPUT_OFFSETS, Space.OUTPUTS: OUTPUT_OFFSETS}


def _types(job: TargetedProgram, space: Space) -> Sequence[Attribute]:
    return job.program.input_types if space is Space.INPUTS else job.program.output_types


def _bytes(type_: Attribute) -> int:
    """Bytes of a tensor of one-byte codes."""
    assert isinstance(type_, TensorType), "inputs and outputs are tensors"
    return math.prod(type_.get_shape())


def _bound(job: TargetedProgram, program: Program, space: Space) -> dict[int, Buffer]:
    """The buffers of ``space`` by the number of the input or output; CompileError for a number that does not exist."""
    found: dict[int, Buffer] = {}
    for buffer in program.buffers:
        for number in buffer.binds if buffer.space is space else ():
            if not 0 <= number < len(_types(job, space)):
                raise CompileError(f"buffer {buffer.name!r} is bound to {space.value}, number {number}: there is none")
            found[number] = buffer
    return found


def _offsets(job: TargetedProgram, program: Program, space: Space) -> list[int]:
    """Where each input or output begins; those that are one buffer share a place."""
    bound, places = _bound(job, program, space), dict[Buffer, int]()
    offsets, end = [], 0
    for number, type_ in enumerate(_types(job, space)):
        buffer = bound.get(number)
        if buffer is not None and buffer in places:
            offsets.append(places[buffer])
            continue
        offsets.append(end)
        if buffer is not None:
            places[buffer] = end
        end += -(-_bytes(type_) // REGION_ALIGNMENT_BYTES) * REGION_ALIGNMENT_BYTES
    return offsets


def bind(job: TargetedProgram, program: Program) -> None:
    """Give inputs and outputs their addresses, and note them on the program."""
    for space, name in _ATTRIBUTES.items():
        offsets = _offsets(job, program, space)
        for number, buffer in _bound(job, program, space).items():
            buffer.address = offsets[number]
        job.program.attributes[name] = DenseArrayBase.from_list(i64, offsets)


def region_bytes(job: TargetedProgram, program: Program) -> dict[Space, int]:
    """Bytes of the input and the output region."""
    return {
        space: max(
            (
                offset + _bytes(type_)
                for offset, type_ in zip(_offsets(job, program, space), _types(job, space), strict=True)
            ),
            default=0,
        )
        for space in _ATTRIBUTES
    }


def arena_bytes(job: TargetedProgram, program: Program) -> int:
    """SRAM that is left for the arena; AllocationError where inputs and outputs leave none."""
    held = sum(region_bytes(job, program).values())
    if held > job.sram_bytes:
        used = allocate(live_intervals(program.commands, job.target.sram.burst_bytes))
        text = f"inputs and outputs need {held} bytes of SRAM, {job.sram_bytes} are allowed"
        raise too_small(text, held + used, job.sram_bytes)
    return job.sram_bytes - held
