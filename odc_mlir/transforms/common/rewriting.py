"""Drivers and listeners of rewrite patterns, and helpers of patterns on ``circle`` operators."""

from __future__ import annotations

from abc import abstractmethod
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from xdsl.context import Context
from xdsl.dialects.builtin import LocationAttr, ModuleOp
from xdsl.dialects.func import FuncOp
from xdsl.ir import Attribute, Operation, OpResult, SSAValue
from xdsl.passes import ModulePass
from xdsl.pattern_rewriter import GreedyRewritePatternApplier, PatternRewriter, PatternRewriteWalker, RewritePattern
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import BlobAttr, CircleOp, ConstOp, NoneOp, info_of, op_class, tensor_facts, tensor_type
from odc_mlir.dialects.circle_types import NONE_TYPE, with_shape
from odc_mlir.errors import OdcError
from odc_mlir.ops.spec import Shape
from odc_mlir.support.locations import name_loc, value_name

Reals = NDArray[np.float32]

VIEWS = ("RESHAPE", "SQUEEZE", "EXPAND_DIMS")

STORED_WHOLE = frozenset({"float32", "int8", "uint8", "int16", "int32", "int64"})
"""Element types that are stored element by element, so that rewrites can reorder weights and biases."""


class KindPattern(RewritePattern):
    """Pattern on certain classes of operations. Drivers call it for no other operations."""

    def handles(self, kind: type[Operation], /) -> bool:
        """Return whether the pattern accepts operations of class ``kind``."""
        raise NotImplementedError


class OperatorPattern(KindPattern):
    """Pattern on circle operators with certain names. It skips operators that violate the operator table's rules."""

    names: frozenset[str]

    def handles(self, kind: type[Operation], /) -> bool:
        return issubclass(kind, CircleOp) and kind.SPEC.name in self.names

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        if isinstance(op, CircleOp) and op.SPEC.name in self.names and op.unverified is None:
            self.rewrite(op, rewriter)

    def rewrite(self, op: CircleOp, rewriter: PatternRewriter) -> None:
        """Rewrite ``op`` if the pattern applies. Otherwise return without a change."""
        raise NotImplementedError


class RewriteObserver(Protocol):
    """Listener to rewrites, for :func:`observed`."""

    def rewriting(self, op: Operation) -> None:
        """Receive ``op`` before a pattern is tried on it."""

    def rewrote(self, pattern: RewritePattern) -> None:
        """Receive ``pattern`` after it has changed the IR."""


@dataclass
class RewriteCounts:
    """Observer that counts the rewrites of each pattern class."""

    counts: Counter[type[RewritePattern]] = field(default_factory=Counter)

    def rewriting(self, op: Operation) -> None:
        """Ignore the operation, because the pattern may not apply."""

    def rewrote(self, pattern: RewritePattern) -> None:
        """Count a rewrite."""
        self.counts[type(unwrapped(pattern))] += 1


_OBSERVERS: ContextVar[tuple[RewriteObserver, ...]] = ContextVar("observers", default=())


@contextmanager
def observed(observer: RewriteObserver) -> Generator[None]:
    """Notify ``observer`` of all rewrites by patterns within this context."""
    token = _OBSERVERS.set((*_OBSERVERS.get(), observer))
    try:
        yield
    finally:
        _OBSERVERS.reset(token)


def observable(patterns: Sequence[RewritePattern]) -> Sequence[RewritePattern]:
    """Return ``patterns``, wrapped to notify the current observers."""
    observers = _OBSERVERS.get()
    return [_Observed(pattern, observers) for pattern in patterns] if observers else patterns


@dataclass(frozen=True)
class Wrapped(RewritePattern):
    """Pattern that wraps another pattern for the same classes of operations."""

    pattern: RewritePattern


@dataclass(frozen=True)
class _Observed(Wrapped):
    observers: tuple[RewriteObserver, ...]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for observer in self.observers:
            observer.rewriting(op)
        self.pattern.match_and_rewrite(op, rewriter)
        if rewriter.has_done_action:
            for observer in self.observers:
                observer.rewrote(self.pattern)


