"""Cache of results of compile jobs: compiled models, reasons for refusals, and locks between processes.

A result is a folder named after the key, a digest of everything that determines the result. The folder is created
atomically and stores the digests of the files. A result with wrong files is deleted. Only the owner can read it.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
import os
import secrets
import shutil
import sqlite3
import stat
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from odc_mlir.errors import CacheError, CompileError, OdcError, of_system
from odc_mlir.formats import private
from odc_mlir.formats.cache import RECORDS_FILE
from odc_mlir.formats.kinds import MODEL, ZIP
from odc_mlir.formats.outputs import exchange, sync_folder, write_output
from odc_mlir.formats.package import is_package, roll_back
from odc_mlir.runtime.package import Package

_POLL_SECONDS = 0.05


@contextmanager
def file_lock(path: Path, *, seconds: float) -> Iterator[None]:
    """Hold the lock file at ``path``. Raises CompileError if another process still holds it after ``seconds``.

    The empty file stays afterwards if the holder does not delete it.
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
    """Lock the file at ``path``. Return the descriptor, or None for a conflicting lock. Raises CompileError.

    Two ``shared`` locks do not conflict.
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
            continue  # another process has removed the folder
        try:
            fcntl.flock(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            with suppress(OSError):
                if os.path.samestat(os.fstat(descriptor), path.stat()):
                    return descriptor
        except BlockingIOError:
            os.close(descriptor)
            return None
        except BaseException:
            os.close(descriptor)
            raise
        unlock(descriptor)  # the last holder has deleted the file, so another process may lock a new file at ``path``


def unlock(descriptor: int) -> None:
    """Release a lock, even if a forked child has a copy of ``descriptor``."""
    import fcntl

    with suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


def is_locked(path: Path) -> bool:
    """Return whether a process holds the lock at ``path``. Delete a file that no process holds."""
    if not path.exists():
        return False
    descriptor = try_lock(path)
    if descriptor is None:
        return True
    path.unlink(missing_ok=True)
    unlock(descriptor)
    return False


_log = logging.getLogger(__name__)

SCHEMA_VERSION = 5
RECORD_NAME = "result.json"
MODEL_NAME = "model.circle"
COMPILED_STEM, TWIN_STEM = "compiled", "twin"
_KEY_DIGITS = 40
_MAX_RECORD_BYTES = 1 << 20

PASSING, COVERAGE, WATCH, SLOWER = "passing", "coverage", "watch", "slower"
KINDS = ("accuracy", "unsupported", "time", "memory", "failed", PASSING, COVERAGE, WATCH, SLOWER)
_WITHDRAWAL_SECONDS = 10.0  # limit on waiting for the lock
# Age of temporary files of killed processes. Running processes rename temporary files much earlier.
_STALE_SECONDS = 24 * 3600.0
_OLD = ".old"  # suffix of replaced results
_DAMAGED = "the cached result is damaged"
_WAITS, _WAIT_SECONDS = 20, 0.005  # some systems cannot replace a result in one step
_Identity = tuple[int, int, int]  # device, inode number and modification time of a folder
# Pauses before a retry, by the number of consecutive temporary failures.
_RETRY_SECONDS = (0.0, 0.0, 60.0, 600.0, 3600.0)


def make_key(facts: Mapping[str, Any]) -> str:
    """Return the key of a result: a digest of ``facts``, the JSON data that determine the result."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **facts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


@dataclass(slots=True)
class JobResult:
    """Result of a compile job: the level reached, or None and the reason for the refusal.

    ``kind`` (see KINDS) classifies the reason. With a level, the reason explains why no better level was reached.
    ``budget``: limits of the process, and the number ``runs`` of recorded runs if there were too few runs.
    ``attempts``: consecutive temporary failures. ``failed_at``: time of the last failure in seconds since 1970.
    ``latency_us``: time of a run by level or plugin. ``twin``: file of native code that may replace a simulator.
    """

    level: str | None
    reason: str | None = None
    kind: str | None = None
    stage: str | None = None
    scheme: str | None = None
    compiled: str | None = None  # name of the compiled file
    verdict: dict[str, Any] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    attempts: int = 0
    failed_at: float = 0.0
    latency_us: dict[str, float] = field(default_factory=dict)
    twin: str | None = None

    @property
    def waits_for_records(self) -> bool:
        """Whether the job was refused for lack of records."""
        return self.level is None and self.kind in (COVERAGE, WATCH)

    @property
    def records_needed(self) -> int:
        """Number of recorded runs required for a retry."""
        return int(self.budget.get("runs", 0)) + 1


