"""The driver: loads programs into OpenVINO and runs them."""

from __future__ import annotations

import io
from collections.abc import Sequence

from odc_mlir.errors import OdcError, PackageError
from odc_mlir.formats.plan import Plan
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.devices.base import DeviceResult
from odc_openvino import machines
from odc_openvino.importing import reason_of
from odc_openvino.program import Program, parse
from odc_openvino.running import Runner


class OpenVinoProgram:
    """A program in OpenVINO, ready to run."""

    def __init__(self, program: Program, machine: machines.Machine) -> None:
        self.inputs, self.outputs = program.inputs, program.outputs
        self.tolerance = machine.tolerance
        try:
            model = machines.core().import_model(io.BytesIO(program.blob), machine.device, machine.properties())
            self._runner = Runner(model, len(self.inputs), len(self.outputs))
        except RuntimeError as error:
            raise PackageError(f"OpenVINO cannot load the program: {reason_of(error)}") from None

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once; raise PackageError if OpenVINO fails."""
        try:
            return DeviceResult(self._runner.run(inputs))
        except RuntimeError as error:
            raise PackageError(f"OpenVINO failed: {reason_of(error)}") from None


class OpenVinoDevice:
    """Loads ``.openvino`` files."""

    name = "openvino"
    simulated = False
    runs_code = True  # OpenVINO trusts what it imports: kernels of a GPU, and the structure of a graph

    def attached(self) -> Sequence[str]:
        """Return the machines here that compute in float32, accelerators first."""
        return tuple(machine.name for machine in machines.attached())

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """Return why a program does not run here or on ``machine``, None if it does; raise PackageError for damage."""
        program = parse(data)
        if machine not in (None, machines.TARGET, program.machine):
            return f"it was compiled for {program.machine}"
        return _problem(program)

    def load(self, data: bytes) -> OpenVinoProgram:
        """Check and load a program; raise PackageError."""
        program = parse(data)
        if (problem := _problem(program)) is not None:
            raise PackageError(problem, hint="compile again")
        return OpenVinoProgram(program, machines.machine_of(program.machine))


def _problem(program: Program) -> str | None:
    """Return the difference between this machine and the one that compiled the program, None without one."""
    try:
        here = machines.machine_of(program.machine).facts()
    except OdcError as error:
        return error.message
    differing = [
        f"{made} there, {found} here" for made, found in zip(program.facts, here, strict=False) if made != found
    ]
    if differing or len(here) != len(program.facts):
        return f"it was compiled for other software or hardware: {'; '.join(differing) or 'other properties'}"
    return None


def open_device() -> OpenVinoDevice:
    """Return the device."""
    return OpenVinoDevice()
