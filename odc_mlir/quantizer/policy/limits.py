"""Limits on how far a quantised model may be from the float model: what the user asks for, else the defaults.

Measures are those of :mod:`odc_mlir.runtime.reporting.metrics`; ``drop`` is by how much a score with known answers
falls: percentage points of right answers, dB of PSNR, or the growth of an RMSE in percent of the answers' range (with
those far out or without, where it is more), of the worst column.

Default limits, where the user names none:

* With known answers: a ``drop`` of at most one percentage point or percent, or half a dB. That is what deployments
  commonly accept in exchange for integers, and it measures what the user cares for. Where the float model gets no more
  classes right than luck might, the ``mpeir`` below is asked for as well.
  Where answers are classes, none of these may lose ten times as much (``recall_drop``: the recall of the class that
  loses most, if chance does not explain it): a frequent class may gain what another loses. Where they are numbers in
  many columns of one kind, none of these may lose four times as much (``column_drop``): one of a thousand may be lost.
* Otherwise an ``mpeir`` of at most 0.1: the largest error of an output is a tenth of the output's range, averaged over
  samples. The range is that over all samples, or the one that the output's operator has by definition. Softer measures
  hide a single output that is far off, harder ones refuse noise that no decision depends on.
* An output of answers must in addition agree with the float model's largest in 99 % of them. One answer
  of ten or more may always differ: few cannot tell 99 % from 100 %. Of an output of rows, such as pixels or words, each
  is an answer: a wrong one makes up that much less, and what rows of one sample have in common is a matter of
  intervals. Logits, and shares in several rows, may also answer with a class that the float model gives at least half
  the odds of its own (``top1_decided``): what is next in a text, or at the edge of a segment, is often undecided. The
  same holds for outputs of places (ARG_MAX, ARG_MIN, TOPK_V2), which have no distance. Of several such outputs each
  has its own limit, by how many answers it has, where these differ.

A limit that outputs keep which are the same for all samples is none: one that the user gave is refused. Where such
outputs keep all defaults, as they do of samples that hardly vary the outputs, one more is asked for which they cannot
keep:

* An ``r2`` of at least 0.75: each output's errors are at most half as large as its distances from its mean over the
  samples (root mean squares), which are those of the best constant. Of values and errors as in a normal distribution,
  one of seven is then on the wrong side of the mean; constant outputs have an R² of 0 or less. Kept or missed, it is
  told of samples that show little: what passes is not certain, and where nothing else is missed others may tell more.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from odc_mlir.errors import OptionError, did_you_mean
from odc_mlir.formats.quantities import quality_name, quality_text


class UntoldError(OptionError):
    """A limit that on these samples outputs which say nothing keep as well; others may show more."""


HIGHER_IS_BETTER = {
    "mpeir": False,
    "mae": False,
    "mape_percent": False,
    "mse": False,
    "max_abs": False,
    "sqnr_db": True,
    "cosine": True,
    "top1_match": True,
    "top5_match": True,
    "top1_decided": True,
    "r2": True,
    "drop": False,
    "recall_drop": False,
    "column_drop": False,
}
METRICS = tuple(HIGHER_IS_BETTER)
OF_LABELS = frozenset({"drop", "recall_drop", "column_drop"})
OF_ANSWERS = OF_LABELS | {"top1_match", "top5_match", "top1_decided"}
_ALIASES = {"sqnr": "sqnr_db", "mape": "mape_percent", "top1": "top1_match", "top5": "top5_match"}

# Bounds of measures that have a natural one; the others need a limit from the user.
_DEFAULT_BOUNDS = {"mpeir": 0.1, "top1_match": 0.99, "top5_match": 0.99, "sqnr_db": 20.0, "cosine": 0.99, "r2": 0.75}
_DEFAULT_BOUNDS["top1_decided"] = _DEFAULT_BOUNDS["top1_match"]
DEFAULT_DROP_POINTS = 1.0
DEFAULT_DROP_DB = 0.5
# Any class may lose so many times what all together may: where one of ten is lost, all lose a tenth of that.
RECALL_DROPS = 10.0
DEFAULT_DROP_OF_SPAN = 1.0  # percent of the answers' range that an RMSE may grow by
# Any of many columns may lose so many times what all together may: few samples have all of an error that is rare. One
# that is lost loses as much as its labels deviate from their mean, which is a tenth of their range, or more.
COLUMN_DROPS = 4.0
_SLACK = 1e-9
_DEFAULT_BOUNDS["recall_drop"] = RECALL_DROPS * DEFAULT_DROP_POINTS
_DEFAULT_BOUNDS["column_drop"] = COLUMN_DROPS * DEFAULT_DROP_OF_SPAN
# The share that one of few answers makes up is forgiven up to this.
_LARGEST_FORGIVEN = 0.1

Measures = Mapping[str, float | None]
# The options that limits come from.
OF_LIMIT, OF_METRIC, OF_DROP = "limit", "metric", "max_drop"


@dataclass(frozen=True, slots=True)
class Limit:
    """``metric`` may not be worse than ``bound``.

    ``of_many`` is the bound of large sets, where ``bound`` forgives an answer of a small one; None where it does not.
    ``option`` says what changes it: :data:`OF_LIMIT`, :data:`OF_METRIC` (a limit together with its metric) or
    :data:`OF_DROP`. ``output``: the name of the one that the limit is of; None: of all, which is that of the worst.
    """

    metric: str
    bound: float
    of_many: float | None = None
    option: str = field(default=OF_LIMIT, compare=False)
    output: str | None = None

    @property
    def key(self) -> str:
        """Under which measures and intervals have what is limited."""
        return measure_key(self.metric, self.output)

    @property
    def name(self) -> str:
        """What people call that."""
        return quality_name(self.metric, output=self.output)

    def holds(self, measures: Measures) -> bool:
        """Whether ``measures`` keep the limit: where all values are equal, each does, where one is unknown, none."""
        value = measures.get(self.key)
        # Values that are equal have no SQNR. Those of which none is finite are equal too, but have no distance.
        if measures.get("differing") == 0 and measures.get("max_abs") is not None and self.metric != "drop":
            return True
        if value is None or not math.isfinite(value):
            return False
        # The slack is for shares such as 1 - 1/n, which two ways of computing round differently.
        return self.allows(value)

    def allows(self, value: float) -> bool:
        """Whether a finite ``value`` is within the bound."""
        return value >= self.bound - _SLACK if HIGHER_IS_BETTER[self.metric] else value <= self.bound + _SLACK

    def is_certain(self, measures: Measures, intervals: Mapping[str, tuple[float, float]]) -> bool:
        """Whether ``measures`` keep the limit, and the worse end of what they may be by chance that of large sets."""
        ends = intervals.get(self.key)
        strict = self if self.of_many is None else replace(self, bound=self.of_many)
        if self.metric == "recall_drop":  # which is nothing but what chance does not explain
            return self.holds(measures)
        return self.holds(measures) and ends is not None and all(map(strict.allows, ends))

    def of_more(self, factor: int) -> Limit:
        """The limit of ``factor`` times as many answers: the one that is forgiven makes up so much less of them."""
        if self.of_many is None:
            return self
        is_higher = HIGHER_IS_BETTER[self.metric]
        best = 1.0 if is_higher else 0.0
        bound = best + (self.bound - best) / factor
        return replace(self, bound=(min if is_higher else max)(bound, self.of_many))

    def with_margin(self) -> Limit:
        """A limit with something to spare: errors half as large."""
        return self.with_errors(0.5)

    def is_far(self, measures: Measures) -> bool:
        """Whether errors are more than twice as large as the limit has them; of answers it never is."""
        return self.metric not in OF_ANSWERS and not self.with_errors(2.0).holds(measures)

    def with_errors(self, factor: float) -> Limit:
        """A limit that allows errors ``factor`` times as large; that of answers stays."""
        if self.metric in OF_ANSWERS:
            return self
        if self.metric == "sqnr_db":
            return Limit(self.metric, self.bound - 6.0 * math.log2(factor))
        if self.metric in ("cosine", "r2"):
            return Limit(self.metric, 1.0 - (1.0 - self.bound) * factor)
        return Limit(self.metric, self.bound * factor)


def measure_key(metric: str, output: str | None = None) -> str:
    """The key of a measure of all outputs, or of the one with this name."""
    return metric if output is None else f"{metric}:{output}"


@dataclass(frozen=True, slots=True)
class Answers:
    """An output of answers, by name: how many it has, of one sample or of all, and the share that limits are of."""

    output: str
    metric: str
    count: float


# What outputs that never change cannot keep, where they keep all else.
FOLLOWING = Limit("r2", _DEFAULT_BOUNDS["r2"])


def metric_name(text: str) -> str:
    """The full name of a measure; raises OptionError for an unknown one."""
    name = _ALIASES.get(text, text)
    if name not in HIGHER_IS_BETTER:
        raise OptionError(
            f"unknown metric {text!r}",
            hint=f"{did_you_mean(text, (*METRICS, *_ALIASES))}use one of {', '.join(METRICS)}",
        )
    return name


# Where bounds of a measure can lie; outside nothing could miss them, or nothing keep them.
_BOUNDS = {
    "mpeir": (0.0, 1.0),
    "cosine": (0.0, 1.0),
    "r2": (0.0, 1.0),
    "top1_match": (0.0, 1.0),
    "top5_match": (0.0, 1.0),
    "top1_decided": (0.0, 1.0),
    "sqnr_db": (0.0, math.inf),
    "mape_percent": (0.0, 100.0),
    "recall_drop": (0.0, 100.0),
}
# Bounds that outputs of nothing but zeros, or answers of nothing but one class, keep as well as any model.
_KEPT_BY_NOTHING = {"cosine": 0.0, "r2": 0.0, "top1_match": 0.0, "top5_match": 0.0, "top1_decided": 0.0}
_KEPT_BY_NOTHING |= {"sqnr_db": 0.0, "mape_percent": 100.0, "recall_drop": 100.0}
_ALL_POINTS = 100.0
# What a measure of answers is of; the others are of outputs with distances.
_NEEDED = dict.fromkeys(METRICS, "its outputs are places, such as classes, which have no distance; use top1")
_NEEDED |= {
    "top1_match": "no output has several values",
    "top5_match": "no output has more than 5 values",
    "top1_decided": "its outputs are neither scores of classes nor places",
    "recall_drop": "labels are no classes",
    "column_drop": "labels are no numbers in many columns of one kind",
}
_NEARLY = 1.1  # times the errors: what is only that much better than nothing says as little


def _checked(limit: Limit, score: str | None = None) -> Limit:
    """``limit``; raises OptionError for a bound that is no number, out of the measure's range, or kept by anything."""
    low, high = _BOUNDS.get(limit.metric, (0.0, math.inf))
    if not math.isfinite(limit.bound) or not low <= limit.bound <= high:
        raise OptionError(
            f"the limit of {limit.metric} is {limit.bound:g}, expected a number of at least {low:g}"
            + ("" if high == math.inf else f" and at most {high:g}")
        )
    loses_all = limit.metric == "drop" and score == "top1_percent" and limit.bound >= _ALL_POINTS
    if loses_all or limit.bound == _KEPT_BY_NOTHING.get(limit.metric):
        raise OptionError(
            f"the limit of {limit.metric} is {limit.bound:g}, which outputs that say nothing keep as well",
            hint="give one that can be missed",
        )
    return limit


