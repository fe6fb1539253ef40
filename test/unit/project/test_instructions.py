"""Adding an instruction: the table is the one declaration, and this test names what a new row still lacks."""

from __future__ import annotations

import re

from helpers.data import REPOSITORY
from odc_mlir.dialects.npu_isa import BY_MNEMONIC, UNROLLED
from odc_mlir.isa.effects import nothing
from odc_mlir.isa.fields import Instruction, Kind, Queue
from odc_mlir.isa.instructions import INSTRUCTIONS
from odc_mlir.simulator.engines import executors
from validation_set import cases


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
    return lacks


def test_every_instruction_is_complete() -> None:
    lowering, tests = _text("odc_mlir/transforms/npu"), _text("test/unit/simulator", "test/filecheck")
    docs = (REPOSITORY / "docs" / "npu.md").read_text()
    summed = {line.split()[0].partition("@")[0] for case in cases() for line in case.text.splitlines()}
    lacking = {s.mnemonic: lacks for s in INSTRUCTIONS if (lacks := _lacks(s, lowering, tests, docs, summed))}
    assert not lacking, "\n".join(f"{name} lacks {', '.join(lacks)}" for name, lacks in lacking.items())


def test_an_incomplete_instruction_is_named() -> None:
    lacks = _lacks(Instruction("nothing", 0x7F, Queue.VECTOR, (), "does nothing"), "", "", "", set())
    assert [what.split()[0] for what in lacks] == ["a", "effects", "a", "an", "an", "a", "a", "a"]