@dataclass(frozen=True, slots=True)
class Artefact:
    """A result in a ``folder`` with verified ``files``. ``identity`` distinguishes it from later results."""

    folder: Path
    result: JobResult
    files: frozenset[str] = frozenset({MODEL_NAME})
    identity: _Identity | None = field(default=None, compare=False)

    @property
    def model(self) -> Path | None:
        """Path of the quantised model."""
        return self.folder / MODEL_NAME if MODEL_NAME in self.files else None

    @property
    def compiled(self) -> Path | None:
        """Path of the compiled model."""
        return None if self.result.compiled is None else self.folder / self.result.compiled

    @property
    def twin(self) -> Path | None:
        """Path of the native code of the same model."""
        return None if self.result.twin is None else self.folder / self.result.twin

    def copy_to(self, model: Path | None, compiled: Path | None) -> None:
        """Copy the quantised and the compiled model to paths of the user. Log failures."""
        for source, target, output in ((self.model, model, MODEL), (self.compiled, compiled, ZIP)):
            if target is not None and source is not None:
                try:
                    write_output(target, source.read_bytes(), output)
                except (OdcError, OSError) as error:
                    _log.warning("%s", error)


class Artefacts:
    """The cache of results in ``folder``. The folder need not exist."""

    def __init__(self, folder: Path) -> None:
        self.root = folder
        self.folder = folder / "compiled"

    def lock_path(self, key: str) -> Path:
        """Return the path of the lock for ``key``."""
        return self.folder / "locks" / key

    def find(self, key: str) -> tuple[Artefact | None, str | None]:
        """Return the result for ``key``, or None and the reason why a stored result was unusable and deleted.

        If another process replaces the result meanwhile, look again.
        """
        place, waits = self.folder / key, _WAITS
        while True:
            seen = _identity(place)
            found, problem = _look(place)
            if seen != _identity(place):
                continue
            if seen is not None or not waits or not any(self.folder.glob(f".{key}.*{_OLD}")):
                break  # otherwise a process has moved the result away and may store a new one
            waits -= 1
            time.sleep(_WAIT_SECONDS)
        if problem is not None and problem.startswith(_DAMAGED):
            remove(self._move_aside(key, only=seen))
        return found if found is None else replace(found, identity=seen), problem

    def is_there(self, found: Artefact) -> bool:
        """Return whether ``found`` is still in the cache, unchanged by other processes."""
        return found.identity is not None and _identity(found.folder) == found.identity

    def touch(self, key: str) -> None:
        """Mark the result as used now."""
        with suppress(OSError):
            os.utime(self.folder / key / RECORD_NAME)

    def discard(self, key: str) -> None:
        """Delete the result for ``key``, if it belongs to this user and can be deleted."""
        remove(self._move_aside(key))

    def _move_aside(self, key: str, only: _Identity | None = None) -> Path:
        """Move this user's result for ``key`` away and return the new path. ``only``: the required identity, if any."""
        place, aside = self.folder / key, self.folder / f".{key}.{secrets.token_hex(4)}{_OLD}"
        with suppress(OSError):
            if private.is_ours(place.lstat()) and only in (None, _identity(place)):
                os.rename(place, aside)
                if only not in (None, _identity(aside)):  # another process has stored a result meanwhile
                    os.rename(aside, place)
        return aside

    def new_folder(self, key: str) -> Path:
        """Create a folder for a new result, and remove unfinished folders. The caller must hold the lock."""
        self.sweep(key)
        place = self.folder / f".{key}.{secrets.token_hex(4)}.new"
        try:
            private.make_folder(place, within=self.root)
        except CacheError as error:
            raise CompileError(
                f"the cache cannot be written: {error}", location=str(self.folder), passing=error.passing
            ) from None
        return place

    def sweep(self, key: str) -> None:
        """Remove files of killed attempts. The caller must hold the lock."""
        for entry in _listed(self.folder):
            if entry.name.startswith(f".{key}."):
                remove(entry)

    def commit(self, key: str, work: Path, result: JobResult) -> Artefact:
        """Store the contents of ``work`` as the result for ``key``. On failure, raise OdcError and store nothing."""
        failure = "the result cannot be cached"
        try:
            with of_system(failure, CompileError, location=str(self.folder)):
                files = {file.name: private.digest_file(file) for file in sorted(work.iterdir()) if file.is_file()}
                document = {"schema_version": SCHEMA_VERSION, "key": key, "files": files, "result": asdict(result)}
                for name in files:
                    with (work / name).open("rb") as stream:
                        os.fsync(stream.fileno())
                private.write_file(work / RECORD_NAME, json.dumps(document, indent=1).encode())
                self._put(work, self.folder / key)
                sync_folder(self.folder)
        except CacheError as error:
            raise CompileError(f"{failure}: {error.message}", location=error.location, passing=error.passing) from None
        return Artefact(self.folder / key, result, frozenset(files), _identity(self.folder / key))

    def _put(self, work: Path, place: Path) -> None:
        """Move ``work`` to ``place``, and delete the user's previous result there. Raises OSError."""
        with suppress(FileNotFoundError):
            if private.is_ours(place.lstat()) and exchange(work, place):
                remove(work)
                return
        aside = self._move_aside(place.name)
        os.rename(work, place)
        remove(aside)

    def keep_refusal(self, key: str, result: JobResult) -> None:
        """Store the refusal for ``key``. Ignore failures of the cache."""
        with suppress(OSError, CompileError):
            self.commit(key, self.new_folder(key), result)

    def clean(self, key: str, refusal: JobResult | None, before: JobResult | None = None) -> None:
        """If no process works, remove files of the failed process and store ``refusal``.

        ``refusal`` replaces the result ``before``, but no newer result of another process.
        """
        try:
            with file_lock(self.lock_path(key), seconds=0):
                self.sweep(key)
                found = None if refusal is None else self.find(key)[0]
                if refusal is not None and (found is None or found.result == before):
                    self.keep_refusal(key, refusal)
        except OdcError as error:
            _log.debug("not cleaned: %s", error)


