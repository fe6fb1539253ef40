"""Output files, written completely or not at all. All commands and functions follow the same rules.

Files of this project are replaced if they are recognised: packages by the digests in the manifest, single files by kind
(:mod:`odc_mlir.formats.kinds`). Empty files, devices and pipes are also replaced. All other files need ``overwrite``.
Even with ``overwrite``, unrelated files in a folder stay, files do not replace folders or vice versa, and inputs stay.
"""

from __future__ import annotations

import errno
import hashlib
import logging
import os
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from odc_mlir.errors import OdcError, OptionError, PackageError, of_system, parsing
from odc_mlir.formats.cache import cache_folder, content_digest
from odc_mlir.formats.kinds import FILE_SUFFIXES, FOLDER, ZIP, OutputKind
from odc_mlir.formats.manifest import MANIFEST_PATH, recognised_files

_AT_FDCWD, _RENAME_EXCHANGE = -100, 2  # constants of Linux's renameat2


def write_file(path: str | os.PathLike[str], *chunks: bytes | bytearray | memoryview) -> None:
    """Write ``chunks`` to ``path``. Replaces a file atomically, even if power is lost. Raises OdcError.

    Links keep pointing to the file, and permissions stay. Devices and pipes are written directly. A pipe without a
    reader is an error.
    """
    with of_system("the file cannot be written", OdcError, location=os.fspath(path)):
        target = Path(os.path.realpath(path))
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and not stat.S_ISREG(mode):
            _write_special(target, chunks)
            return
        replace_file(target, chunks, None if mode is None else stat.S_IMODE(mode))


def _write_special(target: Path, chunks: Sequence[bytes | bytearray | memoryview]) -> None:
    # Without O_NONBLOCK, opening a pipe that has no reader would block.
    try:
        descriptor = os.open(target, os.O_WRONLY | getattr(os, "O_NONBLOCK", 0))
    except OSError as error:
        if error.errno == errno.ENXIO:
            raise OSError(error.errno, "nobody reads the pipe") from None
        raise
    with open(descriptor, "wb") as file:
        os.set_blocking(descriptor, True)
        file.writelines(chunks)


def sync_folder(path: str | os.PathLike[str]) -> None:
    """Flush the names in a folder to the disk, if the system supports that. The names then survive a power loss."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def exchange(first: Path, second: Path) -> bool:
    """Exchange two files or folders atomically. Returns False, without a change, if the system cannot do that.

    With two renamings instead, the folder would be missing for a moment.
    """
    try:
        import ctypes

        rename = ctypes.CDLL(None).renameat2
    except (ImportError, AttributeError, OSError, TypeError):  # a system without renameat2
        return False
    paths = [os.fsencode(path) for path in (first, second)]
    return bool(rename(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_EXCHANGE) == 0)


def replace_file(target: Path, chunks: Sequence[bytes | bytearray | memoryview], mode: int | None = None) -> None:
    """Replace ``target`` by a file of ``chunks`` with permissions ``mode``. Raises OSError."""
    # Several processes may write the same target at the same time, so the name is random. It does not contain the
    # target's name, which may already have the maximal length.
    temporary = target.with_name(f".odc-{secrets.token_hex(8)}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    try:
        with open(os.open(temporary, flags, 0o666 if mode is None else mode), "wb") as file:
            file.writelines(chunks)
            file.flush()
            if mode is not None:
                temporary.chmod(mode)
            os.fsync(file.fileno())
        temporary.replace(target)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(target.parent)


_log = logging.getLogger(__name__)

FilePath = str | os.PathLike[str]

_MADE = "made"  # cache folder of outputs for models in read-only folders
_CHOOSE = "choose another name"
_HINT = f"{_CHOOSE}, or overwrite it (--overwrite, overwrite=True)"


def check_output(
    path: FilePath,
    kind: OutputKind,
    *,
    overwrite: bool = False,
    inputs: Iterable[FilePath] = (),
    makes_folders: bool = True,
) -> None:
    """Raise OptionError (PackageError for packages) unless ``path`` may be written.

    ``makes_folders`` creates missing parents. ``inputs`` are files and folders that are read and must not be replaced.
    """
    wrong = PackageError if kind in (FOLDER, ZIP) else OptionError
    text = os.fspath(path)
    if kind.suffixes and Path(text).suffix.lower() not in kind.suffixes:
        *others, last = kind.suffixes
        names = f"{', '.join(others)} or {last}" if others else last
        raise wrong(f"cannot tell the format of {text!r} by its name", hint=f"use {names}")
    target = Path(os.path.realpath(text))
    with of_system("the output cannot be written", wrong, location=text):
        mode = target.stat().st_mode if target.exists() else None
        if mode is not None and any(_would_replace_input(target, kind, item) for item in inputs):
            raise wrong("it is read as well, and would be replaced", location=text, hint=_CHOOSE)
        if mode is None:
            _check_name(text, kind, wrong)
            _check_parent(target.parent, makes_folders)
        elif stat.S_ISDIR(mode):
            if not kind.is_folder:
                raise wrong("a folder is in the way", location=text, hint=_CHOOSE)
            _check_folder(target, text, overwrite)
            _check_parent(target.parent, makes_folders)
        elif kind.is_folder:
            raise wrong("a file is in the way of the folder", location=text, hint=_CHOOSE)
        elif stat.S_ISREG(mode):
            if not overwrite and target.stat().st_size and not _is_ours(target, kind):
                raise wrong(f"the file there is not {kind.name} that odc-mlir wrote", location=text, hint=_HINT)
            _check_parent(target.parent, makes_folders)


def write_output(
    path: FilePath, data: bytes | bytearray | memoryview, kind: OutputKind, *, overwrite: bool = False
) -> None:
    """Write ``data`` to the file ``path`` in one step, if it may be written. Raises OdcError."""
    check_output(path, kind, overwrite=overwrite or is_in_cache(path) or _has_contents(Path(path), data))
    write_file(path, data)


def beside_or_in_cache(model: FilePath, wanted: FilePath, kind: OutputKind) -> Path:
    """Return ``wanted``, a path next to ``model``, or a path in the cache if ``wanted`` must not be written.

    Logs a warning for a path in the cache. Raises OdcError if there is no cache.
    """
    try:
        check_output(wanted, kind, inputs=[model])
    except OdcError as error:
        key = hashlib.sha256(os.path.realpath(model).encode()).hexdigest()[:16]
        place = cache_folder() / _MADE / key / Path(wanted).name
        check_output(place, kind, overwrite=True)
        _log.warning("results of %s go to %s: %s", os.fspath(model), place, error)
        return place
    return Path(wanted)


def is_in_cache(path: FilePath) -> bool:
    """Return whether this path is in the cache's folder of outputs, where all files are ours."""
    try:
        return Path(path).is_relative_to(cache_folder() / _MADE)
    except OptionError:  # there is no cache
        return False


