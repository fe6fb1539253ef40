"""The model of a session, wherever it comes from: a file, bytes, or an nnpackage with its settings and plan."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from odc_mlir.errors import ModelError, OdcError, SessionError
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.circle.model import Model
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.formats.circle.writer import write_model
from odc_mlir.formats.package import PackageFiles, is_package
from odc_mlir.formats.package_update import read_original
from odc_mlir.ops.registry import CustomOps
from odc_mlir.runtime.execution.graph import Graph, build_graph
from odc_mlir.runtime.package import Package

_log = logging.getLogger(__name__)

_MAX_PATH_BYTES = 1023


@dataclass(frozen=True)
class Source:
    """``records`` is the whole model; ``package`` is there for packages, ``data`` for bytes, ``path`` for files."""

    records: Model
    path: Path | None = None
    package: Package | None = None
    data: bytes | None = None
    config: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stamp: tuple[int, ...] = ()  # of the file when it was read
    problem: str | None = None  # why what was installed in the package is not used

    def graph(self, signature: str | None, custom_ops: CustomOps) -> Graph:
        """The graph of ``signature``, or the first one; raises OdcError."""
        subgraph = 0 if signature is None else self.subgraph_of(signature)
        return build_graph(self.records, subgraph, custom_ops=custom_ops)

    def subgraph_of(self, signature: str) -> int:
        """The subgraph of the signature called ``signature``; raises SessionError for one that the model lacks."""
        for record in self.records.signatures:
            if record.key == signature:
                return record.subgraph
        known = ", ".join(repr(record.key) for record in self.records.signatures) or "none"
        raise SessionError(f"the model has no signature {signature!r}", hint=f"it has {known}")


def source_from_path(path: str | os.PathLike[str]) -> Source:
    """The model file or nnpackage at ``path``, told apart by content; raises OdcError."""
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise SessionError(f"the path must be text, not {type(text).__name__}")
    if len(os.fsencode(text)) > _MAX_PATH_BYTES:
        raise SessionError(f"the path is longer than {_MAX_PATH_BYTES} bytes")
    if is_package(text):
        return _source_from_folder_or_zip(Path(text))
    stamp = _stamp(Path(text))
    return Source(read_model(text), Path(text), stamp=stamp)


def _source_from_folder_or_zip(path: Path) -> Source:
    """The nnpackage at ``path``; if what was installed in it cannot be used, as it was before."""
    try:
        package = Package.from_path(path)
        return Source(package.model, path, package, config=package.files.config)
    except OdcError as error:
        files = read_original(path)
        if files is None:
            raise
        return _restored(path, files, error)


def without_installed(source: Source, error: OdcError) -> Source | None:
    """``source`` as it was before anything was installed in it, because of ``error``; None where nothing was."""
    if source.package is None or source.package.plan is None or source.path is None:
        return None
    files = read_original(source.path)
    return None if files is None or files.plan is not None else _restored(source.path, files, error)


def _restored(path: Path, files: PackageFiles, error: OdcError) -> Source:
    _log.warning("the compiled parts of the package %s cannot be used: %s", path, error)
    package = Package(files)
    return Source(package.model, path, package, config=files.config, problem=str(error))


def _stamp(path: Path) -> tuple[int, ...]:
    """What changes when a file does; empty where there is none."""
    try:
        found = path.stat()
    except OSError:
        return ()
    return found.st_ino, found.st_size, found.st_mtime_ns


def model_bytes(source: Source) -> bytes:
    """The bytes of the model file that ``source`` stands for; raises ModelError when it is another one by now."""
    if source.data is not None:
        return source.data
    if source.package is not None:
        manifest = source.package.files.manifest
        return bytes(write_model(source.records) if manifest.is_connected else source.package.files.model)
    if source.path is None or _stamp(source.path) != source.stamp:
        raise ModelError("the model file has changed since it was loaded", location=str(source.path))
    return source.path.read_bytes()


def model_path(source: Source) -> Path | None:
    """A file of exactly those bytes, None where there is none."""
    if source.package is None or source.path is None:
        return source.path
    manifest = source.package.files.manifest
    return source.path / manifest.models[0] if source.path.is_dir() and not manifest.is_connected else None


def model_digest(source: Source) -> str:
    """The SHA-256 of the model file that ``source`` stands for, in hexadecimal; raises ModelError as above."""
    if source.path is not None and source.package is None and _stamp(source.path) == source.stamp:
        return content_digest(source.path)
    return content_digest(model_bytes(source))


def source_from_bytes(data: bytes | bytearray | memoryview) -> Source:
    """The model in ``data``, which is copied; raises OdcError."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise SessionError(f"the model must be bytes, not {type(data).__name__}")
    if not len(data):
        raise SessionError("the model has no bytes")
    kept = bytes(data)
    return Source(read_model(kept), data=kept)


def source_from_package(package: Package) -> Source:
    """An nnpackage in memory."""
    return Source(package.model, None, package, config=package.files.config)
