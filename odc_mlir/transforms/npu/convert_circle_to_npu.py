"""``convert-circle-to-npu``: create a program for every segment, and lower its ``circle`` operators to ``npu``.

Before::

    %r = odc.segment @segment_0(%0) : … circle {
    ^bb0(%x: tensor<1x8x8x1x…>):
      %w = circle.const #circle.blob<…> : tensor<8x3x3x1x!quant.uniform<i8:f32, 0.5>>
      %y = circle.conv_2d(%x, %w, %b) {padding = same, …} : …
      odc.yield %y : …
    }

After: the segment keeps its body, and the module has a program of the same name. The program has multipliers instead of
scales, numbers instead of padding rules, and properties instead of constants::

    %r = odc.segment @segment_0(%0) : … circle {
      … as before …
    }
    npu.program @segment_0(%x: tensor<1x8x8x1x…>) -> tensor<1x8x8x8x…> {
      %y = npu.conv %x kernel [3, 3] pads [1, 1, 1, 1] weights <…> i8 zeros (-128, 0, 3) … : …
      odc.yield %y : …
    }

Tensor names stay on the locations. If the program of a segment already exists, the pass lowers the remaining ``circle``
operations of that program. The partitioner applies the same patterns to single operators of a copy, to estimate costs
(:mod:`odc_mlir.transforms.partition.plans.costs`).

The placement rules guarantee that some pattern matches every operator of a segment. An operator that no pattern
matches, or that a pattern refuses, is an error. In ``compile``, ``npu-choose-segments`` tries the patterns first, and
such an operator goes to the host with a reason that starts with ``lowering:``.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence
from importlib import import_module

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import ConstOp, NoneOp
from odc_mlir.dialects.npu import TENSOR_OPS
from odc_mlir.dialects.npu_program import create_programs, programs
from odc_mlir.dialects.odc import SegmentOp, YieldOp
from odc_mlir.legality import ConversionTarget
from odc_mlir.transforms.common.conversion import LoweringPattern, apply_conversion
from odc_mlir.transforms.common.rewriting import PatternPass
from odc_mlir.transforms.npu import lowering
from odc_mlir.transforms.npu.lowering.site import LowerToNpu


class EraseUnusedConstant(LoweringPattern[ConstOp | NoneOp]):
    """Erase a constant without uses."""

    def matches(self, op: ConstOp | NoneOp, /) -> bool:
        return not op.result.uses

    def lower(self, op: ConstOp | NoneOp, rewriter: PatternRewriter, /) -> None:
        rewriter.erase(op)


class ConvertCircleToNpuPass(PatternPass):
    """Create programs and lower the operators."""

    name = "convert-circle-to-npu"

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        """Return the patterns of the modules in ``lowering`` sorted by benefit, then by order of definition."""
        found: list[type[LowerToNpu]] = []
        for item in pkgutil.iter_modules(lowering.__path__):
            module = import_module(f"{lowering.__name__}.{item.name}")
            own = [value for value in vars(module).values() if getattr(value, "__module__", None) == module.__name__]
            found += [value for value in own if isinstance(value, type) and issubclass(value, LowerToNpu)]
        lowers = [kind for kind in found if kind.rewrite is not LowerToNpu.rewrite]
        return (*sorted(lowers, key=lambda kind: -kind.benefit), EraseUnusedConstant)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        create_programs(op, [item for item in op.walk() if isinstance(item, SegmentOp)])
        patterns = [kind() for kind in self.patterns()]
        target = ConversionTarget(self.name, (*(kind.name for kind in TENSOR_OPS), YieldOp.name))
        for program in programs(op).values():
            apply_conversion(ctx, program.body, target, patterns)
