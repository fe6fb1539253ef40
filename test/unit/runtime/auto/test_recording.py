"""Records while serving: never in the way of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from helpers.models import add_model
from odc_mlir.errors import RecordsError
from odc_mlir.quantization.records import RecordStore
from odc_mlir.runtime.auto import recording
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.executor import HostExecutor
from odc_mlir.runtime.graph import build_graph

EXECUTOR = HostExecutor(build_graph(add_model((1, 4), signature=(-1, 4))))
ONE, TWO = ((1, 4), (1, 4)), ((2, 4), (2, 4))
DIGEST = "ab" * 32


def recorder(path: Path) -> RunRecorder:
    return RunRecorder(EXECUTOR.graph, DIGEST, path)


def inputs(value: float, rows: int = 1) -> list[np.ndarray]:
    return [np.full((rows, 4), value, np.float32)] * 2


def test_runs_are_counted_by_shapes_and_kept(tmp_path: Path) -> None:
    first = recorder(tmp_path / "ranges.sqlite")
    for value in range(3):
        (out,) = first.run(EXECUTOR, inputs(value))
        np.testing.assert_array_equal(out, np.full((1, 4), 3 * value))
    first.run(EXECUTOR, inputs(7, 2))
    assert (first.runs(ONE), first.runs(TWO)) == (3, 1)
    np.testing.assert_array_equal(first.last_inputs[0], inputs(7, 2)[0])  # type: ignore[index]
    first.flush()
    second = recorder(tmp_path / "ranges.sqlite")
    second.run(EXECUTOR, inputs(-5))
    assert (second.runs(ONE), second.runs(TWO)) == (4, 1)
    second.flush()
    store = RecordStore(tmp_path / "ranges.sqlite", DIGEST, create=False)
    assert store.runs() == 5
    assert store.statistics()["a"].minimum == -5
    assert [sample[0].flat[0] for sample in store.inputs()] == [0, 1, 2, 7, -5]


def test_inputs_are_copied(tmp_path: Path) -> None:
    kept = recorder(tmp_path / "ranges.sqlite")
    sample = [np.ones((1, 4), np.float32), np.ones((1, 4), np.float32)]
    kept.run(EXECUTOR, sample)
    sample[0][:] = 9
    assert kept.last_inputs[0].flat[0] == 1  # type: ignore[index]


def test_what_is_recorded_reaches_the_disk_from_time_to_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_RUNS_PER_APPEND", 2)
    kept = recorder(tmp_path / "ranges.sqlite")
    for _ in range(5):
        kept.run(EXECUTOR, inputs(1))
    assert RecordStore(tmp_path / "ranges.sqlite", create=False).runs() == 4


def test_a_store_that_cannot_be_written_fails_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    broken = recorder(tmp_path / "file" / "ranges.sqlite")
    for _ in range(40):
        broken.run(EXECUTOR, inputs(1))
    assert broken.runs(ONE) == 40
    broken.flush()
    assert "the folder cannot be made" in (broken.failure or "")


def test_a_store_that_fails_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = recorder(tmp_path / "ranges.sqlite")
    kept.run(EXECUTOR, inputs(1))
    kept.flush()

    def full(*arguments: object) -> None:
        raise RecordsError("the records cannot be used: database or disk is full")

    monkeypatch.setattr(RecordStore, "append", full)
    kept.run(EXECUTOR, inputs(2))
    kept.flush()
    assert "disk is full" in (kept.failure or "")
    assert kept.runs(ONE) == 2


@pytest.mark.parametrize("other", [b"no database", b"SQLite format 3\0" + bytes(100), None])
def test_a_store_that_is_damaged_or_of_another_model_begins_anew(tmp_path: Path, other: bytes | None) -> None:
    path = tmp_path / "ranges.sqlite"
    if other is None:
        RecordStore(path, "cd" * 32)
    else:
        path.write_bytes(other)
    fresh = recorder(path)
    fresh.run(EXECUTOR, inputs(1))
    fresh.flush()
    assert fresh.failure is None
    assert RecordStore(path, DIGEST, create=False).runs() == 1


def test_of_large_inputs_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "DEFAULT_INPUT_BYTES", 100)  # three samples of 32 bytes
    kept = recorder(tmp_path / "ranges.sqlite")
    for value in range(5):
        kept.run(EXECUTOR, inputs(value))
    kept.flush()
    store = RecordStore(tmp_path / "ranges.sqlite", DIGEST, create=False)
    assert store.runs() == 5
    assert [sample[0].flat[0] for sample in store.inputs()] == [2, 3, 4]
