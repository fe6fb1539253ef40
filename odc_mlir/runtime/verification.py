"""Is all of a package whole, and does it fit together? Everything is looked at; nothing is run."""

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
from odc_mlir.runtime.execution.plan import check_plan
from odc_mlir.runtime.package import Package
from odc_mlir.targets.cpu import HERE


@dataclass(frozen=True, slots=True)
class Check:
    """``problem`` is None where ``what`` is as it should be."""

    what: str
    problem: str | None = None


def verify_package(files: PackageFiles) -> Iterator[Check]:
    """The checks one by one: members, models, plan, segments, and what a rollback would bring back."""
    package = Package(files)
    for name in sorted({*files.members, *files.manifest.files}):
        yield _checked(f"member {name}", partial(_check_member, files, name))
    yield _checked("model", lambda: package.graph)
    if files.plan is not None:
        plan = files.plan
        yield _checked("plan", lambda: check_plan(plan, package.graph, str(files.manifest.plan)))
        load: Callable[[PackageFiles, str], None] = (
            _check_native if plan.extension == HERE else partial(_load, plan.extension)
        )
        for step in plan.segments:
            yield _checked(f"segment {step.file}", partial(load, files, step.file))
    yield _checked("original", lambda: original_of(files))


def _checked(what: str, look: Callable[[], object]) -> Check:
    try:
        look()
    except OdcError as error:
        return Check(what, str(error))
    return Check(what)


def _check_member(files: PackageFiles, name: str) -> None:
    """Compare a member with what the manifest lists, where that lists anything: packages of other tools do not."""
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


def _check_native(files: PackageFiles, segment: str) -> None:
    """Native code may be for another machine than this one: it is read, not loaded."""
    parse_native_segment(files.segment(segment))


def _load(extension: str, files: PackageFiles, segment: str) -> None:
    with contained(PackageError, "the device failed"):
        open_device(extension).load(files.segment(segment))
