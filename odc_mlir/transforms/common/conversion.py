"""Dialect conversion: application of lowering patterns until only legal operations are left.

A conversion is a pass with lowering patterns and a :class:`~odc_mlir.legality.ConversionTarget`. xDSL's walker visits
every operation once, in program order. A legal operation stays. The first pattern that *matches* lowers an illegal one.
Patterns create only legal operations, which are not visited again.

A pattern that matches may *refuse* the operation: it raises an OdcError with the reason, which ends the conversion. An
operation that no pattern matches is a CompileError too. The skeleton of a conversion::

    class LowerReshape(LoweringPattern[CircleOp]):
        operators = ("SQUEEZE", "EXPAND_DIMS")

        def lower(self, op: CircleOp, rewriter: PatternRewriter, /) -> None:
            rewriter.replace(op, npu.ReshapeOp(op.operands[0], op.results[0].type))

    class ConvertViewsPass(PatternPass):
        name = "convert-views"

        @classmethod
        def patterns(cls) -> Sequence[type[RewritePattern]]:
            return (LowerReshape,)

        def apply(self, ctx: Context, op: ModuleOp) -> None:
            target = ConversionTarget(self.name, ("func.", "circle.const", "npu."))
            apply_conversion(ctx, op.body, target, [kind() for kind in self.patterns()])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Generic, TypeVar, cast, get_args, get_origin

from xdsl.context import Context
from xdsl.dialects.builtin import UnknownLoc
from xdsl.ir import Operation, Region
from xdsl.pattern_rewriter import PatternRewriter, PatternRewriteWalker, RewritePattern

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import CompileError, OdcError
from odc_mlir.legality import ConversionTarget
from odc_mlir.support.deadline import checkpoint
from odc_mlir.support.locations import op_name
from odc_mlir.transforms.common.rewriting import ByKind, KindPattern, observable, unwrapped

OpT = TypeVar("OpT", bound=Operation)


class LoweringPattern(KindPattern, Generic[OpT]):
    """Pattern that replaces one kind of operation by operations of a lower level.

    The type argument names the operation classes: ``LoweringPattern[npu.ConvOp]``, or a union of several. Classes of
    circle operators are built on request: ``LoweringPattern[CircleOp]`` with ``operators = ("CONV_2D",)`` names them by
    the operator table.

    Operations inserted by :meth:`lower` get missing locations and name hints from the lowered operation.
    """

    kinds: ClassVar[tuple[type[Operation], ...]]
    operators: ClassVar[Sequence[str]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for base in cls.__dict__.get("__orig_bases__", ()):
            if issubclass(get_origin(base), LoweringPattern) and not isinstance(named := get_args(base)[0], TypeVar):
                cls.kinds = get_args(named) or (named,)  # the members of a union

    def handles(self, kind: type[Operation], /) -> bool:
        if self.operators:
            return issubclass(kind, CircleOp) and kind.SPEC.name in self.operators
        return issubclass(kind, self.kinds)

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if not self.handles(type(op)) or (isinstance(op, CircleOp) and op.unverified is not None):
            return
        found = cast(OpT, op)
        if not self.matches(found):
            return

        def place(new: Operation) -> None:
            if isinstance(new.location, UnknownLoc):
                new.location = location

        location, rewriter.name_hint = op.location, op.results[0].name_hint if op.results else None
        rewriter.operation_insertion_handler.append(place)
        try:
            self.lower(found, rewriter)
        finally:
            rewriter.operation_insertion_handler.remove(place)

    def matches(self, op: OpT, /) -> bool:
        """Return whether the pattern lowers ``op``. Otherwise the walker tries the next pattern of its kind."""
        return True

    def lower(self, op: OpT, rewriter: PatternRewriter, /) -> None:
        """Replace ``op``, or refuse it: raise an OdcError with the reason."""
        raise NotImplementedError


class _Conversion(RewritePattern):
    """Walker that applies patterns to illegal operations, up to the first refusal."""

    def __init__(self, ctx: Context, target: ConversionTarget, patterns: Sequence[RewritePattern]) -> None:
        self.ctx, self.target = ctx, target
        self.patterns = ByKind(observable(patterns))
        self.refusal: OdcError | None = None

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if self.refusal is not None or self.target.is_legal(op):
            return
        try:
            checkpoint(self.ctx)
            self.patterns.match_and_rewrite(op, rewriter)
        except OdcError as error:  # the walker would add the printed module to the error
            error.op, error.tensor = error.op or kind_of(op), error.tensor or op_name(op)
            self.refusal = error


def apply_conversion(
    ctx: Context, region: Region, target: ConversionTarget, patterns: Sequence[RewritePattern]
) -> None:
    """Lower the illegal operations in ``region``, each by the first pattern that matches it.

    Raises the error of a pattern that refuses an operation, or CompileError for the first operation that stays illegal.
    """
    conversion = _Conversion(ctx, target, patterns)
    PatternRewriteWalker(conversion, apply_recursively=False).rewrite_region(region)
    if conversion.refusal is not None:
        raise conversion.refusal
    for op in region.walk():
        if not target.is_legal(op):
            tried = [type(unwrapped(pattern)).__name__ for pattern in conversion.patterns.of(type(op))]
            reason = f"does not match {', '.join(tried)}" if tried else "no pattern lowers this operation"
            raise CompileError(f"illegal after {target.conversion}: {reason}", op=kind_of(op), tensor=op_name(op))


def kind_of(op: Operation) -> str:
    """Return the kind of ``op`` for messages: ``CONV_2D``, ``npu.conv``."""
    return op.SPEC.name if isinstance(op, CircleOp) else op.name
