"""Report pages in a real browser, on a wide screen and on a phone's: no error, no overflow, tables that work."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.browser import WIDTHS, find_browser, take_picture, use_pages
from helpers.data import REPOSITORY
from odc_mlir import samples
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.reporting import report_compare, report_html
from odc_mlir.runtime.reporting.report_html import operator_code
from odc_mlir.tools import odc_opt

MODEL = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"
VIEW = "view"
FLOAT_MODEL = REPOSITORY / "examples" / "on_device" / "digits_mobile_hard.circle"


def _longer(report: dict[str, Any]) -> dict[str, Any]:
    """The same with more operators than a table shows at once, and names as converters make them."""
    name = ";".join(f"network/block_{i}/conv2d/BatchNorm/FusedBatchNormV3" for i in range(6))
    layers = [
        {**layer, "name": f"{name}/{turn}", "operator": turn * len(report["layers"]) + layer["operator"]}
        for turn in range(8)
        for layer in report["layers"]
    ]
    return {**report, "layers": layers, "model": f"model_{'x' * 150}"}


def _view(page: Path) -> str:
    out = page.with_suffix(".mlir")
    assert odc_opt.main([str(MODEL), "--stage", "npu", "--target", "npu-256", "-o", str(out), "--view", str(page)]) == 0
    return page.read_text()


@pytest.fixture(scope="module")
def package() -> Package:
    return odc_mlir.compile(MODEL, memory="flash")


@pytest.fixture(scope="module")
def reports(package: Package) -> dict[str, dict[str, Any]]:
    """By name of the page that shows them."""
    return {"report": package.report, "long": _longer(package.report)}


@pytest.fixture(scope="module")
def pages(
    package: Package, reports: dict[str, dict[str, Any]], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, str]:
    flash, sram = package.report, odc_mlir.compile(MODEL, memory="sram").report
    on_host = odc_mlir.compile(FLOAT_MODEL).report
    data = str(samples.path("calibration.npz"))
    verdict = odc_mlir.quantize(FLOAT_MODEL, calibration=data, help=False, max_samples=8)
    return {
        "report": report_html.render(flash, operator_code(package)),
        "long": report_html.render(reports["long"]),
        "host": report_html.render(on_host),
        "verdict": verdict.report_html(),
        "compare": report_compare.render([flash, sram, _longer(sram)]),
        VIEW: _view(tmp_path_factory.mktemp("view") / "view.html"),
    }


def _same_numbers(tables: list[dict[str, Any]], report: dict[str, Any]) -> None:
    """What a browser has in the cells of a report's page is what the report says."""
    shown = {table["caption"]: table["values"] for table in tables}
    operators = shown["operators of the model"]
    for column, key in (("#", "operator"), ("MACs", "macs"), ("cycles", "cycles")):
        assert operators[column] == [layer[key] for layer in report["layers"]], column
    assert shown["cycles by cause"]["cycles"] == list(report["causes"].values())
    for live in report["sram_live"]:
        assert shown[f"in use at the peak of {live['segment']}"]["bytes"] == list(live["held"].values())
    for column in ("busy", "stall", "idle"):
        assert shown["cycles of the engines"][column] == [
            entry[f"{column}_cycles"] for entry in report["engines"].values()
        ]


def test_pages_in_a_browser(pages: dict[str, str], reports: dict[str, dict[str, Any]], tmp_path: Path) -> None:
    if (browser := find_browser()) is None:
        pytest.skip("there is no Chromium; scripts/check installs it where it may")
    found = use_pages(browser, pages, tmp_path)
    assert len(found) == len(pages) * len(WIDTHS)
    for name, page in found.items():
        assert page["errors"] == [], name
        assert page["overflow"] <= 0, f"{name} is too wide by {page['overflow']} pixels"
        assert page["tables"] or VIEW in name, name
        for table in page["tables"]:
            assert table["shown"] == min(table["all"], 30), name
            assert table.get("unfolded", table["all"]) == table["all"], name
            assert table.get("down", []) == sorted(table.get("down", []), reverse=True), name
            assert table.get("up", []) == sorted(table.get("up", [])), name
            assert table.get("searched", True), name
            assert table.get("none", 0) == 0, name
    assert any("unfolded" in table for table in found["long@420"]["tables"])
    for name, report in reports.items():
        for width in WIDTHS:
            _same_numbers(found[f"{name}@{width}"]["tables"], report)
    if kept := os.environ.get("ODC_KEEP_PICTURES"):
        for name, page in pages.items():
            (tmp_path / f"{name}.html").write_text(page)
            for width in WIDTHS:
                take_picture(browser, tmp_path / f"{name}.html", Path(kept) / f"{name}-{width}.png", width)
