"""Files that are either whole or not there."""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path

from odc_mlir.errors import OdcError, is_passing

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # of Linux's renameat2


def write_file(path: str | os.PathLike[str], *chunks: bytes | bytearray | memoryview) -> None:
    """Write the chunks to ``path`` and replace an existing file atomically.

    A reader sees the old file or the new one, also after a power loss: the bytes go to a hidden file in the same
    folder, reach the disk, and take the name then. A symbolic link keeps pointing to the file, permissions of an old
    file stay, and devices and pipes are written directly; a pipe that nobody reads is an error. Raises OdcError that
    names the path.
    """
    try:
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            _write_special(target, chunks)
            return
        replace_file(target, chunks, None if mode is None else stat.S_IMODE(mode))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        passing = isinstance(error, OSError) and is_passing(error)
        raise OdcError(f"the file cannot be written: {reason}", location=os.fspath(path), passing=passing) from None


def _write_special(target: Path, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
    # Opening a pipe without this flag would wait for a reader, and nobody may come.
    try:
        descriptor = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "nobody reads the pipe") from None
        raise
    with open(descriptor, "wb") as file:
        os.set_blocking(descriptor, True)
        file.writelines(chunks)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Make the names in a folder survive a power loss, where the system can."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(first: Path, second: Path) -> bool:
    """Let two files or folders change places in one step; False, and nothing has happened, where that cannot be done.

    Of a folder that is replaced by two renamings there is nothing in between, for whoever looks at that moment.
    """
    try:
        import ctypes

        rename = ctypes.CDLL(None).renameat2
    except (ImportError, AttributeError, OSError, TypeError):  # a system without
        return False
    paths = [os.fsencode(path) for path in (first, second)]
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def replace_file(target: Path, chunks: Sequence[bytes | bytearray | memoryview], mode: int | None = None) -> None:
    """Let ``target`` be a file of these chunks with the rights ``mode``, whatever is there; raises OSError."""
    # A random name, because several processes may write one target at the same time. The target's own name is no part
    # of it, as that may already be as long as names can be.
    temporary = target.with_name(f".odc-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, 0o666 if mode is None else mode), "wb") as file:
            file.writelines(chunks)
            file.flush()
            if mode is not None:
                temporary.chmod(mode)
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)
