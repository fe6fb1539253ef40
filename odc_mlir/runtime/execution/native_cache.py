"""Cache of native code for models compiled on this machine. Later processes need not compile these models.

Keys of packages depend on the model's bytes, the processor and the files of the compiler. Damaged and untrusted
packages are compiled again. If the cache is not usable, every process compiles.
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
from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats.cache import cache_folder
from odc_mlir.formats.package import PackageFiles, read_package, zip_bytes
from odc_mlir.formats.private import check_file, make_folder, write_file
from odc_mlir.formats.trust import distrust, write_records
from odc_mlir.plugins.foreign import fingerprint
from odc_mlir.plugins.registry import PluginSource

_log = logging.getLogger(__name__)

_FOLDER = "native"
_SOURCE = "source"  # metadata key: digest of the compiled model; the package holds a rewritten model
_MAX_BYTES = 256 << 20  # limit on all packages together
_COMPILER = PluginSource("cpu", __package__, None, "odc_mlir.compiler:compile", None)


def remembered(digest: str, target: str, make: Callable[[], PackageFiles]) -> PackageFiles:
    """Return the package of the model with this digest: from the cache, or compiled by ``make``."""
    try:
        root = cache_folder()
        key = f"{digest}\0{target}\0{__version__}\0{fingerprint(_COMPILER)}"
        path = root / _FOLDER / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.zip"
        make_folder(path.parent, within=root)
        found = _read(path, digest)
    except (OdcError, OSError) as error:
        _log.warning("native code is not kept: %s", error)
        return make()
    if found is not None:
        return found
    files = make()
    try:
        write_records(files)
        write_file(path, zip_bytes({**files.members, _SOURCE: digest.encode()}))
        _prune(path)
    except (OdcError, OSError) as error:
        _log.warning("native code is not kept: %s", error)
    return files


def _read(path: Path, digest: str) -> PackageFiles | None:
    """Return the package at ``path``, or None if it is damaged, untrusted, or the code of another model."""
    if not path.exists():
        return None
    check_file(path)
    try:
        files = read_package(path)
        members = dict(files.members)  # another process may delete the file at any time
        is_of_model = members.pop(_SOURCE, b"") == digest.encode()
        files = replace(files, members=members)
        reason = distrust(files) if is_of_model else "it is the code of another model"
        if reason is not None:
            raise PackageError(reason)
        with suppress(OSError):  # another process may just have deleted the file
            os.utime(path)
    except OdcError as error:
        _log.info("%s is compiled again: %s", path.name, error)
        return None
    return files


def _prune(newest: Path) -> None:
    """Remove the least recently used packages until all are within the size limit. Keep ``newest``."""
    files = sorted(
        ((item.stat().st_mtime_ns, item.stat().st_size, item) for item in newest.parent.glob("*.zip")), reverse=True
    )
    total = 0
    for _, size, item in files:
        total += size
        if total > _MAX_BYTES and item != newest:
            item.unlink(missing_ok=True)
