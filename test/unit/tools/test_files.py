"""Arguments that name files: what is checked before a command works, and what ``-`` is."""

from __future__ import annotations

import argparse
import errno
import io
import json
import os
import re
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.formats.kinds import ARRAYS, json_kind
from odc_mlir.tools import (
    odc_compile,
    odc_diff,
    odc_dump,
    odc_opt,
    odc_optimize,
    odc_package,
    odc_quantize,
    odc_run,
    odc_sim,
)
from odc_mlir.tools.common import base_parser, run_tool
from odc_mlir.tools.files import add_input, add_output, add_overwrite

REPORT = json_kind("a report", "a")
Main = Callable[[list[str]], int]


def _run(argv: list[str]) -> int:
    """A command that writes a report, ``{"a": <what it read>}``."""
    parser = base_parser("odc-test", "a test")
    add_input(parser, "model")
    add_input(parser, "--data", stdin=False)
    add_output(parser, "-o", "--output", kind=REPORT)
    add_output(parser, "--dump", kind=ARRAYS)
    add_overwrite(parser)

    def body(arguments: argparse.Namespace) -> None:
        content = Path(arguments.model).read_text()
        if not arguments.output or arguments.files.write_json("output", lambda: {"a": content}):
            print("done", file=arguments.files.messages)

    return run_tool(parser, body, argv)


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    Path("r.npz").write_bytes(b"data")
    Path("m").write_text("model")
    return "m"


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["m", "-o", "r.npz", "--dump", "./r.npz"], "--dump and --output both write './r.npz'"),
        (["m", "-o", "m"], "it is read as well"),
        (["m", "-o", "m", "--overwrite"], "it is read as well"),
        (["m", "--data", "r.npz", "--dump", "r.npz", "--overwrite"], "it is read as well"),
        (["m", "--dump", "r.txt"], r"cannot tell the format of 'r\.txt' by its name"),
        (["m", "--dump", "-"], "--dump is -, but a file of arrays cannot be written to standard output"),
        (["m", "--data", "-"], "--data is -, but standard input is not supported here"),
        (["m", "-o", ""], "--output names no file"),
        (["m", "-o", "m/r"], "the output cannot be written"),
        (["pipe"], "pipe is not a regular file"),
        (["m", "--data", "pipe"], "pipe is not a regular file"),
        (["m", "--data", "/dev/null"], "/dev/null is not a regular file"),
        (["m", "-o", "pipe"], "nobody reads the pipe"),
    ],
)
def test_refused(argv: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert _run(argv) == 1
    told = capsys.readouterr()
    assert not told.out
    assert told.err.count("\n") == 1
    assert re.search(said, told.err)


def test_folders_are_made(model: str) -> None:
    assert _run([model, "-o", "a/b/r.json"]) == 0
    assert json.loads(Path("a/b/r.json").read_text()) == {"a": "model"}
    assert _run([model, "-o", "a/b/r.json"]) == 0


def test_a_command_that_fails_leaves_no_folders(model: str) -> None:
    assert odc_quantize.main([model, "-o", "a/b/q.circle", "--json", "c/r.json"]) == 1
    assert not os.path.exists("a")
    assert not os.path.exists("c")


@pytest.mark.parametrize("name", ["-", "/dev/stdin"])
def test_standard_input_and_output(
    name: str, model: str, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"piped")))
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO()))
    assert _run([name, "-o", "-"]) == 0
    written = sys.stdout.buffer
    assert isinstance(written, io.BytesIO)
    assert json.loads(written.getvalue()) == {"a": "piped"}
    assert b"done" in capfdbinary.readouterr().err


def test_a_pipe_that_is_read(model: str) -> None:
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    assert _run([model, "-o", "pipe"]) == 0
    assert json.loads(os.read(reader, 1000)) == {"a": "model"}
    os.close(reader)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["-o", "p", "--json", "p/r.json"], "--json 'p/r.json' is inside the folder of --output"),
        (["-o", "p.circle"], "this is the name of a single file"),
        (["-o", "p.JSON"], "this is the name of a single file"),
    ],
)
def test_folders_of_packages(argv: list[str], said: str, model: str, capsys: pytest.CaptureFixture[str]) -> None:
    before = sorted(Path().iterdir())
    assert odc_compile.main(["m", *argv]) == 1
    assert said in capsys.readouterr().err
    assert sorted(Path().iterdir()) == before


def test_what_came_from_standard_input_is_called_so(
    model: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"no model")))
    assert odc_dump.main(["-"]) == 1
    assert "error: <stdin> is of an unknown kind" in capsys.readouterr().err


# ---- the commands


