"""Reading and writing of nnpackages, and installation of compiled code in a model's package.

::

    model.circle                  the whole model; any Circle reader can run it
    metadata/MANIFEST             states the model and the active plan; MANIFEST.orig: before any installation
    metadata/config.cfg           settings of the runtime
    odc/<key>/plan.json           see odc_mlir.formats.plan; <key> is a digest of the compiled files
    odc/<key>/segment-0.npu ...   one binary per segment; with another model than the package's, model.circle

Installation first writes a complete folder, then atomically replaces the manifest, which names the folder. After a
crash, the package thus has the old or the new state. Only unchanged files that a manifest of ours lists are removed.
"""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import shutil
import zipfile
from collections import ChainMap
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path, PurePosixPath

from odc_mlir.errors import OptionError, PackageError, located, of_system, parsing
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.kinds import package_kind
from odc_mlir.formats.manifest import (
    CONFIG_NAME,
    CONFIG_PATH,
    MANIFEST_PATH,
    Connection,
    DirectoryMembers,
    IoIndex,
    Manifest,
    ZipMembers,
    check_member_path,
    format_config,
    parse_config,
    parse_io_index,
    parse_manifest,
    recognised_files,
)
from odc_mlir.formats.outputs import check_output, entries, is_unchanged, sync_folder, unknown_entries, write_file
from odc_mlir.formats.plan import Plan, parse_plan

ModelSource = str | os.PathLike[str] | bytes | bytearray | memoryview
"""A .circle, .tflite or .mlir file, an nnpackage directory or zip, or the bytes of a file."""

MODEL_NAME = "model.circle"
"""File name of the model in our packages."""

# Constant date, the oldest of the zip format. Packages with equal content thus have equal bytes.
_ZIP_DATE = (1980, 1, 1, 0, 0, 0)
_ZIP_MAGICS = (b"PK\x03\x04", b"PK\x05\x06")  # archives with members, and empty archives
# Ends of file names in archives of ``torch.export.save``, for current versions and PyTorch up to 2.7.
_IN_PROGRAMS = ("/archive_format", "serialized_exported_program.json")


@dataclass(frozen=True)
class PackageFiles:
    """Members of a package with its parsed metadata. ``plan`` is None if nothing is compiled.

    ``compiled_here`` has the keys of the code that this process compiled (:mod:`odc_mlir.formats.trust`).
    """

    members: Mapping[str, bytes]
    manifest: Manifest
    config: Mapping[str, str]
    plan: Plan | None
    location: str
    compiled_here: frozenset[str] = frozenset()

    @cached_property
    def _model_and_digest(self) -> tuple[bytes, str]:
        path = self.manifest.models[0]
        data = self.read(path)
        return data, self._check_unchanged(path, data)

    @property
    def model(self) -> bytes:
        """Bytes of the primary model. Raises PackageError if the manifest has another digest."""
        return self._model_and_digest[0]

    @property
    def model_digest(self) -> str:
        return self._model_and_digest[1]

    def segment(self, file: str) -> bytes:
        """Return the bytes of the segment binary ``file``, which is in the plan's folder."""
        return self.read(self.segment_path(file))

    def segment_path(self, file: str) -> str:
        return str(PurePosixPath(self.manifest.plan or "").parent / file)

    def unchanged(self, path: str, *, listed: bool = False) -> bytes:
        """Return a member. Raises PackageError if it is missing or changed, or, if ``listed``, has no digest."""
        data = self.read(path)
        self._check_unchanged(path, data, listed=listed)
        return data

    def _check_unchanged(self, path: str, data: bytes, *, listed: bool = False) -> str:
        known, found = self.manifest.files.get(path), content_digest(data)
        if (listed or known is not None) and known != found:
            raise PackageError(
                f"{path!r} was changed: its digest is not the one in {MANIFEST_PATH}",
                location=self.location,
                hint="compile the model again",
            )
        return found

    def read(self, path: str) -> bytes:
        """Return the member ``path``. Raises PackageError if it is missing."""
        try:
            return self.members[path]
        except KeyError:
            raise PackageError(f"the member {path!r} is missing", location=self.location) from None

    def with_members(self, others: Mapping[str, bytes]) -> PackageFiles:
        """Return a package with further members. Raises PackageError for an existing or invalid path."""
        for path in others:
            with located(self.location):
                if check_member_path(path) in self.members:
                    raise PackageError(f"the member {path!r} exists already")
        if not others:
            return self
        return sealed(replace(self, members={**self.members, **others}))

    def with_segment(self, file: str, data: bytes) -> PackageFiles:
        """Return a package with another binary of segment ``file``. Raises PackageError for an unknown segment."""
        path = self.segment_path(file)
        if self.plan is None or file not in {step.file for step in self.plan.segments}:
            files = ", ".join(step.file for step in self.plan.segments) if self.plan is not None else ""
            raise PackageError(f"there is no segment {file!r}; there are: {files or 'none'}", location=self.location)
        return sealed(replace(self, members={**self.members, path: data}, compiled_here=frozenset()))


