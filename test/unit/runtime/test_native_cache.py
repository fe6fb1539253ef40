"""Native code kept in the cache, which other processes use and prune as well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.models import add_model, model_bytes
from helpers.sessions import save_package
from odc_mlir.formats.package import PackageFiles, read_package
from odc_mlir.runtime.execution.native_cache import remembered


def test_what_is_pruned_while_it_is_read_serves_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    save_package(tmp_path / "p", {})
    made: list[PackageFiles] = []

    def make() -> PackageFiles:
        made.append(read_package(tmp_path / "p"))
        return made[-1]

    utime = os.utime

    def prune_before(path: Any, *arguments: Any, **options: Any) -> None:
        Path(path).unlink(missing_ok=True)
        utime(path, *arguments, **options)

    digest = read_package(tmp_path / "p").model_digest
    model = remembered(digest, "here", make).model
    monkeypatch.setattr(os, "utime", prune_before)
    assert remembered(digest, "here", make).model == model
    assert len(made) == 1
    assert list((tmp_path / "cache" / "native").iterdir()) == []


def test_the_code_of_another_model_is_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    models = [add_model(), add_model((1, 8))]
    compiled = [odc_mlir.compile(model_bytes(model), target="cpu").files for model in models]
    for files in compiled:
        remembered(files.model_digest, "here", lambda files=files: files)  # type: ignore[misc]
    first, second = sorted((tmp_path / "cache" / "native").iterdir())
    for a, b in ((first, second), (second, first)):
        kept = a.read_bytes()
        a.write_bytes(b.read_bytes())
        for files in compiled:
            assert remembered(files.model_digest, "here", lambda files=files: files).model == files.model  # type: ignore[misc]
        a.write_bytes(kept)