def choose_limits(
    *,
    metric: str | None = None,
    limit: float | None = None,
    max_drop: float | None = None,
    score: str | None = None,
    is_telling: bool = True,
    answering: Sequence[Answers] = (),
    has_values: bool = True,
    has_unscored: bool = False,
    has_many_columns: bool = False,
    labels: int = 1,
) -> tuple[Limit, ...]:
    """What the user asks for, else the defaults (see the module's text).

    ``score`` is what known answers are scored by (``top1_percent``, ``psnr_db`` or ``rmse``), None without any; where
    it is not telling, as luck may do as well, the other defaults are asked for beside a default ``drop``.
    ``answering``: the outputs of answers, which are compared with the float model's.
    ``has_values``: whether any output has distances, as places have none; ``has_unscored``: whether there are outputs
    of which known answers say nothing, for which the other defaults are asked too; ``has_many_columns``: whether known
    answers are numbers in many columns of one kind; ``labels``: how many answers are known. Raises OptionError for a
    contradiction, for a metric that has no default limit, and for a limit out of range.
    """
    others = _default_limits(answering, has_values)
    chosen = _chosen_limits(metric, limit, max_drop, score, labels) or others
    if score is not None and metric is None and limit is None:
        # Of a classifier that is not scored by classes the agreement counts, of answers that say nothing all else.
        shares = tuple(item for item in others if item.metric in OF_ANSWERS)
        is_all = is_telling and not has_unscored
        chosen = (*chosen, *(others if not is_all else shares if score != "top1_percent" else ()))
        chosen = (*chosen, *(_recall_limit(chosen[0]) if score == "top1_percent" else ()))
        if has_many_columns:
            chosen = (*chosen, Limit("column_drop", COLUMN_DROPS * chosen[0].bound, option=chosen[0].option))
    return tuple(_checked(item, score) for item in chosen)


