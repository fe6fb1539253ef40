"""Rooms of passes hold nothing but passes, and each is documented and has a lit file."""

from __future__ import annotations

import ast
import re

import pytest
from xdsl.passes import ModulePass

from helpers.source import PACKAGE, REPOSITORY
from odc_mlir import transforms
from odc_mlir.transforms.circle.rewrites.table import rules

ROOM_FOLDER = PACKAGE / "transforms"


def test_every_room_is_known() -> None:
    rooms = {path.name for path in ROOM_FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == {*transforms.ROOMS, "common"}
    assert [path.name for path in ROOM_FOLDER.glob("*.py")] == ["__init__.py"]


@pytest.mark.parametrize("name", transforms.NAMES)
def test_every_file_of_a_room_is_a_pass_of_its_name(name: str) -> None:
    """Helpers lie in the folders below the rooms."""
    found = transforms.load(name)
    assert issubclass(found, ModulePass)
    assert found.name == name


@pytest.mark.parametrize("name", transforms.NAMES)
def test_a_pass_shows_what_it_does_and_a_lit_file_runs_it(name: str) -> None:
    module = ast.parse((ROOM_FOLDER / transforms.room_of(name) / f"{name.replace('-', '_')}.py").read_text())
    text = ast.get_docstring(module) or ""
    assert "After" in text or "hanges nothing" in text, f"{name}: its module does not say what the IR is after it"
    files = (REPOSITORY / "test" / "filecheck").rglob("*.mlir")
    assert any(path.stem.startswith(name) or name in path.read_text() for path in files), f"{name}: no lit file runs it"


@pytest.mark.parametrize("name", rules())
def test_a_lit_file_has_a_function_named_after_each_rewrite(name: str) -> None:
    files = (REPOSITORY / "test" / "filecheck" / "transforms").glob("circle-optimize*.mlir")
    shown = [path for path in files if f"// CHECK-LABEL: func.func @{name}(" in path.read_text()]
    assert shown, f"{name}: no lit file has a function of that name"
    runs = [re.search(r"rewrites=([\w,]+)", path.read_text()) for path in shown]
    assert any(run is not None and name in run[1].split(",") for run in runs), f"{name}: its file does not ask for it"
