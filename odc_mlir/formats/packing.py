"""Making nnpackages of model files, and taking packages apart."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from odc_mlir.errors import OptionError, PackageError
from odc_mlir.formats.circle.connect import connect
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.manifest import (
    CONFIG_NAME,
    CONFIG_PATH,
    MANIFEST_PATH,
    Connection,
    IoIndex,
    Manifest,
    parse_config,
    parse_io_index,
    parse_manifest,
)
from odc_mlir.formats.package import PackageFiles, read_package, sealed, write_package


def pack(
    models: Sequence[str | os.PathLike[str]],
    *,
    config: str | os.PathLike[str] | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    connections: Sequence[str] = (),
) -> PackageFiles:
    """Packages of model files without compiled code; the first model is the primary one.

    Several models become one when ``connections`` (``"0:0:0=1:0:0,1:0:1"``, an output and the inputs that it feeds)
    join them; ``inputs`` and ``outputs`` then are ``"model:subgraph:index"`` of the whole's. Raises OptionError for
    names that clash or indices that are malformed, ModelError for files that are no models, and PackageError for models
    that do not fit together.
    """
    if not models:
        raise OptionError("a package needs at least one model")
    members: dict[str, bytes] = {}
    for path in map(Path, models):
        if path.name in members:
            raise OptionError(f"two models are called {path.name!r}", hint="rename one: they share a folder")
        members[path.name] = path.read_bytes()
    records = [read_model(data) for data in members.values()]
    manifest = Manifest(
        tuple(members),
        tuple(model.schema for model in records),
        inputs=_indices(inputs),
        outputs=_indices(outputs),
        connections=tuple(map(_connection, connections)),
    )
    settings: dict[str, str] = {}
    if config is not None:
        data = Path(config).read_bytes()
        settings = parse_config(data)
        members[CONFIG_PATH] = data
        manifest = replace(manifest, configs=(CONFIG_NAME,))
    members[MANIFEST_PATH] = manifest.to_json()
    parse_manifest(members[MANIFEST_PATH], "new package")
    if manifest.is_connected:
        connect(records, manifest, "new package")
    return sealed(PackageFiles(members, manifest, settings, None, "new package"))


def unpack(path: str | os.PathLike[str], folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the package at ``path``, a zip or a folder, as the folder ``folder``; raises PackageError."""
    if str(folder).lower().endswith(".zip"):
        raise PackageError("a package is unpacked into a folder, not into a zip", location=os.fspath(folder))
    write_package(read_package(path), folder, overwrite=overwrite)


def _indices(texts: Sequence[str]) -> tuple[IoIndex, ...]:
    return tuple(parse_io_index(text, "the command line", "new package") for text in texts)


def _connection(text: str) -> Connection:
    source, separator, targets = text.partition("=")
    if not separator:
        raise OptionError(f"the connection {text!r} is not of the form output=input,…", hint="for example 0:0:0=1:0:0")
    return Connection(_indices([source])[0], _indices(targets.split(",")))
