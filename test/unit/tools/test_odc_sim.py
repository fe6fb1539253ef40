"""The odc-sim command: inputs, outputs, reports, and one line for every mistake."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest

from helpers import npu_listing as listing
from helpers.npu import codes
from odc_mlir.formats.quantities import count_text, size_text
from odc_mlir.tools import odc_dump
from odc_mlir.tools.odc_sim import main


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "segment.npu"
    path.write_bytes(listing.packed())
    return path


def test_values_and_reports(segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "in.npz", in_0=listing.X)
    out, stats, trace = (tmp_path / name for name in ("out.npz", "stats.json", "trace.json"))
    arguments = ["--load", str(tmp_path / "in.npz"), "--dump", str(out), "--stats", str(stats), "--trace", str(trace)]
    assert main([str(segment), *arguments]) == 0
    with np.load(out) as arrays:
        assert (arrays["out_0"] == listing.expected()).all()
    counters = json.loads(stats.read_text())
    printed = capsys.readouterr().out
    assert f"cycles        {count_text(counters['cycles'])} (" in printed
    assert f"SRAM          {size_text(counters['sram_peak_bytes'])}\n" in printed
    assert not re.search(r"(?<![.0-9])[0-9]{4}", printed), "counts have separators"
    assert "queue mac     busy" in printed
    assert counters["macs_useful"] == listing.MACS
    events = json.loads(trace.read_text())["traceEvents"]
    layers = 2
    assert len([event for event in events if event["ph"] == "X"]) == len(listing.instructions()) + layers


def test_many_samples(segment: Path, tmp_path: Path) -> None:
    batch = codes(np.random.default_rng(0), 3, *listing.X.shape)
    batch[1] = listing.X
    np.savez(tmp_path / "in.npz", in_0=batch)
    out = tmp_path / "out.npz"
    assert main([str(segment), "--load", str(tmp_path / "in.npz"), "--samples", "--dump", str(out), "-q"]) == 0
    with np.load(out) as arrays:
        assert (arrays["out_0"][1] == listing.expected()).all()


def test_timing_only_gives_the_same_cycles(segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cycles = []
    for flags in ([], ["--timing-only"], ["--memory-model", "strict"]):
        assert main([str(segment), "--stats", str(tmp_path / "s.json"), "-q", *flags]) == 0
        cycles.append(json.loads((tmp_path / "s.json").read_text())["cycles"])
    assert cycles[0] == cycles[1] <= cycles[2]
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mode", "stepped", "--trace", "t.json"], "--mode stepped writes no trace; trace with --mode fast"),
        (["--target", "npu-512"], "compiled for another version of target 'npu-256'"),
        (["--target", "npu-1"], "unknown target 'npu-1'"),
        (["--cycle-limit", "10"], "the cycle limit of 10 is exceeded"),
        (["--timing-only", "--dump", "x.npz"], "--timing-only computes no values"),
        (["--load", "none.npz"], "none.npz"),
    ],
)
def test_mistakes(segment: Path, flags: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(segment), *flags]) == 1
    error = capsys.readouterr().err
    assert error.startswith("odc-sim: error: ")
    assert error.count("\n") == 1
    assert message in error


def test_verbose_says_why(segment: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(segment), "-v"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("conv ") and "offchip 1.4x" in line for line in lines)
    assert any(line.startswith("cycles went to ") for line in lines)
    claim = "lanes, compiled with --prefer fewest-cycles: at most "
    assert any(line.startswith("with an array of twice the pixels") and claim in line for line in lines)


def test_unusable_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.npu").write_bytes(b"ONPU")
    assert main([str(tmp_path / "x.npu")]) == 1
    assert main([str(tmp_path / "y.npu")]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "a header of 64 bytes, the file has 4" in first
    assert "x.npu" in first
    assert "y.npu does not exist" in second


def test_a_listing_runs_like_its_binary(segment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_dump.main(["--listing", str(segment)]) == 0
    text = tmp_path / "segment.s"
    text.write_text(capsys.readouterr().out)
    outputs = [tmp_path / "binary.npz", tmp_path / "text.npz"]
    for path, output in zip((segment, text), outputs, strict=True):
        assert main([str(path), "--dump", str(output)]) == 0
    binary, assembled = (np.load(path)["out_0"] for path in outputs)
    assert (binary == assembled).all()
    first, second = capsys.readouterr().out.split("target ")[1:]
    assert first == second


def test_a_file_that_is_neither(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.s").write_text("halt\n")
    (tmp_path / "y.npu").write_bytes(b"\xff\xfe")
    assert main([str(tmp_path / "x.s")]) == main([str(tmp_path / "y.npu")]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert "the listing has no .metadata" in first
    assert "an NPU program has a header" in second


def test_wrong_usage(segment: Path) -> None:
    assert main([]) == 2
    assert main([str(segment), "--mode", "slow"]) == 2
    assert main(["--help"]) == 0
