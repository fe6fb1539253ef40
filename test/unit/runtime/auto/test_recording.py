"""Records while serving: never in the way of a run."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from threading import current_thread
from typing import Any

import numpy as np
import pytest

from helpers.damage import make_socket
from helpers.float_models import squeeze_excite
from helpers.models import add_model
from helpers.waiting import happens
from odc_mlir.calibration.records import RecordStore
from odc_mlir.calibration.statistics import TensorStatistics
from odc_mlir.errors import RecordsError
from odc_mlir.frontend.export_circle import export_model
from odc_mlir.runtime.auto import recording
from odc_mlir.runtime.auto.recording import RecordsLocation, RunRecorder
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph
from odc_mlir.runtime.recording import record

EXECUTOR = HostExecutor(build_graph(add_model((1, 4), signature=(-1, 4))))
ONE, TWO = ((1, 4), (1, 4)), ((2, 4), (2, 4))
DIGEST = "ab" * 32


def recorder(path: Path, executor: HostExecutor = EXECUTOR, root: Path | None = None) -> RunRecorder:
    return RunRecorder(executor.graph, lambda: RecordsLocation(DIGEST, path, path.parent if root is None else root))


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
    first.flush(60)
    second = recorder(tmp_path / "ranges.sqlite")
    second.look()
    second.run(EXECUTOR, inputs(-5))
    assert (second.runs(ONE), second.runs(TWO)) == (4, 1)
    second.flush(60)
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
    monkeypatch.setattr(recording, "_SECONDS_PER_APPEND", 1e9)  # however slow this machine is
    kept = recorder(tmp_path / "ranges.sqlite")
    for _ in range(5):
        kept.run(EXECUTOR, inputs(1))
    assert kept._background.wait(60)
    assert RecordStore(tmp_path / "ranges.sqlite", create=False).runs() == 4


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often values were looked at in detail, by the name of the thread."""
    found: Counter[str] = Counter()
    add_detail = TensorStatistics._add_detail

    def counted(self: TensorStatistics, *arguments: Any) -> None:
        found[current_thread().name] += 1
        add_detail(self, *arguments)

    monkeypatch.setattr(TensorStatistics, "_add_detail", counted)
    return found


def _deep() -> tuple[HostExecutor, list[list[np.ndarray]]]:
    module, samples = squeeze_excite()
    return HostExecutor(build_graph(export_model(module))), samples * 3


def test_no_run_looks_at_what_was_recorded(tmp_path: Path, looks: Counter[str]) -> None:
    """Values become statistics behind the application's back, and the same as where nobody waits."""
    executor, samples = _deep()
    kept = recorder(tmp_path / "ranges.sqlite", executor)
    for sample in samples:
        kept.run(executor, sample)
    assert kept.flush(60)
    assert not kept._waiting
    assert looks.keys() == {"odc-records"}
    behind = RecordStore(tmp_path / "ranges.sqlite", create=False).records().statistics()
    looks.clear()
    before = record(executor, samples).statistics()
    assert looks.keys() == {current_thread().name}
    assert behind.keys() == before.keys()
    for name, found in behind.items():
        assert (found.runs_seen, found.count) == (before[name].runs_seen, before[name].count)
        np.testing.assert_array_equal(found.run_extremes, before[name].run_extremes)
        assert found.mean == pytest.approx(before[name].mean, rel=1e-6, abs=1e-6)
        np.testing.assert_array_equal(found.histogram.counts.sum(), before[name].histogram.counts.sum())


