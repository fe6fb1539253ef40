"""Plugins that exit, hang, raise or declare nonsense: sessions and commands work, and the doctor names each."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np
import pytest

import odc_mlir
from helpers.data import REPOSITORY
from helpers.models import ModelBuilder, model_bytes
from odc_mlir.errors import OdcError, PackageError
from odc_mlir.plugins import foreign, registry
from odc_mlir.plugins.registry import DEVICES, TARGETS, PluginSource
from odc_mlir.plugins.target import choose
from odc_mlir.runtime import Session, devices
from odc_mlir.runtime.auto.aim import aim_at
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.tools import odc_compile, odc_doctor, odc_lint, odc_plugin, odc_run

DEVICE = """
class Device:
    name, simulated = "made up", False
    def attached(self):
        {attached}
    def load(self, data):
        raise ValueError("nothing loads")
make = Device
"""
AT_IMPORT = {
    "exits": ("raise SystemExit(7)", "it raised SystemExit: 7"),
    "leaves": ("import os; os._exit(7)", "the plugin's process ended with code 7 and no answer"),
    "aborts": ("import os; os.abort()", "the plugin's process was ended by SIGABRT"),
    "sleeps": ("import time; time.sleep(60)", "it took longer than 1 s, the limit that ODC_PLUGIN_TIMEOUT_S sets"),
    "raises": ("raise ValueError('no licence')", "it raised ValueError: no licence"),
    "interrupts": ("raise KeyboardInterrupt", "it raised KeyboardInterrupt"),
    "lacks": ("", "it raised AttributeError: module 'lacks' has no attribute 'make'"),
    "odd": ("make = lambda: 5", "it returns int, which is not a device"),
}
IN_ATTACHED = {
    "slow": ("import time; time.sleep(60)", "it took longer than 1 s, the limit that ODC_PLUGIN_TIMEOUT_S sets"),
    "quits": ("raise SystemExit(7)", "it raised SystemExit: 7"),
    "junk": ("return 5", "attached() is 5, expected a tuple of at most 100 texts"),
    "mixed": ("return [None]", "attached() is [None], expected a tuple of at most 100 texts"),
}
SLOW = ("sleeps", "slow")
PROBLEM_OF_ODD = "it returns int, not a target"
MALFORMED = {
    "lines": b"[console_scripts]\nno value at all\n",
    "ours": f"[{DEVICES}]\nno value at all\n".encode(),
    "binary": b"[console_scripts]\n\xff\xfe = \xff\n",
    "huge": b"# " + bytes(registry._MAX_METADATA_BYTES),
}


def install(folder: Path, name: str, module: str, *groups: str) -> None:
    """Put a package into ``folder`` whose module is registered as ``name`` in ``groups``."""
    (folder / f"{name}.py").write_text(module)
    entries = {group: f"{name}-gen" if group == registry.GROUP else name for group in groups}
    text = "".join(f"[{group}]\n{entry} = {name}:make\n" for group, entry in entries.items())
    declare(folder, name, text.encode(), f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")


def declare(folder: Path, name: str, entry_points: bytes, metadata: str) -> None:
    info = folder / f"{name}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(metadata)
    (info / "entry_points.txt").write_bytes(entry_points)


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of installed packages, found like any other, whose modules must never be imported here."""
    folder = tmp_path / "site"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setenv("PYTHONPATH", str(folder))
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv(foreign.TIMEOUT_VARIABLE, "60")
    yield folder
    imported = [path.stem for path in folder.glob("*.py") if path.stem in sys.modules]
    for name in imported:
        del sys.modules[name]
    assert not imported


