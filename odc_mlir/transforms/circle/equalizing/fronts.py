"""Sources of divisible channels: layers with weights, and normalisations with a scale per channel.

Each holds its numbers in double precision until :meth:`Front.write` gives them to the operations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Self

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import OpResult, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from odc_mlir.dialects.circle import CircleOp
from odc_mlir.errors import OptionError
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.common.rewriting import (
    WeightedLayer,
    activation,
    constant_name,
    is_real,
    is_used_once,
    producer,
    real,
    real_constant,
    shape_of,
    static_shape_of,
)

LARGEST = float(np.finfo(np.float32).max)
_NORMS = frozenset({"RMS_NORM", "INSTANCE_NORM"})

Floats = NDArray[np.float64]


@dataclass(eq=False)
class Front(ABC):
    """Factors and summands of the channels along a result's last axis."""

    weights: Floats
    axis: int  # of the weights: channels
    bias: Floats
    record: Floats | None = field(default=None, init=False)  # largest magnitude of each channel
    factors: Floats = field(init=False)  # by which channels were divided
    is_changed: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        self.factors = np.ones(len(self.bias))

    @property
    @abstractmethod
    def ops(self) -> Sequence[CircleOp]:
        """Operators with divided results; the last one defines the result of the front."""

    @property
    def result(self) -> OpResult:
        """The tensor that has the channels."""
        return self.ops[-1].results[0]

    @property
    def name(self) -> str:
        """The name of the result."""
        return value_name(self.result)

    def take_record(self, records: Mapping[str, Floats]) -> None:
        """Set the recorded range of the result; raise OptionError for another number of channels."""
        record = records.get(self.name)
        if record is not None and len(record) != len(self.bias):
            raise OptionError(
                f"{self.ops[-1].SPEC.name} {self.name!r} has {len(self.bias)} channels, its ranges are for "
                f"{len(record)}",
                hint="record ranges with this model",
            )
        self.record = record

    def output_ranges(self) -> Floats:
        """Ranges to equalise, per channel: of recorded results if known, else of weights."""
        if self.record is not None:
            return self.record
        others = tuple(axis for axis in range(self.weights.ndim) if axis != self.axis)
        return np.asarray(np.abs(self.weights).max(axis=others, initial=0.0))

    def can_scale(self, factors: Floats) -> bool:
        """Whether float32 holds what :meth:`scale_outputs` would make."""
        scaled = (self.weights / self._by_channel(factors), self.bias / factors)
        return all(np.abs(values).max(initial=0.0) <= LARGEST for values in scaled)

    def scale_outputs(self, factors: Floats) -> None:
        """Divide the channels."""
        self.weights /= self._by_channel(factors)
        self.bias /= factors
        self.factors = self.factors * factors
        self.record = None if self.record is None else self.record / factors
        self.is_changed = True

    def _by_channel(self, vector: Floats) -> Floats:
        shape = [1] * self.weights.ndim
        shape[self.axis] = -1
        return vector.reshape(shape)

    def write(self) -> None:
        """Give the operations their new constants."""
        if self.is_changed:
            self._write()

    @abstractmethod
    def _write(self) -> None: ...


@dataclass(eq=False)
class LayerFront(Front):
    """A layer with its new constants."""

    layer: WeightedLayer

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        """``op`` if it is a layer of constant real weights that no other operator reads: those stay shared."""
        layer = WeightedLayer.of(op)
        weights = None if layer is None else layer.real_weights()
        if layer is None or weights is None or not np.isfinite(weights).all():
            return None
        bias = layer.real_bias(weights.shape[layer.axis])
        if bias is None or not is_used_once(op.operands[layer.weights]):
            return None
        return cls(weights.astype(np.float64), layer.axis, bias.astype(np.float64), layer)

    @property
    def ops(self) -> Sequence[CircleOp]:
        return (self.layer.op,)

    def _write(self) -> None:
        op, layer = self.layer.op, self.layer
        old = [op.operands[layer.weights], *([layer.bias_value] if layer.bias_value is not None else [])]
        made = [real(self.weights, constant_name(old[0], layer.name, "weights"))]
        if layer.bias_value is not None:
            made.append(real(self.bias, constant_name(layer.bias_value, layer.name, "bias")))
        Rewriter.insert_op(made, InsertPoint.before(op))
        op.operands = layer.operands_with(made[0].result, made[1].result if len(made) > 1 else None)
        _erase_unread(old)


