"""Costs as formulas: what they can say, and that every line of the table's serves for something."""

from __future__ import annotations

import ast

import pytest

from odc_mlir import targets
from odc_mlir.isa.fields import DELAYS, WIDTHS, Cost, Instruction
from odc_mlir.isa.instructions import BY_MNEMONIC, INSTRUCTIONS

NPU = targets.load("npu-256")
CHARGED = {*DELAYS, *WIDTHS}


def test_lines_build_on_fields_lines_before_and_the_target() -> None:
    cost = Cost(
        "n, twice = count, 2 * count\nstart = vector.start_cycles + (n if not kept else 0)\nlanes = max(twice, 3)"
    )
    assert cost.evaluate({"count": 4, "kept": 0}, NPU) == {"n": 4, "twice": 8, "start": 16, "lanes": 8}
    assert cost.evaluate({"count": 1, "kept": 1}, NPU) == {"n": 1, "twice": 2, "start": 12, "lanes": 3}


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("ceil(7 / 2) + 7 // 2 + 7 % 4", 10),
        ("item('i16') * item('u8')", 2),
        ("kind == 'a' or kind in ('c', 'd')", False),
        ("kind != 'a' and not 0", True),
        ("array.shapes[shape]", NPU.array.shapes[1]),
        ("rows(4, 3, 1, 1, 3)", 6),
        ("rows(4, 3, 1, 2, 3)", 8),
        ("rows(4, 5, 1, 1, 3)", 7 + 5),
    ],
)
def test_expressions(expression: str, value: object) -> None:
    assert Cost(f"x = {expression}").evaluate({"kind": "b", "shape": 1}, NPU)["x"] == value


def test_cycles_alone_are_those_of_what_takes_longest() -> None:
    text = "start = 5\nshortest = 10\nlanes = {}\ndrain = 1"
    assert Cost(text.format(8)).alone({}, NPU) == 5 + 10 + 1
    assert Cost(text.format(160)).alone({}, NPU) == 5 + 160 / NPU.vector.requant_lanes + 1
    assert Cost().alone({}, NPU) == 0


@pytest.mark.parametrize("spec", INSTRUCTIONS, ids=lambda spec: spec.mnemonic)
def test_every_line_is_charged_or_used(spec: Instruction) -> None:
    lines = [line for line in ast.parse(spec.cost.text).body if isinstance(line, ast.Assign)]
    given, used = (
        [{node.id for node in ast.walk(part) if isinstance(node, ast.Name)} for part in parts]
        for parts in ([line.targets[0] for line in lines], [line.value for line in lines])
    )
    for number, names in enumerate(given):
        for name in names - CHARGED:
            assert any(name in later for later in used[number + 1 :]), f"{name} of {spec.mnemonic} serves for nothing"


def test_a_resize_of_4_by_6_pixels_by_hand() -> None:
    spec = BY_MNEMONIC["resize"]
    fields = {"kind": 1, "type": 1, "in_width": 3, "in_height": 2, "out_width": 6, "out_height": 4, "channels": 8}
    found = spec.cost.evaluate(spec.words(fields), NPU)
    assert (found["lanes"], found["tile_reads"], found["tile_writes"]) == (3 * 192, 4 * 192, 192)
    wide = spec.cost.evaluate(spec.words(fields | {"type": 2}), NPU)
    assert (wide["lanes"], wide["tile_reads"], wide["tile_writes"]) == (3 * 192, 2 * 4 * 192, 2 * 192)
    nearest = spec.cost.evaluate(spec.words(fields | {"kind": 0, "out_width": 1, "out_height": 1}), NPU)
    assert (nearest["lanes"], nearest["tile_reads"]) == (8, 48)  # every pixel of the tile at least
