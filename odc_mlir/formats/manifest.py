"""The two metadata files of an nnpackage: ``metadata/MANIFEST`` (JSON), ``metadata/config.cfg`` (key=value lines)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from odc_mlir.errors import PackageError, parsing

MANIFEST_PATH = "metadata/MANIFEST"
CONFIG_NAME = "config.cfg"

# The versions written: the newest whose keys are the ones used, without connections and with. Any minor version of
# major 1 is read.
_VERSION, _CONNECTED_VERSION = ("1", "2", "0"), ("1", "3", "0")
_VERSION_KEYS = ("major-version", "minor-version", "patch-version")
# Our own key: the path of the plan in force. Other readers of nnpackages ignore keys that they do not know.
_PLAN_KEY = "odc-plan"
# The digests of all files that we wrote, and one of the manifest itself: what still has them may be replaced.
_FILES_KEY, _OWN_KEY = "odc-files", "odc-digest"
_INPUTS_KEY, _OUTPUTS_KEY, _CONNECT_KEY = "pkg-inputs", "pkg-outputs", "model-connect"


class IoIndex(NamedTuple):
    """An input or output of a package's models: ``model:subgraph:io``, all counted from 0."""

    model: int
    subgraph: int
    io: int

    def __str__(self) -> str:
        return ":".join(map(str, self))


class Connection(NamedTuple):
    """The output ``source`` of one model feeds the inputs ``targets`` of others."""

    source: IoIndex
    targets: tuple[IoIndex, ...]


