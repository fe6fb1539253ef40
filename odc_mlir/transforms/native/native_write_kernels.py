"""``native-write-kernels``: generate loops for the declared kernels of a segment.

Before::

    func.func private @flip_sign(memref<?xi8>, memref<?xi8>, index) -> () attributes {native.kernel = "flip_sign"}

After::

    func.func private @flip_sign(%input: memref<?xi8>, %output: memref<?xi8>, %count: index) {
      scf.for %i = %c0 to %count step %c64 {
        %0 = vector.load %input[%i] : memref<?xi8>, vector<64xi8>
        …

Small functions that kernels call are added after them, marked ``native.inline``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp, UnitAttr
from xdsl.dialects.func import FuncOp
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.native_attributes import INLINE, KERNEL
from odc_mlir.support.locations import name_inside
from odc_mlir.transforms.common.conversion import LoweringPattern
from odc_mlir.transforms.common.rewriting import PatternPass, apply_patterns_to
from odc_mlir.transforms.native.kernels.registry import Helpers, write_kernel
from odc_mlir.transforms.native.lowering.segment_writer import declared_kernel
from odc_mlir.transforms.native.native_allocate_memory import segment_modules
from odc_mlir.transforms.native.native_set_target import machine_of


@dataclass
class WriteKernel(LoweringPattern[FuncOp]):
    """Replace the declaration of a kernel by the function with its loops."""

    helpers: Helpers

    def matches(self, op: FuncOp, /) -> bool:
        return KERNEL in op.attributes

    def lower(self, op: FuncOp, rewriter: PatternRewriter, /) -> None:
        written = write_kernel(*declared_kernel(op), self.helpers)
        name_inside(written, written.sym_name.data)  # several layers share a kernel
        rewriter.replace(op, written)


class NativeWriteKernelsPass(PatternPass):
    """Write the loops of every declared kernel."""

    name = "native-write-kernels"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (WriteKernel,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        machine = machine_of(op)
        for module in segment_modules(op):
            helpers = Helpers(machine.dot)
            apply_patterns_to([WriteKernel(helpers)], list(module.ops))
            for helper in helpers.made.values():
                helper.attributes[INLINE] = UnitAttr()
                name_inside(helper, helper.sym_name.data)
                module.body.block.add_op(helper)
