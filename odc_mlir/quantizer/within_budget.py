"""The most accurate model within a budget of time or bytes, and what the least budget would be.

A model that keeps the limits is taken before a more accurate one. What a point of the front really takes and gives is
not as estimated: of those that were measured the best is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from odc_mlir.quantizer.mixed import Levels, Point, Problem, first_good
from odc_mlir.quantizer.stages import Candidate
from odc_mlir.quantizer.widening import Tried, Widening

_MOST_IN_BUDGET, _FEWEST_IN_BUDGET = 48, 12  # points that are measured
_MOST_BUDGET_MACS = 1 << 28  # of all of these together
_MOST_CONFIRMED = 4  # models that are judged as the verdict does, in place of one that misses limits
_MOST_CHEAPER = 6  # points that are measured where the most accurate misses limits, and all others that are known
_TOO_HIGH = 1.1  # times what packages take, which some estimates are
_MOST_COMPILED = 6  # choices whose packages tell what a budget of time holds


@dataclass
class WithinBudget(Widening):
    """Widens one candidate, as far as a budget of time or bytes holds."""

    _slower: float = 1.0  # a package than its estimate, as the last one told

    def least(self, candidate: Candidate, *, holds: bool) -> tuple[Candidate, bool]:
        """The cheapest model that was made, is covered and keeps the limits, as ``candidate`` does if it ``holds``.

        The cheapest of all, and that it does not keep them, where none does.
        """
        others = (tried for tried in self.tried.values() if tried is not self.chosen)
        ordered = sorted((tried for tried in others if self._is_covered(tried)), key=self._cost)
        cost = self._cost_of(candidate)
        cheaper = [tried for tried in ordered if self._cost(tried) < cost]
        kept = self._first_kept(cheaper if holds else ordered)
        if kept is not None:
            return kept.candidate, True
        return (cheaper[0].candidate if cheaper and not holds else candidate), holds

    @property
    def is_tight(self) -> bool:
        """Whether something that was measured, and is covered, is beyond the budget."""
        return any(self._is_covered(tried) and self._cost(tried) > self._budget for tried in self.tried.values())

    def _found(self, candidate: Candidate, aims: Sequence[float]) -> Tried | None:
        """What is most accurate within the budget and keeps the limits, or at least the first; None where nothing is.

        Bytes say nothing of time: for these layers leave the target only if limits are kept in no other way.
        """
        found: Tried | None = None
        for host in (True,) if self.rules is None or self.options.max_time_ms is not None else (False, True):
            problem = self._problem(candidate, host=host)
            points = self._points(problem)[::-1]
            levels = self._within(problem, points)
            if levels is None:
                continue
            tried = self._made(levels)
            if not self.confirmed(tried):
                tried = self._holding() or self._cheaper(problem, points, levels) or tried
            if self.confirmed(tried):
                return tried
            found = found or tried
        return found

    # What keeps the limits.

    def _cheaper(self, problem: Problem, points: Sequence[Point], levels: Levels) -> Tried | None:
        """What keeps the limits of ``points`` that cost less than ``levels``, from the most accurate on.

        Scores need not follow the noise: less accurate models may keep what a more accurate one misses.
        """
        most = problem.point(levels).cost
        left = [point for point in points if point.cost <= most and self._key(point.levels) not in self.tried]
        for point in left[:: -(-len(left) // _MOST_CHEAPER)] if left else []:
            if not self.in_time():
                break
            self._made(point.levels)
        return self._holding() if left else None

    def _holding(self) -> Tried | None:
        """A model within the budget of which limits hold; None where none is known to.

        Of a few the most accurate, else of a few the cheapest.
        """
        others = [tried for tried in self.tried.values() if tried.holds(self.limits) and self._may_fit(tried)]
        accurate = sorted(others, key=lambda tried: -min(tried.outputs_db, default=math.inf))
        cheap = sorted(others, key=self._cost)
        orders = (self._first_kept(order, self._fits_indeed) for order in (accurate, cheap))
        return next(filter(None, orders), None)

    def _first_kept(
        self, among: Iterable[Tried], is_wanted: Callable[[Tried], bool] = lambda tried: True
    ) -> Tried | None:
        """The first that keeps the limits and ``is_wanted``; None where none does of so many that are judged anew."""
        left = _MOST_CONFIRMED
        for tried in among:
            if not self.is_known(tried):
                left -= 1
                if left < 0 or not self.in_time():
                    continue
            if self.confirmed(tried) and is_wanted(tried):
                return tried
        return None

    # What is within the budget.

    def _within(self, problem: Problem, points: Sequence[Point]) -> Levels | None:
        """The most accurate choice within the budget; None where there is none. ``points``: the most accurate first.

        What estimates say of time is scaled as the last package tells, until that of the choice itself is known.
        """
        as_asked = self._levels.index(self.options.scheme)
        plain = tuple(0 if name in self._pricing.pinned else as_asked for name in self.names)
        # The cheapest may be on no front: what costs no bytes by estimate has some, as parameters of wider values.
        always = [plain, problem.plain]
        if self.options.max_time_ms is None:
            return self._most_accurate(self._affordable(points, always))
        timed: list[Levels] = []
        for _ in range(_MOST_COMPILED):
            found = self._most_accurate(self._affordable(points, [*always, *timed]))
            asked = found or min(
                [plain, *(point.levels for point in points[-1:])], key=lambda levels: self._cost(self._made(levels))
            )
            if asked in timed or not self.in_time():
                return found
            self._compile(asked)
            timed.append(asked)
        return self._most_accurate(filter(self._is_affordable, timed))

    def _affordable(self, points: Sequence[Point], others: Iterable[Levels]) -> list[Levels]:
        """What was measured of ``points``, from the most accurate on, and is within the budget, and such ``others``."""
        # Where the budget has no say in which of them are measured, a larger one gets no worse a model.
        if (most := self._most_in_budget) and points:
            every = [point.levels for point in points[:: -(-len(points) // most)]]
            within = [levels for levels in every if self.in_time() and self._is_affordable(levels)]
        else:
            place = first_good(len(points), lambda i: self._is_affordable(points[i].levels), self.in_time)
            cheap = () if place is None else points[place:]
            within = [point.levels for point in cheap if self._key(point.levels) in self.tried]
            if self.options.max_time_ms is not None:  # as cheaper by estimate need not be faster
                within = list(filter(self._is_affordable, within))
        return [*within, *filter(self._is_affordable, others)]

    def _most_accurate(self, among: Iterable[Levels]) -> Levels | None:
        return max(among, key=lambda levels: min(self._made(levels).outputs_db, default=math.inf), default=None)

    def _compile(self, levels: Levels) -> None:
        """Let the package say how long ``levels`` take, and so how much slower than estimated others are."""
        assert self.rules is not None
        module = self._made(levels).candidate.module
        estimate = self.rules.time(module).ns
        self._slower = self.rules.time(module, compiled=True).ns / max(estimate, 1.0)

    def _time_ns(self, candidate: Candidate) -> float:
        """How long an inference takes, as far as is known."""
        assert self.rules is not None
        module = candidate.module
        return self.rules.time(module).ns * (1.0 if self.rules.is_timed(module) else self._slower)

    @property
    def _most_in_budget(self) -> int:
        """How many points of the front are measured for a budget of bytes; 0: so few that bisection finds more."""
        work = max(1, self.examination.macs * self.examination.samples)
        most = min(_MOST_IN_BUDGET, _MOST_BUDGET_MACS // work)
        return 0 if self.options.max_bytes is None or most < _FEWEST_IN_BUDGET else most

    def _is_affordable(self, levels: Levels) -> bool:
        return self._fits(self._made(levels))

    def _is_covered(self, tried: Tried) -> bool:
        """The same of what the search may take, which is in precisions that it knows."""
        return super()._is_covered(tried) and {*self._levels}.issuperset(tried.precisions.values())

    def _fits(self, tried: Tried) -> bool:
        """Whether the model is within the budget, and enough of it covered."""
        return self._is_covered(tried) and self._cost(tried) <= self._budget

    def _may_fit(self, tried: Tried) -> bool:
        """The same, as far as estimates of time, of which some are too high, do not deny it."""
        if self.options.max_time_ms is None:
            return self._fits(tried)
        assert self.rules is not None
        return self.rules.time(tried.candidate.module).ns <= _TOO_HIGH * self._budget and self._is_covered(tried)

    def _fits_indeed(self, tried: Tried) -> bool:
        """Whether it does by its package."""
        if self.options.max_time_ms is None:
            return True
        assert self.rules is not None
        return self.rules.time(tried.candidate.module, compiled=True).ns <= self._budget

    @property
    def _budget(self) -> float:
        """Bytes or nanoseconds, whichever are limited."""
        if self.options.max_bytes is not None:
            return self.options.max_bytes
        assert self.options.max_time_ms is not None
        return 1e6 * self.options.max_time_ms

    def _cost_of(self, candidate: Candidate) -> float:
        """What a model takes of that."""
        return self.size(candidate) if self.options.max_bytes is not None else self._time_ns(candidate)

    def _cost(self, tried: Tried) -> float:
        return self._cost_of(tried.candidate)
