"""Results kept for the next process: whole or not there, and only as many as there is room for."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest

from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import CompileError, OdcError
from odc_mlir.formats.outputs import exchange
from odc_mlir.runtime.auto.artefacts import Artefacts, JobResult, entries, file_lock, is_final, make_key, prune


@pytest.fixture
def artefacts(tmp_path: Path) -> Artefacts:
    return Artefacts(tmp_path)


def commit(artefacts: Artefacts, key: str, size: int = 10, **fields: str) -> Path:
    work = artefacts.new_folder(key)
    (work / "compiled.npu").write_bytes(bytes(size))
    (work / "model.circle").write_bytes(b"model")
    return artefacts.commit(key, work, JobResult("compiled", compiled="compiled.npu", **fields)).folder


def test_keys_follow_from_all_facts() -> None:
    facts = {"model": "a", "shapes": [[1, 2]]}
    assert make_key(facts) == make_key(dict(reversed(facts.items())))
    assert len({make_key(facts), make_key({**facts, "model": "b"}), make_key({**facts, "shapes": [[2, 1]]})}) == 3


def test_a_result_is_found_again(artefacts: Artefacts) -> None:
    assert artefacts.find("key") == (None, None)
    commit(artefacts, "key", reason="slow", kind="time")
    found, problem = artefacts.find("key")
    assert problem is None
    assert found is not None
    assert found.compiled is not None
    assert found.compiled.read_bytes() == bytes(10)
    assert found.model.read_bytes() == b"model"
    assert (found.result.level, found.result.reason, found.result.kind) == ("compiled", "slow", "time")
    commit(artefacts, "key", size=20)  # another one takes its place
    assert artefacts.find("key")[0].compiled.stat().st_size == 20  # type: ignore[union-attr]
    assert sorted(os.listdir(artefacts.folder)) == ["key"]


def test_a_result_that_is_moved_away_is_waited_for(artefacts: Artefacts, monkeypatch: pytest.MonkeyPatch) -> None:
    place = commit(artefacts, "key")
    aside = artefacts._move_aside("key")
    waited: list[float] = []

    def put_back(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 3:
            aside.rename(place)

    monkeypatch.setattr(time, "sleep", put_back)
    assert artefacts.find("other") == (None, None)
    assert not waited
    found, problem = artefacts.find("key")
    assert (found is not None, problem, len(waited)) == (True, None, 3)
    artefacts._move_aside("key")
    assert artefacts.find("key") == (None, None), "nobody puts it back"


def test_a_result_is_found_while_another_takes_its_place(artefacts: Artefacts) -> None:
    commit(artefacts, "key")
    ended = Event()

    def replace_often() -> None:
        for size in range(40):
            commit(artefacts, "key", size)
        ended.set()

    thread = Thread(target=replace_often)
    thread.start()
    while not ended.is_set():
        found, problem = artefacts.find("key")
        assert problem is None
        assert found is not None
    thread.join()


def test_the_result_of_another_job_is_not_taken(artefacts: Artefacts) -> None:
    folder = commit(artefacts, "key")
    shutil.copytree(folder, folder.with_name("other"))
    found, problem = artefacts.find("other")
    assert found is None
    assert "it is the result of another job" in (problem or "")
    assert artefacts.find("key")[0] is not None


def test_nothing_lies_between_two_results(artefacts: Artefacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long whoever replaces one is kept from going on, after whatever it does."""
    commit(artefacts, "key")
    rename, seen = os.rename, []

    def look(*arguments: Any) -> None:
        rename(*arguments)
        seen.append(os.path.lexists(artefacts.folder / "key"))

    if not exchange(artefacts.new_folder("a"), artefacts.new_folder("b")):
        pytest.skip("this system cannot exchange folders")
    monkeypatch.setattr(os, "rename", look)
    commit(artefacts, "key", 20)
    assert all(seen)
    found, _ = artefacts.find("key")
    assert found is not None
    assert found.compiled is not None
    assert found.compiled.stat().st_size == 20
    assert artefacts.is_there(found)
    commit(artefacts, "key", 20)
    assert not artefacts.is_there(found)


