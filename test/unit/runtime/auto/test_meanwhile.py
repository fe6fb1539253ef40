"""What other processes do to cache and records meanwhile keeps no session from what it could have."""

from __future__ import annotations

import os
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest

from helpers.models import add_model, model_bytes
from helpers.pretended import SHAPE, Pretended, phases, served, session_of, settings_in
from odc_mlir.calibration.recorded import Records, Shapes
from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import OdcError, RecordsError
from odc_mlir.formats.cache import cache_folder, content_digest
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto import aim, candidates, controller
from odc_mlir.runtime.auto.aim import aim_at
from odc_mlir.runtime.auto.artefacts import Artefact, Artefacts, JobResult, file_lock
from odc_mlir.runtime.auto.jobs import Ending, Job, Milestone, Supervisor
from odc_mlir.runtime.auto.recording import RecordsLocation, RunRecorder
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.runtime.auto.worker import Worker
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.graph import build_graph

pytestmark = pytest.mark.usefixtures("pretended")
TOO_FEW = JobResult(None, "all alike", "coverage", "check", budget={"runs": 3.0})
"""Fewer than four records are not enough."""


def results() -> Artefacts:
    return Artefacts(cache_folder())


def key(session: Session) -> str:
    found = session.odc_status.key
    assert found is not None
    return found


def refuse(session: Session, result: JobResult) -> None:
    results().keep_refusal(key(session), result)


def end(problem: str | None = None, kind: str = "failed") -> None:
    """The process that waits ends, without having made anything."""
    waiting = Pretended.waiting.pop()
    waiting._ended(Ending(problem, kind))


def later(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    start = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: start + seconds)


# Refusals of others.


