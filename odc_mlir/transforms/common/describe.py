"""Descriptions of passes, options and patterns, from docstrings.

``odc-opt --list-passes``, ``--list-patterns``, ``--help=PASS`` and the documentation print them.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from pathlib import Path
from typing import NamedTuple

from xdsl.passes import ModulePass, get_pass_option_infos

_PACKAGE = Path(__file__).parents[2]


class Option(NamedTuple):
    """Option of a pass, named as on the command line. ``default`` is None for a required option."""

    name: str
    type: str
    default: str | None
    text: str


def text_of(kind: type[ModulePass]) -> str:
    """Return the module's docstring after the pass's name, or the class docstring if it has no such name."""
    module = inspect.getdoc(sys.modules[kind.__module__]) or ""
    own = f"``{kind.name}``: "
    if module.startswith(own):
        return module.removeprefix(own)
    said = kind.__dict__.get("__doc__") or ""
    return "" if said.startswith(f"{kind.__name__}(") else inspect.cleandoc(said)  # dataclasses generate one


def summary_of(kind: type[ModulePass]) -> str:
    """Return the first paragraph of :func:`text_of` as one line that starts with a capital."""
    line = " ".join(text_of(kind).partition("\n\n")[0].split()).replace("``", "`")
    return line[:1].upper() + line[1:]


def options_of(kind: type[ModulePass]) -> list[Option]:
    """Return the options of a pass in order."""
    said = _field_docs(kind)
    return [
        Option(
            info.name.replace("_", "-"),
            info.expected_type.strip("'"),
            info.default_value,
            said.get(info.name.replace("-", "_"), ""),
        )
        for info in get_pass_option_infos(kind)
    ]


def source_of(cls: type) -> str:
    """Return the file and line of a class definition. The path of a package file is relative to the package."""
    file = Path(inspect.getsourcefile(cls) or "")
    place = file.relative_to(_PACKAGE) if file.is_relative_to(_PACKAGE) else file.name
    return f"{place}:{inspect.getsourcelines(cls)[1]}"


def first_line_of(cls: type) -> str:
    """Return the first docstring line of a class, without markup."""
    return (inspect.getdoc(cls) or "").partition("\n")[0].replace("``", "`")


def _field_docs(kind: type) -> dict[str, str]:
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    said: dict[str, str] = {}
    field = ""
    for node in body.body if isinstance(body, ast.ClassDef) else []:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            field = node.target.id
        elif field and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            said[field] = " ".join(str(node.value.value).replace("``", "`").split())
            field = ""
    return said