class ByKind(RewritePattern):
    """Application of the first of many patterns that changes an operation.

    A pattern gets only operations of the kinds that it matches.
    """

    def __init__(self, patterns: Sequence[RewritePattern]) -> None:
        self.patterns = patterns
        self._known: dict[type[Operation], list[RewritePattern]] = {}

    def of(self, kind: type[Operation]) -> list[RewritePattern]:
        """Return the patterns for operations of class ``kind``."""
        if kind not in self._known:
            inner = [(item, unwrapped(item)) for item in self.patterns]
            self._known[kind] = [item for item, own in inner if not isinstance(own, KindPattern) or own.handles(kind)]
        return self._known[kind]

    def match_and_rewrite(self, op: Operation, rewriter: PatternRewriter, /) -> None:
        for pattern in self.of(type(op)):
            pattern.match_and_rewrite(op, rewriter)
            if rewriter.has_done_action:
                return


def unwrapped(pattern: RewritePattern) -> RewritePattern:
    """Return the innermost pattern."""
    while isinstance(pattern, Wrapped):
        pattern = pattern.pattern
    return pattern


class PatternPass(ModulePass):
    """Pass that applies rewrite patterns, by default until none applies.

    ``odc-opt --list-patterns`` lists the patterns.
    """

    @classmethod
    @abstractmethod
    def patterns(cls) -> Sequence[type[RewritePattern]]:
        """Return the pattern classes in order. The first match is applied.

        Special patterns must precede general patterns, which need not exclude the special cases.
        """

    def configured(self) -> Sequence[RewritePattern]:
        """Return the patterns with the options of the pass."""
        return [kind() for kind in self.patterns()]

    def apply(self, ctx: Context, op: ModuleOp) -> None:
        apply_patterns(op, self.configured())


def apply_patterns(module: ModuleOp, patterns: Sequence[RewritePattern], *, recursively: bool = True) -> None:
    """Apply ``patterns`` until none applies, or once, and erase operations without uses."""
    applier = GreedyRewritePatternApplier([ByKind(observable(patterns))])
    PatternRewriteWalker(applier, apply_recursively=recursively).rewrite_module(module)


def apply_once(function: FuncOp, *patterns: RewritePattern) -> None:
    """Apply each of ``patterns`` once to ``function`` and all operations in it, in program order."""
    for pattern in patterns:
        apply_patterns_to([pattern], list(function.walk()))


def apply_patterns_to(patterns: Sequence[RewritePattern], ops: Iterable[Operation]) -> None:
    """Try ``patterns`` once on each of ``ops``. A walk is too slow for programs of tens of thousands of operations."""
    applied = ByKind(observable(patterns))
    for op in ops:
        if applied.of(type(op)):
            applied.match_and_rewrite(op, PatternRewriter(op))


def behind(value: SSAValue) -> InsertPoint:
    """Return the insertion point after the definition of ``value``."""
    owner = value.owner
    return InsertPoint.after(owner) if isinstance(owner, Operation) else InsertPoint.at_start(owner)


def erase_unused(ops: Iterable[CircleOp], rewriter: PatternRewriter) -> None:
    """Erase unused operations among ``ops`` immediately, because later patterns count uses."""
    left = set(ops)
    while unused := [op for op in left if not any(result.uses for result in op.results)]:
        left -= set(unused)
        for op in unused:
            rewriter.erase(op)


def is_real(value: SSAValue) -> bool:
    """Return whether ``value`` is a float32 tensor without quantisation parameters."""
    facts = None if value.type == NONE_TYPE else tensor_facts(value.type)
    return facts is not None and facts.dtype == "float32" and facts.quant is None


def shape_of(value: SSAValue) -> Shape | None:
    """Return the shape in the type, or None if the rank is unknown."""
    return tensor_facts(value.type).shape


