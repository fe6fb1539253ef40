"""Threads that compute parts of a segment in parallel and sleep between runs."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Semaphore, Thread

MAX_THREADS = 64
"""Limit on the number of threads."""

TeamTask = Callable[[int], int]
"""Function that computes one part, given its number. Parts may wait for one another."""


class Team:
    """``size`` threads: the caller's thread, and threads that start with the first run.

    The started threads end with :meth:`close`, or when the team is garbage-collected. Only one run is possible at a
    time. A forked process starts new threads.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._crew: _Crew | None = None

    def run(self, work: TeamTask, give_up: Callable[[], None]) -> int:
        """Run all parts and return the result of part 0.

        If a part does not run, for example after an interrupt, ``give_up`` is called so that no part waits for it.
        """
        crew = self._crew
        if crew is None or crew.process != os.getpid():
            crew = self._crew = _Crew(self.size - 1)
            weakref.finalize(self, crew.dismiss)
        crew.work = work
        try:
            for go in crew.gos:
                go.release()
            result = work(0)
            for _ in crew.gos:
                crew.done.acquire()
        except BaseException:
            give_up()
            self.close()
            raise
        crew.work = None
        return result

    def close(self) -> None:
        """End every thread after the current part. The next run starts new threads."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.process == os.getpid():
            crew.dismiss()
            for thread in crew.threads:
                thread.join()


@dataclass
class _Crew:
    """The threads of a team except the caller's. They hold no reference to the team, which can thus be freed."""

    count: int
    work: TeamTask | None = None
    is_dismissed: bool = False
    done: Semaphore = field(default_factory=lambda: Semaphore(0))
    process: int = field(default_factory=os.getpid)
    gos: list[Semaphore] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(1, self.count + 1):
            go = Semaphore(0)
            thread = Thread(target=self._serve, args=(number, go), name=f"odc-part-{number}", daemon=True)
            self.gos.append(go)
            self.threads.append(thread)
            thread.start()

    def _serve(self, number: int, go: Semaphore) -> None:
        while True:
            go.acquire()
            if self.is_dismissed or self.work is None:
                return
            self.work(number)
            self.done.release()

    def dismiss(self) -> None:
        """End every idle thread. A forked child has no threads to end."""
        if self.process != os.getpid():
            return
        self.is_dismissed = True
        for go in self.gos:
            go.release()
