"""File locks between processes, which the kernel releases when their holder ends, however it ends."""

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
    """Hold the lock file at ``path``, waiting at most ``seconds`` for it; raises CompileError if that is too short.

    The empty file stays; its holder may delete it.
    """
    deadline = time.monotonic() + seconds
    while (descriptor := try_lock(path)) is None:
        if time.monotonic() >= deadline:
            raise CompileError(
                "another process has been working on this model for too long",
                location=str(path),
                stage="lock",
                passing=True,
            )
        time.sleep(_POLL_SECONDS)
    try:
        yield
    finally:
        unlock(descriptor)


def try_lock(path: Path, *, shared: bool = False) -> int | None:
    """Lock the file at ``path`` and return its descriptor, None if another holder is in the way; raises CompileError.

    ``shared`` locks are in the way of others only.
    """
    import fcntl

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
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            if _is_at(descriptor, path):
                return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        unlock(descriptor)  # its holder has just deleted the file, and somebody may hold another one by that name


def unlock(descriptor: int) -> None:
    """Release a lock, also for a child that was forked meanwhile."""
    import fcntl

    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether somebody holds the lock at ``path``; a file without a holder is deleted."""
    if not path.exists():
        return False
    descriptor = try_lock(path)
    if descriptor is None:
        return True
    path.unlink(missing_ok=True)
    unlock(descriptor)
    return False


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except OSError:
        return False
