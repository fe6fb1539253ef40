"""Passes, dialects and formats of other packages, found by entry points."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp

import odc_mlir
from helpers.data import REPOSITORY
from odc_mlir import pipelines
from odc_mlir.errors import ForeignPassError, OptionError
from odc_mlir.plugins import foreign, universes
from odc_mlir.tools import odc_opt

DIGITS = str(REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle")
LAB = '''
from dataclasses import dataclass

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Dialect, ParametrizedAttribute, TypeAttribute
from xdsl.irdl import IRDLOperation, irdl_attr_definition, irdl_op_definition, result_def
from xdsl.passes import ModulePass
from xdsl.universe import Universe
from xdsl.utils.target import Target


@irdl_attr_definition
class NoteType(ParametrizedAttribute, TypeAttribute):
    name = "lab.note"


@irdl_op_definition
class NoteOp(IRDLOperation):
    name = "lab.note"
    output = result_def()
    assembly_format = "attr-dict `:` type($output)"


@dataclass(frozen=True)
class LabNotePass(ModulePass):
    """Add a note."""

    name = "lab-note"
    fail: bool = False
    """Fail instead."""

    def apply(self, ctx, op):
        if self.fail:
            raise ZeroDivisionError("nothing to note")
        op.body.block.add_op(NoteOp.create(result_types=[NoteType()]))


@dataclass(frozen=True)
class Names(Target):
    name = "lab-names"

    def emit(self, ctx, module, output):
        print(*sorted({op.name for op in module.walk()}), file=output)


UNIVERSE = Universe(
    all_dialects={"lab": lambda: Dialect("lab", [NoteOp], [NoteType])},
    all_passes={"lab-note": lambda: LabNotePass},
    all_targets={"lab-names": lambda: Names},
)
'''


def install(folder: Path, name: str, code: str) -> None:
    """Write a module with a universe, as pip would leave it."""
    (folder / f"{name}_code.py").write_text(code)
    facts = folder / f"{name}-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(f"[xdsl.universe]\n{name} = {name}_code:UNIVERSE\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of packages, one of which has unreadable metadata."""
    folder = tmp_path / "site"
    (folder / "binary-1.0.dist-info").mkdir(parents=True)
    (folder / "binary-1.0.dist-info" / "entry_points.txt").write_bytes(b"[xdsl.universe]\n\xff = \xfe\nno value\n")
    monkeypatch.syspath_prepend(folder)
    universes._universes.cache_clear()
    yield folder
    universes._universes.cache_clear()
    for name in ("lab_code", "broken_code"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


@pytest.fixture
def lab(site: Path) -> Path:
    install(site, "lab", LAB)
    importlib.invalidate_caches()
    return site


@pytest.mark.usefixtures("lab")
def test_its_pass_is_listed_and_runs(capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_opt.main(["--list-passes"]) == 0
    listed = capsys.readouterr().out
    assert "passes of lab:\n  lab-note                     Add a note.\n      fail=false" in listed
    noted = odc_mlir.run_passes(odc_mlir.load(DIGITS), "lab-note")
    assert isinstance(noted, ModuleOp)
    assert noted.body.block.last_op is not None
    assert noted.body.block.last_op.name == "lab.note"


def test_its_dialect_and_format_are_read_and_written(
    lab: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = tmp_path / "noted.mlir"
    assert odc_opt.main([DIGITS, "--lab-note", "-o", str(text)]) == 0
    assert "lab.note : !lab.note" in text.read_text()
    assert odc_opt.main([str(text), "-t", "lab-names"]) == 0
    assert "func.func func.return lab.note" in capsys.readouterr().out


@pytest.mark.usefixtures("lab")
def test_what_fails_is_a_defect_of_its_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_opt.main([DIGITS, "-p", "lab-note{fail=true}"]) == 1
    error = capsys.readouterr().err
    assert "pass lab-note of lab failed: ZeroDivisionError: nothing to note" in error
    assert "this is a defect of lab" in error
    failing = pipelines.find_pass("lab-note")(fail=True)  # type: ignore[call-arg]
    with pytest.raises(ForeignPassError, match="pass lab-note of lab failed"):
        odc_mlir.compile(DIGITS, before={"npu-choose-tiles": [failing]})


BROKEN = {
    "import nosuchmodule": "it raised ModuleNotFoundError: No module named 'nosuchmodule'",
    "import os; os._exit(0)": "the plugin's process ended with code 0 and no answer",
    "import time; time.sleep(100)": "it took longer than 2 s, the limit that ODC_PLUGIN_TIMEOUT_S sets",
}


@pytest.mark.parametrize("code", BROKEN)
def test_what_cannot_be_imported_is_left_out(
    code: str, lab: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert list(universes.additions("passes")) == ["lab-note"]
    install(lab, "broken", code)
    for repetition in ("of this process", "of later ones"):
        monkeypatch.setenv("ODC_PLUGIN_TIMEOUT_S", "2" if "sleep" in code else "60")
        universes._universes.cache_clear()
        foreign._known_outcomes().clear()
        caplog.clear()
        list(universes.additions("passes"))
        left_out = "the dialects, passes and formats of package broken are left out"
        problem = f"'broken' of broken 1.0 (broken_code:UNIVERSE) cannot be used: {BROKEN[code]}"
        assert f"{left_out}: {problem}" in caplog.text, repetition
        monkeypatch.setattr(foreign, "probe", None)
    if "sleep" not in code:
        with pytest.raises(OptionError, match="did you mean 'lab-note'"):
            pipelines.find_pass("lab-nots")


@pytest.mark.parametrize("name", ["npu-choose-tiles", "npu", "canonicalize"])
def test_a_pass_with_the_name_of_another_is_refused(site: Path, name: str) -> None:
    install(site, "lab", LAB.replace("lab-note", name))
    importlib.invalidate_caches()
    owner = "xdsl" if name == "canonicalize" else "odc-mlir"
    with pytest.raises(
        OptionError, match=f"pass name '{name}' is defined by lab and {owner}; give the pass of lab another"
    ):
        odc_mlir.run_passes(odc_mlir.load(DIGITS), name)
    odc_mlir.lower(odc_mlir.load(DIGITS), "circle-opt")  # passes that no text names are those of the compiler


def test_ours_belong_to_nobody_else() -> None:
    assert universes.owner_of(pipelines.find_pass("npu-choose-tiles")) is None
    assert universes.owner_of(pipelines.find_pass("canonicalize")) is None
