"""Where the cache is."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from odc_mlir.errors import ModelError, OptionError
from odc_mlir.formats.cache import cache_folder, content_digest, records_path


def test_the_first_variable_that_is_set_decides(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("ODC_CACHE_DIR", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == tmp_path / "home" / ".cache" / "odc-mlir"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_folder() == tmp_path / "home" / ".cache" / "odc-mlir"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_folder() == tmp_path / "xdg" / "odc-mlir"
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "ours"))
    assert cache_folder() == tmp_path / "ours"
    assert records_path("ab") == tmp_path / "ours" / "records" / "ab" / "ranges.sqlite"
    monkeypatch.setenv("ODC_CACHE_DIR", "relative")
    with pytest.raises(OptionError, match="the variable ODC_CACHE_DIR is 'relative', expected an absolute path"):
        cache_folder()


def test_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ODC_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)

    def none() -> Path:
        raise RuntimeError

    monkeypatch.setattr(Path, "home", none)
    with pytest.raises(OptionError, match="there is no home folder for a cache; set ODC_CACHE_DIR"):
        cache_folder()


def test_the_digest_of_a_file_is_that_of_its_bytes(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"content")
    expected = hashlib.sha256(b"content").hexdigest()
    assert content_digest(tmp_path / "x") == content_digest(b"content") == content_digest(memoryview(b"content"))
    assert content_digest(b"content") == expected
    with pytest.raises(ModelError, match=r"cannot read the file: No such file or directory \(in .*none\)"):
        content_digest(tmp_path / "none")
