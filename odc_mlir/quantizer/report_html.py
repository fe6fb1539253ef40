"""A verdict as one HTML page that needs nothing else: no script, no font, no picture from anywhere.

Charts are drawn as plain SVG, so that the page can be mailed, kept beside a model and compared as text.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.formats.kinds import PAGE_MARK
from odc_mlir.formats.quantities import decibel_text, quality_name, quality_text
from odc_mlir.quantizer.policy.verdict import describe

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 76em; padding: 0 1em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; } th, td { text-align: left; padding: .2em .9em .2em 0; vertical-align: top; }
th { color: #555; font-weight: 600; } tr + tr td { border-top: 1px solid #ddd; }
td.n { text-align: right; font-variant-numeric: tabular-nums; } td.name { overflow-wrap: anywhere; max-width: 34em; }
.passed { color: #1a7f37; } .failed { color: #b3261e; }
.charts { display: flex; flex-wrap: wrap; gap: 1.2em; } figure { margin: 0; width: 20em; }
figcaption { font-size: .85em; overflow-wrap: anywhere; }
svg { display: block; background: #fafafa; } svg .bar { fill: #2f6fb0; } svg .bad { fill: #d0802a; }
svg text { font: 11px system-ui, sans-serif; fill: #444; } svg .end { stroke: #b3261e; stroke-dasharray: 3 2; }
"""

_MOST_DB = 80.0  # a chart's full width; more is as good as exact
_BAR_HEIGHT, _BAR_WIDTH, _LABEL_WIDTH = 16, 420, 330
_PLOT_WIDTH, _PLOT_HEIGHT, _PLOT_BINS = 300, 90, 60
_MOST_PLOTS = 120


def render(verdict: Mapping[str, Any], statistics: Mapping[str, TensorStatistics]) -> str:
    """The page; every text from the model is escaped."""
    title = escape(f"{verdict.get('model') or 'a model'} quantised to {verdict['choices']['scheme']}")
    result = "passed" if verdict["passed"] else "failed"
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8">{PAGE_MARK}<title>{title}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f'<h1>{title}: <span class="{result}">{result}</span></h1>',
        f"<p>{escape(describe(verdict))}</p>",
        _section("Outputs", _outputs(verdict)),
        _section("How it was made", _pairs(verdict["choices"])),
        _section("What was tried", _steps(verdict["steps"])),
        _section("What each layer alone does to the outputs", _layer_chart(verdict["layers"])),
        _section("Layers", _layers(verdict["layers"], verdict["float_reasons"])),
        _section("What to know about the data", _list(verdict["findings"])),
        _section("Values and their ranges", _histograms(statistics)),
        "</body></html>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def _section(title: str, content: str) -> str:
    return f"<h2>{escape(title)}</h2>\n{content}" if content else ""


def _list(items: Iterable[str]) -> str:
    lines = "".join(f"<li>{escape(item)}</li>" for item in items)
    return f"<ul>{lines}</ul>" if lines else ""


def _table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """Numbers stand to the right, the first column holds names."""
    body = "".join(f"<tr>{''.join(_cell(value, i == 0) for i, value in enumerate(row))}</tr>" for row in rows)
    titles = "".join(f"<th>{escape(title)}</th>" for title in head)
    return f"<table><tr>{titles}</tr>{body}</table>" if body else ""


def _cell(value: Any, is_name: bool) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        text = "–" if value is None else "yes" if value is True else "no" if value is False else str(value)
        return f'<td class="name">{escape(text)}</td>' if is_name else f"<td>{escape(text)}</td>"
    return f'<td class="n">{value:.4g}</td>'


def _pairs(values: Mapping[str, Any]) -> str:
    return _table(("choice", "value"), [(key, _plain(value)) for key, value in values.items()])


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items()) or "–"
    return value


def _outputs(verdict: Mapping[str, Any]) -> str:
    measures = ("sqnr_db", "mpeir", "mae", "max_abs", "cosine", "top1_match", "top5_match")
    rows = [[output["name"], *(quality_text(m, output[m]) for m in measures)] for output in verdict["outputs"]]
    return _table(("output", *map(quality_name, measures)), rows)


