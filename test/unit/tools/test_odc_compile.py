"""odc-compile: packages, reports and refusals; the compiler itself is tested elsewhere."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from helpers import stateful
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.formats.package import read_package
from odc_mlir.formats.quantities import time_text
from odc_mlir.runtime.package import Package
from odc_mlir.tools import odc_compile


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """An int8 addition that the NPU takes, then a float part that it does not."""
    builder = ModelBuilder()
    a, b, c = (builder.tensor(name, (1, 4, 4, 8), "int8", quant=(0.5, 0)) for name in ("a", "b", "c"))
    d, e = builder.tensor("d<&>", (1, 4, 4, 8)), builder.tensor("e", (1, 4, 4, 8))
    builder.operator("ADD", [a, b], [c])
    builder.operator("DEQUANTIZE", [c], [d])
    builder.operator("LOGISTIC", [d], [e])
    path = tmp_path / "mixed.circle"
    path.write_bytes(model_bytes(builder.finish([a, b], [e])))
    return path


def _run(*arguments: object) -> int:
    return odc_compile.main([str(argument) for argument in arguments])


def _error(capsys: pytest.CaptureFixture[str]) -> str:
    text = capsys.readouterr().err
    assert text.startswith("odc-compile: error: ")
    assert text.count("\n") == 1
    return text


def test_package_and_summary(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, "-o", tmp_path / "package") == 0
    plan = read_package(tmp_path / "package").plan
    assert plan is not None
    assert [step.kind for step in plan.steps] == ["segment", "host"]
    text = capsys.readouterr().out
    assert "1 of 3 operators on npu-256 (flash) in 1 segment\n" in text
    assert re.search(r"host: 1 x DEQUANTIZE \(0\.\d+ ms\): ", text)
    assert "  plan: all that the NPU can run there, 1 segment, estimated " in text
    assert "  next best: everything on the host, estimated " in text
    assert "cycles (lower bounds: " in text
    assert "ms, modelled: 0." in text


def test_users_place_operators(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = tmp_path / "net.part"
    part.write_text("[partition]\nbackends=cpu,npu\ndefault=cpu\n")
    assert _run(model, "-o", tmp_path / "p", "--partition", part) == 0
    text = capsys.readouterr().out
    assert "0 of 3 operators on npu-256 (flash)\n  host: " in text
    assert re.search(r"host: 1 x ADD \(0\.\d+ ms\): annotation: placed by", text)
    assert _run(model, "-o", tmp_path / "q", "--partition", part, "--npu", "ADD,DEQUANTIZE") == 0
    text = capsys.readouterr().out
    assert "1 of 3 operators" in text
    assert re.search(r"DEQUANTIZE \(.* ms\): operator: DEQUANTIZE is not supported by the NPU; wanted on the NPU", text)
    assert _run(model, "-o", tmp_path / "r", "--host", "no such thing") == 1
    assert "'no such thing' is neither an opcode nor the name of a result" in _error(capsys)


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--min-operators", "2"], "segment-size: 1 of at least 2 operators"),
        (["--min-macs", "1"], "segment-size: 0 of at least 1 multiply-accumulates"),
        (["--max-segments", "0"], "segment-count: at most 0 segments"),
    ],
)
def test_bounds_of_segments(
    flags: list[str], reason: str, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _run(model, "-o", tmp_path / "p", *flags) == 0
    assert reason in capsys.readouterr().out
    assert _run(model, "--stage", "partition", *flags) == 0
    assert reason in capsys.readouterr().out


def test_all_that_is_supported(model: Path, tmp_path: Path) -> None:
    assert _run(model, "-q", "-o", tmp_path / "p", "--all-supported") == 0
    plan = read_package(tmp_path / "p").plan
    assert plan is not None
    assert plan.partition["chosen"]["name"] == "all-supported"


def test_an_old_package_is_replaced_and_nothing_else(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert _run(model, "-q", "-o", tmp_path / "p.zip") == 0
    assert capsys.readouterr().out == ""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "data").write_text("x")
    assert _run(model, "-o", tmp_path / "precious") == 1
    assert "'data' is in the way" in _error(capsys)
    assert os.listdir(tmp_path / "precious") == ["data"]
    assert _run(model, "-q", "-o", tmp_path / "precious", "--overwrite") == 0
    assert (tmp_path / "precious" / "data").read_text() == "x"


class _Page(HTMLParser):
    """Collects the texts of a page and every address that it would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.fetched: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.fetched += [
            f"{tag} {name}={value}"
            for name, value in attrs
            if name in ("src", "href", "onload") and not (value or "").startswith(("#", "data:,"))
        ]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def test_reports(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page_file, json_file = tmp_path / "r.html", tmp_path / "r.json"
    assert _run(model, "--json", json_file, "--report-html", page_file) == 0
    report = json.loads(json_file.read_text())
    assert report["model"] == model.stem
    assert (report["npu_op_count"], report["host_op_count"]) == (1, 2)
    headline = capsys.readouterr().out.splitlines()[-1]
    assert headline.startswith(f"  latency {time_text(1e6 * report['latency_ms'])}, modelled: ")
    assert _run(model, "-o", tmp_path / "package") == 0
    *_, same, step = capsys.readouterr().out.splitlines()
    assert same == headline, "with or without a report"
    assert step == f"next: odc-run {tmp_path / 'package'} --load DATA"
    page = _Page()
    page.feed(page_file.read_text())
    assert page.fetched == []
    assert time_text(1e6 * report["latency_ms"]) in page.texts
    assert f"{model.stem} on npu-256" in page.texts
    assert "d<&>" in page.texts, "names are escaped, and complete"
    assert any(text.startswith("element-type") for text in page.texts)
    assert "url(" not in page_file.read_text(), "nor does the style fetch anything"


def test_emit(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, "--stage", "partition") == 0
    assert "odc.segment" in capsys.readouterr().out
    assert _run(model, "--stage", "circle", "-o", tmp_path / "m.mlir") == 0
    assert "circle.add" in (tmp_path / "m.mlir").read_text()
    assert _run(tmp_path / "m.mlir", "-q", "-o", tmp_path / "package") == 0
    assert read_package(tmp_path / "package").plan is not None


def test_states_are_kept_or_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "gru.circle", tmp_path / "package"
    path.write_bytes(model_bytes(stateful.gru(size=8, declare=False)))
    assert _run(path, "-o", out, "--state", "cell/h_next=cell/h") == 0
    assert [state.name for state in Package.from_path(out).states] == ["cell/h"]
    assert _run(out, "-o", tmp_path / "shown", "--state", "none") == 0
    assert [item.name for item in Package.from_path(tmp_path / "shown").inputs] == ["x", "cell/h"]
    assert _run(path, "--stage", "partition", "--state", "cell/h_next=cell/h") == 0
    assert "odc.kept_states = array<i64: 1, 0>" in capsys.readouterr().out
    assert _run(path, "-o", out, "--state", "cell/h_next") == 1
    assert "is not OUT=IN" in _error(capsys)


def test_strict(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, "--strict", "-o", tmp_path / "package") == 1
    assert "2 operators stay on the host: DEQUANTIZE 'd<&>'" in _error(capsys)
    assert not (tmp_path / "package").exists()


@pytest.mark.parametrize(
    ("flags", "text"),
    [
        (["--quantize", "int8"], "the model is quantised already"),
        (["--calibration", "c.npz"], "--calibration is for quantising, which was not requested; add --quantize int8"),
        (["--labels"], "--labels is for quantising"),
        (["--max-drop", "1"], "--max-drop is for quantising"),
        (["--io", "float"], "--io is for quantising"),
        (["--allow-accuracy-loss"], "--allow-accuracy-loss is for quantising"),
        (["--target", "machine-9"], "unknown target 'machine-9'; use one of"),
        (["--target", "npu256"], "unknown target 'npu256'; did you mean 'npu-256'? use one of"),
        (["--sram-limit", "0"], "--sram-limit is 0, expected a positive number of bytes"),
        (["--stage", "no-such-stage"], "unknown stage 'no-such-stage'; use one of circle,"),
        (["--stage", "quant", "--before", "circle-simplfy=cse"], "did you mean 'circle-simplify'?"),
        (["--stage", "quant", "--before", "npu-insert-sync=cse"], "which does not run here"),
        (["--stage", "objekt"], "unknown stage 'objekt'; use one of circle,"),
    ],
)
def test_refusals(model: Path, tmp_path: Path, flags: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model, "-o", tmp_path / "package", *flags) == 1
    assert text in _error(capsys)


def test_usage(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(model) == 2
    assert "give -o, --stage or a report" in capsys.readouterr().err
    assert _run(model, "-o", "x", "--memory", "rom") == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("quiet", [False, True])
def test_progress_on_a_terminal(
    model: Path, tmp_path: Path, quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line that is written again and taken away in the end."""
    monkeypatch.setattr(sys, "stderr", terminal := _Terminal())
    assert _run(model, "-o", tmp_path / "p", *["-q"] * quiet) == 0
    lines = terminal.getvalue().split("\r\x1b[K")
    assert (terminal.getvalue() == "") is quiet
    if not quiet:
        assert lines[-1] == ""
        assert re.fullmatch(r"odc-compile: reading the model, \d+\.\d s", lines[1])
        assert any(line.startswith("odc-compile: npu-sched: npu-choose-tiles") for line in lines)


def test_sizes_may_have_units(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("100K", "0x19000", "102400"):
        assert _run(model, "-q", "-o", tmp_path / f"{text}.zip", "--sram-limit", text) == 0
    assert len({path.read_bytes() for path in tmp_path.glob("*.zip")}) == 1
    assert _run(model, "-o", tmp_path / "p", "--sram-limit", "much") == 2
    assert "'much' is not a size" in capsys.readouterr().err


def test_quiet_but_for_a_package_that_does_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "float.circle"
    builder = ModelBuilder()
    x, y = builder.tensor("x", (1, 8)), builder.tensor("y", (1, 4))
    weights = builder.tensor("w", (4, 8), data=np.ones((4, 8), np.float32))
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y])
    path.write_bytes(model_bytes(builder.finish([x], [y])))
    assert _run(path, "-q", "-o", tmp_path / "p") == 0
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("odc-compile: warning: float: 100.0 % of the MACs stay on the host: ")
    assert "--quantize int8 --calibration" in told.err
    assert told.err.count("\n") == 1


def test_packages_are_reproducible(model: Path, tmp_path: Path) -> None:
    """Compiling twice gives the same bytes: nothing measured gets into a package."""
    for name in ("a.zip", "b.zip"):
        assert _run(model, "-q", "-o", tmp_path / name) == 0
    first, second = (np.frombuffer((tmp_path / name).read_bytes(), np.uint8) for name in ("a.zip", "b.zip"))
    np.testing.assert_array_equal(first, second)
