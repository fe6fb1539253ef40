"""Accuracy limits, the verdict over a quantised model, texts, and advice for models that have not passed.

:mod:`odc_mlir.runtime.reporting.metrics` defines the measures. ``docs/quantisation.md`` explains the default limits. A
limit that constant outputs meet checks nothing. If the user gives such a limit, it is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from types import MappingProxyType
from typing import Any, NamedTuple

from odc_mlir.errors import OptionError, did_you_mean
from odc_mlir.formats.quantities import counted, listed, quality_name, quality_text, share_text
from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES, ladder_of


class UntoldError(OptionError):
    """Error for a limit that constant outputs meet on these samples, but may miss on other samples."""


DEFAULT_DROP_POINTS, DEFAULT_DROP_DB = 1.0, 0.5  # allowed loss: one answer of a hundred; an eighth more noise
DEFAULT_DROP_OF_SPAN = 1.0  # allowed growth of an RMSE, in percent of the answers' range: a hundredth, as of answers
# Factor between the allowed losses of a single class and of all classes: if one class of ten is lost, all lose a tenth.
RECALL_DROPS = 10.0
# Same factor for one of many columns. If 1 % of 100 answers change either way, the standard error is one point, and the
# worst of a thousand columns exceeds 3.9 of them in 5 % of cases (Bonferroni). A lost column loses 10 % or more.
COLUMN_DROPS = 4.0
_ALL = 100.0  # percent, or points
_NO_DISTANCE = "its outputs are places, such as classes, which have no distance; use top1"


class _Metric(NamedTuple):
    """Properties of a metric and of limits on it. Limits are at least 0."""

    is_higher_better: bool = False
    default: float | None = None  # None if the user has to give a limit
    most: float = math.inf
    nothing: float | None = None  # limit that even zeros or a single class keep
    lacks: str = _NO_DISTANCE  # reason why a model may lack the metric


_METRICS = {
    "mpeir": _Metric(default=0.1, most=1.0),
    "mae": _Metric(),
    "mape_percent": _Metric(most=_ALL, nothing=_ALL),
    "mse": _Metric(),
    "max_abs": _Metric(),
    "sqnr_db": _Metric(True, 20.0, nothing=0.0),
    "cosine": _Metric(True, 0.99, 1.0, 0.0),
    "top1_match": _Metric(True, 0.99, 1.0, 0.0, "no output has several values"),
    "top5_match": _Metric(True, 0.99, 1.0, 0.0, "no output has more than 5 values"),
    "top1_decided": _Metric(True, 0.99, 1.0, 0.0, "its outputs are neither scores of classes nor places"),
    "r2": _Metric(True, 0.75, 1.0, 0.0),
    "drop": _Metric(),
    "recall_drop": _Metric(False, RECALL_DROPS * DEFAULT_DROP_POINTS, _ALL, _ALL, "labels are no classes"),
    "column_drop": _Metric(
        default=COLUMN_DROPS * DEFAULT_DROP_OF_SPAN, lacks="labels are no numbers in many columns of one kind"
    ),
}
HIGHER_IS_BETTER = {name: metric.is_higher_better for name, metric in _METRICS.items()}
OF_LABELS = frozenset({"drop", "recall_drop", "column_drop"})
OF_ANSWERS = OF_LABELS | {"top1_match", "top5_match", "top1_decided"}
_ALIASES = {"sqnr": "sqnr_db", "mape": "mape_percent", "top1": "top1_match", "top5": "top5_match"}
_LARGEST_FORGIVEN = 0.1  # limits forgive one different answer of at least ten: of fewer, one is more than a tenth

Measures = Mapping[str, float | None]
# Options that change limits: --limit, --limit together with --metric, and --max-drop.
OF_LIMIT, OF_METRIC, OF_DROP = "limit", "metric", "max_drop"


@dataclass(frozen=True, slots=True)
class Limit:
    """Limit: ``metric`` may not be worse than ``bound``."""

    metric: str
    bound: float
    of_many: float | None = None  # bound for large sets, if ``bound`` forgives one of few answers
    option: str = field(default=OF_LIMIT, compare=False)  # option that changes the limit; see :data:`OF_LIMIT`
    output: str | None = None  # name of the limited output; None: the worst

    @property
    def key(self) -> str:
        """Key of the limited quantity in measures and intervals."""
        return measure_key(self.metric, self.output)

    @property
    def name(self) -> str:
        """Display name of the limited quantity."""
        return quality_name(self.metric, output=self.output)

    def holds(self, measures: Measures) -> bool:
        """Return whether ``measures`` keep the limit. Equal values keep every limit, unknown values keep none."""
        value = measures.get(self.key)
        # Equal values have no SQNR. Infinite values can also be equal, but have no distance.
        if measures.get("differing") == 0 and measures.get("max_abs") is not None and self.metric != "drop":
            return True
        if value is None or not math.isfinite(value):
            return False
        # The tolerance is for shares such as 1 - 1/n. Different computations round these differently.
        return self.allows(value)

    def allows(self, value: float) -> bool:
        """Return whether a finite ``value`` is within the bound."""
        slack = 1e-9
        return value >= self.bound - slack if HIGHER_IS_BETTER[self.metric] else value <= self.bound + slack

    def is_certain(self, measures: Measures, intervals: Mapping[str, tuple[float, float]]) -> bool:
        """Return whether ``measures`` keep the limit, and the interval keeps the bound for large sets."""
        ends = intervals.get(self.key)
        strict = self if self.of_many is None else replace(self, bound=self.of_many)
        if self.metric == "recall_drop":  # this drop already excludes chance
            return self.holds(measures)
        return self.holds(measures) and ends is not None and all(map(strict.allows, ends))

    def with_errors(self, factor: float) -> Limit:
        """Return a limit that allows errors ``factor`` times as large. Limits of answers stay."""
        if self.metric in OF_ANSWERS:
            return self
        if self.metric == "sqnr_db":
            return Limit(self.metric, self.bound - 6.0 * math.log2(factor))
        if self.metric in ("cosine", "r2"):
            return Limit(self.metric, 1.0 - (1.0 - self.bound) * factor)
        return Limit(self.metric, self.bound * factor)


def measure_key(metric: str, output: str | None = None) -> str:
    """Return the key of a measure of all outputs, or of the output with this name."""
    return metric if output is None else f"{metric}:{output}"


@dataclass(frozen=True, slots=True)
class Answers:
    """Output with answers: name, metric to limit, and number of answers in one sample or in all samples."""

    output: str
    metric: str
    count: float


# Limit that all constant outputs miss, even if they keep all other limits.
R2_LIMIT, MPEIR_LIMIT = (Limit(name, _METRICS[name].default or 0.0) for name in ("r2", "mpeir"))


def metric_name(text: str) -> str:
    """Return the full name of a measure. Raises OptionError for an unknown name."""
    name = _ALIASES.get(text, text)
    if name not in _METRICS:
        raise OptionError(
            f"unknown metric {text!r}",
            hint=f"{did_you_mean(text, (*_METRICS, *_ALIASES))}use one of {', '.join(_METRICS)}",
        )
    return name


def _checked(limit: Limit, score: str | None = None) -> Limit:
    metric = _METRICS[limit.metric]
    if not math.isfinite(limit.bound) or not 0.0 <= limit.bound <= metric.most:
        raise OptionError(
            f"the limit of {limit.metric} is {limit.bound:g}, expected a number of at least 0"
            + ("" if metric.most == math.inf else f" and at most {metric.most:g}")
        )
    loses_all = limit.metric == "drop" and score == "top1_percent" and limit.bound >= _ALL
    if loses_all or limit.bound == metric.nothing:
        raise OptionError(
            f"the limit of {limit.metric} is {limit.bound:g}, which any constant output meets",
            hint="give a stricter limit",
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
    """Return the limits that the user gives, else the default limits. Raises OptionError for wrong limits.

    ``score``: score by labels (``top1_percent``, ``psnr_db`` or ``rmse``), or None. If it says little (not
    ``is_telling``), or outputs lack labels (``has_unscored``), other default limits apply in addition to ``drop``.
    ``answering``: outputs with answers. ``has_values``: an output has distances. ``has_many_columns``: labels are
    numbers in many columns of one kind. ``labels``: number of labels.
    """
    others = _default_limits(answering, has_values)
    chosen = _chosen_limits(metric, limit, max_drop, score, labels) or others
    if score is not None and metric is None and limit is None:
        # If no score by classes exists, agreement counts for classifiers. If answers say nothing, other measures count.
        shares = tuple(item for item in others if item.metric in OF_ANSWERS)
        is_all = is_telling and not has_unscored
        chosen = (*chosen, *(others if not is_all else shares if score != "top1_percent" else ()))
        drop = chosen[0]
        recall = RECALL_DROPS * (drop.bound if drop.of_many is None else drop.of_many)
        if score == "top1_percent" and recall < _ALL:
            chosen = (*chosen, Limit("recall_drop", recall, option=drop.option))
        if has_many_columns:
            chosen = (*chosen, Limit("column_drop", COLUMN_DROPS * drop.bound, option=drop.option))
    return tuple(_checked(item, score) for item in chosen)


def _chosen_limits(
    metric: str | None, limit: float | None, max_drop: float | None, score: str | None, labels: int
) -> tuple[Limit, ...]:
    if max_drop is not None and score is None:
        raise OptionError("max_drop needs labels", hint="give labels (--labels)")
    drop = () if max_drop is None else (Limit("drop", max_drop, option=OF_DROP),)
    if metric is None:
        if limit is not None:
            return (Limit("mpeir", limit), *drop)
        return drop if drop or score is None else (_default_drop(score, labels),)
    name = metric_name(metric)
    if name in OF_LABELS and score is None:
        raise OptionError(f"the metric {name!r} needs labels", hint="give labels (--labels)")
    if name == "drop" and limit is None:
        return drop or (_default_drop(score, labels),)
    bound = _METRICS[name].default if limit is None else limit
    if bound is None:
        raise OptionError(f"the metric {name!r} has no default limit", hint="give a limit (--limit)")
    return (Limit(name, float(bound)), *(drop if name != "drop" else ()))


def _default_limits(answering: Sequence[Answers], has_values: bool) -> tuple[Limit, ...]:
    limits = [MPEIR_LIMIT] if has_values else []
    shares = []
    for answers in answering:  # if there are few answers, one may differ
        of_many = _METRICS[answers.metric].default or 0.0
        bound = min(of_many, 1.0 - min(1.0 / max(round(answers.count), 1), _LARGEST_FORGIVEN))
        least = of_many if bound < of_many else None
        shares.append(Limit(answers.metric, bound, least, OF_METRIC, answers.output))
    if len({replace(limit, output=None) for limit in shares}) == 1:  # equal limits become one for all outputs
        shares = [replace(shares[0], output=None)]
    return (*limits, *shares)


def check_can_be_missed(
    limits: Sequence[Limit], given: Collection[str], nothing: Sequence[Measures], *, has_values: bool = True
) -> bool:
    """Return whether constant outputs clearly miss a limit of ``limits``. Otherwise :data:`R2_LIMIT` applies as well.

    ``nothing``: measures of constant outputs, if known. Raises UntoldError if constant outputs keep a limit on a metric
    in ``given``, and OptionError if the outputs lack such a metric.
    """
    nearly = 1.1  # factor of errors: limits only this much better than constant outputs say as little
    for limit in limits:
        if limit.metric not in given or not nothing:
            continue
        no_values = not has_values and limit.metric not in OF_ANSWERS
        if no_values or (limit.metric in OF_ANSWERS and all(found.get(limit.metric) is None for found in nothing)):
            raise OptionError(f"{limit.metric} does not apply to the model: {_METRICS[limit.metric].lacks}")
        for found in nothing:
            if limit.with_errors(nearly).holds(found):
                seen = quality_text(limit.metric, found[limit.metric])
                raise UntoldError(
                    f"the limit of {limit.metric} is {limit.bound:g}, which constant outputs meet or nearly meet: "
                    f"their value is {seen}",
                    hint="give a stricter limit, or another metric",
                )
    return not any(all(limit.with_errors(nearly).holds(found) for limit in limits) for found in nothing)


def _default_drop(score: str | None, labels: int) -> Limit:
    if score == "psnr_db":
        return Limit("drop", DEFAULT_DROP_DB, option=OF_DROP)
    if score == "rmse":
        return Limit("drop", DEFAULT_DROP_OF_SPAN, option=OF_DROP)
    bound = max(DEFAULT_DROP_POINTS, 100.0 * min(1.0 / max(labels, 1), _LARGEST_FORGIVEN))
    return Limit("drop", bound, DEFAULT_DROP_POINTS if bound > DEFAULT_DROP_POINTS else None, OF_DROP)


def worst_layers(layers: Sequence[Mapping[str, Any]], count: int = 8) -> list[Mapping[str, Any]]:
    """Return the ``count`` layers that harm the outputs most, worst first, by effect, or else by isolated SQNR."""

    def ranked(sqnr_db: Callable[[Mapping[str, Any]], float | None]) -> list[Mapping[str, Any]]:
        known = [(value, layer) for layer in layers if (value := sqnr_db(layer)) is not None]
        return [layer for _, layer in sorted(known, key=lambda found: (found[0], found[1]["name"]))]

    by_effect = ranked(lambda layer: layer["output_sqnr_db"])
    return (by_effect or ranked(lambda layer: layer["isolated"].get("sqnr_db")))[:count]


SCHEMA_VERSION = 1  # the first form of verdicts as JSON

# Statuses of a verdict. UNCHECKED: limits hold only on random inputs, or not on sequences like in use.
PASSED, FAILED, UNCHECKED = "passed", "failed", "unchecked"
_NOT_CHECKED = "not checked: no samples were given; limits hold on made-up inputs only"
_GIVE_SAMPLES = "give samples: --calibration or --evaluation (in Python calibration or evaluation)"
_NOT_IN_USE = "not checked as in use, though limits hold on these frames"
VARY_MORE = "give samples for which outputs vary as they do in use"
KEPT_BY_CONSTANTS = "constant outputs would meet, or nearly meet, all limits except R²"


# Severities of findings. A problem fails the model. A doubt fails it as well: the limits hold, but the samples are too
# few to show that they hold in general. An open question leaves the model unchecked. A note changes no status.
PROBLEM, DOUBT, OPEN, NOTE = "problem", "doubt", "open", "note"


def make_verdict(
    limits: Sequence[Limit],
    metrics: Measures,
    *,
    findings: Sequence[tuple[str, str]] = (),
    intervals: Mapping[str, tuple[float, float]] = MappingProxyType({}),
    inherent: Mapping[str, bool] = MappingProxyType({}),
    layers: Sequence[Mapping[str, Any]] = (),
    scores: Mapping[str, Any] | None = None,
    samples: Mapping[str, Any] = MappingProxyType({}),
    made_up: bool = False,
    seen: bool = False,
    **parts: Any,
) -> dict[str, Any]:
    """Return the verdict over ``metrics``, measures of the quantised model's worst output (see docs/quantisation.md).

    ``findings``: severities and texts with remedies. ``inherent``: limit key -> whether calibration samples miss it.
    ``made_up``: inputs are random. ``seen``: ranges were recorded on these inputs. ``parts``: further entries.
    """
    scored = scores or {}
    columns = {
        "drop": scored.get("column"),
        "column_drop": next((of["column"] for of in scored.get("columns", ())), None),
    }
    checks = [
        {
            "metric": limit.metric,
            "limit": limit.bound,
            "option": limit.option,
            "value": metrics.get(limit.key),
            "output": limit.output,
            "column": columns.get(limit.metric),
            "interval": list(intervals[limit.key]) if limit.key in intervals else None,
            "passed": limit.holds(metrics),
            "inherent": inherent.get(limit.key),
            "certain": not seen and limit.is_certain(metrics, intervals),
        }
        for limit in limits
    ]
    kinds = (PROBLEM, DOUBT, OPEN, NOTE)
    texts = {kind: [text for severity, text in findings if severity == kind] for kind in kinds}
    holds = all(check["passed"] for check in checks) and not texts[PROBLEM]
    status = FAILED if not holds or texts[DOUBT] else UNCHECKED if made_up or texts[OPEN] else PASSED
    main = next((check for check in checks if not check["passed"]), checks[0])
    empty: dict[str, Any] = {"front": [], "outputs": [], "steps": []}
    empty |= {name: {} for name in ("coverage", "scheme", "float_reasons", "saturated_biases", "choices")}
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "passed": status == PASSED,
        "certain": status == PASSED and all(check["certain"] for check in checks) and not unshown(samples),
        **{key: main[key] for key in ("metric", "limit", "value")},
        "limits": checks,
        "too_few_samples": holds and bool(texts[DOUBT]),
        "problems": [*texts[PROBLEM], *texts[DOUBT]],
        "metrics": dict(metrics),
        "intervals": {metric: list(ends) for metric, ends in intervals.items()},
        "scores": scores,
        "worst_layers": worst_layers(layers),
        "layers": list(layers),
        "samples": dict(samples),
        "findings": [*texts[OPEN], *texts[NOTE]],
        **empty,
        **parts,
    }


def describe(verdict: Mapping[str, Any]) -> str:
    """Return a verdict in one line: the failed limits (or the main limit), and the worst layers of a failure."""
    failed = verdict["status"] == FAILED
    checks = [check for check in verdict["limits"] if check["passed"] is not failed]
    texts = [
        check_text(check["metric"], check["limit"], check["value"], check["column"], check["output"])
        for check in (checks if failed else checks[:2])
    ]
    if not failed:
        return f"{passed_text(verdict) if verdict['passed'] else unchecked_text(verdict)}: {', '.join(texts)}"
    text = "; ".join([*verdict["problems"], *([", ".join(texts)] if texts else [])])
    names = [f"{layer['name']!r} ({layer['op']})" for layer in verdict["worst_layers"][:3] if texts]
    return f"failed: {text}" + (f"; worst layers: {', '.join(names)}" if names else "")


def passed_text(verdict: Mapping[str, Any]) -> str:
    """Return "passed", with the samples and the reservations if the verdict is not certain."""
    if verdict["certain"]:
        return "passed"
    return f"passed on {counted(verdict['samples']['checked_on'], 'sample')} ({reservation(verdict)})"


def unchecked_text(verdict: Mapping[str, Any]) -> str:
    """Return the text for an unchecked model, with the open questions if the samples are real."""
    samples = verdict["samples"]
    doubts = () if samples.get("made_up", True) else samples.get("doubts_of_states") or verdict["findings"][:1]
    return f"{_NOT_IN_USE} ({'; '.join(doubts)})" if doubts else _NOT_CHECKED


def reservation(verdict: Mapping[str, Any]) -> str:
    """Return the reservations about a model that passed with doubts."""
    names = dict.fromkeys(spoken_name(check_name(check)) for check in verdict["limits"] if not check["certain"])
    doubts = [f"on other samples, {listed(list(names))} may miss the limit"] if names else []
    return "; ".join([*doubts, *unshown(verdict["samples"])])


def unshown(samples: Mapping[str, Any] | None) -> list[str]:
    """Return texts for inputs and outputs that the ``samples`` of a verdict do not cover."""
    samples = samples or {}
    found = [f"the values of input {name!r} are not real data" for name in samples.get("unreal_inputs", ())]
    if same := samples.get("same_inputs"):
        found.append(f"{_inputs_were(same)} the same in all samples")
    if names := samples.get("one_sided"):
        of = f"output{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
        found.append(f"all samples have scores of {of} on the same side of 0.5")
    if others := samples.get("other_units"):
        found.append(f"{_inputs_were(others)} in another unit in the calibration samples")
    found += samples.get("doubts_of_states", ())
    if ends := samples.get("over_sequences_db"):
        found.append(f"over other sequences, the SQNR may be {ends[0]:.1f} to {ends[1]:.1f} dB; record more frames")
    if samples.get("labels_tell") is False:
        found.append("labels fit the float model no better than chance")
    asked = f"{KEPT_BY_CONSTANTS}: are inputs in the unit of training?"
    return [*found, asked] if samples.get("outputs_vary") is False else found


def _inputs_were(names: Sequence[str]) -> str:
    which, were = ("inputs", "were") if len(names) > 1 else ("input", "was")
    return f"{which} {', '.join(map(repr, names))} {were}"


def types_text(verdict: Mapping[str, Any]) -> str:
    """Return the types of a model's layers, ordered by multiplications, and the float part if it is large."""
    scheme, found = str(verdict["choices"]["scheme"]), verdict["coverage"].get("precisions", {})
    if not found:
        return scheme
    unit = next((unit for unit in ("macs", "weights") if any(counts[unit] for counts in found.values())), "layers")
    names = sorted((name for name, counts in found.items() if counts[unit]), key=lambda name: -found[name][unit])
    if scheme in found and _values_of(scheme) not in map(_values_of, names):
        names.append(scheme)
    text = listed(names) if scheme in names else f"{listed(names)} instead of {scheme}"
    has_codes = scheme in SCHEMES and SCHEMES[scheme].activations is not None
    return text + _mostly_real(found, unit) if has_codes else text


