"""Sessions that find their cache damaged at random: every answer is right, and none has to be waited for.

ODC_TEST_SESSIONS says how many are tried, 100 for example; each prints what was wrong and what it cost.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import sqlite3
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.auto import RECORDS, Made, open_session, use_worker
from helpers.damage import make_socket
from odc_mlir.calibration.records import RecordStore
from odc_mlir.errors import RecordsError
from odc_mlir.formats.cache import content_digest
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.artefacts import file_lock
from odc_mlir.runtime.auto.jobs import Milestone
from odc_mlir.runtime.auto.settings import Level

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.xdist_group("auto")

SESSIONS = int(os.environ.get("ODC_TEST_SESSIONS", "8"))
MAX_WAIT_SECONDS = 0.05
RUNS, TIMES = 12, 3


class Case:
    """One damaged cache. Each fault is a method that begins with ``fault_``; what it opens ends with ``stack``."""

    def __init__(self, cache: Path, digest: str, patch: pytest.MonkeyPatch, stack: ExitStack, seed: int) -> None:
        self.cache, self.patch, self.stack = cache, patch, stack
        self.random = random.Random(seed)
        self.store = cache / "records" / digest / "ranges.sqlite"
        self.result = next((cache / "compiled").glob("*/result.json"), cache / "compiled" / "k" / "result.json")
        self.worker = ""

    def fault_records_locked(self) -> None:
        database = self.stack.enter_context(closing(sqlite3.connect(self.store, isolation_level=None)))
        database.execute("BEGIN EXCLUSIVE")

    def fault_records_newer(self) -> None:
        with closing(sqlite3.connect(self.store)) as database:
            database.execute("PRAGMA user_version = 99")

    def fault_records_wrong_types(self) -> None:
        with closing(sqlite3.connect(self.store)) as database:
            column = self.random.choice(["shapes", "runs", "inputs"])
            database.execute(f"UPDATE batches SET {column} = '[[\"x\"]]'")
            database.commit()

    def fault_records_of_another_model(self) -> None:
        with closing(sqlite3.connect(self.store)) as database:
            database.execute("UPDATE about SET digest = 'other'")
            database.commit()

    def fault_records_damaged(self) -> None:
        self._damage(self.store)

    def fault_records_replaced(self) -> None:
        self._replace(self.store)

    def fault_journal_replaced(self) -> None:
        self._replace(Path(f"{self.store}-journal"))

    def fault_disk_full(self) -> None:
        def full(*arguments: object) -> None:
            raise RecordsError("the records cannot be used now: database or disk is full", passing=True)

        self.patch.setattr(RecordStore, "append", full)
        self.worker = f"full@{self.random.choice([Milestone.MODEL_READ, Milestone.COMPILED, Milestone.COMMITTING])}"

    def fault_read_only(self) -> None:
        for place in (self.cache, *self.cache.rglob("*")):
            place.chmod(0o500 if place.is_dir() else 0o400)

    def fault_folder_replaced(self) -> None:
        self._replace(self.cache / self.random.choice(["records", "compiled", "models", "."]))

    def fault_result_replaced(self) -> None:
        self._replace(self.random.choice(sorted(self.result.parent.glob("*")) or [self.result]))

    def fault_result_damaged(self) -> None:
        for file in self.random.choices(sorted(self.result.parent.glob("*")), k=1) if self.result.exists() else []:
            self._damage(file)

    def fault_result_wrong_types(self) -> None:
        if not self.result.exists():
            return
        document = json.loads(self.result.read_text())
        part = self.random.choice([document, document["result"], document["files"]])
        part[self.random.choice(sorted(part))] = self.random.choice([None, 7, "x", [], {}, [[1]], 1e308, True])
        self.result.write_text(json.dumps(document))

    def fault_result_newer(self) -> None:
        if self.result.exists():
            self.result.write_text(json.dumps({**json.loads(self.result.read_text()), "schema_version": 99}))

    def fault_key_locked(self) -> None:
        self.stack.enter_context(file_lock(self.cache / "compiled" / "locks" / self.result.parent.name, seconds=1))

    def fault_worker(self) -> None:
        fault = self.random.choice(["kill", "raise", "refuse", "fail", "inaccurate"])
        self.worker = f"{fault}@{self.random.choice(list(Milestone))}"

    def _damage(self, file: Path) -> None:
        if not file.is_file():
            return
        data = bytearray(file.read_bytes())
        for _ in range(self.random.randint(1, 20)):
            if data:
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        file.write_bytes(data[: self.random.choice([len(data), len(data) // 2, 0])])

    def _replace(self, place: Path) -> None:
        """Put something there that is not what should be there."""
        if place.resolve() == self.cache.resolve():
            place = self.cache
        elsewhere = self.cache.with_name("elsewhere")
        if os.path.lexists(place):
            place.rename(elsewhere)
        place.parent.mkdir(parents=True, exist_ok=True)
        kind = self.random.choice(["pipe", "folder", "file", "link", "dangling", "socket", "device"])
        if kind == "pipe":
            os.mkfifo(place)
        elif kind == "folder":
            (place / "folder").mkdir(parents=True)
        elif kind == "file":
            place.write_bytes(b"in the way")
        elif kind == "socket":
            make_socket(place)
        else:
            place.symlink_to({"link": elsewhere, "dangling": "nowhere", "device": "/dev/zero"}[kind])


FAULTS = sorted(name for name in vars(Case) if name.startswith("fault_"))


@pytest.fixture(scope="module")
def answers(made: Made) -> dict[Level, list[Array]]:
    quantized = made.answers(made.quantized)
    return {Level.ORIGINAL: made.answers(made.model), Level.QUANTIZED: quantized, Level.COMPILED: quantized}


@pytest.fixture(scope="module")
def caches(made: Made, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A cache with records alone, and one with a result as well."""
    root = tmp_path_factory.mktemp("caches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ODC_CACHE_DIR", str(root / "records"))
        with open_session(made.model, ODC_TRIGGER="explicit") as session:
            session.infer(made.sample(0))
        shutil.copytree(root / "records", root / "result")
        patch.setenv("ODC_CACHE_DIR", str(root / "result"))
        use_worker(patch, made)
        with open_session(made.model) as session:
            for index in range(RECORDS):
                session.infer(made.sample(index))
            assert session.wait_for_auto_compilation(60)
            session.infer(made.sample(0))
            assert session.odc_status.serving is Level.COMPILED
    return root / "records", root / "result"


