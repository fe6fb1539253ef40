"""Compiling on the device when things go wrong: each inference is answered, nothing is left, and there is a reason."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.auto import (
    FAULTY,
    RECORDS,
    SETTINGS,
    Made,
    fail_results,
    kinds_that_run,
    left_behind,
    left_to_the_collector,
    open_session,
    use_worker,
)
from helpers.waiting import happens
from odc_mlir import Package
from odc_mlir.errors import OdcError, SimulationError
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.package import zip_bytes
from odc_mlir.runtime import Session, api
from odc_mlir.runtime.auto import controller
from odc_mlir.runtime.auto.artefacts import SCHEMA_VERSION, entries
from odc_mlir.runtime.auto.jobs import Milestone
from odc_mlir.runtime.auto.settings import Level, Phase
from odc_mlir.runtime.devices.simulator import SimulatorDevice, SimulatorProgram
from odc_mlir.runtime.execution.executor import HostExecutor
from odc_mlir.runtime.execution.plan import PlanExecutor

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.xdist_group("auto")


@pytest.fixture(scope="module")
def answers(made: Made) -> dict[Level, list[Array]]:
    """What each sample must be answered with, by level. The NPU computes what the host computes."""
    quantized = made.answers(made.quantized)
    return {
        Level.ORIGINAL: made.answers(made.model),
        Level.QUANTIZED: quantized,
        Level.COMPILED: quantized,
    }


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def model(made: Made, tmp_path: Path) -> Path:
    return Path(shutil.copy(made.model, tmp_path / "model.circle"))


class Run:
    """A session whose every answer is compared with what it must be at the level that gave it."""

    def __init__(self, session: Session, made: Made, answers: dict[Level, list[Array]]) -> None:
        self.session, self.made, self.answers = session, made, answers
        self.levels: list[Level] = []

    def infer(self, count: int = 1) -> None:
        for index in range(count):
            (out,) = self.session.infer(self.made.sample(index))
            level = self.session.odc_status.serving
            self.levels.append(level)
            np.testing.assert_array_equal(out, self.answers[level][index])

    def until_settled(self) -> None:
        """Record enough, wait for what follows, and run once more."""
        self.infer(RECORDS)
        assert self.session.wait_for_auto_compilation(60)
        self.infer(3)

    @property
    def status(self) -> Any:
        return self.session.odc_status


@pytest.fixture
def run(made: Made, answers: dict[Level, list[Array]], model: Path) -> Iterator[Any]:
    opened: list[Session] = []

    def begin(source: Any = None, **settings: str) -> Run:
        session = open_session(model if source is None else source, **settings)
        opened.append(session)
        session.prepare()  # which waits for what was made before; an inference would not
        return Run(session, made, answers)

    yield begin
    for session in opened:
        if session._switcher.auto is not None:
            session._switcher.auto.stop()
        session.close()


def test_all_is_well(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_worker(monkeypatch, made)
    first = run()
    first.until_settled()
    assert first.levels == [Level.ORIGINAL] * RECORDS + [Level.COMPILED] * 3
    status = first.status.to_dict()
    assert (status["phase"], status["reason"], status["fallbacks"], status["progress"]) == ("active", None, [], 1.0)
    assert not left_behind(cache)
    use_worker(monkeypatch, made, "kill@started")
    second = run()  # needs no process
    second.infer()
    assert second.levels == [Level.COMPILED]


@pytest.mark.parametrize("step", [step for step in Milestone if step not in (Milestone.INSTALLED, Milestone.MEASURED)])
def test_killed_at(step: Milestone, made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_worker(monkeypatch, made, f"kill@{step}")
    killed = run()
    killed.until_settled()
    assert not left_behind(cache)
    if step in (Milestone.COMMITTED, Milestone.DONE):  # what was made is there
        assert killed.status.serving is Level.COMPILED
        return
    assert killed.levels == [Level.ORIGINAL] * (RECORDS + 3)
    assert killed.status.phase is Phase.REJECTED
    assert killed.status.reason.startswith("the background process was ended by SIGKILL after the step")
    use_worker(monkeypatch, made)
    killed.session.retry_auto_compilation()
    killed.until_settled()
    assert killed.status.serving is Level.COMPILED
    assert killed.status.reason is None


FAULTS = [
    # Fault, what serves in the end, what the reason says, whether the next process knows.
    ("raise@quantizing", Level.ORIGINAL, "ended with code 1 after the step .*RuntimeError: a bug", False),
    ("raise@compiling", Level.ORIGINAL, "ended with code 1 after the step .*RuntimeError: a bug", False),
    ("inaccurate@quantized", Level.ORIGINAL, r"the quantised model failed: mpeir 0.5 \(at most 0.1 allowed\)", True),
    ("refuse@compiling", Level.QUANTIZED, "the plugin refuses the model: too odd", True),
    ("fail@compiling", Level.QUANTIZED, "the plugin failed: it raised ValueError", True),
    ("refuse@quantizing", Level.ORIGINAL, "refuses the model", True),
    ("full@model read", Level.ORIGINAL, "No space left on device", False),
    ("full@compiled", Level.ORIGINAL, "No space left on device", False),
    ("full@committing", Level.ORIGINAL, "No space left on device", False),
]


@pytest.mark.parametrize(("fault", "level", "reason", "remembered"), FAULTS, ids=[fault[0] for fault in FAULTS])
def test_fault(
    fault: str,
    level: Level,
    reason: str,
    remembered: bool,
    made: Made,
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    cache: Path,
) -> None:
    use_worker(monkeypatch, made, fault)
    faulty = run()
    faulty.until_settled()
    assert faulty.levels == [Level.ORIGINAL] * RECORDS + [level] * 3
    status = faulty.status
    assert status.phase is (Phase.REJECTED if level is Level.ORIGINAL else Phase.ACTIVE)
    assert re.search(reason, status.reason), status.reason
    assert not left_behind(cache)
    use_worker(monkeypatch, made)
    later = run()
    later.infer()
    later.session.wait_for_auto_compilation(60)
    later.infer()
    assert later.levels[-1] is (level if remembered else Level.COMPILED)
    if remembered:
        assert re.search(reason, later.status.reason)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["hang@compiling", "stuck@quantizing"])
def test_time_is_limited(fault: str, made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setattr("odc_mlir.runtime.auto.jobs._GRACE_SECONDS", 2.0)
    use_worker(monkeypatch, made, fault)
    slow = run(ODC_TIMEOUT_S="4")
    slow.until_settled()
    level = Level.QUANTIZED if fault.startswith("hang") else Level.ORIGINAL
    assert slow.levels[-1] is level
    assert "takes longer than 4 s" in slow.status.reason or "took longer than 4 s" in slow.status.reason
    assert not left_behind(cache)
    use_worker(monkeypatch, made)
    if level is Level.ORIGINAL:
        same = run(ODC_TIMEOUT_S="4")  # no second try within the same time
        same.infer()
        assert same.status.phase is Phase.REJECTED
        assert "took longer than 4 s" in same.status.reason
        more = run(ODC_TIMEOUT_S="60")
        more.until_settled()
        assert more.status.serving is Level.COMPILED


def test_memory_is_limited(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_worker(monkeypatch, made, "hog@quantizing")
    greedy = run(ODC_MEM_LIMIT_MB="800")
    greedy.until_settled()
    assert set(greedy.levels) == {Level.ORIGINAL}
    assert greedy.status.reason == "it needs more than 800 MB of memory"
    assert not left_behind(cache)
    use_worker(monkeypatch, made)
    same = run(ODC_MEM_LIMIT_MB="800")  # no second try within the same memory
    same.infer()
    assert same.status.phase is Phase.REJECTED
    more = run(ODC_MEM_LIMIT_MB="3000")
    more.until_settled()
    assert more.status.serving is Level.COMPILED


def test_a_process_that_cannot_start(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odc_mlir.runtime.auto.jobs.Supervisor.command", ("/nothing/here",))
    broken = run()
    broken.until_settled()
    assert set(broken.levels) == {Level.ORIGINAL}
    assert broken.status.reason == "the background process cannot be started: No such file or directory"


def test_a_cache_that_cannot_be_used(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    use_worker(monkeypatch, made)
    cache.write_text("not a folder")
    broken = run()
    broken.until_settled()
    assert set(broken.levels) == {Level.ORIGINAL}
    assert "the folder cannot be made" in broken.status.reason
    assert broken.status.phase is Phase.REJECTED


def compiled_file(cache: Path) -> Path:
    return next((cache / "compiled").glob("*/compiled.npu"))


@pytest.mark.parametrize("damage", ["flipped", "short", "gone", "no record", "record", "version"])
def test_a_damaged_result_is_made_anew(
    damage: str, made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    use_worker(monkeypatch, made)
    run().until_settled()
    file = compiled_file(cache)
    record = file.with_name("result.json")
    if damage == "flipped":
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 1
        file.write_bytes(data)
    elif damage == "short":
        file.write_bytes(file.read_bytes()[:100])
    elif damage == "gone":
        file.unlink()
    elif damage == "no record":
        record.unlink()
    elif damage == "record":
        record.write_text('{"schema_version": 1')
    else:
        version = f'"schema_version": {SCHEMA_VERSION}'
        assert version in record.read_text()
        record.write_text(record.read_text().replace(version, '"schema_version": 99', 1))
    again = run()
    again.infer()
    assert any("cached result is damaged" in item.reason for item in again.status.fallbacks)
    assert again.session.wait_for_auto_compilation(60)  # records of the process before are enough
    again.infer()
    assert again.levels == [Level.ORIGINAL, Level.COMPILED]
    assert not left_behind(cache)


def test_a_damaged_program_in_a_whole_result(made: Made, run: Any, tmp_path: Path) -> None:
    """Damaged before it was put away: the simulator refuses it, the host takes over."""
    members = dict(Package.from_path(made.compiled).files.members)
    name = next(name for name in members if name.endswith(".npu"))
    data = bytearray(members[name])
    data[-5] ^= 1
    bad = tmp_path / "bad.npu"
    bad.write_bytes(zip_bytes({**members, name: bytes(data)}))
    with pytest.MonkeyPatch.context() as patch:
        use_worker(patch, Made(made.model, made.quantized, bad, made.samples))
        broken = run()
        broken.until_settled()
    assert broken.levels[-1] is Level.QUANTIZED
    assert "cannot load the segment" in broken.status.reason


def test_records_that_are_damaged_begin_anew(
    made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    use_worker(monkeypatch, made)
    records = cache / "records" / content_digest(made.model) / "ranges.sqlite"
    records.parent.mkdir(parents=True)
    records.write_bytes(b"SQLite format 3\0" + bytes(range(256)) * 40)
    fresh = run()
    fresh.until_settled()
    assert fresh.status.serving is Level.COMPILED


def test_a_model_file_that_changes(made: Made, run: Any, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_worker(monkeypatch, made)
    changed = run()
    changed.infer(RECORDS - 1)
    data = bytearray(model.read_bytes())
    data[-1] ^= 1
    model.unlink()
    model.write_bytes(data)
    changed.until_settled()
    assert set(changed.levels) == {Level.ORIGINAL}
    assert "the model file has changed since it was loaded" in changed.status.reason
    model.write_bytes(made.model.read_bytes())  # and this is not held against the old model
    later = run()
    later.until_settled()
    assert later.status.serving is Level.COMPILED


def test_another_version_of_ours_compiles_anew(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odc_mlir.runtime.auto.jobs.__version__", "0.0.1")
    use_worker(monkeypatch, made)
    old = run()
    old.until_settled()
    monkeypatch.undo()
    monkeypatch.setenv("ODC_CACHE_DIR", str(Path(old.status.artefact).parents[1]))
    use_worker(monkeypatch, made)
    new = run()
    new.infer()
    assert new.levels == [Level.ORIGINAL]
    assert new.status.key != old.status.key


@pytest.mark.parametrize("kind", ["plain", "recording", "compiled here", "compiled before", "closed early", "failed"])
def test_a_closed_session_leaves_nothing_to_the_cycle_collector(
    kind: str, made: Made, model: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use_worker(monkeypatch, made, "kill@compiling" if kind == "failed" else "")
    settings = {} if kind == "plain" else SETTINGS

    def use() -> None:
        with Session(model, settings=settings) as session:
            for index in range(1 if kind in ("plain", "recording") else RECORDS):
                session.infer(made.sample(index))
            if settings and kind != "closed early":
                assert session.wait_for_auto_compilation(60)
            session.infer(made.sample(0))
            compiled = session.odc_status.serving is Level.COMPILED
            assert compiled == kind.startswith("compiled")

    use()  # imports modules, and makes what the next one finds
    if kind != "compiled before":
        shutil.rmtree(cache, ignore_errors=True)
    assert left_to_the_collector(use) == []


def compile_processes(cache: Path) -> list[int]:
    """Compile processes at work for this cache, by the lock that they keep open."""

    def opened(process: Path) -> Iterator[str]:
        with suppress(OSError):  # it ends
            for file in (process / "fd").iterdir():
                with suppress(OSError):  # it is closed meanwhile
                    yield os.readlink(file)

    others = (process for process in Path("/proc").glob("[0-9]*") if int(process.name) != os.getpid())
    return [int(process.name) for process in others if any(str(cache) in file for file in opened(process))]


@pytest.mark.parametrize("fault", ["hang@compiling", "stuck@quantizing"])
def test_a_process_ends_with_the_last_session_that_wants_its_result(
    fault: str, made: Made, run: Any, monkeypatch: pytest.MonkeyPatch, cache: Path
) -> None:
    use_worker(monkeypatch, made, fault)
    monkeypatch.setattr(controller, "RETRY_SECONDS", 1.0)
    first, second = run(), run()
    first.infer(RECORDS)

    def one_works() -> bool:
        first.infer()  # as applications do: a process that could not start for want of memory is tried again
        return len(compile_processes(cache)) == 1

    assert happens(one_works, 180.0), (first.status.reason, compile_processes(cache), first.status)
    second.infer(RECORDS)
    assert happens(lambda: "another compile process" in (second.status.reason or ""))
    (working,) = compile_processes(cache)
    first.session.close()
    assert not happens(lambda: working not in compile_processes(cache), 2.0)
    assert happens(lambda: compile_processes(cache) == [working])
    second.session.close()
    assert happens(lambda: compile_processes(cache) == [])
    use_worker(monkeypatch, made)
    later = run()
    later.until_settled()  # nothing was held against it, and no place or lock is lost
    assert later.levels[-1] is Level.COMPILED
    assert not left_behind(cache)


def test_a_process_ends_with_an_application_that_is_killed(
    made: Made, model: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path
) -> None:
    for key, value in SETTINGS.items():
        monkeypatch.setenv(key, value)
    app = App(made, model, tmp_path)
    app.command.append("hang@quantizing")
    with app.start() as process:
        has_begun = happens(lambda: bool(set(compile_processes(cache)) - {process.pid}))
        process.kill()
    assert has_begun
    assert happens(lambda: compile_processes(cache) == [])


def test_a_device_that_computes_something_else(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_worker(monkeypatch, made)
    works = SimulatorProgram.run

    def wrong(self: SimulatorProgram, inputs: Any, **options: Any) -> Any:
        result = works(self, inputs, **options)
        first = result.outputs[0].copy()
        first.reshape(-1)[0] ^= 1
        return type(result)((first, *result.outputs[1:]), result.counters)

    monkeypatch.setattr(SimulatorProgram, "run", wrong)
    lying = run()
    lying.until_settled()
    assert lying.levels[-1] is Level.QUANTIZED
    assert "device and host compute different values" in lying.status.reason
    later = run()  # proven again in each process, on the first input
    later.infer()
    assert later.levels == [Level.QUANTIZED]


def test_nobody_waits_for_the_simulator(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values are those of host kernels, which are the same, and the cycles are told."""
    use_worker(monkeypatch, made)
    quick = run()
    quick.until_settled()

    def fail(self: SimulatorProgram, inputs: Any, **options: Any) -> Any:
        raise SimulationError("it is not to be run any more")

    monkeypatch.setattr(SimulatorProgram, "run", fail)
    quick.infer(2)
    assert quick.levels[-1] is Level.COMPILED
    assert quick.status.fallbacks == []
    assert quick.status.cycles > 1000


