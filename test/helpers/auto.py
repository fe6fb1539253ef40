"""Compiling on the device in tests: a small model with what is made of it, and sessions that begin to do so."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from odc_mlir.errors import SimulationError
from odc_mlir.formats.package import zip_bytes
from odc_mlir.runtime import Session, api
from odc_mlir.runtime.auto.aim import is_quantized
from odc_mlir.runtime.auto.jobs import Supervisor
from odc_mlir.runtime.execution.executor import Executor

Array = np.ndarray[Any, Any]

RECORDS = 8
SETTINGS = {"OnDeviceCompilation": "1", "ODC_RECORDS": str(RECORDS), "ODC_TARGET": "npu-256"}
FAULTY = Path(__file__).with_name("faulty_worker.py")


@dataclass(frozen=True)
class Made:
    """``model`` is a float model; ``quantized`` and ``compiled`` are files made of it; ``samples`` are inputs."""

    model: Path
    quantized: Path
    compiled: Path
    samples: Array

    def sample(self, index: int) -> list[Array]:
        return [self.samples[index : index + 1]]

    def answers(self, path: Path) -> list[Array]:
        """What the model at ``path`` answers to each sample, by host kernels."""
        executor = api.open_executor(path, backend="host")
        return [executor.run(self.sample(index))[0] for index in range(len(self.samples))]


def make(test_data: Path, folder: Path) -> Made:
    """Quantise and compile the smallest digits model."""
    digits = test_data / "models" / "digits"
    samples = np.load(digits / "calibration.npz")["in_0"][:16]
    quantized = api.quantize(digits / "digits_cnn.circle", calibration=[[x[None]] for x in samples], help=False)
    quantized.save(folder / "quantized.circle")
    package = api.compile(quantized.to_circle())
    (folder / "compiled.npu").write_bytes(zip_bytes(package.files.members))
    model = folder / "model.circle"
    model.write_bytes((digits / "digits_cnn.circle").read_bytes())
    return Made(model, folder / "quantized.circle", folder / "compiled.npu", samples)


def use_worker(monkeypatch: pytest.MonkeyPatch, made: Made, fault: str = "") -> None:
    """Let background processes be quick, with a fault."""
    command = (sys.executable, str(FAULTY), str(made.quantized), str(made.compiled), *([fault] if fault else []))
    monkeypatch.setattr(Supervisor, "command", command)


def fail_results(monkeypatch: pytest.MonkeyPatch, message: str) -> None:
    """Let executors of quantised models fail from now on."""
    run = Executor.run

    def fail(self: Executor, *arguments: Any, **options: Any) -> Any:
        if is_quantized(self.graph):
            raise SimulationError(message)
        return run(self, *arguments, **options)

    monkeypatch.setattr(Executor, "run", fail)


def kinds_that_run(monkeypatch: pytest.MonkeyPatch) -> list[type[Executor]]:
    """Classes of the executors that run from now on."""
    run, kinds = Executor.run, []

    def noted(self: Executor, *arguments: Any, **options: Any) -> Any:
        kinds.append(type(self))
        return run(self, *arguments, **options)

    monkeypatch.setattr(Executor, "run", noted)
    return kinds


def open_session(source: Any, **settings: str) -> Session:
    return Session(source, settings={**SETTINGS, **settings})


def left_behind(cache: Path) -> list[str]:
    """Names of files and folders that are neither results, nor locks, nor records, nor models."""
    found = [entry.name for entry in (cache / "compiled").iterdir()] if (cache / "compiled").is_dir() else []
    return [name for name in found if name.startswith(".")]


def left_to_the_collector(use: Callable[[], None]) -> list[str]:
    """Types of our objects that the cycle collector finds after ``use``: memory that an application keeps for long."""

    def settle() -> None:
        for thread in threading.enumerate():
            if thread is not threading.current_thread():
                thread.join(10)
        gc.collect()

    settle()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        use()
        settle()
        return [type(item).__qualname__ for item in gc.garbage if type(item).__module__.startswith("odc_mlir")]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()
