"""``cpu-gen``: native code for the machine that runs this, or for a processor that is named, as a plugin.

What it makes is an nnpackage in one (zip) file. LLVM runs in the plugin's process, so nothing that it does can touch an
application. The target and the input shapes of the request count.
"""

from __future__ import annotations

from odc_mlir.codegen.features import EXTRA, HINT, has_code_generator
from odc_mlir.plugins.packages import check_package, model_of, write_output
from odc_mlir.plugins.request import CodegenRequest


class CpuCodegen:
    """Compiles models of real numbers and of codes for a processor."""

    name = "odc-mlir native code"
    extension = "cpu"
    quantization = "int8"
    takes_floats = True

    def supports(self, model: str) -> str | None:
        """Nothing is compiled without LLVM."""
        return None if has_code_generator() else f"native code needs the package {EXTRA}; {HINT}"

    def compile(self, request: CodegenRequest) -> int:
        """Write the package; raises OdcError."""
        from odc_mlir import compiler

        write_output(compiler.compile(model_of(request), target=str(request.target.get("target") or "cpu")), request)
        return 0

    def validate(self, output: str) -> None:
        """Raise PackageError for a file that is no compiled package."""
        check_package(output)


def create_codegen() -> CpuCodegen:
    """The plugin, as its entry point names it."""
    return CpuCodegen()