def static_shape_of(value: SSAValue) -> tuple[int, ...] | None:
    """Return the shape if all extents are known, else None."""
    shape = shape_of(value)
    if shape is None or any(extent is None for extent in shape):
        return None
    return tuple(extent for extent in shape if extent is not None)


def is_same_element(a: SSAValue, b: SSAValue) -> bool:
    """Return whether elements of both types represent the same numbers."""
    first, second = tensor_facts(a.type), tensor_facts(b.type)
    return first.dtype == second.dtype and first.quant == second.quant


def constant(value: SSAValue | None) -> NDArray[Any] | None:
    """Return the stored contents of a constant, or None for other values and for unknown bytes."""
    if not isinstance(value, OpResult) or not isinstance(value.op, ConstOp):
        return None
    try:
        return info_of(value).array()
    except OdcError:
        return None


def is_stored_whole(value: SSAValue) -> bool:
    """Return whether a constant is dense, with one scale or one scale per row or channel."""
    facts = tensor_facts(value.type)
    plain = isinstance(value, OpResult) and isinstance(value.op, ConstOp) and value.op.sparsity is None
    whole = facts.dtype in STORED_WHOLE and (facts.record is None or facts.record.details is None)
    return plain and whole


def real_constant(value: SSAValue | None) -> Reals | None:
    """Return the contents of a dense float32 constant, or None for other values."""
    if value is None or not isinstance(value, OpResult) or not isinstance(value.op, ConstOp):
        return None
    if value.op.sparsity is not None or not is_real(value):
        return None
    record = tensor_facts(value.type).record
    return constant(value) if record is None or record.details is None else None


def real_scalar(value: SSAValue | None) -> float | None:
    """Return the number in a float32 constant with one element, or None for any other value."""
    array = real_constant(value)
    return float(array.reshape(-1)[0]) if array is not None and array.size == 1 else None


def make_constant(array: NDArray[Any], dtype: str, name: str) -> ConstOp:
    """Create a plain constant of element type ``dtype``."""
    op = ConstOp(BlobAttr.of(np.ascontiguousarray(array).tobytes()), tensor_type(dtype, array.shape))
    op.location = name_loc(name)
    return op


def real(array: NDArray[Any], name: str) -> ConstOp:
    """Create a float32 constant."""
    return make_constant(np.asarray(array, np.float32), "float32", name)


def indices(numbers: Sequence[int], name: str) -> ConstOp:
    """Create an int32 constant."""
    return make_constant(np.array(numbers, np.int32), "int32", name)


def constant_name(old: SSAValue | None, owner: str, role: str) -> str:
    """Return the name for new contents of constant ``old``: the old name if ``old`` has only one user."""
    kept = "" if old is None or isinstance(old.owner, NoneOp) or not is_used_once(old) else value_name(old)
    return kept or f"{owner}/{role}"


def producer(value: SSAValue | None, *names: str) -> CircleOp | None:
    """Return the single-result operator that computes ``value`` if its name is in ``names``, else None."""
    if not isinstance(value, OpResult) or not isinstance(value.op, CircleOp) or len(value.op.results) != 1:
        return None
    return value.op if value.op.SPEC.name in names and value.op.unverified is None else None


def plain(value: SSAValue | None, *names: str) -> CircleOp | None:
    """Return the :func:`producer` of ``value`` if it has no fused activation, else None."""
    op = producer(value, *names)
    return op if op is not None and activation(op) == "none" else None


def only_reader(value: SSAValue, *names: str, fused: bool = False) -> CircleOp | None:
    """Return the only reader of ``value`` if its name is in ``names``, else None.

    Without ``fused``, the reader must have no fused activation.
    """
    op = value.get_user_of_unique_use()
    if not isinstance(op, CircleOp) or op.SPEC.name not in names or op.unverified is not None:
        return None
    return op if fused or activation(op) == "none" else None


