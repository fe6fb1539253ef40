"""odc-doctor: facts about an installation, problems by status, and a clean cache."""

from __future__ import annotations

import json
import re
import sys
from importlib import metadata
from pathlib import Path

import pytest

from odc_mlir import targets
from odc_mlir._version import __version__
from odc_mlir.formats import private
from odc_mlir.plugins import registry
from odc_mlir.tools import odc_doctor
from odc_mlir.tools.odc_doctor import main


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("ODC_CACHE_DIR", str(folder))
    return folder


def _fill(cache: Path) -> None:
    for kind, name, data in (("compiled", "a", b"12345"), ("compiled", "b", b"678"), ("records", "m", b"9")):
        (cache / kind / name).mkdir(parents=True)
        (cache / kind / name / "file").write_bytes(data)


def test_everything_is_told(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    _fill(cache)
    assert main(["--json"]) == 0
    findings = {(item["area"], item["name"]): item for item in json.loads(capsys.readouterr().out)}
    assert findings["versions", "odc-mlir"]["text"] == __version__
    assert findings["libraries", "numpy"]["text"] == metadata.version("numpy")
    for name in targets.names():
        assert findings["targets", name]["text"].startswith("version ")
    assert "from odc-mlir" in findings["plugins", "npu-gen"]["text"]
    assert findings["cache", "folder"]["text"] == str(cache)
    assert findings["cache", "compiled"]["text"] == "2 items, 8 bytes"
    assert findings["cache", "records"]["text"] == "1 item, 1 byte"


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "versions:"
    assert lines[-1] == "0 problems"
    assert any(line.startswith("   npu-256") for line in lines)


def test_problems_have_a_status_and_a_hint(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        return ["surely-missing>=1", "also-missing; extra == 'pictures'", "odc-mlir[hdf5]; extra == 'test'"]

    monkeypatch.setattr(metadata, "requires", requires)
    assert main([]) == 1
    out = capsys.readouterr().out
    assert " ! surely-missing" in out
    assert "(pip install 'surely-missing>=1')" in out
    assert "not installed (extra pictures) (pip install 'odc-mlir[pictures]')" in out
    assert out.endswith("1 problem\n")


def test_a_broken_plugin_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bad-gen.py").write_text("raise RuntimeError('no licence')\n")
    monkeypatch.setenv("ODC_PLUGIN_PATH", str(tmp_path))
    assert main([]) == 1
    out = capsys.readouterr().out
    assert " ! bad-gen" in out
    assert "no licence" in out


def test_cleaning(capsys: pytest.CaptureFixture[str], cache: Path) -> None:
    _fill(cache)
    (cache / "photos").mkdir()
    (cache / "photos" / "mine.jpg").write_bytes(b"")
    assert main(["--clean", "compiled"]) == 0
    assert capsys.readouterr().out == "removed compiled: 2 items, 8 bytes\n"
    assert [usage.kind for usage in odc_doctor.cache_usage()] == ["records"]
    assert main(["--clean", "program"]) == 1
    assert "the cache has no 'program'" in capsys.readouterr().err
    assert main(["--clean"]) == 0
    assert odc_doctor.cache_usage() == []
    assert main(["--clean", "--json"]) == 0
    assert capsys.readouterr().out.endswith("[]\n")
    assert (cache / "photos" / "mine.jpg").exists()


def test_pruning(capsys: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _fill(cache)
    (cache / "compiled" / ".a.0123.new").mkdir()
    assert main(["--prune"]) == 0
    assert capsys.readouterr().out.startswith("removed compiled: ")
    assert main(["--prune"]) == 0
    assert capsys.readouterr().out == "there is nothing to remove\n"
    (cache / "records" / "m" / "large").write_bytes(bytes(2 << 20))
    monkeypatch.setenv("ODC_CACHE_LIMIT_MB", "1")
    assert main(["--prune"]) == 0
    assert not (cache / "records" / "m").exists()
    monkeypatch.setenv("ODC_CACHE_LIMIT_MB", "many")
    assert main(["--prune"]) == 1
    assert "ODC_CACHE_LIMIT_MB is 'many'" in capsys.readouterr().err


def test_a_cache_that_cannot_be(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", "not/absolute")
    assert main([]) == 1
    assert "expected an absolute path" in capsys.readouterr().out


def test_a_cache_folder_that_others_can_change(
    capsys: pytest.CaptureFixture[str], cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache.mkdir()
    cache.chmod(0o777)
    monkeypatch.setattr(private, "is_ours", lambda found: False)
    assert main([]) == 1
    assert re.search(r"access .*(everyone can write to the cache folder|it belongs to user)", capsys.readouterr().out)


@pytest.mark.parametrize(
    ("group", "entry", "reason"),
    [
        ("codegen", "foo = a:b", "its name is 'foo', expected <extension>-gen"),
        ("codegen", "npu-gen = a:b", "'npu-gen' is a name of odc-mlir"),
        ("targets", "MyT = a:b", "its name is 'MyT', expected a name"),
        ("devices", "x\\u001b = a:b", "its name is 'x"),
        ("devices", "npu = a:b", None),
    ],
)
def test_entries_that_no_search_finds_are_named(
    group: str,
    entry: str,
    reason: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    info = tmp_path / "site" / "xpkg-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: xpkg\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[odc_mlir.{group}]\n{entry}\n".encode().decode("unicode_escape"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    found = [reason for source, reason in registry.ignored_entries() if source.origin.startswith("xpkg 1.0")]
    assert len(found) == (reason is not None)
    assert reason is None or found[0].startswith(reason)
