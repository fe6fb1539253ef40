"""The validation set: micro-programs of the documents, with the cycles that a reader adds up."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGES = ("validation.md", "npu.md")
_OPERATORS: dict[type[ast.operator], Callable[[Fraction, Fraction], Fraction]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}
# A heading, a sentence and where it is meant, the program, its sum.
_SECTION = re.compile(
    r"^####? (?P<name>[^\n]+)\n\n(?P<why>[^#|`\n]+(?:`[^`\n]+`[^#|`\n]*)*)\n\n```\n(?P<text>[^`]+)\n```\n\n"
    r"\| sum \| of \|\n\| --- \| --- \|\n(?P<terms>(?:\| `[^`]+` \| [^\n]+ \|\n)+)"
    r"\| \*\*(?P<cycles>\d+)\*\* \| cycles \|$",
    re.MULTILINE,
)
_WHERE = re.compile(
    r"^(?P<why>.*\.)(?: \(`(?P<target>[^`]+)`, memory `(?P<memory>[^`]+)`(?:, `(?P<model>[^`]+)`)?\))?$"
)
_TERM = re.compile(r"^\| `(?P<expression>[^`]+)` \| (?P<meaning>.+) \|$")
_AGAIN = re.compile(r"^    \.\.\. (?P<count>\d+) times$")


@dataclass(frozen=True)
class Case:
    """One program; ``terms``: (expression, what it stands for), whose sum, rounded up, is its ``cycles``."""

    name: str
    text: str
    why: str
    terms: tuple[tuple[str, str], ...]
    cycles: int
    target: str = "npu-256"
    memory: str = "sram"
    model: str = "parity"

    @property
    def total(self) -> int:
        """The sum, rounded up."""
        return -int(-sum((value(expression) for expression, _ in self.terms), Fraction()) // 1)


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
    """All programs, in the order of the pages."""
    return [case for page in PAGES for case in parse((DOCS / page).read_text())]


def parse(page: str) -> Iterator[Case]:
    """The programs of a page. A section that has a sum but not the form of one is an error, a ValueError."""
    found = 0
    for section in _SECTION.finditer(page):
        found += 1
        where = _WHERE.match(section["why"])
        if where is None:
            raise ValueError(f"{section['name']!r} ends neither in a full stop nor in (`target`, memory `mode`)")
        terms = tuple((term["expression"], term["meaning"]) for term in map(_term, section["terms"].splitlines()))
        yield Case(
            name=section["name"][0].lower() + section["name"][1:],
            text="\n".join(_lines(section["text"])),
            why=where["why"],
            terms=terms,
            cycles=int(section["cycles"]),
            target=where["target"] or Case.target,
            memory=where["memory"] or Case.memory,
            model=where["model"] or Case.model,
        )
    if found != page.count("\n| sum | of |\n"):
        raise ValueError(
            f"{page.count('| sum | of |')} sums, {found} of them behind a heading, a sentence and a program"
        )


def _term(line: str) -> re.Match[str]:
    term = _TERM.match(line)
    assert term is not None, "matched as a part of its section"
    return term


def _lines(text: str) -> list[str]:
    """A program's lines: those that begin with spaces belong to the line before, or say how often it stands there."""
    found: list[str] = []
    for line in text.splitlines():
        if again := _AGAIN.match(line):
            found += [found[-1]] * (int(again["count"]) - 1)
        elif line.startswith("    "):
            found[-1] += f" {line.strip()}"
        else:
            found.append(line)
    return found
