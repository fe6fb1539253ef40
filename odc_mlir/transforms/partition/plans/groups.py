"""Pattern groups: operators that become one operation of the NPU, and so are placed together or not at all.

Longer patterns are tried first; an operator belongs to one group at most.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.ir import OpResult

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.partition.plans.patterns import PATTERNS, VIEW, Pattern


def groups(operators: Sequence[CircleOp]) -> Iterator[tuple[Pattern, list[CircleOp]]]:
    """The groups among ``operators``, each with its pattern, longest patterns first."""
    taken: set[CircleOp] = set()
    known = set(operators)
    for pattern in PATTERNS:
        for last in operators:
            chain = _match(pattern, last)
            if chain is not None and taken.isdisjoint(chain) and known.issuperset(chain):
                taken.update(chain)
                yield pattern, chain


def _match(pattern: Pattern, last: CircleOp) -> list[CircleOp] | None:
    """The operators of ``pattern`` that end in ``last``, None where it does not match."""
    chain = [last]
    for position in range(len(pattern.chain) - 1, -1, -1):
        op = chain[0]
        if not _is_kind(op, pattern.chain[position]):
            return None
        if position == 0:
            return chain
        source = op.operands[0] if op.operands else None
        if not isinstance(source, OpResult) or not isinstance(source.op, CircleOp) or len(list(source.uses)) != 1:
            return None
        chain.insert(0, source.op)
    return None


def _is_kind(op: CircleOp, kind: str) -> bool:
    return Trait.VIEW in op.SPEC.traits if kind == VIEW else op.SPEC.name == kind
