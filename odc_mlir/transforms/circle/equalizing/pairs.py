"""Pairs for equalisation: a source of channels, and all layers that read them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain

import numpy as np
from numpy.typing import NDArray
from xdsl.ir import OpResult, SSAValue

from odc_mlir.dialects.circle import CircleOp, tensor_facts, tensor_type
from odc_mlir.dialects.circle_attributes import QuantRecord
from odc_mlir.support.locations import value_name
from odc_mlir.transforms.circle.equalizing.fronts import LARGEST, Floats, Front, LayerFront
from odc_mlir.transforms.circle.equalizing.tracing import Labels, Places, Tracer, commutes
from odc_mlir.transforms.common.retyping import retype
from odc_mlir.transforms.common.rewriting import activation

NEARLY_NOTHING = 1e-6  # a part of the largest: channels below say nothing


@dataclass(frozen=True)
class Balance:
    """Choice of factors: share of the equalisation, and restriction to powers of two."""

    alpha: float
    powers_of_two: bool
    tolerance: float

    def rounded(self, factors: Floats) -> Floats:
        """The factors, or the powers of two next to them."""
        return np.asarray(np.exp2(np.rint(np.log2(factors))) if self.powers_of_two else factors)


@dataclass(eq=False)
class Pair:
    """A front and the layers that read its channels.

    ``backs``: each with the label of what every weight along its last axis multiplies; ``labels``: of the tensors on
    the way, the front's result among them; ``bound``: channels that keep their scale.
    """

    front: Front
    backs: list[tuple[LayerFront, Places]]
    labels: Mapping[SSAValue, Labels]
    bound: NDArray[np.bool_]
    is_moved: bool = False

    @classmethod
    def of(cls, front: Front, tracer: Tracer) -> Pair | None:
        """The pair that begins with ``front``; None where no channel can be scaled."""
        if not all(commutes(op, tracer.relu6) for op in front.ops):
            return None
        trace = tracer.trace(front.result, len(front.bias))
        if trace is None or not trace.readers or trace.bound.all():
            return None
        backs = [(tracer.layers[op], places) for op, places in trace.readers.items()]
        return cls(front, backs, trace.labels, trace.bound)

    @cached_property
    def has_company(self) -> bool:
        """Whether channels that are not scaled share a tensor with those that are, and so the scale of its codes.

        Then the largest of the scaled ones has to stay the largest of all, lest these be lost beside the others.
        """
        return bool(self.bound.any()) or any((labels == 0).any() for labels in self.labels.values())

    def add_records(self, records: Mapping[str, Floats]) -> None:
        """Let a front that has a record know how much of the range each channel takes in any tensor on the way."""
        own = self.front.record
        if own is None:
            return
        shares = own / (own.max(initial=0.0) or 1.0)
        for value, labels in self.labels.items():
            found, row = records.get(value_name(value)), labels[(0,) * (labels.ndim - 1)]
            if found is None or not found.max(initial=0.0) or len(found) != len(row):
                continue
            if np.array_equal(np.broadcast_to(row, labels.shape), labels):
                places = row.astype(np.int64)
                np.maximum.at(shares, places[places > 0] - 1, (found / found.max())[places > 0])
        self.front.record = shares * own.max(initial=0.0)

    def equalize(self, balance: Balance) -> bool:
        """Move factors once, unless all are as good as 1; returns whether it did."""
        ranges = self.front.output_ranges()
        factors = channel_factors(ranges, self.input_ranges(), balance.alpha)
        if self.has_company:
            factors *= np.where(self.bound, 0.0, ranges / factors).max() / (ranges.max() or 1.0) or 1.0
        if self.front.record is None:
            factors = np.maximum(factors, least_factors(self.front.bias))
        factors = np.where(self.bound, 1.0, balance.rounded(factors))
        if np.max(np.abs(factors - 1), initial=0.0) <= balance.tolerance:
            return False
        return self.move(factors)

    def move(self, factors: Floats) -> bool:
        """Divide the channels by ``factors``; False where float32 does not hold the outcome."""
        by_label = np.concatenate([[1.0], factors])
        grown = [back.weights * by_label[places] for back, places in self.backs]
        if not self.front.can_scale(factors) or any(np.abs(array).max(initial=0.0) > LARGEST for array in grown):
            return False
        self.front.scale_outputs(factors)
        for (back, _), weights in zip(self.backs, grown, strict=True):
            back.weights = weights
            back.is_changed = True
        self.is_moved = True
        return True

    def input_ranges(self) -> Floats:
        """Largest weight of the layers that read them by channel."""
        ranges = np.zeros(1 + len(self.front.bias))
        for back, places in self.backs:
            columns = np.abs(back.weights).reshape(-1, back.weights.shape[-1]).max(axis=0, initial=0.0)
            np.maximum.at(ranges, places, columns)
        return ranges[1:]

    def settle(self) -> None:
        """Make types and activations between the layers fit their new values."""
        if not self.is_moved:
            return
        for op in dict.fromkeys([*self.front.ops, *map(_maker, self.labels)]):
            for result in op.results:
                if op in self.front.ops or (result in self.labels and self._is_scaled(self.labels[result])):
                    _forget_range(result)
            if activation(op) == "relu6":
                op.properties["fused_activation_function"] = op.OPTIONS["fused_activation_function"].encode("relu")

    def moved_factors(self) -> dict[str, Floats]:
        """Divisors of tensors by name: one number per element along the relevant axes."""
        if not self.is_moved:
            return {}
        found = {value: self._by_element(labels) for value, labels in self.labels.items()}
        found |= {op.results[0]: self.front.factors for op in self.front.ops}
        return {value_name(value): factors for value, factors in found.items() if (factors != 1).any()}

    def _by_element(self, labels: Labels) -> Floats:
        """The factors of elements with these labels, one number each along the axes that matter."""
        return np.concatenate([[1.0], self.front.factors])[_narrowed(labels).astype(np.int64)]

    def _is_scaled(self, labels: Labels) -> bool:
        """Whether any element of a tensor with these labels has another value than before."""
        return bool((self._by_element(labels) != 1).any())


def _maker(value: SSAValue) -> CircleOp:
    assert isinstance(value, OpResult)
    assert isinstance(value.op, CircleOp)
    return value.op


def _narrowed(labels: Labels) -> Labels:
    """The labels with extent 1 where an axis other than the last makes no difference, without leading ones."""
    for axis in range(labels.ndim - 1):
        first = labels.take([0], axis)
        if np.array_equal(np.broadcast_to(first, labels.shape), labels):
            labels = first
    while labels.ndim > 1 and labels.shape[0] == 1:
        labels = labels[0]
    return labels


def channel_factors(front: Floats, back: Floats, alpha: float = 0.5) -> Floats:
    """``front ** alpha / back ** (1 - alpha)`` for each channel, 1 where there is next to nothing to balance.

    That is where either is, unless the other makes up for it.
    """
    lowest = [NEARLY_NOTHING * ranges.max(initial=0.0) for ranges in (front, back, front * back)]
    lives = ((front > lowest[0]) & (back > lowest[1])) | (front * back > lowest[2])
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(lives, front**alpha / back ** (1 - alpha), 1.0)


def least_factors(bias: Floats) -> Floats:
    """The factors, at most 1, that make every bias as large as the largest."""
    sizes = np.abs(bias)
    largest = sizes.max(initial=0.0)
    return sizes / largest if largest else np.zeros_like(sizes)


def _forget_range(value: SSAValue) -> None:
    """Drop the recorded range of ``value``."""
    facts = tensor_facts(value.type)
    if facts.record is None:
        return
    old = facts.record
    left = QuantRecord(old.scale, old.zero_point, old.axis, (), (), old.details)
    record = left if any(chain(left.scale, left.details or ())) else None
    retype(value, tensor_type(facts.dtype, facts.shape, facts.quant, record))
