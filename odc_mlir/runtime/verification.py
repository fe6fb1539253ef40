"""Is all of a package whole, and does it fit together? Everything is looked at; nothing is run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from odc_mlir.errors import OdcError
from odc_mlir.formats.package import PackageFiles
from odc_mlir.formats.package_update import original_of
from odc_mlir.runtime.devices import open_device
from odc_mlir.runtime.devices.base import Device
from odc_mlir.runtime.package import Package
from odc_mlir.runtime.plan import check_plan


@dataclass(frozen=True, slots=True)
class Check:
    """``problem`` is None where ``what`` is as it should be."""

    what: str
    problem: str | None = None


def verify_package(files: PackageFiles) -> Iterator[Check]:
    """The checks one by one: members, models, plan, segments, and what a rollback would bring back."""
    package = Package(files)
    for name in sorted(files.members):
        yield _checked(f"member {name}", partial(files.read, name))
    yield _checked("model", lambda: package.graph)
    if files.plan is not None:
        plan = files.plan
        yield _checked("plan", lambda: check_plan(plan, package.graph, str(files.manifest.plan)))
        device = open_device()
        for step in plan.segments:
            yield _checked(f"segment {step.file}", partial(_load, device, files, step.file))
    yield _checked("original", lambda: original_of(files))


def _checked(what: str, look: Callable[[], object]) -> Check:
    try:
        look()
    except OdcError as error:
        return Check(what, str(error))
    return Check(what)


def _load(device: Device, files: PackageFiles, segment: str) -> None:
    device.load(files.segment(segment))
