"""Second tries, other shapes, threads and processes that end, and what results are kept under."""

from __future__ import annotations

import gc
import os
import shutil
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from helpers.data import REPOSITORY
from helpers.pretended import SETTINGS, SHAPE, SHAPES, Pretended, phases, served, session_of
from helpers.sessions import save_package
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto import controller
from odc_mlir.runtime.auto.aim import aim_at, target_facts
from odc_mlir.runtime.auto.artefacts import JobResult
from odc_mlir.runtime.auto.jobs import key_of
from odc_mlir.runtime.auto.settings import Level, Phase, read_settings
from odc_mlir.runtime.session.settings import Settings

pytestmark = pytest.mark.usefixtures("pretended")


def test_many_shapes_are_served_by_what_was_quantised_for_the_first(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(controller, "SHAPES_KEPT", 3)
    session = session_of()
    for _ in range(2):
        served(session)
    pretended.hold = True
    for _ in range(3):
        assert [served(session, rows) for rows in range(1, 8)] == [Level.QUANTIZED] * 7


def test_another_try_keeps_what_serves(pretended: type[Pretended]) -> None:
    session = session_of()
    for _ in range(3):
        served(session)
    assert phases(session) is Phase.ACTIVE
    pretended.hold = True
    session.retry_auto_compilation()
    assert (phases(session), served(session)) == (Phase.COMPILING, Level.QUANTIZED)
    (waiting,) = pretended.waiting
    assert waiting.job.again
    session.retry_auto_compilation()  # which does nothing while it runs
    assert len(pretended.waiting) == 1
    waiting.finish()
    assert (phases(session), served(session)) == (Phase.ACTIVE, Level.QUANTIZED)


@pytest.mark.parametrize("level", [None, "quantized"])
def test_what_may_pass_is_tried_again(
    level: str | None, pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    killed = JobResult(level, "killed", "passing", "compile", attempts=1, failed_at=time.time())
    pretended.result = killed
    session = session_of()
    for _ in range(3):
        served(session)
    assert (session.odc_status.reason, len(pretended.jobs)) == ("killed", 1)  # not at once in the same process
    pretended.result = JobResult("quantized")
    later = session_of()
    for _ in range(2):
        served(later)
    assert len(pretended.jobs) == 2
    assert pretended.jobs[1].again is (level is not None)
    assert later.odc_status.reason is None
    assert served(later) is Level.QUANTIZED
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + 61)
    served(session)  # by then it is time
    assert session.odc_status.reason is None
    assert served(session) is Level.QUANTIZED


def test_the_same_failure_time_after_time_is_not_tried_at_once(pretended: type[Pretended]) -> None:
    pretended.result = JobResult(None, "killed", "passing", attempts=3, failed_at=time.time())
    for _ in range(3):
        session = session_of()
        assert [served(session) for _ in range(3)] == [Level.ORIGINAL] * 3
        assert (phases(session), session.odc_status.reason) == (Phase.REJECTED, "killed")
        session.close()
    assert len(pretended.jobs) == 1
    session = session_of()
    served(session)
    pretended.result = JobResult("quantized")
    session.retry_auto_compilation()
    assert served(session) is Level.QUANTIZED


def idle_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name == "odc-idle"]


@pytest.mark.parametrize("closed", [True, False])
def test_waiting_for_idleness_takes_one_thread_which_ends(closed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "_IDLE_POLL_SECONDS", 0.01)
    session = session_of(ODC_TRIGGER="idle", ODC_RECORDS="1000")
    for rows in range(1, 8):
        served(session, rows)
    assert len(idle_threads()) == 1
    if closed:
        session.close()
    else:
        del session
        gc.collect()
    deadline = time.monotonic() + 60
    while idle_threads() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not idle_threads()


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_of_the_process_works_for_itself(pretended: type[Pretended]) -> None:
    pretended.hold = True
    session = session_of()
    for _ in range(2):
        served(session)
    assert phases(session) is Phase.QUANTIZING
    child = os.fork()
    if child == 0:
        code = 1
        try:
            assert phases(session) is Phase.COLLECTING
            Pretended.hold = False
            assert [served(session) for _ in range(2)] == [Level.ORIGINAL, Level.QUANTIZED]
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert phases(session) is Phase.QUANTIZING


def test_a_package_that_chooses_the_cache_is_not_obeyed(tmp_path: Path) -> None:
    save_package(tmp_path / "p", {"ODC_CACHE_DIR": str(tmp_path / "there"), **SETTINGS})
    with Session(tmp_path / "p") as session:
        for _ in range(3):
            session.infer([np.ones(SHAPE, np.float32)] * 2)
        (note,) = session.odc_status.notes
        assert "config.cfg chooses ODC_CACHE_DIR" in note
    assert not (tmp_path / "there").exists()
    assert (tmp_path / "cache" / "records").is_dir()


# Keys.


def plugin_key() -> str:
    settings = Settings(chosen={"ODC_TARGET": "own-gen"})
    found = read_settings(settings.get, settings.flag)
    return key_of(found, "0", SHAPES, aim_at(found.target).facts)


def test_a_plugin_that_changes_makes_another_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ODC_PLUGIN_PATH", str(tmp_path))
    plugin, beside = tmp_path / "own-gen.py", tmp_path / "own_part.py"
    plugin.write_text("a = 1")
    keys = [plugin_key(), plugin_key()]
    assert len(set(keys)) == 1
    stamp = plugin.stat()
    plugin.write_text("a = 2")
    os.utime(plugin, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    keys.append(plugin_key())
    beside.write_text("b = 1")
    keys.append(plugin_key())
    assert len(set(keys)) == 3


def test_an_installed_plugin_is_known_by_its_version_and_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(REPOSITORY / "test" / "data" / "plugins", tmp_path / "p")
    monkeypatch.setenv("ODC_PLUGIN_PATH", str(tmp_path / "p"))
    before = target_facts("tvn-gen", ())
    info = tmp_path / "p" / "tvn_codegen-1.2.dist-info"
    info.rename(info.with_name("tvn_codegen-1.3.dist-info"))
    newer = target_facts("tvn-gen", ())
    assert (before[1], newer[1]) == (
        "tvn-codegen 1.2 (tvn_codegen:create_codegen)",
        "tvn-codegen 1.3 (tvn_codegen:create_codegen)",
    )
    with (tmp_path / "p" / "tvn_codegen" / "__init__.py").open("a") as file:
        file.write("# changed")
    assert target_facts("tvn-gen", ())[1:] != newer[1:]
