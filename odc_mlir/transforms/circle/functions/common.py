"""Recognition of gates, normalisations and attention in the operators of a function, and helpers.

Normalisations are distances from a mean, divided by the root of their mean square. Recognised are ``(x - mean) *
rsqrt(variance + epsilon)``, divisions by the square root, and the form that multiplies ``x`` and the mean apart (``x *
k + (beta - mean * k)``), each with or without constants behind it; without the mean it is RMSNorm.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from xdsl.ir import BlockArgument, OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, ConstOp
from odc_mlir.transforms.common.rewriting import (
    Reals,
    activation,
    constant,
    producer,
    real_constant,
    real_scalar,
    shape_of,
)

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")


@dataclass(frozen=True)
class Function:
    """``operators`` compute ``kind`` and give ``result``; ``traits`` tell its variations, such as a mask."""

    kind: str
    result: SSAValue
    operators: tuple[CircleOp, ...]
    traits: frozenset[str] = frozenset()


def plain(value: SSAValue, *names: str) -> CircleOp | None:
    """The operator with one of these names and without fused activation that gives ``value``."""
    op = producer(value, *names)
    return op if op is not None and activation(op) == "none" else None


def pairs(op: CircleOp) -> tuple[tuple[SSAValue, SSAValue], tuple[SSAValue, SSAValue]]:
    """The two operands either way round."""
    first, second = op.operands[0], op.operands[1]
    return (first, second), (second, first)


def viewed(value: SSAValue) -> SSAValue:
    """Look through operators that change only the shape of ``value``."""
    while (view := producer(value, *VIEWS)) is not None:
        value = view.operands[0]
    return value


def only_reader(value: SSAValue, *names: str) -> CircleOp | None:
    """The one operator that reads ``value``, if it has one of these names."""
    if not value.has_one_use():
        return None
    (use,) = value.uses
    op = use.operation
    return op if isinstance(op, CircleOp) and op.SPEC.name in names and op.unverified is None else None


def axes_of(op: CircleOp) -> frozenset[int] | None:
    """The constant axes of a reduction, none negative."""
    array, shape = constant(op.operands[1]), shape_of(op.operands[0])
    return None if array is None or not shape else frozenset(int(axis) % len(shape) for axis in array.reshape(-1))


def between(result: SSAValue, sources: Iterable[SSAValue]) -> tuple[CircleOp, ...]:
    """The operators on all ways from ``sources`` to ``result``, in an order that a walk back finds them."""
    stops = set(sources)
    seen: dict[CircleOp, None] = {}
    work = [result]
    while work:
        value = work.pop()
        if value in stops or not isinstance(value, OpResult) or not isinstance(value.op, CircleOp):
            continue
        op = value.op
        if isinstance(op, ConstOp) or op in seen:
            continue
        seen[op] = None
        work.extend(op.operands)
    return tuple(seen)


SILU, QUICK_GELU, EXCITE = "SiLU", "GELU", "SqueezeExcite"

_QUICK = 1.702
_CLOSE = 1e-3
_GATE = frozenset({"CONV_2D", "FULLY_CONNECTED", "RELU", "RELU6", "LOGISTIC", "HARD_SWISH", "MUL", "DIV", "ADD"})
_LONGEST_GATE = 24  # operators


def logistic_gate(op: CircleOp) -> Function | None:
    """``x * logistic(x)``, or GELU's approximation ``x * logistic(1.702 x)``."""
    if op.SPEC.name != "MUL" or len(op.results) != 1 or op.unverified is not None:
        return None
    for x, gate in pairs(op):
        inner = producer(gate, "LOGISTIC")
        if inner is None:
            continue
        kind = SILU if inner.operands[0] is x else QUICK_GELU if _is_scaled(inner.operands[0], x) else None
        if kind is not None:
            return Function(kind, op.results[0], between(op.results[0], [x]))
    return None


def _is_scaled(value: SSAValue, x: SSAValue) -> bool:
    product = plain(value, "MUL")
    return product is not None and any(
        first is x and math.isclose(real_scalar(other) or 0.0, _QUICK, rel_tol=_CLOSE)
        for first, other in pairs(product)
    )


def squeeze_excite(op: CircleOp) -> Function | None:
    """An image times what layers make of the means of its channels."""
    if op.SPEC.name != "MUL" or len(op.results) != 1 or op.unverified is not None:
        return None
    for image, gate in pairs(op):
        shape = shape_of(image)
        if shape is None or len(shape) != 4 or shape != shape_of(op.results[0]) or shape_of(gate) == shape:
            continue
        found = between(op.results[0], [image])
        means = [item for item in found if item.SPEC.name in ("MEAN", "AVERAGE_POOL_2D")]
        layers = [item for item in found if item.SPEC.name in ("CONV_2D", "FULLY_CONNECTED")]
        others = {item.SPEC.name for item in found if item not in means} - _GATE - {*VIEWS, "TRANSPOSE"}
        if len(means) != 1 or not layers or others or len(found) > _LONGEST_GATE:
            continue
        if _shows(means[0].operands[0], image):
            return Function(EXCITE, op.results[0], found)
    return None


