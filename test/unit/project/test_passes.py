"""Rooms of passes hold passes: a file is registered, documented and has a lit file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from helpers.source import PACKAGE, REPOSITORY
from odc_mlir import transforms

ROOM_FOLDER = PACKAGE / "transforms"


def unregistered(folder: Path, rooms: dict[str, tuple[str, ...]]) -> list[str]:
    """Public files of rooms below ``folder`` that ``rooms`` does not name, and names without a file."""
    found = {
        f"{room}/{path.stem.replace('_', '-')}"
        for room in rooms
        for path in (folder / room).glob("*.py")
        if not path.stem.startswith("_")
    }
    named = {f"{room}/{name}" for room, names in rooms.items() for name in names}
    return sorted(found ^ named)


def test_every_file_of_a_room_is_a_registered_pass() -> None:
    assert not (found := unregistered(ROOM_FOLDER, dict(transforms.ROOMS))), (
        f"a pass without its file, or a file that transforms/__init__.py does not name: {found}"
    )


def test_every_room_is_known() -> None:
    rooms = {path.name for path in ROOM_FOLDER.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms == {*transforms.ROOMS, "common"}
    assert [path.name for path in ROOM_FOLDER.glob("*.py")] == ["__init__.py"]


def test_an_unregistered_pass_is_found(tmp_path: Path) -> None:
    (tmp_path / "npu").mkdir()
    (tmp_path / "npu" / "npu_forgotten.py").touch()
    assert unregistered(tmp_path, {"npu": ("npu-missing",)}) == ["npu/npu-forgotten", "npu/npu-missing"]


@pytest.mark.parametrize("name", transforms.NAMES)
def test_a_pass_shows_what_it_does_and_a_lit_file_runs_it(name: str) -> None:
    module = ast.parse((ROOM_FOLDER / transforms.room_of(name) / f"{name.replace('-', '_')}.py").read_text())
    text = ast.get_docstring(module) or ""
    assert "After" in text or "hanges nothing" in text, f"{name}: its module does not say what the IR is after it"
    files = (REPOSITORY / "test" / "filecheck").rglob("*.mlir")
    assert any(path.stem.startswith(name) or name in path.read_text() for path in files), f"{name}: no lit file runs it"
