"""The validation set: micro-programs with the cycles that a reader adds up (``test/data/validation.toml``)."""

from __future__ import annotations

import ast
import operator
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from textwrap import wrap
from typing import Any

PATH = Path(__file__).resolve().parents[1] / "test" / "data" / "validation.toml"
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Case:
    """One program; ``terms``: (expression, what it stands for), whose sum, rounded up, is its cycles."""

    name: str
    text: str
    why: str
    terms: tuple[tuple[str, str], ...]
    target: str = "npu-256"
    memory: str = "sram"
    model: str = "parity"

    @property
    def cycles(self) -> int:
        """The sum, rounded up."""
        return -int(-sum((value(expression) for expression, _ in self.terms), Fraction()) // 1)


def page() -> str:
    """The set as Markdown: every program, what it shows, and its sum."""
    return "\n\n".join(map(_section, cases()))


def _section(case: Case) -> str:
    lines = [(line, len(list(group))) for line, group in groupby(case.text.splitlines())]
    width = 112
    text = []
    for line, count in lines:
        text += wrap(line, width, subsequent_indent="    ", break_long_words=False)
        text += [f"    ... {count} times"] if count > 1 else []
    where = f"`{case.target}`, memory `{case.memory}`" + ("" if case.model == "parity" else f", `{case.model}`")
    rows = [f"| `{expression}` | {meaning} |" for expression, meaning in case.terms]
    rows.append(f"| **{case.cycles}** | cycles |")
    return "\n".join(
        [f"### {case.name[0].upper()}{case.name[1:]}", "", f"{case.why} ({where})", "", "```", *text, "```", ""]
        + ["| sum | of |", "| --- | --- |", *rows]
    )


def value(expression: str) -> Fraction:
    """The exact value of a sum or product of whole numbers."""
    return _value(ast.parse(expression, mode="eval").body)


def _value(node: ast.AST) -> Fraction:
    if isinstance(node, ast.BinOp):
        return _OPERATORS[type(node.op)](_value(node.left), _value(node.right))
    assert isinstance(node, ast.Constant)
    assert isinstance(node.value, int)
    return Fraction(node.value)


def cases() -> list[Case]:
    """All programs, in the order of the file."""
    entries: list[dict[str, Any]] = tomllib.loads(PATH.read_text())["program"]
    return [
        Case(**{**{k: v for k, v in e.items() if k != "sum"}, "terms": tuple(map(tuple, e["sum"]))}) for e in entries
    ]
