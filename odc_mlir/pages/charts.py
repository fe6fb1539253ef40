"""Charts. Stacked bars are boxes in table cells. Time lines, rooflines and graphs are inline SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter

from odc_mlir.formats.quantities import count_text, size_text
from odc_mlir.pages.markup import Html, joined, tag

COLOURS = 12  # number of colours in the style sheet
_WIDTH, _LEFT, _ROW = 1000, 150, 18
_CHARACTER = 6.5  # upper limit on the mean width of a label's characters
_Place = Callable[[float, float], tuple[float, float]]


def colour(index: int) -> str:
    """Return a colour of the page's palette, by number."""
    return f"var(--c{index % COLOURS})"


def legend(names: Sequence[str]) -> Html:
    """Return the legend of a stacked chart's colours."""
    items = (tag("span", tag("i", style=f"--c:{colour(i)}", title=name), name) for i, name in enumerate(names))
    return tag("div", *items, class_="legend")


def stack(parts: Mapping[str, float], names: Sequence[str], full: float) -> Html:
    """Draw a bar of coloured parts in the order of ``names``. The width is the share of the parts in ``full``."""
    boxes = [
        tag(
            "i",
            style=f"--c:{colour(index)};width:{100 * parts[name] / full:.3f}%",
            title=f"{name}: {count_text(parts[name])}",
        )
        for index, name in enumerate(names)
        if full > 0 and parts.get(name, 0) > 0
    ]
    return tag("div", *boxes, class_="stack")


@dataclass(frozen=True, slots=True)
class BusyOperator:
    """Cycles during which an operator keeps rows of a time line busy: begin, end, begin, end, … by row.

    ``names``: from long to short. A box has the first that fits. ``operator``: position in the model.
    """

    operator: int
    names: Sequence[str]
    cycles: Mapping[str, Sequence[float]]


def time_line(rows: Sequence[str], operators: Iterable[BusyOperator], end: float, *, title: str) -> Html:
    """Draw rows over cycles 0 to ``end``: operators with names and tooltips on grey. If no time passes, return ""."""
    if end <= 0 or not rows:
        return Html("")
    scale, height = (_WIDTH - _LEFT) / end, len(rows) * _ROW
    places = {row: index * _ROW + 2 for index, row in enumerate(rows)}
    parts = [_axis(end, scale, height)]
    for row, y in places.items():
        parts.append(tag("text", row, x=_LEFT - 6, y=y + 11, text_anchor="end"))
        parts.append(tag("rect", class_="idle", x=_LEFT, y=y, width=_WIDTH - _LEFT, height=_ROW - 4))
    for item in operators:
        path, texts = "", []
        for row, cycles in item.cycles.items():
            ends = zip(cycles[::2], cycles[1::2], strict=True)
            boxes = [(_LEFT + a * scale, max((b - a) * scale, 0.4)) for a, b in ends]
            path += "".join(f"M{x:.1f} {places[row]}h{width:.1f}v{_ROW - 4}H{x:.1f}z" for x, width in boxes)
            x, width = max(boxes, key=itemgetter(1))
            if name := next((name for name in item.names if (len(name) + 1) * _CHARACTER <= width), None):
                texts.append(tag("text", name, class_="inside", x=f"{x + 3:.1f}", y=places[row] + 11))
        first, last = min(map(min, item.cycles.values())), max(map(max, item.cycles.values()))
        note = tag("title", f"{item.names[0]}: cycles {count_text(first)} to {count_text(last)}")
        parts += [tag("path", note, d=path, style=f"fill:{colour(item.operator)}", data_op=item.operator), *texts]
    return _svg(_WIDTH, height + 18, title, joined(parts))


def _axis(end: float, scale: float, height: int) -> Html:
    parts = []
    for tick in [0, *(tick for tick in _ticks(max(end, 8), 8) if tick <= end)]:
        x = _LEFT + tick * scale
        anchor = "start" if not tick else "end" if x > _WIDTH - 40 else "middle"
        parts.append(tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=0, y2=height, class_="axis"))
        parts.append(tag("text", count_text(round(tick)), x=f"{x:.1f}", y=height + 13, text_anchor=anchor))
    return joined(parts)


def _ticks(end: float, most: int = 6) -> list[float]:
    """Return the multiples of 1, 2 or 5 times a power of ten between 0 and ``end``, at most ``most``."""
    power = 10.0 ** math.floor(math.log10(end / most))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= end / most)
    return [step * tick for tick in range(1, math.ceil(end / step))]


@dataclass(frozen=True, slots=True)
class StackedSeries:
    """Named amounts of an ``operator`` (if known), one per instant from ``first`` on, zero before and after."""

    name: str
    first: int
    amounts: Sequence[float]
    operator: int | None = None


