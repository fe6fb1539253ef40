"""Work that no run may wait for: done in a thread that is there only while there is something to do."""

from __future__ import annotations

import logging
import time
import weakref
from collections import deque
from collections.abc import Callable
from threading import Condition, Event, Thread
from typing import Any, ParamSpec

from odc_mlir.runtime.forks import mend_after_fork

_log = logging.getLogger(__name__)

Task = Callable[[], None]
Arguments = ParamSpec("Arguments")


class Background:
    """Does tasks one after another, at most ``most`` of which may wait. The thread ends with the last of them."""

    def __init__(self, name: str, most: int = 64) -> None:
        self.name = name
        self.most = most
        self.begin()
        mend_after_fork(self)

    def after_fork(self) -> None:
        """In a child process nothing is to be done: that is the parent's."""
        self.begin()

    def begin(self) -> None:
        """Start with nothing to do: at first, and in a child of this process, which has no thread of it."""
        self._tasks: deque[Task] = deque()
        self._changed = Condition()
        self.hurry = Event()  # nobody has time for tasks that could be dropped
        self._thread: Thread | None = None

    def submit(self, task: Task, *, always: bool = False) -> bool:
        """Let ``task`` be done; whether there was room for it, as there ``always`` is for what is not large."""
        with self._changed:
            if len(self._tasks) >= self.most and not always:
                return False
            self._tasks.append(task)
            self._start()
            return True

    def _start(self) -> None:
        if self._thread is None:
            self._thread = Thread(target=self._work, name=self.name, daemon=True)
            try:
                self._thread.start()
            except RuntimeError as error:  # no more threads for now, or Python is about to end
                self._thread = None
                _log.debug("%s: %s", self.name, error)

    def _work(self) -> None:
        while True:
            with self._changed:
                if not self._tasks:
                    self._thread = None
                    self._changed.notify_all()
                    return
                task = self._tasks.popleft()
            _do(task)

    def wait(self, seconds: float | None) -> bool:
        """Wait until nothing is left to do, at most ``seconds``; whether that is so.

        Where there can be no thread the tasks are done here.
        """
        deadline = None if seconds is None else time.monotonic() + seconds
        with self._changed:
            if self._tasks:
                self._start()
            if self._thread is not None:
                return self._changed.wait_for(lambda: self._thread is None, seconds)
        while self._tasks and (deadline is None or time.monotonic() < deadline):
            _do(self._tasks.popleft())
        return not self._tasks


def weakly(method: Callable[Arguments, Any]) -> Callable[Arguments, Any]:
    """``method`` as long as its object, which this does not keep, is in use elsewhere; afterwards it gives None."""
    found = weakref.WeakMethod(method)

    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Any:
        bound = found()
        return None if bound is None else bound(*arguments, **options)

    return call


def poll(more: Callable[[], bool | None], seconds: float, name: str) -> Thread:
    """A thread that calls ``more`` every so many ``seconds`` until that is not true."""

    def work() -> None:
        while True:
            time.sleep(seconds)
            if not more():
                return

    thread = Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread


def _do(task: Task) -> None:
    try:
        task()
    except Exception:  # nobody else would hear of it
        _log.exception("work in the background has failed")
