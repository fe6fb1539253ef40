"""Other precisions for some layers, where the limits do not hold: which are allowed, what they cost, what they bring.

Without a target every type is. With one, layers that it runs keep the model's scheme: a type that it refuses would send
them to the host. What that would bring, and cost in modelled time, is measured for a few numbers of layers and shown;
only with ``mixed="on"`` it is done, for as few layers as possible, at most as many as ``min_coverage`` leaves.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from odc_mlir.errors import OdcError
from odc_mlir.quantizer.layers import Examination
from odc_mlir.quantizer.mixed import Move, ladder_of, plan_moves, precisions_after, search
from odc_mlir.quantizer.options import ON, Options
from odc_mlir.quantizer.policy.precision import Choice
from odc_mlir.quantizer.policy.schemes import FLOAT
from odc_mlir.quantizer.policy.verdict import LayerError, Limit
from odc_mlir.quantizer.stages import Candidate

LOG = logging.getLogger(__name__)

Measures = Mapping[str, float | None]

# For how many layers it is measured what the host could do better, and with how little left of the target's share that
# is of interest.
_EXPLORED = (1, 2, 4, 8, 16)
_LEAST_EXPLORED = 0.5


@dataclass
class Widening:
    """Widens one candidate.

    ``build`` makes the candidate with other precisions, ``measure`` gives what limits are checked against. ``taken``:
    by layer, whether the target runs it as it is; None without a target. ``host_ns``: what each layer costs on the
    host. ``share`` of a candidate is what coverage is measured by, of which ``least_share`` must be left.
    """

    options: Options
    limits: tuple[Limit, ...]
    fixed: Mapping[str, Choice]
    examination: Examination
    build: Callable[[Mapping[str, str]], Candidate]
    measure: Callable[[Candidate], Measures]
    share: Callable[[Candidate], float]
    least_share: float
    in_time: Callable[[], bool]
    say: Callable[[str, int], None]
    taken: Mapping[str, bool] | None = None
    host_ns: Mapping[str, float] = field(default_factory=dict)
    steps: list[dict[str, Any]] = field(default_factory=list)
    _tried: dict[tuple[tuple[str, str], ...], tuple[Candidate, Measures]] = field(default_factory=dict)

    def run(self, candidate: Candidate) -> Candidate:
        """``candidate``, or one in which as few layers as possible have other precisions and all limits hold."""
        ladder = ladder_of(self.options.scheme)
        if not ladder or self._holds(self.limits, self.measure(candidate)):
            return candidate
        self.say("the limits do not hold; looking for layers that need more bits", 0)
        self._tried[()] = candidate, self.measure(candidate)
        moves, to_host = self._moves(candidate, ladder)
        if self.options.mixed == ON:
            moves = sorted(moves + to_host, key=lambda move: -move.merit)
        # A model that needs help gets some to spare, for few samples are checked on; or just enough.
        for limits in (tuple(limit.with_margin() for limit in self.limits), self.limits):
            found = search(moves, partial(self._good_enough, limits), in_time=self.in_time)
            if found is not None and self.share(self._made(found)[0]) >= self.least_share:
                chosen = dict(sorted(found.items()))
                self.steps.append({"step": "mixed", "value": chosen, "tried": len(self._tried), "kept": True})
                return self._made(found)[0]
        LOG.warning("no choice of precisions keeps the limits")
        self._explore(to_host)
        return candidate

    def _explore(self, moves: list[Move]) -> None:
        """Measure what the best of ``moves`` would bring, until limits hold or most would be gone."""
        for count in _EXPLORED:
            if count > len(moves) or not self.in_time():
                return
            candidate, measures = self._made(precisions_after(moves[:count]))
            if self._holds(self.limits, measures) or self.share(candidate) < _LEAST_EXPLORED:
                return

    def front(self) -> list[tuple[dict[str, str], Candidate, Measures]]:
        """Everything that was tried: precisions, the candidate, and its measures."""
        return [(dict(key), *found) for key, found in self._tried.items()]

    def _moves(self, candidate: Candidate, ladder: tuple[str, ...]) -> tuple[list[Move], list[Move]]:
        """Moves of layers that the target does not run, and those that would take others from it."""
        narrow = [
            layer
            for layer in self.examination.layers(candidate.graph, accumulated=False)
            if layer.precision != FLOAT and layer.name not in self.fixed
        ]
        kept = {layer.name for layer in narrow if self.taken is not None and self.taken.get(layer.name, False)}
        wide: dict[str, list[LayerError]] = {}
        for step in ladder[:-1]:
            movable = [layer for layer in narrow if layer.name not in kept]
            if not movable:
                continue
            try:
                all_wide = self.build({layer.name: step for layer in movable})
            except OdcError as error:
                LOG.info("layers cannot be taken to %s: %s", step, error)
                continue
            wide[step] = self.examination.layers(all_wide.graph, accumulated=False)
        work = self.host_ns or self.examination.work()
        free = [layer for layer in narrow if layer.name not in kept]
        to_host = [layer for layer in narrow if layer.name in kept]
        return plan_moves(free, wide, work, ladder), plan_moves(to_host, {}, work, (FLOAT,))

    def _made(self, precisions: Mapping[str, str]) -> tuple[Candidate, Measures]:
        key = tuple(sorted(precisions.items()))
        if key not in self._tried:
            wider = self.build(precisions)
            self._tried[key] = wider, self.measure(wider)
            self.say(f"{len(precisions)} layers in other precisions", len(self._tried))
        return self._tried[key]

    def _good_enough(self, limits: tuple[Limit, ...], precisions: Mapping[str, str]) -> bool:
        return self._holds(limits, self._made(precisions)[1])

    @staticmethod
    def _holds(limits: tuple[Limit, ...], measures: Measures) -> bool:
        return all(limit.holds(measures) for limit in limits)
