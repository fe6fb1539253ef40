"""``circle-optimize``: apply named rewrites until none matches.

Before::

    %0 = circle.conv_2d(%x, %w, %b) {padding = same, stride = [1, 1]} : … -> tensor<1x8x8x4xf32>
    %1 = circle.mul(%0, %gamma) : (tensor<1x8x8x4xf32>, tensor<4xf32>) -> tensor<1x8x8x4xf32>

After ``circle-optimize{rewrites=fuse_mul_with_conv}``: one ``circle.conv_2d`` with scaled weights.

:mod:`odc_mlir.transforms.circle.rewrites.table` lists all rewrites with levels. The pass first infers shapes and folds
constants. It then chooses dimension orders and applies patterns, repeatedly until nothing changes. It merges equal
constants and equal computations. ``limit`` stops after that many rewrites, so that bisection can find a wrong rewrite.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern
from xdsl.transforms.common_subexpression_elimination import cse
from xdsl.transforms.dead_code_elimination import dce

from odc_mlir.errors import OptionError
from odc_mlir.transforms.circle.circle_assign_layouts import CircleAssignLayoutsPass, Layouts
from odc_mlir.transforms.circle.circle_infer_shapes import CircleInferShapesPass
from odc_mlir.transforms.circle.rewrites.table import LAYOUTS, O1, ONE_SAMPLE, RULES, RewriteRule, select
from odc_mlir.transforms.common.rewriting import PatternPass, Wrapped, apply_patterns
from odc_mlir.transforms.partition.odc_fix_batch import fix_batch

_ROUNDS = 8  # limit on rounds of layouts and patterns; known networks need two


@dataclass(frozen=True)
class CircleOptimizePass(PatternPass):
    """Apply rewrites by name."""

    name = "circle-optimize"

    level: str = O1
    """``O1``: all rewrites that preserve results. ``none``: only the named rewrites."""

    rewrites: tuple[str, ...] = ()
    """Additional rewrites, by name."""

    without: tuple[str, ...] = ()
    """Rewrites to disable, by name."""

    io_layout: str = "keep"
    """``keep``: inputs and outputs keep their layout. ``nhwc``: images become channels last if that saves work."""

    limit: int | None = None
    """Maximum number of rewrites."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return tuple(dict.fromkeys(type(rule.make()) for rule in RULES if rule.pattern))

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        self.optimize(ctx, op)

    def optimize(self, ctx: Context, module: ModuleOp) -> tuple[Counter[str], Layouts]:
        """Rewrite ``module`` in place and return counts of rewrites and the new layouts. Raises OptionError."""
        if self.limit is not None and self.limit < 0:
            raise OptionError(f"limit is {self.limit}", hint="give 0 or more")
        chosen = select(None if self.level == "none" else self.level, self.rewrites, self.without)
        tally = Tally(self.limit)
        patterns = [Counted(rule.make(), rule, tally) for rule in chosen if rule.pattern]
        if any(rule.name == ONE_SAMPLE for rule in chosen) and not tally.is_full:
            tally.add(ONE_SAMPLE, fix_batch(module, 1, declare=False))
        CircleInferShapesPass().apply(ctx, module)
        apply_patterns(module, [item for item in patterns if item.rule.is_early])
        turned = Layouts()
        for round in range(_ROUNDS):
            before = tally.total
            interface = "keep" if round else self.io_layout  # the first round may transpose inputs and outputs
            if any(rule.name == LAYOUTS for rule in chosen) and not tally.is_full:
                layouts = CircleAssignLayoutsPass(interface).assign(module)
                tally.add(LAYOUTS, layouts.saved)
                turned = layouts if round == 0 else turned
            apply_patterns(module, [item for item in patterns if not item.rule.is_late])
            apply_patterns(module, [item for item in patterns if item.rule.is_late])
            cse(module)
            dce(module)
            if tally.total == before or tally.is_full:
                break
        return tally.counts, turned


@dataclass
class Tally:
    """Number of applications of each rewrite, up to a common limit."""

    limit: int | None
    counts: Counter[str] = field(default_factory=Counter)

    @property
    def total(self) -> int:
        return self.counts.total()

    @property
    def is_full(self) -> bool:
        return self.limit is not None and self.total >= self.limit

    def add(self, name: str, count: int = 1) -> None:
        if count:
            self.counts[name] += count


@dataclass(frozen=True)
class Counted(Wrapped):
    """Pattern of a rewrite that counts its applications, and does nothing after the limit."""

    rule: RewriteRule
    tally: Tally

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if self.tally.is_full:
            return
        self.pattern.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action:
            self.tally.add(self.rule.name)
