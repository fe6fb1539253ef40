"""Trust in machine code: a record in the user's cache for every segment that was compiled on this machine.

Code of a package runs only with the user's consent or a record. A record counts only for a package with one model:
either this process compiled the code, or ``trusted/<key>`` exists in the cache. The key is a digest of the code, the
model, and the operators and tensors that the plan binds to the code. Records in a folder that other users own or can
write to do not count.
"""

from __future__ import annotations

import hashlib
import logging
import os
import stat
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from odc_mlir.errors import CacheError, OdcError, OptionError, PackageError, of_system
from odc_mlir.formats.cache import CACHE_VARIABLE, cache_folder
from odc_mlir.formats.package import PackageFiles
from odc_mlir.formats.plan import DEFAULT_EXTENSION, SegmentStep
from odc_mlir.formats.private import check_root, is_ours, make_empty_file, make_folder

_log = logging.getLogger(__name__)

FOLDER = "trusted"
MAX_RECORDS = 10_000  # limit on records; the least recently used are deleted


def compiled_here(files: PackageFiles) -> PackageFiles:
    """Return ``files`` marked as compiled by this process. This process then needs no record in the cache."""
    if files.plan is None or files.plan.extension == DEFAULT_EXTENSION:  # data, not code
        return files
    return replace(files, compiled_here=frozenset(_key(files, step) for step in files.plan.segments))


def record(files: PackageFiles) -> None:
    """Record the code that this process compiled, so that later processes run it. A failure is logged."""
    try:
        write_records(files)
    except (CacheError, OptionError) as error:
        _log.warning("the code will run only with consent (--trust-code), as it cannot be recorded: %s", error)


def write_records(files: PackageFiles) -> None:
    """Record the code that this process compiled. Raises CacheError and OptionError."""
    if not files.compiled_here:
        return
    root = cache_folder()
    folder = root / FOLDER
    with of_system("the record cannot be written", CacheError, location=str(folder)):
        if os.path.lexists(folder):
            _check_folder(folder)  # before the next line, which resets permissions
        make_folder(folder, within=root)
        for key in files.compiled_here:
            make_empty_file(folder / key)
    with suppress(OSError):  # another process may be deleting the same records
        records = list(folder.iterdir())
        if len(records) > MAX_RECORDS:
            records.sort(key=lambda item: item.lstat().st_mtime)
            for item in records[: len(records) - MAX_RECORDS // 2]:
                item.unlink(missing_ok=True)


def read_code(files: PackageFiles, file: str, *, consent: bool, cache: Path | None = None) -> bytes:
    """Return the machine code of the segment ``file`` for loading.

    Raises PackageError if the manifest lacks its digest, or if the code is not trusted and there is no ``consent``.
    Records are read from ``cache``, by default :func:`cache_folder`.
    """
    data = files.unchanged(files.segment_path(file), listed=True)
    step = next((step for step in files.plan.segments if step.file == file), None) if files.plan is not None else None
    if consent or (step is not None and not files.manifest.is_connected and _is_trusted(files, step, cache)):
        return data
    reason = "belongs to several models" if files.manifest.is_connected else "was not compiled on this machine"
    hint = "compile the model here, or consent with --trust-code or trust_code=True"
    raise PackageError(f"the code {reason}, so it does not run without consent", location=files.location, hint=hint)


def distrust(files: PackageFiles, *, consent: bool = False, cache: Path | None = None) -> str | None:
    """Return the reason why :func:`read_code` rejects a segment of the package, or None."""
    for step in files.plan.segments if files.plan is not None else ():
        try:
            read_code(files, step.file, consent=consent, cache=cache)
        except PackageError as error:
            return f"{step.file}: {error}"
    return None


def _key(files: PackageFiles, step: SegmentStep) -> str:
    digest = files.manifest.files.get(files.segment_path(step.file))
    text = f"{files.model_digest} {step.operators} {step.inputs} {step.outputs} {digest}"
    return hashlib.sha256(text.encode()).hexdigest()


def _is_trusted(files: PackageFiles, step: SegmentStep, cache: Path | None) -> bool:
    key = _key(files, step)
    if key in files.compiled_here:
        return True
    try:
        root = cache_folder() if cache is None else cache
        folder = root / FOLDER
        if not os.path.lexists(folder):
            return False
        check_root(root)
        _check_folder(folder)
        found = (folder / key).lstat()
    except FileNotFoundError:
        return False
    except (OdcError, OSError) as error:
        raise PackageError(
            f"there is no record that the code was compiled on this machine: {error}",
            location=files.location,
            hint=f"name another cache folder with {CACHE_VARIABLE} and compile again, or consent with --trust-code",
        ) from None
    if not (stat.S_ISREG(found.st_mode) and is_ours(found)):
        return False
    with suppress(OSError):
        os.utime(folder / key)  # the least recently used records are deleted first
    return True


def _check_folder(folder: Path) -> None:
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise CacheError("the folder of records is a link or a file", location=str(folder), hint="remove it")
    if not is_ours(found):
        raise CacheError("the folder of records belongs to another user", location=str(folder), hint="remove it")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise CacheError("other users can write to the folder of records", location=str(folder), hint="remove it")