def _mostly_real(precisions: Mapping[str, Mapping[str, int]], unit: str) -> str:
    """Return the text for a model that is mostly float, by layers or by ``unit``, or "" for others."""
    real = precisions.get(FLOAT)
    totals = {each: sum(counts[each] for counts in precisions.values()) for each in ("layers", unit)}
    if real is None or not any(2 * real[each] > total for each, total in totals.items()):
        return ""
    found = [f"{real['layers']:,} of {counted(totals['layers'], 'layer')}"]
    if unit != "layers":
        found.append(f"{share_text(real[unit] / totals[unit])} of the {'products' if unit == 'macs' else unit}")
    return f" ({FLOAT}: {listed(found)})"


def _values_of(precision: str) -> str:
    found = SCHEMES.get(precision)
    return precision if found is None or found.activations is None else found.activations


def caution(verdict: Mapping[str, Any]) -> str | None:
    """Return the warning for an unchecked model, or None for a checked one."""
    if verdict["status"] != UNCHECKED:
        return None
    text = unchecked_text(verdict)
    return f"{text}; {_GIVE_SAMPLES}" if text == _NOT_CHECKED else text


def check_name(check: Mapping[str, Any]) -> str:
    """Return the display name of the measure in an entry of a verdict's limits."""
    return quality_name(check["metric"], check["column"], check["output"])


