"""Compile reports as CSV, per network and per operator.

Columns that mean what Arm Vela's of the same name mean have its names (``cycles_total``, ``Op Cycles``, …), so that
tables of both can be laid side by side; what is ours alone has ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odc_mlir.formats.tables import csv_text

# Column -> key of the report.
_NETWORK = (
    ("network", "model"),
    ("accelerator_configuration", "target"),
    ("memory_mode", "memory"),
    ("core_clock", "clock_hz"),
    ("inference_time", "latency_s"),
    ("inferences_per_second", "inferences_per_second"),
    ("sram_memory_used", "sram_peak_bytes"),
    ("nn_macs", "macs"),
    ("cycles_total", "cycles_total"),
    ("cycles_total_strict", "cycles_total_strict"),
    ("model_floor_cycles", "model_floor_cycles"),
    ("ideal_cycles", "ideal_cycles"),
    ("mac_utilization", "mac_utilization"),
    ("offchip_read_bytes", "offchip_read_bytes"),
    ("sram_read_bytes", "sram_read_bytes"),
    ("sram_write_bytes", "sram_write_bytes"),
    ("weights_raw_bytes", "weights_raw_bytes"),
    ("weights_encoded_bytes", "weights_encoded_bytes"),
    ("program_bytes", "program_bytes"),
    ("npu_operators", "npu_op_count"),
    ("host_operators", "host_op_count"),
)
_LAYER = (
    ("network", "model"),
    ("operator", "operator"),
    ("Original Operator", "op"),
    ("Target", "placed"),
    ("segment", "segment"),
    ("Op Cycles", "cycles"),
    ("Network% (cycles)", "share"),
    ("MAC Count", "macs"),
    ("Network% (MAC)", "mac_share"),
    ("host_modelled_ns", "host_modelled_ns"),
    ("first_cycle", "first_cycle"),
    ("last_cycle", "last_cycle"),
    ("Name", "name"),
    ("reason", "reason"),
)


def network_csv(reports: Iterable[Mapping[str, Any]]) -> str:
    """One line per report."""
    lines = []
    for report in reports:
        seconds = report["latency_ms"] / 1000
        lines.append({**report, "latency_s": seconds, "inferences_per_second": 1 / seconds if seconds else None})
    return _csv(_NETWORK, lines)


def layer_csv(reports: Iterable[Mapping[str, Any]]) -> str:
    """One line per operator; after the common columns, busy cycles of every engine."""
    reports = list(reports)
    engines = sorted({name for r in reports for layer in r["layers"] for name in layer.get("busy_cycles", {})})
    lines = []
    for report in reports:
        macs = report["macs"] or 1
        cycles = report["cycles_total"] or 1
        for layer in report["layers"]:
            shares = {"share": 100 * layer["cycles"] / cycles, "mac_share": 100 * layer["macs"] / macs}
            busy = {f"busy {name}": value for name, value in layer.get("busy_cycles", {}).items()}
            lines.append({**layer, **shares, **busy, "model": report["model"]})
    return _csv((*_LAYER, *((f"busy {name}", f"busy {name}") for name in engines)), lines)


def _csv(columns: Sequence[tuple[str, str]], lines: Iterable[Mapping[str, Any]]) -> str:
    cells = ([_text(line.get(key)) for _, key in columns] for line in lines)
    return csv_text([[title for title, _ in columns], *cells])


def _text(value: object) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) and value != round(value) else str(value)
