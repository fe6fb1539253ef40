"""Limits on child processes: time, memory, threads.

A process for background compilation or a plugin sets the system's limits on itself and leads a process group. The
parent process ends the whole group. No descendant remains.
"""

from __future__ import annotations

import math
import os
import signal
from contextlib import suppress
from dataclasses import dataclass

ONE_BLAS_THREAD = {"OPENBLAS_NUM_THREADS": "1"}
"""Environment of a new process with one BLAS thread, to leave the other processors to the application."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a process: ``seconds`` of the clock, ``memory_bytes`` of address space. None: no limit."""

    seconds: float | None = 300.0
    memory_bytes: int | None = 4 << 30

    def hold_this_process(self) -> None:
        """Set the limits on this process, if the system supports limits.

        The limit of processor time is ``seconds`` times the number of processors. It matters after the death of the
        parent. It works even while compiled code holds the interpreter's lock.
        """
        try:
            import resource
        except ImportError:  # a system without such limits
            return
        wanted = {
            resource.RLIMIT_AS: self.memory_bytes,
            resource.RLIMIT_CPU: None if self.seconds is None else math.ceil(self.seconds * (os.cpu_count() or 1)) + 1,
        }
        for kind, limit in wanted.items():
            if limit is not None:
                _, hard = resource.getrlimit(kind)
                resource.setrlimit(kind, (limit if hard == resource.RLIM_INFINITY else min(limit, hard), hard))


def signal_name(number: int) -> str:
    """Return ``SIGKILL`` for 9, and ``signal 99`` for a number that has no name."""
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"signal {number}"


def end_group(leader: int) -> None:
    """Kill the process group of ``leader``, if it still exists."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
