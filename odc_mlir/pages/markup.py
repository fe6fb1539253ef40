"""Functions that build HTML: tags, tables, lists, and a page with headline numbers, sections, style and script."""

from __future__ import annotations

import base64
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

from odc_mlir.errors import printable
from odc_mlir.formats.kinds import PAGE_MARK
from odc_mlir.formats.quantities import NOTHING, distinct_cuts

_LONGEST_NAME = 56  # visible characters of a name; a tooltip has the whole name
_EMPTY: tuple[object, ...] = (None, "")
_VOID = frozenset({"input", "meta", "br"})


class Html(str):
    """HTML markup. Strings of other types are text and need escaping."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return ``value`` as markup: escaped if it is not markup already."""
    return value if isinstance(value, Html) else Html(escape(printable(str(value))))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """Return ``<name …>children</name>``. Attributes ``class_`` and ``data_x`` become ``class`` and ``data-x``.

    Attributes that are None are omitted.
    """
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{name}{''.join(pairs)}>"
    return Html(opening if name in _VOID else f"{opening}{''.join(map(text, children))}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Concatenate pieces of markup or text, with ``between`` after each but the last."""
    return Html(between.join(map(text, parts)))


def short_name(name: str) -> Html:
    """Shorten a name in the middle. A tooltip has the whole name."""
    return short_names([name])[name]


def short_names(names: Sequence[str]) -> dict[str, Html]:
    """Shorten the names of a table so that different names stay different. Tooltips have the whole names."""
    return {
        name: tag("span", shown, class_="name", title=None if shown == name else name)
        for name, shown in distinct_cuts(names, _LONGEST_NAME).items()
    }


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table: ``number`` columns align right and sort by value. ``tight`` columns do not wrap."""

    title: str
    number: bool = False
    hint: str | None = None
    tight: bool = False

    @property
    def class_(self) -> str | None:
        return "number" if self.number else "tight" if self.tight else None


@dataclass(frozen=True, slots=True)
class TableCell:
    """Content and sort key of a table cell."""

    shown: object
    value: float | str | None = None


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, caption: str, classes: Sequence[str] = ()
) -> Html:
    """Return a table that readers can sort by every column, search, and unfold if it is long, or "" for no rows.

    ``rows``: one :class:`TableCell` or value per column. A column that is empty in all rows is left out.
    ``classes``: one class per row, or no classes.
    """
    listed = [[item if isinstance(item, TableCell) else TableCell(item) for item in row] for row in rows]
    used = [any(row[place].shown not in _EMPTY for row in listed) for place in range(len(columns))]
    columns = [column for column, wanted in zip(columns, used, strict=True) if wanted]
    listed = [[item for item, wanted in zip(row, used, strict=True) if wanted] for row in listed]
    body = [
        tag("tr", *(_cell(column, item) for column, item in zip(columns, row, strict=True)), class_=kind or None)
        for row, kind in zip(listed, classes or [""] * len(listed), strict=True)
    ]
    if not body:
        return Html("")
    head = tag(
        "tr",
        *(
            tag("th", tag("button", column.title, type="button"), scope="col", title=column.hint, class_=column.class_)
            for column in columns
        ),
    )
    whole = tag("table", tag("caption", caption), tag("thead", head), tag("tbody", *body))
    return tag("div", whole, class_="table", data_rows=len(body))


def _cell(column: Column, cell: TableCell) -> Html:
    shown = NOTHING if cell.shown in _EMPTY else cell.shown
    value = cell.value
    if value is None and isinstance(cell.shown, int | float):
        value = cell.shown
    is_long = isinstance(shown, str) and not isinstance(shown, Html) and len(shown) > _LONGEST_NAME
    return tag("td", shown, class_=column.class_ or ("prose" if is_long else None), data_value=value)


def pairs(values: Mapping[str, object] | Iterable[tuple[str, object]], *, caption: str) -> Html:
    """Return a table of names and values, in the given order, or "" for no values."""
    items = values.items() if isinstance(values, Mapping) else values
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in items]
    return tag("table", tag("caption", caption), tag("tbody", *rows), class_="pairs") if rows else Html("")


def bullets(items: Iterable[object]) -> Html:
    """Return a list, or "" for no items."""
    found = [tag("li", item) for item in items]
    return tag("ul", *found) if found else Html("")


def folded(summary: object, content: Html, *, packed: bool, **attributes: object) -> Html:
    """Return a folded element. A ``packed`` element holds ``content`` compressed until it is opened (see page.js)."""
    data = base64.b64encode(zlib.compress(content.encode(), 9)).decode() if packed else None
    return tag("details", tag("summary", summary), "" if packed else content, **attributes, data_packed=data)


def data(value: Any) -> str:
    """Format a plain value for a cell: mappings become ``name: value`` pairs."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items()) or NOTHING
    return str(value)


@dataclass(frozen=True, slots=True)
class Figure:
    """Headline number: label, value, and a line of details. ``verdict``: good or bad."""

    label: str
    value: str
    note: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """Section of a page. Pages omit sections that have no content. ``lead``: an introductory sentence."""

    title: str
    content: Html
    lead: str = ""


def render(title: str, figures: Iterable[Figure], sections: Iterable[Section], *, note: str = "") -> str:
    """Return the page as text. ``note``: a line below the title."""
    shown = [section for section in sections if section.content]
    contents = tag("nav", *(tag("a", s.title, href=f"#{_anchor(s.title)}") for s in shown), aria_label="contents")
    numbers = tag("div", *map(_figure, figures), class_="figures")
    body = tag(
        "main",
        tag("h1", title),
        tag("p", note, class_="note") if note else "",
        numbers,
        contents,
        *map(_section, shown),
    )
    head = joined(
        (
            Html('<meta charset="utf-8">'),
            Html('<meta name="viewport" content="width=device-width, initial-scale=1">'),
            Html('<link rel="icon" href="data:,">'),
            Html(PAGE_MARK),
            tag("title", title),
            Html(f"<style>{_asset('page.css')}</style>"),
        ),
        "\n",
    )
    script = Html(f"<script>{_asset('page.js')}</script>")
    page = f'<!DOCTYPE html>\n<html lang="en"><head>\n{head}\n</head>\n<body>\n{body}\n{script}\n</body></html>\n'
    return page.encode(errors="replace").decode()  # file names may contain bytes that are not UTF-8


def _figure(figure: Figure) -> Html:
    return tag(
        "div",
        tag("span", figure.label, class_="label"),
        tag("strong", figure.value, class_=figure.verdict or None),
        tag("span", figure.note, class_="note"),
        class_="figure",
    )


def _section(section: Section) -> Html:
    lead = tag("p", section.lead) if section.lead else Html("")
    return tag("section", tag("h2", section.title), lead, section.content, id=_anchor(section.title))


def _anchor(title: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in title.lower())


@cache
def _asset(name: str) -> str:
    return files("odc_mlir.pages").joinpath(name).read_text(encoding="utf-8").strip()
