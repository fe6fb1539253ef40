"""The start of on-device compilation behind the first answers: what it costs them, and that nothing gets lost."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.models import add_model, model_bytes
from helpers.pretended import SETTINGS, SHAPE, Pretended
from odc_mlir.calibration.records import RecordStore
from odc_mlir.formats.cache import records_path
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto import aim, controller
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.runtime.session import switcher

LONG = 3600.0


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes are pretended, threads are real."""
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(controller, "Supervisor", Pretended)
    monkeypatch.setattr(Pretended, "jobs", [])
    monkeypatch.setattr(switcher, "_PAUSE_SECONDS", LONG)


def session_of(**settings: str) -> Session:
    return Session(model_bytes(add_model(SHAPE)), settings={**SETTINGS, **settings})


def infer(session: Session, value: float = 1) -> None:
    (out,) = session.infer([np.full(SHAPE, value, np.float32)] * 2)
    np.testing.assert_array_equal(out, np.full(SHAPE, 3 * value, np.float32))


FIRST_ANSWER = """
import sys
import numpy as np
from odc_mlir.runtime import Session
from odc_mlir.runtime.session import switcher
switcher._PAUSE_SECONDS = 3600.0
with Session(sys.argv[1], settings={"OnDeviceCompilation": "1", "ODC_TARGET": "npu-256"}) as session:
    session.infer([np.ones((1, 4), np.float32)] * 2)
    print(*(name for name in sys.modules if name.startswith("odc_mlir.runtime.auto.")), "sqlite3" in sys.modules)
"""


def test_the_first_answer_loads_no_compiler(tmp_path: Path) -> None:
    """Neither its modules nor the record store, whose imports alone take longer than many models."""
    model = tmp_path / "model.circle"
    model.write_bytes(model_bytes(add_model(SHAPE)))
    found = subprocess.run([sys.executable, "-c", FIRST_ANSWER, str(model)], check=True, capture_output=True, text=True)
    loaded = {name.rpartition(".")[2] for name in found.stdout.split()}
    assert loaded == {"aim", "background", "recording", "settings", "False"}


def test_runs_before_the_compiler_is_open_are_recorded() -> None:
    with session_of() as session:
        for value in (1, 2):
            infer(session, value)
        assert session._switcher.auto is None
        assert session.wait_for_auto_compilation(60)
        (job,) = Pretended.jobs
        assert job.runs == 2
        status = session.odc_status
        assert (status.phase, status.serving) == (Phase.ACTIVE, Level.ORIGINAL)


def test_a_session_that_is_closed_early_keeps_its_records_and_starts_nothing() -> None:
    session = session_of()
    for value in (1, 2):
        infer(session, value)
    digest = session.digest
    session.close()
    assert RecordStore(records_path(digest), create=False).runs() == 2
    assert Pretended.jobs == []


def test_a_status_tells_that_the_compiler_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(switcher, "_STATUS_SECONDS", 0.05)
    monkeypatch.setattr(aim, "choose", lambda *_: time.sleep(0.5))
    with session_of(ODC_TARGET="auto") as session:
        infer(session)
        status = session.odc_status
        assert (status.enabled, status.phase, status.reason) == (True, Phase.FLOAT, "the compiler is opening")


@pytest.mark.parametrize("error", [SystemExit(7), KeyboardInterrupt(), ValueError("odd")])
def test_whatever_ends_the_opening_fails_no_run(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise error

    monkeypatch.setattr(aim, "aim_at", fail)
    with session_of() as session:
        for _ in range(3):
            infer(session)
        status = session.odc_status
        assert (status.phase, status.serving) == (Phase.REJECTED, Level.ORIGINAL)
        assert type(error).__name__ in (status.reason or "")
        infer(session)


def test_the_application_may_change_its_inputs_at_once() -> None:
    with session_of() as session:
        values = np.ones(SHAPE, np.float32)
        session.infer([values, values])
        values[:] = np.nan
        session.infer([np.ones(SHAPE, np.float32)] * 2)
        assert session.wait_for_auto_compilation(60)
        auto = session._switcher.auto
        assert auto is not None
        assert auto.recorder.sample((SHAPE, SHAPE)) is not None
        assert RecordStore(records_path(session.digest), create=False).statistics()["a"].maximum == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_process_opens_its_own() -> None:
    with session_of() as session:
        infer(session)
        child = os.fork()
        if child == 0:
            infer(session)
            infer(session)
            done = session.wait_for_auto_compilation(60) and len(Pretended.jobs) == 1
            os._exit(0 if done else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert session._switcher.auto is None