class Clock:
    """How long calls take: ``seconds`` of the clock without the time in which others had the processor."""

    def __init__(self) -> None:
        self.seconds = self.cpu_seconds = 0.0

    def __call__(self, call: Callable[[], Any]) -> Any:
        start, cpu, delayed = time.perf_counter(), time.thread_time(), _delayed_seconds()
        result = call()
        self.seconds = time.perf_counter() - start - (_delayed_seconds() - delayed)
        self.cpu_seconds = time.thread_time() - cpu
        return result


def _delayed_seconds() -> float:
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e9
    except OSError:
        return 0.0


@pytest.mark.timeout(120)
@pytest.mark.parametrize("seed", range(SESSIONS))
def test_answers_are_right_and_at_once(
    seed: int,
    made: Made,
    answers: dict[Level, list[Array]],
    caches: tuple[Path, Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is to be waited for is so every time; of three times one may be free of what the machine did meanwhile."""
    for attempt in range(TIMES):
        with monkeypatch.context() as patch, ExitStack() as stack:
            wait = play(seed, made, answers, caches, tmp_path / str(attempt), patch, stack)
        if wait <= MAX_WAIT_SECONDS:
            return
    pytest.fail(f"an answer took {1e3 * wait:.1f} ms more than it does without compiling on the device")


def play(
    seed: int,
    made: Made,
    answers: dict[Level, list[Array]],
    caches: tuple[Path, Path],
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    stack: ExitStack,
) -> float:
    """One session with the faults of ``seed``, whose answers must be right; what one was waited for at most."""
    chosen = random.Random(seed)
    cache = folder / "cache"
    shutil.copytree(chosen.choice(caches), cache)
    case = Case(cache, content_digest(made.model), monkeypatch, stack, seed)
    faults = [FAULTS[seed % len(FAULTS)], *chosen.sample(FAULTS, chosen.randint(0, 1))]
    for name in dict.fromkeys(faults):
        try:
            getattr(case, name)()
        except (OSError, sqlite3.Error):  # the faults before have left nothing to damage
            continue
    monkeypatch.setenv("ODC_CACHE_DIR", str(cache))
    use_worker(monkeypatch, made, case.worker)
    plain = stack.enter_context(Session(made.model))
    session = open_session(made.model)
    ours, alone = Clock(), Clock()
    gc.collect()
    gc.disable()  # what the tests before have left takes 100 ms to look through, and counts for nobody here
    stack.callback(gc.enable)
    waits: list[tuple[float, float]] = []
    try:
        for run in range(RUNS):
            index = run % len(made.samples)
            alone(lambda index=index: plain.infer(made.sample(index)))
            (out,) = ours(lambda index=index: session.infer(made.sample(index)))
            level = session.odc_status.serving
            np.testing.assert_array_equal(out, answers[level][index])
            waits.append((ours.seconds - alone.seconds, ours.cpu_seconds - alone.cpu_seconds))
            if run == RUNS // 2:
                session.wait_for_auto_compilation(0.5)
        json.loads(session.odc_status.to_json())
    finally:
        if session._switcher.auto is not None:
            session._switcher.auto.stop()
        session.close()
    wall, cpu = (1e3 * max(part) for part in zip(*waits, strict=True))
    print(f"{seed}: {', '.join(faults)} {case.worker}: {level}, {wall:.1f} ms more, {cpu:.1f} ms of them computing")
    return wall / 1e3
