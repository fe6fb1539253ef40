"""Cache folder for files that can be computed again, and the keys of its entries."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

from odc_mlir.errors import ModelError, OptionError, of_system

CACHE_VARIABLE = "ODC_CACHE_DIR"
LIMIT_VARIABLE = "ODC_CACHE_LIMIT_MB"
DEFAULT_LIMIT_MB = 1024
FOLDERS = ("compiled", "made", "models", "native", "plugins", "records", "tilings", "trusted")
"""Folders of a cache. Other entries do not belong to this project."""
RECORDS_FILE = "ranges.sqlite"
_NAME = "odc-mlir"


def cache_folder() -> Path:
    """Return ``$ODC_CACHE_DIR``, else ``$XDG_CACHE_HOME/odc-mlir``, else ``~/.cache/odc-mlir``.

    The folder need not exist. Raises OptionError if ODC_CACHE_DIR is not absolute or there is no home folder. A
    relative XDG_CACHE_HOME is ignored, as the XDG base directory specification requires.
    """
    if ours := os.environ.get(CACHE_VARIABLE):
        folder = Path(ours)
        if not folder.is_absolute():
            raise OptionError(f"the variable {CACHE_VARIABLE} is {ours!r}, expected an absolute path")
        return folder
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / _NAME
    try:
        return Path.home() / ".cache" / _NAME
    except RuntimeError:
        raise OptionError("there is no home folder for a cache", hint=f"set {CACHE_VARIABLE}") from None


def records_path(digest: str, folder: Path | None = None) -> Path:
    """Return the file of recorded ranges of a model, in the cache or another ``folder``."""
    return (cache_folder() if folder is None else folder) / "records" / digest / RECORDS_FILE


def content_digest(source: str | os.PathLike[str] | bytes | bytearray | memoryview) -> str:
    """Return the SHA-256 of a file or of bytes, in hexadecimal. Raises ModelError for an unreadable file."""
    if isinstance(source, (bytes, bytearray, memoryview)):
        return hashlib.sha256(source).hexdigest()
    with of_system("cannot read the file", ModelError, location=os.fspath(source)), open(source, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def path_digest(path: str) -> str | None:
    """Return the digest of a file, or of everything in a folder, or None for a missing path."""
    root = Path(path)
    if root.is_dir():
        whole = hashlib.sha256()
        for file in sorted(item for item in root.rglob("*") if item.is_file()):
            whole.update(f"{file.relative_to(root)}\0{content_digest(file)}\0".encode())
        return whole.hexdigest()
    return content_digest(root) if root.is_file() else None
