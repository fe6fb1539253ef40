"""Attention, with mask and cache, and rotary embeddings of positions."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import BlockArgument, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.transforms.circle.functions.common import VIEWS, Function, between, pairs, plain
from odc_mlir.transforms.common.rewriting import constant, producer, real_scalar, shape_of

ATTENTION, ROPE = "Attention", "RoPE"
MASK, CACHE = "mask", "cache"

_MOVES = (*VIEWS, "TRANSPOSE", "BROADCAST_TO", "TILE", "QUANTIZE", "DEQUANTIZE")
_PRODUCTS = ("BATCH_MATMUL", "FULLY_CONNECTED")
_SELECTS = ("SELECT", "SELECT_V2")
_STATE = ("READ_VARIABLE", "DYNAMIC_UPDATE_SLICE", "SCATTER_ND", "ATTENTION")


def attention(op: CircleOp) -> Function | None:
    """Queries times keys, scaled and masked, SOFTMAX ``op``, times values; None where a part is missing."""
    if op.SPEC.name != "SOFTMAX" or len(op.results) != 1 or op.unverified is not None:
        return None
    scores, traits = _scores(op.operands[0])
    mixed = _reader_product(op.results[0])
    if scores is None or mixed is None or not _is_computed(scores):
        return None
    keys_and_values = [*scores.operands[:2], *mixed.operands[:2]]
    if any(_is_cached(value) for value in keys_and_values):
        traits = traits | {CACHE}
    stops = [value for value in (*scores.operands, *mixed.operands) if value not in _way(op, mixed)]
    return Function(ATTENTION, mixed.results[0], between(mixed.results[0], stops), traits)


def _scores(value: SSAValue) -> tuple[CircleOp | None, frozenset[str]]:
    """The product whose scaled and masked result ``value`` is."""
    traits: frozenset[str] = frozenset()
    while True:
        op = producer(value, *_PRODUCTS, *_MOVES, *_SELECTS, "ADD", "MUL", "DIV", "SUB")
        if op is None:
            return None, traits
        name = op.SPEC.name
        if name in _PRODUCTS:
            return op, traits
        if name in _MOVES:
            value = op.operands[0]
        elif name in _SELECTS:
            traits |= {MASK}
            value = op.operands[2] if _is_number(op.operands[1]) else op.operands[1]
        elif name in ("MUL", "DIV"):
            value = op.operands[1] if _is_number(op.operands[0]) else op.operands[0]
        else:
            traits |= {MASK}
            value = next((v for v in op.operands if _scores(v)[0] is not None), op.operands[0])
            if plain(value, *_PRODUCTS, *_MOVES, *_SELECTS, "ADD", "MUL", "DIV", "SUB") is None:
                return None, traits


def _is_number(value: SSAValue) -> bool:
    array = constant(value)
    return array is not None and array.size == 1


def _reader_product(value: SSAValue) -> CircleOp | None:
    """The product that reads ``value``, through views; other readers may show the weights."""
    for use in value.uses:
        op = use.operation
        if not isinstance(op, CircleOp) or op.unverified is not None:
            continue
        if op.SPEC.name in _PRODUCTS and _is_computed(op):
            return op
        if op.SPEC.name in _MOVES and (found := _reader_product(op.results[0])) is not None:
            return found
    return None


def _is_computed(product: CircleOp) -> bool:
    return all(constant(value) is None for value in product.operands[:2])


def _way(softmax: CircleOp, mixed: CircleOp) -> set[SSAValue]:
    """The operands of ``mixed`` that show what ``softmax`` gives."""
    found = set()
    for value in mixed.operands[:2]:
        source = value
        while (op := producer(source, *_MOVES)) is not None:
            source = op.operands[0]
        if source is softmax.results[0]:
            found.add(value)
    return found


def _is_cached(value: SSAValue) -> bool:
    """Whether keys or values come from state or from an input, some or all of them."""
    while (op := producer(value, *_MOVES)) is not None:
        value = op.operands[0]
    if isinstance(value, BlockArgument):
        return False
    owner = value.owner
    if not isinstance(owner, CircleOp):
        return False
    if owner.SPEC.name in _STATE:
        return True
    return owner.SPEC.name == "CONCATENATION" and any(_is_given(part) for part in owner.operands)


def _is_given(value: SSAValue) -> bool:
    """Whether ``value`` is an input or state, moved at most."""
    while (op := producer(value, *_MOVES)) is not None:
        value = op.operands[0]
    return isinstance(value, BlockArgument) or (
        isinstance(value, OpResult) and isinstance(value.op, CircleOp) and value.op.SPEC.name in _STATE
    )


@dataclass(frozen=True)
class Rotation:
    """``result = x * cosine + concat(-x_high, x_low) * sine`` along the last dimension."""

    x: SSAValue
    sine: SSAValue
    cosine: SSAValue
    result: SSAValue

    def function(self) -> Function:
        """The operators; those that make the tables are not among them."""
        return Function(ROPE, self.result, between(self.result, [self.x, self.sine, self.cosine]))


def rotation(op: CircleOp) -> Rotation | None:
    """The rotary embedding whose sum ``op`` is."""
    if op.SPEC.name != "ADD" or len(op.results) != 1 or plain(op.results[0], "ADD") is None:
        return None
    for plain_part, turned_part in pairs(op):
        direct, turned = plain(plain_part, "MUL"), plain(turned_part, "MUL")
        if direct is None or turned is None:
            continue
        for half, sine in pairs(turned):
            x = _turned(half)
            for value, cosine in pairs(direct) if x is not None else ():
                if value is x and shape_of(op.results[0]) == shape_of(value):
                    return Rotation(value, sine, cosine, op.results[0])
    return None


def _turned(value: SSAValue) -> SSAValue | None:
    """x where ``value`` is ``concat(-x_high, x_low)`` of its halves."""
    joined = plain(value, "CONCATENATION")
    shape = shape_of(value)
    if joined is None or len(joined.operands) != 2 or not shape or shape[-1] is None or shape[-1] % 2:
        return None
    if int(joined.option("axis")) % len(shape) != len(shape) - 1:
        return None
    negated = _negated(joined.operands[0])
    high = None if negated is None else _half(negated, shape[-1])
    low = _half(joined.operands[1], shape[-1])
    if high is None or low is None or high[0] is not low[0] or (high[1], low[1]) != (1, 0):
        return None
    return low[0] if shape_of(low[0]) == shape else None


def _negated(value: SSAValue) -> SSAValue | None:
    op = plain(value, "NEG", "MUL")
    if op is None or op.SPEC.name == "NEG":
        return None if op is None else op.operands[0]
    return next((x for x, other in pairs(op) if real_scalar(other) == -1.0), None)


def _half(value: SSAValue, extent: int) -> tuple[SSAValue, int] | None:
    """What ``value`` is a half of along the last dimension, and which half."""
    if not isinstance(value, OpResult) or not isinstance(value.op, CircleOp) or value.op.unverified is not None:
        return None
    op, name = value.op, value.op.SPEC.name
    if name == "SPLIT":
        axis, shape = constant(op.operands[0]), shape_of(op.operands[1])
        is_last = axis is not None and shape is not None and int(axis.reshape(-1)[0]) % len(shape) == len(shape) - 1
        return (op.operands[1], value.index) if is_last and len(op.results) == 2 else None
    if name not in ("SLICE", "STRIDED_SLICE"):
        return None
    source, begin, shape = shape_of(op.operands[0]), constant(op.operands[1]), shape_of(value)
    if source is None or begin is None or shape is None or len(shape) != len(source) or shape[-1] != extent // 2:
        return None
    if shape[:-1] != source[:-1] or source[-1] != extent:
        return None
    start = int(begin.reshape(-1)[-1]) % extent
    if name == "STRIDED_SLICE":
        steps = constant(op.operands[3])
        if steps is None or int(steps.reshape(-1)[-1]) != 1:
            return None
        if int(op.option("begin_mask") or 0) >> (len(shape) - 1) & 1:
            start = 0
    return (op.operands[0], start // (extent // 2)) if start in (0, extent // 2) else None
