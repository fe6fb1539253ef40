"""What layers cost in each precision: modelled time with a target, else work, or bytes of weights."""

from __future__ import annotations

import itertools
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from odc_mlir.errors import OdcError
from odc_mlir.quantizer.layers import Examination
from odc_mlir.quantizer.mixed import Border, Levels
from odc_mlir.quantizer.options import Options
from odc_mlir.quantizer.policy.ladders import values_of
from odc_mlir.quantizer.policy.precision import PrecisionChoice
from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES, Scheme
from odc_mlir.quantizer.stages import Candidate

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement, TargetRules

LOG = logging.getLogger(__name__)

WIDE_BITS = 16  # of values
_FEW_BITS = 4  # of weights
_FLOAT_WORK = 8.0  # of a layer, where the scheme's is 1: no integer NPU takes it


@dataclass
class Pricing:
    """Prices the ``levels``, names of precisions, of layers called ``names``, of which ``fixed`` ones have no choice.

    ``build`` makes the model with other precisions. ``plain``: what the target runs of it as it is, None without
    target. ``pinned``: layers that have no choice between the first two levels, as known from :meth:`costs` on.
    """

    options: Options
    fixed: Mapping[str, PrecisionChoice]
    examination: Examination
    build: Callable[[Mapping[str, str]], Candidate]
    rules: TargetRules | None
    plain: Placement | None
    names: Sequence[str]
    levels: Sequence[str]
    pinned: set[str] = field(default_factory=set)
    _placements: dict[str, Placement | None] = field(default_factory=dict)
    _leaving: list[list[bool]] = field(default_factory=list)  # by layer and level, whether the target loses it

    def costs(self, candidate: Candidate, *, host: bool) -> list[list[float]]:
        """What each layer costs at each level, infinite where it may not have that; the plain level it always may."""
        precisions = self.examination.precisions(candidate.graph)
        weights, hiding = self.examination.weights(), self.examination.hiding()
        self._leaving = self._left(candidate)
        rows = self._bytes() if self._counts_bytes else self._times(candidate)
        for row, gone in zip(rows, [] if host else self._leaving, strict=False):  # which is of all layers, or of none
            row[1:] = [math.inf if left else cost for cost, left in zip(row[1:], gone[1:], strict=True)]
        for name, row in zip(self.names, rows, strict=True):
            if name in self.fixed or precisions.get(name, FLOAT) == FLOAT:
                row[1:] = [math.inf] * (len(row) - 1)
            elif not weights.get(name):
                for level, is_same in enumerate(self._keep_values()):
                    row[level + 1] = math.inf if is_same else row[level + 1]  # the same as one level below
            if name in hiding:  # with 16 bits a code of what is masked shows: the table ends at exp(-10)
                row[1:] = [
                    math.inf if bits_of(step, of_weights=False) == WIDE_BITS else cost
                    for step, cost in zip(self.levels[1:], row[1:], strict=True)
                ]
        self.pinned = {name for name, row in zip(self.names, rows, strict=True) if not math.isfinite(row[1])}
        return rows

    def of_scheme(self, free: Sequence[int]) -> list[int]:
        """Which of the layers that have a choice are in the scheme while they have its level.

        Beside a wider level that differs in weights alone those without weights are not: they are the same in both.
        """
        if len(self.levels) < 2 or not self._keep_values()[0]:
            return list(free)
        weights = self.examination.weights()
        return [place for place in free if weights.get(self.names[place])] or list(free)

    def _keep_values(self) -> list[bool]:
        """Of each level but the first, whether it differs from that before in weights alone."""
        return [values_of(low) == values_of(high) for low, high in itertools.pairwise(self.levels)]

    @property
    def _counts_bytes(self) -> bool:
        """Whether bytes of weights are what layers cost: codes of weights alone save nothing else."""
        return self.options.max_bytes is not None or self.options.definition.weights_only

    def _bytes(self) -> list[list[float]]:
        """Bytes of weights at each level."""
        elements = self.examination.weights()
        sizes = [(bits_of(name, True) or 32) / 8 for name in self.levels]
        return [[elements.get(name, 0) * size for size in sizes] for name in self.names]

    def _times(self, candidate: Candidate) -> list[list[float]]:
        """Modelled nanoseconds with a target, else work."""
        if self.rules is None or self.plain is None:
            work = self.examination.work()
            first = self._work_in(self.options.scheme)
            factors = [_FLOAT_WORK if step == FLOAT else self._work_in(step) / first for step in self.levels]
            return [[factor * max(work.get(name, 1.0), 1.0) for factor in factors] for name in self.names]
        columns = [self._placement(candidate, step) for step in self.levels]
        return [
            [math.inf if placed is None else placed.layers[i].ns for placed in columns] for i in range(len(self.names))
        ]

    def _left(self, candidate: Candidate) -> list[list[bool]]:
        """Whether the target loses each layer, by level; empty without target."""
        if self.plain is None:
            return []
        columns = [self._placement(candidate, step) for step in self.levels]
        return [
            [was and bool(placed is None or placed.layers[i].reason) for placed in columns]
            for i, was in enumerate(self.plain.taken())
        ]

    def _work_in(self, step: str) -> float:
        """Work of a layer in this precision, in bits of values: weights of 4 bits come in half the time."""
        return bits_of(step, of_weights=False) * (0.5 if bits_of(step, of_weights=True) == _FEW_BITS else 1.0)

    def _placement(self, candidate: Candidate, step: str) -> Placement | None:
        """What the target makes of the model with all layers of this precision; None where that cannot be."""
        if step not in self._placements:
            self._placements[step] = self._placed(candidate, step)
        return self._placements[step]

    def _placed(self, candidate: Candidate, step: str) -> Placement | None:
        assert self.rules is not None
        if step == self.options.scheme:
            return self.rules.priced(candidate.module)
        movable = [name for name in self.names if name not in self.fixed]
        try:
            return self.rules.priced(self.build(dict.fromkeys(movable, step)).module)
        except OdcError as error:
            LOG.info("layers cannot be %s: %s", step, error)
            return None

    def borders(self) -> list[Border]:
        """What it costs to convert between two layers."""
        if self._counts_bytes:
            return []
        places, found = {name: place for place, name in enumerate(self.names)}, []
        for maker, reader, elements in self.examination.edges():
            if maker in places and reader in places:
                wide, real = (elements, elements) if self.rules is None else self.rules.conversion_ns(elements)
                costs = tuple(
                    0.0 if is_same else float(real if step == FLOAT else wide)
                    for step, is_same in zip(self.levels[1:], self._keep_values(), strict=True)
                )
                found.append(Border(places[maker], places[reader], costs))
        return found

    def kept(self, levels: Levels) -> float:
        """The part of its products that the target keeps, by estimate."""
        if self.plain is None:
            return 1.0
        macs = [layer.macs if taken else 0 for layer, taken in zip(self.plain.layers, self.plain.taken(), strict=True)]
        gone = sum(m for m, left, level in zip(macs, self._leaving, levels, strict=True) if left[level])
        return 1.0 - gone / (sum(macs) or 1)


def bits_of(precision: str, of_weights: bool) -> int:
    """Bits of values or weights in this precision, 0 for float."""
    scheme: Scheme | None = SCHEMES.get(precision)
    dtype = None if scheme is None else scheme.weights if of_weights else scheme.activations
    return 0 if dtype is None else int("".join(filter(str.isdigit, dtype)))
