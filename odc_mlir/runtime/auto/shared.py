"""What the parts of compiling on the device share for one session."""

from __future__ import annotations

import os
from collections import OrderedDict
from dataclasses import dataclass, field
from threading import Condition, RLock

from odc_mlir.calibration.recorded import Shapes
from odc_mlir.runtime.auto.aim import Aim
from odc_mlir.runtime.auto.artefacts import Artefacts
from odc_mlir.runtime.auto.background import Background
from odc_mlir.runtime.auto.original import ExecutorOptions, Original
from odc_mlir.runtime.auto.recording import RunRecorder
from odc_mlir.runtime.auto.settings import AutoSettings
from odc_mlir.runtime.auto.specialization import Specialization


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

    def __post_init__(self) -> None:
        self.begin_process()

    def begin_process(self) -> None:
        """Make what belongs to one process: at first, and in a child, which has none of the threads."""
        self.process = os.getpid()
        self.lock = RLock()
        self.changed = Condition(self.lock)

    @property
    def budget(self) -> dict[str, float]:
        """The limits of a process, as results remember them."""
        return {"seconds": self.settings.timeout_seconds, "bytes": float(self.settings.memory_bytes)}
