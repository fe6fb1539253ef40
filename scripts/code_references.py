"""References to code in docstrings and documents: each must name something that exists.

Used by ``scripts/check_docs.py``. What is looked at: roles (``:func:``, ``:class:`` and so on) and dotted names of the
package in Python files, dotted names of the package and names of Python files in Markdown, and the map of folders in
CONTRIBUTING.md. Nothing is imported: names come from syntax trees.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "odc_mlir"
PLACES = (PACKAGE, "scripts", "benchmarks", "test/helpers")
_ROLE = re.compile(r":(?:func|class|mod|meth|attr|data|exc):`~?([\w.]+)(?:\(\))?`")
_DOTTED = re.compile(rf"(?<![\w/]){PACKAGE}(?:\.\w+)+")
_PYTHON_FILE = re.compile(r"`([\w/]+\.py)`")
_MAP_LINE = re.compile(r"^( *)([\w.]+/?)(?:\s{2,}|$)")
_UNMAPPED = frozenset({"__init__.py", "_version.py", "py.typed"})


@cache
def names_of(file: Path) -> frozenset[str]:
    """Everything that a module defines or imports: ``name``, and ``Class.member``."""
    return frozenset(_defined(ast.parse(file.read_text()).body))


def _defined(body: list[ast.stmt], prefix: str = "") -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield prefix + node.name
            if isinstance(node, ast.ClassDef):
                yield from _defined(node.body, f"{prefix}{node.name}.")
            elif prefix:
                yield from (prefix + at.attr for at in ast.walk(node) if _is_own(at))
        elif isinstance(node, ast.Assign):
            names = [item for target in node.targets for item in ast.walk(target)]
            yield from (prefix + item.id for item in names if isinstance(item, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield prefix + node.target.id
        elif isinstance(node, ast.Import | ast.ImportFrom):
            yield from (prefix + (alias.asname or alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.If | ast.Try):
            yield from _defined([*node.body, *node.orelse], prefix)


def _is_own(node: ast.AST) -> bool:
    """Whether a node is ``self.name`` that is written to."""
    return isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and ast.unparse(node.value) == "self"


@cache
def entry_groups() -> frozenset[str]:
    """Return the groups of entry points that the package reads, which have names like modules."""
    registry = ast.parse((ROOT / PACKAGE / "plugins" / "registry.py").read_text())
    values = [node.value for node in registry.body if isinstance(node, ast.Assign)]
    strings = [item.value for value in values for item in ast.walk(value) if isinstance(item, ast.Constant)]
    return frozenset(item for item in strings if isinstance(item, str) and item.startswith(f"{PACKAGE}."))


def resolves(dotted: str) -> bool:
    """Whether ``odc_mlir.…`` names a module, something in one, or a group of entry points."""
    if dotted in entry_groups():
        return True
    parts = dotted.split(".")
    for count in range(len(parts), 0, -1):
        place = ROOT.joinpath(*parts[:count])
        file = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place / "__init__.py"
        if file.is_file():
            left = ".".join(parts[count:])
            return not left or left in names_of(file) or _is_lazy(file, left)
    return False


def _is_lazy(file: Path, name: str) -> bool:
    """Whether the package makes ``name`` only when it is asked for, by a name that its source holds as text."""
    quoted = f'"{name.partition(".")[0]}"'
    return "__getattr__" in names_of(file) and quoted in file.read_text()


def bad_roles(file: Path) -> Iterator[str]:
    """Roles and dotted names in the text of a Python file that lead nowhere."""
    text = file.read_text()
    known = names_of(file)
    for name in _ROLE.findall(text):
        if name.startswith(f"{PACKAGE}."):
            continue  # below
        name = name.lstrip(".")
        own = name in known or any(entry.endswith(f".{name}") for entry in known)
        sibling = (file.parent / f"{name.partition('.')[0]}.py").is_file()
        imported = name.partition(".")[0] in known
        if not (own or sibling or imported or _is_foreign(name)):
            yield f"no such name: {name}"
    yield from (f"no such name: {name}" for name in _DOTTED.findall(text) if not resolves(name))


def _is_foreign(name: str) -> bool:
    """Whether a name is of the standard library or a package that we use."""
    return name.partition(".")[0] in ("numpy", "xdsl", "argparse", "os", "sys", "builtins")


def bad_names(text: str) -> Iterator[str]:
    """Dotted names and Python files in a document that do not exist."""
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    yield from (f"no such name: {name}" for name in _DOTTED.findall(prose) if not resolves(name))
    for name in _PYTHON_FILE.findall(prose):
        if "/" not in name and name not in _python_files():
            yield f"no such file: {name}"


@cache
def _python_files() -> frozenset[str]:
    return frozenset(file.name for place in (*PLACES, "test", "examples") for file in (ROOT / place).rglob("*.py"))


def bad_map(text: str) -> Iterator[str]:
    """Differences between the map of folders in ``text`` and the tree: odc_mlir/ completely, test/ what is named."""
    block = re.search(r"^```\n(odc_mlir/\n.*?)^```", text, re.MULTILINE | re.DOTALL)
    if block is None:
        yield "there is no map of folders"
        return
    top, named = "", set()
    for line in block[1].splitlines():
        match = _MAP_LINE.match(line)
        if match is None:
            continue
        if not match[1]:
            top = match[2]
            continue
        named.add(top + match[2])
        if not (ROOT / top / match[2]).exists():
            yield f"the map names {top}{match[2]}, which does not exist"
    for entry in sorted((ROOT / PACKAGE).iterdir()):
        name = f"{PACKAGE}/{entry.name}{'/' if entry.is_dir() else ''}"
        if entry.name not in _UNMAPPED and not entry.name.startswith(("__pycache__", ".")) and name not in named:
            yield f"the map leaves out {name}"


def python_files() -> list[Path]:
    """The files whose docstrings and comments are looked at."""
    return sorted(file for place in PLACES for file in (ROOT / place).rglob("*.py"))
