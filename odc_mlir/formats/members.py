"""The files of a package as a read-only mapping from member path to bytes, whether a directory, a zip or in memory.

Packages come from elsewhere, so nothing about them is trusted: a path cannot leave the package, a member cannot be a
link, a device or encrypted, no path appears twice, and sizes are limited before anything is read.
"""

from __future__ import annotations

import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from odc_mlir.errors import PackageError, parsing
from odc_mlir.formats.manifest import MANIFEST_PATH, check_member_path

MAX_MEMBERS = 10_000
# Deflate cannot shrink real weights by more; an archive that claims to hold more than this many times its own size
# (plus some slack for small ones full of zeros) is meant to exhaust memory.
MAX_EXPANSION = 200
_EXPANSION_SLACK_BYTES = 16 << 20


class DirectoryMembers(Mapping[str, bytes]):
    """Members of the package folder ``root``, read on first access; raises PackageError for an unreadable one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real_root = root.resolve()

    def __getitem__(self, path: str) -> bytes:
        check_member_path(path, str(self.root))
        file = self.root / path
        try:
            if not file.resolve().is_relative_to(self._real_root):
                raise PackageError(f"the member {path!r} is a link that leaves the package", location=str(self.root))
            if not stat.S_ISREG(file.stat().st_mode):
                raise PackageError(f"the member {path!r} is not a file", location=str(self.root))
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(path) from None
        except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
            raise PackageError(f"cannot read the member {path!r}: {error}", location=str(self.root)) from error

    def __iter__(self) -> Iterator[str]:
        count = 0
        for folder, folders, files in os.walk(self.root):
            folders.sort()
            for name in sorted(files):
                count += 1
                if count > MAX_MEMBERS:
                    raise PackageError(f"more than {MAX_MEMBERS} files", location=str(self.root))
                yield (Path(folder) / name).relative_to(self.root).as_posix()

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and (self.root / path).is_file()


class ZipMembers(Mapping[str, bytes]):
    """Members of the zip file ``file``: its directory is checked at once, members are read when asked for.

    An archive whose members all lie in one folder (made by zipping the package folder itself) reads like one without.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with parsing("cannot read the zip file", PackageError, location=str(file)), zipfile.ZipFile(file) as archive:
            entries = [info for info in archive.infolist() if not info.is_dir()]
        self._entries = self._without_common_folder(self._checked(entries))

    def _checked(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        if len(entries) > MAX_MEMBERS:
            raise PackageError(f"more than {MAX_MEMBERS} files", location=str(self.file))
        total = sum(info.file_size for info in entries)
        limit = self.file.stat().st_size * MAX_EXPANSION + _EXPANSION_SLACK_BYTES
        if total > limit:
            raise PackageError(
                f"the members claim {total} bytes, more than the {limit} that an archive of this size may hold",
                location=str(self.file),
            )
        result: dict[str, zipfile.ZipInfo] = {}
        for info in entries:
            path = check_member_path(info.orig_filename, str(self.file))
            if path in result:
                raise PackageError(f"the member {path!r} is given twice", location=str(self.file))
            if info.flag_bits & 1:
                raise PackageError(f"the member {path!r} is encrypted", location=str(self.file))
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise PackageError(
                    f"the member {path!r} is compressed by method {info.compress_type}, expected stored or deflated",
                    location=str(self.file),
                )
            if stat.S_ISLNK(info.external_attr >> 16):
                raise PackageError(f"the member {path!r} is a link", location=str(self.file))
            result[path] = info
        return result

    @staticmethod
    def _without_common_folder(entries: dict[str, zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        folders = {path.partition("/")[0] for path in entries}
        if MANIFEST_PATH not in entries and len(folders) == 1:
            (folder,) = folders
            if f"{folder}/{MANIFEST_PATH}" in entries:
                return {path.removeprefix(f"{folder}/"): info for path, info in entries.items()}
        return entries

    def __getitem__(self, path: str) -> bytes:
        info = self._entries[path]
        with (
            parsing(f"cannot read the member {path!r}", PackageError, location=str(self.file)),
            zipfile.ZipFile(self.file) as archive,
            archive.open(info) as member,
        ):
            # One byte more than claimed is asked for, so that a member that is longer than it says is noticed.
            data = member.read(info.file_size + 1)
        if len(data) != info.file_size:
            raise PackageError(
                f"the member {path!r} has not the {info.file_size} bytes that it claims", location=str(self.file)
            )
        return data

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, path: object) -> bool:
        return path in self._entries
