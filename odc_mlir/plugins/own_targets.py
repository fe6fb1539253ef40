"""Our own targets, registered by the door that is there for all: the NPU and the processor."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odc_mlir import targets
from odc_mlir.codegen.features import machine_facts
from odc_mlir.ops.spec import Node
from odc_mlir.plugins.target import FLOAT, TargetDescription
from odc_mlir.targets import cpu as processors

_DEFAULT_NPU = "npu-256"


def npu() -> TargetDescription:
    """The NPU that every file of :mod:`odc_mlir.targets` describes."""
    return TargetDescription(
        name="npu",
        extension="npu",
        schemes=("int8", "uint8"),
        rules=lambda machine: _NpuRules(machine or _DEFAULT_NPU),
        machines=targets.names,
        machine_files=".toml",
        identity=_npu_identity,
        summary="the NPU of docs/npu.md; here by its simulator",
    )


def cpu() -> TargetDescription:
    """The processor that runs this, or one of :mod:`odc_mlir.targets.cpu`."""
    return TargetDescription(
        name="cpu",
        extension="cpu",
        schemes=(FLOAT, "int8", "uint8"),
        rules=lambda machine: _CpuRules(machine or processors.HERE),
        machines=lambda: (processors.HERE, *processors.names()),
        identity=_cpu_identity,
        summary="machine code for a processor, by LLVM",
    )


def _npu_identity(machine: str | None) -> Sequence[str]:
    target = targets.load(machine or _DEFAULT_NPU)
    return target.name, target.digest("flash").hex()


def _cpu_identity(machine: str | None) -> Sequence[str]:
    return ("cpu", machine_facts()) if machine in (None, processors.HERE) else (machine or "",)


@dataclass(frozen=True)
class _NpuRules:
    """The table of :mod:`odc_mlir.transforms.partition.rules.table`."""

    machine: str

    def reason_against(self, node: Node) -> str | None:
        from odc_mlir.transforms.partition.rules.checks import PlacementLimits
        from odc_mlir.transforms.partition.rules.table import verdict

        target = targets.load(self.machine)
        found = verdict(node, PlacementLimits(target, target.sram.capacity_bytes))
        return None if found.supported else found.reason

    def lines(self) -> Iterator[str]:
        from odc_mlir.transforms.partition.rules.table import rules_text

        return rules_text()


@dataclass(frozen=True)
class _CpuRules:
    """What has a native kernel."""

    machine: str

    def reason_against(self, node: Node) -> str | None:
        from odc_mlir.codegen.machine import resolve
        from odc_mlir.transforms.native.lowering.layers import reason_against

        return reason_against(node, resolve(self.machine))

    def lines(self) -> Iterator[str]:
        yield "every operator"
        yield "  kernel: there is a native kernel for these element types, shapes and options; see docs/native.md"
