"""``--verify-diagnostics``: errors are compared with the comments of a text that expect them, as upstream has it.

::

    // expected-error @below {{scale is inf}}
    // expected-error @+2 {{rank is 3}}           @-1, @above, @unknown: likewise; none: this line
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from odc_mlir.errors import OdcError

_COMMENT = re.compile(r"expected-(\w+)\s*(@(?:unknown|above|below|[+-]\d+))?\s*\{\{(.*?)\}\}")
_START = re.compile(r"expected-(error|warning|note|remark)")
_LINE = re.compile(r":(\d+):\d+$")


@dataclass(frozen=True, slots=True)
class Expected:
    """An error that a comment in ``line`` wants; ``about`` is the line that it must be about, None: no known one."""

    kind: str
    line: int
    about: int | None
    text: str


def expectations(text: str, first_line: int) -> list[Expected]:
    """What the comments of ``text``, which begins at ``first_line`` of its file, expect."""
    found: list[Expected] = []
    for number, line in enumerate(text.split("\n"), first_line):
        for match in _COMMENT.finditer(line):
            kind, place, wanted = match.groups()
            steps = {None: 0, "@above": -1, "@below": 1}
            unknown = place == "@unknown"
            about = None if unknown else number + (steps[place] if place in steps else int(place[1:]))
            found.append(Expected(kind, number, about, wanted))
        if len(_START.findall(line)) != len(_COMMENT.findall(line)):
            found.append(Expected("malformed", number, None, line.strip()))
    return found


def unexpected(expected: list[Expected], errors: list[OdcError], name: str) -> list[str]:
    """A line for every error that nothing expects, and for everything expected that did not come; none: all is well."""
    left, lines = list(expected), []
    for error in errors:
        about, text = _line_of(error), str(error)
        match = next((e for e in left if e.kind == "error" and e.about == about and e.text in text), None)
        if match is not None:
            left.remove(match)
        else:
            lines.append(f"{name}{'' if about is None else f':{about}'}: unexpected error: {text}")
    for item in left:
        if item.kind == "malformed":
            lines.append(f"{name}:{item.line}: no expectation: {item.text}; write expected-error @+N {{{{text}}}}")
        else:
            lines.append(f"{name}:{item.line}: expected {item.kind} {item.text!r} was not produced")
    return lines


def _line_of(error: OdcError) -> int | None:
    match = _LINE.search(error.location or "")
    return int(match[1]) if match else None