def _relu() -> bytes:
    builder = ModelBuilder()
    x = builder.tensor("x", (1, 4), "int8", quant=(0.5, 3))
    y = builder.tensor("y", (1, 4), "int8", quant=(0.5, 3))
    builder.operator("RELU", [x], [y])
    return model_bytes(builder.finish([x], [y]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A quantised model, a float one, calibration data, inputs, a segment."""
    folder = tmp_path_factory.mktemp("files")
    (folder / "q.circle").write_bytes(_relu())
    (folder / "f.circle").write_bytes(model_bytes(add_model()))
    arrays = [np.random.default_rng(0).normal(size=(16, 1, 4)).astype(np.float32) for _ in range(2)]
    np.savez(folder / "cal.npz", in_0=arrays[0], in_1=arrays[1])
    np.savez(folder / "in.npz", in_0=np.zeros((1, 4), np.int8))
    odc_mlir.compile(folder / "q.circle", placement={"strategy": "supported"}).save(folder / "p.zip")
    odc_mlir.compile(folder / "q.circle", placement={"strategy": "supported"}).save(folder / "p")
    segment = next((folder / "p").rglob("*.npu"))
    (folder / "s.npu").write_bytes(segment.read_bytes())
    return folder


@pytest.fixture(autouse=True)
def there(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


READERS: list[tuple[Main, str, list[str]]] = [
    (odc_compile.main, "q.circle", ["-q", "-o", "new/p"]),
    (odc_run.main, "p.zip", ["-q"]),
    (odc_sim.main, "s.npu", ["-q"]),
    (odc_dump.main, "p.zip", []),
    (odc_opt.main, "q.circle", ["-o", "new/q.mlir"]),
    (odc_quantize.main, "f.circle", ["-q", "--no-help", "--calibration", "cal.npz", "-o", "new/q.circle"]),
    (odc_diff.main, "q.circle", ["host"]),
    (lambda argv: odc_package.main(["verify", *argv]), "p.zip", []),
]


@pytest.mark.parametrize(("main", "name", "rest"), READERS, ids=[name for _, name, _ in READERS])
def test_every_command_reads_standard_input(
    main: Main, name: str, rest: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, *rest]) == 0
    expected = capsys.readouterr().out.replace(name, "<stdin>")
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path(name).read_bytes())))
    assert main(["-", *rest]) == 0
    assert capsys.readouterr().out == expected


class _Closed(io.TextIOBase):
    """Standard output whose reader has gone."""

    def write(self, text: str) -> int:
        raise BrokenPipeError

    def flush(self) -> None:
        raise BrokenPipeError


WRITERS: list[tuple[Main, list[str], list[str]]] = [
    (odc_compile.main, ["q.circle", "-o", "out.zip", "--json", "r.json", "--report-html", "r.html"], []),
    (
        odc_run.main,
        ["p", "--load", "in.npz", "--dump", "o.npz", "--dump:raw", "raw", "--profile", "r.json", "--trace", "t.json"],
        ["raw.0"],
    ),
    (odc_sim.main, ["s.npu", "--load", "in.npz", "--dump", "o.npz", "--stats", "r.json", "--trace", "t.json"], []),
    (
        odc_quantize.main,
        ["f.circle", "--no-help", "--calibration", "cal.npz", "-o", "out.circle", "--report-html", "r.html"],
        [],
    ),
]


@pytest.mark.parametrize(("main", "argv", "more"), WRITERS, ids=[argv[0] for _, argv, _ in WRITERS])
def test_a_closed_pipe_loses_no_output(
    main: Main, argv: list[str], more: list[str], folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outputs = [*(word for flag, word in pairwise(argv) if _is_output(flag)), *more]
    argv = [str(tmp_path / word) if _is_output(flag) else word for flag, word in zip(["", *argv], argv, strict=False)]
    monkeypatch.setattr(sys, "stdout", _Closed())
    assert main(argv) == 0
    expected = {name for name in outputs if name != "raw"}
    assert {path.name for path in tmp_path.iterdir()} == expected


@pytest.mark.parametrize(("main", "argv", "more"), WRITERS, ids=[argv[0] for _, argv, _ in WRITERS])
def test_every_output_is_recognised_the_next_time(
    main: Main, argv: list[str], more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In a folder that is made; but raw files, which nothing marks; what somebody changed is not."""
    argv = [
        str(tmp_path / "new" / word) if _is_output(flag) else word
        for flag, word in zip(["", *argv], argv, strict=False)
    ]
    if "--dump:raw" in argv:
        del argv[argv.index("--dump:raw") : argv.index("--dump:raw") + 2]
    assert main(argv) == 0
    assert main(argv) == 0
    for path in (tmp_path / "new").iterdir():
        content = path.read_bytes()
        path.write_bytes(b"mine" + content)
        assert main(argv) == 1
        assert "that odc-mlir wrote" in capsys.readouterr().err
        path.write_bytes(content)


class _Full(io.TextIOBase):
    """Standard output, as file or pipe, that takes nothing: ``error`` says why."""

    def __init__(self, error: OSError) -> None:
        self.error = error

    @property
    def buffer(self) -> _Full:
        return self

    def isatty(self) -> bool:
        return False

    def write(self, data: object) -> int:
        raise self.error

    def flush(self) -> None:
        """There is nothing to write."""


@pytest.mark.parametrize("is_full", [True, False])
@pytest.mark.parametrize(
    ("main", "argv"),
    [
        (odc_compile.main, ["q.circle", "-o", "out.zip", "--json", "-", "--report-html", "r.html"]),
        (odc_run.main, ["p", "--load", "in.npz", "--dump", "o.npz", "--profile", "-", "--trace", "t.json"]),
        (odc_sim.main, ["s.npu", "--load", "in.npz", "--dump", "o.npz", "--trace", "t.json", "--stats", "-"]),
        (odc_optimize.main, ["f.circle", "-o", "out.circle", "--json", "-"]),
        (
            odc_quantize.main,
            ["f.circle", "--no-help", "--calibration", "cal.npz", "-o", "out.circle", "--json", "-"]
            + ["--report-html", "r.html"],
        ),
    ],
    ids=["compile", "run", "sim", "optimize", "quantize"],
)
def test_a_report_that_cannot_be_written_loses_no_output(
    main: Main,
    argv: list[str],
    is_full: bool,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    outputs = {word for flag, word in pairwise(argv) if _is_output(flag)} - {"-"}
    argv = [str(tmp_path / word) if word in outputs else word for word in argv]
    error = OSError(errno.ENOSPC, "No space left on device") if is_full else BrokenPipeError()
    monkeypatch.setattr(sys, "stdout", _Full(error))
    assert main([*argv, "-q"]) == (1 if is_full else 0)
    assert {path.name for path in tmp_path.iterdir()} == outputs
    told = capsys.readouterr().err
    assert told.count("\n") == is_full
    if is_full:
        assert "error: standard output: No space left on device; " in told
        assert re.search(r"(is|are) written$", told)


def test_what_cannot_be_written_is_told_beside_another_error(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Full(OSError(errno.ENOSPC, "No space left on device")))
    argv = ["f.circle", "--no-help", "--calibration", "cal.npz", "-o", str(tmp_path / "q.circle"), "-q"]
    assert odc_quantize.main([*argv, "--limit", "1e-9", "--json", "-"]) == 1
    assert re.search(r"model failed: .*; standard output: No space left on device$", capsys.readouterr().err)
    assert not list(tmp_path.iterdir()), "the model missed its limit"


def test_where_nobody_reads_the_outcome_stays(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdout", _Closed())
    argv = ["f.circle", "--no-help", "--calibration", "cal.npz", "-o", str(tmp_path / "q.circle")]
    assert odc_quantize.main([*argv, "--limit", "1e-9"]) == 1
    assert re.search(r"error: .*model failed: ", capsys.readouterr().err)
    assert not list(tmp_path.iterdir())
    assert odc_quantize.main(argv) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["q.circle"]


def _is_output(flag: str) -> bool:
    return flag in ("-o", "--dump", "--dump:raw", "--stats", "--trace", "--profile", "--json", "--report-html")


def test_what_is_made_of_standard_input_needs_a_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(Path("q.circle").read_bytes())))
    assert odc_run.main(["-", "--codegen", "npu-gen"]) == 1
    assert "name one with --cpath" in capsys.readouterr().err
    assert odc_package.main(["rollback", "-"]) == 1
    assert odc_package.main(["pack", "-", "-o", "new.zip"]) == 1
    assert capsys.readouterr().err.count("standard input is not supported") == 2


def test_terminals_get_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.TextIOWrapper):
        def isatty(self) -> bool:
            return is_terminal

    for is_terminal in (True, False):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b'"\033]0;x\007"() : () -> ()')))
        monkeypatch.setattr(sys, "stdout", Terminal(written := io.BytesIO()))
        assert odc_opt.main(["--allow-unregistered-dialect", "-"]) == 0
        assert (b"\x1b" in written.getvalue()) is not is_terminal
        assert (b"\\u001b]0;x\\u0007" in written.getvalue()) is is_terminal