def viewed(value: SSAValue) -> SSAValue:
    """Return the source of ``value`` through operators that change only the shape."""
    while (view := producer(value, *VIEWS)) is not None:
        value = view.operands[0]
    return value


def pairs(op: CircleOp) -> tuple[tuple[SSAValue, SSAValue], tuple[SSAValue, SSAValue]]:
    """Return the two operands of ``op`` in both orders."""
    first, second = op.operands[:2]
    return (first, second), (second, first)


def between(result: SSAValue, sources: Iterable[SSAValue]) -> tuple[CircleOp, ...]:
    """Return the operators on all paths from ``sources`` to ``result``, in the order of a backward walk."""
    stops, work = set(sources), [result]
    seen: dict[CircleOp, None] = {}
    while work:
        value = work.pop()
        op = value.owner
        if value not in stops and isinstance(op, CircleOp) and op not in seen:
            seen[op] = None
            work.extend(op.operands)
    return tuple(seen)


def axes_of(op: CircleOp) -> tuple[int, ...] | None:
    """Return the constant axes of a reduction as non-negative numbers."""
    array, shape = constant(op.operands[1]), shape_of(op.operands[0])
    return None if array is None or not shape else tuple(int(axis) % len(shape) for axis in array.reshape(-1))


def is_used_once(value: SSAValue) -> bool:
    """Return whether one operand of one operation is the only use of ``value``."""
    return value.has_one_use()


def is_returned(value: SSAValue) -> bool:
    """Return whether the block returns ``value``. The name is then visible outside."""
    return any(use.operation.parent is None or use.operation is use.operation.parent.last_op for use in value.uses)


def activation(op: CircleOp) -> str:
    """Return the fused activation, or ``none``."""
    return (
        str(op.option("fused_activation_function") or "none") if "fused_activation_function" in op.OPTIONS else "none"
    )


def operator(
    name: str, operands: Sequence[SSAValue], like: SSAValue, options: Mapping[str, Any] | None = None
) -> CircleOp:
    """Create an operator that replaces ``like``, with the same result type and name."""
    return build(name, operands, [like.type], options or {}, name_loc(value_name(like)))


def reshaped(source: SSAValue, like: SSAValue, shape: Sequence[int] | None = None) -> list[ConstOp | CircleOp]:
    """Create a RESHAPE of ``source`` that replaces ``like``, and the constant for its ``shape``.

    The default is the shape of ``like``, which must be static.
    """
    extents = static_shape_of(like) if shape is None else shape
    assert extents is not None, "the shape of a RESHAPE is static"
    wanted = indices(extents, f"{value_name(like)}/shape")
    return [wanted, operator("RESHAPE", [source, wanted.result], like, {"new_shape": list(extents)})]


def part(
    name: str,
    operands: Sequence[SSAValue],
    like: SSAValue,
    role: str,
    shape: tuple[int, ...] | None = None,
    **options: Any,
) -> CircleOp:
    """Create an operator for an intermediate step of ``like``, with its type, or with another shape."""
    type = like.type if shape is None else with_shape(like.type, shape)
    return build(name, operands, [type], options, name_loc(f"{value_name(like)}/{role}"))


def build(
    name: str,
    operands: Sequence[SSAValue],
    types: Sequence[Attribute],
    options: Mapping[str, Any],
    location: LocationAttr | None,
) -> CircleOp:
    """Create an operator. Missing options get default values."""
    made = op_class(name).make(operands, types, options, location=location)
    missing = {key: option for key, option in made.OPTIONS.items() if key not in made.properties}
    made.properties |= {key: o.encode(o.default) for key, o in missing.items() if o.default is not None}
    return made


def copy_of(
    op: CircleOp, operands: Sequence[SSAValue], like: SSAValue, options: Mapping[str, Any] | None = None
) -> CircleOp:
    """Copy ``op`` with other operands and options. The result has the type and name of ``like``."""
    changed = {key: op.OPTIONS[key].encode(value) for key, value in (options or {}).items()}
    return type(op).create(
        operands=operands,
        result_types=[like.type],
        properties=op.properties | changed,
        attributes=dict(op.attributes),
        location=name_loc(value_name(like)),
    )


