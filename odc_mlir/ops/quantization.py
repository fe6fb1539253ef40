"""What quantising means for an operator: the roles of its operands, and whose parameters its results take.

An operator's entry in the table holds one :class:`QuantRule`, made by one of the presets below. The rule says nothing
of element types: which ones an operator can run is asked of its kernel.

Operands that no rule names are *activations* where they are real; whole numbers, truth values and text are never
touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from types import MappingProxyType
from typing import Any

ChannelAxis = int | Callable[[Mapping[str, Any]], int]


class QuantKind(StrEnum):
    NONE = "none"  # no real values take part, or their contents do not matter
    FLOAT = "float"  # works on real values only
    OWN = "own"  # computes: each result has parameters of its own
    SAME = "same"  # moves codes: operands and results have the same parameters
    FIXED = "fixed"  # computes: the results' parameters follow from the element type


@dataclass(frozen=True, slots=True)
class Bias:
    """A bias has the scale ``input scale * weight scale`` for each channel and zero point 0."""

    input: int
    weights: int


class StateParameters(StrEnum):
    """Parameters of what an operator keeps from run to run."""

    OUTPUT = "output"  # those of the result
    CELL = "cell"  # int16, the scale a power of two


@dataclass(frozen=True, slots=True)
class QuantRule:
    """The rule of one operator; operands are named by their place.

    ``weights`` maps each operand that holds weights to its channel axis (None: always one scale), ``biases`` each bias
    to what it is added to, ``states`` each operand that is state to the kind of its parameters. ``stored`` maps
    operands that models whose weights alone are codes keep as codes, where they are constant, to the axis of their
    scales there (None: one scale), which may follow from options: those that are no weights to kernels of codes, or
    have one scale there.
    ``source``: in an operator that moves codes, the operand whose parameters the results take. Where it is None, codes
    of several operands meet in the result, and the operands in ``joined`` (all where it is empty) take its parameters.
    ``left`` are real operands whose element type does not matter. Values of operands in ``not_negative`` are at least
    zero; those in ``not_zero`` are constants without zeros, also after rounding. ``table`` names the fixed parameters,
    ``reason`` says why an operator stays with real values.
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
        """Whether results have one operand's parameters."""
        return self.source is not None

    @property
    def joins(self) -> bool:
        """Whether operands have the result's parameters."""
        return self.kind is QuantKind.SAME and self.source is None

    def trained(self, options: Mapping[str, Any]) -> dict[int, int | None]:
        """Operands that hold what was trained, where they are constant, with the axis of scales in reals' models."""
        found = {index: axis(options) if callable(axis) else axis for index, axis in self.stored.items()}
        return {**self.weights, **found}

    def is_joined(self, operand: int) -> bool:
        """Whether ``operand`` must have the result's parameters in an operator that joins."""
        return self.joins and (not self.joined or operand in self.joined)


NONE = QuantRule(QuantKind.NONE)
OWN = QuantRule()


def real_only(reason: str, *, left: tuple[int, ...] = (), stored: tuple[int, ...] = ()) -> QuantRule:
    """An operator that stays with real values; ``stored`` operands are weights with results along their first axis."""
    return QuantRule(QuantKind.FLOAT, left=left, reason=reason, stored=MappingProxyType(dict.fromkeys(stored, 0)))


def moved(source: int = 0, *, table: ChannelAxis | None = None) -> QuantRule:
    """Results hold codes of operand ``source``, in a ``table`` along which results choose."""
    stored = {} if table is None else {source: table}
    return QuantRule(QuantKind.SAME, source=source, stored=MappingProxyType(stored))


def joined(*operands: int) -> QuantRule:
    """The result holds codes of several operands, all of them where none is named."""
    return QuantRule(QuantKind.SAME, joined=operands)


def fixed(table: str) -> QuantRule:
    """Results have the parameters that ``table`` says for their element type."""
    return QuantRule(QuantKind.FIXED, table=table)


def product(*, axis: int, input: int = 0, weights: int = 1, bias: int | None = 2) -> QuantRule:
    """Products of an activation and weights with a channel ``axis``, plus a bias."""
    biases = {} if bias is None else {bias: Bias(input, weights)}
    return QuantRule(weights=MappingProxyType({weights: axis}), biases=MappingProxyType(biases))


def gates(
    *, weights: tuple[int, ...], stored: tuple[int, ...], biases: Mapping[int, Bias], output: int, cell: int
) -> QuantRule:
    """A recurrent cell: ``weights`` with one scale each, ``stored`` ones with results along axis 0, and its state."""
    return QuantRule(
        stored=MappingProxyType(dict.fromkeys(stored, 0)),
        weights=MappingProxyType(dict.fromkeys(weights)),
        biases=MappingProxyType(dict(biases)),
        states=MappingProxyType({output: StateParameters.OUTPUT, cell: StateParameters.CELL}),
    )