def _steps(steps: Sequence[Mapping[str, Any]]) -> str:
    rows = [(step["step"], _plain(step["value"]), decibel_text(step.get("sqnr_db")), step["kept"]) for step in steps]
    return _table(("step", "choice", "SQNR", "kept"), rows)


def _layers(layers: Sequence[Mapping[str, Any]], reasons: Mapping[str, str]) -> str:
    head = ("layer", "operator", "scheme", "outputs, this layer alone", "isolated", "accumulated", "")
    rows = [
        (
            layer["name"],
            layer["op"],
            layer["scheme"],
            decibel_text(layer["output_sqnr_db"]),
            decibel_text(layer["isolated"].get("sqnr_db")),
            decibel_text(layer["accumulated"].get("sqnr_db")),
            reasons.get(layer["name"], ""),
        )
        for layer in layers
    ]
    return _table(head, rows)


def _layer_chart(layers: Sequence[Mapping[str, Any]]) -> str:
    """Bars of dB, short and orange where a layer does harm; layers that do none are left out."""
    shown = [layer for layer in layers if layer["output_sqnr_db"] is not None]
    if not shown:
        return ""
    worst = sorted(layer["output_sqnr_db"] for layer in shown)[: max(1, len(shown) // 5)][-1]
    bars = []
    for row, layer in enumerate(shown):
        value = layer["output_sqnr_db"]
        width = _BAR_WIDTH * min(max(value, 0.0), _MOST_DB) / _MOST_DB
        kind, y = "bad" if value <= worst else "bar", row * _BAR_HEIGHT
        name = layer["name"] if len(layer["name"]) <= 48 else f"…{layer['name'][-47:]}"
        bars.append(
            f'<text x="{_LABEL_WIDTH - 6}" y="{y + 12}" text-anchor="end">{escape(name)}</text>'
            f'<rect class="{kind}" x="{_LABEL_WIDTH}" y="{y + 2}" width="{max(width, 1):.1f}" height="12"/>'
            f'<text x="{_LABEL_WIDTH + width + 5:.1f}" y="{y + 12}">{decibel_text(value)}</text>'
        )
    size = f'width="{_LABEL_WIDTH + _BAR_WIDTH + 70}" height="{len(shown) * _BAR_HEIGHT}"'
    return f"<svg {size}>{''.join(bars)}</svg>"


def _histograms(statistics: Mapping[str, TensorStatistics]) -> str:
    """How often values occur (logarithmic), by tensor; dashed lines are the least and the largest seen."""
    shown = [(name, item) for name, item in statistics.items() if item.count]
    figures = [_histogram(name, item) for name, item in shown[:_MOST_PLOTS]]
    more = f"<p>{len(shown) - _MOST_PLOTS} more tensors are left out.</p>" if len(shown) > _MOST_PLOTS else ""
    return f'<div class="charts">{"".join(figures)}</div>{more}' if figures else ""


def _histogram(name: str, item: TensorStatistics) -> str:
    edges, counts = item.histogram.occupied()
    low, high = float(edges[0]), float(edges[-1])
    span = high - low or 1.0
    middles = (edges[:-1] + edges[1:]) / 2
    bins = np.minimum(((middles - low) / span * _PLOT_BINS).astype(int), _PLOT_BINS - 1)
    sums = np.bincount(bins, weights=counts.astype(np.float64), minlength=_PLOT_BINS)
    heights = np.log1p(sums) / np.log1p(sums.max()) * (_PLOT_HEIGHT - 10)
    step = _PLOT_WIDTH / _PLOT_BINS
    bars = "".join(
        f'<rect class="bar" x="{i * step:.1f}" y="{_PLOT_HEIGHT - h:.1f}" width="{step:.1f}" height="{h:.1f}"/>'
        for i, h in enumerate(heights)
        if h > 0
    )
    ends = "".join(
        f'<line class="end" x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{_PLOT_HEIGHT}"/>'
        for x in ((end - low) / span * _PLOT_WIDTH for end in (item.minimum, item.maximum))
    )
    caption = f"{escape(name)}<br>{item.minimum:.4g} … {item.maximum:.4g}, mean {item.mean:.4g}"
    plot = f'<svg width="{_PLOT_WIDTH}" height="{_PLOT_HEIGHT}">{bars}{ends}</svg>'
    return f"<figure>{plot}<figcaption>{caption}</figcaption></figure>"
