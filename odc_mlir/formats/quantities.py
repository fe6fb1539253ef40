"""Text for people: quantities with units, distinct names, tables, and parsing of sizes.

Times are in milliseconds, sizes in bytes, shares in percent, signal-to-noise ratios in decibels. Counts have
separators. None is a dash.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import Any

from odc_mlir.errors import OptionError, printable

_SIZE = re.compile(r"(-?[0-9]+(?=[KMG]|$)|0x[0-9a-f]+(?=$))(?:([KMG])(?:iB)?)?", re.IGNORECASE)
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

_MODEL_SUFFIXES = (".circle", ".tflite", ".mlir", ".zip", ".nnpackage")

NOTHING = "–"

_LEAST_NAME = 12  # characters of names in tables
_MOST_MORE = 3  # limit on extra digits that distinguish values


def time_text(nanoseconds: float | None) -> str:
    """Format ``12.3 ms``, ``0.00412 ms``: at least three significant digits, and long times to microseconds."""
    if nanoseconds is None:
        return NOTHING
    milliseconds = nanoseconds / 1e6
    return f"{milliseconds:,.3f} ms" if abs(milliseconds) >= 1 else f"{milliseconds:.3g} ms"


def count_text(value: float | None, noun: str = "") -> str:
    """Format ``1,234``, ``1,234 cycles``. Fractions are rounded."""
    return NOTHING if value is None else f"{value:,.0f} {noun}".rstrip()


def size_text(value: float | None) -> str:
    """Format ``65,536 bytes``."""
    return count_text(value, "bytes")


def middle_cut(text: str, most: int) -> str:
    """Shorten ``text`` to ``most`` characters by omitting its middle, because names differ at the ends."""
    if len(text) <= most:
        return text
    head = (most - 1) // 3
    return f"{text[:head]}…{text[head + 1 - most :]}"


def distinct_cuts(names: Sequence[str], most: int) -> dict[str, str]:
    """Return each name, shortened to ``most`` characters, so that different names stay different.

    Long names lose the parts of the path that all begin with, then their middle. Those that are still equal begin where
    they differ. If this is not enough, they get numbers.
    """
    long = [name for name in dict.fromkeys(names) if len(name) > most]
    shared, groups = _shared(long), dict[str, list[str]]()
    for name in long:
        groups.setdefault(middle_cut(f"…{name[shared:]}" if shared else name, most), []).append(name)
    found = dict(zip(names, names, strict=True))
    for shown, same in groups.items():
        texts = [shown]
        if len(same) > 1:
            rests = [f"…{name[_shared(same) :]}" for name in same]
            texts = [rest if len(rest) <= most else f"{rest[: most - 1]}…" for rest in rests]
        if len(set(texts)) < len(same):
            texts = [f"{shown[: -1 - len(str(place))]}#{place}" for place in range(1, len(same) + 1)]
        found.update(zip(same, texts, strict=True))
    return found


def _shared(names: Sequence[str]) -> int:
    """Return the length of what all of several names begin with, up to the end of a part of the path."""
    first, last = (min(names), max(names)) if len(names) > 1 else ("", "")
    length = next((at for at, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    common = first[:length]
    return max(common.rfind("/"), common.rfind(";")) + 1


def bytes_of(size: int | str) -> int:
    """Parse a size: a number of bytes, ``100K``, ``2M``, ``1G`` (or KiB …), or hexadecimal, ``0x19000``.

    Raises OptionError for anything else.
    """
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    match = _SIZE.fullmatch(size.strip()) if isinstance(size, str) else None
    if match is None:
        raise OptionError(f"{size!r} is not a size", hint="write a number of bytes, 100K, 2M or 0x19000")
    number, unit = match.groups()
    return int(number, 0) if unit is None else int(number) * _UNITS[unit.upper()]


def share_text(value: float | None, more: int = 0) -> str:
    """Format a fraction as ``12.3 %`` with ``more`` extra digits. Only exactly 1 becomes ``100.0 %``."""
    return NOTHING if value is None else _percent_text(100 * value, more)


def _percent_text(percent: float, more: int = 0) -> str:
    texts = [f"{percent:z.{1 + digits}f} %" for digits in range(more, _MOST_MORE + 1)]
    return next((text for text in texts if percent >= 100.0 or not text.startswith("100.")), texts[0])


def decibel_text(value: float | None, more: int = 0) -> str:
    """Format ``32.1 dB`` with ``more`` extra digits."""
    return NOTHING if value is None else f"{value:z.{1 + more}f} dB"


def counted(number: int, noun: str) -> str:
    """Format ``1 segment``, ``2 segments``."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def listed(words: Sequence[str]) -> str:
    """Format ``a, b and c``."""
    return " and ".join((", ".join(words[:-1]), words[-1])) if len(words) > 1 else "".join(words)