def layers(items: Sequence[StackedSeries], cycles: Sequence[float], end: float, *, mark: float, title: str) -> Html:
    """Draw stacked amounts, each between two neighbours in ``cycles``, and a dashed line at the cycle ``mark``."""
    if not items or end <= 0:
        return Html("")
    height, floor = 160, [0.0] * len(cycles)
    edges = [_LEFT + x * (_WIDTH - _LEFT) / end for x in (*cycles, end)]
    totals = [0.0] * len(cycles)
    for item in items:
        for place, amount in enumerate(item.amounts, start=item.first):
            totals[place] += amount
    top = max(totals) or 1
    paths = []
    for index, item in enumerate(items):
        upper, lower = "", ""
        for place, amount in enumerate(item.amounts, start=item.first):
            low, high = (height - value / top * (height - 8) for value in (floor[place], floor[place] + amount))
            upper += f"V{high:.1f}H{edges[place + 1]:.1f}"
            lower = f"V{low:.1f}H{edges[place]:.1f}" + lower
            floor[place] += amount
        note = tag("title", f"{item.name}: up to {size_text(max(item.amounts))}")
        drawn = f"{edges[item.first]:.1f} {height - floor[item.first] / top * (height - 8):.1f}{upper}{lower}"
        paths.append(tag("path", note, d=f"M{drawn}Z", style=f"fill:{colour(index)}", data_op=item.operator))
    x = _LEFT + mark * (_WIDTH - _LEFT) / end
    line = tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=0, y2=height, class_="mark")
    label = tag("text", size_text(round(top)), x=_LEFT - 6, y=14, text_anchor="end")
    axis = _axis(end, (_WIDTH - _LEFT) / end, height)
    return _svg(_WIDTH, height + 18, title, joined((*paths, line, label, axis)))


@dataclass(frozen=True, slots=True)
class Roof:
    """A bound of a roofline: ``value`` MACs per cycle for any traffic, or ``slope`` bytes per cycle."""

    name: str
    value: float | None = None
    slope: float | None = None

    def at(self, intensity: float) -> float:
        """Return the MACs per cycle that this bound allows at ``intensity`` MACs per byte."""
        return self.value if self.value is not None else (self.slope or 0.0) * intensity


def roofline(roofs: Sequence[Roof], layers: Sequence[tuple[int, str, float, float]], unit: str, *, title: str) -> Html:
    """Draw (operator, name, MACs per ``unit``, MACs per cycle) below roofs, on logarithmic axes, or "" if none is."""
    shown = [layer for layer in layers if layer[2] > 0 and layer[3] > 0]
    if not shown:
        return Html("")
    height, bottom = 300, 24
    low_x, high_x = _decades([x for _, _, x, _ in shown])
    top = max([roof.value or 0 for roof in roofs] + [y for *_, y in shown])
    low_y, high_y = _decades([y for *_, y in shown] + [top])

    def place(x: float, y: float) -> tuple[float, float]:
        across = (math.log10(x) - low_x) / (high_x - low_x)
        up = (math.log10(max(y, 10.0**low_y)) - low_y) / (high_y - low_y)
        return _LEFT + across * (_WIDTH - _LEFT - 10), height - min(up, 1.0) * (height - 8)

    parts = [_decade_axis(place, low_x, high_x, low_y, high_y, height)]
    for index, roof in enumerate(roofs):
        # A bound is a straight line on logarithmic axes, clipped to the chart.
        first, last = 10.0**low_x, 10.0**high_x
        if roof.slope:
            first, last = max(first, 10.0**low_y / roof.slope), min(last, 10.0**high_y / roof.slope)
        if first >= last:
            continue
        path = "M" + "L".join("{:.1f} {:.1f}".format(*place(x, roof.at(x))) for x in (first, last))
        parts.append(
            tag("path", tag("title", roof.name), d=path, style=f"fill:none;stroke:{colour(index + 1)};stroke-width:1.5")
        )
    for operator, name, x, y in shown:
        cx, cy = place(x, y)
        note = f"{name}: {x:.3g} MACs per {unit}, {y:.3g} MACs per cycle"
        parts.append(_dot(cx, cy, 4, f"fill:{colour(0)};fill-opacity:.75", note, operator))
    names = ["layers", *(roof.name for roof in roofs)]
    return joined((legend(names), _svg(_WIDTH, height + bottom, title, joined(parts))))


def _dot(x: float, y: float, radius: float, style: str, note: str, operator: int | None = None) -> Html:
    return tag("circle", tag("title", note), cx=f"{x:.1f}", cy=f"{y:.1f}", r=radius, style=style, data_op=operator)


def _decades(values: Sequence[float]) -> tuple[int, int]:
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    return low, max(high, low + 1)


def _decade_axis(place: _Place, low_x: int, high_x: int, low_y: int, high_y: int, height: int) -> Html:
    parts = []
    for power in range(low_x, high_x + 1):
        x, _ = place(10.0**power, 10.0**low_y)
        anchor = "end" if power == high_x else "middle"  # the last label stays inside
        parts += [
            tag("line", x1=f"{x:.1f}", x2=f"{x:.1f}", y1=0, y2=height, class_="axis"),
            tag("text", f"{10.0**power:g}", x=f"{x:.1f}", y=height + 14, text_anchor=anchor),
        ]
    for power in range(low_y, high_y + 1):
        _, y = place(10.0**low_x, 10.0**power)
        parts += [
            tag("line", x1=_LEFT, x2=_WIDTH - 10, y1=f"{y:.1f}", y2=f"{y:.1f}", class_="axis"),
            tag("text", f"{10.0**power:g}", x=_LEFT - 6, y=f"{y + 4:.1f}", text_anchor="end"),
        ]
    return joined(parts)


