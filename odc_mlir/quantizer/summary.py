"""A verdict in a few lines of text: quality and cost of the model, and the next step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from odc_mlir.errors import short_name, shortened
from odc_mlir.formats import quantities
from odc_mlir.formats.quantities import counted, decibel_text, quality_name, quality_text, share_text
from odc_mlir.quantizer.measurement import GOOD_DB
from odc_mlir.quantizer.policy import verdict as rules
from odc_mlir.quantizer.policy.schemes import SCHEMES

_LAYERS_SHOWN, _FINDINGS_SHOWN, _HOST_SHOWN = 5, 8, 3  # lines that fit a screen, names that fit a line
# Texts for measures. Fractions are shown as percent.
_SHARES = {
    "mpeir": "the largest error of a sample is on average {} of the output's range",
    "top1_match": "{} of the answers{} are the float model's",
    "top5_match": "{} of the five likeliest answers{} are the float model's",
    "top1_decided": "{} of the answers{} are the float model's, or nearly as likely (ties count half)",
}
_UNITS = {"top1_percent": "points", "psnr_db": "dB", "rmse": "% of the labels' range"}


def summary(model: str, verdict: Mapping[str, Any], next_step: str | None = None) -> Iterator[str]:
    """Yield the figure of the model's task, the cost, the gain by help, the verdict, the worst layers and advice."""
    yield headline(model, verdict)
    if cost := ", ".join(_cost(verdict)):
        yield f"  {cost}"
    yield from _on_host(verdict)
    yield from _help(verdict)
    yield from _widening(verdict)
    yield f"  {(status := conclusion(verdict))}"
    yield from (f"  {problem}  <- not kept" for problem in verdict["problems"] if problem not in status)
    yield from _layers(verdict)
    for name, channels in verdict["saturated_biases"].items():
        yield f"  warning: the bias {short_name(name)} is limited in {counted(len(channels), 'channel')}"
    for finding in verdict["findings"][:_FINDINGS_SHOWN]:
        yield f"  note: {shortened(finding)}"
    if next_step is not None:
        yield f"  next: {next_step}"


def headline(model: str, verdict: Mapping[str, Any]) -> str:
    """Return the types of a quantised ``model`` and the figure of the task."""
    return f"{model}: {rules.types_text(verdict)}, {figure(verdict)}".removeprefix(": ")


def figure(verdict: Mapping[str, Any]) -> str:
    """Return the quality of the quantised model: the scores of the two models, or the error between the models."""
    samples, scores, metrics = verdict["samples"], verdict["scores"], verdict["metrics"]
    count = counted(samples["checked_on"], "made-up input" if samples["made_up"] else "sample")
    if scores:
        metric = scores["metric"]
        both = _from_to(metric, scores["float"], scores["quantized"])
        return f"{quality_name(metric, scores.get('column'))} {both} on {count}"
    found, limited = [], {check["metric"] for check in verdict["limits"]}
    for metric in ("top1_decided", "top1_match"):
        if metric in limited and metrics.get(metric) is not None:
            found.append(f"{quality_name(metric)} {share_text(metrics[metric])}")
    if metrics.get("sqnr_db") is not None:
        of = f" in the worst of {counted(outputs, 'output')}" if (outputs := len(verdict["outputs"])) > 1 else ""
        found.append(f"SQNR {decibel_text(metrics['sqnr_db'])}{of}")
    elif metrics.get("differing") == 0:
        found.append("equal to the float model")
    return f"{', '.join(found) or 'without a measure'} on {count}{_over_frames(verdict)}"


def _from_to(metric: str, before: float, after: float) -> str:
    return f"{quality_text(metric, before, after)} -> {quality_text(metric, after, before)}"


