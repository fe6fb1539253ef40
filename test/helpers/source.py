"""What the project's own tests ask about its source: files, modules, imports."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from helpers.data import REPOSITORY

PACKAGE = REPOSITORY / "odc_mlir"


class Import(NamedTuple):
    """One import statement's target as seen from a module."""

    importer: str  # dotted name of the module that imports
    target: str  # dotted name of what it imports
    line: int
    lazy: bool  # inside a function, or for type checkers only

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.target}"


@cache
def package_files() -> tuple[Path, ...]:
    """Every Python file of the package."""
    return tuple(sorted(PACKAGE.rglob("*.py")))


@cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(), filename=str(path))


@cache
def nodes(path: Path) -> tuple[ast.AST, ...]:
    """Return every node of the file's syntax tree."""
    return tuple(ast.walk(tree(path)))


def tracked_files() -> list[Path]:
    """Every text file that the repository holds (or would, of an unpacked archive)."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=REPOSITORY,
        capture_output=True,
        check=False,
    )
    if listed.returncode:
        skip = {".venv", "build", "dist"}
        found = [p for p in REPOSITORY.rglob("*") if not skip & set(p.relative_to(REPOSITORY).parts)]
    else:
        found = [REPOSITORY / name for name in listed.stdout.decode().split("\0") if name]
    return [path for path in found if path.is_file() and b"\0" not in path.read_bytes()[:8192]]


def module_name(path: Path) -> str:
    """The dotted module name of a file of the package."""
    parts = path.relative_to(REPOSITORY).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> Iterator[Import]:
    """Every import of the file, at any depth."""
    yield from _imports(tree(path), module_name(path), lazy=False)


def _imports(node: ast.AST, importer: str, *, lazy: bool) -> Iterator[Import]:
    if isinstance(node, ast.Import):
        yield from (Import(importer, alias.name, node.lineno, lazy) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        for alias in node.names:
            yield Import(importer, _target(base, alias.name), node.lineno, lazy)
    for child in ast.iter_child_nodes(node):
        inside = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _is_type_checking(node)
        yield from _imports(child, importer, lazy=lazy or inside)


def _target(base: str, name: str) -> str:
    """``from base import name`` names a module of ours when there is such a file, else something inside ``base``."""
    path = REPOSITORY.joinpath(*base.split("."), name)
    return f"{base}.{name}" if path.with_suffix(".py").is_file() or path.is_dir() else base


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING")
