"""One limit for all of the cache: what was not used for longest goes first, and what nobody will finish goes always."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path

from odc_mlir.errors import OdcError
from odc_mlir.formats.cache import RECORDS_FILE
from odc_mlir.runtime.auto.artefacts import RECORD_NAME, Artefacts, remove
from odc_mlir.runtime.auto.locks import file_lock, is_locked

# Writers give their files a name within moments; what is older was left by one that was killed.
_STALE_SECONDS = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class CacheEntry:
    """Something in the cache that can be deleted alone: where, how large, and when it was used last."""

    path: Path
    nbytes: int
    used: float


def entries(root: Path) -> Iterator[CacheEntry]:
    """What there is in the cache ``root``; what a user asked for by name (``made``) is no part of it."""
    for place in _listed(root / "compiled"):
        if not place.name.startswith(".") and place.name != "locks":
            yield _entry(place, RECORD_NAME)
    for place in _listed(root / "records"):
        yield _entry(place, RECORDS_FILE)
    for place in _listed(root / "models"):
        yield _entry(place, "")


def prune(root: Path, max_bytes: int, *, keep: frozenset[str] = frozenset()) -> list[CacheEntry]:
    """Delete leftovers, and what was not used for longest until the rest is at most ``max_bytes``; what that was.

    What is called as in ``keep``, or is in use by another process, stays.
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
    """Delete what attempts have left that did not end, and locks of nothing."""
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
            is_locked(place)  # which deletes it if nobody holds it
    files = _listed(root / "models") + [file for place in _listed(root / "records") for file in _listed(place)]
    for file in files:
        entry = _entry(file, "")
        if file.name.startswith(".odc-") and time.time() - entry.used > _STALE_SECONDS:
            remove(file)
            found.append(entry)
    return [entry for entry in found if not entry.path.exists()]


def _delete(root: Path, path: Path) -> bool:
    """Delete an entry unless someone uses it; whether that was done."""
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
    """``mark`` is the file in the folder ``path`` whose time of change tells when it was used."""
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