def _over_frames(verdict: Mapping[str, Any]) -> str:
    states = verdict.get("states")
    if not states:
        return ""
    texts = []
    for step in (states["steps"][0], states["steps"][-1]):
        first, last = step["first"], step["last"]
        frames = f"frames {first} to {last}" if first < last else f"frame {first}"
        texts += [] if step["sqnr_db"] is None else [f"{decibel_text(step['sqnr_db'])} in {frames}"]
    repeated = f", each repeated for {each} frames" if (each := states["frames_per_sample"]) > 1 else ""
    return f" of {counted(states['sequences'], 'sequence')}{repeated} ({', '.join(texts)})" if texts else ""


def _cost(verdict: Mapping[str, Any]) -> Iterator[str]:
    if "bytes" in verdict:
        before, after = verdict["bytes"]
        yield f"file {before:,} -> {quantities.size_text(after)}"
    target = verdict["coverage"].get("target")
    if target is not None and target["runs"] is not None:
        before = f"{quantities.time_text(target['float_ns'])} (float on its host) -> " if target.get("float_ns") else ""
        yield f"time {before}{quantities.time_text(target['time_ns'])} on {target['name']} ({rules.how_known(target)})"
        yield f"which runs {share_text(target['runs'])} of the products"


def _on_host(verdict: Mapping[str, Any]) -> Iterator[str]:
    left = (verdict["coverage"].get("target") or {}).get("on_host")
    if left:
        why = {layer["name"]: layer["reason"] for layer in left} | verdict["float_reasons"]
        named = [f"{layer['op']} {layer['name']!r} ({why[layer['name']]})" for layer in left[:_HOST_SHOWN]]
        more = [f"and {len(left) - len(named)} more"] if len(left) > len(named) else []
        is_for_litert = any(why[layer["name"]].startswith("LiteRT") for layer in left)
        remedy = "; a .circle file has no limits of LiteRT" if is_for_litert else ""
        yield f"  on the host: {', '.join([*named, *more])}{remedy}"


def _help(verdict: Mapping[str, Any]) -> Iterator[str]:
    found = verdict.get("help")
    if not found:
        return
    texts = [
        f"{quality_name(metric)} {_from_to(metric, before, after)}"
        for metric, (before, after) in found.items()
        if before is not None and after is not None
    ]
    choices, (plain, helped) = verdict["choices"], found["sqnr_db"]
    why = ""
    if plain and helped and helped <= plain:  # such help is kept because it is better for most models
        has_room = choices.get("headroom") or choices.get("output_room")
        why = f"; {'ranges have room for values beyond these' if has_room else 'chance explains the difference'}"
    if texts:
        # The accuracy in the headline is lower, because there ranges do not cover the samples.
        covered = ", which ranges cover" if verdict["samples"]["ranges_cover"] else ""
        yield f"  help over plain quantisation, on held-out samples{covered}: {', '.join(texts)}{why}"


