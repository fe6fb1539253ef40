"""Types of the operator table: table entries, operators and tensors.

An :class:`OpSpec` is the only declaration of an operator. The IR class, importer, exporter, verifier, shape inference,
host execution and generated docs derive from it. This module does not import xDSL, so the runtime never loads xDSL.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from itertools import chain
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from odc_mlir.errors import ModelError
from odc_mlir.ops.context import Context
from odc_mlir.ops.dtypes import DTYPES, DType
from odc_mlir.ops.sparse import Sparsity

ChannelAxis = int | Callable[[Mapping[str, Any]], int]


class QuantKind(StrEnum):
    NONE = "none"  # no real values, or their contents do not matter
    FLOAT = "float"  # works only on real values
    OWN = "own"  # computes results with parameters of their own
    SAME = "same"  # moves codes: operands and results have the same parameters
    FIXED = "fixed"  # computes results with parameters that depend only on the element type


@dataclass(frozen=True, slots=True)
class Bias:
    """Operands ``input`` and ``weights`` of the product to which a bias is added.

    The bias has the scale ``input scale * weight scale`` per channel, and zero point 0.
    """

    input: int
    weights: int


class StateParameters(StrEnum):
    """Quantisation parameters of an operator's state."""

    OUTPUT = "output"  # parameters of the result
    CELL = "cell"  # int16 with a power of two as scale


@dataclass(frozen=True, slots=True)
class QuantRule:
    """Quantisation rule of an operator. Operands are given by index.

    The kernel, not the rule, limits element types. Float operands without a role are *activations*. Integers, booleans
    and text are never quantised.

    - ``weights``: channel axis of each weight operand (None: always one scale)
    - ``biases``: for each bias, the operands of the product to which the bias is added
    - ``states``: kind of parameters of each state operand
    - ``stored``: further constants that weight-only models store as codes, with the axis of scales. The axis is None
      for a single scale, and may depend on options.
    - ``source``: operand of a move. Results have the parameters of this operand. If it is None, results and operands
      in ``joined`` (by default all) have the same parameters.
    - ``left``: float operands that stay float
    - ``not_negative``: operands with values that are never negative
    - ``not_zero``: constants that must have no zeros, even after rounding
    - ``table``: name of the fixed parameters
    - ``reason``: reason why an operator keeps float values
    """

    kind: QuantKind = QuantKind.OWN
    weights: Mapping[int, int | None] = field(default_factory=lambda: MappingProxyType({}))
    stored: Mapping[int, ChannelAxis | None] = field(default_factory=lambda: MappingProxyType({}))
    biases: Mapping[int, Bias] = field(default_factory=lambda: MappingProxyType({}))
    states: Mapping[int, StateParameters] = field(default_factory=lambda: MappingProxyType({}))
    source: int | None = None
    joined: tuple[int, ...] = ()
    left: tuple[int, ...] = ()
    not_negative: tuple[int, ...] = ()
    not_zero: tuple[int, ...] = ()
    table: str = ""
    reason: str = ""

    @property
    def moves(self) -> bool:
        return self.source is not None

    @property
    def joins(self) -> bool:
        return self.kind is QuantKind.SAME and self.source is None

    def trained(self, options: Mapping[str, Any]) -> dict[int, int | None]:
        """Return the operands with trained constants, and the axis of scales in weight-only models."""
        found = {index: axis(options) if callable(axis) else axis for index, axis in self.stored.items()}
        return {**self.weights, **found}

    def is_joined(self, operand: int) -> bool:
        return self.joins and (not self.joined or operand in self.joined)

    def moved(self, operands: Sequence[object | None]) -> list[int]:
        """Return the indices of the given ``operands`` whose codes the results hold."""
        given = (index for index, operand in enumerate(operands) if operand is not None)
        return [index for index in given if index == self.source or self.is_joined(index)]


NONE = QuantRule(QuantKind.NONE)
OWN = QuantRule()


