"""Digests of plugins' files. They are part of cache keys, since a plugin may change without a new version."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from itertools import islice
from pathlib import Path

from odc_mlir.plugins.registry import PluginSource

_PASSED_OVER = frozenset({"__pycache__", ".git"})
# For larger files, and for this package, size and time of change stand in for the content, since sessions wait.
_MAX_CONTENT_BYTES = 32 << 20
_MAX_FILES = 5000


def fingerprint(source: PluginSource) -> str:
    """Return a digest of the files of a plugin, independent of their location."""
    if _module(source) == __package__.partition(".")[0]:
        return _own_fingerprint()
    return _digest(source, _MAX_CONTENT_BYTES)


@lru_cache(maxsize=1)
def _own_fingerprint() -> str:
    """Return the digest of this package, of which this process has loaded one version."""
    return _digest(PluginSource("", "", reference=f"{__package__}:"), 0)


def _digest(source: PluginSource, room: int) -> str:
    digest = hashlib.sha256()
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
    """Yield the plugin's files, each with its name relative to the plugin, and its path."""
    if source.file is not None:  # it may import its neighbours
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
    """Yield the files of the modules and packages in a folder."""
    for name in sorted(os.listdir(folder)) if os.path.isdir(folder) else ():
        path = os.path.join(folder, name)
        if name.endswith(".py"):
            yield name, path
        elif os.path.isfile(os.path.join(path, "__init__.py")):
            yield from _below(path, name)


def _below(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield all files of a package; their names begin with ``name``."""
    for inner, folders, files in os.walk(folder):
        folders[:] = sorted(set(folders) - _PASSED_OVER)
        relative = os.path.relpath(inner, folder)
        yield from ((f"{name}/{relative}/{file}", os.path.join(inner, file)) for file in files)


def _spec(module: str, folder: str | None) -> ModuleSpec | None:
    """Find a top-level module without importing it."""
    found = None if folder is None else PathFinder.find_spec(module, [folder])
    try:
        return found or find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None


def _module(source: PluginSource) -> str:
    """Return the top-level module of an entry point."""
    return (source.reference or "").partition(":")[0].partition(".")[0]
