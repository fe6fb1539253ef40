"""Packages outside of ours: their metadata names functions that exist, and their checks need nothing installed."""

from __future__ import annotations

import ast
import tomllib
from pathlib import Path

import pytest

from helpers.data import REPOSITORY
from odc_mlir.plugins.registry import DEVICES, GROUP, SUFFIX, TARGETS

PROJECTS = sorted([*REPOSITORY.glob("plugins/*/pyproject.toml"), REPOSITORY / "examples" / "plugin" / "pyproject.toml"])


@pytest.mark.parametrize("path", PROJECTS, ids=lambda path: path.parent.name)
def test_entry_points_name_functions_of_the_package(path: Path) -> None:
    entries = tomllib.loads(path.read_text())["project"]["entry-points"]
    assert set(entries) == {DEVICES, GROUP, TARGETS}
    assert {name.removesuffix(SUFFIX) for group in entries.values() for name in group} == set(entries[DEVICES])
    for group in entries.values():
        for value in group.values():
            module, _, function = value.partition(":")
            tree = ast.parse((path.parent / f"{module.replace('.', '/')}.py").read_text())
            assert function in {item.name for item in tree.body if isinstance(item, ast.FunctionDef)}, value


def test_there_are_some() -> None:
    assert "openvino" in {path.parent.name for path in PROJECTS}