def real_only(reason: str, *, left: tuple[int, ...] = (), stored: tuple[int, ...] = ()) -> QuantRule:
    """Return the rule of an operator on real values. ``stored`` are weights with output channels along axis 0."""
    return QuantRule(QuantKind.FLOAT, left=left, reason=reason, stored=MappingProxyType(dict.fromkeys(stored, 0)))


def moved(source: int = 0, *, table: ChannelAxis | None = None) -> QuantRule:
    """Return the rule of an operator that moves codes of operand ``source``."""
    stored = {} if table is None else {source: table}
    return QuantRule(QuantKind.SAME, source=source, stored=MappingProxyType(stored))


def joined(*operands: int) -> QuantRule:
    """Return the rule of an operator whose result holds codes of several operands, by default all."""
    return QuantRule(QuantKind.SAME, joined=operands)


def fixed(table: str) -> QuantRule:
    """Return the rule of an operator whose results have the fixed parameters called ``table``."""
    return QuantRule(QuantKind.FIXED, table=table)


def product(*, axis: int, input: int = 0, weights: int = 1, bias: int | None = 2) -> QuantRule:
    """Return the rule of products of an activation and weights with a channel ``axis``, plus a bias."""
    biases = {} if bias is None else {bias: Bias(input, weights)}
    return QuantRule(weights=MappingProxyType({weights: axis}), biases=MappingProxyType(biases))


def gates(
    *, weights: tuple[int, ...], stored: tuple[int, ...], biases: Mapping[int, Bias], output: int, cell: int
) -> QuantRule:
    """Return the rule of a recurrent cell with its ``weights``, ``stored`` weights and state."""
    return QuantRule(
        stored=MappingProxyType(dict.fromkeys(stored, 0)),
        weights=MappingProxyType(dict.fromkeys(weights)),
        biases=MappingProxyType(dict(biases)),
        states=MappingProxyType({output: StateParameters.OUTPUT, cell: StateParameters.CELL}),
    )


Shape = tuple[int | None, ...]
Interval = tuple[int, int]
Array = NDArray[Any]
Execute = Callable[[Sequence[Array | None]], Sequence[Array]]


class Trait(StrEnum):
    PURE = "pure"  # no side effect: may be folded, merged or deleted
    COMMUTATIVE = "commutative"
    ELEMENTWISE = "elementwise"  # result element i depends only on operand elements i (after broadcasting)
    VIEW = "view"  # same bytes in the same order: reshape, squeeze, expand_dims
    SAME_QUANT = "same_quant"  # moves codes: operand and result quantisation must agree
    STATEFUL = "stateful"  # reads or writes state that outlives one run
    CONTROL_FLOW = "control_flow"  # runs other subgraphs


SAME_SCALE = 2.0**-16
"""Largest relative difference between two roundings of one scale."""


@dataclass(frozen=True, slots=True)
class QuantParams:
    """Affine quantisation ``real = scale * (code - zero_point)``. Several scales are per axis."""

    scales: tuple[float, ...]  # each exactly a float32
    zero_points: tuple[int, ...]
    axis: int = 0

    @property
    def per_tensor(self) -> bool:
        return len(self.scales) == 1

    @property
    def scale(self) -> float:
        """Scale of a per-tensor quantised tensor."""
        return self.scales[0]

    @property
    def zero_point(self) -> int:
        return self.zero_points[0]

    def agrees(self, other: QuantParams | None) -> bool:
        """Return whether codes represent the same numbers with ``other``. Scales may differ by rounding."""
        if other is None or self.zero_points != other.zero_points or len(self.scales) != len(other.scales):
            return False
        pairs = zip(self.scales, other.scales, strict=True)
        return all(a == b or abs(a - b) <= SAME_SCALE * max(a, b) for a, b in pairs)


class ResultType(NamedTuple):
    """Inferred type of one result. None is an unknown rank or dimension."""

    dtype: str
    shape: Shape | None


@dataclass(frozen=True, slots=True)
class Blockwise:
    """Storage of a float constant in blocks along its last axis: ``real = scale * (code - zero_point)``.

    ``codes`` is the stored element type. ``scales`` and ``zero_points`` (None: all 0) have one entry per block of
    ``size`` codes.
    """

    codes: str
    size: int
    scales: TensorInfo
    zero_points: TensorInfo | None = None