def test_only_what_is_damaged_is_taken_away(artefacts: Artefacts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not what another process puts into its place just then."""
    (commit(artefacts, "key") / "model.circle").unlink()
    move = artefacts._move_aside

    def replace_before(key: str, only: Any = None) -> Path:
        monkeypatch.undo()
        rename = os.rename

        def rename_late(source: Any, target: Any) -> None:
            monkeypatch.undo()
            commit(artefacts, key, 20)
            rename(source, target)

        monkeypatch.setattr(os, "rename", rename_late)
        return move(key, only)

    monkeypatch.setattr(artefacts, "_move_aside", replace_before)
    assert "damaged" in (artefacts.find("key")[1] or "")
    found, problem = artefacts.find("key")
    assert problem is None
    assert found is not None
    assert sorted(os.listdir(artefacts.folder)) == ["key"]


@pytest.mark.parametrize("name", ["compiled.npu", "model.circle"])
def test_files_that_changed(artefacts: Artefacts, name: str) -> None:
    (commit(artefacts, "key") / name).write_bytes(b"changed")
    found, problem = artefacts.find("key")
    assert found is None
    assert problem == f"the cached result is damaged: {name!r} has other contents than when it was stored"
    assert os.listdir(artefacts.folder) == []
    assert artefacts.find("key") == (None, None)


def test_a_record_cannot_name_files_elsewhere(artefacts: Artefacts) -> None:
    place = commit(artefacts, "key")
    record = json.loads((place / "result.json").read_text())
    for name in ("../other", "/etc/passwd"):
        record["files"] = {name: "0"}
        commit(artefacts, "key")
        (place / "result.json").write_text(json.dumps(record))
        assert "is missing" in (artefacts.find("key")[1] or "")


@pytest.mark.parametrize("text", ["", "[]", "null", '{"schema_version": 1}', "[" * 100_000])
def test_records_that_cannot_be_read(artefacts: Artefacts, text: str) -> None:
    (commit(artefacts, "key") / "result.json").write_text(text)
    found, problem = artefacts.find("key")
    assert found is None
    assert "the cached result is damaged" in (problem or "")


WRONG: dict[str, list[object]] = {
    "level": ["original", 1, ["quantized"]],
    "reason": [1, {}],
    "kind": ["other", 2],
    "compiled": ["../x", 3, None],
    "verdict": [[], "passed"],
    "seconds": [None, {"compile": "long"}, {"compile": True}],
    "budget": [[], {"bytes": None}],
    "notes": ["text", [1]],
    "attempts": [-1, 1.5, "1", True],
    "failed_at": [None, "now"],
    "other": [1],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_a_record_with_wrong_values(artefacts: Artefacts, name: str, value: object) -> None:
    record = commit(artefacts, "key") / "result.json"
    document = json.loads(record.read_text())
    document["result"][name] = value
    record.write_text(json.dumps(document))
    found, problem = artefacts.find("key")
    assert found is None
    assert "the cached result is damaged" in (problem or "")


@pytest.mark.parametrize("name", ["result.json", "compiled.npu", "model.circle", ""])
@pytest.mark.parametrize("kind", ["a pipe", "a symbolic link", "a folder", "a file"])
def test_what_is_no_file_is_not_read(artefacts: Artefacts, name: str, kind: str, tmp_path: Path) -> None:
    place = commit(artefacts, "key") / name
    moved = tmp_path / "moved"
    place.rename(moved)
    if kind == "a pipe":
        os.mkfifo(place)
    elif kind == "a symbolic link":
        place.symlink_to(moved)
    elif kind == "a folder":
        place.mkdir()
    else:
        place.write_bytes(b"")
    found, problem = artefacts.find("key")
    assert found is None
    assert "the cached result is damaged" in (problem or "")
    assert moved.exists()
    commit(artefacts, "key")
    assert artefacts.find("key")[1] is None


def test_results_are_private(artefacts: Artefacts, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        place = commit(artefacts, "key")
        with file_lock(artefacts.lock_path("key"), seconds=0):
            pass
    finally:
        os.umask(before)
    for entry in (artefacts.folder, *artefacts.folder.rglob("*")):
        assert stat.S_IMODE(entry.stat().st_mode) == (0o700 if entry.is_dir() else 0o600), entry
    place.chmod(0o755)
    (place / "model.circle").chmod(0o644)
    assert artefacts.find("key")[1] is None
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert stat.S_IMODE((place / "model.circle").stat().st_mode) == 0o600


def test_results_of_someone_else_are_left_alone(artefacts: Artefacts, monkeypatch: pytest.MonkeyPatch) -> None:
    place = commit(artefacts, "key")
    with monkeypatch.context() as patch:
        patch.setattr(os, "geteuid", lambda: os.getuid() + 1)
        found, problem = artefacts.find("key")
        assert found is None
        assert f"it belongs to user {os.getuid()}" in (problem or "")
    assert (place / "result.json").exists()


def test_what_is_unfinished_is_swept(artefacts: Artefacts) -> None:
    first = artefacts.new_folder("key")
    (first / "half").write_bytes(b"")
    other = artefacts.new_folder("other")
    second = artefacts.new_folder("key")
    assert not first.exists()
    assert other.exists()
    artefacts.sweep("key")
    assert not second.exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "compiled").write_text("in the way")
    artefacts = Artefacts(tmp_path)
    with pytest.raises(CompileError, match="the cache cannot be written"):
        artefacts.new_folder("key")
    assert artefacts.find("key") == (None, None)
    assert list(entries(tmp_path)) == []
    artefacts.keep_refusal("key", JobResult(None, "no"))  # has no effect, and does no harm


def test_a_full_disk_leaves_nothing(artefacts: Artefacts, monkeypatch: pytest.MonkeyPatch) -> None:
    work = artefacts.new_folder("key")
    (work / "model.circle").write_bytes(b"model")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OdcError, match="No space left on device"):
        artefacts.commit("key", work, JobResult("quantized"))
    assert artefacts.find("key") == (None, None)


def test_pruning_takes_what_was_not_used_for_longest(artefacts: Artefacts, tmp_path: Path) -> None:
    """Of all that is in the cache, whatever it is."""
    places = {key: commit(artefacts, key, size=10_000) for key in ("newest", "old")}
    places["model"] = tmp_path / "models" / "m.circle"
    places["model"].parent.mkdir()
    places["model"].write_bytes(bytes(10_000))
    places["records"] = tmp_path / "records" / "r"
    RecordStore(places["records"] / "ranges.sqlite", "r")
    marks = {"newest": "result.json", "old": "result.json", "model": "", "records": "ranges.sqlite"}
    for age, key in enumerate(("newest", "model", "records", "old")):
        os.utime(places[key] / marks[key], (1e9 - age, 1e9 - age))
    sizes = {entry.path: entry.nbytes for entry in entries(tmp_path)}
    assert set(sizes) == set(places.values())
    total = sum(sizes.values())

    def pruned(max_bytes: int) -> list[Path]:
        return [entry.path for entry in prune(tmp_path, max_bytes, keep=frozenset({"old"}))]

    assert pruned(total) == []
    artefacts.touch("old")
    with closing(sqlite3.connect(places["records"] / "ranges.sqlite", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")  # what is in use stays
        assert pruned(total - 1) == [places["model"]]
    with file_lock(artefacts.lock_path("newest"), seconds=0):
        assert pruned(0) == [places["records"]]
    assert pruned(0) == [places["newest"]]
    assert [entry.path for entry in entries(tmp_path)] == [places["old"]]


def test_pruning_takes_what_was_left_of_keys_that_nobody_asks_for(artefacts: Artefacts, tmp_path: Path) -> None:
    commit(artefacts, "done")
    for key in ("done", "gone", "busy"):
        with file_lock(artefacts.lock_path(key), seconds=0):
            artefacts.new_folder(key)
    with file_lock(artefacts.lock_path("busy"), seconds=0):
        prune(tmp_path, 1 << 30)
    assert sorted(path.name for path in (artefacts.folder / "locks").iterdir()) == ["busy", "done"]
    assert sorted(path.name.split(".")[1] for path in artefacts.folder.glob(".*")) == ["busy"]


@pytest.mark.parametrize(
    ("kind", "budget", "holds"),
    [
        ("time", {"seconds": 10.0}, True),
        ("time", {"seconds": 10.5}, False),
        ("time", {"seconds": 9.0}, True),
        ("memory", {"bytes": 100.0}, True),
        ("memory", {"bytes": 101.0}, False),
        ("accuracy", {"seconds": 1e9, "bytes": 1e9}, True),
        ("failed", {"seconds": 1e9, "bytes": 1e9}, True),
    ],
)
def test_refusals_hold_under_the_same_limits(kind: str, budget: dict[str, float], holds: bool) -> None:
    assert is_final(JobResult(None, "no", kind, budget={"seconds": 10.0, "bytes": 100.0}), budget, 0.0) is holds


@pytest.mark.parametrize(
    ("attempts", "seconds", "holds"),
    [
        (1, 0, False),
        (2, 59, True),
        (2, 61, False),
        (3, 599, True),
        (3, 601, False),
        (99, 3599, True),
        (99, 3601, False),
    ],
)
def test_what_may_pass_is_tried_again_less_and_less_often(attempts: int, seconds: float, holds: bool) -> None:
    failed = JobResult(None, "killed", "passing", attempts=attempts, failed_at=1e9)
    assert is_final(failed, {}, 1e9 + seconds) is holds
    assert not is_final(failed, {}, 1e9 - 1)  # a clock that was set back must not hold it for ever


def test_a_lock_has_one_holder(tmp_path: Path) -> None:
    path = tmp_path / "locks" / "key"
    with file_lock(path, seconds=0):
        message = "another process has been working on this model for too long"
        with pytest.raises(CompileError, match=message), file_lock(path, seconds=0.1):
            pass
        with file_lock(tmp_path / "locks" / "other", seconds=0):
            pass
    with file_lock(path, seconds=0):
        pass


def test_a_lock_of_a_killed_process_is_free(tmp_path: Path) -> None:
    path = tmp_path / "key"
    code = (
        "import os, signal, sys; from pathlib import Path; from odc_mlir.runtime.auto.artefacts import file_lock\n"
        "with file_lock(Path(sys.argv[1]), seconds=0): os.kill(os.getpid(), signal.SIGKILL)"
    )
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == -9
    with file_lock(path, seconds=0):
        pass


def test_a_lock_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(CompileError, match="the lock cannot be created"),
        file_lock(tmp_path / "file" / "key", seconds=0),
    ):
        pass
