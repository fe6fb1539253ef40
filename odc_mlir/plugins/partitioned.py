"""Codegen plugins that write packages, from a target's description and a compiler of segments."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path

from odc_mlir.errors import OptionError, PackageError
from odc_mlir.formats.package import PackageFiles, is_package, read_package, write_package
from odc_mlir.formats.quantities import counted
from odc_mlir.plugins.request import CodegenRequest
from odc_mlir.plugins.target import SegmentModel, TargetDescription


class PackageCodegen(ABC):
    """A codegen plugin with a package in a single (zip) file as output. Subclasses implement :meth:`package`."""

    @abstractmethod
    def package(self, model: str | bytes, request: CodegenRequest) -> PackageFiles:
        """Compile ``model``, which has the shapes of the request. Raises OdcError."""

    def compile(self, request: CodegenRequest) -> int:
        """Write the package. Raises OdcError."""
        model: str | bytes = read_package(request.model).model if is_package(request.model) else request.model
        if any(shape is not None for shape in request.shapes):
            model = _with_shapes(model, request.shapes)
        as_zip = Path(f"{request.output}.zip")
        write_package(self.package(model, request), as_zip)
        as_zip.replace(request.output)
        return 0

    def validate(self, output: str) -> None:
        """Raise PackageError if the file is not a compiled package."""
        if read_package(output).plan is None:
            raise PackageError("there is no plan in the package", location=output)


class PartitionedCodegen(PackageCodegen):
    """A codegen plugin for ``target``. Subclasses implement :meth:`compile_segment`."""

    def __init__(self, target: TargetDescription) -> None:
        self.target = target
        self.name = target.name
        self.extension = target.extension
        self.quantization = target.scheme
        self.takes_floats = target.takes_floats

    @abstractmethod
    def compile_segment(self, segment: SegmentModel, request: CodegenRequest) -> bytes:
        """Return the binary of a segment for the target's device.

        Raises OdcError for a segment that cannot be compiled. Operators of the segment then stay on the host.
        """

    def package(self, model: str | bytes, request: CodegenRequest) -> PackageFiles:
        """Read, fold and fuse the model, apply the rules, compare the costs and form segments. Raises OdcError."""
        from odc_mlir import compiler
        from odc_mlir.backends import ExternalBackend
        from odc_mlir.universe import make_context

        machine = request.target.get("target")
        named = None if machine is None else str(machine)
        backend = ExternalBackend(
            target=named or self.target.name,
            extension=self.extension,
            rules=self.target.rules_of(named),
            costs=self.target.costs_of(named),
            compile_segment=lambda segment: self.compile_segment(segment, request),
        )
        return compiler.compile_with(backend, make_context(), model)


def _with_shapes(model: str | bytes, shapes: Sequence[tuple[int, ...] | None]) -> bytes:
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
    return with_shapes(model if isinstance(model, bytes) else Path(model), wanted)