@pytest.mark.parametrize("kind", ["coverage", "watch"])
def test_a_refusal_of_fewer_records_than_there_are_by_now(
    kind: str, pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many processes together have recorded all that is ever waited for, while one was refused with few."""
    session = session_of()
    pretended.hold = True
    for _ in range(2):
        served(session)
    monkeypatch.setattr(RunRecorder, "runs", lambda *_: 50)
    refuse(session, replace(TOO_FEW, kind=kind))
    pretended.hold = False
    end()
    assert served(session) is Level.QUANTIZED
    assert [job.runs for job in pretended.jobs] == [2, 50]


def test_what_was_made_and_is_gone_is_made_again(pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of()
    pretended.hold = True
    for _ in range(2):
        served(session)
    end()
    assert session.odc_status.reason == "nothing was made"
    pretended.hold = False
    later(monkeypatch, 31)
    assert [served(session) for _ in range(2)] == [Level.ORIGINAL, Level.QUANTIZED]


def test_a_process_that_fails_takes_nothing_from_another(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is done between the look for a result and the note that there is none."""
    session = session_of()
    pretended.hold = True
    for _ in range(2):
        served(session)
    clean = Artefacts.clean

    def clean_late(made: Artefacts, *arguments: Any) -> None:
        work = made.new_folder(key(session))
        (work / "model.circle").write_bytes(Pretended.model)
        made.commit(key(session), work, JobResult("quantized"))
        clean(made, *arguments)

    monkeypatch.setattr(Artefacts, "clean", clean_late)
    end("it was killed", "passing")
    found, _ = results().find(key(session))
    assert found is not None
    assert found.result.level == "quantized"


def test_an_old_refusal_is_not_what_a_process_has_made(pretended: type[Pretended]) -> None:
    """So failures that may pass are counted, over processes too."""
    pretended.hold = True
    for attempts in (1, 2, 3):
        session = session_of()
        for _ in range(2):
            served(session)
        end(f"killed {attempts}", "passing")
        assert session.odc_status.reason == f"killed {attempts}"
        found, _ = results().find(key(session))
        assert found is not None
        assert (found.result.reason, found.result.attempts) == (f"killed {attempts}", attempts)
        refuse(session, replace(found.result, failed_at=1e9))  # long ago
        session.close()


# Results that go.


@pytest.mark.parametrize("fate", ["replaced", "deleted"])
def test_a_result_that_goes_while_it_is_opened(
    fate: str, pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = candidates.open_artefact
    seen: list[Artefact] = []

    def open_late(artefact: Artefact, *arguments: object) -> candidates.Opened:
        seen.append(artefact)
        if len(seen) > 1:
            return opened(artefact, *arguments)  # type: ignore[arg-type]
        if fate == "deleted":
            results().discard(artefact.folder.name)
            return opened(artefact, *arguments)  # type: ignore[arg-type]
        model = artefact.folder / "model.circle"
        model.rename(model.with_name("elsewhere"))
        failed = opened(artefact, *arguments)  # type: ignore[arg-type]
        made = results()
        work = made.new_folder(key(session))
        (work / "model.circle").write_bytes(Pretended.model)
        made.commit(key(session), work, artefact.result)
        return failed

    monkeypatch.setattr(controller, "open_artefact", open_late)
    session = session_of()
    levels = [served(session) for _ in range(4)]
    assert levels[-1] is Level.QUANTIZED
    assert session.odc_status.fallbacks == []
    assert len(pretended.jobs) == (2 if fate == "deleted" else 1)


def test_other_shapes_when_the_model_for_them_was_deleted(pretended: type[Pretended]) -> None:
    session = session_of()
    for _ in range(3):
        served(session)
    shutil.rmtree(results().folder / key(session))
    assert [served(session, 2) for _ in range(3)] == [Level.ORIGINAL, Level.ORIGINAL, Level.QUANTIZED]
    assert [job.quantized for job in pretended.jobs] == [False, False]
    assert [served(session, 3) for _ in range(2)] == [Level.QUANTIZED] * 2  # by what was made for the second
    assert [job.quantized for job in pretended.jobs] == [False, False, True]


def test_many_shapes_when_the_model_for_them_was_deleted(pretended: type[Pretended]) -> None:
    """What was borrowed for shapes that wait for their turn would answer for ever, and nothing be recorded."""
    session = session_of()
    for _ in range(3):
        served(session)
    first = results().folder / key(session)
    pretended.hold = True
    assert [served(session, rows) for rows in (2, 3)] == [Level.QUANTIZED] * 2
    shutil.rmtree(first)
    end("it was killed")  # so that the next one is to begin
    pretended.hold = False
    levels = [[served(session, rows) for rows in (3, 4)] for _ in range(5)]
    assert levels[1] == [Level.ORIGINAL] * 2
    assert levels[-1] == [Level.QUANTIZED] * 2


def test_a_thread_that_cannot_start(pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    session = session_of()
    with monkeypatch.context() as patch:
        patch.setattr(controller, "Supervisor", fail)
        for _ in range(2):
            served(session)
        assert session.wait_for_auto_compilation(5)
        assert "can't start new thread" in (session.odc_status.reason or "")
    later(monkeypatch, 31)
    assert [served(session) for _ in range(2)] == [Level.ORIGINAL, Level.QUANTIZED]


def test_what_is_given_up_is_taken_back_before_the_next_process_looks(pretended: type[Pretended]) -> None:
    session = session_of(ODC_WATCH_PERCENT="0")
    for _ in range(3):
        served(session)
    auto = session._switcher.auto
    assert auto is not None
    waiting: list[Callable[[], None]] = []  # as if another process held the lock
    auto.background.submit = lambda task, **_: waiting.append(task) is None  # type: ignore[method-assign]
    auto.leave("on purpose")
    for _ in range(3):
        served(session)
    assert (phases(session), len(pretended.jobs)) == (Phase.QUANTIZING, 1)
    pretended.hold = True
    for task in waiting:
        task()
    assert len(pretended.jobs) == 2
    found, _ = results().find(key(session))
    assert found is not None
    assert (found.result.level, found.result.reason) == (None, "on purpose")


# Records.

DIGEST = "ab" * 32
SHAPES = (SHAPE, SHAPE)


def test_a_store_that_is_deleted_while_it_is_waited_for(tmp_path: Path) -> None:
    """The file that was opened is none any more: another try makes a new one."""
    path = tmp_path / "r" / "ranges.sqlite"
    store = RecordStore(path, DIGEST, wait_seconds=10)
    errors: list[RecordsError] = []

    def append() -> None:
        try:
            store.append(Records(runs=1), SHAPES)
        except RecordsError as error:
            errors.append(error)

    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        thread = Thread(target=append)
        thread.start()
        time.sleep(0.3)
        shutil.rmtree(path.parent)
    thread.join()
    (error,) = errors
    assert error.passing, error
    RecordStore(path, DIGEST).append(Records(runs=1), SHAPES)
    assert RecordStore(path, create=False).runs() == 1


def test_files_beside_a_store_that_come_and_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite deletes its journal when a process has written."""
    path = tmp_path / "ranges.sqlite"
    RecordStore(path, DIGEST).append(Records(runs=1), SHAPES)
    exists = os.path.lexists
    monkeypatch.setattr(os.path, "lexists", lambda place: exists(place) or str(place).endswith("-journal"))
    assert RecordStore(path, create=False).runs() == 1


def test_a_look_at_the_store_forgets_nothing_that_came_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "ranges.sqlite"
    RecordStore(path, DIGEST).append(Records(runs=1), SHAPES)
    executor = HostExecutor(build_graph(add_model(SHAPE)))
    kept = RunRecorder(executor.graph, lambda: RecordsLocation(DIGEST, path, tmp_path))
    shapes = RecordStore.shapes
    late = []

    def look_late(store: RecordStore) -> dict[Shapes, int]:
        found = shapes(store)
        if not late:
            late.append(True)
            kept.run(executor, [np.ones(SHAPE, np.float32)] * 2)
            kept.flush()
        return found

    monkeypatch.setattr(RecordStore, "shapes", look_late)
    kept.look()
    assert kept.runs(SHAPES) == 2


# Processes.


def job(tmp_path: Path, **facts: Any) -> Job:
    model = tmp_path / "model.circle"
    model.write_bytes(model_bytes(add_model(SHAPE)))
    options: dict[str, Any] = {
        "key": "0" * 40,
        "settings": settings_in(tmp_path / "cache"),
        "model": str(model),
        "records": str(tmp_path / "ranges.sqlite"),
        "digest": content_digest(model),
        "quantized": True,
        "plugin": "npu-gen",
        "machine": "npu-256",
        "target": list(aim_at("npu-256").facts),
    }
    return Job(**options | facts)


def test_who_waits_for_another_process_too_long_may_try_again(tmp_path: Path) -> None:
    made, endings = job(tmp_path, settings=settings_in(tmp_path / "cache", timeout_seconds=0.5)), []
    with file_lock(Artefacts(tmp_path / "cache").lock_path(made.key), seconds=0):
        Supervisor(made, lambda _facts: None, endings.append).join()
    (ending,) = endings
    assert (ending.problem, ending.kind) == ("another process has been working on this model for too long", "passing")


def test_a_model_file_that_is_deleted_is_no_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    found = job(tmp_path)
    Path(found.model).unlink()
    with pytest.raises(OdcError, match="the model file has been deleted since it was loaded") as caught:
        Worker(found, lambda *_, **__: None).run()
    assert caught.value.passing
    assert Artefacts(tmp_path / "cache").find(found.key) == (None, None)


def test_a_result_that_is_deleted_while_a_process_works_on_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", None)
    found, made = job(tmp_path, quantized=False, again=True), Artefacts(tmp_path / "cache")
    work = made.new_folder(found.key)
    (work / "model.circle").write_bytes(Path(found.model).read_bytes())
    made.commit(found.key, work, JobResult("quantized"))

    def announce(step: str, **_facts: Any) -> None:
        if step == Milestone.MODEL_READ:
            made.discard(found.key)

    with pytest.raises(OdcError, match="No such file or directory") as caught:
        Worker(found, announce).run()
    assert caught.value.passing


def test_a_process_is_ended_while_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever ends it just before it is there does not wait for its work."""
    begun, ended, endings = Event(), Event(), []
    start = subprocess.Popen

    def start_late(*arguments: Any, **options: Any) -> Any:
        begun.set()
        assert ended.wait(10)
        return start(*arguments, **options)

    monkeypatch.setattr(subprocess, "Popen", start_late)
    monkeypatch.setattr(Supervisor, "command", (sys.executable, "-c", "import time; time.sleep(100)"))
    supervisor = Supervisor(job(tmp_path), lambda _facts: None, endings.append)
    assert begun.wait(10)
    kill = supervisor._kill

    def kill_then_go_on() -> None:
        kill()
        ended.set()

    monkeypatch.setattr(supervisor, "_kill", kill_then_go_on)
    supervisor.stop()
    (ending,) = endings
    assert re.search("SIGKILL|cannot be started", ending.problem)


def test_a_process_that_cannot_be_watched_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Supervisor, "_extend_deadline", fail)
    monkeypatch.setattr(Supervisor, "command", (sys.executable, "-c", "import time; time.sleep(100)"))
    endings: list[Ending] = []
    supervisor = Supervisor(job(tmp_path), lambda _facts: None, endings.append)
    assert supervisor.join(60)
    assert endings == [Ending("the background process cannot be watched: can't start new thread", "passing")]
    assert supervisor._process is not None
    assert supervisor._process.wait(60) == -signal.SIGKILL


# The model itself as code.


def test_code_of_the_model_that_is_gone_is_made_again(
    pretended: type[Pretended], monkeypatch: pytest.MonkeyPatch
) -> None:
    of_reals = replace(aim.aim_at("npu-128"), takes_floats=True, takes_codes=False)
    monkeypatch.setattr(aim, "_aim", lambda _name, _chosen: of_reals)
    session = session_of()
    pretended.hold = True
    served(session)
    assert len(pretended.jobs) == 1
    end()
    served(session)
    assert len(pretended.jobs) == 2
    assert session.odc_status.phase is Phase.COMPILING
