"""A compile report as one HTML page that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from odc_mlir.formats.outputs import PAGE_MARK
from odc_mlir.runtime.report_partition import plan_text

_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2em auto; max-width: 72em; padding: 0 1em; color: #222; }
h1 { font-size: 1.4em; } h2 { font-size: 1.1em; margin-top: 2em; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25em .7em .25em 0; border-bottom: 1px solid #ddd; vertical-align: top; }
th { color: #555; font-weight: 600; } td.n, th.n { text-align: right; font-variant-numeric: tabular-nums; }
td.name { overflow-wrap: anywhere; max-width: 30em; }
tr.host td { background: #fff6e8; }
.bar { background: #2f6fb0; height: .8em; display: inline-block; min-width: 1px; }
.bar.stall { background: #e0a030; }
"""

# Rows of the summary: label, key, unit.
_SUMMARY = (
    ("target", "target", ""),
    ("memory mode", "memory", ""),
    ("latency", "latency_ms", "ms"),
    ("NPU cycles", "cycles_total", ""),
    ("NPU cycles, strict memory model", "cycles_total_strict", ""),
    ("lower bound of cycles", "ideal_cycles", ""),
    ("multiply-accumulates", "macs", ""),
    ("use of the multipliers", "mac_utilization", "%"),
    ("peak SRAM", "sram_peak_bytes", "bytes"),
    ("read from off-chip memory", "offchip_read_bytes", "bytes"),
    ("constants as stored", "weights_encoded_bytes", "bytes"),
    ("program", "program_bytes", "bytes"),
    ("operators on the NPU", "npu_op_count", ""),
    ("operators on the host", "host_op_count", ""),
    ("time of host operators, measured", "host_seconds", "s"),
)


def render(report: Mapping[str, Any]) -> str:
    """The page; every text from the model is escaped."""
    layers: Sequence[Mapping[str, Any]] = report["layers"]
    title = escape(f"{report['model']} on {report['target']}")
    parts = [
        "<!DOCTYPE html>",
        f'<html lang="en"><head><meta charset="utf-8">{PAGE_MARK}<title>{title}</title>',
        f"<style>{_STYLE}</style></head><body>",
        f"<h1>{title}</h1>",
        _table(("", ""), ((label, _value(report.get(key), unit)) for label, key, unit in _SUMMARY)),
        "<h2>Why operators are on the host</h2>",
        _reasons(layers),
        "<h2>Why the plan is as it is</h2>",
        _partition(report["partition"]),
        "<h2>Where the cycles go</h2>",
        _engines(report["engines"]),
        "<h2>Operators</h2>",
        _layers(layers),
        "</body></html>",
    ]
    return "\n".join(parts) + "\n"


def _value(value: Any, unit: str) -> str:
    if value is None:
        return "–"
    if unit == "%":
        return f"{100 * value:.1f} %"
    text = f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
    return f"{text} {unit}".strip()


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = "".join(f"<th>{escape(text)}</th>" for text in head)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><tr>{titles}</tr>{body}</table>"


def _reasons(layers: Iterable[Mapping[str, Any]]) -> str:
    counts = Counter((layer["op"], layer["reason"]) for layer in layers if layer["placed"] != "npu")
    if not counts:
        return "<p>None is: the whole model runs on the NPU.</p>"
    rows = ((str(count), op, reason or "") for (op, reason), count in counts.most_common())
    return _table(("count", "operator", "reason"), rows)


def _partition(partition: Mapping[str, Any]) -> str:
    """The plans that were weighed, and what each segment takes and gives."""
    if partition["chosen"] is None:
        return "<p>There was nothing to choose.</p>"
    plans = [plan for plan in partition["plans"] if plan != partition["chosen"]]
    rows = [("chosen", partition["chosen"]), *(("", plan) for plan in plans)]
    weighed = _table(("", "plan"), ((mark, plan_text(plan)) for mark, plan in rows))

    def tensors(items: Iterable[Mapping[str, Any]]) -> str:
        return ", ".join(f"{item['name']} ({item['bytes']:,})" for item in items)

    head = ("segment", "operators", "MACs", "takes (bytes)", "gives (bytes)", "modelled us")
    segments = (
        (
            item["name"],
            str(len(item["operators"])),
            f"{item['macs']:,}",
            tensors(item["inputs"]),
            tensors(item["outputs"]),
            "–" if item["npu_ns"] is None else _parts(item),
        )
        for item in partition["segments"]
    )
    return weighed + _table(head, segments)


def _parts(segment: Mapping[str, Any]) -> str:
    npu, moved, switch = (segment[key] / 1000 for key in ("npu_ns", "transfer_ns", "switch_ns"))
    return f"{npu:,.1f} NPU + {moved:,.1f} tensors + {switch:,.1f} switch"


def _engines(engines: Mapping[str, Mapping[str, float]]) -> str:
    total = max((sum(entry.values()) for entry in engines.values()), default=0) or 1
    rows = "".join(
        f'<tr><td>{escape(name)}</td><td class="n">{entry["busy_cycles"]:,.0f}</td>'
        f'<td class="n">{entry["stall_cycles"]:,.0f}</td><td style="width:60%">'
        f'<span class="bar" style="width:{100 * entry["busy_cycles"] / total:.2f}%"></span>'
        f'<span class="bar stall" style="width:{100 * entry["stall_cycles"] / total:.2f}%"></span></td></tr>'
        for name, entry in engines.items()
    )
    head = '<tr><th>engine</th><th class="n">busy</th><th class="n">stalled</th><th></th></tr>'
    return f"<table>{head}{rows}</table>"


def _layers(layers: Iterable[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr class="{escape(layer["placed"])}"><td class="n">{layer["operator"]}</td><td>{escape(layer["op"])}</td>'
        f'<td class="name">{escape(layer["name"])}</td><td>{escape(layer["segment"] or layer["placed"])}</td>'
        f'<td class="n">{layer["macs"]:,}</td><td class="n">{layer["cycles"]:,}</td>'
        f'<td class="name">{escape(layer["reason"] or "")}</td></tr>'
        for layer in layers
    )
    head = (
        '<tr><th class="n">#</th><th>operator</th><th>result</th><th>placed</th><th class="n">MACs</th>'
        '<th class="n">cycles</th><th>reason</th></tr>'
    )
    return f"<table>{head}{rows}</table>"