@dataclass(frozen=True)
class WeightedLayer:
    """Parts of an operator that multiplies an activation by weights."""

    op: CircleOp
    input: int
    weights: int
    bias: int
    axis: int  # axis of output channels in the weights

    @classmethod
    def of(cls, op: Operation | None) -> WeightedLayer | None:
        """Return the parts of ``op``, or None for other operators and for weights in a special layout."""
        if not isinstance(op, CircleOp) or op.SPEC.name not in LAYERS or op.unverified is not None:
            return None
        if len(op.results) != 1 or ("weights_format" in op.OPTIONS and op.option("weights_format") != "default"):
            return None
        names = [operand.name for operand in op.SPEC.operands]
        weights = names.index("weights") if "weights" in names else names.index("filter")
        axis = 3 if op.SPEC.name == "DEPTHWISE_CONV_2D" else 0
        return cls(op, names.index("input"), weights, names.index("bias"), axis)

    @classmethod
    def with_reals(cls, op: Operation | None) -> tuple[WeightedLayer, Reals, Reals] | None:
        """Return the parts of ``op`` if weights and bias are float32 constants, else None.

        A missing bias counts as zeros.
        """
        layer = cls.of(op)
        weights = None if layer is None else layer.real_weights()
        bias = None if layer is None or weights is None else layer.real_bias(weights.shape[layer.axis])
        return None if layer is None or weights is None or bias is None else (layer, weights, bias)

    @property
    def result(self) -> OpResult:
        return self.op.results[0]

    @property
    def name(self) -> str:
        return value_name(self.result)

    @property
    def bias_value(self) -> SSAValue | None:
        return self.op.operand_named("bias")

    def real_weights(self) -> Reals | None:
        """Return the weights if they are float32 constants and activations are float, else None."""
        if not is_real(self.result) or not is_real(self.op.operands[self.input]):
            return None
        return real_constant(self.op.operands[self.weights])

    def real_bias(self, channels: int) -> Reals | None:
        """Return the bias as a vector, zeros if it is missing, or None if it is not a float32 constant."""
        if self.bias_value is None:
            return np.zeros(channels, np.float32)
        array = real_constant(self.bias_value)
        return None if array is None or array.size != channels else array.reshape(-1)

    def per_output(self, vector: NDArray[Any], rank: int) -> NDArray[Any]:
        """Return ``vector``, one number per output channel, in a shape that broadcasts against the weights."""
        shape = [1] * rank
        shape[self.axis] = -1
        return vector.reshape(shape)

    def set_constants(self, weights: NDArray[Any] | None, bias: NDArray[Any] | None) -> None:
        """Replace weights and bias by float32 constants inserted before the operator. None leaves them unchanged."""
        for place, role, array in ((self.weights, "weights", weights), (self.bias, "bias", bias)):
            if array is not None:
                operands = list(self.op.operands)
                made = real(array, constant_name(operands[place] if place < len(operands) else None, self.name, role))
                Rewriter.insert_op(made, InsertPoint.before(self.op))
                self.op.operands = [*operands[:place], made.result, *operands[place + 1 :]]


LAYERS = frozenset({"CONV_2D", "DEPTHWISE_CONV_2D", "TRANSPOSE_CONV", "FULLY_CONNECTED"})


def stack_inputs(layer: WeightedLayer, weights: NDArray[Any], channels: int) -> NDArray[Any] | None:
    """Return the input channel that each weight multiplies, in a shape that broadcasts against ``weights``.

    Return None if, because of groups, the input channel depends on the output channel.
    """
    if layer.op.SPEC.name == "DEPTHWISE_CONV_2D":
        multiplier, rest = divmod(weights.shape[3], channels)
        return None if rest else np.repeat(np.arange(channels), multiplier)
    return np.arange(channels) if weights.shape[-1] == channels else None
