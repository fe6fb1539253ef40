"""The command line of odc-opt, beyond what the lit files show."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from unittest import mock

import pytest

from odc_mlir.formats.circle.model import Model, Operator, SubGraph, Tensor
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.tools.odc_opt import main

TENSORS = [Tensor("x", "float32", (2,)), Tensor("y", "float32", (2,)), Tensor("c", "float32", (2, 16), buffer=1)]
GRAPH = SubGraph("main", TENSORS, (0,), (1, 2), [Operator("RELU", inputs=(0,), outputs=(1,))])
CIRCLE = write_model(Model(subgraphs=[GRAPH], buffers=[memoryview(b""), memoryview(bytes(range(128)))]))


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    path.write_bytes(CIRCLE)
    return path


def _main(*words: object) -> int:
    return main([str(word) for word in words])


def test_files_are_written_whole_with_constants_and_names(model: Path, tmp_path: Path) -> None:
    text, circle = tmp_path / "out.mlir", tmp_path / "out.circle"
    assert _main(model, "-o", text) == 0
    assert "external_resources" in text.read_text()
    assert 'loc("y")' in text.read_text()
    assert _main(text, "-t", "circle", "-o", circle) == 0
    assert circle.read_bytes() == write_model(read_model(circle))
    assert [tensor.name for tensor in read_model(circle).subgraphs[0].tensors] == ["x", "y", "c"]


def test_constants_can_be_left_out(model: Path, tmp_path: Path) -> None:
    elided, again = tmp_path / "elided.mlir", tmp_path / "again.mlir"
    assert _main(model, "--constants", "elide", "-o", elided) == 0
    assert "external_resources" not in elided.read_text()
    assert _main(elided, "--dce", "-o", again) == 0  # what is unknown stays unknown
    assert again.read_text() == elided.read_text()
    assert _main(elided, "--constants", "keep", "-o", again) == 1


def test_a_terminal_gets_the_short_form(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys.stdout, "isatty", return_value=True):
        assert _main(model) == 0
    assert "loc(" not in (short := capsys.readouterr().out)
    assert "external_resources" not in short
    with mock.patch.object(sys.stdout, "isatty", return_value=True):
        assert _main(model, "--constants", "keep", "--print-debuginfo") == 0
    assert "loc(" in (whole := capsys.readouterr().out)
    assert "external_resources" in whole


@pytest.mark.parametrize("words", [(), ("-",)])
def test_standard_input(words: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(CIRCLE))):
        assert _main(*words) == 0
    assert "circle.relu" in capsys.readouterr().out


def test_errors_of_standard_input_name_it(capsys: pytest.CaptureFixture[str]) -> None:
    with mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"\nnonsense"))):
        assert _main("-") == 1
    assert "<stdin>:2:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("--list-passes", ["circle-infer-shapes", "canonicalize"]),
        ("--list-stages", ["circle-opt", "partition", "(circle-infer-shapes)"]),
        ("--list-targets", ["mlir", "circle", "npu-listing"]),
        (
            "--list-rules",
            ["CONV_2D\n  rank-4: input and result are [N, H, W, C]\n", "PAD -> CONV_2D"],
        ),
    ],
)
def test_lists(flag: str, expected: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(flag) == 0
    output = capsys.readouterr().out
    assert all(word in output for word in expected)


def test_every_listed_pass_has_a_flag(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main("--list-passes") == 0
    assert len(set(capsys.readouterr().out.split())) > 50
    assert _main(model, "--apply-individual-rewrite") == 1
    assert "apply-individual-rewrite requires argument" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "status"),
    [(("--no-such",), 2), (("-t", "no-such"), 2), (("--constants", "some"), 2), (("--", "--dce"), 1), (("-h",), 0)],
)
def test_exit_codes(words: tuple[str, ...], status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert _main(*words) == status
    assert capsys.readouterr()
