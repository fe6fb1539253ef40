"""Locks between processes: one holder at a time, and none left behind by a process that was killed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from odc_mlir.errors import CacheError, CompileError
from odc_mlir.formats import private

_POLL_SECONDS = 0.05


@contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock file at ``path``, waiting at most ``seconds`` for it; raises CompileError when that is too short.

    The kernel lets go of it when the process ends, however it ends. The empty file stays; its holder may delete it.
    """
    import fcntl

    deadline = time.monotonic() + seconds
    while True:
        try:
            private.make_folder(path.parent, within=path.parent.parent)
            descriptor = private.open_file(path, os.O_RDWR | os.O_CREAT)
        except CacheError as error:
            raise CompileError(
                f"the lock cannot be created: {error.message}", location=str(path), stage="lock", passing=error.passing
            ) from None
        except FileNotFoundError:
            continue  # the folder has just been removed
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_at(descriptor, path):
                    yield
                    return
                continue  # the holder before has deleted it, and someone else may hold another by that name
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise CompileError(
                        "another process has been working on this model for too long",
                        location=str(path),
                        stage="lock",
                        passing=True,
                    ) from None
        finally:
            with suppress(OSError):
                fcntl.flock(descriptor, fcntl.LOCK_UN)  # a child that was forked meanwhile has it too
            os.close(descriptor)
        time.sleep(_POLL_SECONDS)


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
