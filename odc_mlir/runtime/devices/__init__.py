"""Devices that execute segment binaries, all behind the protocol of base.py."""

from __future__ import annotations

from odc_mlir.runtime.devices.base import Device


def open_device() -> Device:
    """The device that runs ``.npu`` binaries here: the simulator, which serves every target."""
    from odc_mlir.runtime.devices.simulator import SimulatorDevice

    return SimulatorDevice()