def retry_seconds(attempts: int) -> float:
    """Return the pause before a retry after ``attempts`` consecutive temporary failures."""
    return _RETRY_SECONDS[min(attempts, len(_RETRY_SECONDS) - 1)]


def is_final(result: JobResult, budget: Mapping[str, float], now_seconds: float) -> bool:
    """Return whether a retry under ``budget`` must give the same result. ``now_seconds``: since the epoch.

    A retry may succeed under larger limits, with more records, or after a temporary failure.
    """
    if result.kind == PASSING:
        return 0 <= now_seconds - result.failed_at < retry_seconds(result.attempts)
    limit = {"time": "seconds", "memory": "bytes", COVERAGE: "runs", WATCH: "runs"}.get(result.kind or "")
    return limit is None or budget.get(limit, 0.0) <= result.budget.get(limit, 0.0)


def seconds_left(result: JobResult, budget: Mapping[str, float], now_seconds: float) -> float | None:
    """Return the seconds until a retry may succeed: 0 if it may now, None if it never may."""
    if not is_final(result, budget, now_seconds):
        return 0.0
    return retry_seconds(result.attempts) - (now_seconds - result.failed_at) if result.kind == PASSING else None


def remove(entry: Path) -> None:
    """Delete the file or folder ``entry``. Ignore failures."""
    if entry.is_dir() and not entry.is_symlink():
        shutil.rmtree(entry, ignore_errors=True)
    else:
        with suppress(OSError):
            entry.unlink(missing_ok=True)


def _identity(place: Path) -> _Identity | None:
    try:
        found = place.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino, found.st_mtime_ns  # a later folder may have the same inode number


