"""From an operator of the model to the instructions that compute it."""

from __future__ import annotations

import pytest

import odc_mlir
from odc_mlir import samples
from odc_mlir.isa import container
from odc_mlir.isa.compact import read_code
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.reporting import report_html


@pytest.fixture(scope="module")
def package() -> Package:
    return odc_mlir.compile(samples.path("digits_cnn_int8.circle"), target="npu-256")


def test_every_instruction_but_those_of_no_operator_is_there_once(package: Package) -> None:
    code = report_html.operator_code(package)
    assert sorted(code) == list(range(7))
    assert package.plan is not None
    (step,) = package.plan.segments
    program = container.read(package.files.segment(step.file))
    places = [place for item in code.values() for place, _ in item.instructions]
    count = len(read_code(program.code).instructions)
    assert sorted(places) == list(range(count - 1))  # the last one is halt
    mnemonics = [line.partition(" ")[0] for _, line in code[1].instructions]
    assert mnemonics.count("conv") >= 1
    assert code[1].source.startswith("conv2: int8[1, 8, 8, 24] = CONV_2D(conv1: int8[1, 8, 8, 16], ")


def test_the_page_leads_to_them(package: Package, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_html, "MOST_INSTRUCTIONS", 2)
    code = report_html.operator_code(package)
    page = report_html.render(package.report, code)
    assert page.count('href="#operator-') == page.count('<details id="operator-') == len(code)
    assert f"and {len(code[1].instructions) - 2} more: odc-dump --listing" in page
    assert 'href="#operator-' not in report_html.render(package.report)


def test_what_stays_on_the_host_has_none() -> None:
    made = odc_mlir.compile(samples.path("digits_cnn.circle"), target="npu-256")  # everything stays on the host
    assert report_html.operator_code(made) == {}
