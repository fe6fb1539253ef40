"""A verdict as one HTML page that needs nothing else: no font, no picture, no script from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.formats.quantities import NOTHING, decibel_text, quality_name, quality_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Cell, Column, Html, bullets, data, joined, pairs, short_name, table, tag
from odc_mlir.pages.page import Figure, Section
from odc_mlir.pages.page import render as render_page
from odc_mlir.quantizer.policy.verdict import describe

_MOST_DB = 80.0  # a chart's full width; more is as good as exact
_MOST_BARS = 40
_PLOT_BINS = 60
_MOST_PLOTS = 120
_MEASURES = ("sqnr_db", "mpeir", "mae", "max_abs", "cosine", "top1_match", "top5_match")


def render(verdict: Mapping[str, Any], statistics: Mapping[str, TensorStatistics]) -> str:
    """The page; every text from the model is escaped."""
    title = f"{verdict.get('model') or 'a model'} quantised to {verdict['choices']['scheme']}"
    layers: Sequence[Mapping[str, Any]] = verdict["layers"]
    sections = [
        Section("Outputs", _outputs(verdict["outputs"])),
        Section("What to know about the data", bullets(verdict["findings"])),
        Section("What each layer alone does to the outputs", _layer_chart(layers), "The most harmful first, in dB."),
        Section("Layers", _layers(layers, verdict["float_reasons"])),
        *_front(verdict["front"]),
        Section("What was tried", _steps(verdict["steps"])),
        Section("How it was made", pairs(_choices(verdict["choices"]), caption="choices")),
        Section("Values and their ranges", _histograms(statistics), "How often values occur, logarithmic."),
    ]
    return render_page(title, _figures(verdict), sections, note=describe(verdict))


def _figures(verdict: Mapping[str, Any]) -> Iterator[Figure]:
    passed = bool(verdict["passed"])
    yield Figure("verdict", "passed" if passed else "failed", "against its limits", "good" if passed else "bad")
    worst = min((item["sqnr_db"] for item in verdict["outputs"] if item["sqnr_db"] is not None), default=None)
    yield Figure("signal to noise", decibel_text(worst), "of the worst output")
    quantised = sum(layer["scheme"] != "float" for layer in verdict["layers"])
    yield Figure("layers quantised", f"{quantised} of {len(verdict['layers'])}", str(verdict["choices"]["scheme"]))


def _choices(choices: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    return ((name, data(value)) for name, value in choices.items())


def _outputs(outputs: Sequence[Mapping[str, Any]]) -> Html:
    columns = [Column("output"), *(Column(quality_name(name), number=True) for name in _MEASURES)]
    rows = [
        [short_name(output["name"]), *(Cell(quality_text(name, output[name]), output[name]) for name in _MEASURES)]
        for output in outputs
    ]
    return table(columns, rows, caption="outputs beside those of the float model")


def _front(points: Sequence[Mapping[str, Any]]) -> list[Section]:
    """The models that were measured with other precisions: a picture of accuracy by cost, and the same as a table."""
    if not points:
        return []
    timed = all(point["time_ns"] is not None for point in points)
    cost = "modelled time (ms)" if timed else "bytes"
    places = [
        (
            f"{point['layers']} other layers{', chosen' if point['chosen'] else ''}",
            point["time_ns"] / 1e6 if timed else float(point["bytes"]),
            point["sqnr_db"],
            point["chosen"],
        )
        for point in points
        if point["sqnr_db"] is not None
    ]
    chart = charts.scatter(places, (cost, "SQNR (dB)"), title=f"SQNR over {cost}") if places else Html("")
    columns = (
        Column("layers in other precisions", number=True),
        Column("modelled time", number=True),
        Column("bytes", number=True),
        Column("products on the target", number=True),
        Column("SQNR", number=True),
        Column("limits"),
        Column("chosen"),
    )
    rows = [
        (
            Cell(str(point["layers"]), point["layers"]),
            Cell(NOTHING if point["time_ns"] is None else f"{point['time_ns'] / 1e6:.3f} ms", point["time_ns"]),
            Cell(f"{point['bytes']:,}", point["bytes"]),
            Cell(NOTHING if point["runs"] is None else f"{100 * point['runs']:.1f} %", point["runs"]),
            _decibels(point["sqnr_db"]),
            "hold" if point["holds"] else "missed",
            data(point["chosen"]),
        )
        for point in points
    ]
    found = joined((chart, table(columns, rows, caption="accuracy by cost")))
    return [Section("Accuracy by cost", found, "What other precisions for some layers bring and take.")]


def _steps(steps: Sequence[Mapping[str, Any]]) -> Html:
    columns = (Column("step"), Column("choice"), Column("SQNR", number=True), Column("kept"))
    rows = [(step["step"], data(step["value"]), _decibels(step.get("sqnr_db")), data(step["kept"])) for step in steps]
    return table(columns, rows, caption="steps that were tried")


def _decibels(value: float | None) -> Cell:
    return Cell(NOTHING if value is None else decibel_text(value), value)


def _layers(layers: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]) -> Html:
    columns = (
        Column("layer"),
        Column("operator", tight=True),
        Column("scheme", tight=True),
        Column("outputs, this layer alone", number=True),
        Column("isolated", number=True),
        Column("accumulated", number=True),
        Column("reason"),
    )
    rows = [
        (
            short_name(layer["name"]),
            layer["op"],
            layer["scheme"],
            _decibels(layer["output_sqnr_db"]),
            _decibels(layer["isolated"].get("sqnr_db")),
            _decibels(layer["accumulated"].get("sqnr_db")),
            reasons.get(layer["name"], ""),
        )
        for layer in layers
    ]
    return table(columns, rows, caption="layers of the model")


def _layer_chart(layers: Sequence[Mapping[str, Any]]) -> Html:
    """Bars of dB, short and of another colour where a layer does harm; layers that do none are left out."""
    shown = sorted(
        (layer for layer in layers if layer["output_sqnr_db"] is not None), key=lambda item: item["output_sqnr_db"]
    )
    if not shown:
        return Html("")
    worst = shown[max(1, len(shown) // 5) - 1]["output_sqnr_db"]
    items = [(layer["name"], layer["output_sqnr_db"], decibel_text(layer["output_sqnr_db"])) for layer in shown]
    rest = len(items) - _MOST_BARS
    more = tag("p", f"{rest} layers that do less are left out.") if rest > 0 else Html("")
    chart = charts.bars(items[:_MOST_BARS], _MOST_DB, title="signal to noise of the outputs by layer", worst=worst)
    return joined((chart, more))


def _histograms(statistics: Mapping[str, TensorStatistics]) -> Html:
    """One plot by tensor; dashed lines are the least and the largest value seen."""
    shown = [(name, item) for name, item in statistics.items() if item.count]
    figures = [_histogram(name, item) for name, item in shown[:_MOST_PLOTS]]
    rest = len(shown) - _MOST_PLOTS
    more = tag("p", f"{rest} more tensors are left out.") if rest > 0 else Html("")
    return joined((tag("div", *figures, class_="plots"), more)) if figures else Html("")


def _histogram(name: str, item: TensorStatistics) -> Html:
    edges, counts = item.histogram.occupied()
    low, high = float(edges[0]), float(edges[-1])
    span = high - low or 1.0
    middles = (edges[:-1] + edges[1:]) / 2
    bins = np.minimum(((middles - low) / span * _PLOT_BINS).astype(int), _PLOT_BINS - 1)
    sums = np.bincount(bins, weights=counts.astype(np.float64), minlength=_PLOT_BINS)
    heights = np.log1p(sums) / np.log1p(sums.max())
    ends = [(end - low) / span for end in (item.minimum, item.maximum)]
    plot = charts.histogram([float(height) for height in heights], ends, title=f"values of {name}")
    caption = joined((short_name(name), f": {item.minimum:.4g} … {item.maximum:.4g}, mean {item.mean:.4g}"))
    return tag("figure", plot, tag("figcaption", caption))
