"""Passes that are anchored on ``npu.program``."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.support.deadline import checkpoint
from odc_mlir.transforms.npu.schedule.instruction_ir import TargetedProgram, targeted_programs


@dataclass(frozen=True)
class ProgramPass(ModulePass):
    """Runs on each program of a module by itself, and leaves all around them as it is."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        for job in targeted_programs(op, self.name):
            checkpoint(ctx)
            self.apply_to(ctx, job)

    @abstractmethod
    def apply_to(self, ctx: Context, job: TargetedProgram) -> None:
        """Run on one program."""
