"""Adding an instruction: the table is the one declaration, and this test names what a new row still lacks."""

from __future__ import annotations

import ast
import re
from dataclasses import replace
from itertools import chain
from operator import attrgetter

import numpy as np
import pytest

from helpers.data import REPOSITORY
from odc_mlir import targets
from odc_mlir.dialects.npu_isa import BY_MNEMONIC, UNROLLED
from odc_mlir.isa.fields import FUNCTIONS, Area, Cost, Effects, Field, Instruction, Kind, Queue, nothing
from odc_mlir.isa.instructions import INSTRUCTIONS, in_order
from odc_mlir.simulator.engines import executors
from validation_set import cases

TARGET = targets.load("npu-256")


def _text(*folders: str) -> str:
    files = [path for folder in folders for path in (REPOSITORY / folder).rglob("*.*")]
    return "\n".join(path.read_text() for path in files if path.suffix in (".py", ".mlir") and path.is_file())


def _lacks(spec: Instruction, lowering: str, tests: str, docs: str, summed: set[str]) -> list[str]:
    name, lacks = spec.mnemonic, []
    executed = spec.queue not in (None, Queue.FETCH)
    moves_memory = any(field.kind is Kind.MEMORY for field in spec.fields)  # whose cost is that of its bursts
    if not re.search(rf"^### .*\b{name}\b", docs, re.MULTILINE):
        lacks.append("a section of docs/npu.md that says what it does")
    if executed and spec.effects is nothing:
        lacks.append("effects in its row of odc_mlir/isa/table/")
    if executed and not spec.cost.text and not moves_memory:
        lacks.append("a cost in its row of odc_mlir/isa/table/")
    if executed and name not in executors():
        lacks.append("an executor in odc_mlir/simulator/engines/")
    if name not in BY_MNEMONIC and name not in UNROLLED:
        lacks.append("an operation of the dialect")
    if spec.queue is not Queue.FETCH and f'"{name}"' not in lowering:
        lacks.append("a lowering that makes it")
    if not re.search(rf"npu\.isa\.{name}\b|[\"']{name}[\"' ]", tests):
        lacks.append("a test that names it")
    if name not in summed:
        lacks.append("a program in docs/npu.md or docs/validation.md whose cycles are summed by hand")
    return [*lacks, *_unknown_in_effects(spec), *_unknown_in_cost(spec)]


class _Codes(dict[str, int]):
    """The values of an instruction's fields, which remember what else was asked for."""

    def __init__(self, values: dict[str, int]) -> None:
        super().__init__(values)
        self.missing: list[str] = []

    def __missing__(self, name: str) -> int:
        self.missing.append(name)
        return 1

    def get(self, name: str, default: int | None = None) -> int:  # type: ignore[override]
        return self[name]


def _unknown_in_effects(spec: Instruction) -> list[str]:
    """Names that effects use for fields, with random values of fields, and that are none."""
    rng, found = np.random.default_rng(1), dict[str, str]()
    addresses = {field.name for field in spec.places}
    for _ in range(50):
        codes = _Codes({f.name: int(rng.integers(f.range[0], min(f.range[1], 9) + 1)) for f in spec.immediates})
        for area in chain(*spec.effects(codes)):
            if area.field not in addresses:
                found[area.field] = "an address"
            if area.ring is not None and area.ring[0] not in addresses:
                found[area.ring[0]] = "an address"
        found |= dict.fromkeys(codes.missing, "a field")
    return [f"{kind} called {name!r}, which its effects use" for name, kind in found.items()]


def _unknown_in_cost(spec: Instruction) -> list[str]:
    """Names that its cost uses and that are no field, no line before, no function and no key of the target."""
    known, unknown = {field.name for field in spec.fields}, list[str]()
    for line in ast.parse(spec.cost.text).body:
        assert isinstance(line, ast.Assign), "costs are lines of name = expression"
        names, value = line.targets[0], line.value
        inner = {id(node.value) for node in ast.walk(value) if isinstance(node, ast.Attribute)}
        called = {id(node.func): node.func for node in ast.walk(value) if isinstance(node, ast.Call)}
        unknown += [ast.unparse(name) for name in called.values() if ast.unparse(name) not in FUNCTIONS]
        for node in ast.walk(value):
            if isinstance(node, ast.Name | ast.Attribute) and id(node) not in inner | set(called):
                text = ast.unparse(node)
                if text not in known and not _is_key(text):
                    unknown.append(text)
        known |= {node.id for node in ast.walk(names) if isinstance(node, ast.Name)}
    return [f"anything called {name!r}, which its cost uses" for name in dict.fromkeys(unknown)]


def _is_key(text: str) -> bool:
    try:
        attrgetter(text)(TARGET)
    except AttributeError:
        return False
    return True


def test_every_instruction_is_complete() -> None:
    lowering, tests = _text("odc_mlir/transforms/npu"), _text("test/unit/simulator", "test/filecheck")
    docs = (REPOSITORY / "docs" / "npu.md").read_text()
    summed = {line.split()[0].partition("@")[0] for case in cases() for line in case.text.splitlines()}
    lacking = {s.mnemonic: lacks for s in INSTRUCTIONS if (lacks := _lacks(s, lowering, tests, docs, summed))}
    assert not lacking, "\n".join(f"{name} lacks {', '.join(lacks)}" for name, lacks in lacking.items())


def test_an_incomplete_instruction_is_named() -> None:
    lacks = _lacks(Instruction("nothing", 0x7F, Queue.VECTOR, (), "does nothing"), "", "", "", set())
    assert [what.split()[0] for what in lacks] == ["a", "effects", "a", "an", "an", "a", "a", "a"]


def test_names_that_are_no_fields_are_told() -> None:
    fields = (Field("count", 8, "how many"), Field("target", 16, "where", Kind.TILE))
    cost = Cost("n = 2 * count\nlanes = cuont + n + vector.start_cycles + vector.begin_cycles + twice(n)")
    right = Instruction(
        "fill", 0x7F, Queue.VECTOR, fields, "fills", lambda v: Effects((), (Area("target", v["count"]),))
    )
    assert _unknown_in_effects(right) == []
    assert sorted(_unknown_in_cost(replace(right, cost=cost))) == [
        f"anything called {name!r}, which its cost uses" for name in ("cuont", "twice", "vector.begin_cycles")
    ]
    wrong = replace(right, effects=lambda v: Effects((Area("count", v["cuont"]),), (Area("target", v.get("n", 0)),)))
    assert sorted(_unknown_in_effects(wrong)) == [
        "a field called 'cuont', which its effects use",
        "a field called 'n', which its effects use",
        "an address called 'count', which its effects use",
    ]


def test_an_opcode_or_mnemonic_in_use_is_told() -> None:
    row = Instruction("flood", 0x45, Queue.VECTOR, (), "fills")
    with pytest.raises(ValueError, match=r"opcode 0x45 of flood is resize's"):
        in_order([*INSTRUCTIONS, row])
    with pytest.raises(ValueError, match=r"resize is the mnemonic of opcodes 0x45 and 0x7f"):
        in_order([*INSTRUCTIONS, replace(row, mnemonic="resize", opcode=0x7F)])
    assert in_order(reversed(INSTRUCTIONS)) == INSTRUCTIONS
