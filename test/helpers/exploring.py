"""What studies of tests compute in place of compiling, importable by the workers of a cluster."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from odc_mlir.explore.study import MEASURES, Outcome, Task

KILLED = "ODC_TEST_KILLED"
"""Names a file in the environment: who makes it dies."""


def formula(task: Task) -> Outcome:
    """A law in place of cycles."""
    a, b = (int(value) for value in task.point.values())
    return Outcome({name: dict.fromkeys(MEASURES, 1e6 / a + 100 * b) for name in task.models})


def deadly(task: Task) -> Outcome:
    """The same; once, the process that computes it is killed."""
    with suppress(FileExistsError):
        os.close(os.open(os.environ[KILLED], os.O_CREAT | os.O_EXCL))
        os.kill(os.getpid(), signal.SIGKILL)
    return formula(task)


def endless(task: Task) -> Outcome:
    """The same for the first point; another one is never done."""
    if task.point["array.macs_per_cycle"] != 128:
        time.sleep(600)
    return formula(task)
