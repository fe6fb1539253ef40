"""``npu-encode-weights``: compress weights into streams that the decoder of ``wload`` reads.

Before::

    %w = npu.buffer "weights" data <…> : !npu.buffer<constants, 4096xi8>
    npu.isa.wload source %w coded_bytes 4096 target %slot bytes 4096

After, if one of ``codings`` makes the weights shorter::

    %w = npu.buffer "weights" data <…> : !npu.buffer<constants, 2710xi8>
    npu.isa.wload source %w coded_bytes 2710 coding "huffman" target %slot bytes 4096

Every buffer is encoded once, in the shortest coding, even if several instructions read it. A buffer changes only if it
is not encoded yet, and only raw ``wload`` instructions of the whole buffer read it. ``codings`` limits the candidates,
for ablations: ``{codings=raw}`` changes nothing. Rejects unknown codings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Use
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern, op_type_rewrite_pattern

from odc_mlir.dialects.npu_isa import BY_MNEMONIC as INSTRUCTIONS
from odc_mlir.dialects.npu_isa import BufferOp, InstructionOp
from odc_mlir.dialects.npu_memory import flat_type
from odc_mlir.errors import OptionError
from odc_mlir.isa.fields import Space
from odc_mlir.isa.table.transfers import CODINGS
from odc_mlir.isa.weight_coding import Coded, encode
from odc_mlir.support.deadline import in_time
from odc_mlir.transforms.common.rewriting import apply_patterns_to
from odc_mlir.transforms.npu.schedule.instruction_ir import ProgramPatternPass, TargetedProgram

_WLOAD = INSTRUCTIONS["wload"]
_SOURCE = _WLOAD.SPEC.place_names.index("source")


@dataclass(frozen=True)
class NpuEncodeWeightsPass(ProgramPatternPass):
    """Encode constant weights."""

    name = "npu-encode-weights"

    codings: tuple[str, ...] = CODINGS
    """Codings to choose from, in addition to raw bytes."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (EncodeWeights,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        if unknown := sorted(set(self.codings) - set(CODINGS)):
            raise OptionError(f"there is no weight coding {unknown[0]!r}", hint=f"use some of {', '.join(CODINGS)}")
        super().apply(ctx, op)

    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        buffers = [item for item in job.block.ops if type(item) is BufferOp and item.data is not None]
        apply_patterns_to([EncodeWeights(self.codings)], in_time(ctx, buffers))


@dataclass(frozen=True)
class EncodeWeights(RewritePattern):
    """Encode a constant in its shortest form if only raw ``wload``s of the whole constant read it."""

    codings: tuple[str, ...]

    @op_type_rewrite_pattern
    def match_and_rewrite(self, op: BufferOp, rewriter: PatternRewriter) -> None:
        if op.data is None or not op.buffer.uses or not all(_is_whole(op, use) for use in op.buffer.uses):
            return
        coded: Coded = encode(bytes(op.data.data.data), self.codings)
        if coded.coding == "raw":
            return
        for use in list(op.buffer.uses):
            load = use.operation
            assert isinstance(load, InstructionOp), "only wload reads whole buffers"
            fields = load.field_values
            immediates = fields.immediates.replace(coded_bytes=len(coded.data), coding=coded.coding)
            load.set_fields(fields._replace(immediates=immediates))
        made = BufferOp(op.label.data, flat_type(Space.CONSTANTS, len(coded.data)), data=coded.data)
        made.location = op.location
        rewriter.replace(op, made)
        op.properties.clear()  # frees the bytes at once: operation and result form a reference cycle


def _is_whole(buffer: BufferOp, use: Use) -> bool:
    op = use.operation
    if not isinstance(op, _WLOAD):
        return False
    fields = op.field_values
    own = fields.immediates.values
    whole = own["coded_bytes"] == own["bytes"] == buffer.size
    return whole and not own.get("coding", 0) and not fields.offsets[_SOURCE]
