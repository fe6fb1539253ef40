"""Devices that execute segment binaries, all behind the protocol of base.py."""

from __future__ import annotations

from odc_mlir.runtime.devices.base import Device
from odc_mlir.targets.cpu import is_cpu


def open_device(target: str | None = None) -> Device:
    """The device that runs binaries for ``target`` here: for NPUs, and without a name, the simulator."""
    if target is not None and is_cpu(target):
        from odc_mlir.runtime.devices.native import NativeDevice

        return NativeDevice()
    from odc_mlir.runtime.devices.simulator import SimulatorDevice

    return SimulatorDevice()
