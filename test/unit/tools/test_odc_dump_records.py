"""``odc-dump`` of recorded ranges: our files and onert's."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from helpers.models import add_model
from odc_mlir.calibration.recorded import shapes_of
from odc_mlir.calibration.records import RecordStore, write_minmax
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.recording import record
from odc_mlir.tools.odc_dump import main

EXECUTOR = HostExecutor(build_graph(add_model()))


def _sample(value: float) -> list[np.ndarray]:
    return [np.full((1, 4), value, np.float32), np.array([[0, 1, 2, np.nan]], np.float32)]


def test_records_as_text_and_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tmp_path / "ranges.sqlite")
    samples = [_sample(k) for k in range(3)]
    RecordStore(path).append(record(EXECUTOR, samples), shapes_of(samples[0]), samples)
    assert main([path]) == 0
    text = capsys.readouterr().out
    assert "records of ranges, version 1" in text
    assert "runs: 3 on [1,4] [1,4]" in text
    assert "raw inputs kept: 3" in text
    assert "warning: only 3 samples have been recorded" in text
    (row,) = [line.split() for line in text.splitlines() if line.endswith(" sum")]
    assert row == ["0", "3", "0", "4", "2", "1.1547", "9", "3", "sum"]
    assert main([path, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["runs"], document["shapes"]) == (
        "records",
        3,
        [{"inputs": [[1, 4], [1, 4]], "runs": 3}],
    )
    (entry,) = [tensor for tensor in document["tensors"] if tensor["name"] == "out"]
    assert (entry["run_maxima"], entry["nan"], entry["channels"]) == ([2.0, 4.0, 6.0], 3, 4)
    assert "few-runs" in [finding["kind"] for finding in document["findings"]]


def test_minmax_bin(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = add_model()
    path = tmp_path / "minmax.bin"
    path.write_bytes(write_minmax(record(EXECUTOR, [_sample(1), _sample(2)]), model))
    assert main([str(path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "minmax.bin, version 1, 2 runs" in lines[0]
    assert ["0", "0", "operator", "1", "2", "2", "6"] in [line.split() for line in lines]
    assert main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ranges"][0]["kind"] == "operator"


@pytest.mark.parametrize("content", [b"SQLite format 3\0" + b"x" * 600, b"\x44\x4d\x4d\x4f\x09\0\0\0\0\0\0\0"])
def test_damaged_files(tmp_path: Path, content: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_bytes(content)
    assert main([str(tmp_path / "file")]) == 1
    assert capsys.readouterr().err.startswith("odc-dump: error: ")
