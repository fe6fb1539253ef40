"""Check whether a package runs on this machine as it is, without loading or compiling anything.

Compared are versions of formats, compiler and target, features of the processor, host kernels, checksums of binaries,
and the origin of machine code. The integrity of all other members is checked by verification.py.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from odc_mlir import ops
from odc_mlir._version import __version__
from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats.circle.reader import read_operator_codes
from odc_mlir.formats.package import PackageFiles, read_package
from odc_mlir.formats.plan import Plan
from odc_mlir.plugins import registry
from odc_mlir.plugins.foreign import contained
from odc_mlir.plugins.target import Chosen, choose
from odc_mlir.runtime.devices import MissingDevice, open_device
from odc_mlir.runtime.devices.base import ExaminingDevice
from odc_mlir.runtime.package import Package


class PackageState(StrEnum):
    """State of a package on this machine, best first."""

    RUNS = "runs"  # as it is
    REBUILD = "rebuild"  # the model must be compiled again for what was asked; until then host kernels run it
    CANNOT = "cannot"  # neither


@dataclass(frozen=True, slots=True)
class Validity:
    """Result of :func:`check`: ``reason`` explains ``state``; ``target`` is what it was compiled for, None: nothing."""

    state: PackageState
    reason: str
    target: str | None = None


_Finding = tuple[PackageState, str]
_NOTHING_COMPILED = "nothing in it is compiled: host kernels run it"


def check(package: str | os.PathLike[str] | PackageFiles | Package, target: str | None = None) -> Validity:
    """Return whether ``package`` runs here, on ``target`` (None: on what it was compiled for).

    Raises OptionError if there is no such target, and no other error.
    """
    chosen = None if target is None else choose(target)
    try:
        if not isinstance(package, Package):
            package = Package(package if isinstance(package, PackageFiles) else read_package(package))
        files = package.files
        if (reason := _unknown_kernels(files.model)) is not None:
            return Validity(PackageState.CANNOT, reason)
    except OdcError as error:
        return Validity(PackageState.CANNOT, str(error))
    plan = files.plan
    if plan is None:
        return _uncompiled(chosen)
    found = sorted(_findings(package, plan, chosen), key=lambda item: list(PackageState).index(item[0]), reverse=True)
    fits = f"all of it fits what is here for {plan.target}" if plan.segments else _NOTHING_COMPILED
    state, reason = found[0] if found else (PackageState.RUNS, fits)
    return Validity(state, reason, plan.target)


def _uncompiled(chosen: Chosen | None) -> Validity:
    if chosen is None:
        return Validity(PackageState.RUNS, _NOTHING_COMPILED)
    missing = _no_compiler(chosen.codegen)
    return Validity(*(missing or (PackageState.REBUILD, "nothing in it is compiled")))


def _findings(package: Package, plan: Plan, chosen: Chosen | None) -> Iterator[_Finding]:
    """Yield every reason against running the package."""
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
                files.unchanged_segment(step.file)
        except OdcError as error:
            reason = str(error)
        if reason is not None:
            yield rebuild, f"{step.file}: {reason}{but}"
            return
    if (reason := package.distrust()) is not None:
        yield rebuild, f"{reason}{but}"


def _no_compiler(codegen: str) -> _Finding | None:
    """Return what is missing to compile for it here, None if nothing is."""
    try:
        source = registry.find(codegen)
    except OdcError as error:
        return PackageState.CANNOT, error.message
    from odc_mlir.codegen.features import EXTRA, HINT, has_code_generator

    if source.is_ours and codegen == f"cpu{registry.SUFFIX}" and not has_code_generator():
        return PackageState.CANNOT, f"native code needs the package {EXTRA}; {HINT}"
    return None


def _unknown_kernels(model: bytes) -> str | None:
    """Return the reason why host kernels cannot run an operator of the model, those in segments included."""
    specs = ops.all_specs()
    for name, version in read_operator_codes(model):
        if name == "CUSTOM":
            continue
        spec = specs.get(name)
        if spec is None:
            return f"there is no kernel for {name}"
        if version > spec.max_version:
            return f"{name} is of version {version}, the newest kernel here is of {spec.max_version}"
    return None
