"""Native code that was compiled in place, kept in the cache: the next process runs it without compiling.

Keyed by the model's bytes, the processor and the compiler's own files. What is damaged is compiled again, and a cache
that cannot be used is no error: it only saves time.
"""

from __future__ import annotations

import hashlib
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from odc_mlir._version import __version__
from odc_mlir.errors import OdcError
from odc_mlir.formats.cache import cache_folder
from odc_mlir.formats.native_segment import parse_native_segment
from odc_mlir.formats.package import PackageFiles, read_package, zip_bytes
from odc_mlir.formats.private import check_file, make_folder, write_file
from odc_mlir.plugins.fingerprint import fingerprint
from odc_mlir.plugins.registry import PluginSource

_log = logging.getLogger(__name__)

_FOLDER = "native"
_MAX_BYTES = 256 << 20  # of all packages kept; the longest unused go first
_COMPILER = PluginSource("cpu", __package__, None, "odc_mlir.compiler:compile", None)


def remembered(digest: str, target: str, make: Callable[[], PackageFiles]) -> PackageFiles:
    """The package that ``make`` gives for the model with this digest: the one of an earlier time where it is kept."""
    try:
        root = cache_folder()
        path = root / _FOLDER / f"{_key(digest, target)}.zip"
        make_folder(path.parent, within=root)
        found = _read(path)
    except (OdcError, OSError) as error:
        _log.info("native code is not kept: %s", error)
        return make()
    if found is not None:
        return found
    files = make()
    try:
        write_file(path, zip_bytes(files.members))
        _prune(path)
    except (OdcError, OSError) as error:
        _log.info("native code is not kept: %s", error)
    return files


def _key(digest: str, target: str) -> str:
    return hashlib.sha256(f"{digest}\0{target}\0{__version__}\0{fingerprint(_COMPILER)}".encode()).hexdigest()[:32]


def _read(path: Path) -> PackageFiles | None:
    """The package at ``path``, None where there is none that is whole."""
    if not path.exists():
        return None
    check_file(path)
    try:
        files = read_package(path)
        files = replace(files, members=dict(files.members))  # at once: another process may delete the file at any time
        for step in files.plan.segments if files.plan is not None else ():
            parse_native_segment(files.segment(step.file))
        with suppress(OSError):  # another process may have deleted it just now
            os.utime(path)
    except OdcError as error:
        _log.info("%s is compiled again: %s", path.name, error)
        return None
    return files


def _prune(newest: Path) -> None:
    """Remove what was not used for longest, until the rest is small enough; ``newest`` stays."""
    files = sorted(
        ((item.stat().st_mtime_ns, item.stat().st_size, item) for item in newest.parent.glob("*.zip")), reverse=True
    )
    total = 0
    for _, size, item in files:
        total += size
        if total > _MAX_BYTES and item != newest:
            item.unlink(missing_ok=True)
