"""Tells one state of a plugin from another, under which is kept what it makes: versions are not always counted up."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Iterator
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
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
    for count, (name, path) in enumerate(sorted(_files(source))):
        if count == _MAX_FILES:
            break
        try:
            found = path.stat()
            if not stat.S_ISREG(found.st_mode):
                continue
            content = found.st_size <= room
            fact = path.read_bytes() if content else repr((found.st_size, found.st_mtime_ns)).encode()
        except OSError:
            continue
        room -= found.st_size if content else 0
        digest.update(f"{name}\0{len(fact)}\0".encode())
        digest.update(fact)
    return digest.hexdigest()


def _files(source: PluginSource) -> Iterator[tuple[str, Path]]:
    """The files with the names under which they count: not where they are, lest a move be a change."""
    if source.file is not None:
        place = Path(source.file)
        # It may import what lies beside it.
        yield from _named(place.parent, place.parent.glob("*.py"))
        for init in place.parent.glob("*/__init__.py"):
            yield from _below(init.parent, place.parent)
        return
    spec = _spec(_module(source), source.folder)
    if spec is None:
        return
    for folder in spec.submodule_search_locations or ():
        yield from _below(Path(folder), Path(folder).parent)
    if spec.origin is not None and not spec.submodule_search_locations:
        yield from _named(Path(spec.origin).parent, [Path(spec.origin)])


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


def _below(folder: Path, root: Path) -> Iterator[tuple[str, Path]]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(set(folders) - _PASSED_OVER)
        yield from _named(root, (Path(place, name) for name in names))


def _named(root: Path, paths: Iterable[Path]) -> Iterator[tuple[str, Path]]:
    for path in paths:
        yield path.relative_to(root).as_posix(), path
