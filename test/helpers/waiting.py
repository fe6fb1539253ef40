"""Waiting for other processes and threads."""

from __future__ import annotations

import time
from collections.abc import Callable


def happens(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    """Return if the condition, which must last once it holds, comes true in good time on however slow a machine."""
    deadline = time.monotonic() + seconds
    while not (happened := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    return happened