def _look(place: Path) -> tuple[Artefact | None, str | None]:
    try:
        if not os.path.lexists(place):
            return None, None
        private.check_root(place.parent.parent)
        private.check_folder(place)
        text = private.read_file(place / RECORD_NAME, max_bytes=_MAX_RECORD_BYTES)
        found = _checked(place, json.loads(text))
        _check_trust(found)
        return found, None
    except FileNotFoundError:
        problem = f"it has no {RECORD_NAME}"
    except CacheError as error:
        if error.passing:
            return None, f"the cached result cannot be read: {error}"
        problem = str(error)
    except (ValueError, RecursionError) as error:
        problem = str(error) or type(error).__name__
    return None, f"{_DAMAGED}: {problem}"


def _is_text(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _is_file_name(value: Any) -> bool:
    return value is None or (isinstance(value, str) and Path(value).name == value)


def _are_numbers(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_number, value.values()))


_SCHEMA: Mapping[str, Callable[[Any], bool]] = MappingProxyType(
    {
        "level": lambda value: value in (None, "quantized", "compiled", "direct"),
        "reason": _is_text,
        "kind": lambda value: value is None or value in KINDS,
        "stage": _is_text,
        "scheme": _is_text,
        "compiled": _is_file_name,
        "twin": _is_file_name,
        "verdict": lambda value: value is None or isinstance(value, dict),
        "seconds": _are_numbers,
        "budget": _are_numbers,
        "notes": lambda value: isinstance(value, list) and all(isinstance(item, str) for item in value),
        "attempts": lambda value: isinstance(value, int) and not isinstance(value, bool) and value >= 0,
        "failed_at": _is_number,
        "latency_us": _are_numbers,
    }
)
"""Checks of a stored result by field name. A stored result has exactly these fields."""


def _checked(place: Path, document: Any) -> Artefact:
    version = document.get("schema_version") if isinstance(document, dict) else None
    if version != SCHEMA_VERSION:
        raise ValueError(f"it is of version {version!r}, expected {SCHEMA_VERSION}")
    if document.get("key") != place.name:
        raise ValueError("it is the result of another job")
    files, fields = document.get("files"), document.get("result")
    if not isinstance(files, dict) or not isinstance(fields, dict) or fields.keys() != _SCHEMA.keys():
        raise ValueError(f"{RECORD_NAME} has other fields than a result")
    for name, is_right in _SCHEMA.items():
        if not is_right(fields[name]):
            raise ValueError(f"{name!r} cannot be {str(fields[name])[:50]!r}")
    for name, digest in files.items():
        _check_file(place, name, digest)
    result = JobResult(**fields)
    for needed in (result.compiled, result.twin, MODEL_NAME if result.level == "quantized" else None):
        if needed is not None and needed not in files:
            raise ValueError(f"{needed!r} is missing")
    if result.level in ("compiled", "direct") and result.compiled is None:
        raise ValueError("it is compiled, but names no file")
    return Artefact(place, result, frozenset(files))


def _check_file(place: Path, name: str, digest: str) -> None:
    try:
        found = private.digest_file(place / name) if Path(name).name == name else None
    except FileNotFoundError:
        found = None
    if found is None:
        raise ValueError(f"{name!r} is missing")
    if found != digest:
        raise ValueError(f"{name!r} has other contents than when it was stored")


def _check_trust(found: Artefact) -> None:
    """Raise ValueError if the compiled package holds machine code that was not compiled on this machine."""
    if found.compiled is None or not is_package(found.compiled):
        return
    try:
        reason = Package.from_path(found.compiled, cache=found.folder.parent.parent).distrust()
    except OdcError as error:
        reason = str(error)
    if reason is not None:
        raise ValueError(reason)


def withdraw(artefacts: Artefacts, package: Path | None, key: str, result: JobResult, refusal: JobResult) -> None:
    """Replace a ``result`` by a ``refusal`` because answers left the accuracy limits. Log failures.

    The result is removed from the cache, and from ``package`` if it was installed there.
    """
    try:
        with file_lock(artefacts.lock_path(key), seconds=_WITHDRAWAL_SECONDS):
            found, _ = artefacts.find(key)
            if found is not None and found.result == result:  # no process has replaced it
                artefacts.keep_refusal(key, refusal)
    except OdcError as error:
        _log.warning("%s; later sessions may start with the rejected result", error)
    if package is not None:
        with suppress(OdcError):  # nothing may have been installed
            roll_back(package)


