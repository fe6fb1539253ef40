"""Markup: what comes from a model is text, tables say by what they are sorted, long names stay whole in their title."""

from __future__ import annotations

import re
from pathlib import Path

from odc_mlir.pages import charts
from odc_mlir.pages.markup import (
    Column,
    Figure,
    Html,
    Section,
    TableCell,
    bullets,
    data,
    joined,
    pairs,
    render,
    short_name,
    table,
    tag,
    text,
)
from odc_mlir.simulator.path import CAUSES

EVIL = "<script>alert('x')</script>&\""


def test_text_is_escaped_and_markup_is_not() -> None:
    assert text(EVIL) == "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;"
    assert text(Html("<b>")) == "<b>"
    assert text("\x1b[2J\u202e") == "\\u001b[2J\\u202e"
    assert tag("a", EVIL, title=EVIL) == f'<a title="{text(EVIL)}">{text(EVIL)}</a>'
    assert tag("i", class_="x", data_value=3, hidden=None) == '<i class="x" data-value="3"></i>'
    assert tag("meta", charset="utf-8") == '<meta charset="utf-8">'
    assert joined(["a<", Html("<b>")], ", ") == "a&lt;, <b>"


def test_a_page_holds_no_tag_of_a_name() -> None:
    page = render(EVIL, [Figure(EVIL, EVIL, EVIL)], [Section(EVIL, text(EVIL), EVIL)])
    assert "<script>alert" not in page
    assert page.count("alert(") >= 4


def test_names_that_are_no_text() -> None:
    assert render("bad\udcff", [], []).encode()


def test_a_section_without_content_is_left_out() -> None:
    page = render("t", [], [Section("Empty", Html("")), Section("Full", Html("<p>x</p>"))])
    assert "Empty" not in page
    assert '<a href="#full">Full</a>' in page
    assert '<section id="full">' in page


def test_tables() -> None:
    columns = (Column("name"), Column("size", number=True, hint="in bytes"), Column("never"))
    rows = [("a", TableCell("1,000", 1000), None), ("b", 7, "")]
    found = table(columns, rows, caption="sizes", classes=["host", ""])
    assert '<td class="number" data-value="1000">1,000</td>' in found
    assert '<td class="number" data-value="7">7</td>' in found
    assert '<th scope="col" title="in bytes" class="number">' in found
    assert "never" not in found, "a column without values is left out"
    assert '<tr class="host">' in found
    assert 'data-rows="2"' in found
    assert table(columns, [], caption="nothing") == ""
    assert 'class="prose"' in table(columns, [("a sentence " * 8, 1, 1)], caption="c"), "text has a least width"
    assert 'class="prose"' not in found
    assert "–" in table(columns, [("a", None, 1), ("b", 2, 1)], caption="c"), "nothing is a dash"


def test_names_and_values() -> None:
    long = "block/" * 20 + "end"
    assert short_name("short") == '<span class="name">short</span>'
    assert f'title="{long}"' in short_name(long)
    shown = short_name(long).partition(">")[2].partition("<")[0]
    assert len(shown) == 56
    assert shown.startswith("block/")
    assert shown.endswith("/end")
    assert data({"a": 1, "b": None}) == "a: 1, b: None"
    assert (data(None), data(True), data({})) == ("–", "yes", "–")
    assert pairs({}, caption="c") == bullets([]) == ""
    assert "<li>x</li>" in bullets(["x"])


def test_stacked_bars_have_the_width_of_their_share() -> None:
    found = charts.stack({"a": 25, "b": 50, "c": 0}, ["a", "b", "c"], 100)
    assert "width:25.000%" in found
    assert "width:50.000%" in found
    assert found.count("<i ") == 2
    assert charts.stack({"a": 1}, ["a"], 0).count("<i ") == 0


def test_time_lines() -> None:
    conv = charts.BusyOperator(0, ["conv <1>", "0"], {"mac": [0, 400, 500, 520], "load": [600, 620]})
    late = charts.BusyOperator(7, ["a name that is too long for the box of its operator", "7"], {"load": [900, 1000]})
    found = charts.time_line(["mac", "load"], [conv, late], 1000, title="engines")
    assert "conv &lt;1&gt;: cycles 0 to 620" in found
    assert 'd="M150.0 2h340.0v14H150.0zM575.0 2h17.0v14H575.0zM660.0 20h17.0v14H660.0z"' in found
    assert re.findall(r'class="inside"[^>]*>([^<]*)<', found) == ["conv &lt;1&gt;", "0", "7"]
    assert found.count('class="idle"') == 2
    assert re.findall(r'data-op="(\d+)"', found) == ["0", "7"]
    assert charts.time_line(["mac"], [], 0, title="none") == ""


def test_rooflines_leave_out_what_has_no_place() -> None:
    roofs = [charts.Roof("array", value=256), charts.Roof("port", slope=8)]
    found = charts.roofline(roofs, [(3, "a", 1.0, 5.0), (4, "none", 0, 0)], "byte", title="roofline")
    assert found.count("<circle") == found.count('data-op="3"') == 1
    assert "a: 1 MACs per byte, 5 MACs per cycle" in found
    assert charts.roofline(roofs, [(4, "none", 0, 1)], "byte", title="roofline") == ""
    # One decade of each axis: the port's slope of 8 enters at (1.25, 10) and leaves at (10, 80).
    ends = charts.roofline([charts.Roof("port", slope=8)], [(3, "a", 2.0, 11.0)], "byte", title="r")
    assert 'd="M231.4 300.0L990.0 36.3"' in ends


def test_every_cause_has_a_colour_of_its_own() -> None:
    style = (Path(charts.__file__).parent / "page.css").read_text()
    assert len(CAUSES) <= charts.COLOURS
    for theme in style.split("@media (prefers-color-scheme: dark)")[:2]:
        values = [theme.partition(f"--c{index}: ")[2][:7] for index in range(charts.COLOURS)]
        assert len(set(values)) == charts.COLOURS
        assert all(value.startswith("#") for value in values)
