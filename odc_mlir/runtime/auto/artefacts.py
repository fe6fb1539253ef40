"""What has been made on the device, kept for the next process: results, and reasons why there is none.

Each result is a folder named after its key, a digest of everything that it follows from. It appears whole or not at
all, says the digest of each of its files, and is thrown away when they do not agree.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odc_mlir.errors import CompileError
from odc_mlir.formats.atomic import sync_folder, write_file
from odc_mlir.formats.cache import content_digest

SCHEMA_VERSION = 1
RECORD_NAME = "result.json"
MODEL_NAME = "model.circle"
COMPILED_STEM = "compiled"
DEFAULT_MAX_BYTES = 1 << 30
_KEY_DIGITS = 40


def make_key(facts: Mapping[str, Any]) -> str:
    """The key of what follows from ``facts``, plain JSON data."""
    text = json.dumps({"schema_version": SCHEMA_VERSION, **facts}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_KEY_DIGITS]


@dataclass(slots=True)
class Result:
    """What came of a job. ``level`` is that of the best thing made, None for a refusal with its ``reason``.

    ``kind`` says what the reason is about: ``accuracy``, ``unsupported``, ``time``, ``memory`` or ``failed``; with a
    level it is why there is nothing better. ``budget`` are the limits that were in force.
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


@dataclass(frozen=True, slots=True)
class Artefact:
    """A result with its folder, whose files are what they were when it was made."""

    folder: Path
    result: Result

    @property
    def model(self) -> Path:
        """The quantised model."""
        return self.folder / MODEL_NAME

    @property
    def compiled(self) -> Path | None:
        """What a plugin made."""
        return None if self.result.compiled is None else self.folder / self.result.compiled


class Artefacts:
    """The results in ``folder``, which need not exist."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "compiled"

    def lock_path(self, key: str) -> Path:
        """The lock that whoever works on ``key`` holds."""
        return self.folder / "locks" / key

    def find(self, key: str) -> tuple[Artefact | None, str | None]:
        """The result for ``key``, or None and, where there was something, why it cannot be used; that is deleted."""
        place = self.folder / key
        try:
            document = json.loads((place / RECORD_NAME).read_bytes())
            return Artefact(place, _checked(place, document)), None
        except (FileNotFoundError, NotADirectoryError):
            if not place.is_dir():
                return None, None
            problem = f"it has no {RECORD_NAME}"
        except OSError as error:
            return None, f"the cached result cannot be read: {error.strerror}"
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            problem = str(error) or type(error).__name__
        self.discard(key)
        return None, f"the cached result is damaged: {problem}"

    def touch(self, key: str) -> None:
        """Say that the result is in use."""
        with suppress(OSError):
            os.utime(self.folder / key / RECORD_NAME)

    def discard(self, key: str) -> None:
        """Delete the result for ``key``, if there is one and it can be deleted."""
        place, aside = self.folder / key, self.folder / f".{key}.{secrets.token_hex(4)}.old"
        with suppress(OSError):
            os.rename(place, aside)
        shutil.rmtree(aside, ignore_errors=True)

    def new_folder(self, key: str) -> Path:
        """A folder to make a result in; what others have left unfinished is removed. The lock must be held."""
        self.sweep(key)
        place = self.folder / f".{key}.{secrets.token_hex(4)}.new"
        try:
            place.mkdir(parents=True)
        except OSError as error:
            raise CompileError(f"the cache cannot be written: {error.strerror}", location=str(self.folder)) from None
        return place

    def sweep(self, key: str) -> None:
        """Remove what is left of attempts that did not end. The lock must be held."""
        with suppress(OSError):
            for entry in self.folder.glob(f".{key}.*"):
                shutil.rmtree(entry, ignore_errors=True)

    def commit(self, key: str, work: Path, result: Result) -> Artefact:
        """Let what lies in ``work`` be the result for ``key``; raises OdcError and leaves nothing when that fails."""
        try:
            files = {file.name: content_digest(file) for file in sorted(work.iterdir()) if file.is_file()}
            document = {"schema_version": SCHEMA_VERSION, "files": files, "result": asdict(result)}
            for name in files:
                with (work / name).open("rb") as stream:
                    os.fsync(stream.fileno())
            write_file(work / RECORD_NAME, json.dumps(document, indent=1).encode())
            self.discard(key)
            os.rename(work, self.folder / key)
            sync_folder(self.folder)
        except OSError as error:
            raise CompileError(f"the result cannot be kept: {error.strerror}", location=str(self.folder)) from None
        return Artefact(self.folder / key, result)

    def keep_refusal(self, key: str, result: Result) -> None:
        """Remember why there is nothing for ``key``; nothing happens where that cannot be written."""
        with suppress(OSError, CompileError):
            self.commit(key, self.new_folder(key), result)

    def entries(self) -> Iterator[tuple[str, int, float]]:
        """Key, size in bytes and time of last use of each result."""
        try:
            places = sorted(self.folder.iterdir())
        except OSError:
            return
        for place in places:
            with suppress(OSError):
                if place.name.startswith(".") or not (place / RECORD_NAME).is_file():
                    continue
                sizes = [entry.stat() for entry in place.iterdir()]
                used = (place / RECORD_NAME).stat().st_mtime
                yield place.name, sum(item.st_size for item in sizes if stat.S_ISREG(item.st_mode)), used

    def prune(self, max_bytes: int = DEFAULT_MAX_BYTES, *, keep: str = "") -> list[str]:
        """Delete the results that were not used for longest until the rest is at most ``max_bytes``; their keys."""
        found = sorted(self.entries(), key=lambda entry: entry[2])
        total, deleted = sum(size for _, size, _ in found), []
        for key, size, _ in found:
            if total <= max_bytes:
                break
            if key != keep:
                self.discard(key)
                deleted.append(key)
                total -= size
        return deleted


def is_still_true(result: Result, budget: Mapping[str, float]) -> bool:
    """Whether a refusal holds under ``budget`` too: what took too much may fit into more."""
    limit = {"time": "seconds", "memory": "bytes"}.get(result.kind or "")
    return limit is None or budget.get(limit, 0.0) <= result.budget.get(limit, 0.0)


def _checked(place: Path, document: dict[str, Any]) -> Result:
    if document["schema_version"] != SCHEMA_VERSION:
        raise ValueError(f"it is of version {document['schema_version']!r}, expected {SCHEMA_VERSION}")
    for name, digest in document["files"].items():
        file = place / name
        if Path(name).name != name or not file.is_file():
            raise ValueError(f"{name!r} is missing")
        if content_digest(file) != digest:
            raise ValueError(f"{name!r} has other contents than when it was made")
    result = Result(**document["result"])
    for name in ([result.compiled] if result.compiled else []) + ([MODEL_NAME] if result.level == "quantized" else []):
        if name not in document["files"]:
            raise ValueError(f"{name!r} is missing")
    return result
