"""Output target ``npu-listing``: the programs of a module as assembly text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from odc_mlir import targets
from odc_mlir.dialects.odc import SegmentOp, target_of
from odc_mlir.emitter.segment import container_of
from odc_mlir.errors import CompileError
from odc_mlir.isa.listing import write_listing


@dataclass(frozen=True)
class NpuListingTarget(Target):
    """Listings of all segments, each under a comment with its name; one on its own reads back to its binary."""

    name = "npu-listing"

    data: bool = True
    """Whether the bytes of constants are written."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = [op for op in module.walk() if isinstance(op, SegmentOp)]
        choice = target_of(module)
        if choice is None and found:
            raise CompileError("a listing needs a target", hint="run odc-set-target first")
        for segment in found:
            assert choice is not None, "checked above"
            output.write(f"; segment {segment.sym_name.data}\n")
            memory = cast(targets.MemoryMode, choice.memory)
            output.write(write_listing(container_of(segment, targets.load(choice.target), memory), data=self.data))
