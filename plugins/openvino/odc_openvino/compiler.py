"""Segments to programs: OpenVINO's frontend for TFLite reads them, and the device's plugin compiles them."""

from __future__ import annotations

from odc_mlir.errors import UnsupportedError
from odc_mlir.formats.circle.model import SubGraph
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.plugins.partitioned import PartitionedCodegen
from odc_mlir.plugins.request import CodegenRequest
from odc_mlir.plugins.target import SegmentModel
from odc_mlir.runtime.devices.base import Port
from odc_openvino.importing import reason_of, to_openvino
from odc_openvino.machines import core, machine_of
from odc_openvino.program import Program
from odc_openvino.target import describe


class OpenVinoCodegen(PartitionedCodegen):
    """Compiler for OpenVINO's devices."""

    def __init__(self) -> None:
        super().__init__(describe())

    def compile_segment(self, segment: SegmentModel, request: CodegenRequest) -> bytes:
        """Return the program of a segment; raise UnsupportedError with OpenVINO's reason."""
        named = request.target.get("target")
        machine = machine_of(None if named is None else str(named))
        model = read_model(segment.model)
        (graph,) = model.subgraphs
        try:
            compiled = core().compile_model(to_openvino(model), machine.device, machine.properties())
            blob = compiled.export_model()
        except RuntimeError as error:
            raise UnsupportedError(reason_of(error)) from None
        inputs, outputs = _ports(graph, graph.inputs), _ports(graph, graph.outputs)
        return Program(machine.name, machine.facts(), inputs, outputs, _bytes(blob)).to_bytes()


def _ports(graph: SubGraph, places: tuple[int, ...]) -> tuple[Port, ...]:
    tensors = [graph.tensors[place] for place in places]
    return tuple(Port(tensor.name, tensor.dtype, tuple(tensor.shape or ())) for tensor in tensors)


def _bytes(blob: object) -> bytes:
    return blob.getvalue() if hasattr(blob, "getvalue") else bytes(blob)  # type: ignore[call-overload, no-any-return]


def create_codegen() -> OpenVinoCodegen:
    """Return the codegen plugin."""
    return OpenVinoCodegen()
