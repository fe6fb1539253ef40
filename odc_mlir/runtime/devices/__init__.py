"""Devices that execute segment binaries: entries of one entry-point group that implement the protocol of base.py.

Devices of other packages are first probed in a separate process (:mod:`odc_mlir.plugins.foreign`). A device that opened
in the probe is loaded into this process to run a package. The cache keeps the outcome for later processes.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from odc_mlir.errors import OdcError, PackageError
from odc_mlir.plugins import registry
from odc_mlir.plugins.foreign import load_probed, probe, remember, texts
from odc_mlir.plugins.registry import DEVICES, PluginSource
from odc_mlir.runtime.devices.base import Device, DeviceProgram

_ASK = f"{__name__}:describe_device"
_log = logging.getLogger(__name__)


class MissingDevice:
    """Substitute for an unavailable device. It raises ``reason`` when it loads a binary."""

    name = "none"
    simulated = False

    def __init__(self, reason: PackageError) -> None:
        self.reason = reason

    def attached(self) -> Sequence[str]:
        """Return nothing."""
        return ()

    def load(self, data: bytes) -> DeviceProgram:
        """Raise PackageError."""
        raise self.reason


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """Name of a device, whether it simulates hardware, and the targets of attached hardware, best first."""

    name: str
    simulated: bool
    attached: tuple[str, ...]


def describe_device(found: object, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of a device's DeviceFacts, with its hardware if ``question["attached"]``."""
    if not isinstance(found, Device):
        raise PackageError(f"it returns {type(found).__name__}, which is not a device")
    attached = texts(found.attached(), "attached()") if question["attached"] else ()
    return asdict(DeviceFacts(str(found.name), bool(found.simulated), attached))


def ask_devices(sources: Sequence[PluginSource]) -> list[DeviceFacts | OdcError]:
    """Return the facts of each device, or an error that names the device."""
    answers = probe(DeviceFacts, sources, _ASK, {"attached": True})
    for source, facts in zip(sources, answers, strict=True):
        if not source.is_ours and isinstance(facts, DeviceFacts):
            remember(source, "")
    return answers


def attached() -> tuple[list[str], list[str]]:
    """Return the targets of attached hardware, best first, and the problems of failed devices.

    Devices of other packages come first, because they know hardware unknown to our devices. Simulators report nothing.
    """
    others = [source for source in registry.entries(DEVICES) if not source.is_ours]
    answers = ask_devices([*others, *registry.own_entries(DEVICES)])
    targets = [target for facts in answers if isinstance(facts, DeviceFacts) for target in facts.attached]
    return list(dict.fromkeys(targets)), [facts.message for facts in answers if isinstance(facts, OdcError)]


def device_facts(extension: str) -> DeviceFacts | None:
    """Return the facts of the device for files of this extension, or None if no device works."""
    for source in sources_of(extension):
        (facts,) = ask_devices([source])
        if isinstance(facts, DeviceFacts):
            return facts
    return None


def open_device(extension: str) -> Device:
    """Return the device for this file extension, or a MissingDevice with the reason.

    If a plugin's device fails, our own device replaces it.
    """
    failure: PackageError | None = None
    for source in sources_of(extension):
        try:
            device: Device = load_probed(source, _ASK, {"attached": False})
        except OdcError as error:
            failure = failure or PackageError(error.message, hint=error.hint)
            continue
        if failure is not None:
            _log.warning("%s; our own device runs .%s files instead", failure.message, extension)
        return device
    names = ", ".join(f".{source.target}" for source in registry.entries(DEVICES))
    return MissingDevice(
        failure
        or PackageError(
            f"no device here runs .{extension} files",
            hint=f"install the package with this device; there are devices for {names}",
        )
    )


def sources_of(extension: str) -> list[PluginSource]:
    """Return the devices for an extension, devices of other packages first."""
    known = dict.fromkeys([*registry.entries(DEVICES), *registry.own_entries(DEVICES)])
    return [source for source in known if source.target == extension]
