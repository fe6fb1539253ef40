"""Fixtures of tests of whole models: each model is compiled once per worker process.

All tests of on-device compilation are of one xdist group: one worker runs them, so that their background processes, of
low priority, compete with one other worker only.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import odc_mlir
from helpers.auto import Made, make
from helpers.compiled import Compiled


@pytest.fixture(scope="session")
def made(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Make the smallest digits model quantised and compiled."""
    return make(test_data, tmp_path_factory.mktemp("made"))


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
