"""Examples at the head of every ``--help``: command lines of each command in examples.txt, most useful first."""

from __future__ import annotations

from pathlib import Path

EXAMPLES = Path(__file__).with_suffix(".txt").read_text().splitlines()


def examples_of(program: str) -> list[str]:
    """Return the two best examples of a command. Examples of siblings complete the examples of a subcommand."""
    command = program.partition(" ")[0]
    own, others = ([line for line in EXAMPLES if f"{line} ".startswith(f"{name} ")] for name in (program, command))
    return list(dict.fromkeys((*own, *others)))[:2]
