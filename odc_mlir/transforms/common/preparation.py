"""Recognition of input preparation: units, logarithms, slices, joins, casts."""

from __future__ import annotations

from collections.abc import Set

from xdsl.dialects.func import FuncOp
from xdsl.ir import SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.ops.spec import Trait
from odc_mlir.transforms.common.rewriting import activation, is_real, shape_of
from odc_mlir.transforms.quant.common.ir import constant_of, operators

_MOVING = frozenset({"GATHER", "SLICE", "SPLIT", "SPLIT_V", "STRIDED_SLICE", "TRANSPOSE", "UNPACK"})
_OTHERS = frozenset({"CUSTOM", "DEQUANTIZE", "QUANTIZE"})  # elementwise, but nothing that prepares real numbers


def preparing(function: FuncOp) -> list[CircleOp]:
    """The operators of ``function`` that only prepare inputs, in order.

    Their real results depend on inputs and constants alone, element by element but for moves and conversions, and
    operators that do more read them in the end.
    """
    known, found = set[SSAValue](function.args), dict[CircleOp, bool]()
    for op in operators(function):
        if _prepares(op, known):
            found[op] = False
            known.update(op.results)
    for op in reversed(found):
        readers = [use.operation for result in op.results for use in result.uses]
        found[op] = any(found.get(reader, True) for reader in readers if isinstance(reader, CircleOp))
    return [op for op, leads_on in found.items() if leads_on]


def _prepares(op: CircleOp, known: Set[SSAValue]) -> bool:
    """Whether ``op`` makes real values of ``known`` ones and constants, without computing with several elements."""
    varying = [operand for operand in op.operands if constant_of(operand) is None]
    if (
        op.unverified is not None
        or not varying
        or any(value not in known for value in varying)
        or not all(map(is_real, op.results))
    ):
        return False
    name, traits = op.SPEC.name, op.SPEC.traits
    if joins_channels(op):
        return True
    if name in _MOVING:  # a table that inputs choose of is no input
        return op.operands[op.SPEC.quant.source or 0] in known
    return name == "CAST" or Trait.VIEW in traits or (Trait.ELEMENTWISE in traits and name not in _OTHERS)


def joins_channels(op: CircleOp) -> bool:
    """Return whether ``op`` does no more than join values along their last axis."""
    rank = len(shape_of(op.results[0]) or ()) if op.SPEC.name == "CONCATENATION" and op.unverified is None else 0
    return rank > 0 and op.option("axis") in (rank - 1, -1) and activation(op) == "none"