@pytest.fixture(params=["quick", "slow"])
def hostile(request: pytest.FixtureRequest, site: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Install a package for each way to fail, those that never answer apart; return the problem of each."""
    if is_slow := request.param == "slow":
        monkeypatch.setenv(foreign.TIMEOUT_VARIABLE, "1")
    failures = {name: found for name, found in (AT_IMPORT | IN_ATTACHED).items() if (name in SLOW) is is_slow}
    for name, (line, _) in failures.items():
        if name in AT_IMPORT:
            install(site, name, line + "\n", DEVICES, TARGETS, registry.GROUP)
        else:
            install(site, name, DEVICE.format(attached=line), DEVICES)
    for name, text in MALFORMED.items():
        declare(site, name, text, f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    declare(site, "nameless", b"", "")
    return {name: problem for name, (_, problem) in failures.items()}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    builder = ModelBuilder()
    x, y = (builder.tensor(name, (1, 8)) for name in ("x", "y"))
    builder.operator("LOGISTIC", [x], [y])
    path = tmp_path / "net.circle"
    path.write_bytes(model_bytes(builder.finish([x], [y])))
    return path


def test_a_session_answers_and_its_status_names_every_culprit(hostile: dict[str, str], model: Path) -> None:
    value = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    (expected,) = odc_mlir.run(model, [value])
    with Session(model, settings={"OnDeviceCompilation": "1", "ODC_TRIGGER": "explicit"}) as session:
        np.testing.assert_array_equal(session.infer([value])[0], expected)
        assert session.wait_for_auto_compilation(60)
        session.infer([value])
        notes = session.odc_status.notes
    for name, problem in hostile.items():
        start = f"'{name}' of {name} 1.0 ({name}:make) cannot be used: {problem}"
        assert any(note.startswith(start) for note in notes), name


def test_no_call_waits_for_a_device(site: Path, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(site, "late", DEVICE.format(attached="return []"), DEVICES)
    may_answer, waited = Event(), []

    def probe(*arguments: Any) -> Any:
        waited.append(may_answer.wait(60))
        return foreign.probe(*arguments)

    monkeypatch.setattr(devices, "probe", probe)
    value = np.zeros((1, 8), np.float32)
    with Session(model, settings={"OnDeviceCompilation": "1", "ODC_TRIGGER": "explicit"}) as session:
        session.prepare()
        session.infer([value])
        session.infer([value])
        assert session.odc_status.target is None
        may_answer.set()
        session.wait_for_auto_compilation(60)
        session.infer([value])
        assert session.odc_status.target == "cpu"
    assert all(waited)


def test_the_doctor_names_each(hostile: dict[str, str], site: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert odc_doctor.main(["--json"]) == 1
    found = {(item["area"], item["name"]): item for item in json.loads(capsys.readouterr().out)}
    for name, problem in hostile.items():
        assert found["devices", name]["status"] == "problem"
        assert problem in found["devices", name]["text"]
        assert f"{name} 1.0" in found["devices", name]["hint"]
    for name in AT_IMPORT.keys() & hostile.keys() - {"odd"}:
        assert AT_IMPORT[name][1] in found["targets", name]["text"]
        assert AT_IMPORT[name][1] in found["plugins", f"{name}-gen"]["text"]
    status = {name: found["packages", f"{name}-1.0"]["status"] for name in (*MALFORMED, "nameless")}
    assert status == {"lines": "note", "ours": "problem", "binary": "note", "huge": "note", "nameless": "note"}
    assert str(site / "lines-1.0.dist-info") in found["packages", "lines-1.0"]["hint"]


def test_commands_work(
    hostile: dict[str, str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert odc_compile.main(["-q", str(model), "-o", str(tmp_path / "package")]) == 0
    assert odc_lint.main([str(model)]) == 0
    assert odc_lint.main([str(model), "--target", "cpu"]) == 0
    assert odc_run.main([str(model)]) == 0
    capsys.readouterr()
    assert odc_plugin.main(["list"]) == 0
    said = capsys.readouterr().out
    assert all(f"  {name}  {name} 1.0 ({name}:make)" in said for name in hostile)


def test_machines_without_identities_keep_their_results_apart(site: Path) -> None:
    module = (
        "from odc_mlir.plugins.target import RuleTable, TargetDescription\n"
        "def make():\n"
        "    rules = lambda machine: RuleTable((), {})\n"
        "    return TargetDescription('twins', 'twins', ('float',), rules, machines=lambda: ('twins-a', 'twins-b'))\n"
    )
    install(site, "twins", module, TARGETS, registry.GROUP)
    facts = [aim_at(name).key_facts for name in ("twins", "twins-a", "twins-b")]
    assert len(set(facts)) == 3


def test_other_targets_compile_to_the_same_bytes(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = REPOSITORY / "examples" / "digits" / "digits_cnn_int8.circle"

    def compiled() -> list[tuple[str, bytes]]:
        packages = [odc_mlir.compile(model, target=target) for target in ("npu-256", "cpu")]
        assert all(package.plan is not None and package.plan.segments for package in packages)
        return [(name, bytes(data)) for package in packages for name, data in sorted(package.files.members.items())]

    before = compiled()
    monkeypatch.setenv(foreign.TIMEOUT_VARIABLE, "1")
    for name, (line, _) in AT_IMPORT.items():
        install(site, name, line + "\n", *registry.OWN_ENTRIES)
    assert compiled() == before


def test_an_unknown_target_is_a_line(
    hostile: dict[str, str], model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert odc_compile.main([str(model), "--target", "TYPO", "-o", str(tmp_path / "package")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "unknown target 'TYPO'; use one of cpu, " in line
    assert all(name in line for name in AT_IMPORT.keys() & hostile.keys())


@pytest.mark.parametrize("name", AT_IMPORT)
def test_a_plugin_that_is_named_fails_with_a_line(
    name: str,
    site: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    line, problem = AT_IMPORT[name]
    install(site, name, line + "\n", TARGETS, registry.GROUP)
    if name in SLOW:
        monkeypatch.setenv(foreign.TIMEOUT_VARIABLE, "1")
    problem = f"'{name}' of {name} 1.0 ({name}:make) cannot be used: {PROBLEM_OF_ODD if name == 'odd' else problem}"
    machine = f"{name}-large"  # the package alone knows whether it exists
    for target in (name, machine):
        assert odc_compile.main([str(model), "--target", target, "-o", str(tmp_path / "package")]) == 1
        (said,) = capsys.readouterr().err.splitlines()
        assert said.endswith(f"{problem}; repair or uninstall the package; odc-doctor tests it")
    assert odc_plugin.main(["check", name]) == 1
    assert problem in capsys.readouterr().out
    value = np.linspace(-1, 1, 8, dtype=np.float32)[None]
    (expected,) = odc_mlir.run(model, [value])
    for target in (name, machine):
        with Session(model, settings={"OnDeviceCompilation": "1", "ODC_TARGET": target, "ODC_RECORDS": "1"}) as session:
            np.testing.assert_array_equal(session.infer([value])[0], expected)
            assert session.wait_for_auto_compilation(60)
            np.testing.assert_array_equal(session.infer([value])[0], expected)
            status = session.odc_status
        assert (status.phase, status.serving, status.target) == (Phase.REJECTED, Level.ORIGINAL, target)
        assert problem in (status.reason or "")


def test_a_session_runs_no_code_of_a_named_target_while_the_application_waits(site: Path, tmp_path: Path) -> None:
    install(site, "marks", f"open({str(tmp_path / 'imported')!r}, 'w')\nmake = 5\n", TARGETS)
    for target in ("marks", "marks-large", "else"):
        Session(settings={"ODC_TARGET": target})
    assert not (tmp_path / "imported").exists()
    with pytest.raises(OdcError, match="unknown target 'npu-7'"):  # a name of ours
        Session(settings={"ODC_TARGET": "npu-7"})


def test_a_device_may_print_and_leave_threads(site: Path, capfd: pytest.CaptureFixture[str]) -> None:
    noise = (
        "import threading, time; print('hello', flush=True); threading.Thread(target=time.sleep, args=(60,)).start()\n"
    )
    install(site, "noisy", noise + DEVICE.format(attached="return ['made']"), DEVICES)
    targets, problems = devices.attached()
    assert (targets[0], problems) == ("made", [])
    assert capfd.readouterr().out == ""


def test_our_device_stands_in_for_one_that_fails(site: Path, caplog: pytest.LogCaptureFixture) -> None:
    (site / "evil.py").write_text("import os; os._exit(7)\n")
    declare(site, "evil", f"[{DEVICES}]\nnpu = evil:make\ncpu = evil:make\n".encode(), "Name: evil\nVersion: 1.0\n")
    assert devices.open_device("npu").name == "simulator"
    assert "'npu' of evil 1.0 (evil:make) cannot be used: the plugin's process ended with code 7" in caplog.text
    assert choose("cpu").source is not None
    assert devices.attached()[0] == list(devices.open_device("cpu").attached())


def test_a_device_is_probed_once_for_all_processes(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The application of a real device does not wait for a second process whenever it starts."""
    (site / "evil.py").write_text("raise ValueError('no licence')\n")
    declare(site, "evil", f"[{DEVICES}]\nevil = evil:make\n".encode(), "Name: evil\nVersion: 1.0\n")
    for _ in range(2):
        device = devices.open_device("evil")
        with pytest.raises(PackageError, match="no licence"):
            device.load(b"")
        foreign._known_outcomes().clear()  # as in another process
        monkeypatch.setattr(devices, "probe", None)
    (site / "evil.py").write_text(DEVICE.format(attached="return []"))
    monkeypatch.setattr(devices, "probe", foreign.probe)
    assert devices.open_device("evil").name == "made up"
    del sys.modules["evil"]


def test_foreign_code_in_this_process_has_a_deadline(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = PluginSource("late", "late 1.0", reference="late:make", folder=str(site), group=DEVICES)
    monkeypatch.setenv(foreign.TIMEOUT_VARIABLE, "0.1")
    with pytest.raises(OdcError, match=r"'late' of late 1\.0 cannot be used: it took longer than 0\.1 s, the limit"):
        foreign.call(lambda: time.sleep(2), source)
    with pytest.raises(OdcError, match="cannot be used: SystemExit: 7"):
        foreign.call(lambda: sys.exit(7), source)
    monkeypatch.setenv(foreign.TIMEOUT_VARIABLE, "soon")
    with pytest.raises(OdcError, match="ODC_PLUGIN_TIMEOUT_S is 'soon', expected seconds"):
        foreign.deadline_seconds()
