"""The changes that CONTRIBUTING.md shows are real, and take as many files as it says."""

from __future__ import annotations

import re
import subprocess
from typing import NamedTuple

import pytest

from generate_docs import PART
from helpers.data import REPOSITORY

LIMITS = {"an operator": 5, "a pass": 4, "an instruction": 6}
ROW = re.compile(
    r"^\| (?P<change>[^|]+) \| (?P<files>\d+) \| (?P<generated>\d+) \| (?P<most>\d+) \| "
    r"(?P<commit>[0-9a-f]{7,}), `(?P<title>[^`]+)` \|$"
)


class Change(NamedTuple):
    """A row: kind of change, numbers of files, of generated ones and at most, commit, start of its title."""

    change: str
    files: int
    generated: int
    most: int
    commit: str
    title: str


def changes(text: str) -> list[Change]:
    """The rows of the table."""
    found = [row for line in text.splitlines() if (row := ROW.match(line))]
    numbers = ("files", "generated", "most")
    return [Change(r["change"], *(int(r[name]) for name in numbers), r["commit"], r["title"]) for r in found]


CHANGES = changes((REPOSITORY / "CONTRIBUTING.md").read_text())


def git(*arguments: str) -> str:
    """What a command of git prints; skips where there is no history to ask."""
    try:
        return subprocess.run(["git", *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no history of the repository with this commit")


def test_every_kind_of_change_has_an_example() -> None:
    assert [(kind, most) for c in CHANGES for kind, most in LIMITS.items() if c.change.startswith(f"{kind} ")] == list(
        LIMITS.items()
    )
    assert all(c.files <= c.most == LIMITS[kind] for c in CHANGES for kind in LIMITS if c.change.startswith(f"{kind} "))


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.commit)
def test_an_example_takes_as_many_files_as_the_table_says(change: Change) -> None:
    title, _, files = git("show", "--name-only", "--format=%s", change.commit).partition("\n")
    assert title.startswith(change.title.removesuffix("…"))
    names = files.split()
    pages = [REPOSITORY / name for name in names if name.startswith("docs/")]
    generated = [page for page in pages if page.exists() and PART.search(page.read_text())]
    assert (len(names), len(generated)) == (change.files, change.generated)


def test_rows_are_read() -> None:
    assert changes("| a pass of mine | 3 | 1 | 4 | 0123abc, `x: y` |\n| other | 3 |") == [
        Change("a pass of mine", 3, 1, 4, "0123abc", "x: y")
    ]