def _chosen_limits(
    metric: str | None, limit: float | None, max_drop: float | None, score: str | None, labels: int
) -> tuple[Limit, ...]:
    """What the user asks for, or what known answers do; none without either."""
    if max_drop is not None and score is None:
        raise OptionError("max_drop needs labels", hint="give labels (--labels)")
    if metric is not None:
        name = metric_name(metric)
        if name in OF_LABELS and score is None:
            raise OptionError(f"the metric {name!r} needs labels", hint="give labels (--labels)")
        bound = limit if limit is not None else max_drop if name == "drop" else _DEFAULT_BOUNDS.get(name)
        if bound is None and name == "drop":
            chosen = [_default_drop(score, labels)]
        elif bound is None:
            raise OptionError(f"the metric {name!r} has no default limit", hint="give a limit (--limit)")
        else:
            is_drop = name == "drop" and limit is None
            chosen = [Limit(name, float(bound), option=OF_DROP if is_drop else OF_LIMIT)]
        return (*chosen, *(_given_drop(max_drop) if name != "drop" else ()))
    if limit is not None:
        return (Limit("mpeir", limit), *_given_drop(max_drop))
    if score is not None:
        return (_default_drop(score, labels),) if max_drop is None else _given_drop(max_drop)
    return ()


def _given_drop(max_drop: float | None) -> tuple[Limit, ...]:
    return () if max_drop is None else (Limit("drop", max_drop, option=OF_DROP),)


