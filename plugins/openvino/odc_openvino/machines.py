"""OpenVINO's devices as machines of the target: names, properties, and facts that compiled programs depend on."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from odc_mlir.errors import OptionError

# OpenVINO's telemetry sends usage data and forks the process during the import. A fork can stop the threads of OpenBLAS
# while another thread multiplies matrices, which then waits forever. OpenVINO goes on if the module is missing.
_TELEMETRY = "openvino_telemetry"
_IS_FIRST = _TELEMETRY not in sys.modules
if _IS_FIRST:
    sys.modules[_TELEMETRY] = None  # type: ignore[assignment]
try:
    import openvino
finally:
    if _IS_FIRST:
        del sys.modules[_TELEMETRY]

TARGET = "openvino"
FLOAT32 = "f32"
# Allowed difference from host kernels, as a share of the largest value. The lower precisions apply only on request.
TOLERANCES = {FLOAT32: 1e-4, "f16": 1e-2, "bf16": 5e-2}
_ORDER = ("GPU", "NPU", "CPU")
_KINDS = tuple(kind.lower() for kind in _ORDER)


@lru_cache(maxsize=1)
def core() -> Any:
    """Return the process's instance of OpenVINO."""
    return openvino.Core()


@dataclass(frozen=True)
class Machine:
    """A device by OpenVINO's name, such as ``CPU`` or ``GPU.1``, and the precision of its floats."""

    device: str
    precision: str = FLOAT32

    @property
    def name(self) -> str:
        """The name for ``--target``."""
        suffix = "" if self.precision == FLOAT32 else f"-{self.precision}"
        return f"{TARGET}-{self.device.lower()}{suffix}"

    @property
    def tolerance(self) -> float:
        """Allowed difference of float results from host kernels, as a share of the largest value."""
        return TOLERANCES[self.precision]

    def properties(self) -> dict[str, Any]:
        """Return the properties for OpenVINO: precision and low latency. A processor computes on the calling thread."""
        found: dict[str, Any] = {"INFERENCE_PRECISION_HINT": self.precision, "PERFORMANCE_HINT": "LATENCY"}
        if self.device.startswith("CPU"):
            found |= {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "ENABLE_CPU_PINNING": False}
        return found

    def facts(self) -> tuple[str, ...]:
        """Return name, versions and features of OpenVINO, device and driver; raise OptionError for a missing device."""
        if self.device not in devices() and f"{self.device}.0" not in devices():
            known = ", ".join(machine.name for machine in attached())
            raise OptionError(f"OpenVINO finds no device {self.device} here", hint=f"use one of {known}")
        names = core().get_property(self.device, "SUPPORTED_PROPERTIES")
        wanted = [
            name
            for name in sorted(names)
            if name in ("FULL_DEVICE_NAME", "OPTIMIZATION_CAPABILITIES")
            or name.endswith(("DRIVER_VERSION", "ARCHITECTURE"))
        ]
        found = [f"{name}={_text(core().get_property(self.device, name))}" for name in wanted]
        return (self.name, f"OpenVINO {openvino.get_version()}", *found)


def devices() -> tuple[str, ...]:
    """Return OpenVINO's names of the devices here, accelerators first."""
    found = [name for name in core().available_devices if name.partition(".")[0] in _ORDER]
    return tuple(sorted(found, key=lambda name: (_ORDER.index(name.partition(".")[0]), name)))


def attached() -> tuple[Machine, ...]:
    """Return the machines here that compute in float32, best first."""
    return tuple(
        Machine(name) for name in devices() if "FP32" in core().get_property(name, "OPTIMIZATION_CAPABILITIES")
    )


def names() -> tuple[str, ...]:
    """Return the names for ``--target``, of missing devices too, so that the message about one is clear."""
    kinds = dict.fromkeys([*_KINDS, *(name.lower() for name in devices())])
    return tuple(Machine(kind.upper(), precision).name for kind in kinds for precision in TOLERANCES)


def machine_of(name: str | None) -> Machine:
    """Return the machine with this name, None for the best one; raise OptionError for an unknown name."""
    if name in (None, TARGET):
        found = attached()
        if not found:
            raise OptionError("OpenVINO finds no device here that computes in float32")
        return found[0]
    if name not in names():
        raise OptionError(f"unknown machine {name!r}", hint=f"use one of {', '.join(names())}")
    device, _, precision = name.removeprefix(f"{TARGET}-").partition("-")
    return Machine(device.upper(), precision or FLOAT32)


def _text(value: object) -> str:
    return ",".join(sorted(map(str, value))) if isinstance(value, list | tuple | set) else str(value)
