"""Listings read back to the bytes they were made of, and what is wrong in one is named with its line."""

from __future__ import annotations

import dataclasses
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers import npu_listing
from odc_mlir.errors import CompileError, PackageError
from odc_mlir.isa import container
from odc_mlir.isa.assembly import read_listing, write_listing
from odc_mlir.isa.container import MapEntry

FILE = npu_listing.packed()
BASE = container.read(FILE)
TEXT = write_listing(BASE)


def test_a_listing_is_its_binary() -> None:
    assert container.write(read_listing(TEXT)) == FILE


@given(st.text(max_size=8), st.binary(max_size=150), st.none() | st.floats(1e-30, 1e30))
def test_any_name_constant_and_scale(name: str, constants: bytes, scale: float | None) -> None:
    inputs = tuple(dataclasses.replace(tensor, name=name, scale=scale) for tensor in BASE.inputs)
    changed = dataclasses.replace(
        BASE, inputs=inputs, constants=constants, operators=(MapEntry(name, name, 1, 2, ((0, 3), (5, 1))),)
    )
    assert container.write(read_listing(write_listing(changed))) == container.write(changed)


@given(st.permutations(["target", "target_version", "memory", "compiler", "nested"]), st.floats(1e-30, 1e30))
def test_a_program_and_its_file_give_one_listing(order: list[str], scale: float) -> None:
    values = {**BASE.metadata, "compiler": "1", "nested": {"b": 1, "a": 2}}
    inputs = tuple(dataclasses.replace(tensor, scale=scale) for tensor in BASE.inputs)
    made = dataclasses.replace(BASE, metadata={key: values[key] for key in order}, inputs=inputs)
    assert write_listing(container.read(container.write(made))) == write_listing(made)


def test_comments_and_empty_lines_are_left_out() -> None:
    assert read_listing("; a comment\n\n" + TEXT.replace("\nhalt", "\n\n  halt ; the end")) == read_listing(TEXT)


def test_without_its_constants_a_listing_is_for_reading_only() -> None:
    text = write_listing(BASE, data=False)
    assert len(text) < len(TEXT)
    with pytest.raises(CompileError, match=rf"the constants are {len(BASE.constants)} bytes, the listing holds 0"):
        read_listing(text)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (".arena_bytes", ".size", "unknown directive .size (in line 5)"),
        (".arena_bytes ", ".arena_bytes x", ".arena_bytes is malformed: invalid literal for int() with base 10: 'x"),
        (".source_hash", "; .source_hash", "the listing has no .source_hash"),
        (".bytes ", ".bytes 0", ".bytes is malformed: non-hexadecimal number found"),
        ('"dtype"', '"type"', ".input is malformed: expected the fields name, dtype,"),
        ('"offset": 0', '"offset": true', ".input is malformed: offset is True"),
        ('"ranges": [[', '"ranges": [[1, ', ".operator is malformed: a range is a first instruction and a count"),
        ('"ranges": [[', '"ranges": ["a", [', ".operator is malformed: a range is 'a'"),
        ('"shape": [', '"shape": [1.5, ', ".input is malformed: shape is [1.5"),
        (".metadata {", ".metadata [{", ".metadata is malformed: "),
        (".compiler_version ", ".compiler_version 1.", ".compiler_version is malformed: too many values to unpack"),
        ("\nhalt", "\nstop", "unknown instruction 'stop'"),
    ],
)
def test_mistakes(old: str, new: str, message: str) -> None:
    assert old in TEXT
    with pytest.raises(CompileError) as caught:
        read_listing(TEXT.replace(old, new, 1))
    assert message in str(caught.value)


def test_values_without_room_in_the_file() -> None:
    """Each number and text of each directive, replaced by what a file cannot hold: refused, or read back as written."""
    lines = TEXT.split("\n")
    refused = 0
    for index, line in enumerate(lines):
        if not line.startswith(".") or line.startswith((".bytes", ".metadata")):
            continue
        for found in re.finditer(r'(?<=[ \[.])(-?\d+(\.\d+)?|[0-9a-f]{32,}|"[^"]*"(?!:))', line):
            for value in ("-1", "4294967296", "1e400", "NaN", '"\\ud800"', f'"{"n" * 65536}"'):
                text = "\n".join(
                    [*lines[:index], line[: found.start()] + value + line[found.end() :], *lines[index + 1 :]]
                )
                try:
                    written = container.write(read_listing(text))
                except (CompileError, PackageError):
                    refused += 1
                else:
                    assert container.write(container.read(written)) == written
    assert refused > 50


def test_two_programs_in_one_text() -> None:
    with pytest.raises(CompileError, match=r"a second \.metadata .*a listing must hold one program"):
        read_listing(TEXT + TEXT)