def build_package(model: bytes, plan: Plan, segments: Mapping[str, bytes]) -> PackageFiles:
    """Return a package in memory of a Circle ``model``, its ``plan`` and segment binaries by file name.

    Raises PackageError if the segments of plan and binaries differ.
    """
    expected = {step.file for step in plan.segments}
    if expected != set(segments):
        raise PackageError(f"the plan names the segments {sorted(expected)}, but {sorted(segments)} were compiled")
    settings = {} if plan.target is None else {"ODC_TARGET": plan.target}
    plan_text = plan.to_json()
    digest = hashlib.sha256()
    for data in (plan_text, model, *(segments[name] for name in sorted(segments))):
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    folder = f"odc/{digest.hexdigest()[:16]}"
    manifest = Manifest((plan.model,), ("circle",), (CONFIG_NAME,), f"{folder}/plan.json")
    members = {
        CONFIG_PATH: format_config(settings),
        plan.model: model,
        f"{folder}/plan.json": plan_text,
        **{f"{folder}/{name}": segments[name] for name in sorted(segments)},
    }
    return sealed(PackageFiles(members, manifest, settings, plan, "new package"))


def sealed(files: PackageFiles) -> PackageFiles:
    """Return the package with a manifest of all members' digests, which identify our files."""
    digests = {name: content_digest(files.members[name]) for name in files.members if name != MANIFEST_PATH}
    manifest = replace(files.manifest, files=digests)
    return replace(files, members={**files.members, MANIFEST_PATH: manifest.to_json()}, manifest=manifest)


def is_package(path: str | os.PathLike[str]) -> bool:
    """Return whether ``path`` is a directory, or a zip file that is no PyTorch program.

    Only the first bytes decide, because some TFLite files end in a zip archive of label files.
    """
    file = Path(path)
    with suppress(OSError):
        if file.is_file():
            with file.open("rb") as stream:
                return stream.read(4) in _ZIP_MAGICS and not is_program(path)
    return file.is_dir()


def is_program(source: ModelSource) -> bool:
    """Return whether ``source`` is an archive of ``torch.export.save``."""
    with (
        suppress(OSError, ValueError, NotImplementedError, zipfile.BadZipFile),
        io.BytesIO(source) if isinstance(source, bytes | bytearray | memoryview) else open(source, "rb") as file,
    ):
        if file.read(4) in _ZIP_MAGICS:
            return any(name.endswith(_IN_PROGRAMS) for name in zipfile.ZipFile(file).namelist())
    return False


def read_package(path: str | os.PathLike[str]) -> PackageFiles:
    """Open the nnpackage directory or zip at ``path``. Members are read on demand.

    Raises PackageError for a missing package, malformed metadata, and unsafe or missing members.
    """
    return parse_package(open_members(path), str(path))


def open_members(path: str | os.PathLike[str]) -> Mapping[str, bytes]:
    """Open the directory or zip at ``path``. Files are not read. Raises PackageError."""
    file = Path(path)
    with located(str(path)):
        if not file.exists():
            raise PackageError("there is no such package")
        if file.is_dir():
            return DirectoryMembers(file)
        with parsing("cannot read the file", PackageError), file.open("rb") as stream:
            head = stream.read(8)
        if head[:4] not in _ZIP_MAGICS:
            from odc_mlir.formats.circle.schema import schema_of

            if schema_of(head[4:]):  # checked first, because a model may contain a zip archive
                raise PackageError("it is a model, not a package", hint="compile it into one")
            if not zipfile.is_zipfile(file):
                raise PackageError("it is not a package: neither a folder nor a zip file")
        return ZipMembers(file)


def parse_package(members: Mapping[str, bytes], location: str) -> PackageFiles:
    """Return the package with these members. Raises PackageError like :func:`read_package`."""
    with located(location):
        if MANIFEST_PATH not in members:
            holds_arrays = members and all(name.endswith(".npy") for name in members)
            found = "it is an .npz file of arrays" if holds_arrays else f"it has no {MANIFEST_PATH}"
            if any(name.endswith("data.pkl") for name in members):
                hint = "export the module with torch.export.save, or convert it with odc_mlir.from_torch"
                raise PackageError("this is a PyTorch checkpoint, which has no exported graph", hint=hint)
            raise PackageError(f"not an nnpackage: {found}")
        manifest = parse_manifest(members[MANIFEST_PATH])
        for path in (*manifest.models, *([manifest.plan] if manifest.plan else [])):
            if path not in members:
                raise PackageError(f"the member {path!r}, which {MANIFEST_PATH} names, is missing")
        config: dict[str, str] = {}
        if manifest.configs and (config_path := f"metadata/{manifest.configs[0]}") in members:
            config = parse_config(members[config_path])
        files = PackageFiles(members, manifest, config, None, location)
        if manifest.plan is None:
            return files
        plan = parse_plan(files.unchanged(manifest.plan), f"{location}/{manifest.plan}")
        if plan.model != manifest.models[0]:
            raise PackageError(f"the plan is for {plan.model!r}, but the primary model is {manifest.models[0]!r}")
        return replace(files, plan=plan)