@dataclass(slots=True)
class TensorInfo:
    """Description of a tensor for shape functions, verifiers and kernels.

    ``data``: raw little-endian bytes of a constant, else None.
    ``sparsity``: layout of a sparse constant.
    ``blockwise``: storage of a float constant in blocks.
    ``mx_axis``: axis along which elements of a microscaling type share exponents.
    ``foreign_quant``: name of a custom quantisation.
    ``alias``: name of an input in a signature.
    ``bounds``: smallest and largest value of computed integers, where an analysis determines them.
    """

    name: str
    dtype: str
    shape: Shape | None
    quant: QuantParams | None = None
    data: memoryview | None = None
    is_variable: bool = False
    sparsity: Sparsity | None = None
    blockwise: Blockwise | None = None
    mx_axis: int | None = None
    foreign_quant: str = ""
    alias: str = field(default="", repr=False, compare=False)
    bounds: Interval | None = field(default=None, repr=False, compare=False)
    _array: Array | None = field(default=None, repr=False)

    @property
    def info(self) -> DType:
        return DTYPES[self.dtype]

    @property
    def is_const(self) -> bool:
        return self.data is not None

    @property
    def is_coded(self) -> bool:
        """True if the elements are integers with scales and zero points."""
        return self.quant is not None and self.info.is_integer

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The shape. Raises ModelError if a dimension is unknown."""
        if self.shape is None or any(d is None for d in self.shape):
            raise ModelError("the shape is not fully known here", tensor=self.name)
        return tuple(d for d in self.shape if d is not None)

    def array(self) -> Array:
        """Return the constant's value as a read-only array in storage dtype. Raises ModelError for other tensors."""
        if self._array is None:
            from odc_mlir.ops.constants import decode_constant

            self._array = decode_constant(self)
        return self._array


@dataclass(frozen=True, slots=True)
class Callee:
    """Declared inputs and outputs of a called subgraph."""

    name: str
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]


@dataclass(slots=True)
class Node:
    """An operator with tensors and options, from a file or from IR."""

    spec: OpSpec
    operands: tuple[TensorInfo | None, ...]  # None: omitted optional operand
    results: tuple[TensorInfo, ...]
    options: Mapping[str, Any] = field(default_factory=dict)  # every field of the options table, including defaults
    name: str = ""  # name of the first result, which identifies the operator in messages
    version: int = 1
    custom_code: str = ""
    custom_options: bytes = b""
    intermediates: tuple[TensorInfo | None, ...] = ()
    mutating: tuple[bool, ...] = ()  # by operand, from the model's record
    # subgraphs of control flow, by the value of the option: an index in a file, a symbol in IR
    callees: Mapping[Any, Callee] = field(default_factory=dict)
    subgraphs: Mapping[Any, Execute] = field(default_factory=dict)  # subgraphs as functions, at run time
    context: Context = field(default_factory=Context)  # state and options of all operators
    place: tuple[int, int] = (0, 0)  # (subgraph, operator) in the model

    def operand(self, index: int) -> TensorInfo:
        """Return operand ``index``. Raises ModelError if it is omitted."""
        value = self.operands[index] if index < len(self.operands) else None
        if value is None:
            raise self.error(f"operand {index} ({self.spec.operand_name(index)}) is required")
        return value

    def optional(self, index: int) -> TensorInfo | None:
        return self.operands[index] if index < len(self.operands) else None

    @property
    def macs(self) -> int:
        """Number of multiply-accumulates, without called subgraphs. Unknown dimensions count as 0."""
        count = self.spec.macs_function
        return 0 if count is None else count(self)

    @property
    def mutated(self) -> tuple[int, ...]:
        """Indices of the operands that the operator writes. Variables among them are state."""
        declared = self.spec.operands
        return tuple(
            index
            for index, info in enumerate(self.operands)
            if info is not None
            and ((index < len(declared) and declared[index].mutated) or any(self.mutating[index : index + 1]))
        )

    def private_state(self) -> dict[str, Any]:
        """Return the private state of this operator, initially empty. Kernels call this in every run."""
        return self.context.state.private.setdefault(self.place, {})

    def const(self, index: int) -> Array:
        """Return the value of operand ``index``. Raises ModelError if it is not constant."""
        return self.operand(index).array()

    def error(self, message: str, **where: Any) -> ModelError:
        return ModelError(message, op=self.spec.name, tensor=where.pop("tensor", self.name), **where)


