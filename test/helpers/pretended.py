"""Sessions that compile on the device with a process that is pretended, so that what they decide can be told."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import numpy as np

from helpers.models import ModelBuilder, add_model, model_bytes
from odc_mlir.formats.circle.model import Model
from odc_mlir.runtime import Session
from odc_mlir.runtime.auto.artefacts import Artefacts, JobResult
from odc_mlir.runtime.auto.jobs import Ending, Job, Milestone
from odc_mlir.runtime.auto.settings import DEFAULTS, AutoSettings, Level, Phase, read_settings

Array = np.ndarray[Any, Any]
SETTINGS = {"OnDeviceCompilation": "1", "ODC_RECORDS": "2", "ODC_TARGET": "npu-256"}
SHAPE = (1, 4)
SHAPES = (SHAPE, SHAPE)


def subtract_model(signature: tuple[int, ...] | None = None) -> Model:
    """What stands for the quantised form of ``a + b + a``: another function, so that answers tell who gave them."""
    builder = ModelBuilder()
    a, b, out = (builder.tensor(name, SHAPE, signature=signature) for name in ("a", "b", "out"))
    builder.operator("SUB", [a, b], [out])
    return builder.finish([a, b], [out])


def settings_in(folder: Path, **changes: Any) -> AutoSettings:
    """The default settings of compile processes, with their results in ``folder``."""
    found = read_settings(lambda key, _default: DEFAULTS[key], lambda key, _default: DEFAULTS[key] == "1")
    return replace(found, **{"folder": folder, **changes})


class Pretended:
    """A supervisor whose process is done at once, or when it is told so; ``jobs`` are those it was given."""

    jobs: list[Job] = []
    waiting: list[Pretended] = []
    hold = False
    result = JobResult("quantized", scheme="int8")
    model = model_bytes(subtract_model((-1, 4)))

    def __init__(self, job: Job, tell: Callable[[dict[str, Any]], None], ended: Callable[[Ending], None]) -> None:
        self.job, self._tell, self._ended = job, tell, ended
        self.done = False
        Pretended.jobs.append(job)
        if Pretended.hold:
            Pretended.waiting.append(self)
        else:
            self.finish()

    def finish(self) -> None:
        for step in (Milestone.STARTED, Milestone.QUANTIZING, Milestone.QUANTIZED, Milestone.COMPILING, Milestone.DONE):
            if not self.job.quantized or step not in (Milestone.QUANTIZING, Milestone.QUANTIZED):
                self._tell({"step": step})
        artefacts = Artefacts(self.job.settings.folder)
        work = artefacts.new_folder(self.job.key)
        if Pretended.result.level is not None:
            (work / "model.circle").write_bytes(Pretended.model)
        artefacts.commit(self.job.key, work, Pretended.result)
        self._ended(Ending(None))
        self.done = True

    @property
    def is_over(self) -> bool:
        return self.done

    def release(self) -> None:
        pass

    def join(self, seconds: float | None = None) -> bool:
        return self.done


class AtOnce:
    """Work in the background that is done before anyone can look."""

    def __init__(self, name: str, most: int = 0) -> None:
        self.hurry = Event()

    def begin(self) -> None:
        pass

    def submit(self, task: Callable[[], None], *, always: bool = False) -> bool:
        task()
        return True

    def wait(self, seconds: float | None) -> bool:
        return True


def session_of(model: Model | None = None, **settings: str) -> Session:
    found = add_model(SHAPE, signature=(-1, 4)) if model is None else model
    return Session(model_bytes(found), settings={**SETTINGS, **settings})


def served(session: Session, rows: int = 1) -> Level:
    """By what one inference is answered, as its answer tells."""
    a, b = np.full((rows, 4), 5, np.float32), np.full((rows, 4), 3, np.float32)
    (out,) = session.infer([a, b])
    assert out.shape == (rows, 4)
    levels = {13.0: Level.ORIGINAL, 2.0: Level.QUANTIZED}
    assert session.odc_status.serving is not None
    return levels[float(out[0, 0])]


def phases(session: Session) -> Phase:
    return session.odc_status.phase
