"""A compile report as one HTML page that needs nothing else: no script, no font, no picture from anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

from odc_mlir.formats.kinds import PAGE_MARK
from odc_mlir.formats.quantities import NOTHING, count_text, share_text, size_text, time_text
from odc_mlir.runtime.reporting.report_partition import plan_text

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

# Rows of the summary: label, key, how its value is written.
_SUMMARY: tuple[tuple[str, str, Callable[[Any], str]], ...] = (
    ("target", "target", str),
    ("memory mode", "memory", str),
    ("NPU cycles", "cycles_total", count_text),
    ("NPU cycles, strict memory model", "cycles_total_strict", count_text),
    ("least cycles of this program", "ideal_cycles", count_text),
    ("least cycles of the model's operators on this machine", "model_floor_cycles", count_text),
    ("multiply-accumulates", "macs", count_text),
    ("use of the multipliers", "mac_utilization", share_text),
    ("peak SRAM", "sram_peak_bytes", size_text),
    ("read from off-chip memory", "offchip_read_bytes", size_text),
    ("constants as stored", "weights_encoded_bytes", size_text),
    ("program", "program_bytes", size_text),
    ("operators on the NPU", "npu_op_count", count_text),
    ("operators on the host", "host_op_count", count_text),
)

# What the modelled latency consists of: label, key below ``modelled``.
_LATENCY = (
    ("latency, modelled", "latency_ms"),
    ("… on the NPU", "npu_ms"),
    ("… on the host", "host_ms"),
    ("… passing tensors", "transfer_ms"),
    ("… starting segments", "switch_ms"),
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
        _table(("", ""), _summary(report)),
        _defects(report["defects"]),
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


def _summary(report: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Label and value."""
    for label, key in _LATENCY:
        yield label, time_text(1e6 * report["modelled"][key])
    for label, key, text in _SUMMARY:
        yield label, NOTHING if report.get(key) is None else text(report[key])


def _defects(defects: Sequence[Mapping[str, str]]) -> str:
    """What the compiler failed on; nothing where it did not."""
    if not defects:
        return ""
    head = ("operator", "result", "exception", "where")
    rows = ((item["op"], item["tensor"], item["exception"], item["location"]) for item in defects)
    return f"<h2>Defects of the compiler: please report them</h2>{_table(head, rows)}"


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
        return ", ".join(f"{item['name']} ({size_text(item['bytes'])})" for item in items)

    head = ("segment", "operators", "MACs", "takes", "gives", "modelled")
    segments = (
        (
            item["name"],
            str(len(item["operators"])),
            count_text(item["macs"]),
            tensors(item["inputs"]),
            tensors(item["outputs"]),
            NOTHING if item["npu_ns"] is None else _parts(item),
        )
        for item in partition["segments"]
    )
    return weighed + _table(head, segments)


def _parts(segment: Mapping[str, Any]) -> str:
    npu, moved, switch = (time_text(segment[key]) for key in ("npu_ns", "transfer_ns", "switch_ns"))
    return f"{npu} NPU + {moved} tensors + {switch} switch"


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


def _host_time(layer: Mapping[str, Any]) -> str:
    return "" if layer["placed"] == "npu" else time_text(layer["host_modelled_ns"])


def _layers(layers: Iterable[Mapping[str, Any]]) -> str:
    rows = "".join(
        f'<tr class="{escape(layer["placed"])}"><td class="n">{layer["operator"]}</td><td>{escape(layer["op"])}</td>'
        f'<td class="name">{escape(layer["name"])}</td><td>{escape(layer["segment"] or layer["placed"])}</td>'
        f'<td class="n">{layer["macs"]:,}</td><td class="n">{layer["cycles"]:,}</td>'
        f'<td class="n">{_host_time(layer)}</td>'
        f'<td class="name">{escape(layer["reason"] or "")}</td></tr>'
        for layer in layers
    )
    head = (
        '<tr><th class="n">#</th><th>operator</th><th>result</th><th>placed</th><th class="n">MACs</th>'
        '<th class="n">cycles</th><th class="n">host, modelled</th><th>reason</th></tr>'
    )
    return f"<table>{head}{rows}</table>"
