"""What the runtime asks of a device. A driver for real hardware implements these two protocols and nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Literal, Protocol, runtime_checkable

from odc_mlir.formats.plan import Plan
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.execution.team import Team
from odc_mlir.runtime.execution.units import Step
from odc_mlir.targets import Target

MemoryModel = Literal["parity", "strict"]
"""How a simulating device limits outstanding memory accesses: as its peers are modelled, or more strictly."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or output of a loaded program: its name, element type and shape."""

    name: str
    dtype: str
    shape: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """``outputs`` in program order (empty when only time was asked for), measured ``counters`` and ``trace`` events."""

    outputs: tuple[Array, ...]
    counters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    trace: Any = None


class DeviceProgram(Protocol):
    """A binary that is loaded and can run any number of times."""

    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once; raises OdcError when the device fails."""


@runtime_checkable
class ModelledProgram(DeviceProgram, Protocol):
    """A program of a machine that is modelled: its cycles follow from the program alone."""

    target: Target

    def measure(self, memory_model: MemoryModel = "parity") -> DeviceResult:
        """Counters of one execution, which do not depend on data; raises UnsupportedError where none are kept."""


@runtime_checkable
class ExplainedProgram(ModelledProgram, Protocol):
    """A modelled program whose cycles can be divided by what they were waited for."""

    def explain(self) -> Mapping[str, Any]:
        """Causes of the cycles of a run and of every operator, and what would make them fewer."""


@runtime_checkable
class DirectProgram(DeviceProgram, Protocol):
    """A program that cannot fail once its inputs fit, and runs in this process."""

    def step(self, reads: Sequence[int], writes: Sequence[int]) -> Step:
        """What runs it on the values of a run: ``reads`` and ``writes`` are tensors of the graph, in order of ports."""


@runtime_checkable
class DivisibleProgram(DeviceProgram, Protocol):
    """A program that runs in this process, and that several threads can run together."""

    def divide(self, team: Team) -> None:
        """Let the threads of ``team`` run it from now on, where that helps; results stay the same."""


@runtime_checkable
class ExaminingDevice(Protocol):
    """A device that can tell whether a binary is for it without loading it."""

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """Why ``data``, of a package with ``plan``, is not for what is here (``machine``: which one is meant, None: any
        that runs it); None where it is. Raises PackageError where it is damaged or of another version."""


@runtime_checkable
class Device(Protocol):
    """A device that runs binaries, found as the entry of the group ``odc_mlir.devices`` named as their files end:
    ``npu``, ``cpu``.

    A device whose binaries are machine code for this process has ``runs_code = True`` as well (:func:`runs_code`).
    """

    name: str
    simulated: bool
    """Whether it is much slower than the hardware that it simulates, so that others should compute in its place."""

    def attached(self) -> Sequence[str]:
        """The targets that hardware is there for, best first: what a session compiles for where none is named."""

    def load(self, data: bytes) -> DeviceProgram:
        """Check and load a binary; raises OdcError when it is damaged or made for something else."""


def runs_code(device: Device) -> bool:
    """Return whether binaries of ``device`` are machine code for this process: then they need trust to be loaded."""
    return bool(getattr(device, "runs_code", False))