def _shows(value: SSAValue, image: SSAValue) -> bool:
    while value is not image and (view := producer(value, "TRANSPOSE", *VIEWS)) is not None:
        value = view.operands[0]
    return value is image


LAYER, RMS, GROUP, INSTANCE = "LayerNorm", "RMSNorm", "GroupNorm", "InstanceNorm"


class Spread(NamedTuple):
    """``mean((x - mean)²)`` of ``x`` along ``axes``; ``distance`` is ``x - mean``, ``mean`` None where it is ``x``."""

    x: SSAValue
    axes: frozenset[int]
    mean: SSAValue | None
    distances: tuple[SSAValue, ...]


@dataclass(frozen=True)
class Normalisation:
    """``result = (x - mean) / sqrt(mean square + epsilon) * gamma + beta``; ``normal`` is that without the last two."""

    x: SSAValue
    axes: frozenset[int]
    is_centred: bool
    epsilon: float
    normal: SSAValue | None
    result: SSAValue
    gamma: Reals | None = None
    beta: Reals | None = None

    @property
    def kind(self) -> str:
        """Name for users. Groups of channels are rows: [N, C, H, W] as [N * groups, …]."""
        shape = [extent or 0 for extent in shape_of(self.x) or ()]
        if not self.is_centred:
            return RMS
        if len(shape) == 4 and self.axes in ({1, 2}, {2, 3}):
            return INSTANCE
        if self.axes != frozenset(range(len(shape) - len(self.axes), len(shape))):
            return GROUP
        image = [extent or 0 for extent in shape_of(viewed(self.x)) or ()]
        pixels, row = math.prod(image[2:]), math.prod(shape[axis] for axis in self.axes)
        if len(image) != 4 or len(image) == len(shape) or not pixels or row % pixels:
            return LAYER
        return INSTANCE if row == pixels else GROUP

    def function(self) -> Function:
        """The operators, the constants behind it among them."""
        return Function(self.kind, self.result, between(self.result, [self.x]))


def normalisations(ops: list[CircleOp]) -> Iterator[Normalisation]:
    """Every normalisation among ``ops``, in their order."""
    for op in ops:
        found = normalisation(op)
        if found is not None:
            yield found


def normalisation(op: CircleOp) -> Normalisation | None:
    """The normalisation whose root of a mean square ``op`` takes: RSQRT, SQRT or a power."""
    if op.SPEC.name not in ("RSQRT", "SQRT", "POW") or len(op.results) != 1 or op.unverified is not None:
        return None
    exponent = {"RSQRT": -0.5, "SQRT": 0.5}.get(op.SPEC.name, real_scalar(op.operands[-1]))
    if exponent not in (0.5, -0.5):
        return None
    total = _with_epsilon(op.operands[0])
    if total is None:
        return None
    spread, epsilon = total
    inverse = op.results[0]
    if exponent == 0.5:
        return _divided(spread, epsilon, inverse)
    return _multiplied(spread, epsilon, inverse) or _apart(spread, epsilon, inverse)


def _with_epsilon(value: SSAValue) -> tuple[Spread, float] | None:
    """A mean square, and the number that is added to it."""
    total = plain(value, "ADD")
    for variance, other in pairs(total) if total is not None else ():
        epsilon, spread = real_scalar(other), _spread(variance)
        if epsilon is not None and spread is not None:
            return spread, epsilon
    spread = _spread(value)
    return None if spread is None else (spread, 0.0)


def mean_of(value: SSAValue) -> tuple[SSAValue, frozenset[int]] | None:
    """Return the value whose mean ``value`` is, and the axes; one MEAN, or several in a row."""
    mean = plain(value, "MEAN")
    axes = None if mean is None else axes_of(mean)
    if mean is None or axes is None or not mean.option("keep_dims"):
        return None
    inner = mean_of(mean.operands[0])
    return (mean.operands[0], axes) if inner is None else (inner[0], axes | inner[1])


def _spread(value: SSAValue) -> Spread | None:
    mean = mean_of(value)
    if mean is None:
        return None
    squares, axes = mean
    apart = plain(squares, "SQUARED_DIFFERENCE")
    if apart is not None:
        for x, other in pairs(apart):
            if mean_of(other) == (x, axes):
                return Spread(x, axes, other, _distances(x, other))
        return None
    distance = _root_of_square(squares)
    if distance is None:
        return None
    difference = plain(distance, "SUB")
    if difference is not None and mean_of(difference.operands[1]) == (difference.operands[0], axes):
        return Spread(difference.operands[0], axes, difference.operands[1], (distance,))
    return Spread(distance, axes, None, (distance,))


