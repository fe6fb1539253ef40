"""Limit on the threads of BLAS, the library of numpy's matrix products, during runs.

BLAS divides even small products among threads that wait for one another in a loop. On a busy machine, a small product
then takes some time slices of the system instead of microseconds.
"""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from odc_mlir.runtime.forks import mend_after_fork

LARGE_MACS = 256_000_000
"""Multiply-accumulates of an operator that gains from several threads: about eight milliseconds on one thread."""


class BlasLimit:
    """Context manager of a run that limits BLAS, in the whole process, to ``threads`` threads.

    The last of overlapping runs restores the number from before the first.
    """

    def __init__(self, threads: int) -> None:
        self._threads = threads

    def __enter__(self) -> None:
        _libraries().change(1, self._threads)

    def __exit__(self, *_: object) -> None:
        _libraries().change(-1, self._threads)


class _Libraries:
    """The BLAS libraries of this process and the number of runs that limit them."""

    def __init__(self) -> None:
        from threadpoolctl import ThreadpoolController

        self._found: list[Any] = [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
        self._before: list[int] = []
        self._lock, self._runs = Lock(), 0
        mend_after_fork(self)

    def change(self, step: int, threads: int) -> None:
        """Count a run that starts (``step`` 1) or ends (-1), and set the number of threads."""
        with self._lock:
            if not self._runs and step > 0:
                self._before = [library.get_num_threads() for library in self._found]
            self._runs = max(0, self._runs + step)
            for library, before in zip(self._found, self._before, strict=False):
                wanted = threads if self._runs else before
                if library.get_num_threads() != wanted:  # in a forked process, a change starts threads
                    library.set_num_threads(wanted)

    def after_fork(self) -> None:
        """Forget the runs of the parent. A fork during a run leaves the run's number of threads."""
        self._lock, self._runs = Lock(), 0


_libraries = cache(_Libraries)
