"""Files of an nnpackage in a directory, a zip or memory, with manifest and configuration.

Packages are not trusted. Paths must stay inside of the package, and no path may occur twice. Members must not be links,
devices or encrypted. Sizes are limited before anything is read.
"""

from __future__ import annotations

import json
import os
import stat
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from odc_mlir.errors import PackageError, located, parsing
from odc_mlir.formats.cache import content_digest

MANIFEST_PATH = "metadata/MANIFEST"
CONFIG_NAME = "config.cfg"
CONFIG_PATH = f"metadata/{CONFIG_NAME}"

# Versions of our manifests, without and with connections. Readers accept any minor version of major version 1.
_VERSION, _CONNECTED_VERSION = ("1", "2", "0"), ("1", "3", "0")
_VERSION_KEYS = ("major-version", "minor-version", "patch-version")
# Our own key for the path of the active plan. Other readers of nnpackages ignore unknown keys.
_PLAN_KEY = "odc-plan"
# Keys of the digests of our files and of the manifest itself. Only unchanged files may be replaced.
_FILES_KEY, _OWN_KEY = "odc-files", "odc-digest"
_INPUTS_KEY, _OUTPUTS_KEY, _CONNECT_KEY = "pkg-inputs", "pkg-outputs", "model-connect"


class IoIndex(NamedTuple):
    """Input or output of a model in a package, ``model:subgraph:io``, counted from 0."""

    model: int
    subgraph: int
    io: int

    def __str__(self) -> str:
        return ":".join(map(str, self))


