"""Whether a quantised model is good enough: the verdict over it by its limits (:mod:`.limits`), and its texts.

A verdict is a plain dictionary, ready for JSON.

A model "passed" only on samples that somebody gave or recorded. Where there are none, as schemes of weights alone and
recorded ranges need none, made-up inputs stand in for them. What misses a limit on these has failed; what keeps all of
them is "unchecked": nobody knows what it does on real inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from odc_mlir.formats.quantities import counted, listed, quality_name, quality_text, share_text
from odc_mlir.quantizer.policy.layer_errors import LayerError, worst_layers
from odc_mlir.quantizer.policy.limits import HIGHER_IS_BETTER, Limit
from odc_mlir.quantizer.policy.schemes import FLOAT, SCHEMES

SCHEMA_VERSION = 1

# What a verdict says; UNCHECKED: limits hold, but on made-up inputs only.
PASSED, FAILED, UNCHECKED = "passed", "failed", "unchecked"
_NOT_CHECKED = "not checked: no samples were given; limits hold on made-up inputs only"
_GIVE_SAMPLES = "give samples: --calibration or --evaluation (in Python calibration or evaluation)"
VARY_MORE = "give samples for which outputs vary as they do in use"
KEPT_BY_CONSTANTS = "constant outputs would keep all limits but R² as well, or nearly"


@dataclass(slots=True)
class Evidence:
    """What a verdict is made of.

    ``metrics`` are the integer model's, worst over the outputs (plus ``drop`` and scores where answers are known);
    ``fake_quantized`` those of the same model with float arithmetic between quantised values, None where not measured.
    ``problems``: what else stands in the way of passing; ``coverage``: what is quantised, and what the target runs;
    ``deciding``: how many samples would decide limits that are left open, by key; ``inherent``: whether a
    limit is missed on samples that the model was made by as well, by key, where such ones were measured;
    ``causes``: options that were given and are likely why it is not accurate enough;
    ``made_up``: nobody gave the inputs that the model was checked on; ``seen``: ranges were recorded of them;
    ``doubts``: limits that hold on samples which are too few to say so of others.
    """

    limits: tuple[Limit, ...]
    metrics: dict[str, float | None]
    outputs: list[dict[str, Any]] = field(default_factory=list)
    fake_quantized: dict[str, float | None] | None = None
    scores: dict[str, Any] | None = None
    layers: list[LayerError] = field(default_factory=list)
    schemes: dict[str, str] = field(default_factory=dict)
    float_reasons: dict[str, str] = field(default_factory=dict)
    samples: dict[str, Any] = field(default_factory=dict)
    saturated_biases: dict[str, list[int]] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    steps: list[dict[str, Any]] = field(default_factory=list)
    choices: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    coverage: dict[str, Any] = field(default_factory=dict)
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    deciding: Mapping[str, int] = field(default_factory=dict)
    inherent: Mapping[str, bool] = field(default_factory=dict)
    front: list[dict[str, Any]] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)
    made_up: bool = False
    seen: bool = False
    doubts: list[str] = field(default_factory=list)


def make_verdict(evidence: Evidence) -> dict[str, Any]:
    """The verdict over ``evidence``; see docs/quantisation.md for its keys.

    ``metric``, ``limit`` and ``value`` are of the first limit that does not hold, else of the first one.
    """
    checks = [
        {
            "metric": limit.metric,
            "limit": limit.bound,
            "option": limit.option,
            "value": evidence.metrics.get(limit.key),
            "output": limit.output,
            "column": _column_of(limit.metric, evidence.scores or {}),
            "interval": list(evidence.intervals[limit.key]) if limit.key in evidence.intervals else None,
            "passed": limit.holds(evidence.metrics),
            "deciding": evidence.deciding.get(limit.key),
            "inherent": evidence.inherent.get(limit.key),
            "certain": not evidence.seen and limit.is_certain(evidence.metrics, evidence.intervals),
        }
        for limit in evidence.limits
    ]
    holds = all(check["passed"] for check in checks) and not evidence.problems
    status = FAILED if not holds or evidence.doubts else UNCHECKED if evidence.made_up else PASSED
    main = next((check for check in checks if not check["passed"]), checks[0])
    worst = worst_layers(evidence.layers)
    return {
        "schema_version": SCHEMA_VERSION,
        "status": status,
        "passed": status == PASSED,
        "certain": status == PASSED and all(check["certain"] for check in checks) and not unshown(evidence.samples),
        "metric": main["metric"],
        "limit": main["limit"],
        "value": main["value"],
        "limits": checks,
        "too_few_samples": holds and bool(evidence.doubts),
        "problems": [*evidence.problems, *evidence.doubts],
        "causes": evidence.causes,
        "coverage": evidence.coverage,
        "front": evidence.front,
        "metrics": evidence.metrics,
        "intervals": {metric: list(ends) for metric, ends in evidence.intervals.items()},
        "fake_quantized": evidence.fake_quantized,
        "outputs": evidence.outputs,
        "scores": evidence.scores,
        "worst_layers": [layer.to_dict() for layer in worst],
        "layers": [layer.to_dict() for layer in evidence.layers],
        "scheme": evidence.schemes,
        "float_reasons": evidence.float_reasons,
        "samples": evidence.samples,
        "saturated_biases": evidence.saturated_biases,
        "findings": evidence.findings,
        "steps": evidence.steps,
        "choices": evidence.choices,
    }


def _column_of(metric: str, scores: Mapping[str, Any]) -> int | None:
    """The column that a measure is of; None where it is of all."""
    if metric == "column_drop":
        return next((item["column"] for item in scores.get("columns", ())), None)
    return scores.get("column") if metric == "drop" else None


def describe(verdict: Mapping[str, Any], *, layers: int = 3) -> str:
    """A verdict in one line: the failed limits (or the main one), and the worst layers of a failure."""
    failed = verdict["status"] == FAILED
    checks = [check for check in verdict["limits"] if check["passed"] is not failed]
    texts = [
        check_text(check["metric"], check["limit"], check["value"], check["column"], check["output"])
        for check in (checks if failed else checks[:2])
    ]
    if not failed:
        return f"{passed_text(verdict) if verdict['passed'] else _NOT_CHECKED}: {', '.join(texts)}"
    text = "; ".join([*verdict["problems"], *([", ".join(texts)] if texts else [])])
    if not texts:
        return f"failed: {text}"
    names = [f"{layer['name']!r} ({layer['op']})" for layer in verdict["worst_layers"][:layers]]
    return f"failed: {text}" + (f"; worst layers: {', '.join(names)}" if names else "")


def failed_text(verdict: Mapping[str, Any]) -> str:
    """That a model failed and, where that is all that it lacks, for want of samples."""
    count = counted(verdict["samples"]["checked_on"], "sample")
    return f"FAILED on too few samples ({count}, which keep all limits)" if verdict["too_few_samples"] else "FAILED"


def passed_text(verdict: Mapping[str, Any]) -> str:
    """That a model passed and, where chance may have had a part in that, on how many samples, and what is in doubt."""
    if verdict["certain"]:
        return "passed"
    return f"passed on {counted(verdict['samples']['checked_on'], 'sample')} ({reservation(verdict)})"


def reservation(verdict: Mapping[str, Any]) -> str:
    """What is in doubt of a model that passed without certainty."""
    names = dict.fromkeys(check_name(check) for check in verdict["limits"] if not check["certain"])
    doubts = [f"on others {', '.join(names)} may miss"] if names else []
    return "; ".join([*doubts, *unshown(verdict["samples"])])


def kept_by_constants(*, follows: bool) -> str:
    """What is said of samples on which constant outputs keep limits; ``follows``: quantised ones do what they vary."""
    if follows:
        return f"{KEPT_BY_CONSTANTS}, on these samples; give some for which outputs vary more, or a limit"
    return (
        f"{KEPT_BY_CONSTANTS}, and the quantised ones do not follow what these samples vary; give some for which "
        "outputs vary as they do in use"
    )


def unshown(samples: Mapping[str, Any] | None) -> list[str]:
    """What the ``samples`` of a verdict, perhaps of a file, do not show, whatever was measured on them.

    Inputs that are the same in all of them, though outputs depend on these, or whose values are none that occur,
    outputs that hardly change, scores that are all on one side of a half, inputs in another unit than those to choose
    by, and labels that fit no better than luck.
    """
    samples = samples or {}
    found = [f"the values of input {name!r} are no real data" for name in samples.get("unreal_inputs", ())]
    if same := samples.get("same_inputs"):
        found.append(f"{_inputs_were(same)} the same in all of them")
    if names := samples.get("one_sided"):
        of = f"output{'s' if len(names) > 1 else ''} {', '.join(map(repr, names))}"
        found.append(f"in no sample is a score of {of} on the other side of a half")
    if others := samples.get("other_units"):
        found.append(f"{_inputs_were(others)} in another unit in those to calibrate by")
    if samples.get("labels_tell") is False:
        found.append("labels fit the float model no better than luck may have it")
    return [*found, KEPT_BY_CONSTANTS] if samples.get("outputs_vary") is False else found


def _inputs_were(names: Sequence[str]) -> str:
    which, were = ("inputs", "were") if len(names) > 1 else ("input", "was")
    return f"{which} {', '.join(map(repr, names))} {were}"


def types_text(verdict: Mapping[str, Any]) -> str:
    """The types that there are, that of the most products first.

    Of layers without products, or without weights where no layer has products, only the scheme itself is named, and
    where other layers have its values already, not even that. Where most is real though values were to be codes, the
    shares that are.
    """
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
    """What is said where more than half of the layers, or of their ``unit``, stayed real."""
    real = precisions.get(FLOAT)
    totals = {each: sum(counts[each] for counts in precisions.values()) for each in ("layers", unit)}
    if real is None or not any(2 * real[each] > total for each, total in totals.items()):
        return ""
    found = [f"{real['layers']:,} of {counted(totals['layers'], 'layer')}"]
    if unit != "layers":
        found.append(f"{share_text(real[unit] / totals[unit])} of the {'products' if unit == 'macs' else unit}")
    return f" ({FLOAT}: {listed(found)})"


def _values_of(precision: str) -> str:
    """The type of values in this precision; where they are real, its name."""
    found = SCHEMES.get(precision)
    return precision if found is None or found.activations is None else found.activations


def caution(verdict: Mapping[str, Any]) -> str | None:
    """What is to be said, and done, of a model that nobody could check; None where that was done."""
    return f"{_NOT_CHECKED}; {_GIVE_SAMPLES}" if verdict["status"] == UNCHECKED else None


def check_name(check: Mapping[str, Any]) -> str:
    """What people call the measure that one of a verdict's limits is of."""
    return quality_name(check["metric"], check["column"], check["output"])


def check_text(
    metric: str, bound: float, value: float | None, column: int | None = None, output: str | None = None
) -> str:
    """One limit beside what was measured, of one ``column`` or ``output`` or of all; None: it could not be."""
    allowed = "at least" if HIGHER_IS_BETTER[metric] else "at most"
    seen = "unknown" if value is None else quality_text(metric, value, bound)
    return f"{quality_name(metric, column, output)} {seen} ({allowed} {quality_text(metric, bound)} allowed)"
