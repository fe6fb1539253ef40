"""The verdict as a self-contained HTML page: limits, scores, outputs, layers and choices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from odc_mlir.formats.quantities import count_text, quality_name, quality_text, time_text, without_far_text
from odc_mlir.pages import charts, markup
from odc_mlir.pages.markup import Column, Figure, Html, Section, TableCell, bullets, data, pairs, short_name, table, tag
from odc_mlir.quantizer.policy import verdict as rules
from odc_mlir.runtime.reporting.scores import by_loss

LayerRow = Mapping[str, Any]


def by_harm(layers: Sequence[LayerRow]) -> list[LayerRow]:
    """Return the layers, the most harmful first, and harmless layers last."""
    return sorted(layers, key=lambda layer: (layer["output_sqnr_db"] is None, layer["output_sqnr_db"] or 0.0))


# Status -> headline figure of the page: its text, details and colour.
_STATUSES = {
    rules.PASSED: ("passed", "against its limits", "good"),
    rules.FAILED: ("failed", "against its limits", "bad"),
    rules.UNCHECKED: ("not checked", "limits hold, but not as in use", "bad"),
}

_SIDES = ("float", "quantized")
_SEARCHED = "SQNR in the search"
_MEASURES = ("sqnr_db", "mpeir", "mae", "max_abs", "cosine")
_OF_CLASSES = ("top1_match", "top5_match")
_TERMS = (
    ("SQNR", "power of the outputs over the power of their errors: 20 dB are errors of 10 %, 40 dB of 1 %"),
    ("mpeir", "largest error of a sample's output relative to that output's range, averaged over samples"),
    ("same (five likeliest) answers", "share of samples with the float model's likeliest class, or five of them"),
    ("same or nearly as likely answers", "share whose class has at least half the odds of the float model's"),
    ("R²", "part of the outputs' variation over samples that the quantised model follows"),
    ("drop, recall_drop", "loss against known answers, of all samples and of the class that loses most"),
    ("95 %", "interval in which a measure lies on other samples like these, in 95 of 100 cases"),
    ("outputs, this layer alone", "SQNR of the outputs if all other layers are float"),
    ("isolated", "SQNR of the layer's own result for exact operands"),
)


def render(verdict: Mapping[str, Any]) -> str:
    """Return the page with all texts from the model escaped."""
    title = f"{verdict.get('model') or 'a model'} quantised to {rules.types_text(verdict)}"
    layers: Sequence[Mapping[str, Any]] = verdict["layers"]
    sections = [
        Section("Problems", bullets(verdict["problems"])),
        Section("Scores", _scores(verdict), "Both models compared with known answers."),
        Section("Outputs", _outputs(verdict["outputs"])),
        Section(
            "Errors over steps", _over_steps(verdict.get("states")), "Of the worst output, by position in a sequence."
        ),
        Section("Notes", bullets(verdict["findings"])),
        Section("Layers", _layers(layers, verdict["float_reasons"]), "The most harmful first."),
        Section(
            "Accuracy by cost",
            _front(verdict["front"]),
            "Models with other precisions of some layers. Held-out samples are part of their ranges: most models are "
            "slightly worse on other samples.",
        ),
        Section("Steps that were tried", _steps(verdict["steps"]), "Quality: mean SQNR of what decides the outputs."),
        Section("Terms", pairs(_TERMS, caption="terms")),
        Section(
            "Choices", pairs(((name, data(value)) for name, value in verdict["choices"].items()), caption="choices")
        ),
    ]
    return markup.render(title, _figures(verdict), sections, note=rules.caution(verdict) or rules.describe(verdict))


def _figures(verdict: Mapping[str, Any]) -> Iterator[Figure]:
    word, note, mark = _STATUSES[verdict["status"]]
    unsure = verdict["passed"] and not verdict["certain"]
    yield Figure("verdict", word, f"as measured; {rules.reservation(verdict)}" if unsure else note, mark)
    for check in verdict["limits"]:
        limit = f"limit {quality_text(check['metric'], check['limit'])}"
        yield _measure(check, limit if check["passed"] else f"{limit}, missed", "good" if check["passed"] else "bad")
    if (scores := verdict["scores"]) is not None:
        values = " → ".join(quality_text(scores["metric"], scores[side]) for side in _SIDES)
        spans = scores.get("intervals")
        both = f"; 95 %: {' → '.join(_span(scores['metric'], spans[side]) for side in _SIDES)}" if spans else ""
        yield Figure(quality_name(scores["metric"], scores.get("column")), values, f"float → quantised{both}")
    if all(check["metric"] != "sqnr_db" for check in verdict["limits"]):
        found = {"value": verdict["metrics"].get("sqnr_db"), "interval": verdict["intervals"].get("sqnr_db")}
        others = dict.fromkeys(("limit", "column", "output"))
        yield _measure({"metric": "sqnr_db", **found, **others}, "of the worst output")
    yield Figure("bytes of the file", " → ".join(map(count_text, verdict["bytes"])), "float → quantised")
    target = verdict["coverage"].get("target")
    if target is not None and target["time_ns"] is not None:
        before = f"{time_text(target['float_ns'])} → " if target.get("float_ns") else ""
        note = f"{'float on the host → ' if before else ''}quantised on {target['name']}, {rules.how_known(target)}"
        yield Figure("time", f"{before}{time_text(target['time_ns'])}", note)
    quantised = sum(layer["scheme"] != "float" for layer in verdict["layers"])
    yield Figure("layers quantised", f"{quantised} of {len(verdict['layers'])}", rules.types_text(verdict))
    samples = verdict["samples"]
    note = f"checked on; ranges chosen by {count_text(samples['chosen_by'])}"
    if samples["made_up"]:
        yield Figure("samples", "none", f"checked on {count_text(samples['checked_on'])} made-up inputs", "bad")
    else:
        yield Figure("samples", count_text(samples["checked_on"]), note)


def _measure(check: Mapping[str, Any], note: str, mark: str = "") -> Figure:
    name, metric = rules.check_name(check), check["metric"]
    text = quality_text(metric, check["value"], check["limit"])
    if check["interval"]:
        return Figure(name, _span(metric, check["interval"]), f"95 %; measured {text}; {note}", mark)
    return Figure(name, text, note, mark)


def _span(metric: str, interval: Sequence[float]) -> str:
    return " to ".join(quality_text(metric, end) for end in interval)


def _scores(verdict: Mapping[str, Any]) -> Html:
    scores = verdict["scores"]
    if scores is None:
        return Html("")
    columns = [Column("score")]
    for side in ("float", "quantised"):
        columns += [Column(side, number=True), Column(f"{side}, 95 % interval")]
    metric, spans, column = scores["metric"], scores.get("intervals") or {}, scores.get("column")
    first: list[TableCell | str] = [quality_name(metric, column)]
    for side in _SIDES:
        first.append(TableCell(quality_text(metric, scores[side]), scores[side]))
        first.append(_span(metric, spans[side]) if side in spans else "")
    rows = [first]
    if near := scores.get("without_far"):
        before, after = (TableCell(quality_text(metric, near[side]), near[side]) for side in _SIDES)
        rows.append([f"{quality_name(metric, column)} {without_far_text(near['far'])}", before, "", after, ""])
    for name, values in scores.get("others", {}).items():
        before, after = (TableCell(quality_text(name, value), value) for value in values)
        rows.append([quality_name(name, column), before, "", after, ""])
    found = [table(columns, rows, caption="scores of both models")]
    found += [_of_columns(metric, scores["columns"], scores["columns_scored"])] if "columns" in scores else []
    found += [_recalls(scores["classes"])] if "classes" in scores else []
    return markup.joined(found)


def _of_columns(metric: str, scored: Sequence[Mapping[str, Any]], count: int) -> Html:
    name = quality_name(metric)
    columns = [Column(text, number=True) for text in ("column", f"{name}, float", f"{name}, quantised", "drop")]
    rows = []
    for item in scored:
        values = [TableCell(quality_text(metric, item[side]), item[side]) for side in _SIDES]
        drop = TableCell(quality_text("drop", item["drop"]), item["drop"])
        rows.append([TableCell(count_text(item["column"]), item["column"]), *values, drop])
    left = count - len(rows)
    more = tag("p", f"{left} columns that lose less are left out.") if left > 0 else Html("")
    return markup.joined((table(columns, rows, caption="score of each column"), more))


def _recalls(classes: Sequence[Mapping[str, Any]]) -> Html:
    most_classes = 30
    columns = [
        Column(name, number=True) for name in ("class", "samples", "recall, float", "recall, quantised", "change")
    ]
    rows: list[list[TableCell | str]] = []
    for item in by_loss(classes, most_classes):
        before, after = item["float"], item["quantized"]
        counts = [TableCell(count_text(item[name]), item[name]) for name in ("label", "samples")]
        shares = [TableCell(quality_text("top1_percent", value), value) for value in (before, after)]
        rows.append([*counts, *shares, TableCell(f"{after - before:+z.1f}", after - before)])
    rest = len(classes) - len(rows)
    more = tag("p", f"{rest} classes that lose less are left out.") if rest > 0 else Html("")
    return markup.joined((table(columns, rows, caption="recall of each class, in percentage points"), more))


def _over_steps(states: Mapping[str, Any] | None) -> Html:
    columns = [Column(name, number=True) for name in ("frame", "to", "samples", quality_name("sqnr_db"))]
    rows = [
        [TableCell(count_text(step[name]), step[name]) for name in ("first", "last", "frames")]
        + [TableCell(quality_text("sqnr_db", step["sqnr_db"]), step["sqnr_db"])]
        for step in (states or {}).get("steps", ())
    ]
    return table(columns, rows, caption="errors over steps") if rows else Html("")


def _outputs(outputs: Sequence[Mapping[str, Any]]) -> Html:
    measures = [*_MEASURES, *(_OF_CLASSES if any(output["classifies"] for output in outputs) else ())]
    columns = [Column("output"), *(Column(quality_name(name), number=True) for name in measures)]
    rows = []
    for output in outputs:
        has_none = () if output["classifies"] else _OF_CLASSES  # these measures only make sense for classes
        values = [(name, None if name in has_none else output[name]) for name in measures]
        rows.append([short_name(output["name"]), *(TableCell(quality_text(*pair), pair[1]) for pair in values)])
    return table(columns, rows, caption="outputs beside those of the float model")


def _front(points: Sequence[Mapping[str, Any]]) -> Html:
    if not points:
        return Html("")
    timed = all(point["time_ns"] is not None for point in points)
    cost = "time (ms)" if timed else "bytes"
    places = [
        (
            f"{point['layers']} other layers{f', {rules.how_known(point)}' if timed else ''}"
            f"{', chosen' if point['chosen'] else ''}",
            point["time_ns"] / 1e6 if timed else float(point["bytes"]),
            point["search"]["sqnr_db"],
            point["chosen"],
        )
        for point in points
        if point["search"]["sqnr_db"] is not None
    ]
    labels = (cost, f"{_SEARCHED} (dB)")
    return charts.scatter(places, labels, title=f"{_SEARCHED} over {cost}", names=("measured", "chosen"))


def _steps(steps: Sequence[Mapping[str, Any]]) -> Html:
    columns = (Column("step"), Column("choice"), Column("quality", number=True), Column("kept"))
    rows = [
        (step["step"], data(step["value"]), _decibels(step.get("quality_db")), data(step["kept"])) for step in steps
    ]
    return table(columns, rows, caption="steps that were tried")


def _decibels(value: float | None) -> TableCell:
    return TableCell(quality_text("sqnr_db", value), value)


def _layers(layers: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]) -> Html:
    columns = (
        Column("layer"),
        Column("operator", tight=True),
        Column("scheme", tight=True),
        Column("outputs, this layer alone", number=True),
        Column("isolated", number=True),
        Column("reason"),
    )
    names = markup.short_names([layer["name"] for layer in layers])
    rows = [
        (
            names[layer["name"]],
            layer["op"],
            layer["scheme"],
            _decibels(layer["output_sqnr_db"]),
            _decibels(layer["isolated"].get("sqnr_db")),
            reasons.get(layer["name"], ""),
        )
        for layer in by_harm(layers)
    ]
    return table(columns, rows, caption="layers of the model")