class Connection(NamedTuple):
    """Connection of the output ``source`` to ``targets``, inputs of other models."""

    source: IoIndex
    targets: tuple[IoIndex, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """Manifest of a package.

    ``models``: paths of the models, the primary one first.
    ``configs``: names of files in ``metadata/``, of which the first is used.
    ``plan``: path of the plan.
    ``connections``: join several models to one, with these ``inputs`` and ``outputs``.
    ``files``: SHA-256 of our files.
    """

    models: tuple[str, ...]
    model_types: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    plan: str | None = None
    inputs: tuple[IoIndex, ...] = ()
    outputs: tuple[IoIndex, ...] = ()
    connections: tuple[Connection, ...] = ()
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_connected(self) -> bool:
        """True if connections join several models to one."""
        return len(self.models) > 1 and bool(self.inputs or self.outputs or self.connections)

    def io_indices(self) -> Iterator[IoIndex]:
        yield from self.inputs
        yield from self.outputs
        for source, targets in self.connections:
            yield source
            yield from targets

    def to_json(self) -> bytes:
        version = _CONNECTED_VERSION if self.is_connected else _VERSION
        document: dict[str, Any] = dict(zip(_VERSION_KEYS, version, strict=True))
        if self.configs:
            document["configs"] = self.configs
        document |= {"models": self.models, "model-types": self.model_types}
        if self.is_connected:
            document[_INPUTS_KEY] = list(map(str, self.inputs))
            document[_OUTPUTS_KEY] = list(map(str, self.outputs))
            document[_CONNECT_KEY] = [
                {"from": str(edge.source), "to": list(map(str, edge.targets))} for edge in self.connections
            ]
        if self.plan is not None:
            document[_PLAN_KEY] = self.plan
        if self.files:
            document[_FILES_KEY] = dict(sorted(self.files.items()))
            document[_OWN_KEY] = _own_digest(document)
        return (json.dumps(document, indent=2) + "\n").encode()


def parse_manifest(data: bytes) -> Manifest:
    """Parse the manifest in ``data``.

    Raises PackageError for malformed JSON, an unknown major version or invalid paths.
    """
    with parsing(f"{MANIFEST_PATH} is not valid JSON", PackageError):
        document = json.loads(data)
    if not isinstance(document, dict):
        raise PackageError(f"{MANIFEST_PATH} must hold a JSON object")
    major = document.get(_VERSION_KEYS[0], _VERSION[0])
    if str(major) != _VERSION[0]:
        raise PackageError(
            f"{_VERSION_KEYS[0]} is {major!r} in {MANIFEST_PATH}; only nnpackages of version 1 can be read"
        )
    models = _paths(document, "models")
    if not models:
        raise PackageError(f"{MANIFEST_PATH} lists no models")
    plan = document.get(_PLAN_KEY)
    if plan is not None:
        check_member_path(plan)
    manifest = Manifest(
        models,
        _strings(document, "model-types"),
        _paths(document, "configs"),
        plan,
        _io_indices(document, _INPUTS_KEY),
        _io_indices(document, _OUTPUTS_KEY),
        _connections(document),
        _files(document),
    )
    _check_connections(manifest)
    return manifest


def recognised_files(data: bytes) -> dict[str, str]:
    """Return the unchanged files that the manifest lists as ours, including the manifest, with SHA-256.

    If the manifest is not ours or was changed, the result is empty.
    """
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or document.get(_OWN_KEY) != _own_digest(document):
            return {}
        return {**_files(document), MANIFEST_PATH: content_digest(data)}
    except (ValueError, RecursionError, PackageError):
        return {}


def _own_digest(document: Mapping[str, Any]) -> str:
    return content_digest(json.dumps({k: v for k, v in document.items() if k != _OWN_KEY}, sort_keys=True).encode())


def _files(document: Mapping[str, Any]) -> dict[str, str]:
    value = document.get(_FILES_KEY, {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise PackageError(f"{_FILES_KEY!r} in {MANIFEST_PATH} must map paths to digests")
    return {check_member_path(path): digest for path, digest in value.items()}


def _check_connections(manifest: Manifest) -> None:
    fed = {target for edge in manifest.connections for target in edge.targets}
    if both := next((item for item in manifest.inputs if item in fed), None):
        raise PackageError(f"{both} is an input of the package in {MANIFEST_PATH}, but {_CONNECT_KEY!r} feeds it")
    if manifest.is_connected and not (manifest.inputs and manifest.outputs):
        raise PackageError(f"{MANIFEST_PATH} connects models, so it must list {_INPUTS_KEY!r} and {_OUTPUTS_KEY!r}")


def _io_indices(document: Mapping[str, Any], key: str) -> tuple[IoIndex, ...]:
    found = tuple(parse_io_index(text, key) for text in _strings(document, key))
    if len(set(found)) != len(found):
        raise PackageError(f"{key!r} in {MANIFEST_PATH} lists something twice")
    return found


def _connections(document: Mapping[str, Any]) -> tuple[Connection, ...]:
    value = document.get(_CONNECT_KEY, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) and "from" in item for item in value):
        raise PackageError(f"{_CONNECT_KEY!r} in {MANIFEST_PATH} must be a list of objects with 'from' and 'to'")
    return tuple(Connection(parse_io_index(item["from"], _CONNECT_KEY), _io_indices(item, "to")) for item in value)


def parse_io_index(text: Any, key: str) -> IoIndex:
    """Parse the index ``text`` of the entry ``key``. Raises PackageError if it is malformed."""
    parts = text.split(":") if isinstance(text, str) else []
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise PackageError(f"{text!r} in {key!r} of {MANIFEST_PATH} is not of the form model:subgraph:index")
    return IoIndex(*map(int, parts))


def _strings(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PackageError(f"{key!r} in {MANIFEST_PATH} must be a list of strings")
    return tuple(value)


def _paths(document: Mapping[str, Any], key: str) -> tuple[str, ...]:
    paths = _strings(document, key)
    for path in paths:
        check_member_path(path)
    return paths


def check_member_path(path: Any) -> str:
    """Return ``path`` if it is a relative path with forward slashes inside of the package.

    Raises PackageError for other paths.
    """
    fault = _path_fault(path)
    if fault:
        raise PackageError(f"the member path {path!r} {fault}")
    return str(path)


def _path_fault(path: Any) -> str | None:
    if not isinstance(path, str) or not path:
        return "is not a path"
    if len(path) > 1024:
        return "is too long"
    if any(ord(c) < 32 or ord(c) == 127 or 0xD800 <= ord(c) < 0xE000 for c in path):
        return "holds control characters"
    if "\\" in path or ":" in path:
        return "holds a backslash or a colon"
    if path.startswith("/"):
        return "is absolute"
    if any(part in ("", ".", "..") for part in path.split("/")):
        return "is not in its simplest form or leaves the package"
    return None


def parse_config(data: bytes) -> dict[str, str]:
    """Parse the settings in ``data``. Comments after ``#``, and blanks and quotes around values are dropped.

    The last line of a key has priority. A line without ``=`` may separate key and value by blanks. Other lines are
    ignored.
    """
    settings: dict[str, str] = {}
    for line in data.decode("utf-8", "replace").splitlines():
        text = line.partition("#")[0].strip()
        key, separator, value = text.partition("=")
        if not separator:
            key, _, value = text.partition(" ")
        key, value = key.strip(), value.strip()
        if key and value:
            if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
                value = value[1:-1]
            settings[key] = value
    return settings


def format_config(settings: Mapping[str, str]) -> bytes:
    """Return the text of a ``config.cfg``, with one ``key=value`` per line in the order of ``settings``."""
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()


MAX_MEMBERS = 10_000
MAX_MEMBER_BYTES = 2 << 30  # size limit of a flatbuffer, and therefore of a model
# Largest ratio of the size of members to the size of an archive, with some slack for small archives of zeros. Real
# weights compress less; archives beyond this limit are attacks on memory.
MAX_EXPANSION = 200
_EXPANSION_SLACK_BYTES = 16 << 20


class DirectoryMembers(Mapping[str, bytes]):
    """Members of the package folder ``root``, read on first access. Raises PackageError if unreadable."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._real_root = root.resolve()

    def __getitem__(self, path: str) -> bytes:
        with located(str(self.root)):
            return self._read(check_member_path(path))

    def _read(self, path: str) -> bytes:
        file = self.root / path
        try:
            if not file.resolve().is_relative_to(self._real_root):
                raise PackageError(f"the member {path!r} is a link that leaves the package")
            found = file.stat()
            if not stat.S_ISREG(found.st_mode):
                raise PackageError(f"the member {path!r} is not a file")
            if found.st_size > MAX_MEMBER_BYTES:
                raise PackageError(
                    f"the member {path!r} has {found.st_size} bytes, at most {MAX_MEMBER_BYTES} are allowed"
                )
            return file.read_bytes()
        except (FileNotFoundError, NotADirectoryError):
            raise KeyError(path) from None
        except (OSError, RuntimeError) as error:  # RuntimeError: circular links
            raise PackageError(f"cannot read the member {path!r}: {error}") from error

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
    """Members of a zip file. Its directory is checked on opening, and members are read on demand.

    If all members are in one folder, as in a zip of the package folder, the folder is ignored.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        with located(str(file)):
            with parsing("cannot read the zip file", PackageError), zipfile.ZipFile(file) as archive:
                entries = [info for info in archive.infolist() if not info.is_dir()]
            self._entries = self._without_common_folder(self._checked(entries))

    def _checked(self, entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
        if len(entries) > MAX_MEMBERS:
            raise PackageError(f"more than {MAX_MEMBERS} files")
        total = sum(info.file_size for info in entries)
        limit = self.file.stat().st_size * MAX_EXPANSION + _EXPANSION_SLACK_BYTES
        if total > limit:
            raise PackageError(
                f"the members claim {total} bytes, more than the {limit} that an archive of this size may hold"
            )
        result: dict[str, zipfile.ZipInfo] = {}
        for info in entries:
            path = check_member_path(info.orig_filename)
            if path in result:
                raise PackageError(f"the member {path!r} is given twice")
            if info.flag_bits & 1:
                raise PackageError(f"the member {path!r} is encrypted")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise PackageError(
                    f"the member {path!r} is compressed by method {info.compress_type}, expected stored or deflated"
                )
            if stat.S_ISLNK(info.external_attr >> 16):
                raise PackageError(f"the member {path!r} is a link")
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
            located(str(self.file)),
            parsing(f"cannot read the member {path!r}", PackageError),
            zipfile.ZipFile(self.file) as archive,
            archive.open(info) as member,
        ):
            # Read one byte more than the stated size, to detect a larger member.
            data = member.read(info.file_size + 1)
            if len(data) != info.file_size:
                raise PackageError(f"the member {path!r} has not the {info.file_size} bytes that it claims")
            return data

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, path: object) -> bool:
        return path in self._entries
