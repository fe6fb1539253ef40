"""Files are replaced whole, and failures name the file."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from odc_mlir.errors import OdcError
from odc_mlir.formats.outputs import write_file


def test_writes_all_chunks(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"ab", bytearray(b"cd"), memoryview(b"ef"))
    assert (tmp_path / "file").read_bytes() == b"abcdef"
    assert os.listdir(tmp_path) == ["file"]


def test_permissions_follow_the_user_or_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    before = os.umask(0o027)
    try:
        write_file(path, b"")
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    path.chmod(0o604)
    write_file(path, b"")
    assert stat.S_IMODE(path.stat().st_mode) == 0o604


def test_an_open_reader_keeps_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        write_file(path, b"new")
        assert reader.read() == b"old"
    assert path.read_bytes() == b"new"


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "file")
    write_file(tmp_path / "link", b"x")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"x"


def test_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")

    def full(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OdcError, match="the file cannot be written: No space left on device") as caught:
        write_file(path, b"new")
    assert caught.value.location == str(path)
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_device_is_written_directly() -> None:
    write_file(os.devnull, b"x")
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)


@pytest.mark.parametrize("name", ["", "none/file", "a\0b"])
def test_impossible_target(tmp_path: Path, name: str) -> None:
    with pytest.raises(OdcError, match="the file cannot be written"):
        write_file(f"{tmp_path}/{name}", b"x")
