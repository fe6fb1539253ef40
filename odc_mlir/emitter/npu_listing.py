"""Output target ``npu-listing``: the programs of a module as assembly text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from odc_mlir.dialects.odc import SegmentOp
from odc_mlir.emitter.segment import instructions
from odc_mlir.isa.assembly import disassemble


@dataclass(frozen=True)
class NpuListingTarget(Target):
    """Assembly text of every segment, each under a comment with its name."""

    name = "npu-listing"

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        for segment in [op for op in module.walk() if isinstance(op, SegmentOp)]:
            output.write(f"; segment {segment.sym_name.data}\n")
            output.write(disassemble(instructions(segment)))
