"""Threads that run the parts of one computation at the same time, and wait in between."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Semaphore, Thread

MAX_THREADS = 64
"""More than any processor here has cores: what is larger is a mistake."""

TeamTask = Callable[[int], int]
"""Computes the part of this number; parts may wait for one another."""


class Team:
    """``size`` threads: the caller's, and others that begin with the first run and end with :meth:`close`, or when
    nobody holds the team any more. One run at a time; a process that was forked has threads of its own.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._crew: _Crew | None = None

    def run(self, work: TeamTask, give_up: Callable[[], None]) -> int:
        """What part 0 gives, when all parts have ended.

        ``give_up`` is called where not all parts will come, as after an interrupt: then none may wait for another.
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
        """End the threads, when what they run has ended; another run begins new ones."""
        crew, self._crew = self._crew, None
        if crew is not None and crew.process == os.getpid():
            crew.dismiss()
            for thread in crew.threads:
                thread.join()


@dataclass
class _Crew:
    """The threads beside the caller's, which know nothing of the team: it may go before them."""

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
        """Let every thread end when it has nothing to do. A child process has none of them."""
        if self.process != os.getpid():
            return
        self.is_dismissed = True
        for go in self.gos:
            go.release()
