"""``npu-gen``: the compiler of this project as a plugin.

What it makes is an nnpackage in one (zip) file, told by its content as everywhere: the model, the plan and the binaries
of all segments. The preference, the target, the memory mode, the SRAM limit and the input shapes of the request count.
"""

from __future__ import annotations

from odc_mlir.plugins.packages import check_package, model_of, write_output
from odc_mlir.plugins.request import CodegenRequest, Preference

_PREFERENCES = {
    Preference.DEFAULT: "performance",
    Preference.PERFORMANCE_FIRST: "performance",
    Preference.MEMORY_FIRST: "memory",
    Preference.COMPILE_TIME_FIRST: "compile-time",
}
_DEFAULTS: dict[str, str | int | None] = {"target": "npu-256", "memory": "flash", "sram_limit": None}


class NpuCodegen:
    """Compiles quantised models for the NPU."""

    name = "odc-mlir NPU"
    extension = "npu"
    quantization = "int8"

    def compile(self, request: CodegenRequest) -> int:
        """Write the package; raises OdcError."""
        from odc_mlir import compiler

        chosen = {key: request.target.get(key, default) for key, default in _DEFAULTS.items()}
        model = model_of(request)
        prefer = _PREFERENCES[request.preference]
        files = compiler.compile(model, prefer=prefer, **chosen)  # type: ignore[arg-type]
        write_output(files, request)
        return 0

    def validate(self, output: str) -> None:
        """Raise PackageError for a file that is no compiled package."""
        check_package(output)


def create_codegen() -> NpuCodegen:
    """The plugin, as its entry point names it."""
    return NpuCodegen()
