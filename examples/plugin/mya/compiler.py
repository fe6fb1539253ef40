"""Segments to programs: one step per operator, a register per tensor."""

from __future__ import annotations

from typing import Any

import numpy as np

from mya.program import Program, Register
from mya.target import describe
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.ops.spec import Node
from odc_mlir.plugins.partitioned import PartitionedCodegen
from odc_mlir.plugins.request import CodegenRequest
from odc_mlir.plugins.target import SegmentModel
from odc_mlir.runtime.execution.graph import build_graph

_FUNCTIONS = {"RELU": "relu", "LOGISTIC": "logistic", "ADD": "add", "FULLY_CONNECTED": "matrix"}


class MyaCodegen(PartitionedCodegen):
    """Compiles for the accelerator; what it can run is told by the target's rules, so nothing is asked again here."""

    def __init__(self) -> None:
        super().__init__(describe())

    def compile_segment(self, segment: SegmentModel, request: CodegenRequest) -> bytes:
        """The program for one segment, which is a small Circle model."""
        graph = build_graph(read_model(segment.model))
        program = Program()
        for indices, found in ((graph.inputs, program.inputs), (graph.outputs, program.outputs)):
            for index in indices:
                info = graph.tensors[index]
                found.append(Register(index, info.name, info.static_shape))
        for item in graph.nodes:
            # Constants are data of a step; what is computed is in registers.
            registers = [i for i in item.inputs if i >= 0 and not graph.tensors[i].is_const]
            step: dict[str, Any] = {"do": _FUNCTIONS[item.node.spec.name], "in": registers, "out": item.outputs[0]}
            step["shape"] = item.node.results[0].static_shape
            step["relu"] = item.node.options.get("fused_activation_function", "none") == "relu"
            step["data"] = self._constants(item.node, program)
            program.steps.append(step)
        return program.to_bytes()

    def _constants(self, node: Node, program: Program) -> list[int]:
        found = []
        for info in node.operands:
            if info is not None and info.is_const:
                found.append(len(program.data))
                program.data.append(np.asarray(info.array(), np.float32))
        return found


def create_codegen() -> MyaCodegen:
    """The plugin, as its entry point names it."""
    return MyaCodegen()
