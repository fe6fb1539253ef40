"""Our own targets and codegen plugins, ``npu`` and ``cpu``, registered like plugins of other packages.

LLVM runs in the process of ``cpu-gen``. A defect of LLVM therefore cannot affect an application.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from odc_mlir import processors, targets
from odc_mlir.codegen.machine import EXTRA, HINT, has_code_generator, machine_facts
from odc_mlir.formats.package import PackageFiles
from odc_mlir.ops.spec import Node
from odc_mlir.plugins.partitioned import PackageCodegen
from odc_mlir.plugins.request import CodegenRequest, Preference
from odc_mlir.plugins.target import FLOAT, TargetDescription

_DEFAULT_NPU = "npu-256"
_PREFERENCES = {
    Preference.DEFAULT: "performance",
    Preference.PERFORMANCE_FIRST: "performance",
    Preference.MEMORY_FIRST: "memory",
    Preference.COMPILE_TIME_FIRST: "compile-time",
}
_DEFAULTS: dict[str, str | int | None] = {"target": _DEFAULT_NPU, "memory": "flash", "sram_limit": None}


def npu() -> TargetDescription:
    """Return the target of the NPUs in :mod:`odc_mlir.targets`."""
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
    """Return the targets for processors: this processor, and targets in :mod:`odc_mlir.processors`."""
    return TargetDescription(
        name="cpu",
        extension="cpu",
        schemes=(FLOAT, "int8", "uint8"),
        rules=lambda machine: _CpuRules(),
        machines=lambda: (processors.HERE, *processors.names()),
        identity=lambda machine: ("cpu", machine_facts()) if machine in (None, processors.HERE) else (machine or "",),
        summary="machine code for a processor, by LLVM",
    )


def _npu_identity(machine: str | None) -> Sequence[str]:
    target = targets.load(machine or _DEFAULT_NPU)
    return target.name, target.digest("flash").hex()


@dataclass(frozen=True)
class _NpuRules:
    """Rules of :mod:`odc_mlir.transforms.partition.rules.table`."""

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
    """Rule for all processors: a native kernel exists."""

    def reason_against(self, node: Node) -> str | None:
        from odc_mlir.transforms.native.lowering.operators import kernel_reason

        return kernel_reason(node)

    def lines(self) -> Iterator[str]:
        yield "every operator"
        yield "  kernel: there is a native kernel for these element types, shapes and options; see docs/native.md"


class NpuCodegen(PackageCodegen):
    """Compiler of quantised models for the NPU."""

    name = "odc-mlir NPU"
    extension = "npu"
    quantization = "int8"

    def package(self, model: str | bytes, request: CodegenRequest) -> PackageFiles:
        """Compile for the target, memory mode, SRAM limit and preference of the request. Raises OdcError."""
        from odc_mlir import compiler

        chosen = {key: request.target.get(key, default) for key, default in _DEFAULTS.items()}
        return compiler.compile(model, prefer=_PREFERENCES[request.preference], **chosen)  # type: ignore[arg-type]


class CpuCodegen(PackageCodegen):
    """Compiler of float and quantised models for a processor."""

    name = "odc-mlir native code"
    extension = "cpu"
    quantization = "int8"
    takes_floats = True

    def supports(self, model: str) -> str | None:
        """Return why models cannot be compiled if LLVM is missing, or None if it is installed."""
        return None if has_code_generator() else f"native code needs the package {EXTRA}; {HINT}"

    def package(self, model: str | bytes, request: CodegenRequest) -> PackageFiles:
        """Compile for the processor of the request. Raises OdcError."""
        from odc_mlir import compiler

        return compiler.compile(model, target=str(request.target.get("target") or processors.HERE))
