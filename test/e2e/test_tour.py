"""The tour in docs/pipeline.md: every line shows what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.data import REPOSITORY
from odc_mlir.tools.odc_opt import main

MODEL = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"
_TEXT = (REPOSITORY / "docs" / "pipeline.md").read_text()
_ROWS = [line.strip("| ").split(" | ") for line in _TEXT.splitlines() if line.startswith("| `odc-opt M")]


def _code(text: str) -> list[str]:
    return re.findall("`([^`]+)`", text)


def test_it_has_ten_lines() -> None:
    assert len(_ROWS) == 10
    assert all(len(row) == 3 and all(map(_code, row)) for row in _ROWS)


@pytest.mark.parametrize("row", _ROWS, ids=[row[0].strip("`") for row in _ROWS])
def test_a_line_shows_what_it_says(row: list[str], tmp_path: Path) -> None:
    command, seen, absent = row
    _, _, *options = _code(command)[0].split()
    out = tmp_path / "out.txt"
    assert main([str(MODEL), *options, "--constants", "elide", "-o", str(out)]) == 0
    text = out.read_text()
    promised = [word for word in _code(seen) if word != "odc-sim"]
    assert [word for word in promised if word not in text] == []
    assert [word for word in _code(absent) if word in text] == []