def test_runs_look_where_the_store_is_too_slow(
    tmp_path: Path, looks: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else memory would fill with values."""
    executor, samples = _deep()
    monkeypatch.setattr(recording, "_MOST_UNSEEN_BYTES", 0)
    kept = recorder(tmp_path / "ranges.sqlite", executor)
    for sample in samples:
        kept.run(executor, sample)
    assert looks.keys() == {current_thread().name}
    assert kept.flush(60)
    assert RecordStore(tmp_path / "ranges.sqlite", create=False).runs() == len(samples)


def test_a_store_that_cannot_be_written_fails_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    broken = recorder(tmp_path / "file" / "ranges.sqlite")
    for _ in range(3):
        (out,) = broken.run(EXECUTOR, inputs(1))
        np.testing.assert_array_equal(out, np.full((1, 4), 3))
    broken.flush(60)
    assert "the folder cannot be made" in (broken.failure or "")


def failing(monkeypatch: pytest.MonkeyPatch, *, passing: bool) -> None:
    def fail(*arguments: object) -> None:
        raise RecordsError("it does not work", passing=passing)

    monkeypatch.setattr(RecordStore, "append", fail)
    monkeypatch.setattr(recording, "_RETRY_SECONDS", (0.01, 0.01))


@pytest.mark.parametrize("passing", [True, False])
def test_a_store_that_fails_later(passing: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = recorder(tmp_path / "ranges.sqlite")
    kept.run(EXECUTOR, inputs(1))
    assert kept.flush(60)
    with monkeypatch.context() as patch:
        failing(patch, passing=passing)
        kept.run(EXECUTOR, inputs(2))
        assert not kept.flush(60)
    assert (kept.runs(ONE), kept.dropped_runs) == (1, 1)
    assert kept.failure == "runs that were not recorded: 1, as it does not work"
    kept.run(EXECUTOR, inputs(3))
    kept.flush(60)
    assert kept.runs(ONE) == (2 if passing else 1)
    assert (kept.refused is None) is passing


def test_no_run_waits_for_a_store_that_another_process_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "ranges.sqlite"
    monkeypatch.setattr(recording, "_RUNS_PER_APPEND", 2)
    before = recorder(path)
    before.run(EXECUTOR, inputs(1))
    before.flush(60)
    kept = recorder(path)
    connect, waits = sqlite3.connect, {}

    def connected(*arguments: Any, timeout: float, **options: Any) -> Any:
        waits[current_thread().name] = max(timeout, waits.get(current_thread().name, 0.0))
        return connect(*arguments, timeout=timeout, **options)

    monkeypatch.setattr("odc_mlir.calibration.records.sqlite3.connect", connected)
    slow = 0
    with closing(connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        kept.look()
        for _ in range(80):  # more than can wait
            start = time.perf_counter()
            kept.run(EXECUTOR, inputs(1))
            kept.runs(ONE)
            slow += time.perf_counter() - start > 0.1
        assert slow < 8  # the machine may have other things to do, but not with every batch
        assert waits.pop(current_thread().name) == 0
        assert not kept.flush(0.1)
        assert kept.dropped_runs > 0
        assert happens(lambda: "database is locked" in (kept.failure or ""))
        other.execute("ROLLBACK")
    kept.flush(60)
    assert waits.keys() == {"odc-records"}
    assert kept.runs(ONE) == 81 - kept.dropped_runs == RecordStore(path, DIGEST, create=False).runs()
    assert kept.refused is None


def test_the_end_waits_for_a_moment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "FINISH_SECONDS", 0.4)
    kept = recorder(tmp_path / "ranges.sqlite")
    kept.run(EXECUTOR, inputs(1))
    kept.flush(60)
    kept.run(EXECUTOR, inputs(1))
    with closing(sqlite3.connect(tmp_path / "ranges.sqlite", isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        start = time.perf_counter()
        kept.finish()
        assert time.perf_counter() - start < 10  # all tries together wait for longer
    assert kept.dropped_runs == 1


def test_alternating_shapes_are_gathered_side_by_side(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    appended = []
    append = RecordStore.append
    monkeypatch.setattr(RecordStore, "append", lambda *arguments: [append(*arguments), appended.append(arguments)])
    monkeypatch.setattr(recording, "_SECONDS_PER_APPEND", 100.0)
    kept = recorder(tmp_path / "ranges.sqlite")
    for value in range(20):
        kept.run(EXECUTOR, inputs(value, 1 + value % 2))
    assert (kept.runs(ONE), kept.runs(TWO), appended) == (10, 10, [])
    for rows in range(3, 12):  # more than are gathered at a time
        kept.run(EXECUTOR, inputs(1, rows))
    assert kept.flush(60)
    store = RecordStore(tmp_path / "ranges.sqlite", DIGEST, create=False)
    assert store.shapes() == {((n, 4), (n, 4)): 10 if n < 3 else 1 for n in range(1, 12)}
    assert store.records(ONE).statistics()["a"].maximum == 18


def test_runs_that_turn_out_to_be_of_no_use_are_dropped(tmp_path: Path) -> None:
    kept = recorder(tmp_path / "ranges.sqlite")
    kept.run(EXECUTOR, inputs(1))
    kept.run(EXECUTOR, inputs(1, 2))
    kept.forget(ONE)
    assert (kept.runs(ONE), kept.runs(TWO)) == (0, 1)
    assert kept.flush(60)
    assert RecordStore(tmp_path / "ranges.sqlite", DIGEST, create=False).shapes() == {TWO: 1}


@pytest.mark.parametrize("fault", ["newer", "locked", "pipe", "folder", "symbolic link", "socket", "full"])
def test_only_damage_takes_a_store_away(fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not damaged stays as it is, byte by byte."""
    monkeypatch.setattr(recording, "_RETRY_SECONDS", (0.01,))
    path = tmp_path / "cache" / "records" / "ranges.sqlite"
    path.parent.mkdir(parents=True)
    other = tmp_path / "other"
    with closing(sqlite3.connect(other if fault == "symbolic link" else path, isolation_level=None)) as database:
        RecordStore(other if fault == "symbolic link" else path, DIGEST)
        if fault == "newer":
            database.execute("PRAGMA user_version = 99")
        elif fault == "locked":
            database.execute("BEGIN EXCLUSIVE")
        elif fault == "full":
            failing(monkeypatch, passing=True)
        elif fault == "symbolic link":
            path.symlink_to(other)
        else:
            path.unlink()
            {
                "pipe": lambda: os.mkfifo(path),
                "folder": lambda: path.mkdir(),
                "socket": lambda: make_socket(path),
            }[fault]()
        before = path.read_bytes() if path.is_file() else path.lstat().st_mode
        kept = recorder(path)
        kept.run(EXECUTOR, inputs(1))
        assert not kept.flush(10)
        assert kept.failure is not None
        assert (path.read_bytes() if path.is_file() else path.lstat().st_mode) == before
    names = {"pipe": "a pipe", "folder": "a folder", "symbolic link": "a symbolic link", "socket": "a socket"}
    assert names.get(fault, "") in (kept.failure or "")
    assert (kept.refused is None) is (fault in ("locked", "full"))


def test_records_are_private(tmp_path: Path) -> None:
    path = tmp_path / "cache" / "records" / "m" / "ranges.sqlite"
    before = os.umask(0)
    try:
        kept = recorder(path, root=tmp_path / "cache")
        kept.run(EXECUTOR, inputs(1))
        assert kept.flush(60)
    finally:
        os.umask(before)
    for place in (path, *path.parents[:3]):
        assert stat.S_IMODE(place.stat().st_mode) == (0o600 if place == path else 0o700), place
    path.chmod(0o644)  # as an earlier version left it
    path.parent.chmod(0o755)
    again = recorder(path, root=tmp_path / "cache")
    again.look()
    assert again.runs(ONE) == 1
    again.run(EXECUTOR, inputs(1))
    assert again.flush(60)
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)


