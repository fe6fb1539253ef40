"""CSV text that can be opened in a spreadsheet and shown on a terminal, whatever names models have."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable

from odc_mlir.errors import printable

_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # also full-width ones
_ONE_LINE = {ord("\n"): "\\n", ord("\t"): "\\t"}


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return ``rows`` as CSV; None is an empty cell.

    Control characters are escaped as on terminals. An apostrophe precedes text that a spreadsheet would run as a
    formula.
    """
    out = io.StringIO()
    csv.writer(out, lineterminator="\n").writerows(map(_cell, row) for row in rows)
    return out.getvalue()


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    text = printable(value).translate(_ONE_LINE)
    return f"'{text}" if text.startswith(_FORMULA) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
