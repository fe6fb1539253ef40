"""The budget of compile processes: slots, the queue, and who wants a result."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from helpers.pretended import settings_in
from helpers.waiting import happens
from odc_mlir.runtime.auto.artefacts import Artefacts, JobResult, is_locked, try_lock, unlock
from odc_mlir.runtime.auto.jobs import QUEUED, Ending, Job, Supervisor

# Says in a file when it begins and ends, and ends when it is told or the file "go" is there.
WORKER = """
import os, select, sys, time
folder = sys.argv[1]
def say(text):
    with open(folder + "/log", "a") as log:
        log.write(text + "\\n")
say("begin")
while not os.path.exists(folder + "/go"):
    if select.select([0], [], [], 0.01)[0] and b"\\n" in os.read(0, 10000).split(b"}\\n")[-1]:
        break
say("end")
"""


def worker(tmp_path: Path) -> tuple[str, ...]:
    return sys.executable, "-c", WORKER, str(tmp_path)


def job(tmp_path: Path, number: int = 0, **settings: Any) -> Job:
    return Job(
        key=f"{number:040}",
        settings=settings_in(tmp_path / "cache", **settings),
        model=str(tmp_path / "cache"),
        records=str(tmp_path / "cache"),
        digest="",
        quantized=False,
        plugin="npu-gen",
        machine=None,
    )


def log(tmp_path: Path) -> list[str]:
    path = tmp_path / "log"
    return path.read_text().split() if path.exists() else []


@pytest.fixture(autouse=True)
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "command", worker(tmp_path))


def start(made: Job, endings: list[Ending], steps: list[str] | None = None) -> Supervisor:
    told: list[str] = [] if steps is None else steps
    return Supervisor(made, lambda facts: told.append(facts["step"]), endings.append)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    endings: list[Ending] = []
    started = [start(job(tmp_path, number), endings) for number in range(6)]
    assert all(item.join(60) for item in started)
    assert endings == [Ending(None)] * 6
    assert log(tmp_path) == ["begin", "end"] * 6


class EndedProcess(subprocess.Popen[bytes]):
    """A process that has ended when its constructor returns."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)


def test_a_process_that_ends_before_it_reads_its_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Supervisor, "command", (sys.executable, "-c", "raise SystemExit('no disk')"))
    monkeypatch.setattr(subprocess, "Popen", EndedProcess)
    endings: list[Ending] = []
    assert start(job(tmp_path), endings).join(60)
    assert endings == [Ending("the background process ended with code 1 after the step 'start': no disk")]


def test_a_setting_allows_more(tmp_path: Path) -> None:
    endings: list[Ending] = []
    started = [start(job(tmp_path, number, processes=2), endings) for number in range(3)]
    assert happens(lambda: log(tmp_path) == ["begin"] * 2)
    (tmp_path / "go").touch()
    assert all(item.join(60) for item in started)
    assert log(tmp_path).count("begin") == 3


def test_who_waits_is_told_and_takes_a_result_of_others_without_a_process(tmp_path: Path) -> None:
    endings: list[Ending] = []
    steps: list[str] = []
    first = start(job(tmp_path), endings)
    assert happens(lambda: log(tmp_path) == ["begin"])
    second = start(job(tmp_path), endings, steps)
    assert happens(lambda: steps == [QUEUED])
    artefacts = Artefacts(tmp_path / "cache")
    artefacts.commit(job(tmp_path).key, artefacts.new_folder(job(tmp_path).key), JobResult(None, "too odd", "failed"))
    (tmp_path / "go").touch()
    assert first.join(60)
    assert second.join(60)
    assert endings == [Ending(None)] * 2
    assert log(tmp_path) == ["begin", "end"]


def test_a_session_that_is_closed_leaves_the_queue_and_ends_its_process(tmp_path: Path) -> None:
    endings: list[Ending] = []
    first = start(job(tmp_path), endings)
    assert happens(lambda: log(tmp_path) == ["begin"])
    second = start(job(tmp_path, 1), endings)
    second.release()
    assert second.join(60)
    assert endings == [Ending("its session was closed")]
    assert log(tmp_path) == ["begin"]
    assert is_locked(job(tmp_path).interest_path)
    first.release()
    assert not is_locked(job(tmp_path).interest_path)
    assert first.join(60)
    assert log(tmp_path) == ["begin", "end"]


def test_a_process_keeps_its_place_when_the_application_is_killed(tmp_path: Path) -> None:
    """And gives it back when it ends itself."""
    application = (
        "import sys, time; from pathlib import Path\n"
        "from odc_mlir.runtime.auto.jobs import Job; from odc_mlir.runtime.auto.jobs import Supervisor\n"
        "Supervisor.command = tuple(sys.argv[2:])\n"
        "Supervisor(Job.from_json(sys.argv[1]), lambda facts: None, lambda ending: None)\n"
        "time.sleep(1000)"
    )
    arguments = [job(tmp_path).to_json(), *worker(tmp_path)]
    with subprocess.Popen([sys.executable, "-c", application, *arguments]) as process:
        assert happens(lambda: log(tmp_path) == ["begin"])
        process.kill()
    (slot,) = job(tmp_path).slots
    assert is_locked(slot)
    assert not is_locked(job(tmp_path).interest_path)
    (tmp_path / "go").touch()
    assert happens(lambda: not is_locked(slot))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_keeps_no_lock(tmp_path: Path) -> None:
    endings: list[Ending] = []
    first = start(job(tmp_path), endings)
    assert happens(lambda: log(tmp_path) == ["begin"])
    child = os.fork()
    if child == 0:
        time.sleep(1000)
    try:
        (tmp_path / "go").touch()
        assert first.join(60)
        (slot,) = job(tmp_path).slots
        assert not is_locked(slot)
        assert not is_locked(job(tmp_path).interest_path)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_locks(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "lock"
    assert not is_locked(path)
    shared = [try_lock(path, shared=True) for _ in range(2)]
    assert None not in shared
    assert try_lock(path) is None
    assert is_locked(path)
    for descriptor in shared:
        assert descriptor is not None
        unlock(descriptor)
    assert not is_locked(path)
    assert not path.exists()  # nobody needs the file
    alone = try_lock(path)
    assert alone is not None
    assert try_lock(path, shared=True) is None
    unlock(alone)