@dataclass(frozen=True, slots=True)
class Manifest:
    """``models`` are paths in the package, the first is the primary one; ``plan`` is the path of the plan, if any.

    ``configs`` are names of files in ``metadata/``, of which only the first counts. Several models make one when
    ``connections`` say what feeds what; ``inputs`` and ``outputs`` are those of the whole then, in order. ``files`` are
    the members that we wrote, each with its SHA-256.
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
        """Whether several models are one."""
        return len(self.models) > 1 and bool(self.inputs or self.outputs or self.connections)

    def io_indices(self) -> Iterator[IoIndex]:
        """Every input and output that is named anywhere."""
        yield from self.inputs
        yield from self.outputs
        for source, targets in self.connections:
            yield source
            yield from targets

    def to_json(self) -> bytes:
        """The text of ``metadata/MANIFEST``."""
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


def parse_manifest(data: bytes, location: str) -> Manifest:
    """The manifest in ``data``; raises PackageError for malformed JSON, an unknown major version or bad paths."""
    with parsing(f"{MANIFEST_PATH} is not valid JSON", PackageError, location=location):
        document = json.loads(data)
    if not isinstance(document, dict):
        raise PackageError(f"{MANIFEST_PATH} must hold a JSON object", location=location)
    major = document.get(_VERSION_KEYS[0], _VERSION[0])
    if str(major) != _VERSION[0]:
        raise PackageError(
            f"{_VERSION_KEYS[0]} is {major!r} in {MANIFEST_PATH}; only nnpackages of version 1 can be read",
            location=location,
        )
    models = _paths(document, "models", location)
    if not models:
        raise PackageError(f"{MANIFEST_PATH} lists no models", location=location)
    plan = document.get(_PLAN_KEY)
    if plan is not None:
        check_member_path(plan, location)
    manifest = Manifest(
        models,
        _strings(document, "model-types", location),
        _paths(document, "configs", location),
        plan,
        _io_indices(document, _INPUTS_KEY, location),
        _io_indices(document, _OUTPUTS_KEY, location),
        _connections(document, location),
        _files(document, location),
    )
    _check_connections(manifest, location)
    return manifest


def digest_of(data: bytes) -> str:
    """The SHA-256 of a member, as a manifest lists it."""
    return hashlib.sha256(data).hexdigest()


def recognised_files(data: bytes) -> dict[str, str]:
    """The members that the manifest ``data`` lists as written by us, itself included, each with its SHA-256.

    Nothing when the manifest is not ours, or not as we wrote it.
    """
    try:
        document = json.loads(data)
        if not isinstance(document, dict) or document.get(_OWN_KEY) != _own_digest(document):
            return {}
        return {**_files(document, ""), MANIFEST_PATH: digest_of(data)}
    except (ValueError, RecursionError, PackageError):
        return {}


def _own_digest(document: Mapping[str, Any]) -> str:
    return digest_of(json.dumps({k: v for k, v in document.items() if k != _OWN_KEY}, sort_keys=True).encode())


def _files(document: Mapping[str, Any], location: str) -> dict[str, str]:
    value = document.get(_FILES_KEY, {})
    if not isinstance(value, dict) or not all(isinstance(item, str) for item in value.values()):
        raise PackageError(f"{_FILES_KEY!r} in {MANIFEST_PATH} must map paths to digests", location=location)
    return {check_member_path(path, location): digest for path, digest in value.items()}


def _check_connections(manifest: Manifest, location: str) -> None:
    fed = {target for edge in manifest.connections for target in edge.targets}
    if both := next((item for item in manifest.inputs if item in fed), None):
        raise PackageError(
            f"{both} is an input of the package in {MANIFEST_PATH}, but {_CONNECT_KEY!r} feeds it", location=location
        )
    if manifest.is_connected and not (manifest.inputs and manifest.outputs):
        raise PackageError(
            f"{MANIFEST_PATH} connects models, so it must list {_INPUTS_KEY!r} and {_OUTPUTS_KEY!r}", location=location
        )


def _io_indices(document: Mapping[str, Any], key: str, location: str) -> tuple[IoIndex, ...]:
    found = tuple(parse_io_index(text, key, location) for text in _strings(document, key, location))
    if len(set(found)) != len(found):
        raise PackageError(f"{key!r} in {MANIFEST_PATH} lists something twice", location=location)
    return found


def _connections(document: Mapping[str, Any], location: str) -> tuple[Connection, ...]:
    value = document.get(_CONNECT_KEY, [])
    if not isinstance(value, list) or not all(isinstance(item, dict) and "from" in item for item in value):
        raise PackageError(
            f"{_CONNECT_KEY!r} in {MANIFEST_PATH} must be a list of objects with 'from' and 'to'", location=location
        )
    return tuple(
        Connection(parse_io_index(item["from"], _CONNECT_KEY, location), _io_indices(item, "to", location))
        for item in value
    )


def parse_io_index(text: Any, key: str, location: str) -> IoIndex:
    """``text`` as an index, found under ``key``; raises PackageError for anything malformed."""
    parts = text.split(":") if isinstance(text, str) else []
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) < 10 for part in parts):
        raise PackageError(
            f"{text!r} in {key!r} of {MANIFEST_PATH} is not of the form model:subgraph:index", location=location
        )
    return IoIndex(*map(int, parts))


def _strings(document: Mapping[str, Any], key: str, location: str) -> tuple[str, ...]:
    value = document.get(key, [])
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise PackageError(f"{key!r} in {MANIFEST_PATH} must be a list of strings", location=location)
    return tuple(value)


def _paths(document: Mapping[str, Any], key: str, location: str) -> tuple[str, ...]:
    paths = _strings(document, key, location)
    for path in paths:
        check_member_path(path, location)
    return paths


def check_member_path(path: Any, location: str) -> str:
    """``path`` if it is a relative path with forward slashes that cannot leave the package; raises PackageError."""
    fault = _path_fault(path)
    if fault:
        raise PackageError(f"the member path {path!r} {fault}", location=location)
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
    """The settings in ``data``: text after ``#`` is dropped, blanks and quotes around values too; later lines win.

    A line without ``=`` may separate key and value by blanks; a line with neither is ignored.
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
    """The text of a ``config.cfg``: one ``key=value`` per line, in the order of ``settings``."""
    return "".join(f"{key}={value}\n" for key, value in settings.items()).encode()
