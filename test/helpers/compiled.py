"""Type of the ``compiled`` fixture of whole-model tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Protocol


class Compiled(Protocol):
    """``compiled(model_path, **options)``: folder of the saved package; options as for ``odc_mlir.compile``."""

    def __call__(self, model: Path, **options: Any) -> Path: ...
