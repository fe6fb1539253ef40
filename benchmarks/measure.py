"""Wall time and peak memory of work done in a fresh process, or of a function in this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True)
class Measurement:
    """Times of several runs of one thing; memory is that of the largest run, 0 where it was not asked for."""

    name: str
    seconds_best: float
    seconds_median: float
    runs: int
    peak_rss_bytes: int = 0
    note: str = ""


def process(name: str, command: Sequence[str], *, runs: int, note: str = "") -> Measurement:
    """Run ``command`` ``runs`` times, each in a new process; raises RuntimeError with its errors when it fails."""
    times: list[float] = []
    peak = 0
    for _ in range(runs):
        with tempfile.TemporaryFile() as errors:
            begun = time.perf_counter()
            child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, usage = os.wait4(child.pid, 0)
            times.append(time.perf_counter() - begun)
            child.returncode = os.waitstatus_to_exitcode(status)
            if child.returncode:
                errors.seek(0)
                raise RuntimeError(f"{' '.join(command)}: status {child.returncode}\n{errors.read().decode()}")
        peak = max(peak, usage.ru_maxrss * 1024)  # Linux counts in KiB
    return Measurement(name, min(times), median(times), runs, peak, note)


def python(name: str, code: str, *arguments: str, runs: int, note: str = "") -> Measurement:
    """Like :func:`process` for a piece of Python run by this interpreter; ``arguments`` become sys.argv[1:]."""
    return process(name, [sys.executable, "-c", code, *arguments], runs=runs, note=note)


def function(name: str, call: Callable[[], object], *, runs: int, note: str = "") -> Measurement:
    """Call ``call`` ``runs`` times in this process, after one call that is not counted."""
    call()
    times: list[float] = []
    for _ in range(runs):
        begun = time.perf_counter()
        call()
        times.append(time.perf_counter() - begun)
    return Measurement(name, min(times), median(times), runs, note=note)
