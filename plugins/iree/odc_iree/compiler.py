"""Segments to programs: IREE's compiler reads them as StableHLO text."""

from __future__ import annotations

import hashlib
import json

import iree.compiler

from odc_iree.target import describe, facts
from odc_iree.text import module_text
from odc_mlir.errors import CompileError, PackageError
from odc_mlir.formats.circle.reader import read_model
from odc_mlir.plugins.partitioned import PartitionedCodegen
from odc_mlir.plugins.request import CodegenRequest
from odc_mlir.plugins.target import SegmentModel
from odc_mlir.runtime.devices.base import Port
from odc_mlir.runtime.execution.graph import build_graph

_MAGIC = b"odc-iree 1\n"
_ARGUMENTS = ("--iree-llvmcpu-target-cpu=host", "--iree-opt-level=O3")


class IreeCodegen(PartitionedCodegen):
    """Compiler for this processor."""

    def __init__(self) -> None:
        super().__init__(describe())

    def compile_segment(self, segment: SegmentModel, request: CodegenRequest) -> bytes:
        """Return the binary of a segment; raise CompileError with IREE's first message."""
        return compiled(segment)


def compiled(segment: SegmentModel) -> bytes:
    """Return the program of a segment; raise CompileError with IREE's first message."""
    graph = build_graph(read_model(segment.model))
    try:
        code = iree.compiler.compile_str(
            module_text(graph), target_backends=["llvm-cpu"], input_type="stablehlo", extra_args=list(_ARGUMENTS)
        )
    except iree.compiler.CompilerToolError as error:
        lines = [line for line in str(error).splitlines() if "error:" in line]
        raise CompileError(f"IREE's compiler fails: {(lines or ['without a message'])[0]}") from None
    ports = [
        [(graph.tensors[tensor].name, graph.tensors[tensor].static_shape) for tensor in tensors]
        for tensors in (graph.inputs, graph.outputs)
    ]
    return to_bytes(ports, code)


def to_bytes(ports: object, code: bytes) -> bytes:
    """Return a file: magic number, digest of the rest, a line with ports and facts of the machine, IREE's module."""
    body = json.dumps({"ports": ports, "facts": facts()}).encode() + b"\n" + code
    return _MAGIC + hashlib.sha256(body).digest() + body


def parse(data: bytes) -> tuple[tuple[Port, ...], tuple[Port, ...], bytes]:
    """Return inputs, outputs and IREE's module; raise PackageError for damage, another version or another machine."""
    start = len(_MAGIC) + hashlib.sha256().digest_size
    body = data[start:]
    if not data.startswith(_MAGIC) or hashlib.sha256(body).digest() != data[len(_MAGIC) : start]:
        raise PackageError("this is no program for IREE, or it is damaged", hint="compile again")
    line, _, code = body.partition(b"\n")
    try:
        fields = json.loads(line)
        inputs, outputs = (
            tuple(Port(str(name), "float32", tuple(map(int, shape))) for name, shape in ports)
            for ports in fields["ports"]
        )
        made = tuple(map(str, fields["facts"]))
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise PackageError(f"the program has a malformed header: {error}") from None
    differing = [f"{there} there, {here} here" for there, here in zip(made, facts(), strict=False) if there != here]
    if differing or len(made) != len(facts()):
        raise PackageError(f"it was compiled for other software or another processor: {'; '.join(differing)}")
    return inputs, outputs, code


def create_codegen() -> IreeCodegen:
    """Return the codegen plugin."""
    return IreeCodegen()
