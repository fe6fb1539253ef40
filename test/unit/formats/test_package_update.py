"""Installing into a package and rolling back: old state or new state, whatever happens in between."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath

import numpy as np
import pytest

import odc_mlir
from helpers.models import ModelBuilder, add_model, host_plan, model_bytes
from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats import outputs, package
from odc_mlir.formats.manifest import MANIFEST_PATH, Manifest
from odc_mlir.formats.package import (
    PackageFiles,
    build_package,
    install,
    original_of,
    read_package,
    roll_back,
    write_package,
)


def _own(tmp_path: Path, name: str) -> Path:
    """A package with a model and nothing compiled, ``out = 2a + b``."""
    manifest = Manifest(("add.circle",), ("circle",))
    members = {MANIFEST_PATH: manifest.to_json(), "add.circle": model_bytes(add_model())}
    path = tmp_path / name
    write_package(PackageFiles(members, manifest, {}, None, "test"), path)
    return path


def _compiled(name: str = "MUL") -> PackageFiles:
    """Another model with a plan, told apart by its result: ``a * b`` or what ``name`` computes."""
    builder = ModelBuilder()
    a, b, y = (builder.tensor(tensor, (1, 4)) for tensor in "aby")
    builder.operator(name, [a, b], [y])
    model = builder.finish([a, b], [y])
    return build_package(model_bytes(model), host_plan(model), {})


def _result(path: Path) -> list[float]:
    a, b = np.full((1, 4), 3, np.float32), np.full((1, 4), 5, np.float32)
    result: list[float] = odc_mlir.run(path, [a, b])[0][0].tolist()
    return result


OWN, PRODUCT, DIFFERENCE = [11.0] * 4, [15.0] * 4, [-2.0] * 4


@pytest.mark.parametrize("name", ["p", "p.zip"])
def test_install_and_roll_back(tmp_path: Path, name: str) -> None:
    path = _own(tmp_path, name)
    before = dict(read_package(path).members)
    installed = install(path, _compiled())
    assert installed.plan is not None
    assert _result(path) == PRODUCT
    original = original_of(installed)
    assert original is not None
    assert original.model == before["add.circle"]
    install(path, _compiled("SUB"))
    assert _result(path) == DIFFERENCE
    roll_back(path)
    assert _result(path) == OWN
    assert dict(read_package(path).members) == before
    with pytest.raises(PackageError, match="nothing was installed"):
        roll_back(path)


@pytest.mark.parametrize("name", ["p", "p.zip"])
def test_rolling_back_to_what_was_compiled_before(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    write_package(_compiled("MINIMUM"), path)
    before = dict(read_package(path).members)
    for operator in ("MUL", "SUB", "MAXIMUM"):
        install(path, _compiled(operator))
    roll_back(path)
    assert dict(read_package(path).members) == before


def test_installing_twice_changes_nothing(tmp_path: Path) -> None:
    path = _own(tmp_path, "p")
    install(path, _compiled())
    before = dict(read_package(path).members)
    install(path, _compiled())
    assert dict(read_package(path).members) == before


def test_the_last_plan_stays_for_those_who_run_it(tmp_path: Path) -> None:
    path = _own(tmp_path, "p")
    install(path, _compiled())
    opened = odc_mlir.load_package(path)
    install(path, _compiled("SUB"))
    ones = [np.ones((1, 4), np.float32)] * 2
    assert odc_mlir.run(opened, ones)[0][0, 0] == 1
    install(path, _compiled("MAXIMUM"))
    assert len(list((path / "odc").iterdir())) == 2


@pytest.mark.parametrize("name", ["p", "p.zip"])
def test_only_what_was_installed_is_removed(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    compiled = install(_own(tmp_path, name), _compiled())
    assert compiled.manifest.plan is not None
    note = str(PurePosixPath(compiled.manifest.plan).parent / "note")
    if path.is_dir():
        (path / note).write_text("mine")
        (path / "odc" / "tests").mkdir()
        (path / "odc" / "tests" / "data").write_text("mine")
    else:
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr(note, "mine")
            archive.writestr("odc/tests/data", "mine")
    for operator in ("SUB", "MAXIMUM", "MINIMUM"):
        install(path, _compiled(operator))
    roll_back(path)
    left = [name for name in read_package(path).members if name.startswith("odc/")]
    assert sorted(left) == sorted([note, "odc/tests/data"])


def test_a_folder_in_the_way_is_not_removed(tmp_path: Path) -> None:
    compiled = install(_own(tmp_path, "p"), _compiled())
    roll_back(tmp_path / "p")
    assert compiled.manifest.plan is not None
    theirs = tmp_path / "p" / PurePosixPath(compiled.manifest.plan).parent / "theirs"
    theirs.parent.mkdir(parents=True)
    theirs.write_text("mine")
    with pytest.raises(PackageError, match=r"theirs' blocks the installation"):
        install(tmp_path / "p", _compiled())
    assert theirs.read_text() == "mine"


def test_a_model_of_the_package_is_not_copied(tmp_path: Path) -> None:
    path = _own(tmp_path, "p")
    model = add_model()
    installed = install(path, build_package(model_bytes(model), host_plan(model), {}))
    assert installed.manifest.models == ("add.circle",)
    assert [name for name in installed.members if name.endswith(".circle")] == ["add.circle"]
    assert _result(path) == OWN


def test_nothing_compiled(tmp_path: Path) -> None:
    path = _own(tmp_path, "p")
    with pytest.raises(PackageError, match="nothing compiled"):
        install(path, read_package(path))


def _failing_after(calls: int, function: Callable[..., object]) -> Callable[..., object]:
    left = calls

    def call(*arguments: object, **options: object) -> object:
        nonlocal left
        if left == 0:
            raise OSError(28, "No space left on device")
        left -= 1
        return function(*arguments, **options)

    return call


@pytest.mark.parametrize("name", ["p", "p.zip"])
@pytest.mark.parametrize("again", [False, True])
def test_any_failing_step_leaves_the_old_state(
    tmp_path: Path, name: str, again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = _own(tmp_path, name)
    expected = OWN
    if again:
        install(path, _compiled("SUB"))
        expected = DIFFERENCE
    for steps in range(100):
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", _failing_after(steps, os.fsync))
            patch.setattr(os, "rename", _failing_after(steps, os.rename))
            patch.setattr(outputs, "sync_folder", _failing_after(steps, outputs.sync_folder))
            patch.setattr(package, "sync_folder", _failing_after(steps, package.sync_folder))
            try:
                install(path, _compiled())
                break
            except OdcError as error:
                message = str(error)
        assert "No space left" in message
        assert _result(path) in (expected, PRODUCT)
        assert not list(tmp_path.rglob(".*"))
    assert steps > 1
    assert _result(path) == PRODUCT
    roll_back(path)
    assert _result(path) == OWN