@dataclass(frozen=True, slots=True)
class ConstantOperand:
    """A constant operand."""

    op: CircleOp
    index: int

    @property
    def value(self) -> SSAValue:
        return self.op.operands[self.index]


@dataclass(eq=False)
class Affine(Front):
    """A product with a constant for each channel, perhaps a sum behind it: ``gamma`` and ``beta`` of normalisations.

    They are operands of RMS_NORM and INSTANCE_NORM, or of MUL and ADD.
    """

    gamma: ConstantOperand
    beta: ConstantOperand | None

    @classmethod
    def of(cls, op: CircleOp) -> Self | None:
        """What ``op`` ends: a normalisation, or MUL with a constant for each channel, or ADD of another behind it."""
        if op.unverified is not None or len(op.results) != 1 or not is_real(op.results[0]):
            return None
        slots = _slots_of_norm(op) if op.SPEC.name in _NORMS else _slots_of_products(op)
        if slots is None:
            return None
        channels = (shape_of(op.results[0]) or (None,))[-1]
        gamma, beta = (None if slot is None else real_constant(slot.value) for slot in slots)
        if channels is None or not _has_channels(gamma, channels) or (slots[1] and not _has_channels(beta, channels)):
            return None
        scale = np.ravel(np.asarray(gamma, np.float64))
        shift = np.zeros(channels) if beta is None else np.ravel(np.asarray(beta, np.float64))
        return cls(scale, 0, shift, *slots) if np.isfinite(scale).all() and np.isfinite(shift).all() else None

    @property
    def ops(self) -> Sequence[CircleOp]:
        own = self.gamma.op
        return (own,) if self.beta is None or self.beta.op is own else (own, self.beta.op)

    def _write(self) -> None:
        for slot, role, values in ((self.gamma, "gamma", self.weights), (self.beta, "beta", self.bias)):
            if slot is None:
                continue
            old = slot.value
            made = real(values.reshape(static_shape_of(old) or -1), constant_name(old, self.name, role))
            Rewriter.insert_op(made, InsertPoint.before(slot.op))
            slot.op.operands[slot.index] = made.result
            _erase_unread([old])


def _slots_of_norm(op: CircleOp) -> tuple[ConstantOperand, ConstantOperand | None] | None:
    names = [operand.name for operand in op.SPEC.operands]
    if op.SPEC.name == "INSTANCE_NORM" and len(shape_of(op.results[0]) or ()) != 4:
        return None  # its channels are along another axis
    return ConstantOperand(op, names.index("gamma")), ConstantOperand(
        op, names.index("beta")
    ) if "beta" in names else None


def _slots_of_products(op: CircleOp) -> tuple[ConstantOperand, ConstantOperand | None] | None:
    """Of MUL, or of ADD behind it. A MUL that such an ADD reads alone is a part of that."""
    if op.SPEC.name == "ADD":
        beta = _constant_slot(op)
        product = None if beta is None else producer(op.operands[1 - beta.index], "MUL")
        if product is None or activation(product) != "none" or not is_used_once(product.results[0]):
            return None
        gamma = _constant_slot(product)
        return None if gamma is None else (gamma, beta)
    gamma = _constant_slot(op) if op.SPEC.name == "MUL" else None
    return None if gamma is None else (gamma, None)


def _constant_slot(op: CircleOp) -> ConstantOperand | None:
    """The one operand of two that is a real constant."""
    found = [index for index, value in enumerate(op.operands) if real_constant(value) is not None]
    return ConstantOperand(op, found[0]) if len(found) == 1 else None


def _has_channels(array: NDArray[np.float32] | None, channels: int) -> bool:
    """Whether it has one number for each channel along the last axis."""
    return array is not None and array.ndim > 0 and array.shape[-1] == array.size == channels > 1


def fronts_of(ops: Sequence[CircleOp], layers: Mapping[CircleOp, LayerFront]) -> list[Front]:
    """All fronts among ``ops`` in their order; a product that is a part of another front is none itself."""
    found = [front for op in ops if (front := layers.get(op) or Affine.of(op)) is not None]
    inner = {op for front in found for op in front.ops[:-1]}
    return [front for front in found if front.ops[-1] not in inner]


def _erase_unread(values: Sequence[SSAValue]) -> None:
    for value in dict.fromkeys(values):
        if isinstance(value, OpResult) and value.first_use is None:
            Rewriter.erase_op(value.op)
