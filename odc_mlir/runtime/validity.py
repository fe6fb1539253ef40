"""Checks of packages that neither load nor compile anything.

:func:`check` tests whether a package runs unchanged on this machine. It compares versions of formats, compiler and
target, features of the processor, host kernels, checksums of binaries, and the origin of machine code.
:func:`verify_package` tests the integrity of all members.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import partial

from odc_mlir._version import __version__
from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats.cache import content_digest
from odc_mlir.formats.manifest import MANIFEST_PATH, recognised_files
from odc_mlir.formats.native_segment import parse_native_segment
from odc_mlir.formats.package import PackageFiles, original_of, read_package
from odc_mlir.formats.plan import Plan
from odc_mlir.plugins import registry
from odc_mlir.plugins.foreign import contained
from odc_mlir.plugins.target import Chosen, choose
from odc_mlir.processors import HERE
from odc_mlir.runtime.devices import MissingDevice, open_device
from odc_mlir.runtime.devices.base import ExaminingDevice, runs_code
from odc_mlir.runtime.execution.plan import check_plan
from odc_mlir.runtime.execution.units import require_kernels
from odc_mlir.runtime.package import Package


class PackageState(StrEnum):
    """State of a package on this machine, best first."""

    RUNS = "runs"  # the package runs unchanged
    REBUILD = "rebuild"  # compile the model again here; until then, damaged or foreign code does not run
    CANNOT = "cannot"  # the package cannot run here, even if compiled again


@dataclass(frozen=True, slots=True)
class Validity:
    """Result of :func:`check`: ``state`` with a ``reason``, and the ``target`` of the package or None."""

    state: PackageState
    reason: str
    target: str | None = None


_Finding = tuple[PackageState, str]
_NOTHING_COMPILED = "nothing in it is compiled: host kernels run it"


def check(package: str | os.PathLike[str] | PackageFiles | Package, target: str | None = None) -> Validity:
    """Check whether ``package`` runs here, on ``target`` (default: the target of the package).

    Raises only OptionError, for an unknown target.
    """
    chosen = None if target is None else choose(target)
    try:
        if not isinstance(package, Package):
            package = Package(package if isinstance(package, PackageFiles) else read_package(package))
        files = package.files
        require_kernels(package.graph, files.plan)
    except OdcError as error:
        return Validity(PackageState.CANNOT, str(error))
    plan = files.plan
    if plan is None:
        if chosen is None:
            return Validity(PackageState.RUNS, _NOTHING_COMPILED)
        return Validity(*(_no_compiler(chosen.codegen) or (PackageState.REBUILD, "nothing in it is compiled")))
    found = sorted(_findings(package, plan, chosen), key=lambda item: list(PackageState).index(item[0]), reverse=True)
    fits = f"all of it fits what is here for {plan.target}" if plan.segments else _NOTHING_COMPILED
    state, reason = found[0] if found else (PackageState.RUNS, fits)
    return Validity(state, reason, plan.target)


def _findings(package: Package, plan: Plan, chosen: Chosen | None) -> Iterator[_Finding]:
    files = package.files
    codegen = f"{plan.extension}{registry.SUFFIX}" if chosen is None else chosen.codegen
    missing = _no_compiler(codegen)
    rebuild = PackageState.REBUILD if missing is None else PackageState.CANNOT
    but = "" if missing is None else f", and {missing[1]}"
    if plan.compiler_version != __version__:
        yield rebuild, f"it was compiled by version {plan.compiler_version or 'unknown'}, this is {__version__}{but}"
    if plan.segments and plan.extension != codegen.removesuffix(registry.SUFFIX):
        yield rebuild, f"it was compiled for {plan.target}, of which {codegen} knows nothing{but}"
        return
    device = open_device(plan.extension)
    if isinstance(device, MissingDevice) and plan.segments:
        yield PackageState.CANNOT, str(device.reason)
        return
    machine = None if chosen is None else chosen.machine
    for step in plan.segments:
        try:
            reason = None
            if isinstance(device, ExaminingDevice):
                with contained(PackageError, "the device failed"):
                    reason = device.examine(files.segment(step.file), plan, machine)
            if reason is None:
                files.unchanged(files.segment_path(step.file))
        except OdcError as error:
            reason = str(error)
        if reason is not None:
            yield rebuild, f"{step.file}: {reason}{but}"
            return
    if (reason := package.distrust()) is not None:
        yield rebuild, f"{reason}{but}"


def _no_compiler(codegen: str) -> _Finding | None:
    try:
        source = registry.find(codegen)
    except OdcError as error:
        return PackageState.CANNOT, error.message
    from odc_mlir.codegen.machine import EXTRA, HINT, has_code_generator

    if source.is_ours and codegen == f"cpu{registry.SUFFIX}" and not has_code_generator():
        return PackageState.CANNOT, f"native code needs the package {EXTRA}; {HINT}"
    return None


@dataclass(frozen=True, slots=True)
class Check:
    """Result of a check of ``what``: ``problem`` (None if the check passed), and a ``note`` for users."""

    what: str
    problem: str | None = None
    note: str = ""


def verify_package(files: PackageFiles) -> Iterator[Check]:
    """Yield the checks of members, models, plan, segments, and of the manifest for a rollback."""
    package = Package(files)
    looks: list[tuple[str, Callable[[], object]]] = [
        (f"member {name}", partial(_check_member, files, name))
        for name in sorted({*files.members, *files.manifest.files})
    ]
    looks.append(("model", lambda: package.graph))
    if (plan := files.plan) is not None:
        looks.append(("plan", lambda: check_plan(plan, package.graph, str(files.manifest.plan))))
        for step in plan.segments:
            looks.append((f"segment {step.file}", partial(_check_segment, files, plan.extension, step.file)))
    looks.append(("original", lambda: original_of(files)))
    for what, look in looks:
        try:
            look()
        except OdcError as error:
            yield Check(what, str(error))
        else:
            yield Check(what)


def _check_member(files: PackageFiles, name: str) -> None:
    """Compare a member with the digest in the manifest. Packages of other tools have no digests."""
    data, listed = files.read(name), files.manifest.files
    if not listed:
        return
    if name == MANIFEST_PATH:
        if not recognised_files(data):
            raise PackageError("it was changed after it was written: its own digest differs")
    elif name not in listed:
        raise PackageError(f"it was added: {MANIFEST_PATH} does not list it")
    elif content_digest(data) != listed[name]:
        raise PackageError(f"it was changed: its digest is not the one in {MANIFEST_PATH}")


def _check_segment(files: PackageFiles, extension: str, segment: str) -> None:
    """Check the binary of a segment. Parse native code, as it may be for another machine. Let devices load the rest."""
    data, device = files.segment(segment), open_device(extension)
    if extension == HERE:
        parse_native_segment(data)
    elif not runs_code(device):
        with contained(PackageError, "the device failed"):
            device.load(data)