def _has_contents(path: Path, data: bytes | bytearray | memoryview) -> bool:
    return path.is_file() and path.stat().st_size == len(data) and path.read_bytes() == data


def _would_replace_input(target: Path, kind: OutputKind, source: FilePath) -> bool:
    if not os.path.exists(source):
        return False
    if target.samefile(source):
        return True
    is_inside = os.path.isdir(source) and target.is_relative_to(os.path.realpath(source))
    return is_inside and target.is_file() and not _is_ours(target, kind)


def _check_name(text: str, kind: OutputKind, wrong: type[OdcError]) -> None:
    if os.path.islink(os.path.realpath(text)):
        raise wrong("the link there leads to itself", location=text, hint=f"remove it, or {_CHOOSE}")
    if not kind.is_folder and text.endswith(("/", os.sep)):
        raise wrong("this is the name of a folder, but the output is a file", location=text, hint=_CHOOSE)
    if kind.is_folder and Path(text).suffix.lower() in FILE_SUFFIXES:
        hint = "name a folder, or a zip that ends with .zip"
        raise wrong("this is the name of a single file, but the output is a folder", location=text, hint=hint)


def _check_parent(parent: Path, makes_folders: bool) -> None:
    """Write a test file in the folder, because permissions do not show a full or read-only disk.

    If the folder does not exist, its nearest existing parent is used.
    """
    import tempfile

    if makes_folders:
        parent.mkdir(parents=True, exist_ok=True)
    else:
        while not parent.exists():
            parent = parent.parent
    with tempfile.TemporaryFile(prefix=".odc-", dir=parent) as file:
        file.write(b"\0")


def _check_folder(folder: Path, text: str, overwrite: bool) -> None:
    if overwrite:
        return
    unknown = next(unknown_entries(folder), None)
    if unknown is not None:
        raise PackageError(
            f"{unknown!r} is in the way: odc-mlir did not write it, or it was changed", location=text, hint=_HINT
        )


def entries(folder: Path) -> Iterator[str]:
    """Yield the sorted paths of all files and links in ``folder``, with forward slashes."""
    for inner, folders, files in os.walk(folder):
        folders.sort()
        links = [name for name in folders if (Path(inner) / name).is_symlink()]
        for name in sorted([*files, *links]):
            yield (Path(inner) / name).relative_to(folder).as_posix()


def unknown_entries(folder: Path) -> Iterator[str]:
    """Yield the files of a package folder that its manifest does not list, or lists with another digest."""
    manifest = folder / MANIFEST_PATH
    known = recognised_files(manifest.read_bytes()) if _is_plain(manifest) else {}
    for name in entries(folder):
        if name not in known or not is_unchanged(folder / name, known[name]):
            yield name


def is_unchanged(file: Path, digest: str) -> bool:
    """Return whether ``file`` is a file, not a link, with this SHA-256."""
    return _is_plain(file) and content_digest(file.read_bytes()) == digest


def _is_plain(file: Path) -> bool:
    try:
        return stat.S_ISREG(file.lstat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False


def _is_ours(path: Path, kind: OutputKind) -> bool:
    try:
        with parsing("not recognised", OptionError):
            return kind.recognises(path)
    except OdcError:
        return False
