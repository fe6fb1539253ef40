"""CSV text: nothing that a spreadsheet runs or a terminal obeys gets through."""

from __future__ import annotations

import csv
import io
import re

import pytest

from helpers.source import package_files
from odc_mlir.formats.quantities import csv_text


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        ("conv1", "conv1"),
        ("=cmd|' /C calc'!A0", "'=cmd|' /C calc'!A0"),
        ("+1+1", "'+1+1"),
        ("-A1", "'-A1"),
        ("@sum(a)", "'@sum(a)"),
        ("\uff1d1", "'\uff1d1"),
        ("-0.5", "-0.5"),
        ("+3e2", "+3e2"),
        (-3, "-3"),
        (None, ""),
        ("\x1b[31mred", "\\u001b[31mred"),
        ("a\tb\nc\rd", "a\\tb\\nc\\u000dd"),
        ("\t=1", "\\t=1"),
        ('a,"b"', 'a,"b"'),
    ],
)
def test_cells(value: object, cell: str) -> None:
    text = csv_text([["title", value], [value]])
    assert list(csv.reader(io.StringIO(text))) == [["title", cell], [cell]]
    assert text.count("\n") == 2


def test_all_tables_are_written_here() -> None:
    users = [
        path.name for path in package_files() if re.search(r"^\s*(import|from) csv\b", path.read_text(), re.MULTILINE)
    ]
    assert users == ["quantities.py"]
