"""Putting what was compiled into the package that it was compiled from, and taking it out again.

The package's own models stay where they are, and its manifest as ``metadata/MANIFEST.orig``. What is added lies in one
new folder::

    odc/<key>/model.circle    the model that the plan runs, where it is not one of the package's own (quantised, say)
    odc/<key>/plan.json, segment-*.npu

In a folder the new one is complete and on the disk before the manifest, replaced in one step, names it: whoever reads
the package at any time, or after any crash, finds the old state or the new one. A zip is written anew and renamed.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from odc_mlir.errors import PackageError
from odc_mlir.formats.atomic import sync_folder, write_file
from odc_mlir.formats.manifest import MANIFEST_PATH, Manifest
from odc_mlir.formats.package import MODEL_NAME, PackageFiles, open_members, parse_package, read_package, zip_bytes

ORIGINAL_PATH = "metadata/MANIFEST.orig"
_COMPILED_FOLDER = "odc"

Plans = tuple[str | None, ...]


def install(path: str | os.PathLike[str], compiled: PackageFiles) -> PackageFiles:
    """Let the package at ``path`` run what ``compiled`` holds from now on; the package as it is afterwards.

    Raises PackageError when ``compiled`` has no plan, and when the package cannot be read or written; it is unchanged
    then.
    """
    package = read_package(path)
    manifest, added = _additions(package, compiled)
    if package.manifest.plan == manifest.plan:
        return package  # the folder's name is a digest of what it holds
    first = original_of(package)
    original = {} if first else {ORIGINAL_PATH: package.members[MANIFEST_PATH]}
    # The plan before this one stays for processes that still run it, the first one for rolling back.
    plans = (manifest.plan, package.manifest.plan, first.manifest.plan if first else None)
    try:
        if Path(path).is_dir():
            _commit_folder(Path(path), added, original, manifest)
            _prune(Path(path), plans)
        else:
            members = {**_without_others(package.members, plans), **original, **added}
            write_file(path, zip_bytes({**members, MANIFEST_PATH: manifest.to_json()}))
    except OSError as error:
        raise PackageError(f"cannot update the package: {error}", location=os.fspath(path)) from error
    return read_package(path)


def roll_back(path: str | os.PathLike[str]) -> PackageFiles:
    """Undo every :func:`install`: the package runs its own models again, and nothing compiled is left in it.

    Raises PackageError when nothing was installed, and when the package cannot be read or written.
    """
    package = read_package(path)
    original = original_of(package)
    if original is None:
        raise PackageError("nothing was installed in this package, so nothing can be undone", location=os.fspath(path))
    try:
        if Path(path).is_dir():
            write_file(Path(path) / MANIFEST_PATH, package.members[ORIGINAL_PATH])
            (Path(path) / ORIGINAL_PATH).unlink()
            sync_folder((Path(path) / ORIGINAL_PATH).parent)
            _prune(Path(path), (original.manifest.plan,))
        else:
            members = _without_others(package.members, (original.manifest.plan,))
            members[MANIFEST_PATH] = members.pop(ORIGINAL_PATH)
            write_file(path, zip_bytes(members))
    except OSError as error:
        raise PackageError(f"cannot roll the package back: {error}", location=os.fspath(path)) from error
    return read_package(path)


def original_of(package: PackageFiles) -> PackageFiles | None:
    """The package as it was before anything was installed, None if nothing was; raises PackageError."""
    if ORIGINAL_PATH not in package.members:
        return None
    return parse_package(_WithManifest(package.members, package.members[ORIGINAL_PATH]), package.location)


def read_original(path: str | os.PathLike[str]) -> PackageFiles | None:
    """The same of the package at ``path``, whatever has become of what was installed; raises PackageError."""
    members = open_members(path)
    if ORIGINAL_PATH not in members:
        return None
    return parse_package(_WithManifest(members, members[ORIGINAL_PATH]), os.fspath(path))


class _WithManifest(Mapping[str, bytes]):
    """Members of a package under another manifest."""

    def __init__(self, members: Mapping[str, bytes], manifest: bytes) -> None:
        self._members = members
        self._manifest = manifest

    def __getitem__(self, path: str) -> bytes:
        return self._manifest if path == MANIFEST_PATH else self._members[path]

    def __iter__(self) -> Iterator[str]:
        return iter(self._members)

    def __len__(self) -> int:
        return len(self._members)

    def __contains__(self, path: object) -> bool:
        return path in self._members


def _additions(package: PackageFiles, compiled: PackageFiles) -> tuple[Manifest, dict[str, bytes]]:
    """The manifest that names what ``compiled`` adds, and those members."""
    plan, plan_path = compiled.plan, compiled.manifest.plan
    if plan is None or plan_path is None:
        raise PackageError("there is nothing compiled to install", location=compiled.location)
    folder = str(PurePosixPath(plan_path).parent)
    model = compiled.model
    primary = package.manifest.models[0]
    if not package.manifest.is_connected and package.members.get(primary) == model:
        model_path, added = primary, {}
    else:
        model_path, added = f"{folder}/{MODEL_NAME}", {f"{folder}/{MODEL_NAME}": model}
        for name in compiled.members:
            if not _is_compiled(name) and not name.startswith("metadata/") and name != plan.model:
                added[f"{folder}/{name}"] = compiled.read(name)
    added[plan_path] = replace(plan, model=model_path).to_json()
    added |= {f"{folder}/{step.file}": compiled.segment(step.file) for step in plan.segments}
    return Manifest((model_path,), ("circle",), package.manifest.configs, plan_path), added


def _is_compiled(name: str) -> bool:
    return name.startswith(f"{_COMPILED_FOLDER}/")


def _commit_folder(root: Path, added: Mapping[str, bytes], original: Mapping[str, bytes], manifest: Manifest) -> None:
    folder = root / PurePosixPath(manifest.plan or "").parent
    folder.parent.mkdir(exist_ok=True)
    new = folder.parent / f".{folder.name}.{secrets.token_hex(4)}.new"
    try:
        for name, data in added.items():
            file = new / PurePosixPath(name).relative_to(folder.relative_to(root).as_posix())
            file.parent.mkdir(parents=True, exist_ok=True)
            write_file(file, data)
        for inner, _, _ in os.walk(new):
            sync_folder(inner)
        if folder.exists():  # left over from an attempt that did not get to the manifest, or by another process
            shutil.rmtree(folder)
        os.rename(new, folder)
        sync_folder(folder.parent)
        for name, data in original.items():
            write_file(root / name, data)
        write_file(root / MANIFEST_PATH, manifest.to_json())
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _without_others(members: Mapping[str, bytes], plans: Plans) -> dict[str, bytes]:
    """``members`` without what was compiled for other plans than ``plans``."""
    folders = tuple(f"{PurePosixPath(plan).parent}/" for plan in plans if plan)
    return {name: members[name] for name in members if not _is_compiled(name) or name.startswith(folders)}


def _prune(root: Path, plans: Plans) -> None:
    """Remove from a folder what was compiled for other plans than ``plans``."""
    kept = {PurePosixPath(plan).parent.name for plan in plans if plan}
    folder = root / _COMPILED_FOLDER
    for entry in list(folder.iterdir()) if folder.is_dir() else ():
        if entry.is_dir() and entry.name not in kept and not entry.name.startswith("."):
            shutil.rmtree(entry, ignore_errors=True)
    if folder.is_dir() and not any(folder.iterdir()):
        folder.rmdir()
