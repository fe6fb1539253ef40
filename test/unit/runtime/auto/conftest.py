"""Background processes that are pretended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.pretended import AtOnce, Pretended
from odc_mlir.runtime.auto import background, controller, recording


@pytest.fixture
def pretended(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[type[Pretended]]:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(controller, "Supervisor", Pretended)
    monkeypatch.setattr(background, "Background", AtOnce)
    monkeypatch.setattr(recording, "Background", AtOnce)
    kept = (Pretended.hold, Pretended.result, Pretended.model)
    Pretended.jobs, Pretended.waiting = [], []
    yield Pretended
    Pretended.hold, Pretended.result, Pretended.model = kept
