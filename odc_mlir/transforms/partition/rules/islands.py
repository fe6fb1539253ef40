"""Islands: groups of element-wise float or boolean operators between 8-bit codes.

Each result code is a function of one operand code. An island therefore becomes a table of the host kernels' results.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray
from xdsl.ir import Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir import ops
from odc_mlir.dialects.circle import CircleOp, info_of, node_of, tensor_facts
from odc_mlir.numerics.lut import codes_by_bits
from odc_mlir.ops.spec import Node, Trait
from odc_mlir.targets import TRUTH_TYPE
from odc_mlir.transforms.common import rewriting
from odc_mlir.transforms.npu.lowering.code_functions import results_of

CODES = ("int8", "uint8")
LARGEST = 64  # limit on the operators of an island


@dataclass(frozen=True, slots=True)
class Island:
    """Island with its ``members`` in order, from the readers of ``source`` to the operator that computes codes."""

    source: SSAValue
    members: tuple[CircleOp, ...]

    @property
    def node(self) -> Node:
        """QUANTIZE from ``source`` to the result, for placement rules."""
        last = node_of(self.members[-1])
        return replace(last, spec=ops.get("QUANTIZE"), operands=(info_of(self.source),), options={})


def islands(operators: Iterable[CircleOp]) -> list[Island]:
    """Return the islands that end in one of ``operators``."""
    return [island for op in operators if not is_inside(op) and (island := island_of(op)) is not None]


def separate_islands(operators: Iterable[CircleOp]) -> None:
    """Copy operators with readers outside of an island, for all islands that end in one of ``operators``."""
    for last in sorted(operators, key=_computes_real_or_truth):  # islands of truths may be inside of other islands
        island = None if is_inside(last) else island_of(last, shared=True)
        inside = set(() if island is None else island.members)
        for shared in reversed(() if island is None else island.members[:-1]):
            uses = list(shared.results[0].uses)
            own_uses = [use for use in uses if use.operation in inside]
            if len(own_uses) < len(uses):
                own = shared.clone()
                Rewriter.insert_op(own, InsertPoint.after(shared))
                inside = inside - {shared} | {own}
                for use in own_uses:
                    use.operation.operands[use.index] = own.results[0]


def island_of(last: CircleOp, *, shared: bool = False) -> Island | None:
    """Return the island that ends in ``last``, or None. ``shared``: whether DEQUANTIZEs may have other readers.

    An island of truths begins with a truth that is no function of one code.
    """
    return _island(last, CODES, shared=shared) or _island(last, (*CODES, TRUTH_TYPE), shared=shared)


def _island(last: CircleOp, kinds: Sequence[str], *, shared: bool) -> Island | None:
    shape = rewriting.static_shape_of(last.results[0]) if len(last.results) == 1 else None
    if shape is None or not _is_function(last, shape) or not _is_code(last.results[0], (*kinds, "int16")):
        return None
    members, sources, work = {last}, set[SSAValue](), list(last.operands)
    while work and len(members) < LARGEST:
        value = work.pop()
        constant = rewriting.constant(value)
        if constant is not None and constant.size == 1:
            continue
        if _is_code(value, kinds) and rewriting.static_shape_of(value) == shape:
            sources.add(value)
            continue
        op = value.owner
        if not isinstance(op, CircleOp) or not _computes_real_or_truth(op) or not _is_function(op, shape):
            return None
        if op not in members:
            members.add(op)
            work += op.operands
    if work or len(sources) != 1 or len(members) == 1:
        return None
    (source,) = sources
    if tensor_facts(last.results[0].type).dtype == "int16" and tensor_facts(source.type).dtype != TRUTH_TYPE:
        return None
    ordered: list[CircleOp] = []
    item: Operation | None = last
    while item is not None and len(ordered) < len(members):
        if isinstance(item, CircleOp) and item in members:
            ordered.insert(0, item)
        item = item.prev_op
    is_closed = all(use.operation in members for op in ordered[:-1] for use in op.results[0].uses)
    return Island(source, tuple(ordered)) if shared or is_closed else None


def results_for_codes(source: SSAValue, ops: Sequence[CircleOp]) -> NDArray[Any]:
    """Return the last operator's results for all codes of ``source``, ordered by bits. Other operands are constants."""
    values: dict[SSAValue, NDArray[Any]] = {source: codes_by_bits(info_of(source).info.numpy)}
    for op in ops:
        known = {index: values[value] for index, value in enumerate(op.operands) if value in values}
        values[op.results[0]] = results_of(node_of(op), known)
    return values[ops[-1].results[0]]


def is_inside(op: CircleOp) -> bool:
    """Return whether ``op`` computes floats, which the NPU supports only in islands, or a truth inside of an island."""
    if not _computes_real_or_truth(op):
        return False
    if rewriting.is_real(op.results[0]):
        return True
    reader: Operation = op
    while isinstance(reader, CircleOp) and _computes_real_or_truth(reader) and reader.results[0].uses:
        reader = next(iter(reader.results[0].uses)).operation
    island = island_of(reader) if isinstance(reader, CircleOp) else None
    return island is not None and op in island.members[:-1]


def _computes_real_or_truth(op: CircleOp) -> bool:
    return any(rewriting.is_real(result) or tensor_facts(result.type).dtype == TRUTH_TYPE for result in op.results)


def _is_code(value: SSAValue, kinds: Sequence[str] = CODES) -> bool:
    facts = tensor_facts(value.type)
    return facts.dtype in kinds and (facts.quant is not None or facts.dtype == TRUTH_TYPE)


def _is_function(op: CircleOp, shape: tuple[int, ...]) -> bool:
    is_verified = op.unverified is None and len(op.results) == 1
    return is_verified and Trait.ELEMENTWISE in op.SPEC.traits and rewriting.static_shape_of(op.results[0]) == shape
