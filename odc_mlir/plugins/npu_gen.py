"""``npu-gen``: the compiler of this project as a plugin.

What it makes is an nnpackage in one (zip) file, told by its content as everywhere: the model, the plan and the binaries
of all segments. The preference, the target, the memory mode and the SRAM limit of the request are honoured.
"""

from __future__ import annotations

from pathlib import Path

from odc_mlir.errors import PackageError, UnsupportedError
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
        from odc_mlir.formats.package import is_package, read_package, write_package

        if any(shape is not None for shape in request.shapes):
            raise UnsupportedError("input shapes cannot be fixed here", hint="write the model with those shapes")
        chosen = {key: request.target.get(key, default) for key, default in _DEFAULTS.items()}
        model = read_package(request.model).model if is_package(request.model) else request.model
        prefer = _PREFERENCES[request.preference]
        files = compiler.compile(model, prefer=prefer, **chosen)  # type: ignore[arg-type]
        as_zip = Path(f"{request.output}.zip")
        write_package(files, as_zip)
        as_zip.replace(request.output)
        return 0

    def validate(self, output: str) -> None:
        """Raise PackageError for a file that is no compiled package."""
        from odc_mlir.formats.package import read_package

        if read_package(output).plan is None:
            raise PackageError("there is no plan in the package", location=output)


def create_codegen() -> NpuCodegen:
    """The plugin, as its entry point names it."""
    return NpuCodegen()
