"""Integrity checks of a package: every member is read and compared, and no code is loaded or run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats.manifest import MANIFEST_PATH, digest_of, recognised_files
from odc_mlir.formats.native_segment import parse_native_segment
from odc_mlir.formats.package import PackageFiles
from odc_mlir.formats.package_update import original_of
from odc_mlir.plugins.foreign import contained
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.devices.base import runs_code
from odc_mlir.runtime.execution.plan import check_plan
from odc_mlir.runtime.package import Package
from odc_mlir.targets.cpu import HERE


@dataclass(frozen=True, slots=True)
class Check:
    """Result of one check: the ``problem`` found in ``what``, or None."""

    what: str
    problem: str | None = None


def verify_package(files: PackageFiles) -> Iterator[Check]:
    """Yield the checks of members, models, plan, segments, and the manifest that a rollback would restore."""
    package = Package(files)
    for name in sorted({*files.members, *files.manifest.files}):
        yield _checked(f"member {name}", partial(_check_member, files, name))
    yield _checked("model", lambda: package.graph)
    if files.plan is not None:
        plan = files.plan
        yield _checked("plan", lambda: check_plan(plan, package.graph, str(files.manifest.plan)))
        for step in plan.segments:
            yield _checked(f"segment {step.file}", partial(_check_segment, files, plan.extension, step.file))
    yield _checked("original", lambda: original_of(files))


def _checked(what: str, look: Callable[[], object]) -> Check:
    try:
        look()
    except OdcError as error:
        return Check(what, str(error))
    return Check(what)


def _check_member(files: PackageFiles, name: str) -> None:
    """Compare a member with its digest in the manifest, if that has any: packages of other tools have none."""
    data, listed = files.read(name), files.manifest.files
    if not listed:
        return
    if name == MANIFEST_PATH:
        if not recognised_files(data):
            raise PackageError("it was changed after it was written: its own digest differs")
    elif name not in listed:
        raise PackageError(f"it was added: {MANIFEST_PATH} does not list it")
    elif digest_of(data) != listed[name]:
        raise PackageError(f"it was changed: its digest is not the one in {MANIFEST_PATH}")


def _check_segment(files: PackageFiles, extension: str, segment: str) -> None:
    """Parse native code, which may be for another machine, and let devices load binaries that are data."""
    data, device = files.segment(segment), open_device(extension)
    if extension == HERE:
        parse_native_segment(data)
    elif not runs_code(device):
        with contained(PackageError, "the device failed"):
            device.load(data)
