"""Patterns are tried on the operators that they are for, in the order of their list."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Operation
from xdsl.pattern_rewriter import PatternRewriter, RewritePattern

from helpers.float_nets import FloatNet
from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.common.rewriting import OperatorPattern, Wrapped, apply_patterns

Tried = list[tuple[str, str]]


@dataclass(frozen=True)
class _Noted(OperatorPattern):
    label: str
    names: frozenset[str]
    tried: Tried

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        _note(self.tried, self.label, op)


@dataclass(frozen=True)
class _Any(RewritePattern):
    tried: Tried

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        _note(self.tried, "any", op)


@dataclass(frozen=True)
class _Around(Wrapped):
    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        self.pattern.match_and_rewrite(op, rewriter)


def _note(tried: Tried, label: str, op: Operation) -> None:
    if isinstance(op, CircleOp):
        tried.append((label, op.SPEC.name))


def test_only_patterns_that_know_an_operator_are_tried_on_it() -> None:
    n, tried = FloatNet(1), Tried()
    module = n.module(n.add("NEG", n.add("ABS", n.real(2))))
    both = frozenset({"ABS", "NEG"})
    inside = _Around(_Around(_Noted("wrapped", frozenset({"NEG"}), tried)))
    apply_patterns(module, [_Noted("both", both, tried), inside, _Any(tried), _Noted("ADD", frozenset({"ADD"}), tried)])
    assert tried == [("both", "ABS"), ("any", "ABS"), ("both", "NEG"), ("wrapped", "NEG"), ("any", "NEG")]
