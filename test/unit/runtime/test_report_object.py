"""Reports and packages as notebooks and scripts hold them."""

from __future__ import annotations

import csv
import io
import json

import pytest

import odc_mlir
from odc_mlir import samples
from odc_mlir.runtime.reporting.report_html import render
from odc_mlir.runtime.reporting.report_object import Report


@pytest.fixture(scope="module")
def package() -> odc_mlir.Package:
    return odc_mlir.compile(samples.path("digits_cnn_int8.circle"))


def test_it_is_the_plain_data(package: odc_mlir.Package) -> None:
    report = package.report
    assert isinstance(report, Report)
    assert json.loads(report.to_json()) == dict(report)
    assert report.latency_ms == report["latency_ms"]
    assert report.cycles == sum(operator.cycles for operator in report.operators)
    assert [operator.name for operator in report.operators] == [layer["name"] for layer in report["layers"]]
    assert report.to_html() == render(report)
    assert len(list(csv.reader(io.StringIO(report.to_csv())))) == 1 + len(report.operators)


def test_what_is_shown(package: odc_mlir.Package) -> None:
    text = str(package.report)
    assert text.startswith("digits_cnn_int8 on npu-256 (flash): ")
    shown = package.report._repr_html_()
    longest = max(package.report.operators, key=lambda operator: operator.cycles)
    assert f"{longest.cycles:,}" in shown.partition("<tbody>")[2].partition("</tr>")[0]
    assert repr(package) == "<Package digits_cnn_int8, for npu-256>"
    html = package._repr_html_()
    assert all(spec.name in html for spec in (*package.inputs, *package.outputs))
    assert " x ".join(map(str, package.inputs[0].shape or ())) in html


def test_comparing(package: odc_mlir.Package) -> None:
    other = odc_mlir.compile(samples.path("digits_cnn_int8.circle"), memory="sram").report
    assert "flash -> sram" in package.report.compare(other)
