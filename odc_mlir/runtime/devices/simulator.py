"""Device of the NPU simulator."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from odc_mlir import simulator, targets
from odc_mlir.formats.plan import Plan
from odc_mlir.isa.container import ISA_VERSION, MAJOR, check_whole, hardware_id, read_stamps
from odc_mlir.ops.spec import Array, numpy_dtype
from odc_mlir.runtime.devices.base import DeviceResult, MemoryModel, Port


class SimulatorProgram:
    """A binary loaded into the simulator."""

    def __init__(self, program: simulator.Program) -> None:
        self.program = program
        self.target = program.target
        self.inputs = tuple(Port(record.name, record.dtype, tuple(record.shape)) for record in program.inputs)
        self.outputs = tuple(Port(record.name, record.dtype, tuple(record.shape)) for record in program.outputs)
        self.states = program.container.states
        self._kept: tuple[Array, ...] = ()

    def write_states(self, values: Sequence[Array]) -> None:
        """Set the states that the next run reads."""
        self._kept = tuple(value.copy() for value in values)

    def read_states(self) -> tuple[Array, ...]:
        """Return copies of the current states."""
        return tuple(value.copy() for value in self._kept)

    def run_kept(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once with the current states as further inputs, and keep the new states. Raises SimulationError."""
        sources, results = zip(*self.states, strict=True)
        given, kept = iter(inputs), dict(zip(sources, self._kept, strict=True))
        values = [kept[place] if place in kept else next(given) for place in range(len(self.inputs))]
        found = self.run(values, trace=trace)
        self._kept = tuple(found.outputs[place] for place in results)
        shown = (value for place, value in enumerate(found.outputs) if place not in results)
        return DeviceResult(tuple(shown), found.counters, found.trace)

    def run(self, inputs: Sequence[Array], *, trace: bool = False) -> DeviceResult:
        """Execute once, bit for bit, and count cycles. Raises SimulationError."""
        result = simulator.simulate(self.program, inputs, trace=trace)
        events = result.trace.to_chrome()["traceEvents"] if result.trace is not None else None
        return DeviceResult(tuple(result.outputs), result.counters.to_dict(), events)

    def measure(self, memory_model: MemoryModel = "parity") -> DeviceResult:
        """Return counters of one execution under ``memory_model``. Values are not computed."""
        zeros = [np.zeros(port.shape, numpy_dtype(port.dtype)) for port in self.inputs]
        result = simulator.simulate(self.program, zeros, memory_model=memory_model, execute=False)
        return DeviceResult((), result.counters.to_dict())

    def explain(self) -> Mapping[str, Any]:
        """Return the causes of cycles of one execution by operator, and machine changes that would save cycles."""
        return simulator.explain(self.program)


class SimulatorDevice:
    """Device for ``.npu`` binaries of all targets. A binary contains the description of the machine."""

    name = "simulator"
    simulated = True

    def attached(self) -> Sequence[str]:
        """Return no targets: a simulator runs only if the user names a target."""
        return ()

    def examine(self, data: bytes, plan: Plan, machine: str | None) -> str | None:
        """Compare container, instruction set, digest of the machine's description, size and checksums."""
        stamps = read_stamps(data)
        if (stamps.major, stamps.isa_version) != (MAJOR, ISA_VERSION):
            versions = f"container {stamps.major}, instruction set {stamps.isa_version}"
            return f"it has {versions}; this simulator runs {MAJOR} and {ISA_VERSION}"
        name = machine or plan.target or ""
        if machine is None and name not in targets.names():
            check_whole(data)
            return None  # the binary contains its machine's description
        if name != plan.target:
            return f"it was compiled for {plan.target}, not for {name}"
        digest = targets.load(name).digest("sram" if plan.memory == "sram" else "flash")
        if hardware_id(digest) != stamps.hardware_id:
            return f"the description of {name} has changed since it was compiled"
        check_whole(data)
        return None

    def load(self, data: bytes) -> SimulatorProgram:
        """Check and load a binary. Raises PackageError or TargetError."""
        return SimulatorProgram(simulator.load(data))
