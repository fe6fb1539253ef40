"""Interface of devices: a driver for hardware implements Device and DeviceProgram. Other protocols are optional."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from odc_mlir.formats.native_segment import Port as Port
from odc_mlir.formats.plan import Plan
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.team import Team
from odc_mlir.runtime.execution.units import DirectRun, Step
from odc_mlir.targets import Target

MemoryModel = Literal["parity", "strict"]
"""A simulator's limit on outstanding memory accesses: parity with models of comparable machines, or stricter."""


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """Result of a run: ``outputs`` in program order (empty for measurements), ``counters`` and ``trace`` events."""

    outputs: tuple[Array, ...]
    counters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    trace: Any = None


class DeviceProgram(Protocol):
    """A loaded binary, for any number of runs."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once. Raises OdcError if the device fails."""


@runtime_checkable
class ModelledProgram(DeviceProgram, Protocol):
    """A program of a machine with modelled cycles, which follow from the program alone."""

    target: Target

    def measure(self, memory_model: MemoryModel = "parity") -> DeviceResult:
        """Return counters of one execution, independent of data. Raises UnsupportedError if there are none."""


@runtime_checkable
class ExplainedProgram(ModelledProgram, Protocol):
    """A modelled program that attributes its cycles to causes."""

    def explain(self) -> Mapping[str, Any]:
        """Return the causes of cycles, in total and by operator, and machine changes that would save cycles."""


@runtime_checkable
class DirectProgram(DeviceProgram, Protocol):
    """A program that runs in this process and cannot fail if the inputs fit."""

    def step(self, reads: Sequence[int], writes: Sequence[int]) -> Step:
        """Return the step that runs the program: ``reads`` and ``writes`` are graph tensors in the order of ports."""

    def direct(self, reads: Sequence[int], writes: Sequence[int]) -> DirectRun:
        """Return the function that takes the inputs ``reads`` and returns the outputs ``writes``, by port number."""


@runtime_checkable
class StatefulProgram(DeviceProgram, Protocol):
    """A program that can keep states in the device's memory from run to run.

    ``states``: pairs of positions of an input and an output. The output of a run is the input of the next run. After a
        failed run, the contents are undefined, and the caller writes the states again.
    """

    states: tuple[tuple[int, int], ...]

    def write_states(self, values: Sequence[Array]) -> None:
        """Copy the states to the device. Raises OdcError if it fails."""

    def read_states(self) -> Sequence[Array]:
        """Copy the states from the device. Raises OdcError if it fails."""

    def run_kept(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once, with only the inputs and outputs that are not states. Raises OdcError."""


@runtime_checkable
class DivisibleProgram(DeviceProgram, Protocol):
    """A program that several threads of this process can run together."""

    def divide(self, team: Team) -> None:
        """Use the threads of ``team`` from now on, if that helps. Results stay the same."""


@runtime_checkable
class ExaminingDevice(Protocol):
    """A device that can check a binary before loading it."""

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """Return why ``data`` of a package with ``plan`` does not run on ``machine`` (None: any), or None if it runs.

        Raises PackageError for damaged data and data of another version.
        """


@runtime_checkable
class Device(Protocol):
    """Device that runs binaries. Entries of the group ``odc_mlir.devices`` have the binaries' file extension as name.

    If binaries are machine code for this process, the device also has ``runs_code = True`` (:func:`runs_code`).
    """

    name: str
    simulated: bool
    """Whether the device is a simulator. It is much slower than its hardware, so applications use other devices."""

    def attached(self) -> Sequence[str]:
        """Return the targets of attached hardware, best first. By default, sessions compile for the first."""

    def load(self, data: bytes) -> DeviceProgram:
        """Check and load a binary. Raises OdcError for a damaged binary and for another machine."""


def tolerance_of(program: object) -> float:
    """Return the allowed difference of float results from host kernels, as a share of the largest value.

    The tolerance covers any order of summation in float32, and is far below a step of an 8-bit code. A program's
    attribute ``tolerance`` raises it if the name of the machine requests a lower precision.
    """
    return min(float(getattr(program, "tolerance", 1e-4)), 0.1)


def runs_code(device: Device) -> bool:
    """Return whether binaries of ``device`` are machine code for this process. Loading machine code requires trust."""
    return bool(getattr(device, "runs_code", False))
