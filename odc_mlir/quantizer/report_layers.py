"""The layers of a quantised model on its page: a graph in the colours of their harm, and each one's values and weights.

A layer's harm is what it alone does to the outputs, in dB of SQNR: the fewer, the worse.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.formats.quantities import count_text, decibel_text
from odc_mlir.formats.visq import COLOURS
from odc_mlir.ops.spec import Array, TensorInfo
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Html, joined, short_name, tag
from odc_mlir.quantizer.layers import CASTS, coded_constants, float_names
from odc_mlir.runtime.execution.binding import to_reals
from odc_mlir.runtime.execution.graph import Graph

LayerRow = Mapping[str, Any]
Statistics = Mapping[str, TensorStatistics]

MOST_OPEN = 30  # layers that are listed at once, as many as a table shows
_MOST_PICTURES = 120
_MOST_NODES = 400
_BINS = 60


@dataclass(frozen=True, slots=True)
class WeightHistogram:
    """How often weights have each of some values: counts between ``low`` and ``high``; and what codes they are."""

    counts: Array
    low: float
    high: float
    text: str


@dataclass(frozen=True, slots=True)
class Drawing:
    """What a page shows of the model itself: its operators by layer name, who feeds whom, and weights."""

    names: tuple[str, ...] = ()
    feeding: tuple[tuple[int, ...], ...] = ()
    weights: Mapping[str, WeightHistogram] = field(default_factory=dict)


def drawing_of(graph: Graph, layers: Sequence[LayerRow]) -> Drawing:
    """What there is to draw of the quantised ``graph`` with these layers; conversions belong to none."""
    names = float_names(graph, {layer["name"]: 0 for layer in layers})
    coded = coded_constants(graph)
    makers: dict[int, int] = {}  # by tensor the place of the layer whose values it holds
    shown: list[str] = []
    feeding: list[tuple[int, ...]] = []
    weights: dict[str, WeightHistogram] = {}
    for item in graph.nodes:
        sources = dict.fromkeys(makers[index] for index in item.inputs if index in makers)
        name = next((names[index] for index in item.outputs if index in names), None)
        if item.node.spec.name in CASTS or name is None:
            makers |= {index: source for index in item.outputs for source in sources}
            continue
        makers |= dict.fromkeys(item.outputs, len(shown))
        shown.append(name)
        feeding.append(tuple(sources))
        infos = (coded.get(item.inputs[i], graph.tensors[item.inputs[i]]) for i in _weights_of(item.inputs, item.node))
        if (found := next((info for info in infos if info.is_const), None)) is not None:
            weights[name] = _counted(found)
    return Drawing(tuple(shown), tuple(feeding), weights)


def _weights_of(inputs: Sequence[int], node: Any) -> list[int]:
    return [place for place in node.spec.quant.trained(node.options) if place < len(inputs) and inputs[place] >= 0]


def _counted(info: TensorInfo) -> WeightHistogram:
    values = np.asarray(to_reals(info, info.array()), np.float64).ravel()
    values = values[np.isfinite(values)]
    low, high = (float(values.min()), float(values.max())) if values.size else (0.0, 0.0)
    counts, _ = np.histogram(values, _BINS, (low, high if high > low else low + 1.0))
    text = f"{count_text(values.size)} of {info.dtype}"
    if info.quant is not None:
        scales = info.quant.scales
        text += (
            f", scale {scales[0]:.4g}"
            if len(scales) == 1
            else (f", {len(scales)} scales {min(scales):.4g} … {max(scales):.4g}")
        )
    return WeightHistogram(counts, low, high, text)


def by_harm(layers: Sequence[LayerRow]) -> list[LayerRow]:
    """The layers, the most harmful first; those that do nothing to the outputs last."""
    return sorted(layers, key=lambda layer: (layer["output_sqnr_db"] is None, layer["output_sqnr_db"] or 0.0))


def anchor(place: int) -> str:
    """Where the page tells more of the layer that is number ``place`` by harm."""
    return f"layer-{place}"


def colours(layers: Sequence[LayerRow]) -> dict[str, str]:
    """The colour of every layer that does harm: nine from yellow to red, for equal parts in dB."""
    harms = {layer["name"]: layer["output_sqnr_db"] for layer in layers if layer["output_sqnr_db"] is not None}
    if not harms:
        return {}
    worst, best = min(harms.values()), max(harms.values())
    span = best - worst or 1.0
    last = len(COLOURS) - 1
    return {name: COLOURS[round(last * (best - db) / span)] for name, db in harms.items()}


def graph_chart(layers: Sequence[LayerRow], drawing: Drawing) -> Html:
    """The graph of layers, each in the colour of its harm and a link to more of it."""
    if not drawing.names:
        return Html("")
    ordered, shades = by_harm(layers), colours(layers)
    places = {layer["name"]: place for place, layer in enumerate(ordered)}
    about = {layer["name"]: layer for layer in layers}
    nodes = [
        charts.DiagramNode(
            about[name]["op"], name, feeding, shades.get(name, "var(--panel)"), f"#{anchor(places[name])}"
        )
        for name, feeding in zip(drawing.names[:_MOST_NODES], drawing.feeding, strict=False)
    ]
    left = len(drawing.names) - len(nodes)
    more = tag("p", f"and {count_text(left)} more") if left > 0 else Html("")
    chart = joined((_legend(ordered), charts.graph(nodes, title="layers in the colours of their harm"), more))
    if len(nodes) <= MOST_OPEN:
        return chart
    return tag("details", tag("summary", f"the graph of {count_text(len(drawing.names))} layers"), chart)


def _legend(ordered: Sequence[LayerRow]) -> Html:
    harmful = [layer["output_sqnr_db"] for layer in ordered if layer["output_sqnr_db"] is not None]
    if not harmful:
        return Html("")
    names = (f"{decibel_text(harmful[0])}, the most harmful", f"{decibel_text(harmful[-1])}, the least")
    boxes = (
        tag("span", tag("i", style=f"--c:{shade}"), name)
        for shade, name in zip((COLOURS[-1], COLOURS[0]), names, strict=True)
    )
    return tag("div", *boxes, class_="legend")


def layer_list(layers: Sequence[LayerRow], drawing: Drawing, statistics: Statistics) -> Html:
    """What each layer gives and what weights it has, folded, the most harmful first."""
    found = [
        tag(
            "details",
            tag("summary", joined((short_name(layer["name"]), f" {layer['op']}, {_harm(layer)}"))),
            _pictures(layer["name"], drawing, statistics) if place < _MOST_PICTURES else tag("p", "no pictures"),
            id=anchor(place),
        )
        for place, layer in enumerate(by_harm(layers))
    ]
    rest = found[MOST_OPEN:]
    more = tag("details", tag("summary", f"{count_text(len(rest))} layers that do less"), *rest) if rest else ""
    return joined((*found[:MOST_OPEN], more))


def _harm(layer: LayerRow) -> str:
    db = layer["output_sqnr_db"]
    return "does nothing to the outputs" if db is None else f"{decibel_text(db)} at the outputs"


def _pictures(name: str, drawing: Drawing, statistics: Statistics) -> Html:
    item, weights = statistics.get(name), drawing.weights.get(name)
    figures = [] if item is None or not item.count else [values_figure(name, item)]
    if weights is not None:
        caption = f"weights: {weights.low:.4g} … {weights.high:.4g}, {weights.text}"
        plot = charts.histogram(_heights(weights.counts), (), title=f"weights of {name}")
        figures.append(tag("figure", plot, tag("figcaption", caption)))
    return tag("div", *figures, class_="plots") if figures else tag("p", "Nothing was recorded of it.")


def values_figure(name: str, item: TensorStatistics) -> Html:
    """How often a tensor has each value; dashed lines are the least and the largest seen."""
    edges, counts = item.histogram.occupied()
    low, high = float(edges[0]), float(edges[-1])
    span = high - low or 1.0
    middles = (edges[:-1] + edges[1:]) / 2
    bins = np.minimum(((middles - low) / span * _BINS).astype(int), _BINS - 1)
    sums = np.bincount(bins, weights=counts.astype(np.float64), minlength=_BINS)
    ends = [(end - low) / span for end in (item.minimum, item.maximum)]
    plot = charts.histogram(_heights(sums), ends, title=f"values of {name}")
    caption = joined((short_name(name), f": {item.minimum:.4g} … {item.maximum:.4g}, mean {item.mean:.4g}"))
    return tag("figure", plot, tag("figcaption", caption))


def _heights(counts: Array) -> list[float]:
    """Counts on a logarithmic scale, the largest 1."""
    most = np.log1p(counts.max(initial=0)) or 1.0
    return [float(height) for height in np.log1p(counts) / most]
