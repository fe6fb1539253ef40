"""Repair of objects in a forked process, where no thread releases the locks of other threads."""

from __future__ import annotations

import os
import weakref
from threading import RLock
from typing import Any, Protocol


class Forked(Protocol):
    """An object with locks or threads that a child process must replace."""

    def after_fork(self) -> None:
        """Repair the object. The child's only thread calls this method first."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()


def mend_after_fork(item: Forked) -> None:
    """Call ``item.after_fork`` in every child of this process while ``item`` exists."""
    _known.add(item)


def is_stuck(lock: RLock) -> bool:
    """Return whether another thread held ``lock`` at the fork. The forking thread still holds the same locks."""
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


def _mend() -> None:
    for item in list(_known):
        item.after_fork()


if hasattr(os, "register_at_fork"):  # other systems have no fork
    os.register_at_fork(after_in_child=_mend)