def spoken_name(name: str) -> str:
    """Return the name of a measure for sentences. MPEIR is not abbreviated."""
    return "the largest error" if name == "mpeir" else name


def check_text(
    metric: str, bound: float, value: float | None, column: int | None = None, output: str | None = None
) -> str:
    """Return the text of a limit with the measured ``value``, None if unknown."""
    allowed = "at least" if HIGHER_IS_BETTER[metric] else "at most"
    seen = "unknown" if value is None else quality_text(metric, value, bound)
    return f"{quality_name(metric, column, output)} {seen} ({allowed} {quality_text(metric, bound)} allowed)"


# Advice for a model that has not passed: samples, options, another scheme or a larger budget.

_LONGER = "raise --max-seconds (in Python max_seconds), which cut the search short"


def hint_of(verdict: Mapping[str, Any]) -> str | None:
    """Return the advice for a verdict that is not passed, or None if problems already give it."""
    hint = _hint_of(verdict)
    missed = not all(check["passed"] for check in verdict["limits"])
    if hint is None or not (missed and verdict["samples"].get("made_up")):
        return hint
    return f"give samples (--calibration or --evaluation), because made-up inputs show little, or {hint}"


def _hint_of(verdict: Mapping[str, Any]) -> str | None:
    every = verdict["limits"]
    budget = verdict["coverage"].get("budget")
    if budget is not None and (budget["holds"] or verdict["problems"]):
        missed = [check for check in every if not check["passed"]]
        return _budget_hint(budget, _LONGER if _is_cut_short(verdict) else _allow_more(missed))
    if len(every) > 1 and [check["metric"] for check in every if not check["passed"]] == [R2_LIMIT.metric]:
        # Nobody requested R2_LIMIT: it applies because constant outputs keep all other limits.
        return None if any(VARY_MORE in problem for problem in verdict["problems"]) else VARY_MORE
    told = () if verdict["samples"].get("outputs_vary", True) else (R2_LIMIT.metric,)  # remedies are already given
    missed = [check for check in every if not check["passed"] and check["metric"] not in told]
    return _remedies(verdict, missed) if missed else None


