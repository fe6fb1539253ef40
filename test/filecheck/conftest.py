"""Collect every lit file below this folder as one test, run in this process (see ``helpers.lit_runner``)."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.lit_runner import LitFailure, run_file


class LitItem(pytest.Item):
    """One lit file."""

    def runtest(self) -> None:
        scratch = Path(tempfile.mkdtemp(prefix="odc-lit-"))
        try:
            run_file(self.path, scratch)
        finally:
            shutil.rmtree(scratch)

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: object = None) -> str:
        if isinstance(excinfo.value, LitFailure):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, 0, self.nodeid


class LitFile(pytest.File):
    def collect(self) -> Iterator[LitItem]:
        yield LitItem.from_parent(self, name="lit", path=self.path)


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> LitFile | None:
    if file_path.suffix == ".mlir" and not {"Inputs", "Output"} & set(file_path.parts):
        return LitFile.from_parent(parent, path=file_path)
    return None