def _default_limits(answering: Sequence[Answers], has_values: bool) -> tuple[Limit, ...]:
    """What is asked for without known answers."""
    limits = [Limit("mpeir", _DEFAULT_BOUNDS["mpeir"])] if has_values else []
    shares = [_agreement(answers) for answers in answering]
    if len({replace(limit, output=None) for limit in shares}) == 1:  # one says it of all
        shares = [replace(shares[0], output=None)]
    return (*limits, *shares)


def _agreement(answers: Answers) -> Limit:
    """The share of an output's answers that must be the float model's, or what one of few is worth less."""
    of_many = _DEFAULT_BOUNDS[answers.metric]
    bound = min(of_many, 1.0 - min(1.0 / max(round(answers.count), 1), _LARGEST_FORGIVEN))
    return Limit(answers.metric, bound, of_many if bound < of_many else None, OF_METRIC, answers.output)


def check_can_be_missed(
    limits: Sequence[Limit], given: Collection[str], nothing: Sequence[Measures], *, has_values: bool = True
) -> bool:
    """Whether none of the outputs that say nothing keep all ``limits``, or nearly: else :data:`FOLLOWING` is one more.

    ``nothing``: what such outputs have, none where that is not known. Raises UntoldError for a limit on one of the
    ``given`` metrics that they keep or nearly keep, OptionError for a metric that no output of the model has
    (``has_values``: but places).
    """
    for limit in limits:
        if limit.metric not in given or not nothing:
            continue
        no_values = not has_values and limit.metric not in OF_ANSWERS
        if no_values or (limit.metric in OF_ANSWERS and all(found.get(limit.metric) is None for found in nothing)):
            raise OptionError(f"the model has no {quality_name(limit.metric)}: {_NEEDED[limit.metric]}")
        for found in nothing:
            if limit.with_errors(_NEARLY).holds(found):
                seen = quality_text(limit.metric, found[limit.metric])
                raise UntoldError(
                    f"the limit of {limit.metric} is {limit.bound:g}, which outputs that say nothing keep as well, or "
                    f"nearly: with the same value for all samples {quality_name(limit.metric)} is {seen}",
                    hint="give one that can be missed, or another metric",
                )
    return not any(all(limit.with_errors(_NEARLY).holds(found) for limit in limits) for found in nothing)


def _recall_limit(drop: Limit) -> tuple[Limit, ...]:
    """What a single class may lose beside a limit of all together; none where that is a tenth of all."""
    bound = RECALL_DROPS * (drop.bound if drop.of_many is None else drop.of_many)
    return (Limit("recall_drop", bound, option=drop.option),) if bound < _ALL_POINTS else ()


def _default_drop(score: str | None, labels: int) -> Limit:
    """One point, or what one of few answers is worth."""
    if score == "psnr_db":
        return Limit("drop", DEFAULT_DROP_DB, option=OF_DROP)
    if score == "rmse":
        return Limit("drop", DEFAULT_DROP_OF_SPAN, option=OF_DROP)
    bound = max(DEFAULT_DROP_POINTS, 100.0 * min(1.0 / max(labels, 1), _LARGEST_FORGIVEN))
    return Limit("drop", bound, DEFAULT_DROP_POINTS if bound > DEFAULT_DROP_POINTS else None, OF_DROP)
