"""What codegen plugins that make packages have in common: the model of a request, and the file that is asked for."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from odc_mlir.errors import OptionError, PackageError
from odc_mlir.formats.package import PackageFiles, is_package, read_package, write_package
from odc_mlir.formats.quantities import counted
from odc_mlir.plugins.request import CodegenRequest


def model_of(request: CodegenRequest) -> str | bytes:
    """The model to compile, with the shapes that are asked for; raises OdcError."""
    model: str | bytes = read_package(request.model).model if is_package(request.model) else request.model
    if any(shape is not None for shape in request.shapes):
        model = _with_shapes(model, request.shapes)
    return model


def write_output(files: PackageFiles, request: CodegenRequest) -> None:
    """Write a package as the one file of the request."""
    as_zip = Path(f"{request.output}.zip")
    write_package(files, as_zip)
    as_zip.replace(request.output)


def check_package(output: str) -> None:
    """Raise PackageError for a file that is no compiled package."""
    if read_package(output).plan is None:
        raise PackageError("there is no plan in the package", location=output)


def _with_shapes(model: str | bytes, shapes: Sequence[tuple[int, ...] | None]) -> bytes:
    """The model with these input shapes, where there is one; raises OdcError."""
    from odc_mlir.formats.circle.reader import read_model
    from odc_mlir.runtime.auto.build import with_shapes

    graph = read_model(model).subgraphs[0]
    if len(shapes) != len(graph.inputs):
        raise OptionError(
            f"{counted(len(shapes), 'input shape')} given, but the model has {counted(len(graph.inputs), 'input')}"
        )
    wanted = []
    for index, shape in zip(graph.inputs, shapes, strict=True):
        tensor = graph.tensors[index]
        known = tensor.effective_shape if shape is None else shape
        if known is None or None in known:
            raise OptionError("the input's shape is unknown and must be given", tensor=tensor.name)
        wanted.append([dim for dim in known if dim is not None])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "model.circle")
        path.write_bytes(model if isinstance(model, bytes) else Path(model).read_bytes())
        return with_shapes(path, wanted)
