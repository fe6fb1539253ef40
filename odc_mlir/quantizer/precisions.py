"""Search for precisions of single layers: the cheapest model within the limits, or the best within a budget.

Without a target every type is allowed. With one, layers that it runs keep types that it runs, unless limits or a budget
cannot be met otherwise. :mod:`odc_mlir.quantizer.pareto` gives the front by estimate; along it whole models are
measured:

* By default the search takes the cheapest point that keeps the limits with a margin (errors half as large), because few
  samples are checked. Where the target gives layers more bits within four times the time, outputs below 25 dB should
  also gain 10 dB over plain quantising. If no point does, the search takes one within a decibel of the nearest, at
  least within the limits.
* With a budget of time or bytes it takes the most accurate point within the budget. A model that keeps the limits goes
  before a more accurate one.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from odc_mlir.quantizer.layers import Effect, Examination, effects, effects_told
from odc_mlir.quantizer.measurement import GOOD_DB, Measurement
from odc_mlir.quantizer.models import Candidate
from odc_mlir.quantizer.pareto import (
    WIDE_BITS,
    Levels,
    Point,
    Pricing,
    Problem,
    RoundingNoise,
    first_good,
    front,
    thinned,
    without_needless,
)
from odc_mlir.quantizer.policy.options import ON, Options, PrecisionChoice
from odc_mlir.quantizer.policy.readers import LITERT
from odc_mlir.quantizer.policy.schemes import (
    FLOAT,
    NARROWER,
    WIDE_VALUES,
    WIDE_WEIGHTS,
    WIDE_WEIGHTS_ALONE,
    bits_of,
    ladder_of,
    wider_values,
    with_wide_weights,
)
from odc_mlir.quantizer.policy.verdict import Limit

if TYPE_CHECKING:
    from odc_mlir.quantizer.target import Placement, TargetRules


LOG = logging.getLogger(__name__)

Measures = Mapping[str, float | None]
_Key = tuple[bool, tuple[tuple[str, str], ...]]

# What outputs are to gain that have less than what is good: so much on the few samples of a search leaves 6 dB on most
# others.
GAIN_DB = 10.0
_NEAR_DB = 1.0  # what they may lack of the nearest to that
_MOST_TIME = 4.0  # of the plain model's, that this may take
_MOST_BY_REFINING_DB = 6.0  # that outputs may lack for that to be tried
_MOST_REFINED = 8  # points that are measured with codes refined by samples, which is slow
# How many points are measured to show what the host could do better, and with how much left of the target's share.
_EXPLORED = 5
_LEAST_EXPLORED = 0.5
_NEXT_TO_NOTHING = 1e-3  # of the noise: steps are no larger
_ABOUT_THE_SAME = 0.02  # of the cost, that are not worth measuring one more where each takes long
_MOST_IN_BUDGET, _FEWEST_IN_BUDGET = 48, 12  # points that are measured
_MOST_BUDGET_MACS = 1 << 28  # of all of these together
_MOST_CONFIRMED = 4  # models that are judged as the verdict does, in place of one that misses limits
_MOST_CHEAPER = 6  # points that are measured where the most accurate misses limits, and all others that are known
_TOO_HIGH = 1.1  # times what packages take, which some estimates are
_MOST_COMPILED = 6  # choices whose packages tell what a budget of time holds


@dataclass(frozen=True, slots=True)
class Tried:
    """One model that was measured."""

    precisions: Mapping[str, str]
    candidate: Candidate
    measures: Measures
    outputs_db: tuple[float, ...]
    lacking: int = 0  # samples for which it lacks numbers

    def holds(self, limits: Iterable[Limit], aims: Sequence[float] = ()) -> bool:
        """Whether all limits hold, outputs have at least these SQNR, and no sample lacks numbers."""
        return not self.lacking and all(limit.holds(self.measures) for limit in limits) and self.lacks(aims) <= 0

    def lacks(self, aims: Sequence[float]) -> float:
        """By how many dB the output that is farthest from its aim is below it; below zero where all are above."""
        return max((aim - db for db, aim in zip(self.outputs_db, aims, strict=False)), default=-math.inf)


def outputs_db(measured: Measurement) -> tuple[float, ...]:
    """The SQNR of each output, infinite where it is exact or of no reals."""
    return tuple(math.inf if errors.sqnr_db is None else errors.sqnr_db for errors in measured.outputs)


class ModelSource(Protocol):
    """Builder of models with other precisions, and queries about them."""

    def build(self, precisions: Mapping[str, str], *, refines: bool = False) -> Candidate:
        """Return the candidate with these precisions by layer; ``refines``: with codes refined by samples as well."""

    def draft(self, precisions: Mapping[str, str]) -> Candidate:
        """Return the candidate without refined codes, which change neither placement nor, much, time."""

    def measure(self, precisions: Mapping[str, str], candidate: Candidate) -> Tried:
        """Measure the candidate on held-back samples."""

    def holds_unseen(self, candidate: Candidate) -> bool:
        """Return whether the limits hold as the verdict measures them, by cross-validation."""

    def size(self, candidate: Candidate) -> int:
        """Return the bytes of the candidate's file."""

    def share(self, candidate: Candidate) -> float:
        """Return the share of the model that coverage is measured by."""

    def in_time(self) -> bool:
        """Return whether there is time to try more."""

    def say(self, text: str) -> None:
        """Report progress."""