@dataclass(frozen=True, slots=True)
class Operand:
    """One operand or result.

    An operator writes ``mutated`` operands, such as caches and states of recurrent operators. It has ``Trait.STATEFUL``
    and not ``Trait.PURE``. The prepared kernel receives a writable array in storage dtype. It reads the old contents
    and writes new contents in place, ``state[...] = new``, before it returns. Results must not share memory with the
    array. The next run reads the new contents of a variable tensor. Executors hide the change from other operators. For
    other tensors, the kernel gets a copy, and changes are lost. An omitted operand is None.
    """

    name: str
    optional: bool = False
    variadic: bool = False  # only the last operand or result may be variadic
    dtypes: tuple[str, ...] = ()  # allowed element types, empty for any
    mutated: bool = False


@dataclass(frozen=True)
class OpSpec:
    """Declaration of one operator.

    ``name`` is the schema's BuiltinOperator name, and the IR operation is ``circle.<name in lower case>``. The fields
    of the schema's options table ``options`` become properties of the operation. ``infer``, ``kernel``, ``verify``,
    ``macs`` and ``bounds`` are ``module:function`` strings, imported on first use:

    - ``infer(node) -> Sequence[ResultType]`` from operand types, constants and options
    - ``kernel(node) -> Execute`` performs all checks and precomputations, and returns the function that runs.
    - ``verify(node) -> None`` raises ``node.error(...)``. The table has the rules for counts and element types, and
      ``infer`` checks shapes afterwards.
    - ``macs(node) -> int`` counts multiply-accumulates of operators with inner products.
    - ``bounds(node) -> Interval | None`` bounds integer results by bounds of the operands.
    """

    name: str
    operands: tuple[Operand, ...]
    results: tuple[Operand, ...]
    options: str | None = None
    infer: str = ""
    kernel: str = ""
    verify: str = ""
    traits: frozenset[Trait] = frozenset({Trait.PURE})
    max_version: int = 1
    quant: QuantRule = OWN
    summary: str = ""
    macs: str = ""
    bounds: str = ""

    @property
    def mnemonic(self) -> str:
        return self.name.lower()

    def operand_name(self, index: int) -> str:
        if index < len(self.operands):
            return self.operands[index].name
        last = self.operands[-1] if self.operands else None
        return f"{last.name}[{index - len(self.operands) + 1}]" if last and last.variadic else f"operand {index}"

    @cached_property
    def infer_function(self) -> Callable[[Node], Sequence[ResultType]]:
        return _resolve(self.infer)

    @cached_property
    def kernel_function(self) -> Callable[[Node], Execute]:
        """Kernel, preceded by a check for quantised tensors that the kernel would misinterpret."""
        check, kernel = _resolve("odc_mlir.ops.quant_check:check_quantisation"), _resolve(self.kernel)

        def prepare(node: Node) -> Execute:
            check(node)
            execute: Execute = kernel(node)
            return execute

        return prepare

    @cached_property
    def check_function(self) -> Callable[[Node], None] | None:
        """Verifier alone, for callers that infer the shape themselves."""
        return _resolve(self.verify) if self.verify else None

    @cached_property
    def verify_function(self) -> Callable[[Node], None] | None:
        """Verifier followed by the shape function, or None if there is no verifier."""
        check = self.check_function
        if check is None:
            return None

        def verify(node: Node) -> None:
            check(node)
            self.infer_function(node)

        return verify

    @cached_property
    def macs_function(self) -> Callable[[Node], int] | None:
        return _resolve(self.macs) if self.macs else None

    @cached_property
    def bounds_function(self) -> Callable[[Node], Interval | None] | None:
        return _resolve(self.bounds) if self.bounds else None


