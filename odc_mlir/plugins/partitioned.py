"""The easy way to a codegen plugin: give a target's description and a compiler of segments, get packages.

A plugin may do everything by itself (:class:`~odc_mlir.plugins.request.CodegenPlugin` asks for one method). One that
only knows how to compile a run of operators for its hardware leaves the rest to this: reading, folding and fusing the
model, asking the rules, weighing the costs, cutting, and writing the package that any session runs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from odc_mlir.plugins.packages import check_package, model_of, write_output
from odc_mlir.plugins.request import CodegenRequest
from odc_mlir.plugins.target import SegmentModel, TargetDescription


class PartitionedCodegen(ABC):
    """A codegen plugin for ``target``: what is missing is :meth:`compile_segment`."""

    def __init__(self, target: TargetDescription) -> None:
        self.target = target
        self.name = target.name
        self.extension = target.extension
        self.quantization = target.scheme
        self.takes_floats = target.takes_floats

    @abstractmethod
    def compile_segment(self, segment: SegmentModel, request: CodegenRequest) -> bytes:
        """The binary of a segment, as the target's device loads it.

        Raises OdcError where it cannot be made: its operators stay on the host then, with that as the reason.
        """

    def compile(self, request: CodegenRequest) -> int:
        """Write the package; raises OdcError."""
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
        write_output(compiler.compile_with(backend, make_context(), model_of(request)), request)
        return 0

    def validate(self, output: str) -> None:
        """Raise PackageError for a file that is no compiled package."""
        check_package(output)
