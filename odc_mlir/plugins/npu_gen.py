"""``npu-gen``: the compiler of this project as a plugin.

What it makes is an nnpackage in one (zip) file, told by its content as everywhere: the model, the plan and the binaries
of all segments. The preference, the target, the memory mode, the SRAM limit and the input shapes of the request count.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from odc_mlir.errors import OptionError, PackageError
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

        chosen = {key: request.target.get(key, default) for key, default in _DEFAULTS.items()}
        model: str | bytes = read_package(request.model).model if is_package(request.model) else request.model
        if any(shape is not None for shape in request.shapes):
            model = _with_shapes(model, request.shapes)
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


def _with_shapes(model: str | bytes, shapes: Sequence[tuple[int, ...] | None]) -> bytes:
    """The model with these input shapes, where there is one; raises OdcError."""
    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.runtime.auto.build import with_shapes

    graph = read_model(model).subgraphs[0]
    if len(shapes) != len(graph.inputs):
        raise OptionError(f"{len(shapes)} input shapes are given, the model has {len(graph.inputs)} inputs")
    wanted = []
    for index, shape in zip(graph.inputs, shapes, strict=True):
        tensor = graph.tensors[index]
        known = tensor.effective_shape if shape is None else shape
        if known is None or None in known:
            raise OptionError("the input's shape is not known, so it has to be given", tensor=tensor.name)
        wanted.append([dim for dim in known if dim is not None])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.circle")
        path.write_bytes(model if isinstance(model, bytes) else Path(model).read_bytes())
        return with_shapes(path, wanted)


def create_codegen() -> NpuCodegen:
    """The plugin, as its entry point names it."""
    return NpuCodegen()