def model_name(source: Any) -> str:
    """Display name of a model: file name without folder and suffix, or "" for a model in memory."""
    if not isinstance(source, str | os.PathLike):
        return ""
    path = Path(source).absolute()
    return path.stem if path.suffix.lower() in _MODEL_SUFFIXES else path.name


# Metrics with a unit, and metrics that are shares. Other metrics are plain numbers.
_QUALITY = {
    "sqnr_db": ("SQNR", decibel_text),
    "top1_match": ("same answers", share_text),
    "top5_match": ("same five likeliest answers", share_text),
    "top1_decided": ("same or nearly as likely answers", share_text),
    "top1_percent": ("right answers", _percent_text),
    "psnr_db": ("PSNR", decibel_text),
    "r2": ("R²", lambda value, more=0: f"{value:.{3 + more}g}"),
}


def quality_name(metric: str, column: int | None = None, output: str | None = None) -> str:
    """Return the title of a metric: ``SQNR`` for ``sqnr_db``.

    A metric of one column is called ``rmse of column 3``, a metric of one output ``same answers of output 'scores'``.
    """
    name = _QUALITY[metric][0] if metric in _QUALITY else metric
    name = name if column is None else f"{name} of column {column}"
    return name if output is None else f"{name} of output {output!r}"


def score_text(metric: str, value: float) -> str:
    """Format a score without unit: ``99.333``, or four digits for an RMSE, ``0.01234``."""
    return f"{value:.4g}" if metric == "rmse" else f"{value:.3f}"


def without_far_text(count: int) -> str:
    """Return the suffix for the name of an error that excludes ``count`` outlying labels."""
    return f"without {counted(count, 'label')} far out"


def quality_text(metric: str, value: float | None, beside: float | None = None) -> str:
    """Format a metric with the unit, and with enough digits to differ from ``beside``."""
    if value is None:
        return NOTHING
    write = _QUALITY[metric][1] if metric in _QUALITY else _plain_text
    if beside is None or value == beside:
        return write(value)
    pairs = ((write(value, more), write(beside, more)) for more in range(_MOST_MORE + 1))
    return next((text for text, other in pairs if text != other), write(value))


def _plain_text(value: float, more: int = 0) -> str:
    return f"{value:z.{4 + more}g}"


class Names:
    """Set of used names. :meth:`fresh` adds to it."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def fresh(self, name: str) -> str:
        """Return ``name``, with a number if it is used, and mark the result as used."""
        found, number = name, 1
        while found in self._taken:
            number += 1
            found = f"{name}_{number}"
        self._taken.add(found)
        return found


def distinct(names: Sequence[str], others: Sequence[str]) -> list[str]:
    """Return unique and non-empty ``names``. Entries of ``others`` replace empty or repeated names."""
    known, used = Names(names), set[str]()
    found = []
    for name, other in zip(names, others, strict=True):
        chosen = known.fresh(other) if not name or name in used else name
        used.add(chosen)
        found.append(chosen)
    return found


def tensor_names(names: Sequence[str]) -> list[str]:
    """Return distinct names of a subgraph's tensors for users.

    The third tensor is called ``tensor 2`` if it has no name, and ``x#2`` if an earlier tensor has the same name ``x``.
    """
    return distinct(names, [f"{name}#{index}" if name else f"tensor {index}" for index, name in enumerate(names)])


def aligned(
    titles: Sequence[str], rows: Sequence[Sequence[str]], numbers: Set[str] = frozenset(), width: int | None = None
) -> Iterator[str]:
    """Yield the lines of a table. Columns ``numbers`` are right-aligned. ``result`` is shortened to fit ``width``."""
    widths = [max(map(len, column)) for column in zip(titles, *rows, strict=True)]
    if width is not None:
        place = titles.index("result")
        spare = width - sum(widths) - 2 * (len(widths) - 1)
        widths[place] = max(min(widths[place], _LEAST_NAME), widths[place] + min(spare, 0))
    texts = [distinct_cuts(column, size) for column, size in zip(zip(titles, *rows, strict=True), widths, strict=True)]
    for row in (titles, *rows):
        cells = (
            text[cell].rjust(size) if title in numbers else text[cell].ljust(size)
            for title, cell, text, size in zip(titles, row, texts, widths, strict=True)
        )
        yield "  ".join(cells).rstrip()


_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # with full-width forms
_ONE_LINE = {ord("\n"): "\\n", ord("\t"): "\\t"}


def csv_text(rows: Iterable[Iterable[object]]) -> str:
    """Return ``rows`` as CSV with escaped control characters. None is an empty cell.

    An apostrophe precedes text that a spreadsheet would run as a formula.
    """
    import csv  # imported late, because every command loads this module
    import io

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