def _svg(width: int, height: int, title: str, content: Html) -> Html:
    drawing = tag(
        "svg", tag("title", title), content, viewBox=f"0 0 {width} {height}", width=width, height=height, role="img"
    )
    return tag("div", drawing, class_="chart")


def scatter(
    points: Sequence[tuple[str, float, float, bool]],
    labels: tuple[str, str],
    *,
    title: str,
    names: tuple[str, str] = ("points", "best points"),
) -> Html:
    """Draw points (name, x, y, highlighted) on linear axes from 0. Return "" if there are no points.

    A line joins the highlighted points, the Pareto front. ``names``: texts of the legend.
    """
    if not points:
        return Html("")
    height, bottom = 300, 34
    top_x, top_y = (max(value) or 1.0 for value in ([p[1] for p in points], [p[2] for p in points]))
    parts = [
        tag("line", x1=_LEFT, x2=_WIDTH, y1=height, y2=height, class_="axis"),
        tag("line", x1=_LEFT, x2=_LEFT, y1=0, y2=height, class_="axis"),
        tag("text", f"{labels[0]} (to {top_x:,.6g})", x=_WIDTH, y=height + 31, text_anchor="end"),
        tag("text", f"{labels[1]} (to {top_y:,.6g})", x=_LEFT + 4, y=11),
    ]

    def placed(x: float, y: float) -> tuple[float, float]:
        return _LEFT + x / top_x * (_WIDTH - _LEFT - 10), height - y / top_y * (height - 14)

    for x in _ticks(top_x):
        cx, _ = placed(x, 0)
        parts.append(tag("line", x1=f"{cx:.1f}", x2=f"{cx:.1f}", y1=14, y2=height, class_="axis"))
        parts.append(tag("text", f"{x:,.6g}", x=f"{cx:.1f}", y=height + 16, text_anchor="middle"))
    for y in _ticks(top_y):
        _, cy = placed(0, y)
        parts.append(tag("line", x1=_LEFT, x2=_WIDTH, y1=f"{cy:.1f}", y2=f"{cy:.1f}", class_="axis"))
        parts.append(tag("text", f"{y:,.6g}", x=_LEFT - 4, y=f"{cy + 4:.1f}", text_anchor="end"))
    front = " ".join(
        "{:.1f},{:.1f}".format(*placed(x, y)) for _, x, y, best in sorted(points, key=itemgetter(1)) if best
    )
    parts.append(tag("polyline", points=front, style=f"fill:none;stroke:{colour(1)}"))
    for name, x, y, stands_out in sorted(points, key=itemgetter(3)):
        cx, cy = placed(x, y)
        style = f"fill:{colour(1 if stands_out else 0)};fill-opacity:{1 if stands_out else 0.45}"
        parts.append(_dot(cx, cy, 5 if stands_out else 3.5, style, f"{name}: {x:,.6g}, {y:,.6g}"))
    shown = _svg(_WIDTH, height + bottom, title, joined(parts))
    return joined((legend(names), shown))


@dataclass(frozen=True, slots=True)
class DiagramNode:
    """Node of a graph: kind of operation, name, and indices of the earlier nodes that feed it."""

    kind: str
    name: str
    feeding: tuple[int, ...] = ()


_NODE_CHARACTERS = 36  # limit on kind and name in the box of a node


def graph(nodes: Sequence[DiagramNode], *, title: str) -> Html:
    """Draw nodes from top to bottom, with edges as arcs on the left. Return "" for no nodes."""
    if not nodes:
        return Html("")
    row, left, width = 22, 70, 330
    parts = []
    for place, node in enumerate(nodes):
        y = place * row
        for source in sorted(set(node.feeding)):
            parts.append(_edge(left, source * row + 16, y + 2, place - source))
        room = max(_NODE_CHARACTERS - len(node.kind), 8)
        shown = node.name if len(node.name) <= room else f"…{node.name[1 - room :]}"
        label = tag("tspan", node.kind, style="fill:var(--ink);font-weight:600")
        style = "fill:var(--panel);stroke:var(--line)"
        parts += [
            tag("rect", x=left, y=y + 2, width=width - left, height=14, rx=3, style=style),
            tag("text", joined((tag("title", node.name), label, f" {shown}")), x=left + 6, y=y + 13),
        ]
    return _svg(width, len(nodes) * row, title, joined(parts))


def _edge(x: int, start: int, end: int, distance: int) -> Html:
    style = "fill:none;stroke:var(--c0);stroke-width:1.2"
    if distance == 1:
        return tag("path", d=f"M{x + 14} {start}V{end}", style=style)
    far = x - min(12 + 6 * distance, x - 4)
    return tag("path", d=f"M{x} {start - 7}C{far} {start} {far} {end} {x} {end + 7}", style=style)