def _distances(x: SSAValue, mean: SSAValue) -> tuple[SSAValue, ...]:
    """Every ``x - mean``."""
    readers = (use.operation for use in mean.uses)
    return tuple(
        op.results[0]
        for op in readers
        if isinstance(op, CircleOp) and op.SPEC.name == "SUB" and op.operands[0] is x and op.operands[1] is mean
    )


def _root_of_square(value: SSAValue) -> SSAValue | None:
    op = plain(value, "MUL", "SQUARE", "POW")
    if op is None:
        return None
    if op.SPEC.name == "POW":
        return op.operands[0] if real_scalar(op.operands[1]) == 2.0 else None
    return op.operands[0] if op.SPEC.name == "SQUARE" or op.operands[0] is op.operands[1] else None


def _divided(spread: Spread, epsilon: float, root: SSAValue) -> Normalisation | None:
    quotient = only_reader(root, "DIV")
    if quotient is None or quotient.operands[1] is not root or activation(quotient) != "none":
        return None
    if quotient.operands[0] not in spread.distances:
        return None
    return _with_constants(spread, epsilon, quotient.results[0])


def _multiplied(spread: Spread, epsilon: float, inverse: SSAValue) -> Normalisation | None:
    """``distance * inverse``, where ``inverse`` may have gamma in it."""
    scaled, gamma = _with_gamma(inverse)
    product = only_reader(scaled, "MUL")
    if product is None or activation(product) != "none":
        return None
    if not any(other in spread.distances for other, factor in pairs(product) if factor is scaled):
        return None
    return _with_constants(spread, epsilon, product.results[0], gamma)


def _with_gamma(inverse: SSAValue) -> tuple[SSAValue, Reals | None]:
    """``inverse``, or the only product of it with a constant, and that."""
    product = only_reader(inverse, "MUL")
    if product is not None and activation(product) == "none":
        for _, other in pairs(product):
            if (gamma := real_constant(other)) is not None:
                return product.results[0], gamma
    return inverse, None


def _apart(spread: Spread, epsilon: float, inverse: SSAValue) -> Normalisation | None:
    """``x * k + (beta - mean * k)``."""
    scaled, gamma = _with_gamma(inverse)
    readers = {use.operation for use in scaled.uses}
    products = [op for op in readers if isinstance(op, CircleOp) and op.SPEC.name == "MUL" and activation(op) == "none"]
    if spread.mean is None or len(products) != 2 or len(readers) != 2:
        return None
    by_value = {other: op for op in products for other, factor in pairs(op) if factor is scaled}
    image, centre = by_value.get(spread.x), by_value.get(spread.mean)
    moved = None if image is None or centre is None else only_reader(centre.results[0], "SUB")
    if image is None or centre is None or moved is None or activation(moved) != "none":
        return None
    total = only_reader(image.results[0], "ADD", "SUB")
    if total is None or activation(total) != "none":
        return None
    if moved.operands[1] is centre.results[0] and (beta := real_constant(moved.operands[0])) is not None:
        is_sum = total.SPEC.name == "ADD" and moved.results[0] in total.operands
        if not is_sum:
            return None
        return Normalisation(spread.x, spread.axes, True, epsilon, None, total.results[0], gamma, beta)
    return None


def _with_constants(spread: Spread, epsilon: float, normal: SSAValue, gamma: Reals | None = None) -> Normalisation:
    """Find the product and sum with constants that are the only readers of a normalised value, through views."""
    result, beta = normal, None
    if gamma is None:
        factor = _constant_step(result, "MUL")
        result, gamma = factor if factor is not None else (result, None)
    shift = _constant_step(result, "ADD")
    result, beta = shift if shift is not None else (result, None)
    centred = spread.mean is not None
    return Normalisation(spread.x, spread.axes, centred, epsilon, normal, result, gamma, beta)


def _constant_step(value: SSAValue, name: str) -> tuple[SSAValue, Reals] | None:
    """The result of the operator ``name`` with a constant that alone reads ``value``, maybe through one view."""
    view = only_reader(value, *VIEWS)
    op = only_reader(value if view is None else view.results[0], name)
    if op is None or (name == "MUL" and activation(op) != "none"):
        return None
    for other in op.operands:
        array = real_constant(other)
        if array is not None:
            return op.results[0], array
    return None


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
    """Return whether keys or values come from state or from an input, some or all of them."""
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
    """Return whether ``value`` is an input or state, moved at most."""
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
    """Return the tensor that ``value`` is half of along the last dimension, and the number of the half."""
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
