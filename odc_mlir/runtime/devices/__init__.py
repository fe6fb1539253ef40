"""Devices that execute segment binaries, all behind the protocol of base.py and found as entries of one group."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from odc_mlir.errors import OptionError, PackageError
from odc_mlir.plugins import registry
from odc_mlir.plugins.registry import DEVICES, PluginSource
from odc_mlir.runtime.devices.base import Device, DeviceProgram


class MissingDevice:
    """In place of a device that is not here: nothing can be loaded, and ``reason`` says why."""

    name = "none"
    simulated = False

    def __init__(self, reason: PackageError) -> None:
        self.reason = reason

    def attached(self) -> Sequence[str]:
        """Nothing."""
        return ()

    def load(self, data: bytes) -> DeviceProgram:
        """Raises PackageError."""
        raise self.reason


def open_device(extension: str) -> Device:
    """The device that runs files of this extension here; one that loads nothing, with the reason, where none does."""
    known = registry.entries(DEVICES)
    try:
        for source in known:
            if source.target == extension:
                return _open(source)
    except PackageError as error:
        return MissingDevice(error)
    names = ", ".join(f".{source.target}" for source in known)
    return MissingDevice(
        PackageError(
            f"there is no device here that runs .{extension} files",
            hint=f"install the package that brings one; there are devices for {names}",
        )
    )


def runs_here(extension: str) -> bool:
    """Whether files of this extension run on hardware that is here."""
    device = open_device(extension)
    return not (device.simulated or isinstance(device, MissingDevice))


def _open(source: PluginSource) -> Device:
    try:
        found = registry.load_entry(source)
    except OptionError as error:
        raise PackageError(error.message, hint=error.hint) from error
    if not isinstance(found, Device):
        raise PackageError(
            f"{source.target!r} of {source.origin} returns {type(found).__name__}, which is not a device"
        )
    return found


def attached() -> Iterator[tuple[str, str]]:
    """The targets whose hardware a device reports here, best first, each with the device's name.

    Devices of other packages come first: who has installed a driver has something that our own do not know of. A
    simulator reports nothing. What cannot be asked is left out; ``odc-doctor`` says why.
    """
    for source in sorted(registry.entries(DEVICES), key=lambda item: item.is_ours):
        try:
            device = _open(source)
            yield from ((target, device.name) for target in device.attached())
        except Exception:  # whatever a driver does, there are others
            continue
