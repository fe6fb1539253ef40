"""What tests of whole models share: each model is compiled once per worker process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.compiled import Compiled


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    """Compile each model once per set of options."""
    done: dict[tuple[Any, ...], Path] = {}

    def compile_once(model: Path, **options: Any) -> Path:
        key = (model, *sorted(options.items()))
        if key not in done:
            done[key] = tmp_path_factory.mktemp("package") / model.stem
            odc_mlir.compile(model, **options).save(done[key])
        return done[key]

    return compile_once
