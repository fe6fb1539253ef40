"""Sessions that switch to IREE, and those that cannot: float answers go on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import odc_mlir
from odc_iree import compiler, target
from odc_mlir import ops
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.ops.spec import Node, TensorInfo
from odc_mlir.plugins.target import operator_model
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.settings import AutoStatus, Level
from odc_mlir.runtime.devices import attached

PLUGIN = Path(__file__).parents[1]
SHAPE = (1, 64, 64, 32)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ODC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("ODC_PLUGIN_TIMEOUT_S", "120")
    (tmp_path / "cache").mkdir()
    return tmp_path / "cache"


@pytest.fixture
def model(tmp_path: Path, cache: Path) -> Path:
    """Return a model that is faster in IREE than in numpy: a chain that IREE computes in one loop."""
    x, y = (TensorInfo(name, "float32", SHAPE) for name in "xy")
    chain = operator_model(Node(ops.get("HARD_SWISH"), (x,), (y,)))
    (graph,) = chain.subgraphs
    for number in range(1, 12):
        graph.tensors.append(replace(graph.tensors[1], name=f"t{number + 1}"))
        graph.operators.append(replace(graph.operators[0], inputs=(number,), outputs=(number + 1,)))
    graph.outputs = (12,)
    path = tmp_path / "net.circle"
    path.write_bytes(write_model(chain))
    return path


def sample(seed: int = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=SHAPE).astype(np.float32)


def answers(model: Path, *, before: Callable[[], None] = lambda: None) -> AutoStatus:
    """Run a session until nothing works in the background. All its answers must be those of the model."""
    with Session(model, settings={"OnDeviceCompilation": "1", "ODC_TARGET": "iree", "ODC_RECORDS": "2"}) as session:
        for turn in range(5):
            (found,), (expected,) = session.infer([sample(turn)]), odc_mlir.run(model, [sample(turn)])
            np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * np.abs(expected).max())
            before()
            assert session.wait_for_auto_compilation(300)
        return session.odc_status


def test_a_session_that_names_it_switches_to_it_and_no_other(model: Path) -> None:
    status = answers(model)
    assert status.serving is Level.DIRECT, status.fallbacks
    assert "iree" not in attached()[0]


@pytest.mark.parametrize(
    ("victim", "reason"),
    [("iree-compile", "IREE's compiler fails"), ("odc_mlir.plugins.worker", "was ended by SIGKILL")],
)
def test_a_process_that_is_killed_leaves_the_model(victim: str, reason: str, model: Path) -> None:
    killed: list[int] = []

    def kill() -> None:
        deadline = time.monotonic() + 60
        while not killed and time.monotonic() < deadline:
            for pid in compiling(victim):
                os.kill(pid, signal.SIGKILL)
                killed.append(pid)
            time.sleep(0.005)

    status = answers(model, before=kill)
    assert killed
    assert status.serving is Level.ORIGINAL
    assert any(reason in item.reason for item in status.fallbacks), status


def compiling(victim: str) -> Iterator[int]:
    """Yield processes that IREE's compiler runs in, or below, if their command line has ``victim``."""
    lines, parents = {}, {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(folder.name)] = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            lines[int(folder.name)] = (folder / "cmdline").read_text(errors="replace")
        except OSError:
            continue
    for pid in [pid for pid, line in lines.items() if "iree-compile" in line.split("\0")[0]]:
        chain = [pid]
        while chain[-1] in parents:
            chain.append(parents[chain[-1]])
        if os.getpid() in chain:
            yield from (place for place in chain[: chain.index(os.getpid())] if victim in lines.get(place, ""))


def test_a_missing_library_leaves_the_model(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = tmp_path / "site"
    shutil.copytree(PLUGIN / "odc_iree", site / "odc_iree")
    (site / "iree").mkdir()
    (site / "iree" / "__init__.py").write_text("raise ImportError('libIREECompiler.so: no such file')\n")
    facts = site / "odc_iree-0.1.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: odc-iree\nVersion: 0.1\n")
    names = {"targets": "iree = odc_iree.target:describe", "devices": "iree = odc_iree.device:open_device"}
    names["codegen"] = "iree-gen = odc_iree.compiler:create_codegen"
    (facts / "entry_points.txt").write_text("".join(f"[odc_mlir.{group}]\n{line}\n" for group, line in names.items()))
    monkeypatch.setenv("ODC_PLUGIN_PATH", str(site))
    status = answers(model)
    assert status.serving is Level.ORIGINAL
    assert "libIREECompiler.so: no such file" in repr((status.fallbacks, status.notes, status.reason))


def test_a_result_of_another_version_is_not_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = odc_mlir.compile(model, target="iree")
    monkeypatch.setattr(compiler, "facts", lambda: ("iree-base-compiler 1", *target.facts()[1:]))
    executor = package.executor()
    (reason,) = executor.fallbacks.values()
    assert "there, iree-base-compiler 1 here" in reason
    np.testing.assert_array_equal(executor.run([sample()])[0], odc_mlir.run(model, [sample()])[0])