PURE = frozenset({Trait.PURE})
MOVES = PURE | {Trait.SAME_QUANT}
ELEMENTWISE = PURE | {Trait.ELEMENTWISE}
COMMUTATIVE = ELEMENTWISE | {Trait.COMMUTATIVE}
STATEFUL = frozenset({Trait.STATEFUL})
_INTEGERS = ("int32", "int64")

# Verifiers of many operators, by keyword. "own" is the operator's own verifier.
_VERIFIERS = {
    "own": "verify_{}",
    "first": "infer.common:verify_first_dtype",
    "same": "infer.common:verify_same_dtype",
    "shapes": "infer.common:verify_shapes",
}


@dataclass(frozen=True)
class OperatorFamily:
    """Declaration of operators in ``module`` with common fields. A call declares one operator.

    Operands and results are words: a name, ``...`` (variadic), ``*`` (written) or ``?`` (optional), and after a colon
    the element types, separated by ``|`` (``int``: int32 and int64).

    Functions are by default named after the operator, in ``module`` and in the kernel module ``kernels`` (by default of
    the same name). ``unary`` is another function in these modules, ``infer.common:unary`` one in
    ``odc_mlir.ops.infer.common``. ``verify`` is a function, None, or a word: ``first`` or ``same`` (the first operand
    or all operands have the result's element type), ``shapes`` (any types) or ``own`` (the operator's own verifier). If
    ``options`` is ``*``, the operator has its own table. ``bounds`` is a function in ``odc_mlir.ops.infer.bounds``.
    """

    module: str
    kernels: str = ""
    gives: str = "output"
    options: str | None = "*"
    version: int = 1
    infer: str = ""
    verify: str | None = "first"
    traits: frozenset[Trait] = PURE
    quant: QuantRule = OWN
    macs: str = ""
    bounds: str = ""

    def __call__(
        self,
        name: str,
        takes: str,
        summary: str,
        *,
        function: str = "",
        kernel: str = "",
        **fields: Any,
    ) -> OpSpec:
        """Return the operator ``name`` with functions named ``function``. ``fields`` override common fields."""
        shared, function = replace(self, **fields), function or name.lower()
        kernels = f"odc_mlir.runtime.kernels.{shared.kernels or self.module.rpartition('.')[2]}"
        return OpSpec(
            name,
            parse_operands(takes),
            parse_operands(shared.gives),
            f"{name.title().replace('_', '')}Options" if shared.options == "*" else shared.options,
            self._reference(shared.infer or function),
            f"{kernels}:{kernel or function}",
            (shared.verify and self._reference(_VERIFIERS.get(shared.verify, shared.verify).format(function))) or "",
            shared.traits,
            shared.version,
            shared.quant,
            summary,
            shared.macs and f"odc_mlir.ops.{shared.macs if ':' in shared.macs else f'macs:{shared.macs}'}",
            shared.bounds and f"odc_mlir.ops.infer.bounds:{shared.bounds}",
        )

    def _reference(self, function: str) -> str:
        return f"odc_mlir.ops.{function}" if ":" in function else f"{self.module}:{function}"


def parse_operands(text: str) -> tuple[Operand, ...]:
    """Parse operands or results in the syntax of :class:`OperatorFamily`."""
    return tuple(map(_operand, text.split()))


def _operand(word: str) -> Operand:
    name, _, types = word.partition(":")
    dtypes = (_INTEGERS if kind == "int" else (kind,) for kind in types.split("|") if kind)
    return Operand(name.rstrip("?*."), "?" in name, "..." in name, tuple(chain.from_iterable(dtypes)), "*" in name)


def _resolve(reference: str) -> Callable[..., Any]:
    module, _, function = reference.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), function)
    return found


def numpy_dtype(name: str) -> np.dtype:
    """Return the storage dtype of an element type."""
    return DTYPES[name].numpy
