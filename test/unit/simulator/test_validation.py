"""The validation set: both simulators take exactly the cycles that are added up by hand."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import pytest

from helpers.npu import program
from odc_mlir.isa.instructions import INSTRUCTIONS
from odc_mlir.simulator import MODES, simulate
from validation_set import Case, cases, parse, value

REGION_BYTES = 1 << 15
MEMORY: dict[str, Any] = {"constants": bytes(REGION_BYTES), "arena": REGION_BYTES}
MEMORY |= {"inputs": [("uint8", (REGION_BYTES,))], "outputs": [("uint8", (REGION_BYTES,))]}


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name.replace(" ", "-"))
def test_cycles(case: Case) -> None:
    loaded = program(case.text, target=case.target, memory=case.memory, **MEMORY)
    found = [simulate(loaded, execute=False, mode=mode, memory_model=case.model).counters.cycles for mode in MODES]
    assert found == [case.cycles] * len(MODES)
    assert case.total == case.cycles


def test_the_set_is_large_and_holds_every_instruction() -> None:
    found = cases()
    assert len(found) >= 40
    assert len({case.name for case in found}) == len(found)
    words = {line.split()[0].partition("@")[0] for case in found for line in case.text.splitlines()}
    assert words == {spec.mnemonic for spec in INSTRUCTIONS}


def test_sums_are_exact() -> None:
    assert value("(7 + 5) * 20 / 3 - 1") == Fraction(79)
    assert Case("x", "halt", "", (("1 / 3", ""), ("2 / 3", "")), 1).total == 1
    assert Case("x", "halt", "", (("1 / 3", ""), ("1", "")), 2).total == 2


PAGE = """\
### Two of `sync`

Why it takes that. (`npu-128`, memory `flash`, `strict`)

```
sync@mac
    ... 2 times
halt
    status=1
```

| sum | of |
| --- | --- |
| `1 + 1` | one | and more |
| **2** | cycles |
"""


def test_a_section_is_a_program() -> None:
    (case,) = parse(PAGE)
    assert case == Case(
        "two of `sync`",
        "sync@mac\nsync@mac\nhalt status=1",
        "Why it takes that.",
        (("1 + 1", "one | and more"),),
        2,
        "npu-128",
        "flash",
        "strict",
    )


def test_a_sentence_without_a_place_has_the_default_place() -> None:
    (case,) = parse(PAGE.replace(" (`npu-128`, memory `flash`, `strict`)", ""))
    assert (case.why, case.target, case.memory, case.model) == ("Why it takes that.", "npu-256", "sram", "parity")


@pytest.mark.parametrize("damage", ["| **2** | cycles |", "### Two of `sync`\n\n", ", memory `flash`, `strict`"])
def test_a_sum_in_another_form_is_not_left_out(damage: str) -> None:
    with pytest.raises(ValueError, match=r"1 sums, 0 of them|ends neither in"):
        list(parse(PAGE.replace(damage, "")))
