"""``odc-report``: pages, tables and CSV of reports, what changed between two, and what is no report."""

from __future__ import annotations

import copy
import csv
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.damage import json_damage
from helpers.data import REPOSITORY
from odc_mlir.runtime.reporting.report_compare import changes, explanation, titles
from odc_mlir.runtime.reporting.report_table import layer_lines
from odc_mlir.tools.odc_compile import main as compile_main
from odc_mlir.tools.odc_report import main

MODEL = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"


def _run(*arguments: object) -> int:
    return main([str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reports of one model in both memory modes, and a package."""
    made = tmp_path_factory.mktemp("reports")
    for memory in ("flash", "sram"):
        options = ["--memory", memory, "--json", str(made / f"{memory}.json"), "-q"]
        assert compile_main([str(MODEL), "-o", str(made / memory / f"{MODEL.stem}.zip"), *options]) == 0
    return made


@pytest.fixture
def report(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "flash.json").read_text())
    return found


def test_a_package_and_its_report_give_the_same(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    texts, pages = [], []
    for source in ("flash.json", f"flash/{MODEL.stem}.zip"):
        assert _run(folder / source, "-o", tmp_path / "page.html") == 0
        texts.append(capsys.readouterr().out)
        pages.append((tmp_path / "page.html").read_text())
    assert texts[0] == texts[1]
    # The package holds the instructions as well.
    plain = [re.sub(r'<section id="instructions">.*?</section>', "", page, flags=re.DOTALL) for page in pages]
    plain = [page.replace('<a href="#instructions">Instructions</a>', "") for page in plain]
    plain = [re.sub(r'<a href="#operator-\d+">(\d+)</a>', r"\1", page) for page in plain]
    assert plain == [pages[0]] * 2
    assert "cycles, 7 of 7 operators on the NPU" in texts[0]


def test_the_folder_that_odc_mlir_writes_holds_a_package(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(folder / "flash.json") == 0
    expected = capsys.readouterr().out.replace(MODEL.stem, "package", 1)
    odc_mlir.load_package(folder / "flash" / f"{MODEL.stem}.zip").save(tmp_path / "package")
    assert _run(tmp_path) == 0
    assert capsys.readouterr().out == expected


def test_csv(folder: Path, report: dict[str, Any], tmp_path: Path) -> None:
    networks, operators = tmp_path / "n.csv", tmp_path / "o.csv"
    sources = (folder / "flash.json", folder / "sram.json")
    for _ in range(2):  # our own files are replaced
        assert _run(*sources, "--csv", networks, "--csv-operators", operators, "-q") == 0
    with networks.open() as file:
        lines = list(csv.DictReader(file))
    assert [line["memory_mode"] for line in lines] == ["flash", "sram"]
    assert int(lines[0]["cycles_total"]) == report["cycles_total"]
    assert float(lines[0]["inference_time"]) == pytest.approx(report["latency_ms"] / 1000, rel=1e-5)
    assert float(lines[0]["inferences_per_second"]) * float(lines[0]["inference_time"]) == pytest.approx(1, rel=1e-4)
    with operators.open() as file:
        rows = list(csv.DictReader(file))[: len(report["layers"])]
    assert sum(int(row["Op Cycles"]) for row in rows) == report["cycles_total"]
    assert sum(float(row["Network% (cycles)"]) for row in rows) == pytest.approx(100, abs=0.01)
    assert sum(float(row["Network% (MAC)"]) for row in rows) == pytest.approx(100, abs=0.01)
    assert [row["Name"] for row in rows] == [layer["name"] for layer in report["layers"]]
    operators.write_text("mine\n")
    assert _run(*sources, "--csv-operators", operators, "-q") == 1


def test_names_in_csv_are_harmless(report: dict[str, Any], tmp_path: Path) -> None:
    report["model"], report["layers"][0]["name"] = "@m", "=cmd|\x1b[2J"
    path = tmp_path / "r.json"
    path.write_text(json.dumps(report))
    assert _run(path, "--csv", tmp_path / "n.csv", "--csv-operators", tmp_path / "o.csv", "-q") == 0
    assert "\n'@m,npu-256," in (tmp_path / "n.csv").read_text()
    assert ",'=cmd|\\u001b[2J," in (tmp_path / "o.csv").read_text()


def test_what_changed(folder: Path, report: dict[str, Any], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    other = json.loads((folder / "sram.json").read_text())
    found = changes(report, other)
    assert sum(change.cycles for change in found) == other["cycles_total"] - report["cycles_total"]
    assert all(change.cause for change in found if change.cycles)
    spent = other["cycles_total"] - report["cycles_total"]
    parts = re.findall(r"[a-z]+ ([+-][\d,]+)", next(line for line in explanation(report, other) if "by cause" in line))
    assert sum(int(part.replace(",", "")) for part in parts) == pytest.approx(spent, abs=3)
    assert [abs(change.cycles) for change in found] == sorted((abs(c.cycles) for c in found), reverse=True)
    assert titles([report, other]) == ["flash", "sram"]
    assert _run(folder / "flash.json", folder / "sram.json", "-o", tmp_path / "d.html") == 0
    text = capsys.readouterr().out
    assert "flash -> sram" in text
    assert "other machine: npu-256 (flash) against npu-256 (sram)" in text
    page = (tmp_path / "d.html").read_text()
    assert f"{found[0].cycles:+,}" in page


def test_causes(report: dict[str, Any]) -> None:
    assert titles([report, report]) == ["1", "2"]
    assert list(explanation(report, report)) == []
    assert not any(change.cause for change in changes(report, report))
    other = copy.deepcopy(report)
    first, second, third, *_ = other["layers"]
    first |= {"placed": "host", "reason": "too small", "cycles": 0}
    second["causes"] = {**second["causes"], "array": second["causes"].get("array", 0) + 900}
    second["cycles"] += 900
    third["cycles"] += 5
    del third["causes"]
    other["layers"].pop()
    causes = {(change.op, change.name): change.cause for change in changes(report, other)}
    names = [(layer["op"], layer["name"]) for layer in report["layers"]]
    assert causes[names[0]] == "npu -> host: too small"
    assert causes[names[1]].startswith("array +900; bound by ")
    assert causes[names[2]].startswith("bound by ")
    assert causes[names[-1]] == "only in the first"


def test_lines_fit_the_terminal(report: dict[str, Any]) -> None:
    for layer in report["layers"]:
        layer["name"] = f"block/{'x' * 200}/{layer['operator']}"
    lines = list(layer_lines(report, width=90, top=3))
    assert len(lines) == 5
    assert max(map(len, lines)) <= 90
    assert lines[-1] == f"and {len(report['layers']) - 3} more operators"
    assert all("…" in line for line in lines[1:-1])
    cycles = [layer["cycles"] for layer in report["layers"]]
    assert f"{max(cycles):,}" in lines[1], "the longest comes first"


def _live(report: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {**report, "sram_live": [{**report["sram_live"][0], **changes}]}


DAMAGE = {
    "no JSON": lambda report: "{",
    "no table": lambda report: [report],
    "another document": lambda report: {"passed": True},
    "another version": lambda report: {**report, "schema_version": 1},
    "no number": lambda report: {**report, "cycles_total": "many"},
    "a key missing": lambda report: {key: value for key, value in report.items() if key != "engines"},
    "a layer that is none": lambda report: {**report, "layers": [7]},
    "a layer without a name": lambda report: {**report, "layers": [{**report["layers"][0], "name": None}]},
    "a plan without a name": lambda report: {**report, "partition": {**report["partition"], "plans": [{}]}},
    "a plan of nothing": lambda report: {**report, "partition": {"chosen": {}}},
    "causes that are none": lambda report: {**report, "causes": [1]},
    "a cause of text": lambda report: {**report, "causes": {"sram": "x"}},
    "a change without cycles": lambda report: {**report, "what_if": {"sram": {"text": "wider"}}},
    "help of nothing": lambda report: {**report, "layers": [{**report["layers"][0], "helps": [{}]}]},
    "no number at all": lambda report: {**report, "cycles_total": float("nan")},
    "a number beyond all": lambda report: {**report, "macs": 10**400},
    "a clock of text": lambda report: {**report, "clock_hz": "fast"},
    "bytes of text over time": lambda report: _live(report, peak_bytes="many"),
    "an owner without a name": lambda report: _live(report, owners=[{"first": 0, "bytes": []}]),
    "more bytes than instants": lambda report: _live(report, owners=[{"name": "x", "first": 10**6, "bytes": [1]}]),
    "an owner of nothing": lambda report: _live(report, owners=[{"name": "x", "first": 0, "bytes": []}]),
    "a part of a place": lambda report: _live(report, owners=[{"name": "x", "first": 0.5, "bytes": [1]}]),
    "modelled nothing": lambda report: {**report, "modelled": {}},
}


@pytest.mark.parametrize("what", DAMAGE)
def test_what_is_no_report(
    what: str, report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = DAMAGE[what](report)
    path = tmp_path / "r.json"
    path.write_text(made if isinstance(made, str) else json.dumps(made))
    assert _run(path, "-o", tmp_path / "p.html") == 1
    text = capsys.readouterr().err
    assert text.startswith("odc-report: error: ")
    assert text.count("\n") == 1
    assert not (tmp_path / "p.html").exists()


def test_damaged_reports_are_shown_or_refused_in_one_line(
    report: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, path, outcomes = json.dumps(report).encode(), tmp_path / "r.json", set[int]()
    for seed in range(40):
        path.write_bytes(json_damage(data, random.Random(seed)))
        outcomes.add(code := _run(path, "-o", tmp_path / "p.html", "--csv", tmp_path / "n.csv"))
        text = capsys.readouterr().err
        assert (code, text) == (0, "") or (code == 1 and text.count("\n") == 1), seed
    assert outcomes == {0, 1}


def test_a_model_is_no_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "m.circle").write_bytes(b"\x20\0\0\0CIR0\xff\xff\xff\xff")
    assert _run(tmp_path / "m.circle") == 1
    assert "is not a compile report: it is no text; odc-compile --json writes one" in capsys.readouterr().err


def test_a_report_without_cycles(report: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    path.write_text(json.dumps({**report, "cycles_total": 0, "clock_hz": None}))
    assert _run(path, path, "-o", tmp_path / "p.html") == _run(path, "-o", tmp_path / "p.html") == 0
