"""docs/npu.md follows the instruction table."""

from __future__ import annotations

import pytest

import generate_docs
from helpers.data import REPOSITORY
from odc_mlir.isa.instructions import INSTRUCTIONS

TEXT = (REPOSITORY / "docs" / "npu.md").read_text()


def test_generated_parts_are_up_to_date() -> None:
    assert generate_docs.updated(TEXT) == TEXT, "run scripts/generate_docs.py"


@pytest.mark.parametrize("spec", INSTRUCTIONS, ids=lambda spec: spec.mnemonic)
def test_every_instruction_is_described(spec: object) -> None:
    mnemonic = spec.mnemonic  # type: ignore[attr-defined]
    assert f"<!-- generated: npu-{mnemonic} -->" in TEXT
    heading = "### loop and end" if mnemonic in ("loop", "end") else f"### {mnemonic}\n"
    assert heading in TEXT


def test_a_changed_table_is_noticed() -> None:
    assert generate_docs.updated(TEXT.replace("| `bytes` | 24 |", "| `bytes` | 23 |")) == TEXT