def write_package(files: PackageFiles, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write all members to the folder ``path``, or to a zip file if it ends in ``.zip``, or write nothing.

    An unchanged package of ours is replaced, other files only with ``overwrite``. Other files in the folder stay (see
    :mod:`odc_mlir.formats.outputs`). Raises PackageError.
    """
    kind = package_kind(path)
    check_output(path, kind, overwrite=overwrite)
    target = Path(os.path.realpath(path))
    members = {name: files.members[name] for name in sorted(files.members)}
    with of_system("cannot write the package", PackageError, location=str(path)):
        if kind.is_folder:
            _write_folder(members, target)
        else:
            write_file(target, zip_bytes(members))


def zip_bytes(members: Mapping[str, bytes]) -> bytes:
    """Return a zip file of ``members``. Equal members give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name, data in members.items():
            info = zipfile.ZipInfo(name, _ZIP_DATE)
            info.external_attr = 0o644 << 16
            info.create_system = 3  # Unix, on all systems
            archive.writestr(info, data)
    return buffer.getvalue()


def _write_folder(members: Mapping[str, bytes], target: Path) -> None:
    new = target.parent / f".{target.name}.{secrets.token_hex(4)}.new"
    old = new.with_suffix(".old")
    try:
        new.mkdir()
        for name, data in members.items():
            file = new / name
            file.parent.mkdir(parents=True, exist_ok=True)
            with open(file, "xb") as stream:
                stream.write(data)
                stream.flush()
                os.fsync(stream.fileno())
        present = list(entries(target))
        for name in unknown_entries(target):
            if name not in members:
                _link_or_copy(target / name, new / name)
        for folder, _, _ in os.walk(new):
            sync_folder(folder)
        replaced = target.is_dir()
        if replaced:
            os.rename(target, old)
        try:
            os.rename(new, target)
        except OSError:
            if replaced:
                os.rename(old, target)
            raise
        sync_folder(target.parent)
        if replaced:
            _remove(old, present)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def _link_or_copy(file: Path, place: Path) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(file, place, follow_symlinks=False)
    except OSError:  # a file system without links
        shutil.copy2(file, place, follow_symlinks=False)


def _remove(folder: Path, names: Iterable[str]) -> None:
    for name in names:
        with suppress(OSError):
            (folder / name).unlink()
    for inner, _, _ in os.walk(folder, topdown=False):
        with suppress(OSError):
            os.rmdir(inner)


ORIGINAL_PATH = "metadata/MANIFEST.orig"
_COMPILED_FOLDER = "odc"

Plans = tuple[str | None, ...]


def install(path: str | os.PathLike[str], compiled: PackageFiles) -> PackageFiles:
    """Make the package at ``path`` run the plan of ``compiled``. Return the changed package.

    Raises PackageError, and leaves the package unchanged, if ``compiled`` has no plan, or if reading or writing fails.
    """
    package = read_package(path)
    manifest, added = _additions(package, compiled)
    if package.manifest.plan == manifest.plan:
        return package  # the folder's name is a digest of its content
    first = original_of(package)
    original = {} if first else {ORIGINAL_PATH: package.members[MANIFEST_PATH]}
    # Keep the previous plan for processes that still run it, and the first plan for rolling back.
    plans = (manifest.plan, package.manifest.plan, first.manifest.plan if first else None)
    known = _listed_files(package)
    listed = {name: digest for name, digest in known.items() if not _is_for_others(name, plans)}
    listed |= {name: content_digest(data) for name, data in (*added.items(), *original.items())}
    manifest = replace(manifest, files=listed)
    with of_system("cannot update the package", PackageError, location=os.fspath(path)):
        if Path(path).is_dir():
            _commit_folder(Path(path), added, original, manifest)
            _prune(Path(path), plans, known)
        else:
            members = {**_without_others(package.members, plans, known), **original, **added}
            write_file(path, zip_bytes({**members, MANIFEST_PATH: manifest.to_json()}))
    return read_package(path)


def roll_back(path: str | os.PathLike[str]) -> PackageFiles:
    """Undo every :func:`install`. The package then runs its own models and contains no installed code.

    Raises PackageError if nothing was installed, or if the package cannot be read or written.
    """
    package = read_package(path)
    original = original_of(package)
    if original is None:
        raise PackageError("nothing was installed in this package, so nothing can be undone", location=os.fspath(path))
    plans, known = (original.manifest.plan,), _listed_files(package)
    with of_system("cannot roll the package back", PackageError, location=os.fspath(path)):
        if Path(path).is_dir():
            write_file(Path(path) / MANIFEST_PATH, package.members[ORIGINAL_PATH])
            (Path(path) / ORIGINAL_PATH).unlink()
            sync_folder((Path(path) / ORIGINAL_PATH).parent)
            _prune(Path(path), plans, known)
        else:
            members = _without_others(package.members, plans, known)
            members[MANIFEST_PATH] = members.pop(ORIGINAL_PATH)
            write_file(path, zip_bytes(members))
    return read_package(path)


def original_of(package: PackageFiles) -> PackageFiles | None:
    """Return the package before its first installation, or None. Raises PackageError."""
    return read_original(package.location, package.members)


def read_original(path: str | os.PathLike[str], members: Mapping[str, bytes] | None = None) -> PackageFiles | None:
    """Return :func:`original_of` the package at ``path``, even if it is damaged. Raises PackageError."""
    members = open_members(path) if members is None else members
    if ORIGINAL_PATH not in members:
        return None
    first = ChainMap({MANIFEST_PATH: members[ORIGINAL_PATH]}, members)  # type: ignore[arg-type]  # nothing is written
    return parse_package(first, os.fspath(path))


def _additions(package: PackageFiles, compiled: PackageFiles) -> tuple[Manifest, dict[str, bytes]]:
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
        if folder.exists():  # left by a failed attempt, or written by another process
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
    for name in entries(folder):
        path = (folder / name).relative_to(root).as_posix()
        if path not in added or not is_unchanged(folder / name, content_digest(added[path])):
            raise PackageError(
                f"{path!r} blocks the installation: odc-mlir did not write it, or it was changed",
                location=os.fspath(root),
                hint="move it elsewhere",
            )


def _listed_files(package: PackageFiles) -> dict[str, str]:
    known = recognised_files(package.members[MANIFEST_PATH])
    known.pop(MANIFEST_PATH, None)
    return known


def _is_for_others(name: str, plans: Plans) -> bool:
    folders = tuple(f"{PurePosixPath(plan).parent}/" for plan in plans if plan)
    return _is_compiled(name) and not name.startswith(folders)


def _without_others(members: Mapping[str, bytes], plans: Plans, known: Mapping[str, str]) -> dict[str, bytes]:
    found = {name: members[name] for name in members}
    others = {name for name in known if _is_for_others(name, plans)}
    return {name: data for name, data in found.items() if name not in others or content_digest(data) != known[name]}


def _prune(root: Path, plans: Plans, known: Mapping[str, str]) -> None:
    for name in [name for name in known if _is_for_others(name, plans)]:
        with suppress(OSError):
            if is_unchanged(root / name, known[name]):
                (root / name).unlink()
            os.removedirs((root / name).parent)  # continues with the parent while a folder is empty


def pack(
    models: Sequence[str | os.PathLike[str]],
    *,
    config: str | os.PathLike[str] | None = None,
    inputs: Sequence[str] = (),
    outputs: Sequence[str] = (),
    connections: Sequence[str] = (),
) -> PackageFiles:
    """Return a package of model files without compiled code. The first model is the primary one.

    ``connections`` (``"0:0:0=1:0:0,1:0:1"``, an output and the connected inputs) join several models to one with the
    ``inputs`` and ``outputs`` ``"model:subgraph:index"``. Raises OptionError for clashing names and malformed indices,
    ModelError, and PackageError for models that do not fit together.
    """
    from odc_mlir.formats.circle.connect import connect
    from odc_mlir.formats.circle.reader import read_model

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
    with located("new package"):
        parse_manifest(members[MANIFEST_PATH])
        if manifest.is_connected:
            connect(records, manifest, "new package")
    return sealed(PackageFiles(members, manifest, settings, None, "new package"))


def unpack(path: str | os.PathLike[str], folder: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write the package at ``path``, a zip or a folder, to a folder. Raises PackageError."""
    if str(folder).lower().endswith(".zip"):
        raise PackageError("a package is unpacked into a folder, not into a zip", location=os.fspath(folder))
    write_package(read_package(path), folder, overwrite=overwrite)


def _indices(texts: Sequence[str]) -> tuple[IoIndex, ...]:
    with located("new package"):
        return tuple(parse_io_index(text, "the command line") for text in texts)


def _connection(text: str) -> Connection:
    source, separator, targets = text.partition("=")
    if not separator:
        raise OptionError(f"the connection {text!r} is not of the form output=input,…", hint="for example 0:0:0=1:0:0")
    return Connection(_indices([source])[0], _indices(targets.split(",")))
