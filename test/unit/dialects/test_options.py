"""Options: every field of every options table of the schema becomes a property that survives text."""

from __future__ import annotations

from typing import Any

import pytest
from xdsl.dialects.builtin import IntegerAttr, StringAttr, UnitAttr, f32, i1, i32, i64
from xdsl.ir import Attribute

from odc_mlir.dialects.circle_options import (
    RECORD_OPTIONS,
    BoolOption,
    BytesOption,
    ListOption,
    NumberOption,
    NumbersOption,
    OptionProperty,
    SymbolOption,
    TextOption,
    WordOption,
    table_options,
)
from odc_mlir.formats.circle.schema import circle_schema
from odc_mlir.support.floats import to_float32

TABLES = [table for union in ("BuiltinOptions", "BuiltinOptions2") for table in circle_schema().unions[union].tags]

SAMPLES: dict[type[OptionProperty], Any] = {
    BoolOption: True,
    TextOption: 'a "b"',
    BytesOption: b"\0\1",
    SymbolOption: "main",
}


def _sample(option: OptionProperty) -> Any:
    """A value that is not the default."""
    if isinstance(option, WordOption):
        return option.words[-1]
    if isinstance(option, ListOption):
        return (_sample(option.element),)
    if isinstance(option, NumbersOption):
        return (2.0, -3.0) if str(option.type) == "f32" else (2, -3)
    if isinstance(option, NumberOption):
        return to_float32(0.1) if option.type == f32 else 7
    return SAMPLES[type(option)]


@pytest.mark.parametrize("table", TABLES)
def test_values_survive_attributes(table: str) -> None:
    for option in table_options(table):
        attribute = option.encode(_sample(option))
        assert option.accepts(attribute), option.name
        assert option.decode(attribute) == _sample(option), option.name
        assert not option.accepts(UnitAttr()), option.name
        assert option.kind != OptionProperty("").kind, option.name


@pytest.mark.parametrize("option", [*table_options("Conv2DOptions"), *RECORD_OPTIONS[:-1]], ids=lambda o: o.name)
def test_schema_defaults_are_of_their_kind(option: OptionProperty) -> None:
    if option.default is not None:
        assert option.accepts(option.encode(option.default))
        assert option.decode(option.encode(option.default)) == option.default


@pytest.mark.parametrize(
    ("option", "attribute"),
    [
        (NumberOption("a"), IntegerAttr(1, i64)),
        (NumberOption("a"), StringAttr("1")),
        (BoolOption("a"), IntegerAttr(1, i32)),
        (NumberOption("a", type=f32), IntegerAttr(1, i32)),
        (WordOption("a", words=("x",)), StringAttr("y")),
        (TextOption("a"), IntegerAttr(1, i1)),
        (BytesOption("a"), StringAttr("x")),
        (ListOption("a", element=BoolOption("")), StringAttr("x")),
        (SymbolOption("a"), StringAttr("x")),
    ],
)
def test_other_attributes_are_refused(option: OptionProperty, attribute: Attribute) -> None:
    assert not option.accepts(attribute)


def test_no_table_has_no_options() -> None:
    assert table_options(None) == ()
