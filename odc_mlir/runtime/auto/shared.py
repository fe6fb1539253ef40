"""What the parts of compiling on the device share for one session."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition, RLock
from typing import Any

from odc_mlir.calibration.recorded import Shapes
from odc_mlir.runtime.auto.aim import Aim
from odc_mlir.runtime.auto.artefacts import Artefacts
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.auto.job import Job
from odc_mlir.runtime.auto.original import ExecutorOptions, Original
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.settings import AutoSettings
from odc_mlir.runtime.auto.specialization import Specialization
from odc_mlir.runtime.auto.supervisor import Ending, Supervisor


@dataclass
class Shared:
    """``aim`` is what is compiled for, None where nothing is. ``specializations`` are by input shapes, longest unused
    first; ``lock`` guards them, ``changed`` is told whenever something has ended in the background."""

    settings: AutoSettings
    aim: Aim | None
    original: Original
    options: ExecutorOptions
    artefacts: Artefacts
    recorder: RunRecorder
    background: Background
    closed: bool = False
    specializations: OrderedDict[Shapes, Specialization] = field(default_factory=OrderedDict)
    supervisors: list[Supervisor] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.begin_process()
        weakref.finalize(self, release_all, self.supervisors)

    def supervise(
        self, job: Job, tell: Callable[[dict[str, Any]], None], ended: Callable[[Ending], None]
    ) -> Supervisor:
        """Start a compile process, which ends soon after the session is closed or forgotten."""
        self.supervisors[:] = [item for item in self.supervisors if not item.is_over]
        self.supervisors.append(Supervisor(job, tell, ended))
        return self.supervisors[-1]

    def begin_process(self) -> None:
        """Make what belongs to one process: at first, and in a child, which has none of the threads."""
        self.process = os.getpid()
        self.supervisors.clear()
        self.lock = RLock()
        self.changed = Condition(self.lock)

    @property
    def budget(self) -> dict[str, float]:
        """The limits of a process, as results remember them."""
        return {"seconds": self.settings.timeout_seconds, "bytes": float(self.settings.memory_bytes)}


def release_all(supervisors: Sequence[Supervisor]) -> None:
    """Let compile processes end unless other sessions want their results."""
    for item in supervisors:
        item.release()
