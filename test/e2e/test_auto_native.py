"""Compiling on the device for the processor when things go wrong: each inference is answered, and there is a reason.

The faults are those of test_auto_faults.py; most run with ``--soak``.
"""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.auto import RECORDS, Made, left_behind, left_to_the_collector, open_session, use_worker
from odc_mlir.codegen import machine
from odc_mlir.formats.package import zip_bytes
from odc_mlir.runtime import Session, api
from odc_mlir.runtime.auto.aim import aim_at
from odc_mlir.runtime.auto.jobs import Milestone
from odc_mlir.runtime.auto.settings import Level, Phase

Array = np.ndarray[Any, Any]

pytestmark = pytest.mark.xdist_group("auto")
THE_MODEL = (Level.ORIGINAL, Level.DIRECT)
soak = pytest.mark.soak


@pytest.fixture(scope="module")
def made(test_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """The smallest digits model, with ``direct.cpu`` beside ``compiled.cpu``."""
    folder, digits = tmp_path_factory.mktemp("made"), test_data / "models" / "digits"
    samples = np.load(digits / "calibration.npz")["in_0"][:16]
    model = Path(shutil.copy(digits / "digits_cnn.circle", folder / "model.circle"))
    quantized = api.quantize(model, calibration=[[x[None]] for x in samples], help=False)
    quantized.save(folder / "quantized.circle")
    for name, source in (("compiled", quantized.to_circle()), ("direct", model)):
        (folder / f"{name}.cpu").write_bytes(zip_bytes(api.compile(source, target="cpu").files.members))
    return Made(model, folder / "quantized.circle", folder / "compiled.cpu", samples)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


class Run:
    """A session whose every answer is compared with what it must be."""

    def __init__(self, session: Session, made: Made) -> None:
        self.session, self.made = session, made
        self.plain, self.coded = made.answers(made.model), made.answers(made.quantized)
        self.levels: list[Level] = []

    def infer(self, count: int = 1) -> None:
        for index in range(count):
            (out,) = self.session.infer(self.made.sample(index))
            level = self.session.odc_status.serving
            self.levels.append(level)
            if level is Level.DIRECT:
                np.testing.assert_allclose(out, self.plain[index], rtol=1e-4, atol=1e-6)
            else:
                expected = self.plain if level is Level.ORIGINAL else self.coded
                np.testing.assert_allclose(out, expected[index], rtol=0, atol=1e-6)

    def until_settled(self) -> None:
        self.infer(RECORDS)
        assert self.session.wait_for_auto_compilation(60)
        self.infer(3)
        assert self.session.wait_for_auto_compilation(60)
        self.infer(3)

    @property
    def status(self) -> Any:
        return self.session.odc_status


@pytest.fixture
def run(made: Made, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    opened: list[Session] = []
    monkeypatch.setenv("ODC_TEST_DIRECT", str(made.compiled.with_name("direct.cpu")))

    def begin(fault: str = "", of: Made = made, **settings: str) -> Run:
        use_worker(monkeypatch, of, fault)
        session = open_session(of.model, ODC_TARGET="auto", **settings)
        opened.append(session)
        session.prepare()
        return Run(session, made)

    yield begin
    for session in opened:
        if session._switcher.auto is not None:
            session._switcher.auto.stop()
        session.close()


def test_all_is_well(run: Any, cache: Path) -> None:
    first = run()
    first.until_settled()
    assert set(first.levels[:RECORDS]) == {Level.ORIGINAL}
    assert first.levels[-1] is Level.COMPILED
    status = first.status.to_dict()
    assert (status["phase"], status["reason"], status["target"], status["scheme"]) == ("active", None, "cpu", "int8")
    assert status["latency_us"] == {"original": 3.0, "direct": 2.0, "compiled": 1.0}
    assert not left_behind(cache)
    second = run("kill@started")  # needs no process
    second.infer(2)
    assert second.levels == [Level.COMPILED] * 2


@pytest.mark.parametrize("fresh", [True, False])
def test_a_closed_session_leaves_nothing_to_the_cycle_collector(
    fresh: bool, made: Made, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ODC_TEST_DIRECT", str(made.compiled.with_name("direct.cpu")))
    use_worker(monkeypatch, made)

    def use() -> None:
        with open_session(made.model, ODC_TARGET="auto") as session:
            for index in range(RECORDS + 2):
                session.infer(made.sample(index))
                assert session.wait_for_auto_compilation(60)
            assert session.odc_status.serving is Level.COMPILED

    use()  # imports modules, and makes what the next one finds
    if fresh:
        shutil.rmtree(cache)
    assert left_to_the_collector(use) == []


FAULTS = [
    ("kill@compiling", THE_MODEL[:1], "ended by SIGKILL after the step"),
    ("raise@compiling", THE_MODEL[:1], "RuntimeError: a bug"),
    ("refuse@compiling", (Level.QUANTIZED,), "the plugin refuses the model: too odd"),
    ("inaccurate@quantized", (Level.DIRECT,), r"the quantised model failed: mpeir 0.5"),
    ("slower@compiled", (Level.ORIGINAL,), r"it takes 9.0 us here, the original model 3.0 us"),
    ("full@committing", THE_MODEL[:1], "No space left on device"),
    ("raise@quantizing", (Level.DIRECT,), "RuntimeError: a bug"),
]


@pytest.mark.parametrize(
    ("fault", "levels", "reason"),
    [pytest.param(*fault, id=fault[0], marks=() if fault[0] in ("kill@compiling",) else soak) for fault in FAULTS],
)
def test_fault(fault: str, levels: tuple[Level, ...], reason: str, run: Any, cache: Path) -> None:
    faulty = run(fault)
    faulty.until_settled()
    assert faulty.levels[-1] in levels
    told = [faulty.status.reason or "", *(item.reason for item in faulty.status.fallbacks)]
    assert any(re.search(reason, text) for text in told), told
    assert faulty.status.phase is (Phase.ACTIVE if faulty.levels[-1] is not Level.ORIGINAL else Phase.REJECTED)
    assert not left_behind(cache)


@soak
@pytest.mark.parametrize("step", [step for step in Milestone if step is not Milestone.INSTALLED])
def test_killed_at(step: Milestone, run: Any, cache: Path) -> None:
    killed = run(f"kill@{step}")
    killed.until_settled()
    assert not left_behind(cache)
    again = run()
    again.until_settled()
    assert again.levels[-1] in (Level.COMPILED, *THE_MODEL)


@soak
def test_a_code_generator_that_hangs(run: Any, cache: Path) -> None:
    slow = run("hang@compiling", ODC_TIMEOUT_S="8")
    slow.until_settled()
    assert slow.levels[-1] in (Level.QUANTIZED, Level.ORIGINAL)
    assert any("longer than 8 s" in item.reason for item in slow.status.fallbacks)
    assert not left_behind(cache)


@soak
@pytest.mark.parametrize("name", ["compiled.cpu", "direct.cpu"])
def test_damaged_code_in_a_whole_result(
    name: str, made: Made, run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    members = dict(api.load_package(made.compiled.with_name(name)).files.members)
    segment = next(member for member in members if member.endswith(".cpu"))
    data = bytearray(members[segment])
    data[len(data) // 2] ^= 1
    bad = tmp_path / name
    bad.write_bytes(zip_bytes({**members, segment: bytes(data)}))
    of = made
    if name == "direct.cpu":
        monkeypatch.setenv("ODC_TEST_DIRECT", str(bad))
    else:
        of = Made(made.model, made.quantized, bad, made.samples)
    broken = run(of=of)
    broken.until_settled()
    assert broken.levels[-1] is (Level.COMPILED if name == "direct.cpu" else Level.DIRECT)
    reasons = [broken.status.reason or "", *(item.reason for item in broken.status.fallbacks)]
    assert any("its digest is not the one in" in reason for reason in reasons)


def test_other_features_are_another_target(monkeypatch: pytest.MonkeyPatch) -> None:
    before = aim_at("cpu").facts
    assert aim_at("cpu").facts == before
    monkeypatch.setattr(machine, "known_features", lambda: frozenset({"sse2"}))
    assert aim_at("cpu").facts != before


def test_without_the_extra_there_is_nothing_to_compile_with(
    made: Made, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """And everything else works: the model answers, packages of native code run on host kernels, with the reason."""
    monkeypatch.setitem(sys.modules, "llvmlite", None)
    with open_session(made.model, ODC_TARGET="auto") as session:
        (out,) = session.infer(made.sample(0))
        np.testing.assert_array_equal(out, made.answers(made.model)[0])
        status = session.odc_status
        assert (status.phase, status.serving) == (Phase.REJECTED, Level.ORIGINAL)
        assert "pip install 'odc-mlir[native]'" in (status.reason or "")
    with Session(api.load_package(made.compiled, trust_code=True)) as session:
        (out,) = session.infer(made.sample(0))
        np.testing.assert_array_equal(out, made.answers(made.quantized)[0])
        assert any("llvmlite" in item.reason for item in session.odc_status.fallbacks)
