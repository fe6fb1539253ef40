"""Parts of the page about the machine: rooflines of its ports and lanes, energy by action, steps of the plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

from odc_mlir.formats.quantities import count_text, share_text, size_text, time_text
from odc_mlir.pages import charts
from odc_mlir.pages.markup import Column, Html, TableCell, joined, short_name, table, tag

# Resource of ``amounts`` -> its name, the key of ``hardware`` that says how much of it there is in a cycle, one of it.
_ROOFS = {
    "sram": ("SRAM port", "sram_bytes_per_cycle", "byte over the SRAM port"),
    "offchip": ("off-chip port", "offchip_bytes_per_cycle", "byte over the off-chip port"),
    "requant": ("requantisation lanes", "requant_lanes", "result"),
}


def rooflines(report: Mapping[str, Any]) -> Html:
    """A roofline for each of :data:`_ROOFS` that operators used; nothing where the report does not say so."""
    machine: Mapping[str, int] = report.get("hardware") or {}
    if not machine:
        return Html("")
    multipliers = charts.Roof("multipliers", value=float(machine["macs_per_cycle"]))
    drawn = []
    for resource, (name, rate, unit) in _ROOFS.items():
        points = list(_points(report["layers"], resource))
        roofs = [multipliers, charts.Roof(name, slope=float(machine[rate]))]
        if chart := charts.roofline(roofs, points, unit, title=f"MACs per cycle over MACs per {unit}"):
            drawn.append(joined((tag("h3", f"MACs per cycle over MACs per {unit}"), chart)))
    return joined(drawn)


def _points(layers: Iterable[Mapping[str, Any]], resource: str) -> Iterator[tuple[str, float, float]]:
    """(name, MACs by unit of the resource, MACs per cycle) of the operators that used it."""
    for layer in layers:
        used = layer.get("amounts", {}).get(resource, 0)
        if used and layer["macs"] and layer["cycles"]:
            yield f"{layer['op']} {layer['name']}", layer["macs"] / used, layer["macs"] / layer["cycles"]


def energy(found: Mapping[str, Any]) -> Html:
    """The estimate by action."""
    total = found.get("estimate_uj")
    if not total:
        return Html("")
    bounds = f"{total:.3g} µJ, between {found['low_uj']:.3g} and {found['high_uj']:.3g}; {found['estimated_with']}"
    columns = (Column("action"), Column("µJ", number=True), Column("share", number=True), Column(" "))
    full = max(found["parts_uj"].values())
    rows = [
        (
            name.replace("_", " "),
            TableCell(f"{part:.3g}", part),
            TableCell(share_text(part / total), part),
            charts.stack({name: part}, [name], full),
        )
        for name, part in sorted(found["parts_uj"].items(), key=lambda item: -item[1])
    ]
    return joined((tag("p", bounds), table(columns, rows, caption="energy by action")))


def steps(report: Mapping[str, Any]) -> Html:
    """The plan as a row of boxes: segments, and what the host does before, between and behind them."""
    segments = {item["name"]: item for item in report["partition"]["segments"]}
    boxes = [_box(name, list(found), segments) for name, found in groupby(_ran(report["layers"]), key=_place)]
    return tag("div", *boxes, class_="steps") if segments else Html("")


def _ran(layers: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Operators in the order in which they run: those of a segment together, where its first one stands."""
    first: dict[str, int] = {}
    for index, layer in enumerate(layers):
        first.setdefault(_place(layer), index)
    return sorted(layers, key=lambda layer: first[_place(layer)] if layer["segment"] else layer["operator"])


def _place(layer: Mapping[str, Any]) -> str:
    return layer["segment"] or "host"


def _box(name: str, layers: Sequence[Mapping[str, Any]], segments: Mapping[str, Mapping[str, Any]]) -> Html:
    """A segment with its size, time and tensors, or a run of host operators with their kinds and time."""
    count = f"{len(layers)} operator{'s' if len(layers) > 1 else ''}"
    segment = segments.get(name)
    if segment is None:
        kinds = ", ".join(dict.fromkeys(layer["op"] for layer in layers))
        taken = time_text(sum(layer["host_modelled_ns"] for layer in layers))
        return tag("div", tag("strong", "host"), tag("span", count), tag("span", short_name(kinds)), tag("span", taken))
    taken = "" if segment["npu_ns"] is None else time_text(segment["npu_ns"])
    passed = [
        tag("span", f"{word} {size_text(sum(item['bytes'] for item in segment[key]))}")
        for word, key in (("takes", "inputs"), ("gives", "outputs"))
    ]
    macs = tag("span", f"{count_text(segment['macs'])} MACs")
    return tag("div", tag("strong", name), tag("span", count), macs, tag("span", taken), *passed, class_="device")


def live_bytes(report: Mapping[str, Any]) -> Html:
    """What lies in SRAM over the cycles of each segment, and what does at its peak; nothing where unknown."""
    found: Sequence[Mapping[str, Any]] = report.get("sram_live") or ()
    return joined(joined((tag("h3", live["segment"]) if len(found) > 1 else "", _live_segment(live))) for live in found)


def _live_segment(live: Mapping[str, Any]) -> Html:
    peak, owners = live["peak_bytes"], [own["name"] for own in live["owners"]]
    at = f"cycle {count_text(round(live['peak_cycle']))} of {live['segment']}"
    text = f"{size_text(peak)} are in use at {at}, the most; {size_text(live['reserved_bytes'])} are reserved"
    layers = [charts.StackedSeries(own["name"], own["first"], own["bytes"]) for own in live["owners"]]
    title = f"bytes in use over cycles of {live['segment']}"
    chart = charts.layers(layers, live["cycles"], live["run_cycles"], mark=live["peak_cycle"], title=title)
    columns = (Column("of"), Column("bytes", number=True), Column("share", number=True), Column(" "))
    rows = [
        (
            short_name(name),
            TableCell(size_text(size), size),
            TableCell(share_text(size / peak), size),
            charts.stack({name: size}, owners, peak),
        )
        for name, size in live["held"].items()
    ]
    return joined((tag("p", text), chart, table(columns, rows, caption=f"in use at the peak of {live['segment']}")))
