"""Compiling on the device in packages: what is made becomes part of them, or not, and what comes of that later."""

from __future__ import annotations

import importlib.util
import shutil
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.auto import RECORDS, Made, open_session, use_worker
from helpers.data import REPOSITORY
from helpers.waiting import happens
from odc_mlir.errors import OdcError
from odc_mlir.formats.manifest import MANIFEST_PATH
from odc_mlir.formats.package import ORIGINAL_PATH, roll_back, zip_bytes
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.settings import Level, Phase

pytestmark = pytest.mark.xdist_group("auto")

MANIFEST = b'{"major-version": "1", "configs": ["config.cfg"], "models": ["model.circle"]}'
CONFIG = f"OnDeviceCompilation 1\nODC_RECORDS={RECORDS}\nODC_UPDATE_PACKAGE=1\nODC_TARGET=npu-256\n".encode()
EXAMPLE = REPOSITORY / "examples" / "on_device"


@pytest.fixture(autouse=True)
def surroundings(tmp_path: Path, made: Made, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    use_worker(monkeypatch, made)


@pytest.fixture(params=["folder", "zip"])
def package(request: pytest.FixtureRequest, made: Made, tmp_path: Path) -> Path:
    members = {MANIFEST_PATH: MANIFEST, "metadata/config.cfg": CONFIG, "model.circle": made.model.read_bytes()}
    if request.param == "zip":
        path = tmp_path / "package.zip"
        path.write_bytes(zip_bytes(members))
        return path
    for name, data in members.items():
        file = tmp_path / "package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
    return tmp_path / "package"


def names(package: Path) -> list[str]:
    if package.is_file():
        return zipfile.ZipFile(package).namelist()
    return [path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()]


def use(package: Path, made: Made, count: int = RECORDS) -> tuple[list[Level], Any]:
    """Levels of the answers of a session that runs ``count`` times, waits and runs once more; its status at the end."""
    levels = []
    with Session(package) as session:
        session.prepare()  # which waits for what was made before
        for index in range(count):
            session.infer(made.sample(index))
            levels.append(session.odc_status.serving)
        if session._switcher.auto is not None:
            session.wait_for_auto_compilation(60)
        session.infer(made.sample(0))
        return [*levels, session.odc_status.serving], session.odc_status


def test_what_is_made_becomes_part_of_the_package(package: Path, made: Made, tmp_path: Path) -> None:
    levels, status = use(package, made)
    assert levels == [Level.ORIGINAL] * RECORDS + [Level.COMPILED]
    assert status.fallbacks == []
    assert any(name.startswith("odc/") and name.endswith("plan.json") for name in names(package))
    shutil.rmtree(tmp_path / "cache")  # what follows needs nothing but the package
    levels, status = use(package, made, 1)
    assert levels == [Level.COMPILED] * 2
    assert (status.phase, status.reason) == (Phase.ACTIVE, "the package is compiled already")
    assert status.target == "npu-256"
    roll_back(package)
    assert sorted(names(package)) == sorted([MANIFEST_PATH, "metadata/config.cfg", "model.circle"])
    assert use(package, made, 1)[0][0] is Level.ORIGINAL


@pytest.mark.parametrize("package", ["folder"], indirect=True)  # a zip is one file, replaced as a whole
def test_what_was_installed_and_is_damaged_is_not_used(made: Made, package: Path, tmp_path: Path) -> None:
    use(package, made)
    assert (package / ORIGINAL_PATH).exists()
    shutil.rmtree(tmp_path / "cache")
    next(package.glob("odc/*/model.circle")).unlink()
    levels, status = use(package, made)
    assert levels == [Level.ORIGINAL] * RECORDS + [Level.COMPILED]
    assert any(item.level == "package" and "missing" in item.reason for item in status.fallbacks)


@pytest.mark.parametrize("package", ["folder"], indirect=True)  # a zip is one file, replaced as a whole
def test_an_installed_plan_that_does_not_fit_is_not_used(made: Made, package: Path, tmp_path: Path) -> None:
    use(package, made)
    shutil.rmtree(tmp_path / "cache")
    shutil.copy(made.model, next(package.glob("odc/*/model.circle")))
    levels, status = use(package, made, 1)
    assert levels[0] is Level.ORIGINAL
    assert any(item.level == "package" for item in status.fallbacks)
    with pytest.raises(OdcError, match=r"model\.circle' was changed: its digest is not the one in"):
        Session(package, strict=True)


@pytest.mark.parametrize("package", ["folder"], indirect=True)  # a zip is one file, replaced as a whole
def test_an_installed_program_that_is_damaged_is_compiled_anew(made: Made, package: Path, tmp_path: Path) -> None:
    use(package, made)
    shutil.rmtree(tmp_path / "cache")
    program = next(package.glob("odc/*/segment-0.npu"))
    program.write_bytes(program.read_bytes()[:-9])
    levels, status = use(package, made, 1)
    assert levels == [Level.ORIGINAL, Level.COMPILED]  # the model itself is quantised: no records are needed
    assert status.records_needed == 0


@pytest.mark.parametrize("package", ["folder"], indirect=True)  # a zip is one file, replaced as a whole
def test_a_package_that_cannot_be_written(made: Made, package: Path) -> None:
    (package / "odc").write_text("in the way")
    levels, status = use(package, made)
    assert levels[-1] is Level.COMPILED  # from the cache
    assert [item.level for item in status.fallbacks] == ["package"]
    assert "cannot update the package" in status.fallbacks[0].reason
    assert use(package, made, 1)[0][0] is Level.COMPILED


def test_off_is_off(made: Made, package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OnDeviceCompilation", "off")  # the environment counts more than the package
    levels, status = use(package, made)
    assert set(levels) == {Level.ORIGINAL}
    assert status.enabled is False


@pytest.fixture
def plugins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of plugins, and workers that run them."""
    monkeypatch.undo()
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    folder = tmp_path / "plugins"
    folder.mkdir()
    monkeypatch.setenv("ODC_PLUGIN_PATH", str(folder))
    return folder


PLUGIN = """
import shutil, time

class Plugin:
    name, extension, quantization = "test", "{extension}", "int8"

    def compile(self, request):
        {body}

def create_codegen():
    return Plugin()
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("extension", "body", "level", "reason"),
    [
        ("circle", "shutil.copyfile(request.model, request.output)", Level.COMPILED, None),
        ("circle", "raise ValueError('not today')", Level.QUANTIZED, "the plugin failed: it raised ValueError"),
        ("circle", "return 3", Level.QUANTIZED, "the plugin failed"),
        ("circle", "time.sleep(100)", Level.QUANTIZED, "longer than"),
        ("circle", "import os; os.abort()", Level.QUANTIZED, "SIGABRT"),
        ("tvn", "open(request.output, 'w').write('what is this?')", Level.QUANTIZED, "no Circle or TFLite model"),
    ],
)
def test_plugins(
    extension: str,
    body: str,
    level: Level,
    reason: str | None,
    made: Made,
    plugins: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (plugins / f"{extension}-gen.py").write_text(PLUGIN.format(extension=extension, body=body))
    # On a slow machine, a process with little time does not reach the plugin, and its failure is not repeated soon.
    for seconds in (5, 12, 40, 90) if reason == "longer than" else (600,):
        monkeypatch.setenv("ODC_CACHE_DIR", str(plugins.with_name(f"cache{seconds}")))
        with open_session(made.model, ODC_TARGET=f"{extension}-gen", ODC_TIMEOUT_S=f"{seconds}") as session:
            for index in range(RECORDS):
                session.infer(made.sample(index))
            assert session.wait_for_auto_compilation(100)
            session.infer(made.sample(0))
            status = session.odc_status
        if status.serving is level:
            break
    assert status.serving is level, status.reason
    assert reason is None or reason in (status.reason or "")


@pytest.mark.slow
def test_a_plugin_that_hangs_ends_with_the_process_that_runs_it(made: Made, plugins: Path, tmp_path: Path) -> None:
    mark = tmp_path / "plugin.pid"
    body = f"import os; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(1000)"
    (plugins / "circle-gen.py").write_text(PLUGIN.format(extension="circle", body=body))
    with open_session(made.model, ODC_TARGET="circle-gen") as session:
        for index in range(RECORDS):
            session.infer(made.sample(index))
        assert happens(lambda: mark.exists() and mark.read_text() != "")
        auto = session._switcher.auto
        assert auto is not None
        auto.stop()  # kills the background process
        assert happens(lambda: not is_running(int(mark.read_text())))


def is_running(process_id: int) -> bool:
    try:
        return Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_the_plugin_that_is_asked_for_must_be_there(made: Made) -> None:
    with open_session(made.model, ODC_TARGET="nothing-gen") as session:
        session.infer(made.sample(0))
        assert session.odc_status.phase is Phase.REJECTED
        assert "there is no codegen plugin 'nothing-gen'" in (session.odc_status.reason or "")


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_the_story(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    spec = importlib.util.spec_from_file_location("run_story", EXAMPLE / "run_story.py")
    assert spec is not None
    assert spec.loader is not None
    story = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(story)
    monkeypatch.setattr(sys, "argv", ["run_story.py", "--out", str(tmp_path / "out")])
    monkeypatch.setenv("ODC_TARGET", "npu-256")  # nothing is measured for it, as would be for processors
    assert story.main() == 0
    first, second, hard = capsys.readouterr().out.split("--- ")[1:]
    assert "answers from original" in first
    assert "answers from compiled" in first
    assert "answers from original" not in second
    assert "active: the package is compiled already" in second
    assert "help: refused: mpeir is" in hard
    assert "answers from compiled" in hard


def test_pictures_of_the_example_are_as_they_were(test_data: Path) -> None:
    with np.load(EXAMPLE / "digits.npz") as ours, np.load(test_data / "models/digits/evaluation.npz") as theirs:
        count = len(ours["y"])
        np.testing.assert_array_equal(ours["pictures"].astype(np.float32) / 16, theirs["in_0"][:count])
        np.testing.assert_array_equal(ours["y"], theirs["y"][:count])
