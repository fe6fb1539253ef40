"""Python API for IR: build a package from a module at any stage, or simulate the module.

A caller can lower a module with ``odc_mlir.lower``, change it by passes or by hand, and then call these functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from odc_mlir import compiler, targets
from odc_mlir.errors import UnsupportedError
from odc_mlir.ops.spec import Array
from odc_mlir.runtime.package import Package
from odc_mlir.simulator.counters import Counters
from odc_mlir.simulator.program import load
from odc_mlir.simulator.run import simulate as simulate_program


def package(module: ModuleOp, *, time_limit: float | None = None) -> Package:
    """Lower a copy of ``module`` from the present stage to the end, and return the package.

    The IR gives target and options. Passes of earlier stages do not run again, and NPU programs of ``module`` run once.
    Raises CompileError for IR between stages, and other OdcErrors.
    """
    return Package(compiler.package(module, time_limit=time_limit, run=True))


@dataclass(frozen=True)
class Simulation:
    """One simulated inference: cycles of all segments, counters per segment, and outputs for given inputs."""

    cycles: int
    segments: tuple[Counters, ...]
    outputs: tuple[Array, ...] | None


def simulate(module: ModuleOp, inputs: Sequence[Any] | None = None) -> Simulation:
    """Simulate the NPU programs of ``module``, at any stage: count cycles and, with ``inputs``, compute the outputs.

    Cycles do not depend on values. Host operators run on host kernels and take no cycles. Raises UnsupportedError for a
    module that has no NPU programs, and further OdcErrors.
    """
    made = Package(compiler.package(module))
    plan = made.plan
    if plan is None or not plan.segments or plan.memory is None:
        raise UnsupportedError("the module has no NPU program", hint="lower it for an NPU, such as npu-256")
    target = targets.load(plan.target or "")
    programs = [load(made.files.segment(step.file), target=target) for step in plan.segments]
    counters = tuple(simulate_program(program, execute=False).counters for program in programs)
    outputs = None if inputs is None else tuple(made.executor(strict=True).run(inputs))
    return Simulation(sum(item.cycles for item in counters), counters, outputs)
