"""``npu-encode-weights``: compress weights into streams that the decoder of ``wload`` reads.

Before::

    %w = npu.buffer "weights" data <…> : !npu.buffer<constants, 4096xi8>
    npu.isa.wload source %w coded_bytes 4096 target %slot bytes 4096

After, if one of ``codings`` is shorter than the bytes themselves::

    %w = npu.buffer "weights" data <…> : !npu.buffer<constants, 2710xi8>
    npu.isa.wload source %w coded_bytes 2710 coding "huffman" target %slot bytes 4096

Every buffer is encoded once, in its own shortest form, even if several instructions read it. Buffers read by anything
but whole raw ``wload`` instructions are left unchanged, as are encoded ones. ``codings`` are the candidates beside raw
bytes, for ablations: ``npu-encode-weights{codings=raw}`` changes nothing. Rejects unknown codings.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Use
from xdsl.rewriter import Rewriter

from odc_mlir.dialects.npu_isa import BY_MNEMONIC as INSTRUCTIONS
from odc_mlir.dialects.npu_isa import BufferOp, InstructionOp
from odc_mlir.dialects.npu_memory import flat_type
from odc_mlir.errors import OptionError
from odc_mlir.isa.fields import Space
from odc_mlir.isa.table.transfers import CODINGS
from odc_mlir.isa.weight_coding import Coded, encode
from odc_mlir.support.deadline import in_time
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram
from odc_mlir.transforms.npu.schedule.program_pass import ProgramPass

_WLOAD = INSTRUCTIONS["wload"]
_SOURCE = _WLOAD.SPEC.place_names.index("source")


@dataclass(frozen=True)
class NpuEncodeWeightsPass(ProgramPass):
    """Encode; see the module's text."""

    name = "npu-encode-weights"

    codings: tuple[str, ...] = CODINGS
    """Codings to choose from, beside raw bytes."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if unknown := sorted(set(self.codings) - set(CODINGS)):
            raise OptionError(f"there is no weight coding {unknown[0]!r}", hint=f"use some of {', '.join(CODINGS)}")
        super().apply(ctx, op)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        buffers = [item for item in job.block.ops if type(item) is BufferOp and item.data is not None]
        for buffer in in_time(ctx, buffers):
            if buffer.buffer.uses and all(_is_whole(buffer, use) for use in buffer.buffer.uses):
                _encode(buffer, self.codings)


def _is_whole(buffer: BufferOp, use: Use) -> bool:
    """Whether ``use`` is a raw ``wload`` of all of ``buffer``."""
    op = use.operation
    if not isinstance(op, _WLOAD):
        return False
    fields = op.field_values
    own = fields.immediates.values
    whole = own["coded_bytes"] == own["bytes"] == buffer.size
    return whole and not own.get("coding", 0) and not fields.offsets[_SOURCE]


def _encode(buffer: BufferOp, codings: tuple[str, ...]) -> None:
    """Put the shortest form of ``buffer`` in its place."""
    assert buffer.data is not None, "constants have data"
    coded: Coded = encode(bytes(buffer.data.data.data), codings)
    if coded.coding == "raw":
        return
    made = BufferOp(buffer.label.data, flat_type(Space.CONSTANTS, len(coded.data)), data=coded.data)
    made.location = buffer.location
    for use in list(buffer.buffer.uses):
        op = use.operation
        assert isinstance(op, InstructionOp), "whole buffers are read by wload only"
        fields = op.field_values
        immediates = fields.immediates.replace(coded_bytes=len(coded.data), coding=coded.coding)
        op.set_fields(fields._replace(immediates=immediates))
    Rewriter.replace_op(buffer, made)
    buffer.properties.clear()  # its bytes: an operation and its result refer to each other
