"""Packages outside of ours, as pip leaves them, in milliseconds."""

from __future__ import annotations

import shutil
import tomllib
from pathlib import Path

from helpers.data import REPOSITORY

EXAMPLE = REPOSITORY / "examples" / "plugin"


def install_example(folder: Path) -> Path:
    """The package of ``examples/plugin`` in ``folder``, with the metadata that its pyproject.toml declares."""
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    shutil.copytree(EXAMPLE / project["name"], folder / project["name"], ignore=shutil.ignore_patterns("__pycache__"))
    facts = folder / f"{project['name']}-{project['version']}.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    lines = []
    for group, entries in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
    (facts / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return folder