def _is_cut_short(verdict: Mapping[str, Any]) -> bool:
    return "max_seconds" in verdict["choices"]


def _remedies(verdict: Mapping[str, Any], missed: Sequence[Mapping[str, Any]]) -> str:
    """Return remedies for missed limits that were not tried, the likeliest first.

    More samples help if the limits hold on calibration samples. Another scheme helps if precisions of single layers do
    not. Weaker limits come last.
    """
    if others := verdict["samples"].get("other_units"):
        return f"give all samples in the unit of training: {_inputs_were(others)} in another in the calibration samples"
    found = [_LONGER] if _is_cut_short(verdict) else []
    found += [] if verdict["choices"]["help"] else ["allow help, which searches for better parameters"]
    if is_kept := all(check["inherent"] is False for check in missed):
        found.append("give more samples, because the limit is met on the calibration samples")
    elif all(
        not check["inherent"]
        and check["interval"] is not None
        and any(map(Limit(check["metric"], check["limit"]).allows, check["interval"]))
        for check in missed
    ):  # each interval has an end that keeps the limit
        found.append("give more samples, because the confidence interval includes the limit")
    budget = verdict["coverage"].get("budget")
    if verdict["front"] and budget is None and not _is_cut_short(verdict):
        wider = (step for step in ladder_of(verdict["choices"]["scheme"]) if step != FLOAT)
        found += [f"try more bits in all layers (--scheme {step})" for step in islice(wider, 1)]
    if not is_kept and not _is_cut_short(verdict):
        if budget is not None and budget["tight"]:
            flag = "--max-size (in Python max_bytes)" if "bytes" in budget else "--max-time (in Python max_time_ms)"
            found.append(f"raise {flag}")
        found.append(_allow_more(missed))
    return ", or ".join(found)


