"""What holds for every compile report."""

from __future__ import annotations

import json
from typing import Any

import pytest

from odc_mlir.runtime.reporting.report_html import render


def check_report(report: dict[str, Any]) -> None:
    """Sums, bounds, and that nothing was measured unless it says so."""
    parts, measured = report["modelled"], report["measured"]
    assert report["latency_ms"] == parts["latency_ms"] == pytest.approx(sum(parts.values()) / 2)
    on_host = sum(layer["host_modelled_ns"] for layer in report["layers"] if layer["placed"] == "host")
    assert 1e6 * parts["host_ms"] == pytest.approx(on_host, abs=len(report["layers"]))
    assert report["macs"] == sum(layer["macs"] for layer in report["layers"])
    assert report["model_floor_cycles"] <= report["ideal_cycles"] <= report["cycles_total"]
    assert sum(layer["cycles"] for layer in report["layers"]) == report["cycles_total"]
    assert report["defects"] == []
    assert set(measured) == {"compile_seconds", "compile_peak_rss_bytes"}
    assert json.loads(json.dumps(report)) == report
    assert f"<h1>{report['model']} on {report['target']}</h1>" in render(report)
