"""The two metadata files of an nnpackage: ``metadata/MANIFEST`` (JSON), ``metadata/config.cfg`` (key=value lines)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from odc_mlir.errors import PackageError

MANIFEST_PATH = "metadata/MANIFEST"
CONFIG_NAME = "config.cfg"

# The version written: the newest whose keys are the ones used here. Any minor version of major 1 is read.
_VERSION = ("1", "2", "0")
_VERSION_KEYS = ("major-version", "minor-version", "patch-version")
# Our own key: the path of the plan in force. Other readers of nnpackages ignore keys that they do not know.
_PLAN_KEY = "odc-plan"


@dataclass(frozen=True, slots=True)
class Manifest:
    """``models`` are paths in the package, the first is the primary one; ``plan`` is the path of the plan, if any.

    ``configs`` are names of files in ``metadata/``, of which only the first counts.
    """

    models: tuple[str, ...]
    model_types: tuple[str, ...] = ()
    configs: tuple[str, ...] = ()
    plan: str | None = None
    has_connections: bool = False

    def to_json(self) -> bytes:
        """The text of ``metadata/MANIFEST``."""
        document: dict[str, Any] = dict(zip(_VERSION_KEYS, _VERSION, strict=True))
        if self.configs:
            document["configs"] = self.configs
        document |= {"models": self.models, "model-types": self.model_types}
        if self.plan is not None:
            document[_PLAN_KEY] = self.plan
        return (json.dumps(document, indent=2) + "\n").encode()


def parse_manifest(data: bytes, location: str) -> Manifest:
    """The manifest in ``data``; raises PackageError for malformed JSON, an unknown major version or bad paths."""
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise PackageError(f"{MANIFEST_PATH} is not valid JSON: {error}", location=location) from error
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
    return Manifest(
        models,
        _strings(document, "model-types", location),
        _strings(document, "configs", location),
        plan,
        has_connections=any(key in document for key in ("pkg-inputs", "pkg-outputs", "model-connect")),
    )


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
