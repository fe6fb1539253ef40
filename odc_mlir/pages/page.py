"""The frame of a page: headline numbers first, sections after them, style and script inside."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from odc_mlir.formats.kinds import PAGE_MARK
from odc_mlir.pages.markup import Html, joined, tag


@dataclass(frozen=True, slots=True)
class Figure:
    """One of the big numbers at the top: what it is, its value, and a line that says more. ``verdict``: good or bad."""

    label: str
    value: str
    note: str = ""
    verdict: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page; without content it is left out. ``lead``: a sentence that says what is seen."""

    title: str
    content: Html
    lead: str = ""


def render(title: str, figures: Iterable[Figure], sections: Iterable[Section], *, note: str = "") -> str:
    """The page as text. ``note``: a line below the title."""
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
    return page.encode(errors="replace").decode()  # names of files may hold bytes that are no text


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
