"""The two clocks of the project. They are never mixed, and every number says which of them it is read from.

*Modelled*: what one inference takes on the target. It is a function of the package alone: the simulator's cycles of
every segment, the target's model of its host for every operator there and for the way to the NPU and back. Report,
page, headline, trace and Python give the same number, on every machine, always.

*Measured here*: wall or CPU time of this machine, with the number of runs, of runs before them, and the spread. It
says how fast this machine is, simulator included, and nothing about the target. Reports hold it under ``measured``.

A third kind of number is no clock: an *estimate* is what the partitioner compares plans by before there is a program.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from odc_mlir import targets
from odc_mlir.errors import TargetError
from odc_mlir.formats.plan import Plan, SegmentStep
from odc_mlir.ops.work import tensor_bytes
from odc_mlir.runtime.execution.work import Measured
from odc_mlir.targets.host import REFERENCE, HostCosts, load_host, parse_host


@dataclass(frozen=True, slots=True)
class ModelledTime:
    """Modelled nanoseconds of one operator on the host, or of one segment (no ``operator``) with the way to it.

    ``op`` is the kind of operator.
    """

    name: str
    op: str
    operator: int | None
    host_ns: float = 0.0
    npu_ns: float = 0.0
    transfer_ns: float = 0.0
    switch_ns: float = 0.0

    @property
    def ns(self) -> float:
        return self.host_ns + self.npu_ns + self.transfer_ns + self.switch_ns


@dataclass(frozen=True, slots=True)
class Modelled:
    """One inference by the modelled clock: its parts, one after another."""

    parts: tuple[ModelledTime, ...]

    @property
    def latency_ns(self) -> float:
        return sum(part.ns for part in self.parts)

    @property
    def latency_ms(self) -> float:
        return self.latency_ns / 1e6

    def to_dict(self) -> dict[str, float]:
        """Latency and what it consists of, in milliseconds."""
        sums = {
            key: sum(getattr(part, f"{key}_ns") for part in self.parts) for key in ("npu", "host", "transfer", "switch")
        }
        return {"latency_ms": self.latency_ms, **{f"{key}_ms": value / 1e6 for key, value in sums.items()}}


def host_of(plan: Plan) -> HostCosts:
    """The host that a plan was made for; plans that do not say are of the target's, else of the reference host."""
    if "host" in plan.partition:
        return parse_host(plan.partition["host"], "plan.json")
    try:
        return targets.load(plan.target or "").host
    except TargetError:
        return load_host(REFERENCE, "plan.json")


def modelled(plan: Plan, measured: Measured, cycles: Mapping[str, float], clock_hz: int | None) -> Modelled:
    """One inference of ``plan``; ``cycles``: of segments that the device runs, by file. The host runs others."""
    host, parts = host_of(plan), list[ModelledTime]()
    for step in plan.steps:
        if isinstance(step, SegmentStep) and step.file in cycles and clock_hz:
            tensors = [measured.tensors[index] for index in (*step.inputs, *step.outputs)]
            npu_ns = 1e9 * cycles[step.file] / clock_hz
            moved_ns = host.transfer_ns(len(tensors), sum(map(tensor_bytes, tensors)))
            parts.append(ModelledTime(step.name, "SEGMENT", None, 0.0, npu_ns, moved_ns, host.switch_ns))
        else:
            nodes = ((index, measured.nodes[index]) for index in step.operators)
            parts += [ModelledTime(n.name, n.spec.name, i, measured.works[i].host_ns) for i, n in nodes]
    return Modelled(tuple(parts))