def _allow_more(missed: Sequence[Mapping[str, Any]]) -> str:
    options = {OF_DROP: "--max-drop", OF_METRIC: "--metric {} --limit", OF_LIMIT: "--limit"}
    flags = dict.fromkeys(options[check["option"]].format(check["metric"]) for check in missed)
    return f"allow more loss ({', '.join(flags)})" if flags else "allow more loss"


def _budget_hint(budget: Mapping[str, Any], otherwise: str) -> str:
    found = "found within the limits" if budget["holds"] else "found"
    if "bytes" in budget:
        size = budget["bytes"]
        what, flag = f"the smallest file {found} has {size:,} bytes", f"--max-size {size} (in Python max_bytes)"
    else:
        what = f"the least {how_known(budget)} time {found} is {time_text(budget['time_ns'])}"
        flag = f"--max-time {math.ceil(budget['time_ns']) / 1e6:.6f} (in Python max_time_ms)"
    if budget["holds"]:
        return f"{what}: {flag}"
    return f"{what}, and no model found meets the limits: {otherwise}"


def time_text(ns: float) -> str:
    """Return milliseconds with five significant digits, such as ``0.0937 ms``."""
    return f"{ns / 1e6:.5g} ms"


def cost_text(point: Mapping[str, Any]) -> str:
    """Return the cost of a ``point`` of the front: modelled or estimated time, or bytes if there is no target."""
    if point["time_ns"] is None:
        return f"{point['bytes']:,} bytes"
    return f"{time_text(point['time_ns'])} {how_known(point)}"


def how_known(found: Mapping[str, Any]) -> str:
    """Return "modelled" for the time of a package, "estimated" for the time of a plan."""
    return "modelled" if found.get("modelled") else "estimated"
