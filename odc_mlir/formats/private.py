"""Private files of the cache, and memos: results of earlier runs by key.

This module opens all files of a cache. It follows no links, reads only regular files of this user, and restricts too
wide permissions. A memo is a JSON file with a digest in the first line. Damaged, foreign and large memos count as
empty. The caller identifies a memo by everything that the results depend on, except keys of results.
"""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from odc_mlir.errors import CacheError, OdcError, is_passing, located, parsing
from odc_mlir.formats.cache import CACHE_VARIABLE, cache_folder
from odc_mlir.formats.outputs import replace_file

FOLDER_MODE, FILE_MODE = 0o700, 0o600
_OTHERS = 0o077
# Flags of :func:`os.open`. If a system lacks a flag, it also lacks the feature that the flag disables.
_SAFELY = sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"))
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISLNK, "a symbolic link"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISREG, "a file"),
)


def make_folder(path: Path, *, within: Path) -> None:
    """Create ``path`` below ``within`` with permissions for its owner only. Raises CacheError.

    If ``within`` exists, it must be safe (:func:`check_root`), otherwise it is created. All folders below it must be
    ours.
    """
    _make(within)
    check_root(within)
    place = within
    for name in path.relative_to(within).parts:
        place = place / name
        _make(place)
        check_folder(place)


def _make(path: Path) -> None:
    with _failing("the folder cannot be made", path):
        for folder in [item for item in (path, *path.parents) if not os.path.lexists(item)][::-1]:
            with suppress(FileExistsError):  # another process was faster
                folder.mkdir(FOLDER_MODE)
                folder.chmod(FOLDER_MODE)  # the umask may have removed permissions


def check_root(path: Path) -> None:
    """Raise CacheError if another user could replace folders in ``path``, the root of a cache.

    The root must belong to this user or root. A folder that everyone can write to must be sticky, unless it is ours.
    Our own folder becomes private.
    """
    with _failing("the folder cannot be used", path):
        found = path.stat()
        if found.st_uid != 0:
            _check_owner(found)
        if found.st_mode & stat.S_IWOTH and not found.st_mode & stat.S_ISVTX:
            if not is_ours(found):
                hint = f"name a folder of yours in it with {CACHE_VARIABLE}"
                raise CacheError("everyone can write to the cache folder", hint=hint)
            path.chmod(stat.S_IMODE(found.st_mode) & ~stat.S_IWOTH)


def check_folder(path: Path) -> None:
    """Raise CacheError unless ``path`` is a folder of ours. Too wide permissions are restricted."""
    with _failing("the folder cannot be used", path):
        try:
            found = path.lstat()
            if not stat.S_ISDIR(found.st_mode):
                raise CacheError(f"it is {_kind(found.st_mode)}, not a folder", hint="remove it")
            _check_owner(found)
            if stat.S_IMODE(found.st_mode) & _OTHERS:
                path.chmod(FOLDER_MODE)
        except FileNotFoundError:  # another process may have deleted it just now
            raise CacheError("the folder does not exist", passing=True) from None


def _check(found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise CacheError(f"it is {_kind(found.st_mode)}, not a file", hint="remove it")
    _check_owner(found)


def is_ours(found: os.stat_result) -> bool:
    """Return whether this user owns the file or folder with the status ``found``."""
    return not hasattr(os, "geteuid") or found.st_uid == os.geteuid()


def _check_owner(found: os.stat_result) -> None:
    if not is_ours(found):
        hint = f"name another cache folder with {CACHE_VARIABLE}"
        raise CacheError(f"it belongs to user {found.st_uid}, not to user {os.geteuid()}", hint=hint)


def _kind(mode: int) -> str:
    return next((name for is_kind, name in _KINDS if is_kind(mode)), "a device")


def open_file(path: Path, flags: int = os.O_RDONLY) -> int:
    """Return a descriptor of the file at ``path``. Raises FileNotFoundError and CacheError.

    ``flags``: flags of :func:`os.open`. A new file gets permissions for its owner only.
    """
    try:
        descriptor = os.open(path, flags | _SAFELY, FILE_MODE)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise _not_opened(path, error) from None
    try:
        with _failing("the file cannot be used", path):
            found = os.fstat(descriptor)
            _check(found)
            if stat.S_IMODE(found.st_mode) & _OTHERS or (flags & os.O_CREAT and not found.st_mode & stat.S_IWUSR):
                os.fchmod(descriptor, FILE_MODE)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _not_opened(path: Path, error: OSError) -> CacheError:
    if error.errno in (errno.ELOOP, errno.ENXIO, errno.EISDIR):
        with suppress(OSError):
            kind = _kind(path.lstat().st_mode)
            return CacheError(f"it is {kind}, not a file", location=str(path), hint="remove it")
    return _failed("the file cannot be opened", path, error)


def _failed(what: str, path: Path, error: OSError) -> CacheError:
    hint = "$ODC_CACHE_DIR can name another folder"
    return CacheError(f"{what}: {error.strerror}", location=str(path), hint=hint, passing=is_passing(error))


@contextmanager
def _failing(what: str, path: Path) -> Iterator[None]:
    """Raise CacheError for a system error in this block."""
    try:
        with located(str(path)):
            yield
    except OSError as error:
        raise _failed(what, path, error) from None


def check_file(path: Path) -> None:
    """Raise CacheError unless ``path`` is a private file or does not exist.

    The file is not opened: closing any descriptor of it would release all SQLite locks of this process.
    """
    with _failing("the file cannot be used", path), suppress(FileNotFoundError):
        found = path.lstat()
        _check(found)
        if stat.S_IMODE(found.st_mode) & _OTHERS:
            path.chmod(FILE_MODE)


def make_empty_file(path: Path) -> None:
    """Create the file if it is missing. Never close a descriptor of it (see :func:`check_file`). Raises OSError."""
    temporary = path.with_name(f".odc-{secrets.token_hex(8)}.tmp")
    try:
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFELY, FILE_MODE))
        temporary.chmod(FILE_MODE)
        with suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def read_file(path: Path, *, max_bytes: int) -> bytes:
    """Return the contents. Raises FileNotFoundError, and CacheError, for example above ``max_bytes``."""
    with open(open_file(path), "rb") as stream, _failing("the file cannot be read", path):
        data = stream.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise CacheError(f"it has more than {max_bytes} bytes", location=str(path))
    return data