LIMITS, TIME, BYTES = "limits", "time", "bytes"


@dataclass(frozen=True, slots=True)
class SearchAim:
    """Goal of a search: the least cost within the limits, or the best accuracy within a budget of ns or bytes."""

    kind: str = LIMITS
    budget: float = math.inf

    @classmethod
    def of(cls, options: Options) -> SearchAim:
        """Return the aim that the options ask for."""
        if options.max_bytes is not None:
            return cls(BYTES, options.max_bytes)
        return cls() if options.max_time_ms is None else cls(TIME, 1e6 * options.max_time_ms)


@dataclass
class PrecisionSearch:
    """Search for precisions of the layers called ``names``; ``fixed`` ones were chosen by the user.

    ``plain``: placement of the model as it is, None without a target; ``plain_db``: SQNR of its outputs without help.
    ``may_refine``: codes refined by samples may help. ``is_large``: each model takes long to build and measure.
    ``known_errors``: metric and errors by layer that replace measuring. ``least_share``: the least coverage.
    """

    options: Options
    limits: tuple[Limit, ...]
    fixed: Mapping[str, PrecisionChoice]
    examination: Examination
    models: ModelSource
    least_share: float
    rules: TargetRules | None
    plain: Placement | None
    plain_db: tuple[float, ...]
    names: list[str]
    may_refine: bool
    is_large: bool
    known_errors: tuple[str, Mapping[str, float]] | None = None
    steps: list[dict[str, Any]] = field(default_factory=list)
    tried: dict[_Key, Tried] = field(default_factory=dict, init=False)
    chosen: Tried | None = field(default=None, init=False)
    is_in_vain: bool = field(default=False, init=False)  # no allowed choice of precisions meets the limits
    _refines: bool = field(default=False, init=False)
    _slower: float = field(default=1.0, init=False)  # the last package than its estimate
    _unseen: dict[int, bool] = field(default_factory=dict, init=False)  # by identity of what was tried and is kept

    def __post_init__(self) -> None:
        self.aim = SearchAim.of(self.options)

    def run(self, candidate: Candidate) -> Candidate:
        """Return ``candidate``, or one with other precisions in some layers; see the module's docstring."""
        scheme = self.options.scheme
        self._ladder = with_wide_weights(scheme) if self._runs(WIDE_VALUES) else ladder_of(scheme)
        if self.options.reader == LITERT:  # which has no kernel for such
            self._ladder = tuple(step for step in self._ladder if step not in (WIDE_WEIGHTS, WIDE_WEIGHTS_ALONE))
        self._levels = (scheme, *self._ladder)
        if self.aim.kind != LIMITS and scheme in NARROWER:
            self._levels = (NARROWER[scheme], *self._levels)
        self._pricing = Pricing(
            self.options,
            self.fixed,
            self.examination,
            self.models.draft,
            self.rules,
            self.plain,
            self.names,
            self._levels,
        )
        first = self.models.measure({}, candidate)
        aims = self._aims()
        if not self._ladder or not (self.aim.kind != LIMITS or self._has_need(first, aims)):
            return candidate
        self._first = self.tried[False, ()] = self.chosen = first
        self.models.say("looking for layers that need more bits")
        self._effects = self._sensitivity(candidate)
        found = self._found(candidate, aims)
        if found is not None:
            self.chosen = found
            self.steps.append(
                {"step": "mixed", "value": dict(found.precisions), "tried": len(self.tried), "kept": True}
            )
        # As the verdict will say, which counts what the candidate does on samples that it does not know. A search that
        # was cut short has found nothing out.
        if self.models.in_time() and not self.models.holds_unseen(self.chosen.candidate):
            self.is_in_vain = True
            self._explore(self._problem(candidate, host=True))
        return self.chosen.candidate

    def replace_chosen(self, tried: Tried) -> None:
        """Let the model that was chosen be ``tried``, the same with something more."""
        self.tried = {key: tried if item is self.chosen else item for key, item in self.tried.items()}
        self.chosen = tried

    def _sensitivity(self, candidate: Candidate) -> list[Effect]:
        """Return the effect of each rounding on the outputs, measured or read from a file."""
        if self.known_errors is None:
            return effects(self.examination, candidate.graph)
        return effects_told(*self.known_errors, self.names, len(self.plain_db))

    # What is wanted.

    def _aims(self) -> tuple[float, ...]:
        """The SQNR that each output should have: where the target's modelled time prices that, else none."""
        if self.options.definition.weights_only or not self._runs(wider_values(self.options.scheme)):
            return ()
        return tuple(-math.inf if db >= GOOD_DB else min(GOOD_DB + GAIN_DB, db + GAIN_DB) for db in self.plain_db)

    def _runs(self, precision: str) -> bool:
        """Whether there is a target that computes with values in this precision."""
        return self.rules is not None and precision != FLOAT and self.rules.takes(precision)

    def _has_need(self, first: Tried, aims: Sequence[float]) -> bool:
        limits = self.limits if self.options.mixed != ON else self._with_margin()
        return not (first.holds(limits, aims) and self.confirmed(first))

    def confirmed(self, tried: Tried) -> bool:
        """Whether the verdict will say so too, if it says that limits hold."""
        if not tried.holds(self.limits):
            return False
        if id(tried) not in self._unseen:
            self._unseen[id(tried)] = self.models.holds_unseen(tried.candidate)
        return self._unseen[id(tried)]

    def is_known(self, tried: Tried) -> bool:
        """Whether limits were measured of it as the verdict does, or are missed by the search alone already."""
        return id(tried) in self._unseen or not tried.holds(self.limits)

    def _with_margin(self) -> tuple[Limit, ...]:
        return tuple(limit.with_margin() for limit in self.limits)

    # What there is.

    def _problem(self, candidate: Candidate, *, host: bool) -> Problem:
        """The costs and noises of all layers; ``host``: whether layers may leave the target.

        Layers that are real as it is take what others give them, in codes or not: no noise waits for these.
        """
        costs = self._pricing.costs(candidate, host=host)
        precisions = self.examination.precisions(candidate.graph)
        places = {name: place for place, name in enumerate(self.names) if precisions.get(name, FLOAT) != FLOAT}
        roundings = []
        for effect in self._effects:
            layers = tuple(sorted(places[name] for name in effect.layers if name in places))
            if layers:
                roundings.append(RoundingNoise(layers, self._noises(effect)))
        return Problem(costs, roundings, self._pricing.borders())

    def _weighed(self, effect: Effect) -> float:
        """Return the noise relative to the allowed noise of each output."""
        aims = (min(GOOD_DB, db + GAIN_DB) for db in self.plain_db)
        return math.fsum(noise * 10.0 ** (aim / 10.0) for noise, aim in zip(effect.noise, aims, strict=True))

    def _noises(self, effect: Effect) -> tuple[float, ...]:
        """Return the noise of a rounding at each level: measured, else a quarter for each additional bit."""
        measured = bits_of(self.options.scheme, effect.of_weights)
        bits = [bits_of(name, effect.of_weights) for name in self._levels]
        noise = self._weighed(effect)
        by_bits = {more: noise * 4.0 ** (measured - more) if more else 0.0 for more in bits}
        if effect.wide is not None and WIDE_BITS in by_bits:
            by_bits[WIDE_BITS] = min(noise, self._weighed(effect.wide))
        return tuple(by_bits[more] for more in bits)

    # Measuring along the front.

    def _found(self, candidate: Candidate, aims: Sequence[float]) -> Tried | None:
        """Return what replaces ``candidate`` by the aim; None where nothing does."""
        if self.aim.kind != LIMITS:
            return self._best_within_budget(candidate)
        levels = self._accurate(candidate, aims)
        return None if levels is None else self._made(levels)

    def _accurate(self, candidate: Candidate, aims: Sequence[float]) -> Levels | None:
        """The cheapest choice that is accurate enough; None where none is, or the plain one already."""
        margin, holds = self._with_margin(), self.confirmed(self._first)
        may_leave = self.rules is not None and not holds
        # (whether layers may leave the target, how much longer it may take, what is asked for; None: as near as can be)
        wanted: list[tuple[bool, float, tuple[Limit, ...], Sequence[float] | None]] = []
        if aims:
            wanted += [(False, _MOST_TIME, limits, aims) for limits in ([] if holds else [margin]) + [self.limits]]
            wanted += [(True, _MOST_TIME, self.limits, aims)] if may_leave else []
            wanted += [(host, _MOST_TIME, self.limits, None) for host in ((False, True) if may_leave else (False,))]
        if not holds or self.options.mixed == ON:
            wanted += [(False, math.inf, margin, ()), (False, math.inf, self.limits, ())]
            wanted += [(True, math.inf, self.limits, ())] if may_leave else []
        fronts: dict[bool, tuple[Problem, list[Point]]] = {}
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
            if self.is_large:
                points = thinned(points, _ABOUT_THE_SAME)
            for refines in (False, True) if self.may_refine else (False,):
                if refines and self._is_far(points, limits, least):
                    break
                self._refines = refines
                chosen = points[::-1][:: -(-len(points) // _MOST_REFINED)][::-1] if refines and points else points
                levels = self._cheapest(chosen, problem, limits, least)
                if levels is not None:
                    return levels
        self._refines = False
        return None

    def _nearest(self, aims: Sequence[float]) -> tuple[float, ...]:
        """``aims`` lowered to somewhat below what came nearest of all that was measured and holds the limits.

        Empty where even that lacks more than half of the gain, which its time is not worth.
        """
        lacking = min(
            (tried.lacks(aims) for tried in self.tried.values() if tried.holds(self.limits)), default=math.inf
        )
        return tuple(aim - max(lacking, 0.0) - _NEAR_DB for aim in aims) if lacking <= GAIN_DB / 2 else ()

    def _is_far(self, points: Sequence[Point], limits: tuple[Limit, ...], aims: Sequence[float]) -> bool:
        """Whether the most accurate of ``points`` misses by more than codes refined by samples could make up for."""
        tried = None if not points else self.tried.get(self._key(points[-1].levels))
        if tried is None:
            return False
        return tried.lacks(aims) > _MOST_BY_REFINING_DB or any(limit.is_far(tried.measures) for limit in limits)

    def _points(self, problem: Problem) -> list[Point]:
        """The front without the plain point and those that take too much from the target, or all from the scheme."""
        points = [p for p in front(problem) if self._pricing.kept(p.levels) >= self.least_share]
        if self.aim.kind != LIMITS:
            return points
        points = [point for point in points if any(point.levels)]
        if self.fixed:
            return points
        own = self._pricing.of_scheme(problem.free)
        return [point for point in points if not all(point.levels[i] for i in own)]

    def _cheapest(
        self, points: Sequence[Point], problem: Problem, limits: tuple[Limit, ...], aims: Sequence[float]
    ) -> Levels | None:
        """The cheapest of ``points`` that, as measured, holds the limits and has the SQNR; None where none has."""

        def good_enough(levels: Levels) -> bool:
            return self._made(levels).holds(limits, aims)

        place = first_good(
            len(points),
            lambda place: good_enough(points[place].levels),
            self.models.in_time,
            partial(self._expected, points, problem.point(problem.plain), aims),
        )
        if place is None:
            return None
        # Models that do not know the samples are made for few points alone: each is several models.
        while not self.confirmed(self._made(points[place].levels)):
            if place == len(points) - 1 or not self.models.in_time():
                return None
            place = (place + len(points)) // 2
        levels = points[place].levels
        fewer = without_needless(levels, problem.costs, good_enough, self.models.in_time)
        levels = fewer if self.confirmed(self._made(fewer)) else levels
        return levels if self._is_covered(self._made(levels)) else None

    def _is_covered(self, tried: Tried) -> bool:
        """Return whether enough of it, and anything at all, is quantised, to precisions that a budget may take."""
        share = self.models.share(tried.candidate)
        is_allowed = self.aim.kind == LIMITS or {*self._levels}.issuperset(tried.precisions.values())
        return share > 0.0 and share >= self.least_share and is_allowed

    def _expected(
        self, points: Sequence[Point], plain: Point, aims: Sequence[float], low: int, high: int
    ) -> int | None:
        """Which point between two that were measured has the SQNR, if that goes with the noise; ``plain`` is at -1.

        None where what was measured does not say.
        """
        before, at_low = (plain, self._first) if low < 0 else (points[low], self._made(points[low].levels))
        lacking, spare = at_low.lacks(aims), -self._made(points[high].levels).lacks(aims)
        if not (0.0 < lacking < math.inf and 0.0 <= spare < math.inf):
            return None
        start, end = before.noise_db, points[high].noise_db
        wanted = start + (end - start) * lacking / (lacking + spare)
        return min(range(low + 1, high), key=lambda place: abs(points[place].noise_db - wanted))

    def _explore(self, problem: Problem) -> None:
        """Measure what other choices would bring, in equal steps of dB, until limits hold or most left the target.

        At last codes of the most bits everywhere, and what is most accurate.
        """
        plain = problem.point(problem.plain)
        points = [point for point in front(problem) if any(point.levels) and point.noise < plain.noise]
        if not points:
            return
        least = max(points[-1].noise, _NEXT_TO_NOTHING * plain.noise) / plain.noise
        wanted = [plain.noise * least ** (step / _EXPLORED) for step in range(1, _EXPLORED + 1)]
        steps = [next((point for point in points if point.noise <= most), points[-1]).levels for most in wanted]
        may_leave = True
        for precisions in map(self._precisions, steps):
            if not may_leave or not self.models.in_time():
                break
            made = self._made_with(precisions)
            may_leave = self.models.share(made.candidate) >= _LEAST_EXPLORED
            if may_leave and self.confirmed(made):
                return
        for precisions in (*self._of_most_bits(problem), *([self._precisions(points[-1].levels)] if may_leave else [])):
            if not self.models.in_time() or self.confirmed(self._made_with(precisions)):
                return

    def _of_most_bits(self, problem: Problem) -> Iterator[dict[str, str]]:
        """Yield the widest codes of each layer that the search allows, then 16-bit weights beside 16-bit values.

        Without a target nothing says what these cost.
        """
        widest = self._precisions(self._widest(problem))
        yield widest
        if self.rules is None and self.options.reader != LITERT and WIDE_VALUES in self._levels:
            yield dict.fromkeys(sorted({*widest, *(self.names[place] for place in problem.free)}), WIDE_WEIGHTS)

    def _widest(self, problem: Problem) -> Levels:
        """Codes of the most bits in each layer."""
        codes = [level for level, step in enumerate(self._levels) if step != FLOAT]
        return tuple(max(level for level in codes if math.isfinite(row[level])) for row in problem.costs)

    def _precisions(self, levels: Levels) -> dict[str, str]:
        """The precisions that these levels mean, by layer name."""
        named = sorted(zip(self.names, levels, strict=True))
        steps = ((name, self._levels[level]) for name, level in named if level or name not in self._pricing.pinned)
        return {name: step for name, step in steps if step != self.options.scheme}

    def _key(self, levels: Levels) -> _Key:
        """How candidates are built, and their precisions."""
        return self._key_of(self._precisions(levels))

    def _key_of(self, precisions: Mapping[str, str]) -> _Key:
        return self._refines, tuple(sorted(precisions.items()))

    def _made(self, levels: Levels) -> Tried:
        return self._made_with(self._precisions(levels))

    def _made_with(self, precisions: dict[str, str]) -> Tried:
        key = self._key_of(precisions)
        if key not in self.tried:
            self.tried[key] = self.models.measure(precisions, self.models.build(precisions, refines=self._refines))
            self.models.say(f"{len(precisions)} layers in other precisions")
        return self.tried[key]

    # Within a budget.

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
        return any(self._is_covered(tried) and self._cost(tried) > self.aim.budget for tried in self.tried.values())

    def _best_within_budget(self, candidate: Candidate) -> Tried | None:
        """Return the most accurate model within the budget, preferably within the limits; None without one.

        Bytes say nothing of time: for these layers leave the target only if limits are kept in no other way.
        """
        found: Tried | None = None
        for host in (True,) if self.rules is None or self.aim.kind == TIME else (False, True):
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
            if not self.models.in_time():
                break
            self._made(point.levels)
        return self._holding() if left else None

    def _holding(self) -> Tried | None:
        """Return a measured model within the budget and the limits; None without one.

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
                if left < 0 or not self.models.in_time():
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
        if self.aim.kind != TIME:
            return self._most_accurate(self._affordable(points, always))
        timed: list[Levels] = []
        for _ in range(_MOST_COMPILED):
            found = self._most_accurate(self._affordable(points, [*always, *timed]))
            asked = found or min(
                [plain, *(point.levels for point in points[-1:])], key=lambda levels: self._cost(self._made(levels))
            )
            if asked in timed or not self.models.in_time():
                return found
            self._compile(asked)
            timed.append(asked)
        return self._most_accurate(filter(self._is_affordable, timed))

    def _affordable(self, points: Sequence[Point], others: Iterable[Levels]) -> list[Levels]:
        """Return the measured ``points`` within the budget, the most accurate first, and such ``others``."""
        # Where the budget has no say in which of them are measured, a larger one gets no worse a model.
        if (most := self._most_in_budget) and points:
            every = [point.levels for point in points[:: -(-len(points) // most)]]
            within = [levels for levels in every if self.models.in_time() and self._is_affordable(levels)]
        else:
            place = first_good(len(points), lambda i: self._is_affordable(points[i].levels), self.models.in_time)
            cheap = () if place is None else points[place:]
            within = [point.levels for point in cheap if self._key(point.levels) in self.tried]
            if self.aim.kind == TIME:  # as cheaper by estimate need not be faster
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
        return 0 if self.aim.kind != BYTES or most < _FEWEST_IN_BUDGET else most

    def _is_affordable(self, levels: Levels) -> bool:
        return self._fits(self._made(levels))

    def _fits(self, tried: Tried) -> bool:
        """Whether the model is within the budget, and enough of it covered."""
        return self._is_covered(tried) and self._cost(tried) <= self.aim.budget

    def _may_fit(self, tried: Tried) -> bool:
        """Return whether the model may be within the budget, as some estimates of time are too high."""
        if self.aim.kind != TIME:
            return self._fits(tried)
        assert self.rules is not None
        return self.rules.time(tried.candidate.module).ns <= _TOO_HIGH * self.aim.budget and self._is_covered(tried)

    def _fits_indeed(self, tried: Tried) -> bool:
        """Whether it does by its package."""
        if self.aim.kind != TIME:
            return True
        assert self.rules is not None
        return self.rules.time(tried.candidate.module, compiled=True).ns <= self.aim.budget

    def _cost_of(self, candidate: Candidate) -> float:
        """Return the bytes or nanoseconds of a model."""
        return self.models.size(candidate) if self.aim.kind == BYTES else self._time_ns(candidate)

    def _cost(self, tried: Tried) -> float:
        return self._cost_of(tried.candidate)
