"""``native-set-target``: record the target processor of the compilation.

After: the module has ``odc.target = #odc.target<"x86-64-vnni", …>``.

Rejects a processor without a description.
"""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.passes import ModulePass

from odc_mlir.dialects.odc import TARGET, TargetAttr, TargetChoice, target_of
from odc_mlir.errors import CompileError
from odc_mlir.processors import CpuTarget, load


@dataclass(frozen=True)
class NativeSetTargetPass(ModulePass):
    """Record the processor."""

    name = "native-set-target"

    target: str = "x86-64-vnni"
    """Name of a shipped description of a processor."""

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        op.attributes[TARGET] = TargetAttr(TargetChoice(load(self.target).name))


def machine_of(module: ModuleOp) -> CpuTarget:
    """Return the processor that ``native-set-target`` recorded. Raises CompileError if there is none."""
    choice = target_of(module)
    if choice is None:
        raise CompileError("no processor is chosen", hint="run native-set-target first")
    return load(choice.target)