def digest_file(path: Path) -> str:
    """Return the SHA-256 of the file in hexadecimal. Raises FileNotFoundError and CacheError."""
    with open(open_file(path), "rb") as stream, _failing("the file cannot be read", path):
        return hashlib.file_digest(stream, "sha256").hexdigest()


def write_file(path: Path, *chunks: bytes | bytearray | memoryview) -> None:
    """Write ``chunks`` to ``path`` atomically. Raises CacheError."""
    with _failing("the file cannot be written", path):
        replace_file(path, chunks, FILE_MODE)


_log = logging.getLogger(__name__)

_MAGIC = "odc-memo 1"
MAX_BYTES = 2 << 20  # size limit of a memo, since reading must take less time than it saves
MAX_FILES = 8  # limit on memos of a kind, one per target and version of the compiler


class Memo:
    """Results by key. If ``path`` is None, results are only in memory."""

    def __init__(self, path: Path | None = None, results: dict[str, Any] | None = None) -> None:
        self._path = path
        self._results = {} if results is None else results
        self._found: dict[str, Any] = {}  # results of this run

    @classmethod
    def open(cls, kind: str, depends_on: str) -> Memo:
        """Open the memo of this kind with the results of earlier runs that had the same dependences."""
        try:
            root = cache_folder()
            path = root / kind / f"{hashlib.sha256(depends_on.encode()).hexdigest()[:32]}.json"
            make_folder(path.parent, within=root)
            return cls(path, _read(path))
        except (OdcError, OSError) as error:
            _log.warning("results of kind %s are not kept: %s", kind, error)
            return cls()

    def get(self, key: str) -> Any | None:
        return self._results.get(key)

    def put(self, key: str, result: Any) -> None:
        """Store ``result``, a JSON value other than None."""
        self._results[key] = self._found[key] = result

    def save(self) -> None:
        """Write the new results, merged with results that other processes have written since."""
        if self._path is None or not self._found:
            return
        try:
            text = _text(_read(self._path) | self._found)
            if len(text) > MAX_BYTES:
                text = _text(self._found)
            if len(text) <= MAX_BYTES:
                write_file(self._path, text)
                files = sorted(self._path.parent.glob("*.json"), key=lambda item: item.stat().st_mtime_ns, reverse=True)
                for item in files[MAX_FILES:]:
                    item.unlink(missing_ok=True)
        except (OdcError, OSError) as error:
            _log.info("results are not kept: %s", error)
        self._found = {}


def _text(results: dict[str, Any]) -> bytes:
    body = json.dumps(results, separators=(",", ":"), sort_keys=True).encode()
    return f"{_MAGIC} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def _read(path: Path) -> dict[str, Any]:
    try:
        head, _, body = read_file(path, max_bytes=MAX_BYTES).partition(b"\n")
        if head != f"{_MAGIC} {hashlib.sha256(body).hexdigest()}".encode():
            raise ValueError("it is damaged")
        with parsing("it cannot be read", CacheError):
            found = json.loads(body)
    except FileNotFoundError:
        return {}
    except (ValueError, OdcError) as error:
        _log.info("%s is written again: %s", path, error)
        return {}
    return found if isinstance(found, dict) else {}
