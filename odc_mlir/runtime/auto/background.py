"""Background tasks that no run waits for."""

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
    """A queue of at most ``most`` tasks. One thread runs the tasks in order and ends when the queue is empty."""

    def __init__(self, name: str, most: int = 64) -> None:
        self.name = name
        self.most = most
        self.begin()
        mend_after_fork(self)

    def after_fork(self) -> None:
        """In a forked child, empty the queue: the tasks belong to the parent."""
        self.begin()

    def begin(self) -> None:
        """Reset tasks and thread, at creation and in a forked child."""
        self._tasks: deque[Task] = deque()
        self._changed = Condition()
        self.hurry = Event()  # if set, tasks should end early if possible
        self._thread: Thread | None = None

    def submit(self, task: Task, *, always: bool = False) -> bool:
        """Queue ``task``. Return False if the queue is full. ``always`` ignores the limit."""
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
            except RuntimeError as error:  # too many threads, or Python ends
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
        """Wait at most ``seconds`` for the end of all tasks. Return whether all have ended.

        If no thread can be started, run the tasks here.
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
    """Return ``method`` with a weak reference to the object. Calls return None after the object's end."""
    found = weakref.WeakMethod(method)

    def call(*arguments: Arguments.args, **options: Arguments.kwargs) -> Any:
        bound = found()
        return None if bound is None else bound(*arguments, **options)

    return call


def poll(more: Callable[[], bool | None], seconds: float, name: str) -> Thread:
    """Start a thread that calls ``more`` every ``seconds`` until it returns a false value."""

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
    except BaseException:  # a plugin may raise SystemExit, which threads ignore
        _log.exception("a background task has failed")
