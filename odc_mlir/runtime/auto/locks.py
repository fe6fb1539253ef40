"""Locks between processes: one holder at a time, and none left behind by a process that was killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odc_mlir.errors import CompileError

_POLL_SECONDS = 0.05


@contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock file at ``path``, waiting at most ``seconds`` for it; raises CompileError when that is too short.

    The kernel lets go of it when the process ends, however it ends. The empty file stays.
    """
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise CompileError(f"the lock cannot be made: {error.strerror}", location=str(path), stage="lock") from None
    try:
        deadline = time.monotonic() + seconds
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except OSError:
                if time.monotonic() >= deadline:
                    raise CompileError(
                        "another process has been working on this model for too long", location=str(path), stage="lock"
                    ) from None
                time.sleep(_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)
