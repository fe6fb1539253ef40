"""Results kept for later runs: whole or written again, private, shared by processes, and never an error."""

from __future__ import annotations

import hashlib
import os
import stat
from pathlib import Path

import pytest

from odc_mlir.formats import private
from odc_mlir.formats.private import Memo


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def keep(depends_on: str = "v1", **results: object) -> Path:
    """A file that holds ``results``."""
    made = Memo.open("things", depends_on)
    for key, value in results.items():
        made.put(key, value)
    made.save()
    assert made._path is not None
    return made._path


def test_what_one_run_puts_the_next_one_gets(cache: Path) -> None:
    path = keep(a=[1, 2.5, None, True], b=0.1)
    again = Memo.open("things", "v1")
    assert (again.get("a"), again.get("b"), again.get("c")) == ([1, 2.5, None, True], 0.1, None)
    assert path.parent == cache / "things"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_other_kinds_versions_and_targets_are_apart(cache: Path) -> None:
    keep(a=1)
    assert Memo.open("things", "v2").get("a") is None
    assert Memo.open("others", "v1").get("a") is None


def test_nothing_is_written_before_it_is_saved_and_where_nothing_is_new(cache: Path) -> None:
    Memo.open("things", "v1").put("a", 1)
    assert Memo.open("things", "v1").get("a") is None
    path = keep(a=1)
    before = path.stat().st_ino
    Memo.open("things", "v1").save()
    assert path.stat().st_ino == before


def test_two_runs_at_a_time_keep_both_results(cache: Path) -> None:
    first, second = Memo.open("things", "v1"), Memo.open("things", "v1")
    first.put("a", 1)
    second.put("b", 2)
    first.save()
    second.save()
    both = Memo.open("things", "v1")
    assert (both.get("a"), both.get("b")) == (1, 2)


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "header", "folder", "pipe", "large", "nested"])
def test_damaged_files_count_as_empty_and_are_replaced(
    cache: Path, damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = keep(a=1, b=2)
    whole = path.read_bytes()
    path.unlink()
    if damage == "folder":
        path.mkdir()
    elif damage == "pipe":
        os.mkfifo(path)
    elif damage == "large":
        path.write_bytes(whole + b" " * private.MAX_BYTES)
    elif damage == "nested":
        body = b"[" * 100_000
        path.write_bytes(f"odc-memo 1 {hashlib.sha256(body).hexdigest()}\n".encode() + body)
    else:
        changed = {"cut": whole[:-4], "flip": whole.replace(b'"a":1', b'"a":3'), "empty": b"", "header": whole[:40]}
        path.write_bytes(changed[damage])
    assert Memo.open("things", "v1").get("a") is None
    keep(c=3)
    assert Memo.open("things", "v1").get("c") == (None if damage == "folder" else 3)


def test_a_cache_of_no_use_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "file"))
    made = Memo.open("things", "v1")
    made.put("a", 1)
    made.save()
    assert made.get("a") == 1


def test_a_file_starts_again_when_it_is_full(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "MAX_BYTES", 200)
    keep(a="x" * 80)
    keep(b="y" * 80)
    again = Memo.open("things", "v1")
    assert (again.get("a"), again.get("b")) == (None, "y" * 80)
    keep(c="z" * 300)
    assert Memo.open("things", "v1").get("b") == "y" * 80


def test_files_of_other_versions_go_when_they_are_too_many(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private, "MAX_FILES", 2)
    paths = []
    for number in range(3):
        paths.append(keep(f"v{number}", a=number))
        os.utime(paths[-1], ns=(number, number))
    keep("v2", b=1)
    assert [path.exists() for path in paths] == [False, True, True]
