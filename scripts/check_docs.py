"""Check the documentation: links lead somewhere, named files, commands and options exist.

    python scripts/check_docs.py

Looks at every tracked Markdown file: relative links and their anchors; paths in inline code that start with one of our
folders; command lines of our commands inside ``sh`` blocks (their long options must be in ``--help``). References to
code, there and in docstrings, must resolve, and CONTRIBUTING's map of folders must be that of the tree
(``scripts/code_references.py``).
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import code_references

ROOT = Path(__file__).resolve().parents[1]
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+\s+(.*)$", re.MULTILINE)
INLINE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
FOLDERS = ("odc_mlir/", "test/", "docs/", "scripts/", "benchmarks/", "examples/")


def documents() -> list[Path]:
    """Every Markdown file of the repository, without what tools and builds leave."""
    skip = {"build", "dist", "out"}
    inside = {path: path.relative_to(ROOT).parts for path in ROOT.rglob("*.md")}
    return sorted(path for path, parts in inside.items() if not any(p in skip or p[0] == "." for p in parts))


@cache
def anchors(path: Path) -> frozenset[str]:
    """Anchors of a file's headings, as the usual hosts make them."""
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(path.read_text()))
    return frozenset(heading.strip().replace(" ", "-") for heading in plain)


def bad_links(path: Path, text: str) -> Iterator[str]:
    """Relative links to files or headings that do not exist."""
    for target in LINK.findall(text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, anchor = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            yield f"no such file: {target}"
        elif anchor and anchor not in anchors(file):
            yield f"no such heading: {target}"


def bad_paths(text: str) -> Iterator[str]:
    """Inline code that names a file of ours which does not exist; ``<name>``, ``*`` and ``…`` stand for anything."""
    for words in INLINE.findall(text):
        name = words.split()[0].split("::")[0].rstrip(":,.")
        if name.startswith(FOLDERS) and not re.search(r"[<>*…{}]", name) and not (ROOT / name).exists():
            yield f"no such file: {name}"


@cache
def help_of(command: str, *words: str) -> str:
    """Return the help text of a command, whether its script is installed or not."""
    named = [] if command == "odc-mlir" else [command]
    run = [sys.executable, "-m", "odc_mlir", *named, *words, "--help"]
    return subprocess.run(run, capture_output=True, text=True, check=True, cwd=ROOT).stdout


def options(command: str, words: list[str]) -> frozenset[str]:
    """Long options that a command line can have: the command's, or those of the subcommand that it starts with."""
    text = help_of(command)
    if " COMMAND" in text and words:
        text = help_of(command, words[0])
    return frozenset(re.findall(r"--[\w-]+", text))


def bad_commands(text: str) -> Iterator[str]:
    """Lines of ``sh`` blocks that start one of our commands with an option it lacks, or a script that is not there."""
    commands = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for language, body in BLOCK.findall(text):
        if language != "sh":
            continue
        for line in body.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            if not words:
                continue
            name = Path(words[0]).name
            if name in commands:
                known = options(name, words[1:])
                flags = (word.partition("=")[0] for word in words[1:] if re.match(r"--\w", word))
                yield from (f"{name} has no {flag}" for flag in flags if flag not in known and not _is_pass(name, flag))
            elif "/" in words[0] and not words[0].startswith(".venv") and not (ROOT / words[0]).exists():
                yield f"no such file: {words[0]}"


def _is_pass(command: str, flag: str) -> bool:
    from odc_mlir.transforms import NAMES

    return command == "odc-opt" and flag.removeprefix("--") in NAMES


def main() -> int:
    """Print every problem; the status is 1 when there is one."""
    problems = []
    for path in documents():
        text = path.read_text()
        found = [*bad_links(path, text), *bad_paths(text), *bad_commands(text)]
        found += code_references.bad_names(text)
        if path.name == "CONTRIBUTING.md":
            found += code_references.bad_map(text)
        problems += [f"{path.relative_to(ROOT)}: {problem}" for problem in found]
    for path in code_references.python_files():
        problems += [f"{path.relative_to(ROOT)}: {problem}" for problem in code_references.bad_roles(path)]
    print("\n".join(problems) if problems else f"{len(documents())} documents checked")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
