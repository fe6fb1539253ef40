"""Float islands: element-wise operators on real numbers between DEQUANTIZE and QUANTIZE of 8-bit codes.

Each is a function of one code, so the NPU computes it by a table of the host kernels' results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp, info_of, node_of
from odc_mlir.ops.spec import Node, Trait
from odc_mlir.transforms.common import rewriting

CODES = ("int8", "uint8")
LARGEST = 64  # operators


@dataclass(frozen=True, slots=True)
class Island:
    """``members`` in an order to run them, from DEQUANTIZE of ``source`` to QUANTIZE."""

    source: SSAValue
    members: tuple[CircleOp, ...]

    @property
    def node(self) -> Node:
        """The last member as if it read the codes of ``source``: placement rules apply to it."""
        return replace(node_of(self.members[-1]), operands=(info_of(self.source),))


def islands(operators: Iterable[CircleOp]) -> list[Island]:
    """Return the islands that end in one of ``operators``."""
    return [island for op in operators if (island := island_of(op)) is not None]


def separate_islands(operators: Iterable[CircleOp]) -> None:
    """Give each island that ends in one of ``operators`` a DEQUANTIZE of its own."""
    for last in operators:
        island = island_of(last, shared=True)
        if island is None or _is_closed(island.members):
            continue
        first, *others = island.members
        own = first.clone()
        Rewriter.insert_op(own, InsertPoint.after(first))
        for use in [use for use in first.results[0].uses if use.operation in others]:
            use.operation.operands[use.index] = own.results[0]


def island_of(last: CircleOp, *, shared: bool = False) -> Island | None:
    """Return the island that ends in ``last``, or None; ``shared``: others may read its DEQUANTIZE too."""
    if last.SPEC.name != "QUANTIZE" or last.unverified is not None or info_of(last.results[0]).dtype not in CODES:
        return None
    shape = rewriting.static_shape_of(last.results[0])
    members, sources, work = {last}, set[SSAValue](), [last.operands[0]]
    while work and len(members) < LARGEST:
        value = work.pop()
        if rewriting.real_scalar(value) is not None:
            continue
        op = value.owner
        if not isinstance(op, CircleOp) or op.unverified is not None or not _is_function(op, shape):
            return None
        if op not in members:
            members.add(op)
            work += [] if op.SPEC.name == "DEQUANTIZE" else op.operands
        if op.SPEC.name == "DEQUANTIZE":
            sources.add(op.operands[0])
    if work or len(sources) != 1 or info_of(source := sources.pop()).dtype not in CODES:
        return None
    ordered: list[CircleOp] = []
    item: Operation | None = last
    while item is not None and len(ordered) < len(members):
        if isinstance(item, CircleOp) and item in members:
            ordered.insert(0, item)
        item = item.prev_op
    return Island(source, tuple(ordered)) if _is_closed(ordered[1:] if shared else ordered) else None


def _is_closed(members: Sequence[CircleOp]) -> bool:
    """Return whether only ``members`` read the results of all but the last of them."""
    return all(use.operation in members for op in members[:-1] for use in op.results[0].uses)


def _is_function(op: CircleOp, shape: tuple[int, ...] | None) -> bool:
    """Return whether each element of the only result, which is real, depends on one element of each operand."""
    is_real = len(op.results) == 1 and rewriting.is_real(op.results[0])
    return is_real and Trait.ELEMENTWISE in op.SPEC.traits and rewriting.static_shape_of(op.results[0]) == shape