def test_records_of_someone_else_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "records" / "ranges.sqlite"
    kept = recorder(path)
    kept.run(EXECUTOR, inputs(1))
    kept.flush(60)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    other = recorder(path)
    other.run(EXECUTOR, inputs(1))
    other.flush(60)
    assert f"it belongs to user {os.getuid()}, not to user {os.getuid() + 1}" in (other.refused or "")


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_records_for_itself(tmp_path: Path) -> None:
    kept = recorder(tmp_path / "ranges.sqlite")
    kept.run(EXECUTOR, inputs(1))
    child = os.fork()
    if child == 0:
        kept.run(EXECUTOR, inputs(2))
        os._exit(0 if kept.flush(5) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert kept.flush(5)
    store = RecordStore(tmp_path / "ranges.sqlite", DIGEST, create=False)
    assert sorted(sample[0].flat[0] for sample in store.inputs()) == [1, 2]
    assert store.runs() == 2


def test_of_large_inputs_few_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recording, "_INPUT_BYTES", 100)  # three samples of 32 bytes
    kept = recorder(tmp_path / "ranges.sqlite")
    for value in range(5):
        kept.run(EXECUTOR, inputs(value))
    kept.flush(60)
    store = RecordStore(tmp_path / "ranges.sqlite", DIGEST, create=False)
    assert store.runs() == 5
    assert [sample[0].flat[0] for sample in store.inputs()] == [2, 3, 4]