def _widening(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield the reason for more bits in some layers, with the accuracy and the cost of the scheme alone."""
    choices = verdict["choices"]
    layers = next((point["layers"] for point in verdict["front"] if point["chosen"]), 0)
    for plain in verdict["front"] if layers and choices.keys().isdisjoint(("max_bytes", "max_time_ms")) else ():
        if not plain["layers"]:
            found_db, keep = plain["search"]["sqnr_db"], "; --mixed off keeps it" if plain["holds"] else ""
            why = f"is below {GOOD_DB:g} dB" if (found_db or 0.0) < GOOD_DB else "has little margin"
            facts = f"{why if keep else 'misses the limits'} ({decibel_text(found_db)}, {rules.cost_text(plain)}{keep})"
            yield f"  more bits in {counted(layers, 'layer')}, because {choices['scheme']} alone {facts}"


def conclusion(verdict: Mapping[str, Any]) -> str:
    """Return the status of a verdict with the problem that decides, else with its limits, missed limits first."""
    checks, status = sorted(verdict["limits"], key=lambda check: bool(check["passed"])), "FAILED"
    if verdict["status"] != rules.FAILED:
        status = rules.unchecked_text(verdict) if verdict["status"] == rules.UNCHECKED else rules.passed_text(verdict)
    elif verdict["too_few_samples"]:
        count = counted(verdict["samples"]["checked_on"], "sample")
        status = f"FAILED on too few samples ({count}; all limits are met on them)"
    elif checks[0]["passed"]:
        return f"FAILED: {verdict['problems'][0]}"
    return f"{status}: {'; '.join(_check_text(check, verdict) for check in checks)}"


def _check_text(check: Mapping[str, Any], verdict: Mapping[str, Any]) -> str:
    metric, value, limit = check["metric"], check["value"], check["limit"]
    name = quality_name(metric, check["column"], check["output"])
    mark = "" if check["passed"] else ", not kept"
    if value is None:
        return f"{name}: {'outputs are equal' if check['passed'] else 'unknown'}{mark}"
    if metric in _SHARES:
        named = [check["output"]] if check["output"] else [o["name"] for o in verdict["outputs"] if o["classifies"]]
        share, is_part = quality_text("top1_match", value, limit), 0 < len(named) < len(verdict["outputs"])
        of = f" of output{'s' * (len(named) > 1)} {', '.join(map(repr, named))}" if is_part else ""
        return f"{_SHARES[metric].format(share, of)} (limit {share_text(limit)}){mark}"
    seen = quality_text(metric, value, limit)
    if metric in rules.OF_LABELS:
        scored = verdict["scores"]["metric"]
        unit = "point" if (scored, limit) == ("top1_percent", 1.0) else _UNITS[scored]
        lost = "no loss" if value <= 0.0 else f"a loss of {seen} {_UNITS[scored]}"
        of = "the worst class, beyond chance" if metric == "recall_drop" else quality_name(scored, check["column"])
        return f"{lost} in {of} (limit {limit:g} {unit}){mark}"
    return f"{name} is {seen} (limit {quality_text(metric, limit)}){mark}"


def _layers(verdict: Mapping[str, Any]) -> Iterator[str]:
    layers = [layer for layer in verdict["worst_layers"] if layer["output_sqnr_db"] is not None or layer["lacking"]]
    if layers:
        yield "  worst layers, by how much each alone changes the outputs:"
    for layer in layers[:_LAYERS_SHOWN]:
        alone = layer["output_sqnr_db"]
        effect = [] if alone is None else [_effect_text(10.0 ** (-alone / 20.0))]
        if lacking := layer["lacking"]:
            examined = counted(verdict["samples"]["layers_examined_on"], "sample")
            effect.append(f"outputs lack numbers in {lacking} of {examined}")
        yield f"    {short_name(layer['name'])} ({layer['op']}, {layer['scheme']}): {', '.join(effect)}"


def _effect_text(share: float) -> str:
    if not math.isfinite(share):
        return "destroys them"
    # A 7-bit step is about 1 % of the range. An error of 10 % is an SQNR of 20 dB, the default limit.
    judgement = "harmless" if share < 0.01 else "tolerable" if share < 0.1 else "harmful"
    return f"{share_text(share)}, {judgement}"


def next_step(verdict: Mapping[str, Any], compiling: str) -> str:
    """Return the next step after success: ``compiling``, for an unchecked model, or uncertain limits, after a check."""
    if verdict["status"] != rules.UNCHECKED:
        is_certain = all(check["certain"] for check in verdict["limits"])
        return compiling if is_certain else f"give more samples to be certain of the limits, then {compiling}"
    has_none = verdict["samples"].get("made_up", True)
    return f"give {'samples' if has_none else 'sequences of frames as in use'} to check the accuracy, then {compiling}"


def next_target(verdict: Mapping[str, Any]) -> str:
    """Return the target that the model was quantised for, or a target that fits the types."""
    if (target := verdict["coverage"].get("target")) is not None:
        return str(target["name"])
    return "cpu" if SCHEMES[verdict["choices"]["scheme"]].activations is None else "npu-256"
