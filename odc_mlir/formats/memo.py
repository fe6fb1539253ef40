"""Results of earlier runs, kept in the cache by key: what takes long to find and follows from the key alone.

One private file holds the results of one kind::

    odc-memo 1 <SHA-256 of the rest>
    {"<key>": <JSON>, …}

It is read and written as a whole. What is damaged, of another format or too large counts as empty, and a cache that
cannot be used is no error: it only saves time. Whoever opens a memo names everything that results depend on beside
their keys, the program that finds them included.
"""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from odc_mlir.errors import CacheError, OdcError, parsing
from odc_mlir.formats.cache import cache_folder
from odc_mlir.formats.private import make_folder, read_file, write_file

_log = logging.getLogger(__name__)

_MAGIC = "odc-memo 1"
MAX_BYTES = 2 << 20  # of one file: reading it must take less time than it saves
MAX_FILES = 8  # of one kind: other targets, other versions of the compiler


class Memo:
    """Results by key. ``path`` None: they are kept for this run only."""

    def __init__(self, path: Path | None = None, results: dict[str, Any] | None = None) -> None:
        self._path = path
        self._results = {} if results is None else results
        self._found: dict[str, Any] = {}  # what this run made

    @classmethod
    def open(cls, kind: str, depends_on: str) -> Memo:
        """What earlier runs kept of this kind that depends on the same."""
        try:
            root = cache_folder()
            path = root / kind / f"{hashlib.sha256(depends_on.encode()).hexdigest()[:32]}.json"
            make_folder(path.parent, within=root)
            return cls(path, _read(path))
        except (OdcError, OSError) as error:
            _log.warning("results of kind %s are not kept: %s", kind, error)
            return cls()

    def get(self, key: str) -> Any | None:
        """The result, None where there is none."""
        return self._results.get(key)

    def put(self, key: str, result: Any) -> None:
        """Store ``result``, a JSON value other than None."""
        self._results[key] = self._found[key] = result

    def save(self) -> None:
        """Write what this run added, beside what others have written meanwhile."""
        if self._path is None or not self._found:
            return
        try:
            text = _text(_read(self._path) | self._found)
            if len(text) > MAX_BYTES:
                text = _text(self._found)
            if len(text) <= MAX_BYTES:
                write_file(self._path, text)
                _prune(self._path)
        except (OdcError, OSError) as error:
            _log.info("results are not kept: %s", error)
        self._found = {}


def _text(results: dict[str, Any]) -> bytes:
    body = json.dumps(results, separators=(",", ":"), sort_keys=True).encode()
    return f"{_MAGIC} {hashlib.sha256(body).hexdigest()}\n".encode() + body


def _read(path: Path) -> dict[str, Any]:
    """The results in the file, none where it is not there or not whole."""
    try:
        head, _, body = read_file(path, max_bytes=MAX_BYTES).partition(b"\n")
        if head != f"{_MAGIC} {hashlib.sha256(body).hexdigest()}".encode():
            raise ValueError("it is damaged")
        with parsing("it cannot be read", CacheError):
            found = json.loads(body)
    except FileNotFoundError:
        return {}
    except (ValueError, OdcError) as error:
        _log.info("%s is made again: %s", path, error)
        return {}
    return found if isinstance(found, dict) else {}


def _prune(newest: Path) -> None:
    """Remove the oldest entries above the limit."""
    files = sorted(newest.parent.glob("*.json"), key=lambda item: item.stat().st_mtime_ns, reverse=True)
    for item in files[MAX_FILES:]:
        item.unlink(missing_ok=True)
