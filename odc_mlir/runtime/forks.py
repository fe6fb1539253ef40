"""Locks in a process that was forked: what another thread held at that moment nobody would ever let go of."""

from __future__ import annotations

import os
import weakref
from threading import RLock
from typing import Any, Protocol


class Forked(Protocol):
    """What holds something that a child process cannot go on with as it is."""

    def after_fork(self) -> None:
        """Mend it: in the child, in its only thread, before anything else is done there."""


_known: weakref.WeakSet[Any] = weakref.WeakSet()


def mend_after_fork(item: Forked) -> None:
    """Let :meth:`Forked.after_fork` of ``item`` be called in every child of this process, as long as it is in use."""
    _known.add(item)


def is_stuck(lock: RLock) -> bool:
    """Whether ``lock`` was held at the fork by a thread that is not here; the thread that forked still has its own."""
    if not lock.acquire(blocking=False):
        return True
    lock.release()
    return False


def _mend() -> None:
    for item in list(_known):
        item.after_fork()


if hasattr(os, "register_at_fork"):  # where there is none, nothing is forked
    os.register_at_fork(after_in_child=_mend)