# The size of the cache.


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """An entry of the cache that can be deleted separately. ``used``: time of the last use."""

    path: Path
    nbytes: int
    used: float


def entries(root: Path) -> Iterator[CacheEntry]:
    """Yield the entries of the cache ``root``, except files that users requested by name."""
    for place in _listed(root / "compiled"):
        if not place.name.startswith(".") and place.name != "locks":
            yield _entry(place, RECORD_NAME)
    for place in _listed(root / "records"):
        yield _entry(place, RECORDS_FILE)
    for place in _listed(root / "models"):
        yield _entry(place, "")


def prune(root: Path, max_bytes: int, *, keep: frozenset[str] = frozenset()) -> list[CacheEntry]:
    """Delete the least recently used entries beyond ``max_bytes``, and temporary files. Return the deleted entries.

    Entries with names in ``keep`` and entries in use stay.
    """
    deleted = _sweep(root)
    found = sorted(entries(root), key=lambda entry: entry.used)
    total = sum(entry.nbytes for entry in found)
    for entry in found:
        if total <= max_bytes:
            break
        if entry.path.name not in keep and _delete(root, entry.path):
            deleted.append(entry)
            total -= entry.nbytes
    return deleted


def _sweep(root: Path) -> list[CacheEntry]:
    """Delete files of killed processes, and unused locks."""
    artefacts = Artefacts(root)
    compiled = artefacts.folder
    left = [place for place in _listed(compiled) if place.name.startswith(".")]
    keys = {place.name.split(".")[1] for place in left}
    keys |= {place.name for place in _listed(compiled / "locks") if not (compiled / place.name).exists()}
    found = [_entry(place, "") for place in left]
    for key in sorted(keys):
        with suppress(OdcError), file_lock(artefacts.lock_path(key), seconds=0):
            artefacts.sweep(key)
            if not (compiled / key).exists():
                artefacts.lock_path(key).unlink(missing_ok=True)
    for place in _listed(root / "jobs"):
        with suppress(OdcError):
            is_locked(place)  # deletes the lock if no process holds it
    files = _listed(root / "models") + [file for place in _listed(root / "records") for file in _listed(place)]
    for file in files:
        entry = _entry(file, "")
        if file.name.startswith(".odc-") and time.time() - entry.used > _STALE_SECONDS:
            remove(file)
            found.append(entry)
    return [entry for entry in found if not entry.path.exists()]


def _delete(root: Path, path: Path) -> bool:
    if path.parent.name == "compiled":
        artefacts = Artefacts(root)
        with suppress(OdcError), file_lock(artefacts.lock_path(path.name), seconds=0):
            artefacts.discard(path.name)
            artefacts.lock_path(path.name).unlink(missing_ok=True)
        return not path.exists()
    store = path / RECORDS_FILE
    if path.parent.name == "records" and store.is_file():
        try:
            with closing(sqlite3.connect(store, timeout=0, isolation_level=None)) as database:
                database.execute("BEGIN EXCLUSIVE")
                remove(path)
                return True
        except sqlite3.OperationalError:  # another process is writing
            return False
        except sqlite3.Error:
            pass
    remove(path)
    return True


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _entry(path: Path, mark: str) -> CacheEntry:
    """Return the entry at ``path``. The modification time of the file ``mark`` is the time of the last use."""
    nbytes, used = 0, 0.0
    with suppress(OSError):
        used = (path / mark).lstat().st_mtime
    for place, _, names in os.walk(path):
        for name in names:
            with suppress(OSError):
                found = Path(place, name).lstat()
                nbytes += found.st_size if stat.S_ISREG(found.st_mode) else 0
    if not path.is_dir():
        with suppress(OSError):
            nbytes = path.lstat().st_size
    return CacheEntry(path, nbytes, used)
