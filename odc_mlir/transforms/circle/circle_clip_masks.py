"""``circle-clip-masks``: limit large negative masks before SOFTMAX, because they would widen quantised ranges.

Before::

    %m = circle.const [0.0, -3.4028235e38, 0.0, 0.0] : tensor<2x2xf32>
    %0 = circle.add(%scores, %m) : (tensor<1x2x2xf32>, tensor<2x2xf32>) -> tensor<1x2x2xf32>
    %1 = circle.softmax(%0) {beta = 1.0} : (tensor<1x2x2xf32>) -> tensor<1x2x2xf32>

After: ``%m = circle.const [0.0, -2048.0, 0.0, 0.0]``, so that the quantised range has resolution for the scores.

Entries below -2048 become -2048 (-2048 / beta if beta < 1). Exponentials of numbers below -104 are 0 in float32.
Results are therefore bit-exact if no masked score exceeds the largest visible score of its row by 1900 (or 1900 /
beta). The search for masks passes through ADD, SUB, NEG and products with a constant of at most 64. It also passes
through operators that only move, select or limit values, such as SELECT, RESHAPE and MINIMUM. A mask is

- a constant
- booleans or integers, cast to float and multiplied by a large constant, as in ``(1 - m) * -1e9``. Here, the constant
  shrinks.
- with ``seen``, any other value with a recorded minimum below -2048. A MAXIMUM limits the value. Operators that compute
  the value stay float, because large factors amplify small errors. Layers and values with other users end this chain.
  If other operators read the unlimited value, the MAXIMUM also stays float.

If a computed mask hides a row completely, the row then has the softmax weights of its unmasked scores.

Unchanged: constants that hide a whole row, whose probabilities would change, and values that no SOFTMAX reads.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.context import Context
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common import masks
from odc_mlir.transforms.common.rewriting import OperatorPattern, PatternPass, apply_patterns
from odc_mlir.transforms.quant.common.ir import stay_float
from odc_mlir.transforms.quant.quant_attach_ranges import Range, read_ranges


@dataclass(frozen=True)
class CircleClipMasksPass(PatternPass):
    """Reduce large negative masks before SOFTMAX."""

    name = "circle-clip-masks"

    seen: str = ""
    """JSON file with [least, largest] by tensor name."""

    @classmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        return (ClipMask,)

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        clip_masks(op, read_ranges(self.seen) if self.seen else {})


def clip_masks(module: ModuleOp, seen: Mapping[str, Range]) -> None:
    """Limit masks before each SOFTMAX of ``module``. ``seen`` has recorded ranges by tensor name."""
    pattern = ClipMask(seen)
    apply_patterns(module, [pattern])
    for op in pattern.limits:
        if not op.operands[0].has_one_use():  # other operators read the unlimited value
            stay_float(op, "it limits a mask with values so large that codes would have no resolution")


class ClipMask(OperatorPattern):
    """Limit the entries of a SOFTMAX operand that are below the bound."""

    names = frozenset({"SOFTMAX"})

    def __init__(self, seen: Mapping[str, Range]) -> None:
        self._seen, self._clipping = seen, masks.Clipping()

    @property
    def limits(self) -> Sequence[CircleOp]:
        """Operators that the pattern has inserted to limit values."""
        return self._clipping.limits

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        argument = masks.argument_of(op)
        if argument is None:
            return
        limited = {value for value, bound, _ in self._limited(*argument)}
        clipped = self._clipping.clipped(*argument, limited)
        if clipped is op.operands[0]:
            return
        _keep_real({value.owner for value in limited if isinstance(value.owner, CircleOp)})
        before = op.operands[0]
        op.operands[0] = clipped
        rewriter.notify_op_modified(op)
        _erase_unused(before, rewriter)

    def _limited(self, value: SSAValue, bound: float) -> Iterator[masks.TermSource]:
        for source in masks.sources(value, bound):
            if masks.may_be_limited(source) and masks.is_seen_beyond(
                source, self._seen.get(value_name(source.value), (0.0, 0.0))
            ):
                yield source


def _keep_real(ops: set[CircleOp]) -> None:
    """Keep ``ops`` float, and all operators before them, up to the next layers, that nothing else uses.

    Large factors amplify errors.
    """
    if not ops:
        return
    block = next(iter(ops)).parent
    assert block is not None
    real: set[Operation] = set(ops)
    for op in reversed(list(block.ops)):
        if isinstance(op, CircleOp) and not masks.is_product(op):
            users = [use.operation for result in op.results for use in result.uses]
            if users and real.issuperset(users):
                real.add(op)
        if op in real and isinstance(op, CircleOp):
            stay_float(op, "it computes a mask with values so large that codes would have no resolution")


def _erase_unused(value: SSAValue, rewriter: PatternRewriter) -> None:
    left = [value.owner]
    while left:
        op = left.pop()
        if isinstance(op, CircleOp | ConstOp) and op.parent is not None and not any(r.uses for r in op.results):
            left += [operand.owner for operand in op.operands]
            rewriter.erase(op)
