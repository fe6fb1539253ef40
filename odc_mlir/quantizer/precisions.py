"""Search for precisions of single layers: the cheapest model within the limits, or the best within a budget.

:mod:`odc_mlir.quantizer.pareto` estimates the front, and the search measures whole models along the front. If possible,
models keep limits with a margin (errors half as large), because few samples are checked. If the target runs layers with
more bits within four times the time, outputs below 25 dB should also gain 10 dB over plain quantisation. Layers leave
the target only if limits or a budget cannot be met otherwise.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from odc_mlir.quantizer import pareto
from odc_mlir.quantizer.evaluator import Evaluator
from odc_mlir.quantizer.layers import Effect, effects, ranked_effects
from odc_mlir.quantizer.measurement import GOOD_DB, Measurement
from odc_mlir.quantizer.models import Candidate
from odc_mlir.quantizer.policy import schemes
from odc_mlir.quantizer.policy.declarations import LITERT, ON
from odc_mlir.quantizer.policy.options import PrecisionChoice
from odc_mlir.quantizer.policy.verdict import Limit

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Time

LOG = logging.getLogger(__name__)

Measures = Mapping[str, float | None]
_Key = tuple[tuple[str, str], ...]

# Gain required for outputs below a good SQNR: for 7, 10 and 14 dB, a hand tracker gets 25, 31 and 31 dB on new images.
GAIN_DB = 10.0


@dataclass(slots=True, eq=False)
class Tried:
    """One measured model. ``is_confirmed``: whether the limits hold by cross-validation, if determined."""

    precisions: Mapping[str, str]
    candidate: Candidate
    measures: Measures
    outputs_db: tuple[float, ...]
    lacking: int = 0  # number of samples for which the model lacks numbers
    levels: pareto.Levels = ()  # empty for the first model
    is_confirmed: bool | None = field(default=None, init=False)

    def holds(self, limits: Iterable[Limit], aims: Sequence[float] = ()) -> bool:
        """Return whether limits hold, the SQNR of every output reaches the aim, and no sample lacks numbers."""
        return not self.lacking and all(limit.holds(self.measures) for limit in limits) and self.lacks(aims) <= 0

    def lacks(self, aims: Sequence[float]) -> float:
        """Return the largest difference in dB between the aim and the SQNR of an output."""
        return max((aim - db for db, aim in zip(self.outputs_db, aims, strict=False)), default=-math.inf)


def outputs_db(measured: Measurement) -> tuple[float, ...]:
    """Return the SQNR of each output, infinite for exact outputs and outputs that are not real."""
    return tuple(math.inf if errors.sqnr_db is None else errors.sqnr_db for errors in measured.outputs)


@dataclass
class PrecisionSearch:
    """Search for precisions of the layers called ``names``. ``fixed``: precisions that the user chose."""

    evaluator: Evaluator
    fixed: Mapping[str, PrecisionChoice]
    names: list[str]
    plain_db: tuple[float, ...]  # SQNR of outputs before help
    known_errors: tuple[str, Mapping[str, float]] | None = None  # metric and errors by layer, used without measuring
    tried: dict[_Key, Tried] = field(default_factory=dict, init=False)
    chosen: Tried | None = field(default=None, init=False)
    _slower: float = field(default=1.0, init=False)  # time of the last package relative to its estimate

    def __post_init__(self) -> None:
        self.options, self.limits = self.evaluator.options, self.evaluator.search_limits
        self._strict = tuple(limit.with_errors(0.5) for limit in self.limits)
        self.rules, most_ms = self.evaluator.target, self.options.max_time_ms
        self._limits_time = most_ms is not None
        self._budget = self.options.max_bytes if most_ms is None else 1e6 * most_ms  # bytes or ns, None without any

    def run(self, candidate: Candidate) -> Candidate:
        """Return ``candidate``, or a model with other precisions in some layers."""
        scheme = self.options.scheme
        steps = schemes.with_wide_weights(scheme) if self._runs(schemes.WIDE_VALUES) else schemes.ladder_of(scheme)
        # LiteRT has no kernels for 16-bit weights.
        unknown = (schemes.WIDE_WEIGHTS, schemes.WIDE_WEIGHTS_ALONE) if self.options.reader == LITERT else ()
        ladder = tuple(step for step in steps if step not in unknown)
        self._levels = (scheme, *ladder)
        if self._budget is not None and scheme in schemes.NARROWER:
            self._levels = (schemes.NARROWER[scheme], *self._levels)
        self._examination = self.evaluator.examination(candidate.model)
        self._pricing = pareto.Pricing(
            self.evaluator,
            self.fixed,
            self._examination,
            lambda precisions: self._built(precisions, rounding=False, correction=False),
            self.names,
            self._levels,
        )
        self._first = first = self.measured({}, candidate)
        aims = self._aims()
        limits = self.limits if self.options.mixed != ON else self._strict
        has_need = self._budget is not None or not (first.holds(limits, aims) and self.confirmed(first))
        if not ladder or not has_need:
            return candidate
        self.tried[()] = self.chosen = first
        self.evaluator.say("looking for layers that need more bits")
        self._effects = self._sensitivity(candidate)
        if self._budget is not None:
            found = self._best_within_budget(candidate)
        else:
            levels = self._accurate(candidate, aims)
            found = self._unconfirmed() if levels is None else self._made(levels)
        if found is not None:
            self.chosen = found
            step = {"step": "mixed", "value": dict(found.precisions), "tried": len(self.tried), "kept": True}
            self.evaluator.steps.append(step)
        return self.chosen.candidate

    def measured(self, precisions: Mapping[str, str], candidate: Candidate) -> Tried:
        """Measure ``candidate``, which has layers with ``precisions``, and return it with the measures."""
        measured = self.evaluator.measured(candidate)
        metrics = self.evaluator.reference.metrics(measured)
        return Tried(precisions, candidate, metrics, outputs_db(measured), measured.lacking)

    def _built(self, precisions: Mapping[str, str], **fields: Any) -> Candidate:
        first = self._first.candidate
        recipe = replace(first.recipe.with_precisions(precisions, self.fixed), **fields)
        return self.evaluator.built(first.model, recipe)

    def _sensitivity(self, candidate: Candidate) -> list[Effect]:
        if self.known_errors is None:
            return effects(self._examination, candidate.graph)
        return ranked_effects(*self.known_errors, self.names, len(self.plain_db))

    # Aims.

    def _aims(self) -> tuple[float, ...]:
        if self.options.definition.weights_only or not self._runs(schemes.wider_values(self.options.scheme)):
            return ()
        return tuple(-math.inf if db >= GOOD_DB else min(GOOD_DB + GAIN_DB, db + GAIN_DB) for db in self.plain_db)

    def _runs(self, precision: str) -> bool:
        return self.rules is not None and precision != schemes.FLOAT and self.rules.takes(precision)

    def confirmed(self, tried: Tried) -> bool:
        """Return whether the limits hold by cross-validation as well."""
        if not tried.holds(self.limits):
            return False
        if tried.is_confirmed is None:
            tried.is_confirmed = self.evaluator.holds_unseen(tried.candidate)
        return tried.is_confirmed

    def is_known(self, tried: Tried) -> bool:
        """Return whether cross-validation was done, or is unnecessary because limits are missed in the search."""
        return tried.is_confirmed is not None or not tried.holds(self.limits)

    # Costs and noise.

    def _problem(self, candidate: Candidate, *, host: bool) -> pareto.Problem:
        costs = self._pricing.costs(candidate, host=host)
        precisions = self._examination.precisions(candidate.graph)
        places = {
            name: place for place, name in enumerate(self.names) if precisions.get(name, schemes.FLOAT) != schemes.FLOAT
        }
        roundings = []
        for effect in self._effects:
            layers = tuple(sorted(places[name] for name in effect.layers if name in places))
            if layers:
                roundings.append(pareto.RoundingNoise(layers, self._noises(effect)))
        self._estimated = pareto.Problem(costs, roundings, self._pricing.borders())
        return self._estimated

    def _weighed(self, effect: Effect) -> float:
        """Return the noise of a rounding, relative to the allowed noise of each output."""
        aims = (min(GOOD_DB, db + GAIN_DB) for db in self.plain_db)
        return math.fsum(noise * 10.0 ** (aim / 10.0) for noise, aim in zip(effect.noise, aims, strict=True))

    def _noises(self, effect: Effect) -> tuple[float, ...]:
        """Return the noise of a rounding at each level: as measured, else divided by 4 for each additional bit."""
        measured = schemes.bits_of(self.options.scheme, effect.of_weights)
        bits = [schemes.bits_of(name, effect.of_weights) for name in self._levels]
        noise = self._weighed(effect)
        by_bits = {more: noise * 4.0 ** (measured - more) if more else 0.0 for more in bits}
        if effect.wide is not None and pareto.WIDE_BITS in by_bits:
            by_bits[pareto.WIDE_BITS] = min(noise, self._weighed(effect.wide))
        return tuple(by_bits[more] for more in bits)

    # Measuring along the front.

    def _accurate(self, candidate: Candidate, aims: Sequence[float]) -> pareto.Levels | None:
        most_time = 4.0  # limit on the time, relative to the plain model
        margin, holds = self._strict, self.confirmed(self._first)
        may_leave = self.rules is not None and not holds
        # (whether layers may leave the target, limit on relative time, limits, aims; None: nearest possible aims)
        wanted: list[tuple[bool, float, tuple[Limit, ...], Sequence[float] | None]] = []
        if aims:
            wanted += [(False, most_time, limits, aims) for limits in ([] if holds else [margin]) + [self.limits]]
            wanted += [(True, most_time, self.limits, aims)] if may_leave else []
            wanted += [(host, most_time, self.limits, None) for host in ((False, True) if may_leave else (False,))]
        if not holds or self.options.mixed == ON:
            wanted += [(False, math.inf, margin, ()), (False, math.inf, self.limits, ())]
            wanted += [(True, math.inf, self.limits, ())] if may_leave else []
        fronts: dict[bool, tuple[pareto.Problem, list[pareto.Point]]] = {}
        for may_go, longer, limits, asked in wanted:
            least = self._nearest(aims) if asked is None else asked
            if asked is None and not least:
                continue
            if holds and self._first.holds(limits, least):
                return None
            host = may_go or self.options.mixed == ON
            if host not in fronts:
                problem = self._problem(candidate, host=host)
                fronts[host] = problem, self._points(problem)
            problem, every = fronts[host]
            most = longer * problem.point(problem.plain).cost
            points = [point for point in every if point.cost <= most]
            levels = self._cheapest(problem, points, limits, least)
            if levels is not None:
                return levels
        return None

    def _unconfirmed(self) -> Tried | None:
        """Return the most accurate model that only the number of samples rules out; None if the first model is one."""
        refused = [tried for tried in self.tried.values() if tried.is_confirmed is False and self._is_covered(tried)]
        kept = [tried for tried in refused if self.evaluator.keeps_limits(tried.candidate)]
        return None if self._first in kept else max(kept, key=lambda tried: min(tried.outputs_db), default=None)

    def _nearest(self, aims: Sequence[float]) -> tuple[float, ...]:
        """Return ``aims`` lowered to just below the nearest model within the limits, or none if it gains too little."""
        near_db = 1.0  # tolerance; half or twice it changes no ablation
        lacking = min(
            (tried.lacks(aims) for tried in self.tried.values() if tried.holds(self.limits)), default=math.inf
        )
        return tuple(aim - max(lacking, 0.0) - near_db for aim in aims) if lacking <= GAIN_DB / 2 else ()

    def _points(self, problem: pareto.Problem) -> list[pareto.Point]:
        """Return the front except the plain point, and except points that mostly leave target or scheme."""
        points = [p for p in pareto.front(problem) if self._pricing.kept(p.levels) >= self.evaluator.min_coverage]
        if self._budget is not None:
            return points
        points = [point for point in points if any(point.levels)]
        if self.fixed:
            return points
        own = self._pricing.of_scheme(problem.free)
        return [point for point in points if not all(point.levels[i] for i in own)]

    def _cheapest(
        self, problem: pareto.Problem, points: Sequence[pareto.Point], limits: tuple[Limit, ...], aims: Sequence[float]
    ) -> pareto.Levels | None:
        """Return the cheapest of ``points`` with a measured model that holds ``limits`` and reaches ``aims``."""
        place = pareto.first_good(
            len(points),
            lambda i: self._made(points[i].levels).holds(limits, aims),
            self.evaluator.in_time,
            self._guesses(problem, points, aims) if aims else None,
        )
        if place is None:
            return None
        # Few points are cross-validated, because each cross-validation builds several models.
        while not self.confirmed(self._made(points[place].levels)):
            if place == len(points) - 1 or not self.evaluator.in_time():
                return None
            place = (place + len(points)) // 2
        return points[place].levels if self._is_covered(self._made(points[place].levels)) else None

    def _guesses(self, problem: pareto.Problem, points: Sequence[pareto.Point], aims: Sequence[float]) -> Iterator[int]:
        """Yield places near the first point that reaches ``aims``, by the estimated noise of measured points."""
        # Later guesses are no better than bisection. Measured errors fall more slowly than the estimated noise.
        most_guesses, slope = 4, 0.7
        for _ in range(most_guesses):
            known = [p for p in (problem.point(problem.plain), *points) if self._key(p.levels) in self.tried]
            found = [(self._made(point.levels).lacks(aims), point.noise) for point in known]
            lacks, noise = min(found, key=lambda pair: abs(pair[0]))
            most = noise * 10.0 ** (-lacks / slope / 10.0)
            yield next((place for place, point in enumerate(points) if point.noise <= most), len(points) - 1)

    def _is_covered(self, tried: Tried) -> bool:
        share = self.evaluator.share(tried.candidate)
        is_allowed = self._budget is None or {*self._levels}.issuperset(tried.precisions.values())
        return share > 0.0 and share >= self.evaluator.min_coverage and is_allowed

    def _precisions(self, levels: pareto.Levels) -> dict[str, str]:
        named = sorted(zip(self.names, levels, strict=True))
        steps = ((name, self._levels[level]) for name, level in named if level or name not in self._pricing.pinned)
        return {name: step for name, step in steps if step != self.options.scheme}

    def _key(self, levels: pareto.Levels) -> _Key:
        return tuple(sorted(self._precisions(levels).items()))

    def _made(self, levels: pareto.Levels) -> Tried:
        precisions, key = self._precisions(levels), self._key(levels)
        if key not in self.tried:
            self.tried[key] = replace(self.measured(precisions, self._built(precisions)), levels=levels)
            self.evaluator.say(f"{len(precisions)} layers in other precisions", made=1)
        return self.tried[key]

    def time(self, tried: Tried) -> Time | None:
        """Return the time of a tried model. Without a budget, a plan is made only of the chosen model."""
        if self.rules is None or self.chosen is None:
            return None
        if tried is self.chosen or self._pricing.counts_bytes or self._limits_time:
            return self.rules.time(tried.candidate.module)
        time = self.rules.time(self.chosen.candidate.module)
        ours, chosen = (self._estimated.point(t.levels or self._estimated.plain).cost for t in (tried, self.chosen))
        return replace(time, ns=time.ns * ours / chosen)

    # Within a budget.

    def least(self, candidate: Candidate, *, holds: bool) -> tuple[Candidate, bool]:
        """Return the cheapest model within the limits and True, else the cheapest of all and False.

        Only sufficiently quantised models count. ``holds``: whether ``candidate`` keeps the limits.
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
        """True if a measured and sufficiently quantised model exceeds the budget."""
        most = math.inf if self._budget is None else self._budget
        return any(self._is_covered(tried) and self._cost(tried) > most for tried in self.tried.values())

    def _best_within_budget(self, candidate: Candidate) -> Tried | None:
        """Return the most accurate model within the budget, preferably within the limits, or None if nothing fits."""
        found: Tried | None = None
        # With a budget of bytes, layers leave the target only if no other model keeps the limits.
        for host in (True,) if self.rules is None or self._limits_time else (False, True):
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

    # Models within the limits.

    def _cheaper(self, problem: pareto.Problem, points: Sequence[pareto.Point], levels: pareto.Levels) -> Tried | None:
        """Return a good model after measuring ``points`` cheaper than ``levels``: scores need not follow noise."""
        most_cheaper = 6
        most = problem.point(levels).cost
        left = [point for point in points if point.cost <= most and self._key(point.levels) not in self.tried]
        for point in left[:: -(-len(left) // most_cheaper)] if left else []:
            if not self.evaluator.in_time():
                break
            self._made(point.levels)
        return self._holding() if left else None

    def _holding(self) -> Tried | None:
        others = [tried for tried in self.tried.values() if tried.holds(self.limits) and self._may_fit(tried)]
        accurate = sorted(others, key=lambda tried: -min(tried.outputs_db, default=math.inf))
        cheap = sorted(others, key=self._cost)
        for order in (accurate, cheap):
            if found := self._first_kept(order, lambda tried: not self.evaluator.over_budget(tried.candidate)):
                return found
        return None

    def _first_kept(
        self, among: Iterable[Tried], is_wanted: Callable[[Tried], bool] = lambda tried: True
    ) -> Tried | None:
        most_confirmed = 4  # maximum number of models that are cross-validated here
        left = most_confirmed
        for tried in among:
            if not self.is_known(tried):
                left -= 1
                if left < 0 or not self.evaluator.in_time():
                    continue
            if self.confirmed(tried) and is_wanted(tried):
                return tried
        return None

    # Models within the budget.

    def _within(self, problem: pareto.Problem, points: Sequence[pareto.Point]) -> pareto.Levels | None:
        """Return the most accurate choice within the budget, if any. ``points``: the front, most accurate first."""
        most_compiled = 6  # maximum number of choices that are compiled to know their time
        as_asked = self._levels.index(self.options.scheme)
        plain = tuple(0 if name in self._pricing.pinned else as_asked for name in self.names)
        # The cheapest choice may be off the front: wider values have bytes of parameters that the estimate ignores.
        always = [plain, problem.plain]
        if not self._limits_time:
            return self._most_accurate(self._affordable(points, always))
        timed: list[pareto.Levels] = []  # estimates are corrected until the choice itself has been compiled
        for _ in range(most_compiled):
            found = self._most_accurate(self._affordable(points, [*always, *timed]))
            asked = found or min(
                [plain, *(point.levels for point in points[-1:])], key=lambda levels: self._cost(self._made(levels))
            )
            if asked in timed or not self.evaluator.in_time():
                return found
            assert self.rules is not None
            module = self._made(asked).candidate.module
            estimate = self.rules.time(module).ns
            self._slower = self.rules.time(module, compiled=True).ns / max(estimate, 1.0)
            timed.append(asked)
        return self._most_accurate(filter(self._is_affordable, timed))

    def _affordable(self, points: Sequence[pareto.Point], others: Iterable[pareto.Levels]) -> list[pareto.Levels]:
        """Return the measured ``points`` within the budget, most accurate first, then ``others`` within the budget."""
        most_macs, fewest, most = 1 << 28, 12, 48  # multiplications for all measured points, and limits on their number
        count = min(most, most_macs // max(1, self._examination.macs * self._examination.samples))
        # Measure points independently of the budget. A larger budget then never gives a worse model.
        if not self._limits_time and count >= fewest:
            every = [point.levels for point in points[:: -(-len(points) // count) or 1]]
            within = [levels for levels in every if self.evaluator.in_time() and self._is_affordable(levels)]
        else:
            place = pareto.first_good(
                len(points), lambda i: self._is_affordable(points[i].levels), self.evaluator.in_time
            )
            cheap = () if place is None else points[place:]
            # A point with a lower estimate need not be faster.
            known = (point.levels for point in cheap if self._key(point.levels) in self.tried)
            within = list(filter(self._is_affordable, known))
        return [*within, *filter(self._is_affordable, others)]

    def _most_accurate(self, among: Iterable[pareto.Levels]) -> pareto.Levels | None:
        return max(among, key=lambda levels: min(self._made(levels).outputs_db, default=math.inf), default=None)

    def _is_affordable(self, levels: pareto.Levels) -> bool:
        return self._fits(self._made(levels))

    def _fits(self, tried: Tried) -> bool:
        return self._is_covered(tried) and (self._budget is None or self._cost(tried) <= self._budget)

    def _may_fit(self, tried: Tried) -> bool:
        too_high = 1.1  # largest ratio of an estimate to the time of the package
        if self._budget is None or self.rules is None or not self._limits_time:
            return self._fits(tried)
        return self.rules.time(tried.candidate.module).ns <= too_high * self._budget and self._is_covered(tried)

    def _cost_of(self, candidate: Candidate) -> float:
        module = candidate.module
        if self.rules is None or not self._limits_time:
            return self.evaluator.size(candidate)
        return self.rules.time(module).ns * (1.0 if self.rules.is_timed(module) else self._slower)

    def _cost(self, tried: Tried) -> float:
        return self._cost_of(tried.candidate)
