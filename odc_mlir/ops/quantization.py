"""Quantisation rules of operators: roles of operands, and parameters of results.

An operator's entry in the table has a :class:`QuantRule`, made by one of the presets below. The rule does not limit
element types; the kernel does.

Float operands without a role are *activations*; integers, booleans and text are never quantised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

ChannelAxis = int | Callable[[Mapping[str, Any]], int]


class QuantKind(StrEnum):
    NONE = "none"  # no real values are involved, or their contents do not matter
    FLOAT = "float"  # works only on real values
    OWN = "own"  # computes: each result has parameters of its own
    SAME = "same"  # moves codes: operands and results have the same parameters
    FIXED = "fixed"  # computes: the results' parameters follow from the element type


@dataclass(frozen=True, slots=True)
class Bias:
    """Role of a bias, with the scale ``input scale * weight scale`` per channel and zero point 0."""

    input: int
    weights: int


class StateParameters(StrEnum):
    """Quantisation parameters of an operator's state."""

    OUTPUT = "output"  # parameters of the result
    CELL = "cell"  # int16 with a power of two as scale


@dataclass(frozen=True, slots=True)
class QuantRule:
    """Quantisation rule of one operator; operands are given by index.

    * ``weights``: channel axis of each operand that holds weights (None: always one scale);
    * ``biases``: for each bias, the operands to whose product it is added;
    * ``states``: the kind of parameters of each state operand;
    * ``stored``: further constants that weight-only models store as codes, with the axis of their scales (None: one
      scale), which may depend on options;
    * ``source``: the operand of a move; results have its parameters. If ``source`` is None, the result holds codes of
      several operands, and the operands in ``joined`` (all if it is empty) have the result's parameters;
    * ``left``: float operands that stay float;
    * ``not_negative``: operands whose values are at least zero;
    * ``not_zero``: constants that must have no zeros, even after rounding;
    * ``table``: name of the fixed parameters;
    * ``reason``: why an operator stays with float values.
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
        """Return whether results have one operand's parameters."""
        return self.source is not None

    @property
    def joins(self) -> bool:
        """Return whether operands have the result's parameters."""
        return self.kind is QuantKind.SAME and self.source is None

    def trained(self, options: Mapping[str, Any]) -> dict[int, int | None]:
        """Return operands that hold trained constants, with the axis of their scales in weight-only models."""
        found = {index: axis(options) if callable(axis) else axis for index, axis in self.stored.items()}
        return {**self.weights, **found}

    def is_joined(self, operand: int) -> bool:
        """Return True if ``operand`` must have the result's parameters."""
        return self.joins and (not self.joined or operand in self.joined)


NONE = QuantRule(QuantKind.NONE)
OWN = QuantRule()


def real_only(reason: str, *, left: tuple[int, ...] = (), stored: tuple[int, ...] = ()) -> QuantRule:
    """Return the rule of an operator on real values; ``stored`` are weights with output channels along axis 0."""
    return QuantRule(QuantKind.FLOAT, left=left, reason=reason, stored=MappingProxyType(dict.fromkeys(stored, 0)))


def moved(source: int = 0, *, table: ChannelAxis | None = None) -> QuantRule:
    """Return the rule of an operator that moves codes of operand ``source``."""
    stored = {} if table is None else {source: table}
    return QuantRule(QuantKind.SAME, source=source, stored=MappingProxyType(stored))


def joined(*operands: int) -> QuantRule:
    """Return the rule of an operator whose result holds codes of several operands (default: all)."""
    return QuantRule(QuantKind.SAME, joined=operands)


def fixed(table: str) -> QuantRule:
    """Return the rule of an operator whose results have the fixed parameters in ``table``."""
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
