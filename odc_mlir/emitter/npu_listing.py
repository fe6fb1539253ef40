"""Output target ``npu-listing``: the programs of a module as assembly text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import IO, cast

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.target import Target

from odc_mlir import targets
from odc_mlir.dialects.npu_program import programs
from odc_mlir.dialects.odc import SegmentOp, target_of
from odc_mlir.emitter.program import container_of, operator_kinds
from odc_mlir.errors import CompileError
from odc_mlir.isa.listing import write_listing


@dataclass(frozen=True)
class NpuListingTarget(Target):
    """Listings of all programs, each after a comment with its name; the assembler reads a single one back."""

    name = "npu-listing"

    data: bool = True
    """Whether the bytes of constants are written."""

    def emit(self, ctx: Context, module: ModuleOp, output: IO[str]) -> None:
        found = programs(module)
        kinds = {op.sym_name.data: operator_kinds(op) for op in module.walk() if isinstance(op, SegmentOp)}
        choice = target_of(module)
        if choice is None and found:
            raise CompileError("a listing needs a target", hint="run odc-set-target first")
        for name, program in found.items():
            assert choice is not None, "checked above"
            memory = cast(targets.MemoryMode, choice.memory)
            container = container_of(program, targets.load(choice.target), memory, kinds.get(name, {}))
            output.write(f"; program {name}\n{write_listing(container, data=self.data)}")
