"""HTML as values: text is escaped unless it is markup, so names in models cannot become tags or control characters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from odc_mlir.errors import printable
from odc_mlir.formats.quantities import NOTHING, middle_cut

_LONGEST_NAME = 56  # characters shown of a name; the whole is in its title
_EMPTY: tuple[object, ...] = (None, "")
_VOID = frozenset({"input", "meta", "br"})


class Html(str):
    """Markup, as opposed to text."""

    __slots__ = ()


def text(value: object) -> Html:
    """Return ``value`` as text, unless it is markup."""
    return value if isinstance(value, Html) else Html(escape(printable(str(value))))


def tag(name: str, *children: object, **attributes: object) -> Html:
    """``<name …>children</name>``; ``class_`` and ``data_x`` are written ``class`` and ``data-x``, None is left out."""
    pairs = (
        f' {key.rstrip("_").replace("_", "-")}="{escape(printable(str(value)))}"'
        for key, value in attributes.items()
        if value is not None
    )
    opening = f"<{name}{''.join(pairs)}>"
    return Html(opening if name in _VOID else f"{opening}{''.join(map(text, children))}</{name}>")


def joined(parts: Iterable[object], between: str = "") -> Html:
    """Several pieces of markup or text as one."""
    return Html(between.join(map(text, parts)))


def short_name(name: str, most: int = _LONGEST_NAME) -> Html:
    """A name that may be long: its middle is left out, the whole shows when pointed at."""
    shown = middle_cut(name, most)
    return tag("span", shown, class_="name", title=None if shown == name else name)


@dataclass(frozen=True, slots=True)
class Column:
    """A table's column: ``number`` ones stand to the right and are sorted by value, ``tight`` ones keep to a line."""

    title: str
    number: bool = False
    hint: str | None = None
    tight: bool = False

    @property
    def class_(self) -> str | None:
        return "number" if self.number else "tight" if self.tight else None


@dataclass(frozen=True, slots=True)
class TableCell:
    """What a cell shows, and by which value it is sorted."""

    shown: object
    value: float | str | None = None


def table(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], *, caption: str, classes: Sequence[str] = ()
) -> Html:
    """A table that can be sorted by every column, searched, and unfolded where it is long.

    ``rows``: one :class:`TableCell` or value per column; a column that is empty in all of them is left out.
    ``classes``: one per row, or none. Nothing without rows.
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
            tag(
                "th",
                tag("button", column.title, type="button"),
                scope="col",
                title=column.hint,
                class_=column.class_,
            )
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
    return tag("td", shown, class_=column.class_, data_value=value)


def pairs(values: Mapping[str, object] | Iterable[tuple[str, object]], *, caption: str) -> Html:
    """A table of names and values, in the order given; nothing where there are none."""
    items = values.items() if isinstance(values, Mapping) else values
    rows = [tag("tr", tag("th", name, scope="row"), tag("td", value)) for name, value in items]
    return tag("table", tag("caption", caption), tag("tbody", *rows), class_="pairs") if rows else Html("")


def bullets(items: Iterable[object]) -> Html:
    """A list; nothing where it has no items."""
    found = [tag("li", item) for item in items]
    return tag("ul", *found) if found else Html("")


def data(value: Any) -> str:
    """A plain value as text for a cell: mappings become ``name: value`` pairs."""
    if value is None:
        return NOTHING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {item}" for name, item in value.items()) or NOTHING
    return str(value)
