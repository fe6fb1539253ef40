"""Sessions that switch to OpenVINO, and those that cannot."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from networks import sample
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.settings import AutoStatus, Level, Phase


@pytest.fixture(autouse=True)
def results(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep results apart for each test; judgements come from the common cache."""
    (tmp_path / "cache").mkdir()
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))


def answers(
    model: Path, target: str, *, before: Callable[[Session], None] = lambda _: None, tolerance: float = 1e-4
) -> AutoStatus:
    """Run a session until nothing works in the background. All its answers must be those of the model."""
    settings = {"OnDeviceCompilation": "1", "ODC_TARGET": target, "ODC_RECORDS": "3"}
    with Session(model, settings=settings) as session:
        for turn in range(8):
            (found,) = session.infer([sample(turn)])
            (expected,) = odc_mlir.run(model, [sample(turn)])
            np.testing.assert_allclose(found, expected, rtol=0, atol=tolerance * np.abs(expected).max())
            before(session)
            assert session.wait_for_auto_compilation(300)
        return session.odc_status


@pytest.mark.parametrize("target", ["openvino", "openvino-cpu"])
def test_a_float_model_switches_to_openvino(target: str, model: Path) -> None:
    status = answers(model, target)
    assert (status.target, status.phase, status.serving) == (target, Phase.ACTIVE, Level.DIRECT)
    assert status.reason == f"{target} runs real numbers: nothing is quantised"
    assert status.latency_us["direct"] < status.latency_us["original"]


def test_auto_finds_it_and_compares_it_with_native_code(model: Path) -> None:
    status = answers(model, "auto", tolerance=0.05)  # native code may be of 8 bits
    assert status.serving in (Level.DIRECT, Level.COMPILED, Level.QUANTIZED)
    if status.target == "openvino-cpu":
        assert status.latency_us["direct"] < status.latency_us["cpu-gen"]
    else:
        assert any("openvino-cpu is not compiled for: it takes " in note for note in status.notes)


def test_auto_switches_to_it_without_native_code(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odc_mlir.runtime.devices.native.has_code_generator", lambda: False)
    status = answers(model, "auto")
    assert (status.target, status.phase, status.serving) == ("openvino-cpu", Phase.ACTIVE, Level.DIRECT)


def test_a_missing_device_leaves_the_model(model: Path) -> None:
    keys = set()
    for target in ("openvino-npu", "openvino-npu-f16"):
        status = answers(model, target)
        assert (status.phase, status.serving) == (Phase.REJECTED, Level.ORIGINAL)
        assert status.reason is not None
        assert status.reason.startswith(f"{target} runs real numbers: nothing is quantised; ")
        assert "OpenVINO finds no device NPU here" in status.reason
        keys.add(status.key)
    assert len(keys) == 2


def test_an_unknown_machine_leaves_the_model(model: Path) -> None:
    status = answers(model, "openvino-gpu.1")
    assert (status.phase, status.serving) == (Phase.REJECTED, Level.ORIGINAL)
    assert "unknown target 'openvino-gpu.1'" in (status.reason or "")


def test_a_plugin_that_is_killed_leaves_the_model(model: Path) -> None:
    killed: list[int] = []

    def kill(_: Session) -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            for pid in plugin_processes():
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.01)

    status = answers(model, "openvino", before=kill)
    assert killed
    assert status.serving is Level.ORIGINAL
    assert "was ended by SIGKILL" in (status.reason or ""), status


def plugin_processes() -> list[int]:
    """Return the processes below this one that have loaded the compiler of the plugin."""
    found, parents = [], {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            if "libopenvino_tensorflow_lite_frontend" in (folder / "maps").read_text():
                found.append(int(folder.name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid() and os.getpid() in ancestors(pid, parents)]


def ancestors(pid: int, parents: dict[int, int]) -> list[int]:
    """Return the parents of a process, nearest first."""
    found = []
    while pid := parents.get(pid, 0):
        found.append(pid)
    return found


def test_a_result_of_another_version_is_not_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = odc_mlir.compile(model, target="openvino")
    from odc_openvino import machines

    monkeypatch.setattr(machines.openvino, "get_version", lambda: "2020.1")
    executor = package.executor()
    (reason,) = executor.fallbacks.values()
    assert "there, OpenVINO 2020.1 here" in reason
    np.testing.assert_array_equal(executor.run([sample()])[0], odc_mlir.run(model, [sample()])[0])


def test_a_forked_process_uses_the_session(model: Path) -> None:
    executor = odc_mlir.compile(model, target="openvino").executor()
    (expected,) = executor.run([sample()])
    child = os.fork()
    if child == 0:
        signal.alarm(60)
        same = np.array_equal(executor.run([sample()])[0], expected)
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
