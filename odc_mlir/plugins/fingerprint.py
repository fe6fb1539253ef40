"""Tells one state of a plugin from another, under which is kept what it makes: versions are not always counted up."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from odc_mlir.plugins.registry import PluginSource

_PASSED_OVER = frozenset({"__pycache__", ".git"})
# Of what is larger, and of our own package, size and time of change must do: a session should not wait for the reading.
_MAX_CONTENT_BYTES = 32 << 20
_MAX_FILES = 5000


def fingerprint(source: PluginSource) -> str:
    """A digest of the files that ``source`` consists of, as far as its place tells them."""
    digest = hashlib.sha256()
    room = 0 if _module(source) == __package__.partition(".")[0] else _MAX_CONTENT_BYTES
    for name, path in sorted(islice(_files(source), _MAX_FILES)):
        try:
            found = os.stat(path)
            if not stat.S_ISREG(found.st_mode):
                continue
            content = found.st_size <= room
            fact = Path(path).read_bytes() if content else b"%d %d" % (found.st_size, found.st_mtime_ns)
        except OSError:
            continue
        room -= found.st_size if content else 0
        digest.update(f"{name}\0{len(fact)}\0".encode())
        digest.update(fact)
    return digest.hexdigest()


def _files(source: PluginSource) -> Iterator[tuple[str, str]]:
    """The files with the names under which they count: not where they are, lest a move be a change."""
    if source.file is not None:  # it may import what lies beside it
        yield from _beside(os.path.dirname(source.file))
        return
    spec = _spec(_module(source), source.folder)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from _below(folder, "")
    if spec.origin is not None and not spec.submodule_search_locations:
        yield os.path.basename(spec.origin), spec.origin


def _beside(folder: str) -> Iterator[tuple[str, str]]:
    """The modules and packages in a folder."""
    for entry in _scanned(folder):
        if entry.name.endswith(".py"):
            yield entry.name, entry.path
        elif os.path.isfile(os.path.join(entry.path, "__init__.py")):
            yield from _below(entry.path, entry.name)


def _below(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """All files of a package; its name is part of theirs."""
    for entry in _scanned(folder):
        inner = f"{name}/{entry.name}"
        if not entry.is_dir(follow_symlinks=False):
            yield inner, entry.path
        elif entry.name not in _PASSED_OVER:
            yield from _below(entry.path, inner)


def _scanned(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def _spec(module: str, folder: str | None) -> ModuleSpec | None:
    """Where a top-level module is, which is not imported."""
    found = None if folder is None else PathFinder.find_spec(module, [folder])
    try:
        return found or find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None


def _module(source: PluginSource) -> str:
    """The top-level module of an entry point."""
    return (source.reference or "").partition(":")[0].partition(".")[0]
