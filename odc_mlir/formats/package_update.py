"""Installation of compiled code in the package of its model, and removal.

The package's own models stay where they are, and its manifest as ``metadata/MANIFEST.orig``. What is added lies in one
new folder::

    odc/<key>/model.circle    the model that the plan runs, where it is not one of the package's own (quantised, say)
    odc/<key>/plan.json, segment-*.npu

In a folder the new one is complete and on the disk before the manifest, replaced in one step, names it: whoever reads
the package at any time, or after any crash, finds the old state or the new one. A zip is written anew and renamed.
Only files are removed that a manifest of ours lists and that have not changed since.
"""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePosixPath

from odc_mlir.errors import PackageError
from odc_mlir.formats.atomic import sync_folder, write_file
from odc_mlir.formats.manifest import MANIFEST_PATH, Manifest, digest_of, recognised_files
from odc_mlir.formats.outputs import entries, is_unchanged
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
    known = _known(package)
    listed = {name: digest for name, digest in known.items() if not _is_for_others(name, plans)}
    listed |= {name: digest_of(data) for name, data in (*added.items(), *original.items())}
    manifest = replace(manifest, files=listed)
    try:
        if Path(path).is_dir():
            _commit_folder(Path(path), added, original, manifest)
            _prune(Path(path), plans, known)
        else:
            members = {**_without_others(package.members, plans, known), **original, **added}
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
    plans, known = (original.manifest.plan,), _known(package)
    try:
        if Path(path).is_dir():
            write_file(Path(path) / MANIFEST_PATH, package.members[ORIGINAL_PATH])
            (Path(path) / ORIGINAL_PATH).unlink()
            sync_folder((Path(path) / ORIGINAL_PATH).parent)
            _prune(Path(path), plans, known)
        else:
            members = _without_others(package.members, plans, known)
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
    """Remove compiled code from the package at ``path``, damaged or not; raise PackageError."""
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
            _check_left_over(folder, added, root)
            shutil.rmtree(folder)
        os.rename(new, folder)
        sync_folder(folder.parent)
        for name, data in original.items():
            write_file(root / name, data)
        write_file(root / MANIFEST_PATH, manifest.to_json())
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _check_left_over(folder: Path, added: Mapping[str, bytes], root: Path) -> None:
    """Raise PackageError if the folder holds files that are not about to be replaced."""
    for name in entries(folder):
        path = (folder / name).relative_to(root).as_posix()
        if path not in added or not is_unchanged(folder / name, digest_of(added[path])):
            raise PackageError(
                f"{path!r} is in the way, which odc-mlir did not write, or not as it is",
                location=os.fspath(root),
                hint="move it elsewhere",
            )


def _known(package: PackageFiles) -> dict[str, str]:
    """The files of the package that we wrote, as its manifest lists them, but the manifest itself."""
    known = recognised_files(package.members[MANIFEST_PATH])
    known.pop(MANIFEST_PATH, None)
    return known


def _is_for_others(name: str, plans: Plans) -> bool:
    """Whether a file was compiled for another plan than ``plans``."""
    folders = tuple(f"{PurePosixPath(plan).parent}/" for plan in plans if plan)
    return _is_compiled(name) and not name.startswith(folders)


def _without_others(members: Mapping[str, bytes], plans: Plans, known: Mapping[str, str]) -> dict[str, bytes]:
    """``members`` without what of the ``known`` was compiled for other plans than ``plans``."""
    found = {name: members[name] for name in members}
    others = {name for name in known if _is_for_others(name, plans)}
    return {name: data for name, data in found.items() if name not in others or digest_of(data) != known[name]}


def _prune(root: Path, plans: Plans, known: Mapping[str, str]) -> None:
    """Remove from a folder what of the ``known`` was compiled for other plans than ``plans``."""
    for name in [name for name in known if _is_for_others(name, plans)]:
        with suppress(OSError):
            if is_unchanged(root / name, known[name]):
                (root / name).unlink()
            os.removedirs((root / name).parent)  # goes upwards as long as a folder is empty