@pytest.fixture(scope="module")
def native(made: Made, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Native code of the quantised model, of another model, and damaged."""
    pytest.importorskip("llvmlite")
    folder = tmp_path_factory.mktemp("native")
    found = {}
    for name, source in (("right", made.quantized), ("wrong", made.model)):
        found[name] = folder / f"{name}.cpu"
        members = dict(api.compile(source, target="cpu").files.members)
        found[name].write_bytes(zip_bytes(members))
    segment = next(name for name in members if name.endswith(".cpu"))
    found["damaged"] = folder / "damaged.cpu"
    found["damaged"].write_bytes(zip_bytes({**members, segment: members[segment][:-1]}))
    return found


@pytest.mark.parametrize(
    ("twin", "reason"),
    [
        ("right", "is simulated on this machine: native code computes the same values"),
        ("wrong", "native code and simulator compute different values"),
        ("damaged", "its digest is not the one in"),
        (None, "host kernels run in place of the simulator: .*there is no native twin"),
    ],
)
def test_native_code_stands_in_for_the_simulator(
    twin: str | None, reason: str, made: Made, native: dict[str, Path], run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it gives the same bits; the answers are those of host kernels all the time."""
    if twin is not None:
        monkeypatch.setenv("ODC_TEST_TWIN", str(native[twin]))
    use_worker(monkeypatch, made)
    served = run()
    served.until_settled()
    served.infer(2)
    assert served.levels[-1] is Level.COMPILED
    assert served.status.cycles > 1000
    kinds = kinds_that_run(monkeypatch)
    served.infer()
    assert kinds == [PlanExecutor if twin == "right" else HostExecutor]
    told = [*served.status.notes, *(item.reason for item in served.status.fallbacks)]
    assert any(re.search(reason, text) for text in told), told
    assert twin != "right" or not served.status.fallbacks


def test_a_device_that_fails_later(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatorDevice, "simulated", False)  # as if it were hardware
    use_worker(monkeypatch, made)
    failing = run()
    failing.until_settled()

    def fail(self: SimulatorProgram, inputs: Any, **options: Any) -> Any:
        raise SimulationError("the device is gone")

    monkeypatch.setattr(SimulatorProgram, "run", fail)
    failing.infer(2)  # by host kernels in place of the segment: the same numbers
    assert any("the device is gone" in item.reason for item in failing.status.fallbacks)


def test_what_was_made_fails_as_a_whole(made: Made, run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    use_worker(monkeypatch, made)
    failing = run()
    failing.until_settled()
    fail_results(monkeypatch, "broken")
    failing.infer(2)
    assert failing.levels[-2:] == [Level.ORIGINAL] * 2
    assert failing.status.phase is Phase.REJECTED
    assert [item.level for item in failing.status.fallbacks] == ["compiled", "quantized"]


def test_a_strict_session_raises_what_fails(made: Made, model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    use_worker(monkeypatch, made)
    with Session(model, settings=SETTINGS, strict=True) as session:
        for index in range(RECORDS):
            session.infer(made.sample(index))
        assert session.wait_for_auto_compilation(60)
        fail_results(monkeypatch, "broken")
        with pytest.raises(OdcError, match="broken"):
            session.infer(made.sample(0))


APP = """
import sys
import numpy as np
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.jobs import Supervisor

model, samples, out, *command = sys.argv[1:]
Supervisor.command = (sys.executable, *command)
inputs = np.load(samples)
with Session(model) as session:
    for round in range(40):
        for index in range(4):
            (answer,) = session.infer([inputs[index : index + 1]])
            print(session.odc_status.serving, index, answer.tobytes().hex(), flush=True)
        session.wait_for_auto_compilation(60)
        if round >= 2 and session.odc_status.serving == "compiled":
            break
"""


class App:
    """The application as a process of its own.

    It runs until compiled code has answered: several that begin together may record the same input first, of which more
    than the usual number of records is needed.
    """

    def __init__(self, made: Made, model: Path, folder: Path) -> None:
        self.samples = folder / "samples.npy"
        np.save(self.samples, made.samples)
        self.command = [str(FAULTY), str(made.quantized), str(made.compiled)]
        self.model = model

    def start(self) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", APP, str(self.model), str(self.samples), "-", *self.command],
            stdout=subprocess.PIPE,
            text=True,
        )


def check_output(text: str, answers: dict[Level, list[Array]]) -> list[Level]:
    """The levels of what a process has answered, all of it right."""
    levels = []
    for line in text.splitlines():
        if line.count(" ") == 2 and len(line.split()[2]) == 80:  # the last line of a killed process may be cut off
            name, index, answer = line.split()
            assert answer == answers[Level(name)][int(index)].tobytes().hex()
            levels.append(Level(name))
    return levels


@pytest.fixture
def app(made: Made, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    for key, value in SETTINGS.items():
        monkeypatch.setenv(key, value)
    return App(made, model, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("count", [2, 8])
def test_several_processes(count: int, app: App, answers: dict[Level, list[Array]], cache: Path) -> None:
    started = [app.start() for _ in range(count)]
    outputs = [process.communicate(timeout=100)[0] for process in started]
    assert [process.returncode for process in started] == [0] * count
    for text in outputs:
        levels = check_output(text, answers)
        assert len(levels) >= 12
        assert levels[-1] is Level.COMPILED
    assert not left_behind(cache)
    assert [entry.path.parent.name for entry in entries(cache)].count("compiled") == 1


@pytest.mark.slow
def test_applications_that_are_killed(app: App, answers: dict[Level, list[Array]], cache: Path) -> None:
    """At six moments spread over what a run takes; the last one runs through."""
    for moment in range(6):
        process = app.start()
        time.sleep(0.1 + 0.3 * moment)
        process.kill()
        text, _ = process.communicate()
        check_output(text, answers)
    process = app.start()
    text, _ = process.communicate(timeout=60)
    levels = check_output(text, answers)
    assert len(levels) >= 12
    assert levels[-1] is Level.COMPILED
    assert not left_behind(cache)
